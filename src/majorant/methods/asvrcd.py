"""ASVRCD-PFL: accelerated stochastic coordinate descent with control variates, with parameters from theory.

The iteration is that of `_coordinate`, all of it. Theorem 8, with n the mean of the n_m and 𝓛 from Lemma 15::

    p_w = 𝓛^w/(𝓛^w + 𝓛^β),     ρ = p_w/n,     𝓛 = 2 max(𝓛^w/p_w, 𝓛^β/p_β),     η = 1/(4𝓛),     θ_2 = 1/2
    θ_1 = min{1/2, √(ημ max{1/2, θ_2/ρ})},     γ = 1/max{2μ, 4θ_1/η},     ν = 1 − γμ

It is about ASVRCD-PFL; the others take those of its numbers that they have. Where a client takes part in a round with
probability q, the variance of what it sends grows by 1/q: 𝓛^w is then 𝓛^w/q, and so is 𝓛^β where absent clients replay
the steps they missed (see `coordinate`).

Reference: Hanzely, Zhao, Kolar, *Personalized federated learning: a unified framework and universal optimization
techniques*, TMLR 2023, Algorithm 4, Theorem 8.
"""

from __future__ import annotations

from majorant.core import Algorithm
from majorant.math.checks import check_range
from majorant.methods._coordinate import Form
from majorant.methods._coordinate_theory import Sizes, block_hyper, made, momentum, refresh_probability
from majorant.methods._two_blocks import check_coordinate
from majorant.objectives.base import Constants, Objective


def asvrcd(
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
    >>> algorithm = asvrcd(objective, constants=objective.constants(data), sizes=data.train.sizes)
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
    return made("asvrcd", objective, hyper, constants, sampling, sizes, form)
