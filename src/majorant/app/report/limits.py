"""Axes that one outlier cannot flatten.

Bad scores have no bound (an RMSE of a diverged model), good ones do: an axis is cut on the side of the bad ones, and
only where the rest would otherwise be squeezed. Shares need no cut: they are between 0 and 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from majorant.app.report.words import Metric

SQUEEZED = 3.0  # times the range of the others: where the whole range is larger, it is cut
LEAST = 0.02  # of the best score: smaller differences are not drawn large
FAR = 8.0  # times the typical distance from the best: a curve further off does not decide


class Limits(NamedTuple):
    """The range to draw, and which of the things that were asked about go beyond it."""

    low: float
    high: float
    beyond: list[int]


def curve_limits(curves: Sequence[np.ndarray], scale: Metric, *, keep: Sequence[float] = ()) -> Limits:
    """The range for curves of scores over rounds; ``keep`` are levels that must be in it, if they are near.

    A curve that stays far behind the others decides nothing, nor do the first rounds of the others.

    >>> from majorant.app.report.words import metric
    >>> calm, wild = np.array([2.0, 1.5, 1.2, 1.1]), np.array([1e3, 1e6, 1e9, np.inf])
    >>> curve_limits([calm, wild], metric("rmse"))
    Limits(low=1.1, high=2.0, beyond=[1])
    """
    sign = -1.0 if scale.higher_is_better else 1.0
    known = [sign * np.asarray(c, float)[np.isfinite(c)] for c in curves]  # small is good
    if not any(map(len, known)):
        return Limits(0.0, 1.0, [])
    if scale.percent:
        every = np.concatenate([*known, sign * np.array([v for v in keep if np.isfinite(v)])])
        low, high = sorted((float(sign * every.min()), float(sign * every.max())))
        return Limits(low, high, [])
    best = min(c.min() for c in known if len(c))
    late = np.array([np.median(c[len(c) // 2 :]) if len(c) else np.inf for c in known])
    typical = max(LEAST * abs(best), np.quantile(late[np.isfinite(late)] - best, 0.5, method="lower"))
    core = [c for c, end in zip(known, late, strict=True) if len(c) and end - best <= FAR * typical] or [
        known[int(late.argmin())]
    ]
    worst = max(float(c.max()) for c in core)
    settled = max(best + LEAST * abs(best), *(float(np.quantile(c, 0.8)) for c in core))
    if worst - best > SQUEEZED * (settled - best) > 0:
        worst = settled
    near = [sign * v for v in keep if np.isfinite(v) and sign * v - best <= SQUEEZED * max(worst - best, 1e-12)]
    worst, best = max([worst, *near]), min([best, *near])
    everything = max(float(c.max()) for c in known if len(c))
    if everything - best <= SQUEEZED * (worst - best):
        worst = everything
    unfinished = lambda c: not np.isfinite(np.asarray(c, float)).all()
    cut = [i for i, c in enumerate(known) if unfinished(curves[i]) or (len(c) and float(c.max()) > worst)]
    low, high = sorted((float(sign * best), float(sign * worst)))
    return Limits(low, high, cut)


def value_limits(values: np.ndarray, keep: Sequence[float] = ()) -> Limits:
    """The range for single values: all of them, unless a few lie very far from the middle half of the others.

    >>> value_limits(np.array([1.0, 2.0, 3.0, 4.0, 1e9]))
    Limits(low=1.0, high=10.0, beyond=[4])
    """
    values = np.asarray(values, float)
    known = values[np.isfinite(values)]
    if not len(known):
        return Limits(0.0, 1.0, np.flatnonzero(~np.isfinite(values)).tolist())
    first, third = np.quantile(known, [0.25, 0.75])
    room = SQUEEZED * (third - first) or SQUEEZED * np.abs(known - np.median(known)).mean() or 0.0
    low, high = float(max(known.min(), first - room)), float(min(known.max(), third + room))
    near = [v for v in keep if np.isfinite(v)]
    low, high = min([low, *near]), max([high, *near])
    return Limits(low, high, np.flatnonzero(~((values >= low) & (values <= high))).tolist())
