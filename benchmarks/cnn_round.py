"""A FedAvg round of the paper's CNN on Fashion-MNIST images: ours against a plain PyTorch loop over clients.

Same images, same network, same batches of 64, one local epoch of SGD with momentum. Without the data set on disk,
random images of the same shape take its place (the work is the same). Run: python -m benchmarks.cnn_round
"""

from __future__ import annotations

import os
import time
from typing import Any

import jax
import numpy as np

import majorant as mj
from benchmarks.machine import need_torch
from majorant.data.federated import FederatedData

CLIENTS, SAMPLES, BATCH, LR, MOMENTUM = 10, 256, 64, 0.05, 0.9


def images() -> FederatedData:
    """A few thousand images spread evenly over clients."""
    count = CLIENTS * SAMPLES * 5 // 4
    try:
        x, y = mj.data.load_fashion_mnist()
        rows = np.random.default_rng(0).permutation(len(x))[:count]
        x, y = x[rows], y[rows]
    except (ValueError, ImportError, OSError):
        rng = np.random.default_rng(0)
        x, y = rng.integers(0, 256, (count, 28, 28, 1), dtype=np.uint8), rng.integers(0, 10, count)
    return FederatedData.from_arrays(x, y, np.arange(count) % CLIENTS, split=(0.8, 0.0, 0.2), name="fashion-mnist")


def torch_round(data: FederatedData) -> Any:
    """A function that runs one round as one would write it in PyTorch."""
    import torch

    torch.manual_seed(0)
    torch.set_num_threads(os.cpu_count() or 1)
    device = "cuda" if torch.cuda.is_available() and jax.default_backend() != "cpu" else "cpu"
    make = lambda: torch.nn.Sequential(
        torch.nn.Conv2d(1, 32, 3, padding=1), torch.nn.ReLU(), torch.nn.MaxPool2d(2),
        torch.nn.Conv2d(32, 64, 3, padding=1), torch.nn.ReLU(), torch.nn.MaxPool2d(2),
        torch.nn.Flatten(), torch.nn.Linear(64 * 49, 128), torch.nn.ReLU(), torch.nn.Linear(128, 10),
    ).to(device)  # fmt: skip
    shared = make()
    clients = []
    for t in range(data.clients):
        x, y = data.train.client(t)
        clients.append(
            (torch.from_numpy(x).to(device).permute(0, 3, 1, 2).float() / 255, torch.from_numpy(y).long().to(device))
        )

    def work() -> None:
        mean = [torch.zeros_like(p) for p in shared.parameters()]
        for x, y in clients:
            local = make()
            local.load_state_dict(shared.state_dict())
            optimizer = torch.optim.SGD(local.parameters(), lr=LR, momentum=MOMENTUM)
            for rows in torch.randperm(len(y)).split(BATCH):
                optimizer.zero_grad()
                torch.nn.functional.cross_entropy(local(x[rows]), y[rows]).backward()
                optimizer.step()
            for m, p in zip(mean, local.parameters(), strict=True):
                m += p.detach() / len(clients)
        with torch.no_grad():
            for p, m in zip(shared.parameters(), mean, strict=True):
                p.copy_(m)
        if device == "cuda":
            torch.cuda.synchronize()

    return work


def main() -> None:
    """Prints microseconds per image of both, for one client at a time and side by side."""
    need_torch()
    data = images()
    images_per_round = len(data.train.y)
    local = mj.local_sgd(LR, epochs=1, batch_size=BATCH, momentum=MOMENTUM)
    algorithm = mj.fed_avg(mj.models.cnn(data), local=local)
    theirs = torch_round(data)
    best = {"map": float("inf"), "vmap": float("inf"), "torch": float("inf")}
    compile_seconds = 0.0
    theirs()
    for _ in range(3):
        for batching in ("map", "vmap"):
            run = mj.simulate(algorithm, data, rounds=2, evaluate_every=2, clients=batching)
            best[batching] = min(best[batching], run.seconds["train"] / 2)
            compile_seconds = max(compile_seconds, run.seconds["compile"])
        begin = time.perf_counter()
        theirs()
        best["torch"] = min(best["torch"], time.perf_counter() - begin)
    micro = {k: 1e6 * v / images_per_round for k, v in best.items()}
    auto = "map" if jax.default_backend() == "cpu" else "vmap"
    print(f"FedAvg round of the CNN, {CLIENTS} clients × {SAMPLES} images, batches of {BATCH}, {jax.default_backend()}")
    print(f"  per image: one client at a time {micro['map']:.0f} µs, side by side {micro['vmap']:.0f} µs,", end=" ")
    print(f"PyTorch loop {micro['torch']:.0f} µs; compiled in at most {compile_seconds:.1f} s")
    print(f"  ours ({auto}, what 'auto' picks) takes {micro[auto] / micro['torch']:.2f} of PyTorch's time")


if __name__ == "__main__":
    main()
