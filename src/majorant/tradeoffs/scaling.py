"""Criteria in units of the loss, so that the same λ suit every criterion and every model.

A sum of absolute values may be in the hundreds where the loss is below 1; then the smallest λ of an even grid already
gives the zero model. With θ₀ the model of the loss alone (λ = 0) and θ_start the untrained one, a criterion S counts
with the scale

    c = (loss(θ_start) − loss(θ₀)) / S(θ₀)

by which training is (1 − λ) loss + λ c S. For criteria that vanish at a model as bad as the untrained one, −c is the
slope of the front's chord in the plane of S and loss. So on a convex front λ = ½ is where the front is parallel to its
chord: the knee.

Scales need no other program: up to a factor, (1 − λ) loss + λ Σ_j w_j c_j S_j is the unscaled sum of another λ and
other w.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from majorant.tradeoffs.judge import Point, Setting

SCALES = ("loss", "none")


def scaled_to_loss(start: Point, trained: Point) -> tuple[float, ...]:
    """The scales c of the criteria; 1 where they cannot be told: loss that did not fall, a criterion that is met."""
    fell = start.values[0] - trained.values[0]
    scales = (fell / value if value else np.nan for value in np.abs(trained.values[1:]))
    return tuple(float(c) if np.isfinite(c) and c > 0 else 1.0 for c in scales)


def as_is(setting: Setting, scales: Sequence[float]) -> Setting:
    """The λ and the weights of unscaled criteria that train the same model: those of the sum, divided by its total.

    >>> as_is(Setting(0.5, (0.5, 0.5)), (0.25, 0.75))
    Setting(weight=0.3333333333333333, criteria_weights=(0.25, 0.75), pulls=None)
    """
    parts = np.asarray(setting.criteria_weights) * np.asarray(scales)
    total = float(parts.sum())
    if setting.weight == 0 or total <= 0:
        return setting
    weight = setting.weight * total / (1 - setting.weight + setting.weight * total)
    return setting._replace(weight=float(weight), criteria_weights=tuple((parts / total).tolist()))
