"""A front of 16 models in one program against 16 runs, one after the other.

Logistic regression on 20 features, S = ½ ‖Θ‖², 200 rounds, λ from 0 to 0.9, in two sizes: 5 agents × 80 samples with
one step on all samples a round (so little work that calls and rounds themselves cost most), and 20 agents × 80 samples
with 5 steps on batches of 20. Compared are whole calls of `simulate`, evaluation at the end included:

* one program for all λ (``grid``), as `pareto_front` does, against 16 calls with λ as a hyperparameter value, which
  share one program: *warm*, when all programs have been compiled, and *cold*, the first time, compilation included once
  on each side;
* against 16 calls with an algorithm made for each λ, which compile 16 times.

Programs are not kept on disk between runs of this benchmark. Run: python -m benchmarks.pareto_front
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

import majorant as mj
from benchmarks.machine import interleaved
from majorant.core import Algorithm
from majorant.data.federated import FederatedData

POINTS, ROUNDS, SAMPLES = 16, 200, 100


class Size(NamedTuple):
    """How large a problem is: agents, and the local steps and batch size of a round."""

    agents: int
    steps: int
    batch_size: int | None


SIZES = {"5 agents, a step on all samples": Size(5, 1, None), "20 agents, 5 batches of 20": Size(20, 5, 20)}


def problem(agents: int) -> FederatedData:
    """Samples of a synthetic mixture, dealt out."""
    rows = agents * SAMPLES
    drawn = mj.data.synthetic_mixture(clients=20, dimension=20, seed=0).train
    return FederatedData.from_arrays(drawn.x[:rows], drawn.y[:rows], np.arange(rows) % agents, split=(0.8, 0.0, 0.2))


def make(data: FederatedData, size: Size, weight: float = 0.5) -> Algorithm:
    """The weighted sum on logistic regression."""
    local = mj.local_sgd(0.5, steps=size.steps, batch_size=size.batch_size)
    return mj.weighted_sum(mj.models.linear(data), mj.criteria.squared_norm(), weight=weight, local=local)


def seconds(work: Callable[[], object]) -> float:
    """How long one call takes."""
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def measure(size: Size, points: int = POINTS, rounds: int = ROUNDS, repeats: int = 5) -> dict[str, float]:
    """Seconds of a front by one program and by single runs, cold and warm; the models must be the same."""
    data, weights = problem(size.agents), np.linspace(0, 0.9, points).tolist()
    together, alone = make(data, size), make(data, size)
    one = lambda: mj.simulate(together, data, rounds=rounds, evaluate_every=rounds, grid={"lambda": weights})
    single = lambda algorithm, value: mj.simulate(
        algorithm, data, rounds=rounds, evaluate_every=rounds, hyper={"lambda": value}
    )
    each = lambda: [single(alone, value) for value in weights]
    found = {"one program, cold": seconds(one), "single runs, cold": seconds(each)}
    found["an algorithm each, cold"] = seconds(lambda: [single(make(data, size), value) for value in weights])
    warm = interleaved({"one program, warm": one, "single runs, warm": each}, repeats=repeats)
    theta = lambda run: np.asarray(run.snapshot.server.value[0]["weight"])
    np.testing.assert_allclose(theta(one()), np.concatenate([theta(run) for run in each()]), rtol=1e-3, atol=1e-4)
    return found | warm


def main() -> None:
    """Prints seconds and ratios."""
    os.environ["MAJORANT_COMPILATION_CACHE"] = ""
    for name, size in SIZES.items():
        best = measure(size)
        print(f"{name}: " + ", ".join(f"{what} {value:.3f} s" for what, value in best.items()))
        warm = best["single runs, warm"] / best["one program, warm"]
        cold = best["single runs, cold"] / best["one program, cold"]
        anew = best["an algorithm each, cold"] / best["one program, cold"]
        print(
            f"  a front of {POINTS} models in one program: {warm:.1f} times as fast as {POINTS} runs of a compiled "
            f"program; {cold:.1f} times with one compilation on each side; {anew:.1f} times as fast as {POINTS} runs "
            "that compile each"
        )


if __name__ == "__main__":
    main()
