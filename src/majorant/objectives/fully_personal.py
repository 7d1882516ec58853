"""Fully personal learning: a model β_m for every client, nothing shared, nothing to send.

::

    F(β) = (1/M) Σ_m f'_m(β_m)

Constants: μ = μ'/M, L^β = L'/M, 𝓛^β = 𝓛'/M.

Reference: Hanzely, Zhao, Kolar, TMLR 2023, (5).
"""

from __future__ import annotations

from typing import Unpack

from majorant.data.federated import FederatedData
from majorant.objectives.base import Constants, Objective
from majorant.objectives.base_model import BaseOptions, Curvature, base_model, with_base_options
from majorant.objectives.blocks import nothing


@with_base_options
def fully_personal(data: FederatedData, **options: Unpack[BaseOptions]) -> Objective:
    """A model for each client, from its own samples alone.

    >>> import majorant as mj
    >>> data = mj.data.synthetic_mixture(clients=6, dimension=3, seed=0)
    >>> objective = fully_personal(data, l2=0.06)
    >>> round(objective.constants(data).mu, 6), objective.constants(data).smooth_w
    (0.01, 0.0)
    """
    base = base_model(data, **options)

    def constants(f: Curvature) -> Constants:
        mu, smooth, sample_smooth = f
        return Constants(mu / base.clients, 0.0, smooth / base.clients, 0.0, sample_smooth / base.clients)

    return Objective(
        name="fully-personal",
        init=nothing,
        init_personal=base.init,
        value=lambda w, beta, batch, slot: base.value(beta, batch),
        deploy=lambda w, beta, slot: beta,
        **base.fields(constants),
    )
