"""Model choice on validation samples: which line of a history is the best, and when to stop waiting for a better one.

Larger accuracy is better (smaller RMSE, or objective) and, among equals, the smaller loss; both are means over the
validation samples of the clients that train. Test samples play no part. A line with numbers that are not finite is the
worst. All is read off the history, which a checkpoint holds: a resumed run stops where it would have stopped.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np

from majorant.core import Tree, beside
from majorant.data.federated import FederatedData
from majorant.metrics.scores import METRICS

Lines = Sequence[Mapping[str, Any]]


def check_validation(data: FederatedData, what: str) -> None:
    """Complains where there is nothing to choose by."""
    if not data.validation.sizes[~data.unseen].sum():
        raise ValueError(
            f"{what} chooses by validation samples, and {data.name or 'the data'} has none for clients that train: "
            "give them a share of the samples (split in Python, --split for tables)"
        )


def merit(line: Mapping[str, Any], metric: str) -> tuple[float, float]:
    """How good a line of a history is on validation samples; the smaller the better.

    >>> merit({"validation_accuracy": {"mean": 0.5}, "validation_loss": 0.7}, "accuracy")
    (-0.5, 0.7)
    """
    score, loss = line[f"validation_{metric}"]["mean"], line.get("validation_loss", 0.0)
    found = (-score if METRICS[metric] else score, loss)
    return found if all(map(math.isfinite, found)) else (math.inf, math.inf)


def best_line(lines: Lines, metric: str) -> int:
    """The place of the best line, the first of several."""
    return min(range(len(lines)), key=lambda place: merit(lines[place], metric))


def out_of_patience(histories: Sequence[Lines], metric: str, patience: int | None) -> bool:
    """Whether each run has been evaluated so many times since its best evaluation."""
    if patience is None or not histories[0]:
        return False
    return all(len(lines) - 1 - best_line(lines, metric) >= patience for lines in histories)


def kept(before: Tree, now: Tree, improved: Sequence[bool]) -> Tree:
    """The states of now in the runs that have improved, in the others those of before; the first axis is of runs."""
    mask = np.asarray(improved)
    choose = lambda a, b: np.where(beside(mask, np.asarray(a)), b, a)
    return jax.tree.map(choose, before, now)
