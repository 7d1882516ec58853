"""Federated residual learning: the outputs of a shared and of a personal linear model are added up.

::

    f_m(w, β_m) = (1/n_m) Σ_j loss(⟨x_j^w, s w⟩ + ⟨x_j^β, β_m⟩, y_j) + (l2/2) (‖s w‖² + ‖β_m‖²),     s = M^{−1/2}

Each part has its own features, which may overlap, and a bias. With a loss of curvature at most c, G_m^w and G_m^β the
second moments of the two parts' features on client m, and G_m that of both side by side, the constants are, times M::

    μ = l2  (least squares: + min_m λ_min(G_m)),   L^w = c max_m λ_max(G_m^w) + l2,   𝓛^w = c max_j ‖x_j^w‖² + l2

and the same for β. The paper leaves them open.

References: Hanzely, Zhao, Kolar, TMLR 2023, (18); Agarwal, Langford, Wei, *Federated residual learning*, 2020.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import jax
import numpy as np

from majorant.core import Key, Tree, squared_norm
from majorant.data.federated import FederatedData
from majorant.math.checks import check_range
from majorant.models.layers import dense, dense_init
from majorant.objectives.base import Constants, Objective
from majorant.objectives.base_model import Curvature, client_curvature, count_training, curvature, flatten, zeros_like
from majorant.objectives.blocks import block_constants, scale_of, scaled
from majorant.objectives.losses import BaseLoss, base_loss
from majorant.solvers import Batch


def residual(
    data: FederatedData,
    *,
    shared: Sequence[int] | None = None,
    personal: Sequence[int] | None = None,
    loss: str | BaseLoss | None = None,
    l2: float = 1e-4,
    rescale: bool = True,
    start: str | None = None,
) -> Objective:
    """A shared and a personal linear model added up; ``shared`` and ``personal``: their columns (None: all features).

    >>> import majorant as mj
    >>> data = mj.data.synthetic_mixture(clients=6, dimension=3, seed=0)
    >>> objective = residual(data, personal=[0])
    >>> jax.tree.map(jax.numpy.shape, objective.init_personal(jax.random.key(0)))
    {'bias': (1,), 'weight': (1, 1)}
    """
    check_range("l2", l2, least=0)
    if start not in (None, "zeros", "model"):
        raise ValueError(f'start must be "zeros" or "model", got {start!r}')
    found, clients = base_loss(data, loss), count_training(data)
    s, outputs = scale_of(clients, rescale), found.loss.outputs(len(data.classes))
    columns = [check_columns(data, name, part) for name, part in (("shared", shared), ("personal", personal))]

    def starting(part: np.ndarray, factor: float, key: Key) -> Tree:
        make = lambda key: scaled(dense_init(key, len(part), outputs), factor)
        return make(key) if start == "model" else zeros_like(make)(key)

    def apply(deployed: Tree, x: jax.Array) -> jax.Array:
        x = flatten(x)
        return dense(deployed["shared"], x[:, columns[0]]) + dense(deployed["personal"], x[:, columns[1]])

    def deploy(w: Tree, beta: Tree, slot: jax.Array | None = None) -> Tree:
        return {"shared": scaled(w, s), "personal": beta}

    def value(w: Tree, beta: Tree, batch: Batch, slot: jax.Array) -> jax.Array:
        model = deploy(w, beta)
        return batch.mean(found.loss.per_sample(apply(model, batch.x), batch.y)) + l2 / 2 * squared_norm(model)

    parts = (columns, columns[:1], columns[1:])  # both, and each of the two

    def constants_of(both: Curvature, w: Curvature, beta: Curvature) -> Constants:
        blocks = (w.smooth, w.sample_smooth), (beta.smooth, beta.sample_smooth)
        return block_constants(clients, rescale, [[[both.mu, 0.0], [0.0, both.mu]]], *blocks)

    return Objective(
        name="residual",
        clients=clients,
        init=lambda key: starting(columns[0], 1 / s, key),
        init_personal=lambda key: starting(columns[1], 1.0, key),
        value=value,
        deploy=deploy,
        predict=lambda model, x: found.loss.predict(apply(model, x)),
        constants=lambda data: constants_of(*(curvature(data, found, l2, clients, part) for part in parts)),
        curvature=lambda data: tuple(client_curvature(data, found, l2, part) for part in parts),
        constants_of=lambda largest: constants_of(*(each.turned() for each in largest)),
    )


def check_columns(data: FederatedData, name: str, columns: Sequence[int] | None) -> np.ndarray:
    """Columns of features as indices, each once and existing."""
    features = math.prod(data.spec.features)
    given = list(range(features)) if columns is None else [columns] if isinstance(columns, int) else list(columns)
    if not given or len(set(given)) < len(given) or any(c not in range(features) for c in given):
        raise ValueError(
            f"{name} must be different columns of the {features} features, from 0 to {features - 1}, got {given}"
        )
    return np.asarray(given, np.int32)  # as the columns of `splits`: an index for both precisions
