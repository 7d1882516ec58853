"""The shortest convex combination of gradients: a direction down for all of them, and a certificate where it is 0.

For gradients g_1 … g_K of criteria to be minimised, d = Σ_k λ_k g_k of least norm over λ ≥ 0, Σ_k λ_k = 1 satisfies
⟨d, g_k⟩ ≥ ‖d‖² for every k: a step along −d makes every criterion smaller. A point where d = 0 is Pareto stationary, as
every Pareto optimal point of smooth criteria is; for convex ones the converse holds up to ties (weak optimality).

The minimiser of λᵀGλ, G the matrix of inner products, is found by accelerated projected gradient descent. Gradients may
differ in length by many orders, as those of losses and criteria do, and then the longest ones would decide how far a
step goes: so it is on μ_k = λ_k ‖g_k‖, the weights of directions, over μ ≥ 0, Σ_k μ_k/‖g_k‖ = 1. Where single λ_k have
bounds (FedMGDA+'s box, absent clients), which go into the projection, the steps are on λ itself.

Reference: Désidéri, *Multiple-gradient descent algorithm (MGDA) for multiobjective optimization*, C. R. Math. 2012.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from majorant.core import Tree
from majorant.core.compilation import jit
from majorant.math.fista import fista

STEPS = 1000


def between(vector: jax.Array, lower: jax.Array, upper: jax.Array) -> jax.Array:
    """The closest vector between bounds with sum 1: clip(v − τ) for the τ where a piecewise linear sum is 1.

    >>> between(jnp.array([0.9, 0.6, 0.0]), jnp.zeros(3), jnp.array([0.5, 1.0, 1.0]))
    Array([0.5, 0.5, 0. ], dtype=float32)
    """
    kinks = jnp.concatenate([vector - lower, vector - upper])
    order = jnp.argsort(-kinks)  # as τ falls, each entry starts to grow at its first kink and stops at its second
    kinks, growing = kinks[order], jnp.cumsum(jnp.where(order < vector.shape[0], 1, -1))
    grown = jnp.cumsum(growing[:-1] * (kinks[:-1] - kinks[1:]))
    sums = lower.sum() + jnp.concatenate([jnp.zeros(1, vector.dtype), grown])
    return jnp.clip(vector - jnp.interp(1.0, sums, kinks), lower, upper)


def min_norm(gram: jax.Array, lower: Any = 0.0, upper: Any = 1.0, steps: int = STEPS) -> jax.Array:
    """The weights λ of the shortest combination, from the matrix of inner products ``(K, K)``.

    At most so many steps; fewer where a step moves nothing any more, up to rounding. With bounds on single weights,
    gradients should be of similar lengths.

    >>> min_norm(jnp.array([[1.0, 0.0], [0.0, 1.0]]))
    Array([0.5, 0.5], dtype=float32)
    """
    if gram.ndim != 2 or gram.shape[0] != gram.shape[1]:
        raise ValueError(f"the inner products of K gradients are a matrix (K, K), got {gram.shape}")
    count, dtype = gram.shape[0], gram.dtype
    if isinstance(lower, float | int) and isinstance(upper, float | int) and lower == 0 and upper >= 1:
        lengths = jnp.sqrt(jnp.diagonal(gram))
        safe = jnp.where(lengths > 0, lengths, 1)
        return of_directions(gram / safe[:, None] / safe[None], lengths, steps)
    lower, upper = (jnp.broadcast_to(jnp.asarray(bound, dtype), (count,)) for bound in (lower, upper))
    check_bounds(lower, upper)
    start = between(jnp.full(count, 1 / count, dtype), lower, upper)
    return search(gram, start, lambda vector: between(vector, lower, upper), steps)


def of_directions(cosines: jax.Array, lengths: jax.Array, steps: int = STEPS) -> jax.Array:
    """The weights λ of the shortest combination of gradients, from the cosines between them and their lengths."""
    floor = jnp.finfo(lengths.dtype).eps ** 2 * lengths.max()  # of those that are 0
    safe = jnp.maximum(lengths, jnp.where(floor > 0, floor, 1))
    costs = safe.min() / safe  # Σ costs · μ = 1
    project = lambda vector: at_a_cost(vector, costs)
    start = jnp.full_like(costs, 1 / costs.sum())
    return costs * search(cosines, start, project, steps)


def at_a_cost(vector: jax.Array, costs: jax.Array) -> jax.Array:
    """The closest vector of numbers at least 0 with Σ costs · vector = 1: max(v − τ costs, 0).

    >>> at_a_cost(jnp.array([1.0, 0.5]), jnp.array([1.0, 0.5]))
    Array([0.8, 0.4], dtype=float32)
    """
    order = jnp.argsort(-vector / costs)  # as τ falls, entries grow from 0 in this order
    cost, entry = costs[order], vector[order]
    taus = (jnp.cumsum(cost * entry) - 1) / jnp.cumsum(cost * cost)
    last = jnp.sum(entry > taus * cost) - 1
    return jnp.maximum(vector - taus[jnp.maximum(last, 0)] * costs, 0)


def search(gram: jax.Array, start: jax.Array, project: Callable[[jax.Array], jax.Array], steps: int) -> jax.Array:
    """Accelerated projected gradient descent on vᵀGv."""
    limits = jnp.finfo(gram.dtype)
    scaled = gram / jnp.maximum(jnp.linalg.eigvalsh(gram)[-1], limits.tiny)
    moves = lambda new, ahead: jnp.abs(new - ahead).max() > limits.eps * jnp.maximum(new.max(), 1e-30)
    return fista(lambda ahead: project(ahead - scaled @ ahead), start, steps=steps, moves=moves)


def check_bounds(lower: jax.Array, upper: jax.Array) -> None:
    """Weights within bounds that are known, outside of a program, must be able to sum to 1."""
    if isinstance(lower, jax.core.Tracer) or isinstance(upper, jax.core.Tracer):
        return
    if not bool((lower <= upper).all()) or not float(lower.sum()) <= 1 + 1e-6 or not float(upper.sum()) >= 1 - 1e-6:
        raise ValueError(f"no weights between {lower} and {upper} sum to 1")


def rows(gradients: Tree) -> jax.Array:
    """Gradients, a tree with a leading axis of K, as ``(K, parameters)``."""
    leaves = [jnp.asarray(leaf) for leaf in jax.tree.leaves(gradients)]
    if not leaves or any(leaf.ndim == 0 or leaf.shape[0] != leaves[0].shape[0] for leaf in leaves):
        raise ValueError("gradients must be arrays (K, ...), or a tree of them with the same K: one row per criterion")
    if leaves[0].shape[0] == 0:
        raise ValueError("there are no gradients: give one per criterion")
    return jnp.concatenate([leaf.reshape(leaf.shape[0], -1) for leaf in leaves], axis=1)


@jit
def shortest(gradients: Tree) -> tuple[jax.Array, jax.Array]:
    """The weights of the shortest convex combination of gradients, and the combination ``(parameters,)``."""
    matrix = rows(gradients)
    largest = jnp.abs(matrix).max(axis=1, keepdims=True)
    largest = jnp.where(largest > 0, largest, 1)  # squares of numbers of any size
    sizes = jnp.linalg.norm(matrix / largest, axis=1, keepdims=True)
    directions = matrix / largest / jnp.where(sizes > 0, sizes, 1)
    weights = of_directions(directions @ directions.T, (largest * sizes)[:, 0])
    return weights, weights @ matrix


def certificate(gradients: Tree) -> float:
    """The norm of the shortest convex combination of gradients: 0 where a point is Pareto stationary.

    >>> round(certificate(jnp.array([[1.0, 0.0], [-2.0, 0.0]])), 5), certificate(jnp.array([[1.0, 0.0], [1.0, 1.0]]))
    (0.0, 1.0)
    """
    return float(np.linalg.norm(np.asarray(shortest(gradients)[1], float)))  # squares of numbers of any size
