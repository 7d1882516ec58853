"""SVRCD-PFL: stochastic coordinate descent with control variates, not accelerated; it converges linearly.

The iteration is that of `_coordinate` with u_x = u_y and no z.

Reference: Hanzely, Zhao, Kolar, *Personalized federated learning: a unified framework and universal optimization
techniques*, TMLR 2023, Algorithm 7, Theorem 9.
"""

from __future__ import annotations

from typing import Any

import jax

from majorant.core import Algorithm, Terms
from majorant.methods._coordinate import coordinate_descent
from majorant.methods._coordinate_steps import Form
from majorant.methods._coordinate_theory import block_numbers, check_numbers, check_sampling, refresh_probability
from majorant.methods._two_blocks import Theory, check_coordinate, is_personal, unless_given
from majorant.objectives.base import Constants, Objective


def svrcd(
    objective: Objective,
    *,
    constants: Constants | None = None,
    p_w: float | None = None,
    rho: float | None = None,
    lr: float | None = None,
    sampling: str = "independent",
    absent: str = "rest",
) -> Algorithm:
    """Stochastic coordinate descent with control variates, not accelerated; see `asvrcd` for the options."""
    check_coordinate("SVRCD-PFL", objective, constants, strongly=False)
    p_w = check_numbers(objective, absent, p_w=p_w, rho=rho, lr=lr)
    shared, personal = check_sampling(sampling), is_personal(objective)

    def numbers(constants: Constants, mean_size: jax.Array, terms: Terms) -> dict[str, Any]:
        found = block_numbers(personal, constants, terms, p_w, lr, absent)
        return found | {"rho": refresh_probability(rho, found["p_w"], mean_size)}

    form = Form(False, True, replays=absent == "replay", shared_samples=shared)
    hyper = unless_given(p_w=p_w, lr=lr, rho=rho)
    return coordinate_descent("svrcd", Theory(objective, constants, numbers), hyper, form)
