"""Matrices with missing entries, as samples that surrogates take: the values, and which of them were observed."""

from __future__ import annotations

from typing import Any

import numpy as np


def with_missing(x: Any, missing: float = np.nan) -> np.ndarray:
    """A matrix (n, p) with a marker where an entry is missing as samples (n, 2, p): values (0 there) and 1 or 0.

    Rows without any entry are fine: they say nothing. NaN and infinite numbers other than the marker are refused.

    >>> with_missing([[5, 0, 3]], missing=0).tolist()
    [[[5.0, 0.0, 3.0], [1.0, 0.0, 1.0]]]
    """
    matrix = np.asarray(x)
    if matrix.ndim != 2:
        raise ValueError(f"with_missing needs a matrix of rows and items, got an array of shape {matrix.shape}")
    try:
        matrix = matrix.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"with_missing needs numbers, got entries that are none: {error}") from error
    absent = np.isnan(matrix) if np.isnan(missing) else matrix == missing
    wrong = ~np.isfinite(matrix) & ~absent
    if wrong.any():
        row, column = (int(i[0]) for i in np.nonzero(wrong))
        raise ValueError(
            f"{int(wrong.sum())} entries are NaN or infinite and not the marker of missing ones, {missing}; the first"
            f" is {matrix[row, column]} at row {row}, column {column}"
        )
    return np.stack([np.where(absent, 0, matrix), ~absent], axis=1).astype(np.float32)
