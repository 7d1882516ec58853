"""Layers as plain functions of their parameters: dense, 2×2 max pooling, normalisation, relu; how weights start."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp

Layer = dict[str, jax.Array]
"""The parameters of one layer: ``weight`` and ``bias``; of one with normalisation ``norm_scale``, ``norm_shift``."""


def dense_init(key: jax.Array, fan_in: int, fan_out: int) -> Layer:
    """Weights ``(fan_in, fan_out)`` and biases, uniform in ±1/√fan_in, as PyTorch starts them.

    >>> layer = dense_init(jax.random.key(0), 100, 3)
    >>> layer["weight"].shape, bool(abs(layer["weight"]).max() <= 0.1)
    ((100, 3), True)
    """
    return _uniform(key, (fan_in, fan_out), fan_in)


def conv_init(key: jax.Array, size: int, channels_in: int, channels_out: int) -> Layer:
    """A ``size × size`` kernel ``(size, size, channels_in, channels_out)`` and biases, as PyTorch starts them.

    >>> conv_init(jax.random.key(0), 3, 1, 32)["weight"].shape
    (3, 3, 1, 32)
    """
    return _uniform(key, (size, size, channels_in, channels_out), size * size * channels_in)


def dense(params: Layer, x: jax.Array) -> jax.Array:
    """``x @ weight + bias`` for ``x (n, fan_in)``.

    >>> dense({"weight": jnp.ones((2, 1)), "bias": jnp.array([0.5])}, jnp.array([[1.0, 2.0]]))
    Array([[3.5]], dtype=float32)
    """
    return x @ params["weight"] + params["bias"]


def layer_norm_init(width: int) -> Layer:
    """Scales of one and shifts of zero."""
    return {"norm_scale": jnp.ones(width), "norm_shift": jnp.zeros(width)}


def layer_norm(params: Layer, x: jax.Array) -> jax.Array:
    """Every row of ``x (n, width)`` with mean 0 and variance 1, times the scales, plus the shifts.

    >>> layer_norm(layer_norm_init(2), jnp.array([[1.0, 3.0]])).round(3)
    Array([[-1.,  1.]], dtype=float32)
    """
    centred = x - x.mean(axis=1, keepdims=True)
    spread = jnp.sqrt(jnp.square(centred).mean(axis=1, keepdims=True) + 1e-5)
    return centred / spread * params["norm_scale"] + params["norm_shift"]


def relu(x: jax.Array) -> jax.Array:
    """``max(x, 0)``, with derivative 0 at 0.

    >>> relu(jnp.array([-1.0, 2.0]))
    Array([0., 2.], dtype=float32)
    """
    return jax.nn.relu(x)


def max_pool(x: jax.Array) -> jax.Array:
    """The maximum over 2×2 windows: ``(n, h, w, c)`` to ``(n, h // 2, w // 2, c)``; an odd last row or column is left.

    The gradient goes to the first maximum of a window in reading order, as with ``lax.reduce_window`` and in PyTorch.

    >>> max_pool(jnp.arange(16.0).reshape(1, 4, 4, 1))[0, :, :, 0]
    Array([[ 5.,  7.],
           [13., 15.]], dtype=float32)
    """
    n, h, w, c = x.shape
    rows, columns = h // 2, w // 2
    # Three selections rather than lax.reduce_window, whose gradient takes 15 times as long on a CPU, or the maximum of
    # a reshaped array, whose gradient takes 3 times as long and is split among equal values.
    windows = x[:, : 2 * rows, : 2 * columns].reshape(n, rows, 2, columns, 2, c)
    top = first_max(windows[:, :, 0, :, 0], windows[:, :, 0, :, 1])
    bottom = first_max(windows[:, :, 1, :, 0], windows[:, :, 1, :, 1])
    return first_max(top, bottom)


def first_max(a: jax.Array, b: jax.Array) -> jax.Array:
    """The larger of two, and the first where they are equal (``jnp.maximum`` would split the gradient); keeps NaNs."""
    return jnp.where((a >= b) | jnp.isnan(a), a, b)


def _uniform(key: jax.Array, shape: tuple[int, ...], fan_in: int) -> Layer:
    bound = 1 / math.sqrt(fan_in)
    weight_key, bias_key = jax.random.split(key)
    return {
        "weight": jax.random.uniform(weight_key, shape, minval=-bound, maxval=bound),
        "bias": jax.random.uniform(bias_key, shape[-1:], minval=-bound, maxval=bound),
    }
