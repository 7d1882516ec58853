"""SVRCD-PFL: stochastic coordinate descent with control variates, not accelerated.

The iteration is that of `_coordinate` with u_x = u_y and no z; it converges linearly.

Reference: Hanzely, Zhao, Kolar, *Personalized federated learning: a unified framework and universal optimization
techniques*, TMLR 2023, Algorithm 7, Theorem 9.
"""

from __future__ import annotations

from majorant.core import Algorithm
from majorant.methods._coordinate import Form
from majorant.methods._coordinate_theory import Sizes, block_hyper, made, refresh_probability
from majorant.methods._two_blocks import check_coordinate
from majorant.objectives.base import Constants, Objective


def svrcd(
    objective: Objective,
    *,
    constants: Constants,
    sizes: Sizes | None = None,
    p_w: float | None = None,
    rho: float | None = None,
    lr: float | None = None,
    sampling: str = "independent",
    inclusion: float = 1.0,
    absent: str = "rest",
) -> Algorithm:
    """Stochastic coordinate descent with control variates, not accelerated; see `asvrcd` for the options."""
    check_coordinate("SVRCD-PFL", objective, constants, strongly=False)
    hyper = block_hyper(objective, constants, p_w, lr, inclusion, absent)
    hyper["rho"] = refresh_probability(hyper["p_w"], rho, sizes)
    form = Form(accelerated=False, control_variates=True, replays=absent == "replay")
    return made("svrcd", objective, hyper, constants, sampling, sizes, form)
