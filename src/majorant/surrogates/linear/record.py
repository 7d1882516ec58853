"""Linearly parameterized surrogates: majorants that a statistic describes, so that their average is a majorant too.

The objective is W = f + g with f(θ) = E ℓ(Z, θ). There are functions ψ, φ and a statistic S̄ with values in a convex set
𝒮 such that for every τ::

    f(θ) ≤ f(τ) + ψ(θ) − ψ(τ) − ⟨E S̄(Z, τ), φ(θ) − φ(τ)⟩        for all θ                                (MM-1)
    T(s) = argmin_θ g(θ) + ψ(θ) − ⟨s, φ(θ)⟩                      is unique for every s in 𝒮              (MM-2)

The right side of (MM-1) is linear in the statistic: clients' statistics may be averaged, and the average describes a
majorant of the average objective. Averages of the clients' minimisers describe nothing.

A surrogate is a record of pure functions. Statistics are trees of arrays; a symmetric matrix goes into them as its
upper triangle (`symmetric`), so that no number travels twice.

Reference: Dieuleveut, Fort, Hegazy, Wai, *Federated majorize-minimization: beyond parameter aggregation*, 2025,
Section 2.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from majorant.core import BLOCK_VALUES, ClientData, Key, Tree, blocks
from majorant.solvers import Batch, whole


class LinearSurrogate(NamedTuple):
    """An objective and the way to majorize it; the first five fields are enough to learn with it.

    ``statistic(params, batch)`` is the mean of S̄(z, params) over a batch, with ``batch.shares`` as the weights of its
    rows: 0 for padding. ``psi`` and ``phi`` are for checks of majorization; ``metric(s, d)`` is B(s) d, the matrix of
    assumption A7 times a direction, for projections in its geometry. ``check(x, y)`` raises a ValueError where samples
    cannot be of the model; it is called on NumPy arrays before compute.
    """

    name: str
    init: Callable[[Key], Tree]  # θ to start from
    statistic: Callable[[Tree, Batch], Tree]  # (θ, batch) -> s
    minimize: Callable[[Tree], Tree]  # T: s -> θ
    losses: Callable[[Tree, jax.Array, jax.Array], jax.Array]  # (θ, x, y) -> ℓ of every sample, (n,)
    project: Callable[[Tree], Tree] = lambda s: s  # onto 𝒮, the closest point
    penalty: Callable[[Tree], jax.Array] = lambda params: jnp.zeros(())  # g
    psi: Callable[[Tree], jax.Array] | None = None
    phi: Callable[[Tree], Tree] | None = None  # a tree like s
    metric: Callable[[Tree, Tree], Tree] | None = None
    predict: Callable[[Tree, jax.Array], jax.Array] | None = None  # (θ, x) -> what the model says of samples
    check: Callable[[np.ndarray, np.ndarray], None] | None = None  # (x, y): refuses samples

    def objective(self, params: Tree, batch: Batch) -> jax.Array:
        """W on a batch: the mean loss and the penalty."""
        return batch.mean(self.losses(params, batch.x, batch.y)) + self.penalty(params)

    def height(self, statistic: Tree, params: Tree) -> jax.Array:
        """What T minimises, g + ψ − ⟨s, φ⟩, where ψ and φ are known."""
        assert self.psi is not None
        assert self.phi is not None
        return self.penalty(params) + self.psi(params) - optax.tree.vdot(statistic, self.phi(params))


def mean_statistic(surrogate: LinearSurrogate, params: Tree, data: ClientData) -> Tree:
    """The mean statistic of a client's samples, block by block where there are many: memory stays bounded."""
    return block_sums(surrogate.statistic, params, data)


def statistic_and_loss(surrogate: LinearSurrogate, params: Tree, data: ClientData) -> tuple[Tree, jax.Array]:
    """The mean statistic of a client's samples and their mean loss; what both compute is computed once."""
    losses = surrogate.losses
    both = lambda params, batch: (
        surrogate.statistic(params, batch),
        batch.mean(losses(params, batch.x, batch.y)),
    )
    return block_sums(both, params, data)


def block_sums(function: Callable[[Tree, Batch], Tree], params: Tree, data: ClientData) -> Tree:
    """A mean over a client's samples as the sum of what its blocks contribute."""
    rows = max(256, BLOCK_VALUES // max(1, data.x[0].size))
    if data.y.shape[0] <= rows:
        return function(params, whole(data))
    cut = blocks((data.x, data.y, jnp.arange(data.y.shape[0])), rows)
    total = jnp.maximum(data.size, 1)

    def part(block: tuple[jax.Array, jax.Array, jax.Array], first: jax.Array) -> Tree:
        x, y, row = block
        real = (row < data.size) & (jnp.arange(row.shape[0]) + first == row)  # repeats of the last row fill up
        return function(params, Batch(x, y, real.astype(jnp.result_type(float)), total))

    starts = jnp.arange(cut[1].shape[0]) * cut[1].shape[1]
    first = jax.tree.map(lambda a: a[0], cut)
    zero = jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), jax.eval_shape(part, first, starts[0]))
    add = lambda sums, args: (optax.tree.add(sums, part(*args)), None)
    return jax.lax.scan(add, zero, (cut, starts))[0]


def in_parameter_space(surrogate: LinearSurrogate) -> LinearSurrogate:
    """What averaging *parameters* amounts to: the "statistic" of a client is its own minimiser, and T does nothing.

    Majorization is lost with it: see the remarks in `majorant.methods.fedmm`.
    """

    def minimiser(params: Tree, batch: Batch) -> Tree:
        return surrogate.minimize(surrogate.project(surrogate.statistic(params, batch)))

    return surrogate._replace(
        name=f"{surrogate.name}, parameters",
        statistic=minimiser,
        minimize=lambda params: params,
        project=lambda params: params,
        psi=None,
        phi=None,
        metric=None,
    )
