"""Symmetric linear systems that may be singular up to rounding.

`with_ridge` is for many small systems at once, whose errors are in proportion to the largest eigenvalue. `solve_normal`
is for the normal equations of few fits on features of all scales, where each entry has errors of its own size: they
are solved with a diagonal of ones, where rounding errors are alike.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from majorant.math.quadratic import EXACT


def with_ridge(gram: jax.Array, weight: float | np.ndarray) -> jax.Array:
    """G + weight · I, for a system that can be solved: a weight that rounding would swallow is raised to just above.

    The eigenvalues of a projected matrix may lie below 0 by a rounding error, which is in proportion to the largest.

    >>> with_ridge(jnp.array([[1e9, 0.0], [0.0, -1.0]]), 1e-3).round()[1, 1] > 0
    Array(True, dtype=bool)
    """
    swallowed = 8 * jnp.finfo(gram.dtype).eps * jnp.trace(gram, axis1=-2, axis2=-1)[..., None]
    return gram + jnp.maximum(weight, swallowed)[..., None] * jnp.eye(gram.shape[-1], dtype=gram.dtype)


def solve_normal(
    gram: jax.Array, right: jax.Array, ridge: jax.Array | np.ndarray | float = 0.0, *, intercept: bool = False
) -> jax.Array:
    """(G + ridge) w = b for positive semidefinite G ``(..., K, K)`` and b ``(..., K)``; the ridge is a diagonal.

    Eigenvalues of the scaled matrix below a rounding error are raised to it: where features are collinear and nothing
    else says what w is, it stays bounded. All others are left alone. With an ``intercept`` the last unknown is
    eliminated first, as centred data would do it: for features far from 0 that costs fewer digits.

    >>> solve_normal(jnp.array([[1e10, 0.0], [0.0, 1e-2]]), jnp.array([2e10, 3e-2])).round(4)
    Array([2., 3.], dtype=float32)
    """
    size = gram.shape[-1]
    limits = jnp.finfo(gram.dtype)
    full = gram + jnp.broadcast_to(jnp.asarray(ridge, gram.dtype), (size,)) * jnp.eye(size, dtype=gram.dtype)
    diagonal = jnp.diagonal(full, axis1=-2, axis2=-1)
    scales = jnp.sqrt(jnp.where(diagonal > limits.tiny, diagonal, 1))
    scaled, b = full / scales[..., :, None] / scales[..., None, :], right / scales
    if not intercept:
        return solve_scaled(scaled, b) / scales
    along, level = jnp.clip(scaled[..., :-1, -1], -1, 1), b[..., -1:]
    w = solve_scaled(scaled[..., :-1, :-1] - along[..., :, None] * along[..., None, :], b[..., :-1] - along * level)
    last = level - (along * w).sum(axis=-1, keepdims=True)
    return jnp.concatenate([w, last], axis=-1) / scales


def solve_scaled(matrix: jax.Array, right: jax.Array) -> jax.Array:
    """A w = b for matrices whose entries have rounding errors of numbers about 1."""
    values, vectors = jnp.linalg.eigh(matrix)
    raised = jnp.maximum(values, 2 * matrix.shape[-1] * jnp.finfo(matrix.dtype).eps)
    along = jnp.einsum("...ij,...i->...j", vectors, right, precision=EXACT) / raised
    return jnp.einsum("...ij,...j->...i", vectors, along, precision=EXACT)


def squared_errors(moments: jax.Array, w: jax.Array, ridge: float, *, intercept: bool) -> jax.Array:
    """E (y − wᵀx)² + ridge ‖w‖² from the moments of (x, y) ``(..., K + 1, K + 1)``, where w solves `solve_normal`.

    What rounding errors may be is the least value. An intercept, last in x, is eliminated here too.

    >>> squared_errors(jnp.array([[1.0, 2.0], [2.0, 5.0]]), jnp.array([2.0]), 0.0, intercept=False)
    Array(1., dtype=float32)
    """
    diagonal = jnp.diagonal(moments, axis1=-2, axis2=-1)
    if intercept:
        keep = np.delete(np.arange(w.shape[-1] + 1), -2)
        share, sums = moments[..., -2, -2] + ridge, moments[..., -2, keep]
        moments, diagonal, w = moments[..., keep, :][..., keep], diagonal[..., keep], w[..., :-1]
        means = sums / jnp.where(share > 0, share, 1)[..., None]
        moments = moments - sums[..., :, None] * means[..., None, :]
    ends = jnp.concatenate([w, -jnp.ones_like(w[..., :1])], axis=-1)
    errors = jnp.einsum("...i,...ij,...j->...", ends, moments, ends, precision=EXACT) + ridge * (w**2).sum(axis=-1)
    return jnp.maximum(errors, jnp.finfo(errors.dtype).eps * (ends**2 * jnp.abs(diagonal)).sum(axis=-1))
