"""Checks of samples that are counts or have missing entries."""

from __future__ import annotations

from typing import Any

import numpy as np


def check_counts(x: Any) -> None:
    """Raises a ValueError where samples are no counts: negative, broken or not finite.

    >>> check_counts([[1, 2], [0, -1]])
    Traceback (most recent call last):
    ValueError: counts must be whole numbers at least 0; 1 of 4 are not, such as -1
    """
    counts = np.asarray(x)
    wrong = ~((counts >= 0) & (counts == np.floor(counts)) & (counts < np.inf))
    if wrong.any():
        what = f"{wrong.sum()} of {counts.size} are not, such as {counts[wrong][0]:g}"
        raise ValueError(f"counts must be whole numbers at least 0; {what}")


def check_entries(x: Any, features: int) -> None:
    """Raises a ValueError unless samples are (n, 2, features): finite values, and 1 or 0 where observed or not.

    >>> check_entries(np.full((3, 2, 1), 0.5), 1)
    Traceback (most recent call last):
    ValueError: x[:, 1] says which entries were observed: it must be 1 or 0, but 3 of 3 are not, such as 0.5
    """
    array = np.asarray(x)
    if array.shape[1:] != (2, features):
        raise ValueError(
            f"samples have shape {array.shape[1:]}, the surrogate needs (2, {features}): values and which were"
            " observed; majorant.data.with_missing makes them from a matrix"
        )
    seen = array[:, 1]
    wrong = (seen != 0) & (seen != 1)
    if wrong.any():
        what = f"{wrong.sum()} of {seen.size} are not, such as {seen[wrong][0]:g}"
        raise ValueError(f"x[:, 1] says which entries were observed: it must be 1 or 0, but {what}")
    if not np.isfinite(array[:, 0]).all():
        raise ValueError(
            "values in x[:, 0] are NaN or infinite; those of missing entries must be finite too, such as 0"
        )
