"""What is measured on single clients between two rounds: how well they solve their local problems."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import TYPE_CHECKING

import jax
import numpy as np

from majorant.engines.evaluation import probe_client
from majorant.engines.laying_out import rows_here
from majorant.engines.mesh import of_owners
from majorant.engines.programs import RUNS, SEEDS, Layout, Program, over_runs
from majorant.exchange.federation import Federation

if TYPE_CHECKING:
    from majorant.engines.simulation import Simulation


def probed(simulation: Simulation, clients: Iterable[int]) -> dict[str, np.ndarray]:
    """The means over some clients of what is measured on each, ``(runs,)`` each."""
    each = [probe(simulation, *where(simulation, int(id))) for id in clients]
    return {name: np.mean([found[name] for found in each], axis=0) for name in each[0]}


def where(simulation: Simulation, id: int) -> tuple[int, int]:
    """The bucket of a client, and its row there."""
    of_id = ((i, np.flatnonzero(bucket.ids == id)) for i, bucket in enumerate(simulation.buckets))
    return next((i, int(rows[0])) for i, rows in of_id if len(rows))


def probe(simulation: Simulation, bucket: int, row: int) -> dict[str, np.ndarray]:
    """What is measured on one client, ``(runs,)`` each."""
    layout, engine = simulation.layout, simulation.engine
    longest = max(b.length for b in simulation.buckets)  # one program for clients of all buckets
    padded = simulation.buckets[bucket]._replace(length=longest)
    here = rows_here(padded, layout)[row]  # elsewhere a client without samples, of which nothing is taken
    sets = simulation.samples * (len(simulation.settings) // len(simulation.samples))
    sets = sets if layout.replicated else sets[:1]
    its = lambda one: jax.tree.map(lambda a: a[0], padded.train(one, np.array([row]))) if here else padded.one(one)
    each = [its(one) for one in sets]
    data = jax.tree.map(lambda *parts: np.stack(parts), *each) if layout.replicated else each[0]
    program = probing(simulation.federation, layout._replace(mesh=None, seeds=simulation.seeds))
    client = engine.client(bucket, row)
    found = jax.tree.map(np.asarray, program(simulation.seconds, engine.server, simulation.keys, client, data))
    return of_owners(found, layout.mesh, row // simulation.buckets[bucket].rows)


@functools.lru_cache(maxsize=16)
def probing(federation: Federation, layout: Layout) -> Program:
    """The program that measures one client."""
    samples = RUNS if layout.replicated else None
    return Program(over_runs(functools.partial(probe_client, federation), layout, RUNS, SEEDS, RUNS, samples))
