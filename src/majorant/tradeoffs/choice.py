"""Choosing λ: by samples that training has not seen, along the path of a front.

Among models that none dominates the best on the clients' validation samples is taken: the highest accuracy and, among
equals, the least loss; for regression the least loss. Test samples play no part, so that what is reported on them is
not flattered by the choice.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from majorant.core import Tree, blockwise
from majorant.core.compilation import jit
from majorant.data.federated import FederatedData
from majorant.models.base import Model
from majorant.tradeoffs.judge import Point


class Held(NamedTuple):
    """What a model is worth on samples held back; NaN where there are none, and accuracy for regression."""

    loss: float
    accuracy: float

    @property
    def rank(self) -> tuple[float, float]:
        """The smaller the better."""
        return (-self.accuracy if np.isfinite(self.accuracy) else 0.0, self.loss)


def held_out(
    model: Model, data: FederatedData, points: Sequence[Point], part: str = "validation", *, unseen: bool = False
) -> list[Held]:
    """The mean loss and the accuracy of every point's model on a part of the data of the clients that trained.

    With ``unseen``, of all clients.
    """
    ragged = getattr(data, part)
    used = np.repeat(~data.unseen | unseen, ragged.sizes)
    x, y = jnp.asarray(ragged.x[used]), jnp.asarray(ragged.y[used])
    if not len(y):
        return [Held(float("nan"), float("nan")) for _ in points]

    @jit
    def measure(params: Tree, x: jax.Array, y: jax.Array) -> tuple[jax.Array, jax.Array]:
        losses = blockwise(lambda x, y: model.losses(params, x, y), x, y, at_once=model.at_once)
        if not data.classes:
            return losses.mean(), jnp.array(jnp.nan)
        said = blockwise(lambda x: model.predict(params, x).argmax(axis=1), x, at_once=model.at_once)
        return losses.mean(), (said == y).mean()

    return [Held(*(float(value) for value in measure(point.params, x, y))) for point in points]


def best_of(scores: Sequence[Held]) -> int | None:
    """The place of the best score; None where no score has a finite loss.

    >>> best_of([Held(0.2, 0.8), Held(0.5, 0.9), Held(0.4, 0.9)]), best_of([Held(0.4, np.nan), Held(0.3, np.nan)])
    (2, 1)
    """
    known = [place for place, score in enumerate(scores) if np.isfinite(score.loss)]
    return min(known, key=lambda place: scores[place].rank) if known else None
