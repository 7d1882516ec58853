"""Adaptive optimizers at the server: FedAdam and FedYogi as the paper prints them.

With the pseudo-gradient Δ = θ^{k−1} − θ̄ of a round, from m = 0 and v = τ² in every entry::

    m ← β₁ m + (1 − β₁) Δ
    v ← β₂ v + (1 − β₂) Δ²                           FedAdam
    v ← v − (1 − β₂) Δ² sign(v − Δ²)                 FedYogi
    θ ← θ − η m / (√v + τ)

There is no bias correction: v starts at τ², not at 0. Adam as it is used elsewhere (in optax, say) starts both at 0
and divides m by 1 − β₁ᵏ and v by 1 − β₂ᵏ, which makes the first rounds' steps different ones.

Reference: Reddi et al., *Adaptive federated optimization*, ICLR 2021, Algorithm 2; its experiments have β₁ = 0.9,
β₂ = 0.99 and τ = 1e-3.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax


class Moments(NamedTuple):
    """The moving averages m and v, as large as the model each."""

    m: Any
    v: Any


def adaptive(
    second: Callable[[jax.Array, jax.Array, float], jax.Array], *, b1: float = 0.9, b2: float = 0.99, tau: float = 1e-3
) -> optax.GradientTransformation:
    """Algorithm 2 with a rule ``second(v, Δ², β₂)`` for the second moment."""

    def init(theta: Any) -> Moments:
        return Moments(optax.tree.zeros_like(theta), jax.tree.map(lambda p: jnp.full_like(p, tau**2), theta))

    def update(delta: Any, moments: Moments, theta: Any = None) -> tuple[Any, Moments]:
        m = jax.tree.map(lambda m, d: b1 * m + (1 - b1) * d, moments.m, delta)
        v = jax.tree.map(lambda v, d: second(v, d * d, b2), moments.v, delta)
        return jax.tree.map(lambda m, v: m / (jnp.sqrt(v) + tau), m, v), Moments(m, v)

    return optax.GradientTransformation(init, update)


def fedadam() -> optax.GradientTransformation:
    """FedAdam's server: v is a moving average of Δ²."""
    return adaptive(lambda v, squared, b2: b2 * v + (1 - b2) * squared)


def fedyogi() -> optax.GradientTransformation:
    """FedYogi's server: v moves towards Δ² by a step whose length does not depend on v."""
    return adaptive(lambda v, squared, b2: v - (1 - b2) * squared * jnp.sign(v - squared))
