"""Symmetric matrices as vectors of their upper triangle, off the diagonal times √2: norms and products stay the same.

Statistics hold them like this: a number that occurs twice travels once, and a compressor rounds it once, so that what
arrives is symmetric again.
"""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np


def pack(matrix: jax.Array) -> jax.Array:
    """``(..., K, K)`` symmetric matrices as ``(..., K (K + 1) / 2)``.

    >>> pack(jnp.array([[1.0, 2.0], [2.0, 3.0]])).round(2)
    Array([1.  , 2.83, 3.  ], dtype=float32)
    """
    rows, columns = np.triu_indices(matrix.shape[-1])
    return matrix[..., rows, columns] * scales(matrix.shape[-1], matrix.dtype)


def unpack(vector: jax.Array) -> jax.Array:
    """The inverse of `pack`.

    >>> bool(jnp.allclose(unpack(pack(jnp.array([[1.0, 2.0], [2.0, 3.0]]))), jnp.array([[1.0, 2.0], [2.0, 3.0]])))
    True
    """
    size = order(vector.shape[-1])
    places = np.zeros((size, size), np.int32)
    rows, columns = np.triu_indices(size)
    places[rows, columns] = places[columns, rows] = np.arange(len(rows))
    return (vector / scales(size, vector.dtype))[..., places]


def order(length: int) -> int:
    """K, of the length K (K + 1) / 2."""
    return (math.isqrt(8 * length + 1) - 1) // 2


def scales(size: int, dtype: jnp.dtype) -> jax.Array:
    """1 on the diagonal, √2 off it."""
    rows, columns = np.triu_indices(size)
    return jnp.asarray(np.where(rows == columns, 1.0, math.sqrt(2)), dtype)
