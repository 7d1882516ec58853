"""Scores of predicted numbers."""

from __future__ import annotations

import numpy as np


def rmse(y: np.ndarray, predicted: np.ndarray) -> float:
    """The root of the mean squared error."""
    return float(np.sqrt(np.mean((predicted - y) ** 2))) if len(y) else float("nan")


def mae(y: np.ndarray, predicted: np.ndarray) -> float:
    """The mean absolute error."""
    return float(np.mean(np.abs(predicted - y))) if len(y) else float("nan")


def r2(y: np.ndarray, predicted: np.ndarray) -> float:
    """The share of the variance of y that is explained; NaN where y has none."""
    total = np.sum((y - np.mean(y)) ** 2) if len(y) else 0.0
    return float(1 - np.sum((predicted - y) ** 2) / total) if total > 0 else float("nan")


REGRESSION = {"rmse": rmse, "mae": mae, "r2": r2}
