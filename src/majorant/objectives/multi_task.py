"""MT2: personal models that are drawn to a shared one, which is trained for itself as well.

::

    f_m(w, β_m) = Λ f'_m(s w) + f'_m(β_m) + (λ/2) ‖β_m − s w‖²,     s = M^{−1/2}

Λ is the relaxation: as it grows, s w tends to the model of traditional federated learning and β_m to what Ditto
computes from that. Constants, times M::

    μ = λ_min [[Λμ' + λ, −λ], [−λ, μ' + λ]],   L^w = ΛL' + λ,   L^β = L' + λ,   𝓛^w = Λ𝓛' + λ,   𝓛^β = 𝓛' + λ

These are the exact values, with no condition on Λ: the paper's Table 2 and Lemma 1 differ by factors of 2, and its (7)
has λ where (8) has λ/2.

References: Hanzely, Zhao, Kolar, TMLR 2023, (8); Li, Hu, Beirami, Smith, *Ditto*, ICML 2021.
"""

from __future__ import annotations

from typing import Unpack

import jax

from majorant.core import Tree, squared_norm
from majorant.data.federated import FederatedData
from majorant.math.checks import check_range
from majorant.objectives.base import Constants, Objective
from majorant.objectives.base_model import BaseOptions, Curvature, base_model, with_base_options
from majorant.objectives.blocks import block_constants, scale_of, scaled, smoothness
from majorant.solvers import Batch


@with_base_options
def multi_task(
    data: FederatedData,
    *,
    lambda_: float = 0.1,
    relaxation: float = 1.0,
    rescale: bool = True,
    **options: Unpack[BaseOptions],
) -> Objective:
    """Personal models near a shared one. ``lambda_``: how near; ``relaxation``: Λ, the shared model's own weight.

    >>> import majorant as mj
    >>> data = mj.data.synthetic_mixture(clients=6, dimension=3, seed=0)
    >>> multi_task(data, lambda_=0.5, relaxation=10.0).name
    'multi-task'
    """
    check_range("lambda_", lambda_, least=0)
    check_range("relaxation", relaxation, least=0)
    base = base_model(data, **options)
    s = scale_of(base.clients, rescale)

    def value(w: Tree, beta: Tree, batch: Batch, slot: jax.Array) -> jax.Array:
        shared = scaled(w, s)
        apart = squared_norm(jax.tree.map(lambda b, a: b - a, beta, shared))
        return relaxation * base.value(shared, batch) + base.value(beta, batch) + lambda_ / 2 * apart

    def constants(f: Curvature) -> Constants:
        form = [[relaxation * f.mu + lambda_, -lambda_], [-lambda_, f.mu + lambda_]]
        w, beta = smoothness(f, relaxation, lambda_), smoothness(f, 1, lambda_)
        return block_constants(base.clients, rescale, [form], w, beta)

    return Objective(
        name="multi-task",
        init=lambda key: scaled(base.init(key), 1 / s),
        init_personal=base.init,
        value=value,
        deploy=lambda w, beta, slot: beta,
        **base.fields(constants),
    )
