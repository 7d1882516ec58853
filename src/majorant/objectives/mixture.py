"""MX2: personal models that are drawn to their mean.

::

    f_m(w, β_m) = f'_m(β_m) + (λ/2) ‖s w − β_m‖²,     s = M^{−1/2}

Minimised over w, s w is the mean of the β_m, and F is the mixture of local and global models of Hanzely and Richtárik,
(1/M) Σ f'_m(β_m) + (λ/2M) Σ ‖β_m − mean‖². Minimised over the β_m, F is the mean of the Moreau envelopes of the f'_m at
s w, the objective of implicit MAML and of pFedMe. Constants, times M::

    μ = λ_min [[λ, −λ], [−λ, μ' + λ]],     L^w = 𝓛^w = λ,     L^β = L' + λ,     𝓛^β = 𝓛' + λ

This μ is exact and needs no condition, unlike Lemma 2's μ'/3; the paper's f_m above (11) has λ where (11) has λ/2.

Reference: Hanzely, Zhao, Kolar, TMLR 2023, (9), (10) and (11).
"""

from __future__ import annotations

from typing import Unpack

import jax

from majorant.core import Tree, squared_norm
from majorant.data.federated import FederatedData
from majorant.math.checks import check_range
from majorant.objectives.base import Constants, Objective, Penalty
from majorant.objectives.base_model import BaseOptions, Curvature, base_model, with_base_options
from majorant.objectives.blocks import block_constants, scale_of, scaled, smoothness
from majorant.solvers import Batch


@with_base_options
def mixture(
    data: FederatedData,
    *,
    lambda_: float = 0.1,
    rescale: bool = True,
    **options: Unpack[BaseOptions],
) -> Objective:
    """Personal models near their mean: ``lambda_`` 0 leaves them alone, a large one makes them one model.

    >>> import majorant as mj
    >>> data = mj.data.synthetic_mixture(clients=5, dimension=3, seed=0)
    >>> mixture(data, lambda_=0.5).constants(data).smooth_w
    0.1
    """
    check_range("lambda_", lambda_, least=0)
    base = base_model(data, **options)
    s = scale_of(base.clients, rescale)

    def value(w: Tree, beta: Tree, batch: Batch, slot: jax.Array) -> jax.Array:
        apart = squared_norm(jax.tree.map(lambda a, b: s * a - b, w, beta))
        return base.value(beta, batch) + lambda_ / 2 * apart

    def constants(f: Curvature) -> Constants:
        form = [[lambda_, -lambda_], [-lambda_, f.mu + lambda_]]
        return block_constants(base.clients, rescale, [form], (lambda_, lambda_), smoothness(f, 1, lambda_))

    return Objective(
        name="mixture",
        init=lambda key: scaled(base.init(key), 1 / s),
        init_personal=base.init,
        value=value,
        deploy=lambda w, beta, slot: beta,
        penalty=Penalty(lambda_, s, base.value),
        **base.fields(constants),
    )
