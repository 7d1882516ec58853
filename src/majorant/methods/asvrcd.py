"""ASVRCD-PFL: accelerated stochastic coordinate descent with control variates; it converges linearly.

The iteration is that of `_coordinate`, all of it, with the numbers of Theorem 8 (`_coordinate_theory`).

Reference: Hanzely, Zhao, Kolar, *Personalized federated learning: a unified framework and universal optimization
techniques*, TMLR 2023, Algorithm 4, Theorem 8.
"""

from __future__ import annotations

from typing import Any

import jax

from majorant.core import Algorithm, Terms
from majorant.math.checks import check_range
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


def asvrcd(
    objective: Objective,
    *,
    constants: Constants | None = None,
    p_w: float | None = None,
    rho: float | None = None,
    lr: float | None = None,
    theta_1: float | None = None,
    theta_2: float = 0.5,
    gamma: float | None = None,
    nu: float | None = None,
    sampling: str = "independent",
    absent: str = "rest",
    warm_up: bool = False,
    theta: float | None = None,
) -> Algorithm:
    """Accelerated stochastic coordinate descent with control variates.

    What is not given comes from theory: ``constants`` from the clients' own, the largest over all of them, and ρ from
    their mean number of samples. ``sampling`` "independent": every client draws its own sample; "shared": all draw the
    same index, as the paper has it, which needs equal sizes. ``lr`` is η. ``absent`` says whether the β_m of clients
    that do not take part "rest" or "replay" the steps they missed. With ``warm_up`` it begins as ASCD-PFL, with
    ``theta`` (by default θ_1), and takes the control variates in when progress has stalled. The history has
    ``iterations`` and, in gradients of single samples per client, ``gradients_w`` and ``gradients_beta``: a full
    gradient counts as the mean number of samples.

    >>> import majorant as mj
    >>> data = mj.data.synthetic_mixture(clients=10, dimension=5, seed=0)
    >>> objective = mj.objectives.mixture(data, lambda_=0.1, l2=1e-2)
    >>> run = mj.simulate(mj.methods.asvrcd(objective), data, rounds=3)
    >>> run.history[-1]["iterations"] >= 3
    True
    """
    check_coordinate("ASVRCD-PFL", objective, constants, strongly=True)
    given = {"rho": rho, "lr": lr, "theta_1": theta_1, "theta_2": theta_2, "gamma": gamma, "nu": nu, "theta": theta}
    p_w = check_numbers(objective, absent, p_w=p_w, **given)
    if theta_1 is not None:
        check_range("theta_1 + theta_2", theta_1 + theta_2, above=0, below=1 + 1e-9)
    if theta is not None and not warm_up:
        raise ValueError("theta is that of the start without control variates: give warm_up=True as well")
    shared, personal = check_sampling(sampling), is_personal(objective)

    def numbers(constants: Constants, mean_size: jax.Array, terms: Terms) -> dict[str, Any]:
        found = block_numbers(personal, constants, terms, p_w, lr, absent)
        found["rho"] = refresh_probability(rho, found["p_w"], mean_size)
        found |= momentum_numbers(found["lr"], constants.mu, theta_1, theta_2, found["rho"], gamma, nu)
        return found | {"theta": found["theta_1"]}

    hyper = unless_given(p_w=p_w, lr=lr, rho=rho, theta_1=theta_1, theta_2=theta_2, gamma=gamma, nu=nu)
    hyper |= unless_given(theta=theta) if warm_up else {}
    form = Form(True, True, warm_up=warm_up, replays=absent == "replay", shared_samples=shared)
    return coordinate_descent("asvrcd", Theory(objective, constants, numbers), hyper, form)
