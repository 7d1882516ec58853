"""Sparse codes: the lasso of every sample of a batch on one dictionary."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp

from majorant.core.compilation import jit
from majorant.math.quadratic import EXACT, soft_threshold, solve_quadratic


@partial(jit, static_argnames=("positive", "tolerance", "iterations"))
def lasso_codes(
    dictionary: jax.Array,
    x: jax.Array,
    l1: float | jax.Array,
    *,
    l2: float | jax.Array = 0.0,
    positive: bool = False,
    tolerance: float | None = None,
    iterations: int = 5000,
) -> jax.Array:
    """argmin over h of ½ ‖z − θ h‖² + l1 ‖h‖₁ + (l2/2) ‖h‖² for every row z of ``x`` (n, p): codes (n, K).

    ``dictionary`` is θ (p, K); ``positive`` asks for h ≥ 0. θᵀθ and θᵀz are computed once; see `math.quadratic` for the
    method and for ``tolerance`` and ``iterations``. Gradients do not pass through the codes: that of the minimal value
    in θ is that at fixed codes (Danskin).

    >>> lasso_codes(jnp.eye(2), jnp.array([[3.0, -0.5], [-2.0, 1.0]]), 1.0).round(3)
    Array([[ 2.,  0.],
           [-1.,  0.]], dtype=float32)
    """
    size = dictionary.shape[1]
    gram = jnp.matmul(dictionary.T, dictionary, precision=EXACT) + l2 * jnp.eye(size, dtype=dictionary.dtype)
    linear = jnp.matmul(x, dictionary, precision=EXACT)
    prox = soft_threshold(l1, positive=positive)
    return solve_quadratic(gram, linear, prox, rows_apart=True, tolerance=tolerance, iterations=iterations)
