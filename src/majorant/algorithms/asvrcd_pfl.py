"""ASVRCD-PFL, SVRCD-PFL, ASCD-PFL and SCD-PFL: the four forms of `coordinate`, with parameters from theory.

Theorem 8, with n the mean of the n_m and 𝓛 from Lemma 15::

    p_w = 𝓛^w/(𝓛^w + 𝓛^β),     ρ = p_w/n,     𝓛 = 2 max(𝓛^w/p_w, 𝓛^β/p_β),     η = 1/(4𝓛),     θ_2 = 1/2
    θ_1 = min{1/2, √(ημ max{1/2, θ_2/ρ})},     γ = 1/max{2μ, 4θ_1/η},     ν = 1 − γμ

It is about ASVRCD-PFL; the others take those of its numbers that they have.

Reference: Hanzely, Zhao, Kolar, *Personalized federated learning: a unified framework and universal optimization
techniques*, TMLR 2023, Algorithms 4 to 7, Theorems 8 and 9.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from majorant.algorithms.coordinate import coordinate_descent
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
) -> Algorithm:
    """Accelerated stochastic coordinate descent with control variates; needs every client in every round.

    ``sizes`` are the numbers of samples of the clients that train: ρ is made of their mean unless it is given.
    ``sampling`` "independent": every client draws its own sample; "shared": all draw the same index, as the paper has
    it, which needs equal sizes. ``lr`` is η. The history has ``iterations`` and, in gradients of single samples per
    client, ``gradients_w`` and ``gradients_beta``: a full gradient counts as the mean number of samples.

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
    hyper = block_hyper(objective, constants, p_w, lr)
    hyper["rho"] = refresh_probability(hyper["p_w"], rho, sizes)
    check_range("theta_2", theta_2, above=0, below=1)
    hyper |= momentum(hyper["lr"], constants.mu, theta_1, theta_2, hyper["rho"], gamma, nu)
    check_range("theta_1 + theta_2", hyper["theta_1"] + theta_2, above=0, below=1 + 1e-9)
    switches = {"accelerated": True, "control_variates": True}
    return _made("asvrcd-pfl", objective, hyper | {"theta_2": theta_2}, constants, sampling, sizes, switches)


def svrcd_pfl(
    objective: Objective,
    *,
    constants: Constants,
    sizes: Sizes | None = None,
    p_w: float | None = None,
    rho: float | None = None,
    lr: float | None = None,
    sampling: str = "independent",
) -> Algorithm:
    """Stochastic coordinate descent with control variates, not accelerated; see `asvrcd_pfl` for the options.

    It may run with a part of the clients in each round: their w-gradients are divided by the probability of taking
    part, and a client that misses a refresh keeps its older control variate, so that g_w is unbiased all the same.
    """
    check_coordinate("SVRCD-PFL", objective, constants, strongly=False)
    hyper = block_hyper(objective, constants, p_w, lr)
    hyper["rho"] = refresh_probability(hyper["p_w"], rho, sizes)
    switches = {"accelerated": False, "control_variates": True}
    return _made("svrcd-pfl", objective, hyper, constants, sampling, sizes, switches)


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
    switches = {"accelerated": True, "control_variates": False}
    return _made("ascd-pfl", objective, hyper, constants, sampling, sizes, switches)


def scd_pfl(
    objective: Objective,
    *,
    constants: Constants,
    sizes: Sizes | None = None,
    p_w: float | None = None,
    lr: float | None = None,
    sampling: str = "independent",
) -> Algorithm:
    """Stochastic coordinate descent, plain; see `asvrcd_pfl` for the options (``sizes`` only for shared sampling).

    It may run with a part of the clients in each round: their w-gradients are divided by the probability of taking
    part, and the others' β stays where it is.
    """
    check_coordinate("SCD-PFL", objective, constants, strongly=False)
    hyper = block_hyper(objective, constants, p_w, lr)
    switches = {"accelerated": False, "control_variates": False}
    return _made("scd-pfl", objective, hyper, constants, sampling, sizes, switches)


def block_hyper(objective: Objective, constants: Constants, p_w: float | None, lr: float | None) -> dict[str, float]:
    """p_w and η from the smoothness of the F_j."""
    personal = is_personal(objective)
    smooth_w, smooth_beta = constants.sample_smooth_w, constants.sample_smooth_beta if personal else 0.0
    p_w = check_block_probability(smooth_w / (smooth_w + smooth_beta) if p_w is None else p_w, personal)
    if lr is None:
        lr = 1 / (8 * max(smooth_w / p_w, smooth_beta / (1 - p_w) if personal else 0.0))
    check_range("lr", lr, above=0)
    return {"p_w": p_w, "lr": lr}


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
    switches: dict[str, Any],
) -> Algorithm:
    if sampling not in ("independent", "shared"):
        raise ValueError(f"sampling must be 'independent' or 'shared', got {sampling!r}")
    if sampling == "shared" and (sizes is None or len(set(np.asarray(sizes).tolist())) != 1):
        found = "they are not given" if sizes is None else f"they go from {min(sizes)} to {max(sizes)}"
        raise ValueError(f"sampling='shared' needs clients of equal sizes, but {found}: use 'independent'")
    steepest = objective.clients * constants.smooth_beta  # of f_m in β
    rate = 1 / steepest if steepest > 0 else 0.0
    return coordinate_descent(
        name, objective, hyper, shared_samples=sampling == "shared", joining_rate=rate, **switches
    )
