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

Several criteria count with weights that sum to 1, equal ones unless given: λ Σ_j w_j S_j is the (λ/N) Σ_j S_j of the
weighted-sum method.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from majorant.core import Tree
from majorant.core import squared_norm as square_of
from majorant.math.checks import check_range
from majorant.models.base import Model
from majorant.surrogates import regularizers


class Quadratic(NamedTuple):
    """(factor/2) ‖θ − center‖²; a center of None is 0."""

    factor: float
    center: Tree = None


class Criterion(NamedTuple):
    """A function of parameters that should be small; ``quadratic`` says so where it is a multiple of ‖θ − center‖²."""

    name: str
    value: Callable[[Tree], jax.Array]
    prox: Callable[[Tree, jax.Array | float], Tree] | None = None  # (s, ρ)
    smooth: bool = True
    quadratic: Quadratic | None = None
    convex: bool = False  # known to be, not merely not known to be otherwise
    decision_gap: Callable[[Tree], jax.Array] | None = None  # between groups, of rates of decisions: for reports


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


def samples(model: Model, x: Any, **others: Any) -> tuple[Any, ...]:
    """Public samples as arrays, one row of each for every sample, that fit the model."""
    arrays = {"x": np.asarray(x)} | {name: np.asarray(value) for name, value in others.items()}
    lengths = {name: len(a) if a.ndim else 0 for name, a in arrays.items()}
    if len(set(lengths.values())) > 1 or 0 in lengths.values():
        raise ValueError(f"public data needs as many rows in each array, and at least one, got {lengths}")
    features = tuple(model.spec.features)
    if arrays["x"].shape[1:] != features:
        raise ValueError(
            f"public samples must be as those of {model.name}, of shape {features}, got {arrays['x'].shape[1:]}"
        )
    for name, wanted in {"x": "numbers", "y": "labels", "group": "groups"}.items():
        if name in others and arrays[name].ndim > 1:
            raise ValueError(f"public data needs one value of {name} for every sample, got {arrays[name].shape}")
        if name in arrays and missing(arrays[name], numeric=name != "group"):
            raise ValueError(f"public data has {wanted} in {name} that are missing, infinite or no numbers")
    if "y" in arrays and model.spec.classes:
        arrays["y"] = labels(arrays["y"], model.spec.classes)
    return tuple(arrays.values())


def missing(values: np.ndarray, numeric: bool) -> bool:
    """Whether values are not finite; numbers, where they must be, or names."""
    if np.issubdtype(values.dtype, np.number) or values.dtype == bool:
        return not bool(np.isfinite(values).all())
    return numeric or any(value is None or value != value for value in values.tolist())


def labels(y: np.ndarray, classes: int) -> np.ndarray:
    """Codes of classes."""
    wrong = (y != np.round(y)) | (y < 0) | (y >= classes)
    if wrong.any():
        raise ValueError(
            f"public labels must be codes of the model's {classes} classes, counted from 0, got {y[wrong][0]}"
        )
    return y.astype(np.int32)


def check_shapes(what: str, tree: Tree, params: Tree) -> None:
    """Parameters of another model must have the shapes of these, leaf by leaf: others would broadcast unseen."""
    shapes = lambda tree: {jax.tree_util.keystr(path): jnp.shape(a) for path, a in jax.tree.leaves_with_path(tree)}
    there, here = shapes(tree), shapes(params)
    for name in [*here, *there]:
        if there.get(name) != here.get(name):
            found, wanted = (each.get(name, "not there") for each in (there, here))
            raise ValueError(f"{what} has other parameters than the trained model: {name} is {found}, not {wanted}")


def members(group: np.ndarray, among: np.ndarray | None = None) -> jax.Array:
    """The matrix ``(groups, n)`` that takes the mean over each group's samples, or over some of them."""
    names = np.unique(group)
    if len(names) < 2:
        raise ValueError(f"a gap between groups needs at least two of them, but every public sample is in {names[0]}")
    belongs = (group == names[:, None]) & (True if among is None else among)
    return jnp.asarray(belongs / belongs.sum(axis=1, keepdims=True), jnp.result_type(float))


def check_label(model: Model, label: int) -> None:
    """The favourable class must be one of the model's."""
    if not model.spec.classes:
        raise ValueError(f"a gap between groups is one of predicted classes, and {model.name} is a regression")
    if not isinstance(label, int | np.integer) or not 0 <= label < model.spec.classes:
        raise ValueError(f"label must be one of the model's {model.spec.classes} classes, counted from 0, got {label}")


def squared_differences(rates: jax.Array) -> jax.Array:
    """The mean of (a − b)² over pairs."""
    first, second = np.array(list(itertools.combinations(range(rates.shape[0]), 2))).T
    return jnp.square(rates[first] - rates[second]).mean()


class Coordinator(NamedTuple):
    """Criteria with weights: S = Σ_j w_j S_j. Functions of ``weights`` take other ones in place of ``shares``."""

    criteria: tuple[Criterion, ...]
    shares: tuple[float, ...]

    def values(self, params: Tree) -> jax.Array:
        """Every S_j, ``(N,)``."""
        return jnp.stack([c.value(params).astype(jnp.result_type(float)) for c in self.criteria])

    def named(self, params: Tree) -> dict[str, jax.Array]:
        """Every S_j by name."""
        return dict(zip(self.names, self.values(params), strict=True))

    @property
    def names(self) -> tuple[str, ...]:
        """The criteria's names, numbered where several have the same."""
        given = [c.name for c in self.criteria]
        return tuple(f"{n}_{given[: i + 1].count(n)}" if given.count(n) > 1 else n for i, n in enumerate(given))

    @property
    def share_names(self) -> tuple[str, ...]:
        """The weights' names as hyperparameters; a single criterion has none, as its weight is 1."""
        return tuple(f"share_{name}" for name in self.names) if len(self.criteria) > 1 else ()

    @property
    def hyper(self) -> dict[str, float]:
        """The weights w_j as hyperparameters."""
        return dict(zip(self.share_names, self.shares, strict=False))

    def shares_of(self, hyper: Mapping[str, Any]) -> tuple[Any, ...]:
        """The weights w_j that hyperparameters say; those that they do not name stay as they are."""
        known = self.hyper | dict(hyper)
        return tuple(known[name] for name in self.share_names) or self.shares

    def check_shares(self, hyper: Mapping[str, float]) -> None:
        """Complains about weights among hyperparameters that are negative, or do not sum to 1 with the others."""
        shares = [float(share) for share in self.shares_of(hyper)]
        if not min(shares) >= 0 or not abs(sum(shares) - 1) < 1e-6:
            named = ", ".join(f"{name} = {share:g}" for name, share in zip(self.share_names, shares, strict=True))
            raise ValueError(f"the criteria's weights must be at least 0 and sum to 1, got {named}")

    def decision_gaps(self, params: Tree) -> dict[str, jax.Array]:
        """By name, the gaps between groups' rates of decisions, of the criteria that are about groups."""
        pairs = zip(self.names, self.criteria, strict=True)
        return {name: c.decision_gap(params) for name, c in pairs if c.decision_gap is not None}

    def value(self, params: Tree, weights: Any = None, *, without_prox: bool = False) -> jax.Array:
        """Σ_j w_j S_j, or the part of it that a proximal step leaves to the gradient."""
        weights = self.shares if weights is None else weights
        terms = [
            w * c.value(params)
            for w, c in zip(weights, self.criteria, strict=True)
            if not (without_prox and c.prox is not None)
        ]
        return jnp.asarray(sum(terms, jnp.zeros(())))

    @property
    def all_have_prox(self) -> bool:
        """Whether a proximal step deals with every criterion."""
        return all(c.prox is not None for c in self.criteria)

    @property
    def smooth(self) -> bool:
        """Whether every criterion has a gradient."""
        return all(c.smooth for c in self.criteria)

    def prox(self, s: Tree, rho: jax.Array | float, weights: Any = None) -> Tree:
        """argmin_θ ρ Σ_j w_j S_j(θ) + ½ ‖θ − s‖² over the criteria that have a proximal operator, exactly.

        With A = Σ w_j c_j over the quadratic ones, the rest g has step ρ/(1 + ρA) at the weighted mean of s and the
        centers: prox(s) = prox_g((s + ρ Σ w_j c_j center_j) / (1 + ρA)).
        """
        pairs = list(zip(self.shares if weights is None else weights, self.criteria, strict=True))
        pulls = [(rho * w * c.quadratic.factor, c.quadratic.center) for w, c in pairs if c.quadratic is not None]
        total = 1 + sum(pull for pull, _ in pulls)
        for pull, center in pulls:
            if center is not None:
                check_shapes("the reference model of the distance", center, s)
                s = jax.tree.map(lambda a, c, pull=pull: a + pull * c, s, center)
        s = jax.tree.map(lambda a: (a / total).astype(a.dtype), s)
        for w, c in pairs:
            if c.prox is not None and c.quadratic is None:
                moved = c.prox(s, rho * w / total)
                check_shapes(f"what the proximal operator of {c.name} gives", moved, s)
                s = jax.tree.map(lambda new, old: new.astype(old.dtype), moved, s)
        return s

    def check(self, model: Model) -> None:
        """Refuses criteria that are not finite at a model's initial parameters: training could not start."""
        for name, value in self.named(model.init(jax.random.key(0))).items() if self.criteria else ():
            if not bool(jnp.isfinite(value)):
                raise ValueError(f"the criterion {name} is {value} at the initial parameters of {model.name}")


def coordinate(
    criteria: Criterion | Sequence[Criterion], weights: Sequence[float] | None = None, *, step: str = "explicit"
) -> Coordinator:
    """Criteria and their weights (equal ones unless given), checked for the kind of step that they are to take.

    >>> both = coordinate([squared_norm(), l1()], [0.75, 0.25], step="implicit")
    >>> both.names, both.value(jnp.array([2.0]))
    (('squared_norm', 'l1'), Array(2., dtype=float32))
    """
    several = isinstance(criteria, Sequence) and not isinstance(criteria, Criterion)
    found: tuple[Criterion, ...] = tuple(criteria) if several else (criteria,)  # type: ignore[assignment, arg-type]
    if not found:
        raise ValueError("there are no criteria: give at least one of majorant.tradeoffs.criteria, or use fedavg")
    for each in found:
        if not isinstance(each, Criterion):
            raise ValueError(
                f"criteria must be made by majorant.tradeoffs.criteria, as in l1(), got {type(each).__name__}"
            )
    try:
        shares = tuple(1 / len(found) for _ in found) if weights is None else tuple(float(w) for w in weights)
    except (TypeError, ValueError):
        raise ValueError(f"the criteria's weights must be numbers, one for each criterion, got {weights!r}") from None
    if len(shares) != len(found):
        raise ValueError(f"there are {len(found)} criteria but {len(shares)} weights")
    if not min(shares) >= 0 or not abs(sum(shares) - 1) < 1e-6:
        raise ValueError(f"the criteria's weights must be at least 0 and sum to 1, got {shares}")
    if step not in ("explicit", "implicit"):
        raise ValueError(f"step must be 'explicit' or 'implicit', got {step!r}")
    without = [c.name for c in found if not c.smooth and c.prox is None]
    if without:
        raise ValueError(f"{without[0]} is not differentiable and has no proximal operator: give its prox")
    kinked = [c.name for c in found if not c.smooth]
    if step == "explicit" and kinked:
        raise ValueError(f"{kinked[0]} is not differentiable, so an explicit step is not valid: use step='implicit'")
    hard = [c.name for c in found if c.prox is not None and c.quadratic is None]
    if step == "implicit" and len(hard) > 1:
        raise ValueError(
            f"the proximal operator of {' + '.join(hard)} is not made of theirs: an implicit step takes one such "
            "criterion, beside any number of squared_norm and distance"
        )
    return Coordinator(found, shares)
