"""The coordinator's criteria S_j: what is asked of the shared model besides a small loss on the agents' samples.

A criterion is a function of parameters, to be small, with its proximal operator where it has a simple one::

    prox(s, ρ) = argmin_θ  ρ S(θ) + ½ ‖θ − s‖²

==================  ==============================================================================  ========  =====
name                S(θ)                                                                            smooth    prox
==================  ==============================================================================  ========  =====
squared_norm        (c/2) ‖θ‖²                                                                      yes       yes
distance            (c/2) ‖θ − reference‖²                                                          yes       yes
l1                  c ‖θ‖₁                                                                          no        yes
group_lasso         c Σ ‖rows of θ‖                                                                 no        yes
public_loss         the model's mean loss on public samples                                         yes       no
demographic_parity  mean over pairs of groups g, h of (p_g − p_h)²                                  yes       no
equalized_odds      mean over true classes y and pairs of groups of (p_gy − p_hy)²                  yes       no
criterion           your own function                                                               you say   yours
==================  ==============================================================================  ========  =====

Here p_g is the mean *predicted probability* of the favourable class over the public samples of group g, and p_gy that
over its samples of true class y. The usual gaps are differences of the rates of *decisions*, which have no gradient;
these are smooth stand-ins for their squares, zero where predicted probabilities do not depend on the group on average.
Fronts report the gap between decisions beside them (`Criterion.decision_gap`).

`coordinate` gives several criteria their weights.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from majorant.core import Tree
from majorant.core import squared_norm as square_of
from majorant.math.checks import check_range
from majorant.models.base import Model
from majorant.surrogates import regularizers
from majorant.tradeoffs.coordinator import coordinate as coordinate
from majorant.tradeoffs.criterion import Criterion, Quadratic, check_shapes
from majorant.tradeoffs.public_samples import check_label, members, samples, squared_differences


def criterion(
    value: Callable[[Tree], jax.Array],
    *,
    name: str = "own",
    prox: Callable[[Tree, jax.Array | float], Tree] | None = None,
    smooth: bool = True,
    convex: bool = False,
) -> Criterion:
    """A criterion of your own: a function of the parameters, in JAX, that gives one number.

    Say ``convex=True`` where it is: then points can be compared with centralized solutions (`pareto.agreement`).

    >>> criterion(lambda theta: jnp.sum(theta**4), name="quartic").value(jnp.array([1.0, 2.0]))
    Array(17., dtype=float32)
    """
    if not callable(value):
        raise ValueError(f"a criterion is a function of the parameters, got {type(value).__name__}")
    if prox is None and not smooth:
        raise ValueError(f"{name} is not differentiable: give its proximal operator, prox(params, step)")
    return Criterion(name, one_number(name, value), prox, smooth, convex=convex)


def one_number(name: str, value: Callable[[Tree], Any]) -> Callable[[Tree], jax.Array]:
    """A function of a user's that says what is wrong where it fails or gives anything but a number.

    It says so when a program is traced, which comes before any work.
    """

    def checked(params: Tree) -> jax.Array:
        try:
            found = value(params)
        except jax.errors.JAXTypeError as error:
            raise ValueError(f"the criterion {name} must be written with jax.numpy: {error}") from error
        except Exception as error:
            raise ValueError(f"the criterion {name} fails on the model's parameters: {error!r}") from error
        if not isinstance(found, jax.Array | np.ndarray | np.generic | float | int) or jnp.shape(found) != ():
            kind = f"an array {jnp.shape(found)}" if hasattr(found, "shape") else f"a {type(found).__name__}"
            raise ValueError(f"the criterion {name} must give one number, got {kind}: take a sum or a mean")
        return jnp.asarray(found).astype(jnp.result_type(float))

    return checked


def squared_norm(factor: float = 1.0) -> Criterion:
    """Small parameters: (factor/2) ‖θ‖².

    >>> squared_norm(2.0).prox(jnp.array([3.0, -1.5]), 1.0)
    Array([ 1. , -0.5], dtype=float32)
    """
    check_range("factor", factor, above=0)
    penalty = regularizers.l2(factor)
    return Criterion("squared_norm", penalty.value, penalty.prox, True, Quadratic(factor), convex=True)


def distance(reference: Tree, factor: float = 1.0) -> Criterion:
    """Parameters close to those of a reference model: (factor/2) ‖θ − reference‖².

    >>> distance(jnp.array([1.0])).value(jnp.array([3.0]))
    Array(2., dtype=float32)
    """
    check_range("factor", factor, above=0)
    reference = jax.tree.map(jnp.asarray, reference)
    leaves = jax.tree.leaves(reference)
    if not leaves or not all(bool(jnp.isfinite(leaf).all()) for leaf in leaves):
        raise ValueError("the reference model of a distance needs parameters, all of them finite")

    def value(params: Tree) -> jax.Array:
        check_shapes("the reference model of the distance", reference, params)
        return factor / 2 * square_of(jax.tree.map(jnp.subtract, params, reference))

    def pull(s: Tree, rho: jax.Array | float) -> Tree:
        check_shapes("the reference model of the distance", reference, s)
        return jax.tree.map(lambda a, c: (a + rho * factor * c) / (1 + rho * factor), s, reference)

    return Criterion("distance", value, pull, True, Quadratic(factor, reference), convex=True)


def l1(factor: float = 1.0) -> Criterion:
    """Sparse parameters: factor · ‖θ‖₁."""
    check_range("factor", factor, above=0)
    penalty = regularizers.l1(factor)
    return Criterion("l1", penalty.value, penalty.prox, smooth=False, convex=True)


def group_lasso(factor: float = 1.0) -> Criterion:
    """Rows (the first axis of every array) that vanish together: factor · Σ ‖rows‖."""
    check_range("factor", factor, above=0)
    penalty = regularizers.group_lasso(factor)
    return Criterion("group_lasso", penalty.value, penalty.prox, smooth=False, convex=True)


def public_loss(model: Model, x: Any, y: Any, *, factor: float = 1.0) -> Criterion:
    """The model's mean loss on samples that the coordinator holds, times ``factor``."""
    check_range("factor", factor, above=0)
    x, y = samples(model, x, y=y)
    return Criterion("public_loss", lambda params: factor * model.losses(params, x, y).mean(), convex=model.convex)


def demographic_parity(model: Model, x: Any, group: Any, *, label: int = 1, factor: float = 1.0) -> Criterion:
    """The mean over pairs of groups of the squared difference of the mean probabilities predicted for ``label``.

    ``group`` has the group of every public sample. For two groups this is (p_0 − p_1)², times ``factor``.
    """
    check_label(model, label)
    x, group = samples(model, x, group=group)
    return between_groups("demographic_parity", model, x, members(group)[None], label, factor)


def equalized_odds(model: Model, x: Any, y: Any, group: Any, *, label: int = 1, factor: float = 1.0) -> Criterion:
    """As `demographic_parity` among the samples of each true class, averaged over the classes.

    For two groups and two classes it is half the sum of the squared differences in the mean probability predicted for
    ``label`` among the samples with it and among those without. Every group needs samples of every class.
    """
    check_label(model, label)
    x, y, group = samples(model, x, y=y, group=group)
    each = []
    for truth in np.unique(y):
        missing = set(np.unique(group).tolist()) - set(np.unique(group[y == truth]).tolist())
        if missing:
            raise ValueError(
                f"equalized odds compares groups within each class, but group {missing.pop()!r} has no public sample "
                f"of class {truth}: give more samples, or use demographic_parity"
            )
        each.append(members(group, y == truth))
    return between_groups("equalized_odds", model, x, jnp.stack(each), label, factor)


def between_groups(name: str, model: Model, x: Any, belongs: jax.Array, label: int, factor: float) -> Criterion:
    """Squared differences of groups' mean probabilities; ``belongs`` ``(classes, groups, n)`` takes the means.

    The decision gap, which is reported and not trained, is the largest difference between two groups in the share of
    samples that are decided to be of class ``label``, over the classes.
    """
    check_range("factor", factor, above=0)

    def value(params: Tree) -> jax.Array:
        return factor * jax.vmap(squared_differences)(belongs @ model.predict(params, x)[:, label]).mean()

    def decision_gap(params: Tree) -> jax.Array:
        rates = belongs @ (model.predict(params, x).argmax(axis=1) == label).astype(belongs.dtype)
        return jnp.ptp(rates, axis=1).max()

    return Criterion(name, value, decision_gap=decision_gap)
