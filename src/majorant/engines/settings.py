"""The runs of one call: a seed and hyperparameter values for each."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np

from majorant.core import Algorithm
from majorant.math.checks import check_range


def run_settings(
    algorithm: Algorithm,
    seed: int,
    seeds: int | Sequence[int] | None,
    hyper: Mapping[str, float | Sequence[float]] | None,
    grid: Mapping[str, Sequence[float]] | None,
) -> list[dict[str, Any]]:
    """One dictionary per run: its seed and the hyperparameters that differ from the algorithm's own."""
    if isinstance(seeds, int) and seeds < 1:
        raise ValueError(f"seeds must be at least 1, got {seeds}")
    listed = [seed] if seeds is None else list(range(seed, seed + seeds)) if isinstance(seeds, int) else list(seeds)
    if not listed:
        raise ValueError("seeds is empty: give at least one")
    for each in listed:
        if not 0 <= each < 1 << 32:
            raise ValueError(f"a seed must be a whole number from 0 to 2^32 − 1, got {each}")
    known = jax.eval_shape(algorithm.server.init, jax.random.key(0)).hyper
    for name in [*(hyper or {}), *(grid or {})]:
        if name not in known:
            raise ValueError(f"{algorithm.name} has no hyperparameter {name!r}; it has {', '.join(sorted(known))}")
        values = (grid or {}).get(name) if name in (grid or {}) else np.atleast_1d(dict(hyper or {})[name]).tolist()
        if not values:
            raise ValueError(f"the grid has no values for {name!r}")
        for value in values:
            check_range(name, value, least=0)
    own = {name: np.asarray(value).tolist() for name, value in (hyper or {}).items() if np.ndim(value) > 0}
    for name, values in own.items():
        if grid or len(values) != len(listed):
            why = "there is a grid" if grid else f"there are {len(listed)} runs"
            raise ValueError(f"hyper has {len(values)} values of {name!r}, but {why}: give one value, or one per run")
    combinations = itertools.product(*(grid or {}).values())
    points = [dict(hyper or {}) | dict(zip(grid or {}, values, strict=True)) for values in combinations]
    settings: list[dict[str, Any]] = [
        {"seed": s, "hyper": point | {name: values[i] for name, values in own.items()}}
        for point in points
        for i, s in enumerate(listed)
    ]
    for setting in settings:
        algorithm.traits.check_hyper(setting["hyper"])
    return settings


def distinct_seeds(seeds: Sequence[int]) -> int:
    """After how many runs the seeds repeat.

    >>> distinct_seeds([3, 4, 3, 4]), distinct_seeds([3, 3, 3]), distinct_seeds([3, 4, 3])
    (2, 1, 3)
    """
    runs = len(seeds)
    period = lambda n: runs % n == 0 and all(seed == seeds[i % n] for i, seed in enumerate(seeds))
    return next(n for n in range(1, runs + 1) if period(n))
