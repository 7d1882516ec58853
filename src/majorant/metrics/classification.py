"""Scores of predicted class probabilities. Arguments are codes ``y`` of classes, (n,), and probabilities, (n, classes).

A score that the labels do not determine (an AUC where all are of one class) is NaN.
"""

from __future__ import annotations

import numpy as np

BINS = 10  # of the calibration error
LEAST = 1e-12  # a probability of 0 counts as this in the log loss


def accuracy(y: np.ndarray, p: np.ndarray) -> float:
    """The share of samples whose most probable class is the right one."""
    return mean(p.argmax(axis=1) == y)


def balanced_accuracy(y: np.ndarray, p: np.ndarray) -> float:
    """The mean over the classes that occur of the share of their samples that is found."""
    right = p.argmax(axis=1) == y
    return mean([right[y == label].mean() for label in np.unique(y)])


def macro_f1(y: np.ndarray, p: np.ndarray) -> float:
    """The mean of F1 = 2 TP / (2 TP + FP + FN) over the classes that occur or are predicted."""
    predicted = p.argmax(axis=1)
    found = []
    for label in np.union1d(y, predicted):
        both = ((y == label) & (predicted == label)).sum()
        found.append(2 * both / ((y == label).sum() + (predicted == label).sum()))
    return mean(found)


def auc(y: np.ndarray, p: np.ndarray) -> float:
    """The area under the ROC curve; of several classes the mean of each against the rest, where it is defined."""
    labels = [1] if p.shape[1] == 2 else range(p.shape[1])
    found = [binary_auc(y == label, p[:, label]) for label in labels]
    return mean([value for value in found if not np.isnan(value)])


def binary_auc(positive: np.ndarray, score: np.ndarray) -> float:
    """How often a positive sample has a larger score than a negative one; ties count half.

    >>> binary_auc(np.array([True, False, True]), np.array([0.9, 0.3, 0.2]))
    0.5
    """
    ones, zeros = int(positive.sum()), int((~positive).sum())
    if not ones or not zeros:
        return float("nan")
    return float((ranks(score)[positive].sum() - ones * (ones + 1) / 2) / (ones * zeros))


def ranks(values: np.ndarray) -> np.ndarray:
    """The place of each number among all, from 1 on; equal ones share the mean of theirs, and NaN makes all NaN.

    It is SciPy's `rankdata`, whose package takes most of a second to load.

    >>> ranks(np.array([3.0, 1.0, 3.0]))
    array([2.5, 1. , 2.5])
    """
    if np.isnan(values).any():
        return np.full(len(values), np.nan)
    _, which, counts = np.unique(values, return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - (counts - 1) / 2)[which]


def log_loss(y: np.ndarray, p: np.ndarray) -> float:
    """The mean of −log p(y)."""
    return mean(-np.log(np.maximum(p[np.arange(len(y)), y], LEAST)))


def calibration_error(y: np.ndarray, p: np.ndarray) -> float:
    """The expected calibration error: how far the probability of the predicted class is from how often it is right.

    Samples fall into ten equal bins by that probability; the bins' gaps count by their samples.
    """
    confidence, right = p.max(axis=1), p.argmax(axis=1) == y
    which = np.minimum((confidence * BINS).astype(np.int64), BINS - 1)
    gaps = np.bincount(which, confidence - right, minlength=BINS)
    return float(np.abs(gaps).sum() / len(y)) if len(y) else float("nan")


def mean(values: object) -> float:
    """The mean; NaN of nothing."""
    array = np.asarray(values, np.float64)
    return float(array.mean()) if array.size else float("nan")


CLASSIFICATION = {
    "accuracy": accuracy,
    "balanced_accuracy": balanced_accuracy,
    "macro_f1": macro_f1,
    "auc": auc,
    "log_loss": log_loss,
    "calibration_error": calibration_error,
}
