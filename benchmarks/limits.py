"""How near a round is to what the machine can do, and where its time goes.

The compiler counts operations and bytes of a round in which every sample is read once for each pass that the method
makes over it (all of a client's samples as one batch), on rows that hold samples; a program cannot do with less
arithmetic, and with fewer bytes only where the cache spares it memory. That is set against a large matrix product and a
large copy, all in seconds of processors, so that a busy machine does not matter much. The profile names the largest
kinds of operations of the round as it runs, with its minibatches. Run: python -m benchmarks.limits [--json FILE]
"""

from __future__ import annotations

import argparse
import collections
import functools
import json
import re
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import majorant as mj
from benchmarks.machine import Limits, best_of
from majorant.core import Algorithm
from majorant.core.compilation import compiled, staged
from majorant.data.federated import FederatedData
from majorant.engines import rounds, set_up
from majorant.engines.population import padding
from majorant.engines.programs import QUICK_COMPILATION
from majorant.engines.simulator import planned

KINDS = (  # what an operation of a program does, by its name; the first that is found
    ("random numbers", r"broadcast_add_fusion|threefry|shift|xor"),
    ("taking a chunk out of all clients", r"dynamic-slice"),
    ("gathering minibatches", r"gather"),
    ("matrix products", r"dot|ynn_fusion"),
    ("sorting", r"sort"),
    ("other element-wise work", r"fusion|wrapped|copy|reduce|transpose"),
)


busy = functools.partial(best_of, repeats=4, clock=time.process_time)  # the least seconds of processors


def machine() -> Limits:
    """What one processor does at best: a large product for arithmetic, a large copy for memory."""
    n = 1024
    a = jnp.asarray(np.random.default_rng(0).normal(size=(n, n)), jnp.float32)
    product = jax.jit(lambda a: a @ a)
    source, target = np.ones(1 << 25, np.float32), np.zeros(1 << 25, np.float32)
    seconds = busy(lambda: product(a).block_until_ready()), busy(lambda: np.copyto(target, source))
    return Limits(2 * n**3 / seconds[0] / 1e9, 2 * source.nbytes / seconds[1] / 1e9)


def counted(algorithm: Algorithm, data: FederatedData) -> tuple[float, float]:
    """Operations and bytes of a round, by the compiler's count of a chunk of each bucket, less the padding's share."""
    simulation = planned(algorithm, data, 10)
    federation, total = simulation.federation, np.zeros(2)
    for bucket in simulation.buckets:
        rows = bucket.pieces()[0]
        train, real = bucket.train(data, rows), jnp.ones(len(rows), bool)

        def one(key: jax.Array, train: Any, real: jax.Array, chunk: int = len(rows)) -> Any:
            server = set_up.start_server(federation, data.clients, key, {}, jnp.int32(10))
            held, _ = set_up.start_clients(federation, server, key, train, real, chunk)
            view, own = rounds.begin_round(federation, server, key)
            return view, own, held

        view, own, held = jax.eval_shape(one, jax.random.key(0), train, real)
        through = lambda *args: rounds.chunk_pass(federation, *args)
        cost = compiled(staged(through).lower(view, own, held, train, real), QUICK_COMPILATION).cost_analysis()
        cost = cost[0] if isinstance(cost, list) else cost
        shares = data.train.sizes[bucket.ids[bucket.real]].sum() / (len(bucket.ids) * bucket.length)
        total += len(bucket.pieces()) * shares * np.array([cost["flops"], cost["bytes accessed"]])
    return float(total[0]), float(total[1])


def profiled(block: Callable[[], object]) -> dict[str, float]:
    """The share of each kind of operation in a block of rounds, largest first."""
    with tempfile.TemporaryDirectory() as folder:
        with jax.profiler.trace(folder):
            block()
        trace = next(Path(folder).rglob("*.xplane.pb"))
        spent: collections.Counter[str] = collections.Counter()
        for plane in jax.profiler.ProfileData.from_file(str(trace)).planes:
            for event in (event for line in plane.lines for event in line.events):
                kind = next((kind for kind, words in KINDS if re.search(words, event.name)), None)
                if kind is not None and not event.name.startswith(("$", "while", "Thunk", "Transpose")):
                    spent[kind] += event.duration_ns
    whole = sum(spent.values())
    return {kind: seconds / whole for kind, seconds in spent.most_common()}


def measure(make: Callable[..., Algorithm], data: FederatedData, limits: Limits, count: int) -> dict[str, Any]:
    """A round of a method that trains with minibatches of 128: what it takes, needs and spends."""
    model = mj.models.linear(data)
    flops, moved = counted(make(model, local=mj.local_sgd(0.1, batch_size=None)), data)
    simulation: Any = planned(make(model, local=mj.local_sgd(0.1, batch_size=128)), data, 1000)
    simulation.start()
    seconds = busy(lambda: simulation.engine.block(count)) / count
    least = max(flops / limits.gflops, moved / limits.gigabytes) / 1e9
    return {
        "seconds": seconds,
        "gflop": flops / 1e9,
        "gigabytes": moved / 1e9,
        "share": least / seconds,
        "padding": padding(data, simulation.buckets),
        "profile": profiled(lambda: simulation.engine.block(count)),
    }


def main() -> None:
    """The methods on the synthetic data of the demo."""
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--json", type=Path, help="where to write the numbers")
    given = asked.parse_args()
    limits, data = machine(), mj.data.synthetic_mixture(clients=300, seed=0)
    print(f"a processor: {limits.gflops:.0f} GFLOP/s, {limits.gigabytes:.1f} GB/s", flush=True)
    found: dict[str, Any] = {"machine": limits._asdict()}
    for name, make in (("fedem", mj.fedem), ("fedavg", mj.fedavg), ("pfedme", mj.pfedme)):
        row = found[name] = measure(make, data, limits, 15)
        largest = ", ".join(f"{kind} {100 * share:.0f} %" for kind, share in list(row["profile"].items())[:3])
        print(
            f"{name:7s} {1e3 * row['seconds']:.1f} ms of processors a round for {row['gflop']:.3f} GFLOP and"
            f" {row['gigabytes']:.3f} GB: {100 * row['share']:.0f} % of the limit; {largest}",
            flush=True,
        )
    if given.json:
        given.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
