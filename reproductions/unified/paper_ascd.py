"""ASCD-PFL as in the experiments of the paper on the unified framework: θ = min{0.8, 1/η}, with η, γ, ν of Theorem 8.

No theorem has this θ, and it changes with the scale of the objective; the library's own is Theorem 8's θ_1.
"""

from __future__ import annotations

from typing import Any

from majorant.core import Algorithm, Terms
from majorant.methods import ascd
from majorant.methods._coordinate_theory import block_numbers
from majorant.methods._two_blocks import is_personal
from majorant.objectives.base import Constants, Objective


def paper_ascd(objective: Objective, *, constants: Constants, p_w: float | None = None, **options: Any) -> Algorithm:
    """ASCD-PFL with the paper's θ.

    >>> import majorant as mj
    >>> from majorant.engines.settings import hyper_after_setup
    >>> data = mj.data.heterogeneous_logistic(clients=3, samples=20, seed=0)
    >>> objective = mj.objectives.mixture(data, l2=0.1)
    >>> hyper = hyper_after_setup(paper_ascd(objective, constants=objective.constants(data)), data)
    >>> bool(abs(hyper["theta_1"] - min(0.8, 1 / hyper["lr"])) < 1e-6)
    True
    """
    rate = float(block_numbers(is_personal(objective), constants, Terms(), p_w, None)["lr"])
    return ascd(objective, constants=constants, p_w=p_w, theta=min(0.8, 1 / rate), **options)
