"""Rates of convergence: slopes in logarithmic scale, and what the FedEM paper's theorems state.

Theorems 3.2 and 3.3 bound means over K rounds that are run with steps a₀/√K: a sweep over K with a run for each shows
the rate. Within a single run with a given step, the running mean is what one can look at.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np


class Bound(NamedTuple):
    """A quantity that is logged, in words, and the exponent of K in the theorem's bound on its mean over K rounds."""

    name: str
    words: str
    exponent: float


BOUNDS = (
    Bound("gradient_squared", "Squared norm of the gradient", -1 / 2),
    Bound("v_gain", "Gain from the personal step", -3 / 4),
    Bound("v_distance", "Movement of the personal part", -1.0),
    Bound("consensus_distance", "Squared distance to consensus", -1 / 2),
)


def fitted_slope(x: np.ndarray, y: np.ndarray) -> float:
    """The exponent a of the best fit y ≈ b · x^a, by least squares in logarithms; NaN with fewer than two points.

    >>> x = np.array([1.0, 10.0, 100.0])
    >>> round(fitted_slope(x, 3 * x**-0.5), 6)
    -0.5
    """
    x, y = np.asarray(x, float), np.asarray(y, float)
    fine = (x > 0) & (y > 0) & np.isfinite(x) & np.isfinite(y)
    if fine.sum() < 2 or np.ptp(np.log(x[fine])) == 0:
        return float("nan")
    return float(np.polyfit(np.log(x[fine]), np.log(y[fine]), 1)[0])


def running_mean(values: np.ndarray) -> np.ndarray:
    """The mean of the first k values, for every k.

    >>> running_mean(np.array([4.0, 2.0, 0.0]))
    array([4., 3., 2.])
    """
    values = np.asarray(values, float)
    return np.cumsum(values) / np.arange(1, len(values) + 1)
