"""Step sizes and probabilities of the coordinate methods, by Theorem 8 where they are not given."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from majorant.core import Algorithm
from majorant.math.checks import check_range
from majorant.methods._coordinate import Form, coordinate_descent
from majorant.methods._two_blocks import check_block_probability, is_personal
from majorant.objectives.base import Constants, Objective

Sizes = Sequence[int] | np.ndarray


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


def made(
    name: str,
    objective: Objective,
    hyper: dict[str, float],
    constants: Constants,
    sampling: str,
    sizes: Sizes | None,
    form: Form,
) -> Algorithm:
    """The method of a form, once its sampling is known to fit the clients' sizes."""
    if sampling not in ("independent", "shared"):
        raise ValueError(f"sampling must be 'independent' or 'shared', got {sampling!r}")
    if sampling == "shared" and (sizes is None or len(set(np.asarray(sizes).tolist())) != 1):
        found = "they are not given" if sizes is None else f"they go from {min(sizes)} to {max(sizes)}"
        raise ValueError(f"sampling='shared' needs clients of equal sizes, but {found}: use 'independent'")
    steepest = objective.clients * constants.smooth_beta  # of f_m in β
    rate = 1 / steepest if steepest > 0 else 0.0
    return coordinate_descent(name, objective, hyper, form._replace(shared_samples=sampling == "shared"), rate)
