"""Step sizes and probabilities of the coordinate methods, by Theorem 8 where they are not given.

With n the mean of the n_m and 𝓛 from Lemma 15::

    p_w = 𝓛^w/(𝓛^w + 𝓛^β),     ρ = p_w/n,     𝓛 = 2 max(𝓛^w/p_w, 𝓛^β/p_β),     η = 1/(4𝓛),     θ_2 = 1/2
    θ_1 = min{1/2, √(ημ max{1/2, θ_2/ρ})},     γ = 1/max{2μ, 4θ_1/η},     ν = 1 − γμ

It is about ASVRCD-PFL; the others take those of its numbers that they have. Where a client is heard in a round with
probability q, the variance of what it sends grows by 1/q: 𝓛^w is then 𝓛^w/q, and so is 𝓛^β where absent clients replay
the steps they missed (see `_coordinate`).

Reference: Hanzely, Zhao, Kolar, *Personalized federated learning: a unified framework and universal optimization
techniques*, TMLR 2023, Theorems 8 and 9.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from majorant.core import Terms
from majorant.math.checks import check_range
from majorant.methods._two_blocks import check_block_probability, is_personal
from majorant.objectives.base import Constants, Objective


def check_numbers(objective: Objective, absent: str = "rest", **given: float | None) -> float | None:
    """Refuses numbers out of their range; p_w as given, or 1 where nothing is personal."""
    p_w = check_block_probability(given.pop("p_w", None), is_personal(objective))
    if absent not in ("rest", "replay"):
        raise ValueError(f"absent must be 'rest' or 'replay', got {absent!r}")
    bounds: dict[str, dict[str, float]] = {
        "rho": {"above": 0, "below": 1},
        "theta": {"above": 0, "below": 1},
        "theta_1": {"above": 0, "below": 1},
        "theta_2": {"above": 0, "below": 1},
        "nu": {"least": 0, "below": 1},
    }
    for name, value in given.items():
        if value is not None:
            check_range(name, value, **bounds.get(name, {"above": 0}))
    return p_w


def block_numbers(
    personal: bool, constants: Constants, terms: Terms, p_w: float | None, lr: float | None, absent: str = "rest"
) -> dict[str, Any]:
    """p_w and η from the smoothness of the F_j."""
    smooth_w = jnp.asarray(constants.sample_smooth_w / terms.inclusion)
    smooth_beta = jnp.asarray(constants.sample_smooth_beta if personal else 0.0)
    smooth_beta = smooth_beta / (terms.inclusion if absent == "replay" else 1)
    share: Any = smooth_w / (smooth_w + smooth_beta) if p_w is None else p_w
    steep = smooth_w / share
    if personal:
        steep = jnp.maximum(steep, smooth_beta / (1 - share))
    return {"p_w": share, "lr": 1 / (8 * steep) if lr is None else lr}


def momentum_numbers(
    lr: Any, mu: Any, theta_1: float | None, theta_2: float, rho: Any, gamma: float | None, nu: float | None
) -> dict[str, Any]:
    """θ_1, γ and ν by Theorem 8, where they are not given; NaN where μ is 0, for which there is no acceleration."""
    mu = jnp.where(jnp.asarray(mu) > 0, mu, jnp.nan)
    first: Any = theta_1
    if theta_1 is None:
        first = jnp.minimum(0.5, jnp.sqrt(lr * mu * jnp.maximum(0.5, theta_2 / rho)))
        first = jnp.where(jnp.isnan(mu), jnp.nan, first)  # a minimum with NaN may be the number
    step: Any = 1 / jnp.maximum(2 * mu, 4 * first / lr) if gamma is None else gamma
    return {"theta_1": first, "gamma": step, "nu": 1 - step * mu if nu is None else nu}


def refresh_probability(rho: float | None, p_w: Any, mean_size: jax.Array) -> Any:
    """ρ as given, or p_w over the mean number of samples."""
    return p_w / mean_size if rho is None else rho


def check_sampling(sampling: str) -> bool:
    """Whether clients share the index of their samples."""
    if sampling not in ("independent", "shared"):
        raise ValueError(f"sampling must be 'independent' or 'shared', got {sampling!r}")
    return sampling == "shared"
