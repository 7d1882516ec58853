"""Very many clients with private states: seconds of a round, memory, and what resuming takes.

First the same number of participants is drawn from 10,000, 100,000 and 1,000,000 clients: a round should cost what its
participants cost. Then one in a hundred of a million clients takes part. Clients have 4 to 40 training samples
(log-normal) and one for testing; the states are mixture weights (FedEM) and whole models (pFedMe). Every row runs in a
process of its own, so that peak memory is its own; the run is then resumed from its snapshot for as many rounds again
and must end where a run that was never interrupted ends. Run: python -m benchmarks.scale [--json FILE]
"""

from __future__ import annotations

import argparse
import functools
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np


class Case(NamedTuple):
    """One row: a method, and the population that it runs on."""

    method: str
    clients: int
    participants: int
    dimension: int = 20
    rounds: int = 20


SAME = [Case(method, 10**k, 1_000) for method in ("fedem", "pfedme") for k in (4, 5, 6)]
MANY = [Case("fedem", 10**6, 10_000), Case("pfedme", 10**6, 10_000), Case("pfedme", 10**6, 10_000, 100)]


def population(clients: int, dimension: int) -> Any:
    """Clients of two kinds, whose labels follow one linear rule or its opposite."""
    from majorant.data.federated import FederatedData, Ragged, offsets_of

    rng = np.random.default_rng(0)
    sizes = np.clip(rng.lognormal(2.2, 0.5, clients).astype(int), 4, 40)
    rule, kind = rng.normal(size=dimension).astype(np.float32), rng.integers(2, size=clients)

    def part(sizes: np.ndarray) -> Ragged:
        x = rng.standard_normal((int(sizes.sum()), dimension), dtype=np.float32)
        y = ((x @ rule > 0) ^ np.repeat(kind, sizes).astype(bool)).astype(np.int64)
        return Ragged(x, y, offsets_of(sizes))

    train, test, none = part(sizes), part(np.ones(clients, int)), part(np.zeros(clients, int))
    names = tuple(map(str, range(clients)))
    return FederatedData(train, none, test, np.zeros(clients, bool), names, (0, 1), "scale")


def peak() -> float:
    """The most memory that this process has had, in GB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def measure(case: Case) -> dict[str, Any]:
    """The numbers of one row."""
    import jax

    import majorant as mj
    from majorant.app.trees import load_tree, save_tree
    from majorant.engines.population import padding
    from majorant.engines.simulator import planned

    found: dict[str, Any] = {**case._asdict()}

    def timed(name: str, work: Callable[[], Any]) -> Any:
        begin, before = time.perf_counter(), time.process_time()
        result = work()
        found[f"{name}_s"], found[f"{name}_busy_s"] = time.perf_counter() - begin, time.process_time() - before
        return result

    data = timed("data", lambda: population(case.clients, case.dimension))
    found["data_gb"] = peak()
    model, local = mj.models.linear(data), mj.local_sgd(0.1, batch_size=16)
    fedem = functools.partial(mj.fedem, components=3)
    algorithm = {"fedem": fedem, "pfedme": mj.pfedme}[case.method](model, local=local)
    some = mj.participation.uniform(case.participants / case.clients)
    prepared = lambda: planned(algorithm, data, 2 * case.rounds + 2, participation=some)
    whole = timed("layout", prepared)
    timed("start", whole.start)
    whole.engine.block(2)
    timed("rounds", lambda: whole.engine.block(case.rounds))
    timed("evaluation", whole.evaluate)
    halfway = timed("snapshot", whole.snapshot)
    with tempfile.TemporaryDirectory() as folder:
        states = {"server": halfway.server, "clients": halfway.clients}
        timed("save", lambda: save_tree(Path(folder) / "checkpoint", states, {}, private=True))
        loaded = timed("load", lambda: load_tree(Path(folder) / "checkpoint", states))[0]
    whole.engine.block(case.rounds)
    end, waste = whole.snapshot(), padding(data, whole.buckets)
    whole.engine = None  # the samples on the device are another copy
    resumed = prepared()
    timed("restore", lambda: resumed.restore(halfway._replace(**loaded)))
    resumed.engine.block(case.rounds)
    ends = [(one.server, one.clients) for one in (end, resumed.snapshot())]
    return found | {
        "samples": len(data.train.y),
        "padding": waste,
        "state_gb": sum(a.nbytes for a in jax.tree.leaves(halfway.clients)) / 2**30,
        "resumes_bitwise": all(jax.tree.leaves(jax.tree.map(np.array_equal, *ends))),
        "peak_gb": peak(),
    }


def in_its_own_process(case: Case) -> dict[str, Any]:
    """Measures a row apart from all others."""
    command = [sys.executable, "-m", "benchmarks.scale", "--case", json.dumps(case)]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()[-1])


def main() -> None:
    """Prints a line per row."""
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--json", type=Path, help="where to write the numbers")
    asked.add_argument("--case", help=argparse.SUPPRESS)
    given = asked.parse_args()
    if given.case:
        print(json.dumps(measure(Case(*json.loads(given.case)))))
        return
    rows = []
    print(f"{'':33s} ms/round {'':28s} GB of")
    print(
        "method   clients  in a round    d  clock (busy)  evaluation s  save s  load s    data  states   peak  resumes"
    )
    for case in SAME + MANY:
        row = in_its_own_process(case)
        rows.append(row)
        each, busy = (1e3 * row[f"rounds{kind}_s"] / case.rounds for kind in ("", "_busy"))
        print(
            f"{case.method:7s} {case.clients:8d} {case.participants:11d} {case.dimension:4d} {each:6.1f} ({busy:4.0f})"
            f" {row['evaluation_s']:13.2f} {row['save_s']:7.2f} {row['load_s']:7.2f} {row['data_gb']:8.2f}"
            f" {row['state_gb']:7.3f} {row['peak_gb']:6.2f}  {'bitwise' if row['resumes_bitwise'] else 'NO'}",
            flush=True,
        )
    for method in ("fedem", "pfedme"):
        busy = [row["rounds_busy_s"] for row, case in zip(rows, SAME, strict=False) if case.method == method]
        print(f"{method}: 1,000 of a million clients take {busy[-1] / busy[0]:.2f} times the work of 1,000 of 10,000")
    if given.json:
        given.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
