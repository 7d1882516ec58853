"""Traditional federated learning: one model w for everybody, nothing personal.

::

    F(w) = (1/M) Σ_m f'_m(w)

Constants: μ = μ', L^w = L', 𝓛^w = 𝓛'. w is not rescaled, as there is no second block to balance it against.

Reference: Hanzely, Zhao, Kolar, TMLR 2023, (4); McMahan et al., AISTATS 2017.
"""

from __future__ import annotations

from typing import Unpack

from majorant.data.federated import FederatedData
from majorant.objectives.base import Constants, Objective
from majorant.objectives.base_model import BaseOptions, Curvature, base_model, with_base_options
from majorant.objectives.blocks import nothing


@with_base_options
def traditional(data: FederatedData, **options: Unpack[BaseOptions]) -> Objective:
    """One model for all clients: the mean over clients of their losses, whatever their sizes.

    >>> import majorant as mj
    >>> data = mj.data.synthetic_mixture(clients=6, dimension=3, seed=0)
    >>> objective = traditional(data, l2=0.01)
    >>> objective.constants(data).mu, objective.constants(data).smooth_beta
    (0.01, 0.0)
    """
    base = base_model(data, **options)

    def constants(f: Curvature) -> Constants:
        mu, smooth, sample_smooth = f
        return Constants(mu, smooth, 0.0, sample_smooth, 0.0)

    return Objective(
        name="traditional",
        init=base.init,
        init_personal=nothing,
        value=lambda w, beta, batch, slot: base.value(w, batch),
        deploy=lambda w, beta, slot: w,
        **base.fields(constants),
    )
