"""Replicas: runs that train on data sets of their own, all of one shape, in one program.

An experiment that a paper repeats on independent data sets is one call of `simulate` with a sequence of them: run i
trains on data set i. Their clients must have equal sizes, features, classes and unseen flags, because one program is
compiled for all. The algorithm is one, too; where its numbers depend on the data (step sizes from constants of
smoothness), `with_own_hyper` collects them for ``hyper``, one value per run.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import jax

from majorant.core import Algorithm
from majorant.data.federated import PARTS, FederatedData
from majorant.engines.settings import hyper_after_setup


def data_sets(
    algorithm: Algorithm,
    data: FederatedData | Sequence[FederatedData],
    seeds: int | Sequence[int] | None,
    grid: Any,
    state_folder: Path | None,
) -> list[FederatedData]:
    """One data set for all runs, or one for each, after checking that they can run side by side."""
    if isinstance(data, FederatedData):
        return [data]
    found = list(data) if isinstance(data, Iterable) else []
    if not found or not all(isinstance(one, FederatedData) for one in found):
        kinds = ", ".join(sorted({type(one).__name__ for one in found})) or "nothing"
        raise ValueError(f"data must be FederatedData, or a sequence of them with one for each run, got {kinds}")
    if grid:
        raise ValueError(
            "a grid needs one data set for all runs: give values per run in hyper, and repeat the data sets"
        )
    if state_folder is not None:
        raise ValueError("several data sets stay in memory and are not streamed: leave state_folder out")
    runs = len(found) if seeds is None else seeds if isinstance(seeds, int) else len(seeds)
    if runs != len(found):
        raise ValueError(f"there are {len(found)} data sets but {runs} seeds: a run is one seed on one data set")
    for number, one in enumerate(found[1:], 2):
        difference = how_shapes_differ(found[0], one)
        if difference:
            raise ValueError(
                f"data sets must have the same shape, but data set {number} differs from the first: {difference}"
            )
    return found


def how_shapes_differ(one: FederatedData, two: FederatedData) -> str:
    """In words, what keeps a program for one data set from running on the other; empty where nothing does.

    >>> from majorant.data import synthetic_mixture
    >>> how_shapes_differ(synthetic_mixture(clients=3, dimension=2), synthetic_mixture(clients=4, dimension=2))
    '3 clients and 4'
    """
    if one.clients != two.clients:
        return f"{one.clients} clients and {two.clients}"
    if one.spec.features != two.spec.features:
        return f"features of shape {one.spec.features} and {two.spec.features}"
    if one.classes != two.classes:
        return f"classes {one.classes} and {two.classes}"
    for client in range(one.clients):
        if one.unseen[client] != two.unseen[client]:
            return f"client {client} is unseen in one of them only"
        for part in PARTS:
            sizes = [int(getattr(data, part).sizes[client]) for data in (one, two)]
            if sizes[0] != sizes[1]:
                return f"client {client} has {sizes[0]} {part} samples and {sizes[1]}"
    types = [(data.train.x.dtype, data.train.y.dtype) for data in (one, two)]
    return f"types {types[0]} and {types[1]}" if types[0] != types[1] else ""


def refuse_too_many(data: Sequence[FederatedData], needed: int, budget: int) -> None:
    """Several data sets must fit in memory together."""
    if len(data) > 1 and needed > budget:
        raise ValueError(
            f"{len(data)} data sets with their clients' states take about {needed / 2**30:.2g} GiB, more than the "
            f"budget of {budget / 2**30:.2g} GiB: give fewer at a time, or a larger memory_budget"
        )


def with_own_hyper(
    algorithms: Sequence[Algorithm], data: Sequence[FederatedData]
) -> tuple[Algorithm, dict[str, list[float]]]:
    """The first of some algorithms that differ in hyperparameters only, and the values of each on its data set.

    >>> import majorant as mj
    >>> from majorant.objectives import mixture
    >>> data = [mj.data.heterogeneous_logistic(clients=3, samples=20, seed=seed) for seed in range(2)]
    >>> objective = mixture(data[0], l2=0.1)
    >>> made = [mj.methods.acd(objective, constants=objective.constants(each)) for each in data]
    >>> algorithm, hyper = with_own_hyper(made, data)
    >>> len(mj.simulate(algorithm, data, rounds=2, hyper=hyper))
    2
    """
    known = [jax.eval_shape(algorithm.server.init, jax.random.key(0)).hyper.keys() for algorithm in algorithms]
    for other, names in zip(algorithms[1:], known[1:], strict=True):
        if other.name != algorithms[0].name or names != known[0]:
            raise ValueError(
                f"{algorithms[0].name} with {', '.join(sorted(known[0]))} and {other.name} with"
                f" {', '.join(sorted(names))} are not one algorithm: make all in the same way"
            )
    each = [hyper_after_setup(algorithm, one) for algorithm, one in zip(algorithms, data, strict=True)]
    return algorithms[0], {name: [hyper[name] for hyper in each] for name in known[0]}
