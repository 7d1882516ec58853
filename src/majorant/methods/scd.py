"""SCD-PFL: plain stochastic coordinate descent, up to a noise level.

The iteration is that of `_coordinate` with u_y⁺ = u_y − η g_u alone.

Reference: Hanzely, Zhao, Kolar, *Personalized federated learning: a unified framework and universal optimization
techniques*, TMLR 2023, Algorithm 6.
"""

from __future__ import annotations

from majorant.core import Algorithm
from majorant.methods._coordinate import Form
from majorant.methods._coordinate_theory import Sizes, block_hyper, made
from majorant.methods._two_blocks import check_coordinate
from majorant.objectives.base import Constants, Objective


def scd(
    objective: Objective,
    *,
    constants: Constants,
    sizes: Sizes | None = None,
    p_w: float | None = None,
    lr: float | None = None,
    sampling: str = "independent",
    inclusion: float = 1.0,
) -> Algorithm:
    """Stochastic coordinate descent, plain; see `asvrcd` for the options (``sizes`` only for shared sampling)."""
    check_coordinate("SCD-PFL", objective, constants, strongly=False)
    hyper = block_hyper(objective, constants, p_w, lr, inclusion)
    return made("scd", objective, hyper, constants, sampling, sizes, Form(False, False))
