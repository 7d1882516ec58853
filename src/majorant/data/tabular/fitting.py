"""The record of an encoding from the training rows of clients that train, by statistics that a federation can compute.

Each client sends sums over its own rows, and the sums are added: first counts and sums, which give the means; then sums
of squared deviations from these, which give the scales; and how often each category occurs.
"""

from __future__ import annotations

import numpy as np

from majorant.data.tabular.dates import date_numbers, parts_of
from majorant.data.tabular.encoding import CategoryColumn, ColumnRecord, DateColumn, NumberColumn
from majorant.data.tabular.kinds import Column

SQUARES = 1e100  # numbers beyond it, or below its inverse, have no squares to be summed


def mean_and_scale(values: np.ndarray, owner: np.ndarray) -> tuple[float, float]:
    """Mean and standard deviation out of per-client sums, missing values (NaN) left out.

    The scale is 0 where all clients hold one and the same value. Numbers of any size are fine: where their squares
    would not be, the sums are those of the numbers in units of about the largest one.

    >>> mean_and_scale(np.array([1.0, 3.0, np.nan, 5.0, 7.0]), np.array([0, 0, 0, 1, 1]))
    (4.0, 2.23606797749979)
    >>> mean_and_scale(np.array([1e300, 3e300]), np.array([0, 1]))
    (2e+300, 1e+300)
    """
    known = ~np.isnan(values)
    values, owner = values[known], owner[known]
    if len(values) == 0:
        return 0.0, 0.0
    if values.min() == values.max():
        return float(values[0]), 0.0
    largest = float(np.abs(values).max())
    unit = 1.0 if 1 / SQUARES < largest < SQUARES else 2.0 ** int(np.log2(largest))  # no digit changes
    count = len(values)  # the sum of the clients' counts
    mean = np.bincount(owner, values / unit).sum() / count
    variance = np.bincount(owner, (values / unit - mean) ** 2).sum() / count
    return float(mean * unit), float(np.sqrt(variance) * unit)


def fit_column(column: Column, owner: np.ndarray, max_categories: int) -> ColumnRecord:
    """The record of a column from training rows; ``owner`` is the client of each."""
    indicator = bool(column.absent.any())
    if column.kind == "number":
        mean, scale = mean_and_scale(column.values, owner)
        return NumberColumn(name=column.name, mean=mean, scale=scale, indicator=indicator, marks=column.marks)
    if column.kind == "date":
        parts = parts_of(column.values)
        found = [mean_and_scale(v, owner) for v in date_numbers(column.values, parts).values()]
        return DateColumn(
            name=column.name,
            format=column.format,
            parts=parts,
            means=tuple(mean for mean, _ in found),
            scales=tuple(scale for _, scale in found),
            indicator=indicator,
            marks=column.marks,
        )
    kept, other = frequent(column, max_categories)
    kind = "boolean" if column.kind == "boolean" else "category"
    return CategoryColumn(kind=kind, name=column.name, categories=kept, other=other, indicator=indicator)


def frequent(column: Column, most: int) -> tuple[tuple[str, ...], bool]:
    """The categories in a column, or the most frequent of too many; and whether there were too many.

    >>> frequent(Column("c", "category", np.array([0, 1, 1, 2, 2, 3]), ("a", "b", "c", "d")), 2)
    (('b', 'c'), True)
    """
    counts = np.bincount(column.values[~column.absent].astype(np.int64), minlength=len(column.levels))
    there = np.flatnonzero(counts)
    if len(there) > most:
        there = np.sort(there[np.argsort(-counts[there], kind="stable")[:most]])
        return tuple(column.levels[i] for i in there), True
    return tuple(column.levels[i] for i in there), False
