"""What the Jensen (EM) surrogates share: posteriors of hidden variables, checks of what users give, a simplex."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp

from majorant.math.projections import simplex
from majorant.surrogates.linear.record import LinearSurrogate

CLOSE = 1e-4  # by which given weights may miss a sum of 1


def precise(surrogate: LinearSurrogate) -> LinearSurrogate:
    """The surrogate with all products of matrices in full precision.

    Accelerators round what they multiply in single precision to some ten bits unless they are told not to, and moments
    from which T subtracts squares would not survive that.
    """

    def in_full(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def called(*args: Any) -> Any:
            with jax.default_matmul_precision("highest"):
                return function(*args)

        return called

    fields: dict[str, Any] = {name: in_full(f) for name, f in surrogate._asdict().items() if callable(f)}
    return surrogate._replace(**fields)


def posterior(joint: jax.Array) -> jax.Array:
    """P(h | z) of every row, from log p(z, h), ``(n, K)``; a row that is −∞ everywhere gets equal numbers, not NaN.

    >>> posterior(jnp.array([[0.0, 0.0], [-jnp.inf, -jnp.inf], [0.0, -jnp.inf]]))
    Array([[0.5, 0.5],
           [0.5, 0.5],
           [1. , 0. ]], dtype=float32)
    """
    return jax.nn.softmax(jnp.maximum(joint, jnp.finfo(joint.dtype).min / 4), axis=1)


def negative_log(joint: jax.Array) -> jax.Array:
    """−log p(z) of every row, from log p(z, h), ``(n, K)``."""
    return -logsumexp(joint, axis=1)


def floored_simplex(vector: jax.Array, least: float) -> jax.Array:
    """The closest vector of numbers at least ``least`` whose sum is 1; a vector that is one already does not move.

    >>> floored_simplex(jnp.array([0.5, 0.75, -1.0]), 0.125)
    Array([0.3125, 0.5625, 0.125 ], dtype=float32)
    """
    moved = simplex(vector - least, 1 - least * vector.shape[-1]) + least
    rounding = 8 * jnp.finfo(vector.dtype).eps
    inside = (jnp.abs(vector.sum(-1, keepdims=True) - 1) <= rounding) & (vector >= least).all(-1, keepdims=True)
    return jnp.where(inside, vector, moved)


def given(name: str, value: Any, shape: tuple[int, ...]) -> np.ndarray:
    """A user's array in double precision; refused unless it has the shape and is finite."""
    array = np.asarray(value, np.float64)
    if array.shape != shape:
        raise ValueError(f"{name} must have shape {shape}, got {array.shape}")
    if not np.isfinite(array).all():
        raise ValueError(f"{name} must be finite, but has NaN or infinite entries")
    return array


def located(name: str, value: Any, features: int) -> np.ndarray:
    """A point ``(p,)``; a number stands for a point with it everywhere."""
    return given(name, np.full(features, value) if np.ndim(value) == 0 else value, (features,))


def given_weights(name: str, value: Any, count: int) -> np.ndarray:
    """Positive numbers with sum 1, as a user gave them; divided by their sum, which may be off by rounding.

    >>> given_weights("weights", [0.5, 0.6], 2)
    Traceback (most recent call last):
    ValueError: weights must be positive and sum to 1, got a sum of 1.1 and a least of 0.5
    """
    weights = given(name, value, (count,))
    if not (weights > 0).all() or abs(weights.sum() - 1) > CLOSE:
        raise ValueError(
            f"{name} must be positive and sum to 1, got a sum of {weights.sum():g} and a least of {weights.min():g}"
        )
    return weights / weights.sum()


def given_covariances(name: str, value: Any, count: int, features: int) -> np.ndarray:
    """Symmetric positive definite matrices as a user gave them, ``(K, p, p)``."""
    matrices = given(name, value, (count, features, features))
    for k, matrix in enumerate(matrices):
        if np.abs(matrix - matrix.T).max() > 1e-6 * max(1e-300, np.abs(matrix).max()):
            raise ValueError(f"{name} must be symmetric; that of component {k} is not")
        least, most = np.linalg.eigvalsh(matrix)[[0, -1]]
        if not least > 1e-12 * max(most, 0):
            raise ValueError(
                f"{name} must be positive definite; that of component {k} has eigenvalues from {least:g} to {most:g}"
            )
    return (matrices + matrices.transpose(0, 2, 1)) / 2


def as_tree(start: dict[str, np.ndarray]) -> dict[str, jax.Array]:
    """Starting parameters in the precision that JAX is set to."""
    return {name: jnp.asarray(a, jnp.result_type(float)) for name, a in start.items()}


def check_start(start: dict[str, Any], names: tuple[str, ...]) -> None:
    """Raises a ValueError unless a start has exactly these entries."""
    if not isinstance(start, dict) or set(start) != set(names):
        what = sorted(start) if isinstance(start, dict) else type(start).__name__
        raise ValueError(f"start must be a dict with the entries {', '.join(names)}; got {what}")


def samples(x: jax.Array, features: int, dtype: Any) -> jax.Array:
    """Samples ``(n, features)`` in the precision of the parameters; refused where they have another shape."""
    if x.ndim != 2 or x.shape[1] != features:
        raise ValueError(f"the mixture was made for samples (n, {features}), got {x.shape}")
    return x.astype(dtype)
