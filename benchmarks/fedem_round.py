"""A FedEM round on the synthetic data: ours against a plain PyTorch loop over clients that does the same work.

Both run the paper's setting: 300 clients, 3 linear components, an E-step over all samples, one local epoch of SGD with
momentum 0.9 and weight decay 5e-4 in shuffled batches of 128, and the weighted average. Run: python -m
benchmarks.fedem_round
"""

from __future__ import annotations

import os
import time
from typing import Any

import jax
import numpy as np

import majorant as mj
from benchmarks.machine import measure_limits, need_torch
from majorant.data.federated import FederatedData

COMPONENTS, BATCH, LR, MOMENTUM, DECAY = 3, 128, 0.1, 0.9, 5e-4


class TorchFedEM:
    """FedEM as one would write it in PyTorch: a loop over clients, components and batches."""

    def __init__(self, data: FederatedData) -> None:
        import torch

        self.torch = torch
        torch.manual_seed(0)
        torch.set_num_threads(os.cpu_count() or 1)
        self.clients = [
            (torch.from_numpy(x), torch.from_numpy(y).float()) for x, y in map(data.train.client, range(data.clients))
        ]
        d = data.train.x.shape[1]
        self.theta = [torch.nn.Linear(d, 1) for _ in range(COMPONENTS)]
        self.pi = torch.full((data.clients, COMPONENTS), 1 / COMPONENTS)
        self.moments: list[list[Any]] = [[None] * COMPONENTS for _ in self.clients]

    def round(self) -> None:
        """One round of all clients."""
        torch = self.torch
        loss = torch.nn.functional.binary_cross_entropy_with_logits
        total = sum(len(y) for _, y in self.clients)
        average = [[torch.zeros_like(p) for p in model.parameters()] for model in self.theta]
        for t, (x, y) in enumerate(self.clients):
            with torch.no_grad():
                losses = torch.stack([loss(m(x)[:, 0], y, reduction="none") for m in self.theta], dim=1)
                q = torch.softmax(torch.log(self.pi[t]) - losses, dim=1)
                self.pi[t] = q.mean(dim=0)
            for m, model in enumerate(self.theta):
                local = torch.nn.Linear(x.shape[1], 1)
                local.load_state_dict(model.state_dict())
                optimizer = torch.optim.SGD(local.parameters(), lr=LR, momentum=MOMENTUM, weight_decay=DECAY)
                if self.moments[t][m] is not None:
                    optimizer.load_state_dict(self.moments[t][m])
                for rows in torch.randperm(len(y)).split(BATCH):
                    optimizer.zero_grad()
                    batch = loss(local(x[rows])[:, 0], y[rows], reduction="none")
                    ((q[rows, m] * batch).sum() / len(rows)).backward()
                    optimizer.step()
                self.moments[t][m] = optimizer.state_dict()
                with torch.no_grad():
                    for mean, p in zip(average[m], local.parameters(), strict=True):
                        mean += p * (len(y) / total)
        with torch.no_grad():
            for model, means in zip(self.theta, average, strict=True):
                for p, mean in zip(model.parameters(), means, strict=True):
                    p.copy_(mean)

    def accuracy(self, data: FederatedData) -> float:
        """The mean test accuracy of the clients' mixtures."""
        torch, right = self.torch, 0.0
        with torch.no_grad():
            for t in range(data.clients):
                x, y = data.test.client(t)
                p = torch.stack([torch.sigmoid(m(torch.from_numpy(x))[:, 0]) for m in self.theta], dim=1) @ self.pi[t]
                right += float(((p > 0.5).numpy() == y).sum())
        return right / len(data.test.y)


def main() -> dict[str, float]:
    """Prints seconds per round of both, their ratio, and the fraction of the machine's limits."""
    need_torch()
    data = mj.data.synthetic_mixture(variant="released", test_samples=200, seed=12345)
    limits = measure_limits()
    local = mj.local_sgd(LR, epochs=1, batch_size=BATCH, momentum=MOMENTUM, weight_decay=DECAY)
    algorithm = mj.fedem(mj.models.linear(data), components=COMPONENTS, local=local)
    theirs = TorchFedEM(data)
    ours_seconds, theirs_seconds, compile_seconds, rounds = [], [], 0.0, 0
    for _ in range(3):  # in turns
        run = mj.simulate(algorithm, data, rounds=40, evaluation=mj.Evaluation(every=40))
        ours_seconds.append(run.seconds["train"] / 40)
        compile_seconds = max(compile_seconds, run.seconds["compile"])
        begin = time.perf_counter()
        for _ in range(3):
            theirs.round()
        rounds += 3
        theirs_seconds.append((time.perf_counter() - begin) / 3)
    ours, other = min(ours_seconds), min(theirs_seconds)
    samples, d = data.train.x.shape
    work = 3 * 2 * samples * d * COMPONENTS  # E-step, forward, gradient
    traffic = data.train.x.nbytes * 4  # E-step reads; a batch is gathered (read, written) and read
    same = mj.simulate(algorithm, data, rounds=rounds, evaluation=mj.Evaluation(every=rounds)).summary()[
        "test_accuracy"
    ]["mean"]
    sizes = f"{data.clients} clients, {samples} samples, d = {d}, {COMPONENTS} components"
    print(f"FedEM round, {sizes}, {jax.default_backend()} (the PyTorch loop runs on the CPU)")
    print(f"  ours {1e3 * ours:.1f} ms, PyTorch loop {1e3 * other:.0f} ms: {other / ours:.0f} times faster")
    print(f"  against the paper's released code, over 7 s a round: {7 / ours:.0f} times faster")
    print(f"  accuracy after {rounds} rounds: ours {same:.3f}, PyTorch loop {theirs.accuracy(data):.3f}")
    print(
        f"  machine: {limits.gflops:.0f} GFLOP/s, {limits.gigabytes:.1f} GB/s; the round needs {work / 1e9:.2f} GFLOP"
    )
    print(f"  and moves {traffic / 1e9:.2f} GB: {work / ours / 1e9 / limits.gflops:.1%} of the arithmetic limit,")
    print(f"  {traffic / ours / 1e9 / limits.gigabytes:.1%} of the memory limit; compiled in {compile_seconds:.1f} s")
    return {
        "ratio": other / ours,
        "memory": traffic / ours / 1e9 / limits.gigabytes,
        "load": float(np.mean(os.getloadavg())),
    }


if __name__ == "__main__":
    main()
