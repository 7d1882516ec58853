"""Partial first-order surrogates: a majorant of one client's objective that touches it where the client stands.

The objective is f(u, v_1, …, v_T) = Σ_t (n_t/n) f_t(u, v_t): u is shared, v_t is client t's own. A function g is a
partial first-order surrogate of f_t near (u⁰, v⁰) when

    1. g(u, v) ≥ f_t(u, v) everywhere;
    2. r = g − f_t is smooth in u, with r(u⁰, v⁰) = 0 and ∇_u r(u⁰, v⁰) = 0;
    3. g(u, v⁰) − g(u, v*) = d(v⁰, v*) for every u and every minimiser v* of g(u, ·), where d ≥ 0 is 0 for equal
       arguments only. The proofs use more (eq. 152): the v* that was found at one u serves at every other u.

Going down on g then goes down on f_t. A surrogate is written as a record of pure functions that see one client's
samples, padded at the end: means over samples are `Batch.mean`, which leaves the padding out.

Reference: Marfoq, Neglia, Bellet, Kameni, Vidal, *Federated Multi-Task Learning under a Mixture of Distributions*,
NeurIPS 2021, Definition 1 and Appendix F.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from majorant.core import ClientData, Key, Tree, blockwise, masked_mean
from majorant.math.fixed_point import fixed_point
from majorant.models.base import Model
from majorant.solvers import Batch
from majorant.solvers.descent import lbfgs


class Coefficients(NamedTuple):
    """What describes g near a point: numbers for every sample, which minibatches pick rows of, and shared ones."""

    sample: Tree = ()  # arrays (n, ...)
    shared: Tree = ()


class PartialSurrogate(NamedTuple):
    """A client's objective f and the way to majorize it; one without personal part writes the first six fields.

    ``value(coefficients, u, v, batch)`` is g on some of the client's samples, with the rows of ``coefficients.sample``
    that belong to them; on all samples it is g itself. ``hyper`` names numbers that a run may change, and
    ``rebuild(hyper)`` makes the surrogate with other values for them.
    """

    name: str
    init: Callable[[Key], Tree]  # u
    objective: Callable[[Tree, Tree, ClientData], jax.Array]  # (u, v, data) -> f, a mean over the client's samples
    majorize: Callable[[Tree, Tree, ClientData], Coefficients]  # (u⁰, v⁰, data) -> what describes g
    value: Callable[[Coefficients, Tree, Tree, Batch], jax.Array]  # (coefficients, u, v, batch) -> g
    predict: Callable[[Tree, Tree, jax.Array], jax.Array]  # (u, v, x) -> probabilities (n, classes) or values (n,)
    minimize_u: Callable[[Coefficients, Tree, ClientData], Tree] | None = None  # (coefficients, v, data) -> u, exact
    init_v: Callable[[ClientData, Key], Tree] = lambda data, key: ()
    minimize_v: Callable[[Coefficients, Tree, ClientData], Tree] = lambda coefficients, u, data: ()  # exact
    distance: Callable[[Tree, Tree], jax.Array] = lambda v, other: jnp.zeros(())  # d(v⁰, v*)
    random_v: Callable[[Key, ClientData], Tree] | None = None  # for checks; None: init_v
    onboard: Callable[[Tree, ClientData, Key], Tree] | None = None  # (u, data, key) -> v of an unseen client
    adapt: Callable[[Tree, Tree, ClientData], Tree] | None = None  # (u, v, data) -> the v that `predict` is given
    mixture: Callable[[Tree], jax.Array] | None = None  # v -> mixture weights, where it has some
    hyper: dict[str, float] = {}  # noqa: RUF012 - never mutated
    rebuild: Callable[[dict[str, jax.Array]], PartialSurrogate] | None = None

    def at(self, hyper: dict[str, jax.Array]) -> PartialSurrogate:
        """The surrogate with a run's values of its hyperparameters."""
        return self.rebuild(hyper) if self.rebuild else self

    def draw_v(self, key: Key, data: ClientData) -> Tree:
        """Some v, for checks."""
        return self.random_v(key, data) if self.random_v else self.init_v(data, key)

    def fit_v(self, u: Tree, data: ClientData, key: Key) -> Tree:
        """The v of a client that did not take part in training: majorize and minimise until it rests."""
        if self.onboard is not None:
            return self.onboard(u, data, key)
        step = lambda v: self.minimize_v(self.majorize(u, v, data), u, data)
        return fixed_point(step, self.init_v(data, key))


def sample_losses(model: Model, params: Tree, data: ClientData) -> jax.Array:
    """The loss of every sample of a client, ``(n,)``, block by block where there are many."""
    return blockwise(lambda x, y: model.losses(params, x, y), data.x, data.y, at_once=model.at_once)


def mean_loss(model: Model, params: Tree, data: ClientData) -> jax.Array:
    """f_t: the mean loss over a client's samples."""
    return masked_mean(sample_losses(model, params, data), data)


def without_statistics(model: Model) -> Model:
    """The model, unless it keeps statistics among its parameters: no gradient of a surrogate would train them."""
    if model.train_apply is not None:
        raise ValueError(
            f"{model.name} refreshes normalisation statistics in its parameters while it trains; a surrogate's local "
            "solver only takes gradient steps: choose another treatment of the statistics, or fedem or fedavg"
        )
    return model


def minimizer(function: Callable[[Tree], jax.Array], start: Tree) -> Tree:
    """A minimiser of a smooth function, as precise as the type of its numbers allows.

    >>> bool(jnp.allclose(minimizer(lambda a: jnp.cosh(a - 3.0).sum(), jnp.zeros(2)), 3.0, atol=1e-3))
    True
    """
    return lbfgs(function, start, steps=500, memory=20, tolerance=0.0)
