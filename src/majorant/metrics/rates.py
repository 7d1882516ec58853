"""Rates of convergence: slopes in logarithmic scale, and running means."""

from __future__ import annotations

import numpy as np


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
