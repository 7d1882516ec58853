"""Projections onto convex sets of statistics: Euclidean, or in the geometry of a positive definite matrix."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import optax
from jax.flatten_util import ravel_pytree

from majorant.core import Tree
from majorant.math.fista import fista
from majorant.math.symmetric import pack, unpack


def positive_semidefinite(packed: jax.Array, floor: float = 0.0) -> jax.Array:
    """The closest symmetric matrix without eigenvalues below ``floor``; matrices are packed (`symmetric.pack`).

    Matrices of the set do not move, not even by rounding errors: see `semidefinite_to_rounding`.

    >>> positive_semidefinite(pack(jnp.array([[1.0, 0.0], [0.0, -1.0]])))
    Array([1., 0., 0.], dtype=float32)
    """
    matrix = unpack(packed)
    values, vectors = jnp.linalg.eigh(matrix)
    raised = jnp.maximum(values, floor)
    exact = jax.lax.Precision.HIGHEST
    built = jnp.einsum(
        "...ij,...j,...kj->...ik", vectors, raised, vectors, precision=exact
    )  # errors as small as itself
    lifted = matrix - floor * jnp.eye(matrix.shape[-1], dtype=matrix.dtype)
    inside = (values >= floor).all(axis=-1) | semidefinite_to_rounding(lifted)
    return jnp.where(inside[..., None], packed, pack(built))


def semidefinite_to_rounding(matrix: jax.Array) -> jax.Array:
    """Is a matrix positive semidefinite, but for rounding errors of each entry in proportion to the entry?

    Eigenvalues have errors in proportion to the largest, above the smallest ones of moments with large means or of
    features on different scales. With a diagonal of ones they are known as well as the entries are.

    >>> semidefinite_to_rounding(jnp.array([[[1e9, 1e4], [1e4, 1.0]], [[1e9, 1e5], [1e5, 1.0]]]))
    Array([ True, False], dtype=bool)
    """
    diagonal = jnp.diagonal(matrix, axis1=-2, axis2=-1)
    scales = jnp.sqrt(jnp.where(diagonal > 0, diagonal, 1))
    values = jnp.linalg.eigvalsh(matrix / scales[..., :, None] / scales[..., None, :])
    rounding = 8 * matrix.shape[-1] * jnp.finfo(matrix.dtype).eps
    return (diagonal >= 0).all(axis=-1) & (values >= -rounding).all(axis=-1)


def simplex(vector: jax.Array, total: float = 1.0) -> jax.Array:
    """The closest vector of numbers at least 0 with the given sum, along the last axis.

    >>> simplex(jnp.array([0.5, 0.75, -1.0]))
    Array([0.375, 0.625, 0.   ], dtype=float32)
    """
    return jnp.vectorize(lambda row: optax.projections.projection_simplex(row, total), signature="(n)->(n)")(vector)


def in_metric(project: Callable[[Tree], Tree], metric: Callable[[Tree], Tree], point: Tree, steps: int = 500) -> Tree:
    """argmin (s − point)ᵀ B (s − point) over a convex set, by accelerated projected gradient descent.

    ``project`` is the Euclidean projection onto the set and ``metric(d)`` gives B d for a positive definite B, whose
    largest eigenvalue is found by power iteration. Where ``project`` leaves the point alone, so does this.

    >>> clip = lambda s: jnp.clip(s, -1.0, 1.0)
    >>> scale = jnp.array([[2.0, 1.0], [1.0, 2.0]])
    >>> in_metric(clip, lambda d: scale @ d, jnp.array([3.0, 0.0])).round(3)
    Array([1., 1.], dtype=float32)
    """
    flat, unravel = ravel_pytree(point)
    times = lambda d: ravel_pytree(metric(unravel(d)))[0]
    onto = lambda s: ravel_pytree(project(unravel(s)))[0]
    power = lambda _, d: times(d) / jnp.maximum(jnp.linalg.norm(times(d)), 1e-30)
    start = jnp.ones_like(flat) + jnp.linspace(0, 1, flat.size, dtype=flat.dtype)  # not orthogonal to the top one
    top = jax.lax.fori_loop(0, 50, power, start / jnp.linalg.norm(start))
    largest = 1.05 * jnp.linalg.norm(times(top))
    step = lambda ahead: onto(ahead - times(ahead - flat) / largest)
    first = onto(flat)
    found = fista(step, first, steps=steps, moves=lambda new, ahead: (new != ahead).any())
    return unravel(jnp.where(jnp.allclose(first, flat, rtol=0, atol=0), flat, found))
