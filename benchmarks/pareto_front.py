"""A front of 16 models in one program against 16 runs, one after the other, and against a plain PyTorch loop.

The weighted sum with S = ½ ‖Θ‖² for 16 values of λ from 0 to 0.9, by `simulate` with a ``grid``, as `pareto_front` does
it. Compared are whole calls, evaluation at the end included, with 16 calls of the same algorithm, which share one
compiled program: *warm*, when all programs have been compiled, and *cold*, the first time. For the smallest problem
also 16 algorithms, one made for each λ, which compile 16 times. The PyTorch loop over λ, rounds, agents and steps makes
the same steps on as many samples, without an evaluation; it is timed on a few rounds of one λ, with one thread and with
all, and multiplied.

Where a front pays: with small models. Batches are drawn and gathered once for all λ, calls and the many small steps of
a round are paid once, and the products of shared samples with 16 models are one product. Where it cannot: when one
model's arithmetic keeps the machine busy, nothing is left to share. The arithmetic of all models is printed as a share
of the front's time, at the speed of a large matrix product, which small ones do not reach. Behind the first layer of a
network nothing is shared, and models of more than 20,000 parameters go in turn on a CPU, where they are faster than
side by side: a front of CNNs takes the time of its single runs.

Programs are not kept on disk between runs of this benchmark. Run: python -m benchmarks.pareto_front
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import majorant as mj
from benchmarks.machine import best_of, interleaved, measure_limits, need_torch
from majorant.core import Algorithm
from majorant.data.federated import FederatedData
from majorant.models.base import Model

POINTS, LR = 16, 0.1
WEIGHTS = np.linspace(0, 0.9, POINTS).tolist()


class Problem(NamedTuple):
    """How much there is to do: agents, their samples, the shape of one, the steps of a round and their batches."""

    model: str
    agents: int
    samples: int
    shape: tuple[int, ...]
    steps: int
    batch_size: int | None
    rounds: int

    @property
    def seen(self) -> int:
        """Samples in all steps of all rounds of one run."""
        return self.rounds * self.agents * self.steps * (self.batch_size or self.samples)


PROBLEMS = {
    "small: logistic regression, 5 agents × 80 × 20": Problem("linear", 5, 80, (20,), 1, None, 200),
    "middle: the same, 20 agents × 80 × 20, 5 batches of 20": Problem("linear", 20, 80, (20,), 5, 20, 200),
    "larger: the same, 100 agents × 400 × 100, 10 batches of 40": Problem("linear", 100, 400, (100,), 10, 40, 20),
    "network: 32 hidden units, 10 agents × 160 images of 8×8": Problem("mlp", 10, 160, (8, 8, 1), 5, 32, 20),
    "CNN: the papers', 2 agents × 64 images of 28×28": Problem("cnn", 2, 64, (28, 28, 1), 2, 32, 1),
}


def data_of(problem: Problem) -> FederatedData:
    """Random samples, labelled by a random linear map; a fifth is for testing."""
    rng, count = np.random.default_rng(0), problem.agents * problem.samples * 5 // 4
    x = rng.normal(size=(count, *problem.shape)).astype(np.float32)
    scores = x.reshape(count, -1) @ rng.normal(size=(math.prod(problem.shape), 2 if problem.model == "linear" else 10))
    return FederatedData.from_arrays(x, scores.argmax(1), np.arange(count) % problem.agents, split=(0.8, 0.0, 0.2))


def model_of(problem: Problem, data: FederatedData) -> Model:
    """Logistic regression, a small perceptron or the papers' CNN."""
    return {"linear": mj.models.linear, "mlp": lambda d: mj.models.mlp(d, hidden=(32,)), "cnn": mj.models.cnn}[
        problem.model
    ](data)


def make(problem: Problem, data: FederatedData, weight: float = 0.5) -> Algorithm:
    """The weighted sum on the problem's model."""
    local = mj.local_sgd(LR, steps=problem.steps, batch_size=problem.batch_size)
    return mj.tradeoffs.weighted_sum(model_of(problem, data), mj.criteria.squared_norm(), weight=weight, local=local)


def seconds(work: Callable[[], object]) -> float:
    """How long one call takes."""
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def measure(problem: Problem, *, anew: bool = False, repeats: int = 5) -> dict[str, float]:
    """Seconds of a front by one program and by single runs, cold and warm; the models must be the same."""
    data, rounds = data_of(problem), problem.rounds
    together, alone = make(problem, data), make(problem, data)
    one = lambda: mj.simulate(
        together, data, rounds=rounds, evaluation=mj.Evaluation(every=rounds), grid={"lambda": WEIGHTS}
    )
    single = lambda algorithm, value: mj.simulate(
        algorithm, data, rounds=rounds, evaluation=mj.Evaluation(every=rounds), hyper={"lambda": value}
    )
    each = lambda: [single(alone, value) for value in WEIGHTS]
    found = {"one program, cold": seconds(one), "single runs, cold": seconds(each)}
    if anew:
        found["an algorithm each, cold"] = seconds(lambda: [single(make(problem, data), value) for value in WEIGHTS])
    warm = interleaved({"one program, warm": one, "single runs, warm": each}, repeats=repeats)
    runs = [run.snapshot.server.value for run in each()]
    separate = jax.tree.map(lambda *parts: np.concatenate(parts), *runs)
    same = lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4)
    jax.tree.map(same, one().snapshot.server.value, separate)
    return found | warm


def gigaflops(problem: Problem) -> float:
    """The arithmetic of all 16 runs' gradients, in 10⁹ operations."""
    data = data_of(problem)
    model, rows = model_of(problem, data), problem.batch_size or problem.samples
    x, y = jnp.asarray(data.train.x[:rows]), jnp.asarray(data.train.y[:rows])
    gradient = jax.jit(jax.grad(lambda params: model.losses(params, x, y).mean()))
    cost = gradient.lower(model.init(jax.random.key(0))).cost_analysis()
    return POINTS * cost["flops"] * problem.seen / rows / 1e9


class TorchLoop:
    """The weighted sum as one would write it in PyTorch: a loop over rounds, agents and steps, for one λ."""

    def __init__(self, problem: Problem) -> None:
        import torch

        torch.manual_seed(0)
        self.torch, self.problem, data = torch, problem, data_of(problem)
        flat = math.prod(problem.shape)
        layers: dict[str, Callable[[], list[Any]]] = {
            "linear": lambda: [torch.nn.Linear(flat, 1)],
            "mlp": lambda: [torch.nn.Linear(flat, 32), torch.nn.ReLU(), torch.nn.Linear(32, 10)],
            "cnn": lambda: [
                torch.nn.Conv2d(1, 32, 3, padding=1), torch.nn.ReLU(), torch.nn.MaxPool2d(2),
                torch.nn.Conv2d(32, 64, 3, padding=1), torch.nn.ReLU(), torch.nn.MaxPool2d(2),
                torch.nn.Flatten(), torch.nn.Linear(64 * 49, 128), torch.nn.ReLU(), torch.nn.Linear(128, 10),
            ],
        }  # fmt: skip
        self.make = lambda: torch.nn.Sequential(*layers[problem.model]())
        shape = (1, *problem.shape[:2]) if problem.model == "cnn" else (flat,)
        self.agents = [
            (torch.from_numpy(x).reshape(-1, *shape), torch.from_numpy(y).long())
            for x, y in map(data.train.client, range(data.clients))
        ]

    def loss(self, outputs: Any, y: Any) -> Any:
        """The mean loss of a batch."""
        functional = self.torch.nn.functional
        if self.problem.model == "linear":
            return functional.binary_cross_entropy_with_logits(outputs[:, 0], y.float())
        return functional.cross_entropy(outputs, y)

    def run(self, shared: Any, weight: float, rounds: int) -> Any:
        """The model after some rounds from ``shared``, which is changed."""
        torch, problem, local = self.torch, self.problem, self.make()
        for _ in range(rounds):
            means = [torch.zeros_like(p) for p in shared.parameters()]
            for x, y in self.agents:
                local.load_state_dict(shared.state_dict())
                optimizer = torch.optim.SGD(local.parameters(), lr=LR)
                for _ in range(problem.steps):
                    rows = slice(None) if problem.batch_size is None else torch.randint(len(y), (problem.batch_size,))
                    optimizer.zero_grad()
                    norm = sum((p**2).sum() for p in local.parameters())
                    ((1 - weight) * self.loss(local(x[rows]), y[rows]) + weight * norm / 2).backward()
                    optimizer.step()
                for mean, p in zip(means, local.parameters(), strict=True):
                    mean += p.detach() / len(self.agents)
            with torch.no_grad():
                for p, mean in zip(shared.parameters(), means, strict=True):
                    p.copy_(mean)
        return shared

    def seconds(self) -> float:
        """All rounds for all λ, from the time of a few rounds for one, by as many threads as are best."""
        rounds = max(1, min(self.problem.rounds, 400 // (self.problem.agents * self.problem.steps)))
        shared, times = self.make(), []
        for threads in (1, os.cpu_count() or 1):
            self.torch.set_num_threads(threads)
            times.append(best_of(lambda: self.run(shared, 0.5, rounds), repeats=3))
        return POINTS * self.problem.rounds / rounds * min(times)

    def check(self) -> None:
        """Without batches, which are drawn differently, a logistic regression must be the library's."""
        problem, data = self.problem, data_of(self.problem)
        shared, ours = self.make(), make(problem, data)
        zeros = lambda fresh: fresh._replace(
            server=fresh.server._replace(value=jax.tree.map(np.zeros_like, fresh.server.value))
        )
        (layer,) = mj.simulate(ours, data, rounds=20, evaluation=mj.Evaluation(every=20), resume=zeros).server.value
        with self.torch.no_grad():
            for p in shared.parameters():
                p.zero_()
        weight = self.run(shared, 0.5, 20)[0].weight.detach().numpy()
        np.testing.assert_allclose(weight[0], np.asarray(layer["weight"]).ravel(), rtol=1e-3, atol=1e-5)


def main() -> None:
    """Prints seconds and ratios."""
    need_torch()
    os.environ["MAJORANT_COMPILATION_CACHE"] = ""
    limits = measure_limits()
    print(f"{POINTS} models; this machine: {limits.gflops:.0f} GFLOP/s, {limits.gigabytes:.1f} GB/s")
    for number, (name, problem) in enumerate(PROBLEMS.items()):
        best, loop = measure(problem, anew=number == 0, repeats=2 if problem.model == "cnn" else 5), TorchLoop(problem)
        if problem.batch_size is None:
            loop.check()
        torch_seconds, warm = loop.seconds(), best["one program, warm"]
        print(f"{name}: " + ", ".join(f"{what} {value:.3f} s" for what, value in best.items()))
        print(
            f"  one program is {best['single runs, warm'] / warm:.1f} times as fast as {POINTS} runs of a compiled "
            f"program, {best['single runs, cold'] / best['one program, cold']:.1f} times with the first compilation on "
            f"both sides, and {torch_seconds / warm:.1f} times as fast as a PyTorch loop ({torch_seconds:.2f} s)"
        )
        if "an algorithm each, cold" in best:
            anew = best["an algorithm each, cold"] / best["one program, cold"]
            print(f"  and {anew:.1f} times as fast as {POINTS} runs that compile each, compilation included")
        work = gigaflops(problem)
        print(
            f"  {work:.2f} GFLOP for all models: {work / limits.gflops / warm:.0%} of the front's time at the speed of "
            "a large matrix product",
            flush=True,
        )


if __name__ == "__main__":
    main()
