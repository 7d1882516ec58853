"""Runs that follow each other, compiled side by side, the later ones while the first ones run.

One run's programs keep a machine of several cores busy only at times: tracing holds Python's lock, and the longest
program is compiled alone in the end. The time that each takes is charged to its own run all the same.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import jax

from majorant.data.federated import FederatedData
from majorant.engines.programs import in_double
from majorant.engines.resident import Resident
from majorant.engines.simulation import Simulation

SMALL = 1 << 28  # bytes of samples: as many runs as there are cores hold theirs at once


@contextlib.contextmanager
def compiled_ahead(plans: Sequence[Callable[[], Simulation]], data: FederatedData) -> Iterator[Callable[[int], None]]:
    """Compiles what the plans will run on the data, on a CPU and where samples are few enough to be held several times;
    gives a function that waits until the plan with some number is compiled.

    What a plan refuses, and any other trouble, is left to the run itself, which meets it again. Of several processes
    each would plan in an order of its own, and they would not meet.
    """
    large = jax.default_backend() != "cpu" or data.train.x.nbytes + data.test.x.nbytes > SMALL
    if len(plans) < 2 or jax.process_count() > 1 or large:
        yield lambda number: None
        return
    double = in_double()

    def one(plan: Callable[[], Simulation]) -> None:
        with contextlib.suppress(Exception), jax.enable_x64(double):  # threads do not inherit the precision
            simulation = plan()
            if isinstance(simulation.engine, Resident):
                simulation.engine.prepare(simulation.given_hyper(), simulation.rounds)
                simulation.engine.programs.block.ahead = simulation.seconds["compile"]

    pool = ThreadPoolExecutor(os.cpu_count())
    made = [pool.submit(one, plan) for plan in plans]
    try:
        yield lambda number: made[number].result()
    finally:
        pool.shutdown(cancel_futures=True)
