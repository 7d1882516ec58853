"""ASCD-PFL: accelerated stochastic coordinate descent, without control variates: up to a noise level.

The iteration is that of `_coordinate` with θ_2 = 0 and no v.

Reference: Hanzely, Zhao, Kolar, *Personalized federated learning: a unified framework and universal optimization
techniques*, TMLR 2023, Algorithm 5.
"""

from __future__ import annotations

from majorant.core import Algorithm
from majorant.math.checks import check_range
from majorant.methods._coordinate import Form
from majorant.methods._coordinate_theory import Sizes, block_hyper, made, momentum, refresh_probability
from majorant.methods._two_blocks import check_coordinate
from majorant.objectives.base import Constants, Objective


def ascd(
    objective: Objective,
    *,
    constants: Constants,
    sizes: Sizes | None = None,
    p_w: float | None = None,
    rho: float | None = None,
    lr: float | None = None,
    theta: float | None = None,
    gamma: float | None = None,
    nu: float | None = None,
    rule: str = "theorem",
    sampling: str = "independent",
) -> Algorithm:
    """Accelerated stochastic coordinate descent without control variates; needs every client in every round.

    η, γ and ν are ASVRCD-PFL's, for which it needs ``sizes`` or ``rho``. ``rule`` says what θ is: "theorem" takes
    Theorem 8's θ_1; "paper" is that of the paper's experiments, min{0.8, 1/η}, which changes with the scale of the
    objective. No theorem covers either: gradient noise is amplified by about γ/η, and where that is too much a smaller
    ``lr`` or ``gamma`` helps. See `asvrcd` for the other options.
    """
    check_coordinate("ASCD-PFL", objective, constants, strongly=True)
    hyper = block_hyper(objective, constants, p_w, lr)
    if rule not in ("theorem", "paper"):
        raise ValueError(f"rule must be 'theorem' or 'paper', got {rule!r}")
    rho = refresh_probability(hyper["p_w"], rho, sizes)
    hyper |= momentum(hyper["lr"], constants.mu, None, 0.5, rho, gamma, nu)
    if rule == "paper":
        hyper["theta_1"] = min(0.8, 1 / hyper["lr"])
    if theta is not None:
        check_range("theta", theta, above=0, below=1)
        hyper["theta_1"] = theta
    form = Form(accelerated=True, control_variates=False)
    return made("ascd", objective, hyper, constants, sampling, sizes, form)
