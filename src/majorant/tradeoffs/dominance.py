"""Points whose coordinates should all be small: which are dominated, where the knee is, and how good a set of them is.

A point dominates another where no coordinate is larger and one is smaller. The *hypervolume* of a set is the volume of
what it dominates within a reference point that is worse in every coordinate: for two coordinates it is a sum of
rectangles, for more it comes from the package moocore. The *spread* is 0 where neighbours are equally far apart.

References: Zitzler, Thiele, *Multiobjective evolutionary algorithms: a comparative case study*, IEEE TEC 1999; Deb,
Pratap, Agarwal, Meyarivan, *NSGA-II*, IEEE TEC 2002 (Δ, here without the distances to extremes that are not known).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from majorant._extras import require


def as_points(points: Any) -> np.ndarray:
    """Points as ``(n, K)`` floating point numbers."""
    try:
        found = np.asarray(points, float)
    except (TypeError, ValueError):
        raise ValueError("points must be an array (points, criteria) of numbers, as many for each point") from None
    if found.ndim != 2 or 0 in found.shape:
        raise ValueError(f"points must be an array (points, criteria) with at least one of each, got {found.shape}")
    return found


def nondominated(points: Any) -> np.ndarray:
    """True for the points that no other point dominates; a point with a coordinate that is not finite never is.

    >>> nondominated([[1.0, 3.0], [2.0, 2.0], [2.0, 3.0], [np.nan, 0.0]])
    array([ True,  True, False, False])
    """
    found = as_points(points)
    finite = np.isfinite(found).all(axis=1)
    safe = np.where(finite[:, None], found, np.inf)
    no_larger = (safe[:, None] <= safe[None]).all(axis=2)  # [i, j]: i is nowhere larger than j
    smaller = (safe[:, None] < safe[None]).any(axis=2)
    return finite & ~(no_larger & smaller).any(axis=0)


def front_of(points: Any) -> np.ndarray:
    """True for the points that no other one dominates, and of those that are the same for the first alone.

    >>> front_of([[1.0, 3.0], [2.0, 2.0], [2.0, 2.0], [2.0, 3.0]])
    array([ True,  True, False, False])
    """
    found = as_points(points)
    first = np.zeros(len(found), bool)
    first[np.unique(found, axis=0, return_index=True)[1]] = True
    return nondominated(found) & first


def normalized(points: Any) -> np.ndarray:
    """Every coordinate scaled to [0, 1] over the points; one in which they agree is 0."""
    found = as_points(points)
    low, high = found.min(axis=0), found.max(axis=0)
    return (found - low) / np.where(high > low, high - low, 1)


def knee(points: Any) -> int:
    """The point nearest to the ideal one, which has the least value of every coordinate: the best compromise.

    Coordinates are scaled to [0, 1] and distances Euclidean. (The depth below the plane through the extremes, another
    definition, is a sum of coordinates: where two criteria agree it counts them twice, and ends at the extreme that
    both like.)

    >>> knee([[0.0, 1.0], [0.1, 0.2], [0.6, 0.1], [1.0, 0.0]])
    1
    >>> knee([[0.0, 1.0, 1.0], [0.35, 0.35, 0.4], [1.0, 0.0, 0.0]])
    1
    """
    found = as_points(points)
    allowed = nondominated(found)
    if not allowed.any():
        raise ValueError("no point has finite coordinates")
    candidates = np.flatnonzero(allowed)
    return int(candidates[np.linalg.norm(normalized(found[candidates]), axis=1).argmin()])


def hypervolume(points: Any, reference: Any) -> float:
    """The volume that points dominate within a reference point, which at least one of them must dominate.

    >>> hypervolume([[1.0, 2.0], [2.0, 1.0]], [3.0, 3.0])
    3.0
    """
    found = as_points(points)
    try:
        worst = np.asarray(reference, float)
    except (TypeError, ValueError):
        worst = np.zeros(0)
    if worst.shape != found.shape[1:] or not np.isfinite(worst).all():
        raise ValueError(f"the reference point needs {found.shape[1]} finite coordinates, got {reference}")
    inside = found[nondominated(found)]
    if not len(inside):
        raise ValueError("no point has finite coordinates")
    inside = inside[(inside < worst).all(axis=1)]
    if not len(inside):
        raise ValueError(
            f"no point is smaller than the reference point {worst.tolist()} in every coordinate: nothing is dominated "
            "within it; give one that is worse than the points"
        )
    if found.shape[1] == 2:
        return hypervolume_2d(inside, worst)
    return float(
        require("moocore", "pareto", "the hypervolume of more than two criteria").hypervolume(inside, ref=worst)
    )


def hypervolume_2d(points: np.ndarray, worst: np.ndarray) -> float:
    """The area of the union of the rectangles between points and a reference point, no point dominating another."""
    x, y = np.unique(points, axis=0).T  # sorted by x; y then falls
    above = np.append(worst[1], y[:-1])
    return float(((worst[0] - x) * (above - y)).sum())


def spread(points: Any) -> float:
    """The mean of |d − d̄| / d̄ over the distances between neighbours, in normalised coordinates.

    Neighbours are consecutive for two coordinates; for more, d is the distance to the nearest other point. Points that
    are the same count once.

    >>> spread([[0.0, 1.0], [0.5, 0.5], [1.0, 0.0]])
    0.0
    """
    found = np.unique(as_points(points)[nondominated(points)], axis=0)
    if len(found) < 3:
        raise ValueError(f"the spread needs at least three different points that are not dominated, got {len(found)}")
    found = normalized(found)
    if found.shape[1] == 2:
        ordered = found[np.lexsort((-found[:, 1], found[:, 0]))]
        distances = np.linalg.norm(np.diff(ordered, axis=0), axis=1)
    else:
        apart = np.linalg.norm(found[:, None] - found[None], axis=2)
        distances = np.where(np.eye(len(found), dtype=bool), np.inf, apart).min(axis=1)
    mean = distances.mean()
    return float(np.abs(distances - mean).mean() / mean) if mean > 0 else 0.0
