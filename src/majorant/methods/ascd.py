"""ASCD-PFL: accelerated stochastic coordinate descent, without control variates: up to a noise level.

The iteration is that of `_coordinate` with θ_2 = 0 and no v.

Reference: Hanzely, Zhao, Kolar, *Personalized federated learning: a unified framework and universal optimization
techniques*, TMLR 2023, Algorithm 5.
"""

from __future__ import annotations

from typing import Any

import jax

from majorant.core import Algorithm, Terms
from majorant.methods._coordinate import coordinate_descent
from majorant.methods._coordinate_steps import Form
from majorant.methods._coordinate_theory import (
    block_numbers,
    check_numbers,
    check_sampling,
    momentum_numbers,
    refresh_probability,
)
from majorant.methods._two_blocks import Theory, check_coordinate, is_personal, unless_given
from majorant.objectives.base import Constants, Objective


def ascd(
    objective: Objective,
    *,
    constants: Constants | None = None,
    p_w: float | None = None,
    rho: float | None = None,
    lr: float | None = None,
    theta: float | None = None,
    gamma: float | None = None,
    nu: float | None = None,
    sampling: str = "independent",
) -> Algorithm:
    """Accelerated stochastic coordinate descent without control variates; needs every client in every round.

    η, γ and ν are ASVRCD-PFL's, which depend on ``rho``; ``theta`` is by default Theorem 8's θ_1. No theorem covers
    the method: gradient noise is amplified by about γ/η, and where that is too much a smaller ``lr`` or ``gamma``
    helps. See `asvrcd` for the other options.
    """
    check_coordinate("ASCD-PFL", objective, constants, strongly=True)
    p_w = check_numbers(objective, p_w=p_w, rho=rho, lr=lr, theta=theta, gamma=gamma, nu=nu)
    shared, personal = check_sampling(sampling), is_personal(objective)

    def numbers(constants: Constants, mean_size: jax.Array, terms: Terms) -> dict[str, Any]:
        found = block_numbers(personal, constants, terms, p_w, lr)
        chance = refresh_probability(rho, found["p_w"], mean_size)
        return found | momentum_numbers(found["lr"], constants.mu, None, 0.5, chance, gamma, nu)

    hyper = unless_given(p_w=p_w, lr=lr, theta_1=theta, gamma=gamma, nu=nu)
    form = Form(True, False, shared_samples=shared)
    return coordinate_descent("ascd", Theory(objective, constants, numbers), hyper, form)
