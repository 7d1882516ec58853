"""The rate of the weighted sum's algorithm on convex problems, with the constants that its proof gives.

For f_i = (1 − λ) C_i + λ Σ_j w_j S_j, convex and L-smooth, with gradients that differ from their mean's by at most ζ
and stochastic ones of variance Σ, the step η = 1/(4Lτ√T) has, over T rounds of τ steps on M agents,

    mean over rounds and steps of F(mean_i Θ_i) − F(Θ*)
        ≤ 2 L D²/√T + Σ/(2 L M τ √T) + 9 ζ²/(8 L T) + 7 Σ/(16 L τ T),          D = ‖Θ⁰ − Θ*‖.

As printed, (2.8) has one L_S for all criteria, Θ^T stands for the minimiser Θ*, and the last two terms of (2.14) have
5/8 and 1/4: Lemma A.1 drops the factor (1 + 1/τ)^k − 1 ≤ e − 1.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from majorant.math.checks import check_range


def smoothness(
    agents: float, criteria: Sequence[float], *, weight: float, weights: Sequence[float] | None = None
) -> float:
    """L = (1 − λ) L_C + λ Σ_j w_j L_{S_j}: bounded for every λ.

    >>> smoothness(1.0, [4.0, 2.0], weight=0.5)
    2.0
    """
    check_range("weight (λ)", weight, least=0, below=1)
    shares = [1 / len(criteria)] * len(criteria) if weights is None else weights
    return (1 - weight) * agents + weight * sum(w * each for w, each in zip(shares, criteria, strict=True))


def step_size(smooth: float, *, tau: int, rounds: int) -> float:
    """η = 1/(4Lτ√T), as in (2.13).

    >>> step_size(1.0, tau=5, rounds=25)
    0.01
    """
    check_range("smooth (L)", smooth, above=0)
    return 1 / (4 * smooth * tau * math.sqrt(rounds))


def suboptimality_bound(
    smooth: float,
    *,
    tau: int,
    rounds: int,
    agents: int,
    distance: float,
    heterogeneity: float = 0.0,
    variance: float = 0.0,
) -> float:
    """What the mean of F − F* over rounds and steps is at most: D, ζ and Σ are distance, heterogeneity and variance.

    >>> suboptimality_bound(1.0, tau=1, rounds=100, agents=5, distance=1.0)
    0.2
    """
    check_range("smooth (L)", smooth, above=0)
    start = 2 * smooth * distance**2 / math.sqrt(rounds)
    noise = variance / (2 * smooth * agents * tau * math.sqrt(rounds))
    drift = 9 * heterogeneity**2 / (8 * smooth * rounds) + 7 * variance / (16 * smooth * tau * rounds)
    return start + noise + drift
