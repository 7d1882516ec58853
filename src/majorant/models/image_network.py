"""What networks for images share: statistics beside weights, the mean over positions, and a dense last layer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from majorant.models.base import Draw, Model, Spec
from majorant.models.dropout import dropout
from majorant.models.layers import Layer, dense
from majorant.models.losses import loss_for
from majorant.models.normalisation import keeps_statistics, statistics_init, uses_the_batch

Params = dict[str, Any]
Features = Callable[[Params, list[Layer], "jax.Array | None", jax.Array], tuple[jax.Array, list[Layer]]]


def image_network(
    name: str,
    spec: Spec,
    normalisation: str,
    weights: Callable[[jax.Array], Params],
    features: Features,
    channels: Sequence[int],
    share: float = 0.0,
) -> Model:
    """The model with parameters ``{"weights": …, "statistics": …}``, the latter where the policy keeps any.

    ``weights(key)`` has an entry ``dense``, the last layer. ``features(weights, statistics, real, x)`` gives maps
    ``(n, h, w, c)`` and refreshed statistics, one entry for each normalisation, whose numbers of channels are
    ``channels``. ``share`` of the mean features is dropped in training.
    """
    kept = keeps_statistics(normalisation)

    def init(key: jax.Array) -> Params:
        statistics = {"statistics": [statistics_init(c) for c in channels]} if kept else {}
        return {"weights": weights(key)} | statistics

    def means(params: Params, x: jax.Array, real: jax.Array | None = None) -> tuple[jax.Array, list[Layer]]:
        x, refreshed = features(params["weights"], params.get("statistics", []), real, x)
        return x.astype(jnp.promote_types(x.dtype, jnp.float32)).mean((1, 2)).astype(x.dtype), refreshed

    def forward(params: Params, x: jax.Array, draw: Draw | None) -> tuple[jax.Array, Params]:
        x, refreshed = means(params, x, None if draw is None else draw.real)
        outputs = dense(params["weights"]["dense"], dropout(x, share, draw))
        return outputs, {**params, "statistics": refreshed} if kept else params

    return Model(
        init,
        apply=lambda params, x: forward(params, x, None)[0],
        loss=loss_for(spec),
        spec=spec,
        name=name,
        train_apply=forward if share or normalisation != "group" else None,
        statistics="statistics" if kept else "",
        normalises_by_batch=uses_the_batch(normalisation),
        head="weights.dense",
        features=lambda params, x: means(params, x)[0],
    )
