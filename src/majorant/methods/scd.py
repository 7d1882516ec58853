"""SCD-PFL: plain stochastic coordinate descent, up to a noise level.

The iteration is that of `_coordinate` with u_y⁺ = u_y − η g_u alone.

Reference: Hanzely, Zhao, Kolar, *Personalized federated learning: a unified framework and universal optimization
techniques*, TMLR 2023, Algorithm 6.
"""

from __future__ import annotations

from typing import Any

import jax

from majorant.core import Algorithm, Terms
from majorant.methods._coordinate import coordinate_descent
from majorant.methods._coordinate_steps import Form
from majorant.methods._coordinate_theory import block_numbers, check_numbers, check_sampling
from majorant.methods._two_blocks import Theory, check_coordinate, is_personal, unless_given
from majorant.objectives.base import Constants, Objective


def scd(
    objective: Objective,
    *,
    constants: Constants | None = None,
    p_w: float | None = None,
    lr: float | None = None,
    sampling: str = "independent",
) -> Algorithm:
    """Stochastic coordinate descent, plain; see `asvrcd` for the options."""
    check_coordinate("SCD-PFL", objective, constants, strongly=False)
    p_w = check_numbers(objective, p_w=p_w, lr=lr)
    shared, personal = check_sampling(sampling), is_personal(objective)

    def numbers(constants: Constants, mean_size: jax.Array, terms: Terms) -> dict[str, Any]:
        return block_numbers(personal, constants, terms, p_w, lr)

    hyper, form = unless_given(p_w=p_w, lr=lr), Form(False, False, shared_samples=shared)
    return coordinate_descent("scd", Theory(objective, constants, numbers), hyper, form)
