"""An iteration of the solvers of a shared and a personal block, on the problem of the paper's Section 5.1.

20 clients with 1,000 samples and 15 features, the mixture objective with λ = σ/100, σ = 0.3. Ours, one run and 30 side
by side, against NumPy that does the same iteration on arrays with a row for each client, and in a loop over clients;
and against the seconds of the paper's Table 4. It has them for 1,000 communication rounds, but a round of a coordinate
method is hundreds of iterations for which those seconds do not suffice: here they are taken for 1,000 iterations, and
for LSGD for 1,000 rounds of 5. Runs side by side go together through every round, which is as long as the longest of
theirs. Run: python -m benchmarks.unified_solvers
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import numpy as np

import majorant as mj
from benchmarks.machine import Limits, interleaved, measure_limits
from benchmarks.numpy_solvers import SOLVERS, Lsgd, Solver
from majorant.core import Algorithm
from majorant.data.federated import FederatedData
from majorant.engines.settings import hyper_after_setup
from majorant.objectives import mixture

SIGMA, L2, SEEDS = 0.3, 1e-4, 30
LAMBDA = SIGMA / 100
TABLE_4 = {"lsgd": 256.16, "ascd": 51.71, "asvrcd": 97.61, "l2sgd+": 47.59}  # seconds
ROUNDS = {"lsgd": 400, "ascd": 10, "asvrcd": 10, "acd": 20, "l2sgd+": 10}  # of a timed run
# Vectors of d + 1 numbers that a client at least reads or writes in an iteration, a drawn sample among them; and how
# many gradients of single samples it computes.
VECTORS = {"lsgd": 5, "ascd": 9, "asvrcd": 13, "acd": 8, "l2sgd+": 8}
SAMPLES = {"lsgd": 1, "ascd": 1, "asvrcd": 2, "acd": 0, "l2sgd+": 1}


class Measured(NamedTuple):
    """Seconds of an iteration: ours in one run, ours for each of several runs, NumPy on arrays and in a loop."""

    ours: float
    side_by_side: float
    arrays: float
    loop: float
    compiling: float


def algorithms(data: FederatedData) -> dict[str, Algorithm]:
    """The methods with the paper's parameters where it states them, by theory otherwise."""
    objective = mixture(data, lambda_=LAMBDA, l2=L2)
    constants = objective.constants(data)
    coordinate = mj.methods.asvrcd(objective, constants=constants)
    shared = {name: hyper_after_setup(coordinate, data)[name] for name in ("p_w", "lr")}
    return {
        "lsgd": mj.methods.lsgd(objective, lr=0.01, tau=Lsgd.tau, batch_size=1),
        "ascd": mj.methods.ascd(objective, constants=constants, theta=min(0.8, 1 / shared["lr"])),
        "asvrcd": coordinate,
        "acd": mj.methods.acd(objective, constants=constants),
        "l2sgd+": mj.methods.l2sgd_plus(objective, constants=constants, **shared),
    }


def numpy_solver(name: str, data: FederatedData, algorithm: Algorithm, *, loop: bool) -> Any:
    """The NumPy version of a method."""
    made: type[Solver] = SOLVERS[name]
    return made(data, LAMBDA, L2, hyper_after_setup(algorithm, data), loop=loop)


def measure(name: str, data: FederatedData, algorithm: Algorithm, *, seeds: int, rounds: int, repeats: int) -> Measured:
    """Ours and theirs in turns."""
    compiling = 0.0
    best = {1: float("inf"), seeds: float("inf")}
    numpy = {loop: numpy_solver(name, data, algorithm, loop=loop) for loop in (False, True)}
    steps = Lsgd.tau if name == "lsgd" else 1
    many = {False: max(1, 40 * repeats // steps), True: max(1, 4 * repeats // steps)}
    theirs = dict.fromkeys(many, float("inf"))
    for _ in range(repeats):
        for count in best:
            run = mj.simulate(algorithm, data, rounds=rounds, evaluation=mj.Evaluation(every=rounds), seeds=count)
            iterations = sum(run[i].history[-1]["iterations"] for i in range(count))
            best[count] = min(best[count], run.seconds["train"] / iterations)
            compiling = max(compiling, run.seconds["compile"])
        works = {str(loop): lambda loop=loop: [numpy[loop].iterate() for _ in range(many[loop])] for loop in many}
        for loop, seconds in interleaved(works, repeats=1).items():
            theirs[loop == "True"] = min(theirs[loop == "True"], seconds / many[loop == "True"] / steps)
    return Measured(best[1], best[seeds], theirs[False], theirs[True], compiling)


def report(name: str, found: Measured, data: FederatedData, limits: Limits) -> str:
    """Three lines about a method."""
    m, (rows, d) = data.clients, data.train.x.shape
    n, d = rows // m, d + 1
    samples = n if name == "acd" else SAMPLES[name]
    moved = 4 * m * d * (VECTORS[name] + (n if name == "acd" else 0))
    work = m * d * (4 * samples + 2 * VECTORS[name])
    in_use = (moved / limits.gigabytes, work / limits.gflops)
    share = lambda seconds: [100 * part / 1e9 / seconds for part in in_use]
    us, (memory, arithmetic) = 1e6 * np.array(found[:4]), share(found.ours)
    together, (more_memory, more_arithmetic) = us[1], share(found.side_by_side)
    lines = [
        f"{name:8s} {us[0]:7.1f} µs an iteration, {together:6.1f} µs for each run of {SEEDS} side by side; NumPy on "
        f"arrays {us[2]:7.1f} µs, in a loop {us[3]:8.1f} µs",
        f"{'':8s} {us[2] / us[0]:5.1f} and {us[3] / us[0]:6.1f} times faster than NumPy, side by side "
        f"{us[2] / us[1]:5.1f} and {us[3] / us[1]:6.1f} times; compiled in {found.compiling:.1f} s",
        f"{'':8s} of the machine's memory limit {memory:.2g} % (side by side {more_memory:.2g} %), "
        f"of its arithmetic {arithmetic:.2g} % ({more_arithmetic:.2g} %)",
    ]
    if name in TABLE_4:
        unit = "1,000 rounds of 5 iterations" if name == "lsgd" else "1,000 iterations"
        ours = found.ours * 1000 * (Lsgd.tau if name == "lsgd" else 1)
        lines.append(
            f"{'':8s} {unit}: {ours:.3f} s; Table 4 has {TABLE_4[name]:.0f} s: {TABLE_4[name] / ours:.0f} times faster"
        )
    return "\n".join(lines)


def main() -> None:
    """All methods on the paper's problem."""
    data, limits = mj.data.heterogeneous_logistic(sigma=SIGMA), measure_limits()
    print(f"{data.clients} clients, {len(data.train.y)} samples, d = {data.train.x.shape[1]}, {jax.default_backend()}")
    print(f"machine: {limits.gflops:.0f} GFLOP/s, {limits.gigabytes:.1f} GB/s")
    for name, algorithm in algorithms(data).items():
        found = measure(name, data, algorithm, seeds=SEEDS, rounds=ROUNDS[name], repeats=5)
        print(report(name, found, data, limits), flush=True)


if __name__ == "__main__":
    main()
