"""Runs that follow each other, planned and compiled before their turn comes: the later ones while the first ones run.

One thread traces run after run, because tracing holds Python's lock; what it has traced is compiled beside that, first
come, first served. So the first run begins as soon as if it were alone.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

import jax

from majorant.core import in_double
from majorant.data.federated import FederatedData
from majorant.engines.resident import Resident
from majorant.engines.simulation import Simulation

SMALL = 1 << 28  # bytes of samples: runs that wait for their turn hold theirs
Waiting = Callable[[int], Simulation | None]


@contextlib.contextmanager
def compiled_ahead(plans: Sequence[Callable[[], Simulation]], data: FederatedData) -> Iterator[Waiting]:
    """Compiles what the plans will run on the data, on a CPU and where samples are few enough to be held several times;
    gives a function that waits until the plan with some number is compiled, and returns its simulation.

    What a plan refuses, and any other trouble, is left to the run itself, which meets it again: it has no simulation
    here. Of several processes each would plan in an order of its own, and they would not meet.
    """
    large = jax.default_backend() != "cpu" or data.train.x.nbytes + data.test.x.nbytes > SMALL
    if len(plans) < 2 or jax.process_count() > 1 or large:
        yield lambda number: None
        return
    double = in_double()

    def traced(plan: Callable[[], Simulation]) -> tuple[Simulation, list[Future[float]]]:
        with jax.enable_x64(double):  # threads do not inherit the precision
            simulation, begin = plan(), time.perf_counter()
            if not isinstance(simulation.engine, Resident):
                return simulation, []
            work = simulation.engine.lowered(simulation.given_hyper(), simulation.rounds)
            compiling = [compilers.submit(seconds_of, each) for each in work]
            simulation.seconds["compile"] += time.perf_counter() - begin
            return simulation, compiling

    tracer, compilers = ThreadPoolExecutor(1), ThreadPoolExecutor(os.cpu_count())
    planned = dict(enumerate([tracer.submit(traced, plan) for plan in plans]))

    def wait(number: int) -> Simulation | None:
        with contextlib.suppress(Exception):
            simulation, compiling = planned.pop(number).result()
            simulation.seconds["compile"] += max((each.result() for each in compiling), default=0.0)
            return simulation
        return None

    try:
        yield wait
    finally:
        tracer.shutdown(cancel_futures=True)
        compilers.shutdown(cancel_futures=True)


def seconds_of(work: Callable[[], None]) -> float:
    """Does some work; how long it took."""
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin
