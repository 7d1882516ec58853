"""Runs entries of the zoo on forced CPU devices, in one process or as one of several, and saves what they end with.

    python mesh_runs.py OUT --devices 8 --runs fedem/one fedem/mesh [--join HOST:PORT I N]

A run is the name of an entry and a way to run it: on ``one`` device; on a ``mesh`` of all of them, or ``streamed``
through it from files; ``many`` runs, dealt over the devices, and the same on ``many_one``; begun on all devices and
``resumed_1``, ``resumed_2`` on so many. OUT is an npz file with the leaves of server, private states, scores and what
was sent and measured, for every run. Process 0 writes it. Of several processes each reads the samples of its own
clients, once, and no others. The number of devices must be known before JAX starts: so this is a program, run by tests.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

parser = argparse.ArgumentParser()
parser.add_argument("out", type=Path)
parser.add_argument("--devices", type=int, required=True)
parser.add_argument("--runs", nargs="+", required=True)
parser.add_argument("--join", nargs=3)
ROUNDS = 4


def main() -> None:
    """Runs, and saves."""
    given = parser.parse_args()
    sys.path.insert(0, str(Path(__file__).parents[1]))
    from compiling import QUICK, keep_contexts

    quick = " ".join(f"--{name}={str(value).lower()}" for name, value in QUICK.items())
    os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={given.devices} {quick}"
    os.environ["JAX_PLATFORMS"] = "cpu"
    from majorant.engines import programs

    programs.QUICK_COMPILATION = QUICK
    if given.join:
        from majorant.engines.hosts import join

        join(given.join[0], int(given.join[1]), int(given.join[2]))
    import jax
    import numpy as np

    keep_contexts()
    found = {}
    for run in given.runs:
        for i, leaf in enumerate(leaves_of(*run.split("/"), several=bool(given.join))):
            found[f"{run}/{i}"] = leaf
    if jax.process_index() == 0:
        np.savez(given.out, **found)


def leaves_of(name: str, way: str, *, several: bool) -> list[Any]:
    """What a run ends with."""
    import jax
    import numpy as np

    import majorant as mj
    import zoo

    devices, seen = len(jax.devices()), []
    keep = lambda records, snapshot: seen.append(snapshot())
    options: dict[str, Any] = zoo.ZOO[name].options
    if way.startswith("many"):
        key, value, other = zoo.ZOO[name].hyper
        options = options | {"hyper": None, "grid": {key: [value, other]}, "seeds": 2}
    resources = mj.Resources(devices=None if "one" in way else devices)
    data, source = to_be_read(zoo.problem()) if several else (zoo.problem(), None)

    def simulate(resources: Any, resume: Any = None) -> Any:
        evaluation = mj.Evaluation(every=ROUNDS // 2, diagnostics=True, report=keep)
        return mj.simulate(
            zoo.algorithm(name),
            data,
            rounds=ROUNDS,
            evaluation=evaluation,
            resources=resources,
            resume=resume,
            **options,
        )

    with tempfile.TemporaryDirectory() as folder, rows_of_states() as rows:
        run = simulate(resources._replace(state_folder=Path(folder) if way == "streamed" else None))
    if way.startswith("resumed"):
        run = simulate(mj.Resources(devices=int(way[-1])), resume=seen[0])
    if source is not None:
        assert source.asked.max() == 1  # a process reads what its own clients have, once
        assert 0 < source.asked.sum() < len(source.asked)
        assert all(count < (~data.unseen).sum() for count in rows)  # and so for private states in files
    numbers = {k: v for k, v in sorted(run.history[-1].items()) if isinstance(v, float) and k != "seconds"}
    sent = [run.communication[0][key] for key in ("bytes_up", "bytes_down")]
    tree = (run.snapshot.server, run.snapshot.clients, run.scores[0].values, list(numbers.values()), sent)
    return [np.asarray(leaf) for leaf in jax.tree.leaves(tree)]


@contextlib.contextmanager
def rows_of_states() -> Iterator[list[int]]:
    """For how many clients a process makes files of private states."""
    from majorant.engines import streamed

    made, make = [], streamed.array_in_file

    def counted(path: Path, shape: tuple[int, ...], dtype: Any) -> Any:
        made.append(shape[1])
        return make(path, shape, dtype)

    streamed.array_in_file = counted
    try:
        yield made
    finally:
        streamed.array_in_file = make


class Counted:
    """Samples that remember which of them were asked for."""

    def __init__(self, data: Any) -> None:
        import numpy as np

        parts = (data.train, data.validation, data.test)
        self.fields = tuple(np.concatenate([getattr(part, name) for part in parts]) for name in ("x", "y"))
        self.asked = np.zeros(len(self.fields[0]), int)

    def read(self, rows: Any) -> tuple[Any, ...]:
        self.asked[rows] += 1
        return tuple(field[rows] for field in self.fields)


def to_be_read(data: Any) -> tuple[Any, Counted]:
    """The data with samples that are read when they are asked for."""
    import numpy as np

    from majorant.data.lazy import Lazy

    source, begin, parts = Counted(data), 0, {}
    for name in ("train", "validation", "test"):
        part = getattr(data, name)
        rows = begin + np.arange(len(part.y))
        begin += len(rows)
        lazy = [Lazy(source, rows, a.shape[1:], a.dtype, field) for field, a in enumerate((part.x, part.y))]
        parts[name] = part._replace(x=lazy[0], y=lazy[1])
    return dataclasses.replace(data, **parts), source


if __name__ == "__main__":
    main()
