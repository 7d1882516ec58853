"""ASVRCD-PFL, SVRCD-PFL, ASCD-PFL and SCD-PFL: the four forms of `coordinate`, with parameters from theory.

Theorem 8, with n the mean of the n_m and 𝓛 from Lemma 15::

    p_w = 𝓛^w/(𝓛^w + 𝓛^β),     ρ = p_w/n,     𝓛 = 2 max(𝓛^w/p_w, 𝓛^β/p_β),     η = 1/(4𝓛),     θ_2 = 1/2
    θ_1 = min{1/2, √(ημ max{1/2, θ_2/ρ})},     γ = 1/max{2μ, 4θ_1/η},     ν = 1 − γμ

It is about ASVRCD-PFL; the others take those of its numbers that they have. Where a client takes part in a round with
probability q, the variance of what it sends grows by 1/q: 𝓛^w is then 𝓛^w/q, and so is 𝓛^β where absent clients replay
the steps they missed (see `coordinate`).

Reference: Hanzely, Zhao, Kolar, *Personalized federated learning: a unified framework and universal optimization
techniques*, TMLR 2023, Algorithms 4 to 7, Theorems 8 and 9.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from majorant.algorithms.coordinate import Form, coordinate_descent
from majorant.algorithms.two_blocks import check_block_probability, check_coordinate, is_personal
from majorant.core import Algorithm
from majorant.objectives.base import Constants, Objective
from majorant.solvers import check_range

Sizes = Sequence[int] | np.ndarray


def asvrcd_pfl(
    objective: Objective,
    *,
    constants: Constants,
    sizes: Sizes | None = None,
    p_w: float | None = None,
    rho: float | None = None,
    lr: float | None = None,
    theta_1: float | None = None,
    theta_2: float = 0.5,
    gamma: float | None = None,
    nu: float | None = None,
    sampling: str = "independent",
    inclusion: float = 1.0,
    absent: str = "rest",
    warm_up: bool = False,
    theta: float | None = None,
) -> Algorithm:
    """Accelerated stochastic coordinate descent with control variates.

    ``sizes`` are the numbers of samples of the clients that train: ρ is made of their mean unless it is given.
    ``sampling`` "independent": every client draws its own sample; "shared": all draw the same index, as the paper has
    it, which needs equal sizes. ``lr`` is η. ``inclusion`` is the probability that a client takes part in a round;
    ``absent`` says whether the others' β_m "rest" or "replay" the steps they missed. With ``warm_up`` it begins as
    ASCD-PFL, with ``theta`` (by default θ_1), and takes the control variates in when progress has stalled. The history
    has ``iterations`` and, in gradients of single samples per client, ``gradients_w`` and ``gradients_beta``: a full
    gradient counts as the mean number of samples.

    >>> import majorant as mj
    >>> from majorant.objectives import mixture
    >>> data = mj.data.synthetic_mixture(clients=10, dimension=5, seed=0)
    >>> objective = mixture(data, lambda_=0.1, l2=1e-2)
    >>> algorithm = asvrcd_pfl(objective, constants=objective.constants(data), sizes=data.train.sizes)
    >>> run = mj.simulate(algorithm, data, rounds=3)
    >>> run.history[-1]["iterations"] >= 3
    True
    """
    check_coordinate("ASVRCD-PFL", objective, constants, strongly=True)
    hyper = block_hyper(objective, constants, p_w, lr, inclusion, absent)
    hyper["rho"] = refresh_probability(hyper["p_w"], rho, sizes)
    check_range("theta_2", theta_2, above=0, below=1)
    hyper |= momentum(hyper["lr"], constants.mu, theta_1, theta_2, hyper["rho"], gamma, nu)
    check_range("theta_1 + theta_2", hyper["theta_1"] + theta_2, above=0, below=1 + 1e-9)
    hyper["theta_2"] = theta_2
    if theta is not None and not warm_up:
        raise ValueError("theta is that of the start without control variates: give warm_up=True as well")
    if warm_up:
        hyper["theta"] = hyper["theta_1"] if theta is None else theta
        check_range("theta", hyper["theta"], above=0, below=1)
    form = Form(accelerated=True, control_variates=True, warm_up=warm_up, replays=absent == "replay")
    return _made("asvrcd-pfl", objective, hyper, constants, sampling, sizes, form)


def svrcd_pfl(
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
    """Stochastic coordinate descent with control variates, not accelerated; see `asvrcd_pfl` for the options."""
    check_coordinate("SVRCD-PFL", objective, constants, strongly=False)
    hyper = block_hyper(objective, constants, p_w, lr, inclusion, absent)
    hyper["rho"] = refresh_probability(hyper["p_w"], rho, sizes)
    form = Form(accelerated=False, control_variates=True, replays=absent == "replay")
    return _made("svrcd-pfl", objective, hyper, constants, sampling, sizes, form)


def ascd_pfl(
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
    ``lr`` or ``gamma`` helps. See `asvrcd_pfl` for the other options.
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
    return _made("ascd-pfl", objective, hyper, constants, sampling, sizes, form)


def scd_pfl(
    objective: Objective,
    *,
    constants: Constants,
    sizes: Sizes | None = None,
    p_w: float | None = None,
    lr: float | None = None,
    sampling: str = "independent",
    inclusion: float = 1.0,
) -> Algorithm:
    """Stochastic coordinate descent, plain; see `asvrcd_pfl` for the options (``sizes`` only for shared sampling)."""
    check_coordinate("SCD-PFL", objective, constants, strongly=False)
    hyper = block_hyper(objective, constants, p_w, lr, inclusion)
    return _made("scd-pfl", objective, hyper, constants, sampling, sizes, Form(False, False))


def block_hyper(
    objective: Objective,
    constants: Constants,
    p_w: float | None,
    lr: float | None,
    inclusion: float = 1.0,
    absent: str = "rest",
) -> dict[str, float]:
    """p_w and η from the smoothness of the F_j, and the probability of taking part where it is part of the method."""
    personal = is_personal(objective)
    check_range("inclusion", inclusion, above=0, most=1)
    if absent not in ("rest", "replay"):
        raise ValueError(f"absent must be 'rest' or 'replay', got {absent!r}")
    smooth_w = constants.sample_smooth_w / inclusion
    smooth_beta = constants.sample_smooth_beta / (inclusion if absent == "replay" else 1) if personal else 0.0
    p_w = check_block_probability(smooth_w / (smooth_w + smooth_beta) if p_w is None else p_w, personal)
    if lr is None:
        lr = 1 / (8 * max(smooth_w / p_w, smooth_beta / (1 - p_w) if personal else 0.0))
    check_range("lr", lr, above=0)
    return {"p_w": p_w, "lr": lr} | ({"inclusion": inclusion} if absent == "replay" else {})


def refresh_probability(p_w: float, rho: float | None, sizes: Sizes | None) -> float:
    """ρ as given, or p_w over the mean number of samples."""
    if rho is None:
        if sizes is None:
            raise ValueError("give sizes, the numbers of samples of the clients that train, or the probability rho")
        rho = p_w / float(np.mean(sizes))
    check_range("rho", rho, above=0, below=1)
    return rho


def momentum(
    lr: float, mu: float, theta_1: float | None, theta_2: float, rho: float, gamma: float | None, nu: float | None
) -> dict[str, float]:
    """θ_1, γ and ν by Theorem 8, where they are not given."""
    if theta_1 is None:
        theta_1 = min(0.5, math.sqrt(lr * mu * max(0.5, theta_2 / rho)))
    check_range("theta_1", theta_1, above=0, below=1)
    gamma = 1 / max(2 * mu, 4 * theta_1 / lr) if gamma is None else gamma
    check_range("gamma", gamma, above=0)
    nu = 1 - gamma * mu if nu is None else nu
    check_range("nu", nu, least=0, below=1)
    return {"theta_1": theta_1, "gamma": gamma, "nu": nu}


def _made(
    name: str,
    objective: Objective,
    hyper: dict[str, float],
    constants: Constants,
    sampling: str,
    sizes: Sizes | None,
    form: Form,
) -> Algorithm:
    if sampling not in ("independent", "shared"):
        raise ValueError(f"sampling must be 'independent' or 'shared', got {sampling!r}")
    if sampling == "shared" and (sizes is None or len(set(np.asarray(sizes).tolist())) != 1):
        found = "they are not given" if sizes is None else f"they go from {min(sizes)} to {max(sizes)}"
        raise ValueError(f"sampling='shared' needs clients of equal sizes, but {found}: use 'independent'")
    steepest = objective.clients * constants.smooth_beta  # of f_m in β
    rate = 1 / steepest if steepest > 0 else 0.0
    return coordinate_descent(name, objective, hyper, form._replace(shared_samples=sampling == "shared"), rate)
