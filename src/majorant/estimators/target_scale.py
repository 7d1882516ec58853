"""What FedEM's regression learns about targets beside training: their noise, and how much of a fit is left undone."""

from __future__ import annotations

import numpy as np

LEAST = 0.1  # of the targets' standard deviation: less noise would make rows choose their component at the start
MOST_FEATURES = 2000  # for which normal equations are solved


def with_ones(x: np.ndarray) -> np.ndarray:
    """Rows with a constant feature."""
    return np.column_stack([x.astype(np.float64), np.ones(len(x))])


def residual_scale(x: np.ndarray, y: np.ndarray, groups: np.ndarray) -> float:
    """The standard deviation of the residuals of the groups' own least squares fits; sums over groups are enough.

    A group counts with the degrees of freedom that its fit leaves. Where no group has any, 0.3 times the standard
    deviation of y. It is a tenth of that at the least, and 1 for targets that are all the same.

    >>> x = np.random.default_rng(0).normal(size=(4000, 2))
    >>> y = 7 + x @ [3.0, -1.0] + 0.5 * np.random.default_rng(1).normal(size=4000)
    >>> round(residual_scale(x, y, np.arange(4000) % 4), 1)
    0.5
    """
    whole = float(y.std())
    if not whole > 0:
        return 1.0
    order = np.argsort(groups, kind="stable")
    parts = np.split(order, np.flatnonzero(np.diff(groups[order])) + 1)
    left = squares = 0.0
    for rows in parts:
        if len(rows) > x.shape[1] + 1 and x.shape[1] <= MOST_FEATURES:
            own = with_ones(x[rows])
            solution, _, rank, _ = np.linalg.lstsq(own, y[rows], rcond=None)
            left += len(rows) - rank
            squares += float(np.square(y[rows] - own @ solution).sum())
    found = (squares / left) ** 0.5 if left else 0.3 * whole
    return max(float(found), LEAST * whole)


def possible_gain(x: np.ndarray, residuals: np.ndarray, shares: np.ndarray) -> float:
    """By how much least squares would lower (1/n) Σ_i Σ_m q_im r_im², with rows' shares q in components as they are.

    ``residuals`` are ``(M, n)``, ``shares`` ``(n, M)``.

    >>> x = np.array([[0.0], [1.0], [2.0]])
    >>> round(possible_gain(x, np.array([[2.0, 2.0, 2.0]]), np.ones((3, 1))), 6)
    4.0
    """
    if x.shape[1] > MOST_FEATURES:
        return 0.0
    rows, gain = with_ones(x), 0.0
    for r, q in zip(residuals, shares.T, strict=True):
        root = np.sqrt(q)
        best = np.linalg.lstsq(root[:, None] * rows, root * r, rcond=None)[0]
        gain += float((q * (r**2 - np.square(r - rows @ best))).mean())
    return gain
