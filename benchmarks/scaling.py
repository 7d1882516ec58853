"""The cost of a FedEM round against the number of clients, from 10 to 100,000, and the memory it takes.

Every size runs in a process of its own, so that peak memory is its own. Clients have log-normal sizes. The last rows
stream their clients through a small memory budget. Run: python -m benchmarks.scaling
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys

import numpy as np

SIZES = (10, 100, 1_000, 10_000, 100_000)


def measure(clients: int, budget: int | None) -> dict[str, float]:
    """Seconds per round and peak memory for one population."""
    import majorant as mj
    from majorant.data.federated import FederatedData

    rng = np.random.default_rng(0)
    sizes = np.clip(rng.lognormal(3, 1, clients).astype(int), 5, 200)
    owner = np.repeat(np.arange(clients), sizes)
    x = rng.normal(size=(len(owner), 20)).astype(np.float32)
    y = (x @ rng.normal(size=20) + rng.normal(size=len(owner)) > 0).astype(int)
    data = FederatedData.from_arrays(x, y, owner, split=(0.8, 0.0, 0.2))
    loaded = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    local = mj.local_sgd(0.1, batch_size=32, momentum=0.9)
    algorithm = mj.fedem(mj.models.linear(data), components=3, local=local)
    rounds = 20 if clients <= 10_000 else 3
    run = mj.simulate(
        algorithm,
        data,
        rounds=rounds,
        evaluation=mj.Evaluation(every=rounds),
        resources=mj.Resources(memory_budget=budget),
    )
    return {
        "samples": len(data.train.y),
        "round": run.seconds["train"] / rounds,
        "compile": run.seconds["compile"],
        "loaded": loaded,
        "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def main() -> None:
    """Prints a line per size, and the exponent of cost against clients."""
    costs = {}
    print("  clients    samples  ms/round  µs/sample compile s  MB data  MB peak")
    for clients, budget in [*((c, 0) for c in SIZES), (100_000, 64 << 20)]:
        command = [sys.executable, "-m", "benchmarks.scaling", str(clients), str(budget)]
        r = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()[-1])
        note = f"  (streamed, budget {budget >> 20} MB)" if budget else ""
        print(
            f"{clients:9d} {r['samples']:10d} {1e3 * r['round']:9.1f} {1e6 * r['round'] / r['samples']:10.3f}"
            f" {r['compile']:9.1f} {r['loaded']:8.0f} {r['peak']:8.0f}{note}",
            flush=True,
        )
        if not budget:
            costs[clients] = r["round"]
    large = [c for c in SIZES if c >= 1_000]
    slope = np.polyfit(np.log([float(c) for c in large]), np.log([costs[c] for c in large]), 1)[0]
    print(f"cost grows as clients^{slope:.2f} from 1,000 clients on (1 is linear)")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(json.dumps(measure(int(sys.argv[1]), int(sys.argv[2]) or None)))
    else:
        main()
