"""A round of the paper's CNN on Fashion-MNIST images: ours against a plain PyTorch loop over clients.

FedAvg, and FedEM with three components: same images, same network, same batches of 128 (the FedEM authors' size), one
local epoch of SGD with momentum; FedEM also goes through all samples in its E-step. Without the data set on disk,
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

CLIENTS, SAMPLES, BATCH, LR, MOMENTUM = 6, 384, 128, 0.05, 0.9


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


def torch_round(data: FederatedData, components: int) -> Any:
    """A function that runs one round as one would write it in PyTorch: FedAvg for one component, else FedEM."""
    import torch

    torch.manual_seed(0)
    torch.set_num_threads(os.cpu_count() or 1)
    device = "cuda" if torch.cuda.is_available() and jax.default_backend() != "cpu" else "cpu"
    make = lambda: torch.nn.Sequential(
        torch.nn.Conv2d(1, 32, 3, padding=1), torch.nn.ReLU(), torch.nn.MaxPool2d(2),
        torch.nn.Conv2d(32, 64, 3, padding=1), torch.nn.ReLU(), torch.nn.MaxPool2d(2),
        torch.nn.Flatten(), torch.nn.Linear(64 * 49, 128), torch.nn.ReLU(), torch.nn.Linear(128, 10),
    ).to(device)  # fmt: skip
    loss = torch.nn.functional.cross_entropy
    shared = [make() for _ in range(components)]
    clients = []
    for t in range(data.clients):
        x, y = data.train.client(t)
        pixels = torch.from_numpy(x).to(device).permute(0, 3, 1, 2).float() / 255
        clients.append((pixels, torch.from_numpy(y).long().to(device)))
    pi = torch.full((data.clients, components), 1 / components, device=device)

    def work() -> None:
        means = [[torch.zeros_like(p) for p in model.parameters()] for model in shared]
        for t, (x, y) in enumerate(clients):
            q = torch.ones(len(y), 1, device=device)
            if components > 1:
                with torch.no_grad():
                    losses = torch.stack([loss(model(x), y, reduction="none") for model in shared], dim=1)
                    q = torch.softmax(torch.log(pi[t]) - losses, dim=1)
                    pi[t] = q.mean(dim=0)
            for m, model in enumerate(shared):
                local = make()
                local.load_state_dict(model.state_dict())
                optimizer = torch.optim.SGD(local.parameters(), lr=LR, momentum=MOMENTUM)
                for rows in torch.randperm(len(y)).split(BATCH):
                    optimizer.zero_grad()
                    each = loss(local(x[rows]), y[rows], reduction="none")
                    ((q[rows, m] * each).sum() / len(rows)).backward()
                    optimizer.step()
                for mean, p in zip(means[m], local.parameters(), strict=True):
                    mean += p.detach() / len(clients)
        with torch.no_grad():
            for model, mean in zip(shared, means, strict=True):
                for p, value in zip(model.parameters(), mean, strict=True):
                    p.copy_(value)
        if device == "cuda":
            torch.cuda.synchronize()

    return work


def measure(data: FederatedData, name: str, components: int) -> None:
    """Prints microseconds per image of both, for one client at a time and side by side."""
    local = mj.local_sgd(LR, epochs=1, batch_size=BATCH, momentum=MOMENTUM)
    model = mj.models.cnn(data)
    one = mj.fedavg(model, local=local)
    algorithm = one if components == 1 else mj.fedem(model, components=components, local=local)
    theirs = torch_round(data, components)
    best = {"map": float("inf"), "vmap": float("inf"), "torch": float("inf")}
    theirs()
    for _ in range(4):
        for batching in ("map", "vmap"):
            run = mj.simulate(
                algorithm, data, rounds=2, evaluation=mj.Evaluation(every=2), resources=mj.Resources(clients=batching)
            )
            best[batching] = min(best[batching], run.seconds["train"] / 2)
        begin = time.perf_counter()
        theirs()
        best["torch"] = min(best["torch"], time.perf_counter() - begin)
    micro = {k: 1e6 * v / len(data.train.y) for k, v in best.items()}
    auto = "map" if jax.default_backend() == "cpu" else "vmap"
    print(f"{name} round of the CNN, {CLIENTS} clients × {SAMPLES} images, batches of {BATCH}, {jax.default_backend()}")
    print(f"  per image: one client at a time {micro['map']:.0f} µs, side by side {micro['vmap']:.0f} µs,", end=" ")
    print(f"PyTorch loop {micro['torch']:.0f} µs")
    print(f"  ours ({auto}, what 'auto' picks) takes {micro[auto] / micro['torch']:.2f} of PyTorch's time", flush=True)


def main() -> None:
    """FedAvg and FedEM."""
    need_torch()
    data = images()
    measure(data, "FedAvg", 1)
    measure(data, "FedEM", 3)


if __name__ == "__main__":
    main()
