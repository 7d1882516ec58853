"""The score that a comparison is decided by: its value for a client and for all, and what each sample adds to it.

A score of many samples is, to first order, a sum of contributions of single samples (its influence function). Gains of
one method over another are differences of contributions on the same samples, and their noise follows from these. For
the accuracy the sum is exact; for an AUC the contributions are DeLong's placements; for the RMSE they are those of its
square, divided by twice the RMSE.

The AUC of all clients is that of pairs of samples of the same client: the mean of the clients' AUCs, weighted by their
numbers of pairs. All other scores are those of all samples together.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from majorant.metrics.classification import CLASSIFICATION, binary_auc
from majorant.metrics.regression import REGRESSION

LOWER_IS_BETTER = ("log_loss", "calibration_error", "rmse", "mae")
BOUNDED = ("accuracy", "balanced_accuracy", "auc")  # in [0, 1]
SKEWED = 0.8  # a class with a larger share of the samples makes the accuracy say little


class Headline(NamedTuple):
    """A score to decide by, and why it is this one."""

    name: str
    why: str

    @property
    def higher_is_better(self) -> bool:
        """Whether larger values are better."""
        return self.name not in LOWER_IS_BETTER


def choose_headline(y: np.ndarray, classes: int) -> Headline:
    """The score that suits a task, from the training labels of all clients.

    >>> choose_headline(np.array([0] * 95 + [1] * 5), 2).name, choose_headline(np.array([0, 1]), 2).name
    ('auc', 'accuracy')
    """
    if not classes:
        return Headline("rmse", "the label is a number")
    share = np.bincount(y, minlength=classes).max() / max(1, len(y))
    if share <= SKEWED:
        return Headline("accuracy", "no class has more than four fifths of the rows")
    why = f"one class has {100 * share:.0f} % of the training rows, so accuracy says little"
    return Headline("auc" if classes == 2 else "balanced_accuracy", why)


class Parts(NamedTuple):
    """A score of all clients, of each, and what samples add: sums of contributions follow the scores' deviations."""

    value: float
    clients: np.ndarray  # (clients,) NaN where it is not defined
    whole: np.ndarray  # (n,) contributions to ``value``
    own: np.ndarray  # (n,) contributions to the score of the sample's client

    def over(self, other: Parts, sign: int) -> Parts:
        """The gain over another method on the same samples; ``sign`` is −1 where smaller scores are better."""
        return Parts(
            sign * (self.value - other.value),
            sign * (self.clients - other.clients),
            sign * (self.whole - other.whole),
            sign * (self.own - other.own),
        )


def parts_of(name: str, y: np.ndarray, predicted: np.ndarray, owner: np.ndarray, clients: int) -> Parts:
    """A score in parts; ``owner`` is the client of every sample."""
    whole_of, own_of = PARTS[name]
    value, whole = whole_of(y, predicted, owner)
    each, own = np.full(clients, np.nan), np.zeros(len(y))
    order = np.argsort(owner, kind="stable")
    starts = np.searchsorted(owner[order], np.arange(clients + 1))
    for client in np.flatnonzero(np.diff(starts)):
        rows = order[starts[client] : starts[client + 1]]
        each[client], own[rows] = own_of(y[rows], predicted[rows], owner[rows])
    return Parts(value, each, whole, own)


Split = tuple[float, np.ndarray]  # a score, and the contributions


def of_accuracy(y: np.ndarray, p: np.ndarray, owner: np.ndarray) -> Split:
    """Whether a sample is right, divided by their number."""
    right = (p.argmax(axis=1) == y).astype(np.float64)
    return float(right.mean()), right / len(y)


def of_balanced_accuracy(y: np.ndarray, p: np.ndarray, owner: np.ndarray) -> Split:
    """The deviation from the recall of the sample's class, divided by the class's samples and by the classes."""
    right = (p.argmax(axis=1) == y).astype(np.float64)
    counts = np.bincount(y)
    recall = np.bincount(y, right) / np.maximum(counts, 1)
    there = int((counts > 0).sum())
    return float(recall[counts > 0].mean()), (right - recall[y]) / (there * counts[y])


def of_one_auc(y: np.ndarray, p: np.ndarray, owner: np.ndarray) -> Split:
    """DeLong's placements: the share of the other class that a sample is rightly above or below, less the AUC."""
    value, placed, share = placements(y, p)
    return value, (placed - value) * share if share.any() else share


def placements(y: np.ndarray, p: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
    """The AUC, the share of the other class that each sample is rightly above or below, and 1 / samples of its class;
    zeros where there is one class only."""
    positive, score = y == 1, p[:, 1]
    value = binary_auc(positive, score)
    placed, share = np.zeros((2, len(y)))
    if np.isnan(value):
        return value, placed, share
    for mine, sign in ((positive, 1), (~positive, -1)):
        others = np.sort(sign * score[~mine])
        below, upto = (np.searchsorted(others, sign * score[mine], side=side) for side in ("left", "right"))
        placed[mine], share[mine] = (below + upto) / (2 * len(others)), 1 / mine.sum()
    return value, placed, share


def of_all_aucs(y: np.ndarray, p: np.ndarray, owner: np.ndarray) -> Split:
    """The AUCs of clients, weighted by their pairs of a positive and a negative sample.

    Placements are less the AUC of all, not that of the client: a client with one positive sample would have no noise.
    """
    total, weights, placed, share = 0.0, 0.0, *np.zeros((2, len(y)))
    for rows in np.split(np.argsort(owner, kind="stable"), np.flatnonzero(np.diff(np.sort(owner))) + 1):
        value, placed[rows], mine = placements(y[rows], p[rows])
        if not np.isnan(value):
            ones = int((y[rows] == 1).sum())
            pairs = ones * (len(rows) - ones)
            total, weights, share[rows] = total + pairs * value, weights + pairs, pairs * mine
    return (total / weights, (placed - total / weights) * share / weights) if weights else (float("nan"), share)


def of_rmse(y: np.ndarray, predicted: np.ndarray, owner: np.ndarray) -> Split:
    """Squared errors over 2 n RMSE: how the root moves with its square."""
    squared = (predicted - y) ** 2
    value = float(np.sqrt(squared.mean()))
    return value, squared / (2 * max(value, 1e-300) * len(y))


Step = Callable[[np.ndarray, np.ndarray, np.ndarray], Split]
PARTS: dict[str, tuple[Step, Step]] = {  # of all clients, of one
    "accuracy": (of_accuracy, of_accuracy),
    "balanced_accuracy": (of_balanced_accuracy, of_balanced_accuracy),
    "auc": (of_all_aucs, of_one_auc),
    "rmse": (of_rmse, of_rmse),
}


def all_scores(y: np.ndarray, predicted: np.ndarray, owner: np.ndarray, classes: int) -> dict[str, float]:
    """Every score of the task, of all clients together; the AUC of two classes within clients."""
    if not classes:
        return {name: score(y, predicted) for name, score in REGRESSION.items()}
    found = {name: score(y, predicted) for name, score in CLASSIFICATION.items() if name != "auc"}
    within = of_all_aucs(y, predicted, owner)[0] if classes == 2 else auc_within_clients(y, predicted, owner)
    return found | {"auc": within}


def auc_within_clients(y: np.ndarray, p: np.ndarray, owner: np.ndarray) -> float:
    """Of several classes: each against the rest within clients, and the mean over the classes where it is defined."""
    each = []
    for label in range(p.shape[1]):
        binary = np.stack([1 - p[:, label], p[:, label]], axis=1)
        each.append(of_all_aucs((y == label).astype(np.int64), binary, owner)[0])
    defined = [value for value in each if not np.isnan(value)]
    return float(np.mean(defined)) if defined else float("nan")
