"""How rounds scale with devices: strong (the same clients) and weak (as many clients for each device), as ratios.

Devices are parts of this machine's processor (``--xla_force_host_platform_device_count``), so there is no speed-up
beyond its cores: what is measured is what dealing clients, collectives and padding add. ``work`` is the processor time
of a round on all devices together, against that on one device for the same clients: 1 means that dividing the work
costs nothing. ``wall`` is the same by the clock, which other programs disturb. Rows lost to padding, and the samples of
the busiest device, are counted, and hold for any kind of device. Each number of devices is a process of its own.
Weak scaling has 64 clients for each device. Run: python -m benchmarks.mesh [METHOD]
"""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
import time
from typing import Any

COUNTS = (1, 2, 4, 8)
CLIENTS, EACH, ROUNDS, REPEATS = 512, 64, 20, 3
METHODS = ("fedem", "d-fedavg on a ring", "clustered")


def measure(devices: int, clients: int, method: str, rounds: int) -> dict[str, float]:
    """Seconds of a round on so many devices, and what padding costs."""
    import numpy as np

    import majorant as mj
    from majorant.engines.settings import run_settings
    from majorant.engines.simulation import Simulation
    from majorant.exchange.federation import federation

    data = mj.data.synthetic_mixture(clients=clients, dimension=20, seed=0)
    model, local = mj.models.linear(data), mj.local_sgd(0.1, epochs=1, batch_size=32)
    algorithm = {
        "fedem": lambda: mj.fedem(model, components=3, local=local),
        "d-fedavg on a ring": lambda: mj.fedavg(model, local=local),
        "clustered": lambda: mj.clustered(model, clients=clients, local=local),
    }[method]()
    exchange = mj.gossip(mj.topology.ring()) if method.startswith("d-") else None
    resources = mj.Resources(devices=devices)
    training = np.flatnonzero(~data.unseen)
    together = federation(algorithm, training=training, exchange=exchange)
    settings = run_settings(algorithm, 0, None, None, None)
    simulation = Simulation(together, data, settings, rounds, resources)
    simulation.start()
    simulation.block(1)
    from benchmarks.machine import best_of

    begin = time.process_time()
    seconds = best_of(lambda: simulation.block(rounds), repeats=REPEATS) / rounds
    work = (time.process_time() - begin) / REPEATS / rounds
    sizes = np.append(data.train.sizes, 0)
    loads = sum(sizes[b.ids].reshape(b.devices, -1).sum(axis=1) for b in simulation.buckets)
    rows = sum(len(b.ids) * b.length for b in simulation.buckets)
    return {
        "seconds": seconds,
        "work": work,
        "padding": 1 - float(sizes.sum()) / rows,  # share of the rows that are no samples
        "busiest": float(loads.max() / loads.mean()),  # samples of the busiest device, against the mean
    }


@functools.cache
def in_a_process(devices: int, clients: int, method: str, rounds: int = ROUNDS) -> dict[str, Any]:
    """The same, in a process with so many devices."""
    flags = f"--xla_force_host_platform_device_count={devices}"
    command = [sys.executable, "-m", "benchmarks.mesh", str(devices), str(clients), method, str(rounds)]
    environment = os.environ | {"XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"}
    return json.loads(subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout)


def main() -> None:
    """Prints a table."""
    if len(sys.argv) == 5:
        devices, clients, method, rounds = sys.argv[1:]
        print(json.dumps(measure(int(devices), int(clients), method, int(rounds))))
        return
    print(f"cores: {os.cpu_count()}; strong: {CLIENTS} clients; weak: {EACH} clients for each device")
    print(
        f"{'method':20} {'devices':>7} {'strong work':>12} {'wall':>6} {'weak work':>10} {'padding':>8} {'busiest':>8}"
    )
    for method in sys.argv[1:] or METHODS:
        strong = {n: in_a_process(n, CLIENTS, method) for n in COUNTS}
        weak = {n: in_a_process(n, EACH * n, method) for n in COUNTS}
        for n in COUNTS:
            work, wall = (strong[n][what] / strong[1][what] for what in ("work", "seconds"))
            grown = weak[n]["work"] / weak[1]["work"] / n
            lost, busiest = strong[n]["padding"], strong[n]["busiest"]
            print(f"{method:20} {n:7} {work:12.2f} {wall:6.2f} {grown:10.2f} {lost:8.1%} {busiest:8.3f}", flush=True)


if __name__ == "__main__":
    main()
