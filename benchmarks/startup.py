"""What a person waits for before the first round: loading, tracing, lowering and compiling; cold and from the cache.

Whole commands run in processes of their own, first with an empty cache of compiled programs, then with what the first
left there. The seconds of processors count all threads: on a busy machine they are the ones to compare. Another tree's
sources can be measured in the same run, in turns: python -m benchmarks.startup [OTHER/src ...]
"""

from __future__ import annotations

import itertools
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

import jax.numpy as jnp

import majorant as mj
from majorant.core import Algorithm
from majorant.core.compilation import compiled
from majorant.data.federated import FederatedData
from majorant.engines.programs import QUICK_COMPILATION, Program
from majorant.engines.simulator import planned

COMMANDS = {
    "nothing": ["--version"],
    "digits": ["run", "fedavg", "--data", "digits"],
    "demo": ["compare", "fedem", "fedavg", "local", "--data", "synthetic"],
}


class Spent(NamedTuple):
    """Seconds on the clock, and of all processors."""

    wall: float
    busy: float


def command_seconds(command: list[str], source: Path, cache: Path) -> Spent:
    """A command in a process of its own, with the library of that tree."""
    with tempfile.TemporaryDirectory() as folder:
        paths = os.pathsep.join(filter(None, (str(source), os.environ.get("PYTHONPATH"))))
        environment = os.environ | {"PYTHONPATH": paths, "MAJORANT_COMPILATION_CACHE": str(cache)}
        environment["PYTHONDONTWRITEBYTECODE"] = ""  # as after an install: sources are not read anew for every command
        out = [] if command == ["--version"] else ["--out", str(Path(folder) / "out")]
        begin, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
        call = [sys.executable, "-m", "majorant", *command, *out]
        subprocess.run(call, check=True, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
    busy = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Spent(time.perf_counter() - begin, busy)


def compare_commands(sources: list[Path]) -> None:
    """Every command with every tree, in turns."""
    for name, command in COMMANDS.items():
        for source in sources:
            with tempfile.TemporaryDirectory() as cache:
                cold, again = (command_seconds(command, source, Path(cache)) for _ in range(2))
            shown = [f"{spent.wall:6.1f} s ({spent.busy:5.1f} of processors)" for spent in (cold, again)]
            print(f"{name:8s} cold {shown[0]}, from the cache {shown[1]}   {source}", flush=True)


def program_seconds(program: Program, *arguments: Any) -> str:
    """Tracing, lowering and compiling one program, in seconds of processors."""
    marks = [time.process_time()]
    traced = program.jitted.trace(*arguments)
    marks.append(time.process_time())
    lowered = traced.lower()
    marks.append(time.process_time())
    compiled(lowered, QUICK_COMPILATION)
    marks.append(time.process_time())
    spent = [end - begin for begin, end in itertools.pairwise(marks)]
    lines = lowered.as_text().count("\n")
    return f"traced {spent[0]:.2f}, lowered {spent[1]:.2f}, compiled {spent[2]:.2f} s, {lines} lines"


def by_program(algorithm: Algorithm, data: FederatedData, rounds: int) -> None:
    """The programs of one run, one after the other."""
    engine: Any = planned(algorithm, data, rounds).engine
    number, made = jnp.int32(rounds), engine.programs
    started = program_seconds(made.start, engine.keys, {}, number, engine.data)
    state = made.start.shapes(engine.keys, {}, number, engine.data)
    print(f"{algorithm.name:8s} {len(engine.buckets)} bucket(s)")
    print(f"{'':8s} start:    {started}")
    print(f"{'':8s} rounds:   {program_seconds(made.block, state, engine.keys, number, engine.data)}")
    print(
        f"{'':8s} evaluate: {program_seconds(made.evaluate, state, engine.keys, engine.data, engine.unseen)}",
        flush=True,
    )


def main() -> None:
    """Programs of the demo, then the commands."""
    data = mj.data.synthetic_mixture(clients=300, seed=0)
    for method in (mj.fedem, mj.fedavg, mj.local):
        by_program(method(mj.models.linear(data)), data, 200)
    ours = Path(mj.__file__).parents[1]
    compare_commands([ours, *map(Path, sys.argv[1:])])


if __name__ == "__main__":
    main()
