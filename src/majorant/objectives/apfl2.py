"""APFL2: each client predicts with a blend of a personal model and the shared one, which is trained for itself too.

::

    f_m(w, β_m) = Λ f'_m(s w) + f'_m((1 − α_m) β_m + α_m s w),     s = M^{−1/2}

Λ is the relaxation: as it grows, s w tends to the model of traditional federated learning, as in APFL. Constants,
times M, with α_max and α_min over the clients that train::

    μ = μ' min_m λ_min [[Λ + α_m², α_m (1 − α_m)], [α_m (1 − α_m), (1 − α_m)²]]
    L^w = (Λ + α_max²) L',     L^β = (1 − α_min)² L',     𝓛^w = (Λ + α_max²) 𝓛',     𝓛^β = (1 − α_min)² 𝓛'

μ needs no condition on Λ, unlike Lemma 3's; it is exact for equal α_m and a lower bound for others.

**What is deployed at the minimum depends neither on α nor on Λ**: β_m can make the blend anything, as α_m < 1, so the
blend is the minimiser of f'_m, as in fully personal learning, and s w is the traditional model. The same is true of
the paper's (12). α and Λ matter for the road there: what is deployed after few steps, and how many steps it takes.

References: Hanzely, Zhao, Kolar, TMLR 2023, (14); Deng, Kamani, Mahdavi, *Adaptive personalized federated learning*,
2020 (whose α is 1 − α here).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Unpack

import jax
import jax.numpy as jnp
import numpy as np

from majorant.core import Tree
from majorant.data.federated import FederatedData
from majorant.math.checks import check_range
from majorant.objectives.base import Constants, Objective
from majorant.objectives.base_model import BaseOptions, Curvature, base_model, with_base_options
from majorant.objectives.blocks import block_constants, scale_of, scaled, smoothness
from majorant.solvers import Batch


@with_base_options
def apfl2(
    data: FederatedData,
    *,
    alpha: float | Sequence[float] = 0.5,
    relaxation: float = 1.0,
    rescale: bool = True,
    **options: Unpack[BaseOptions],
) -> Objective:
    """Blends of a personal and a shared model. ``alpha``: the shared one's part; ``relaxation``: Λ, its own weight.

    ``alpha`` is a number strictly between 0 and 1, or one for each client of the data, unseen ones included.

    >>> import majorant as mj
    >>> data = mj.data.synthetic_mixture(clients=6, dimension=3, seed=0)
    >>> apfl2(data, alpha=0.25, relaxation=10.0).name
    'apfl2'
    """
    check_range("relaxation", relaxation, least=0)
    alphas = every_alpha(data, alpha)
    base = base_model(data, **options)
    s = scale_of(base.clients, rescale)
    trained = alphas[~data.unseen]

    def blend(w: Tree, beta: Tree, slot: jax.Array) -> Tree:
        known = (slot >= 0) & (slot < len(alphas))  # a client without a slot has the mean of the others' α
        a = jnp.where(known, jnp.asarray(alphas)[jnp.where(known, slot, 0)], trained.mean())
        return jax.tree.map(lambda w, b: ((1 - a) * b + a * s * w).astype(b.dtype), w, beta)

    def value(w: Tree, beta: Tree, batch: Batch, slot: jax.Array) -> jax.Array:
        return relaxation * base.value(scaled(w, s), batch) + base.value(blend(w, beta, slot), batch)

    def constants(f: Curvature) -> Constants:
        forms = [
            [[f.mu * (relaxation + a**2), f.mu * a * (1 - a)], [f.mu * a * (1 - a), f.mu * (1 - a) ** 2]]
            for a in np.unique(trained)
        ]
        w, beta = smoothness(f, relaxation + trained.max() ** 2), smoothness(f, (1 - trained.min()) ** 2)
        return block_constants(base.clients, rescale, forms, w, beta)

    return Objective(
        name="apfl2",
        init=lambda key: scaled(base.init(key), 1 / s),
        init_personal=base.init,
        value=value,
        deploy=blend,
        **base.fields(constants),
    )


def every_alpha(data: FederatedData, alpha: float | Sequence[float]) -> np.ndarray:
    """α of every client, ``(clients,)``, from one number or one each."""
    values = np.asarray(alpha, float)
    if values.ndim > 1 or values.size not in (1, data.clients) or (values.ndim == 1 and values.size != data.clients):
        raise ValueError(
            f"alpha must be one number, or one for each of the {data.clients} clients, got shape {values.shape}"
        )
    for value in values.reshape(-1).tolist():
        check_range("alpha", value, above=0, below=1)
    return np.broadcast_to(values, (data.clients,))
