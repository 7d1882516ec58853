"""The runs of one call: a seed and hyperparameter values for each; and the values that set-up finds."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from majorant.core import Algorithm, ClientData, Key
from majorant.core.compilation import jit
from majorant.data.checks import check_seed
from majorant.data.federated import FederatedData
from majorant.engines.memory import refuse_too_many_runs
from majorant.engines.population import stack
from majorant.engines.set_up import finish_start, start_clients, start_server
from majorant.exchange.federation import federation
from majorant.exchange.participation import Participation
from majorant.math.checks import check_range, check_whole


def run_settings(
    algorithm: Algorithm,
    seed: int,
    seeds: int | Sequence[int] | None,
    hyper: Mapping[str, float | Sequence[float]] | None,
    grid: Mapping[str, Sequence[float]] | None,
) -> list[dict[str, Any]]:
    """One dictionary per run: its seed and the hyperparameters that differ from the algorithm's own."""
    if not isinstance(seeds, Sequence | np.ndarray) or isinstance(seeds, str):
        check_whole("seeds", seeds, optional=True)
        seeds = None if seeds is None else int(seeds)
    counts = [seeds if isinstance(seeds, int) else 1, *(len(values) for values in (grid or {}).values())]
    refuse_too_many_runs(algorithm, math.prod(counts))
    check_seed(seed)
    listed = [seed] if seeds is None else list(range(seed, seed + seeds)) if isinstance(seeds, int) else list(seeds)
    if not listed:
        raise ValueError("seeds is empty: give at least one")
    for each in listed:
        if check_seed(each, "a seed") >= 1 << 32:
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


def hyper_after_setup(
    algorithm: Algorithm, data: FederatedData, participation: Participation | None = None
) -> dict[str, float]:
    """An algorithm's hyperparameters once the clients have answered its set-up question: theory's are known then.

    >>> import majorant as mj
    >>> data = mj.data.synthetic_mixture(clients=5, dimension=3, seed=0)
    >>> algorithm = mj.methods.asvrcd(mj.objectives.mixture(data, lambda_=0.1, l2=0.01))
    >>> float(algorithm.server.init(jax.random.key(0)).hyper["lr"]), hyper_after_setup(algorithm, data)["lr"] > 0
    (nan, True)
    """
    slots = np.flatnonzero(~data.unseen)
    together = federation(algorithm, training=slots, participation=participation)

    def found(key: Key, clients: ClientData) -> dict[str, jax.Array]:
        server = start_server(together, len(slots), key, {}, jnp.asarray(1))
        everyone = jnp.ones(len(slots), bool)
        answers = start_clients(together, server, key, clients, everyone, len(slots))[1]
        return finish_start(together, server, [answers], [jnp.asarray(clients.slot)], data.clients).hyper

    clients = stack(data.train, slots, max(1, int(data.train.sizes[slots].max())))
    return {name: float(value) for name, value in jit(found)(jax.random.key(0), clients).items()}
