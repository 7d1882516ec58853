"""A round of a head over fixed layers: on features that are made once, against the whole network and a PyTorch loop.

FedAvg with EfficientNet-Lite0 (random weights: the work is the same) on random images of 32×32, a local epoch of SGD
with momentum in batches of 128. The PyTorch loop is what one would write: features that were made once, too, and a
linear layer for client after client. The limit is that of `benchmarks.limits`: what a round on features, whole batches
and no padding, must compute and read. All in seconds of processors. Run: NPROC=1 python -m benchmarks.heads
"""

from __future__ import annotations

import time
from collections.abc import Callable

import jax
import numpy as np

import majorant as mj
from benchmarks.limits import busy, counted, machine
from benchmarks.machine import need_torch
from majorant.core import Algorithm
from majorant.data.federated import FederatedData
from majorant.engines.embedding import embedded
from majorant.engines.simulator import planned

CLIENTS, SAMPLES, BATCH, LR, MOMENTUM = 40, 320, 128, 0.01, 0.9


def images() -> FederatedData:
    """Random images of ten classes."""
    rng, count = np.random.default_rng(0), CLIENTS * SAMPLES * 5 // 4
    x, y = rng.integers(0, 256, (count, 32, 32, 3), dtype=np.uint8), rng.integers(0, 10, count)
    return FederatedData.from_arrays(x, y, np.arange(count) % CLIENTS, split=(0.8, 0.0, 0.2), name="images")


def ours(algorithm: Algorithm, data: FederatedData, count: int) -> float:
    """Seconds of processors for a round."""
    simulation = planned(algorithm, data, 1000)
    simulation.start()
    return busy(lambda: simulation.engine.block(count)) / count


def torch_loop(data: FederatedData) -> Callable[[], None]:
    """A round of linear layers, one client after the other, as one would write it in PyTorch."""
    import torch

    shared = torch.nn.Linear(data.train.x.shape[1], 10)
    clients = [(torch.from_numpy(x), torch.from_numpy(y).long()) for x, y in map(data.train.client, range(CLIENTS))]

    def work() -> None:
        means = [torch.zeros_like(p) for p in shared.parameters()]
        for x, y in clients:
            local = torch.nn.Linear(x.shape[1], 10)
            local.load_state_dict(shared.state_dict())
            optimizer = torch.optim.SGD(local.parameters(), lr=LR, momentum=MOMENTUM)
            for rows in torch.randperm(len(y)).split(BATCH):
                optimizer.zero_grad()
                torch.nn.functional.cross_entropy(local(x[rows]), y[rows]).backward()
                optimizer.step()
            for mean, p in zip(means, local.parameters(), strict=True):
                mean += p.detach() / len(clients)
        with torch.no_grad():
            for p, mean in zip(shared.parameters(), means, strict=True):
                p.copy_(mean)

    return work


def main() -> None:
    """A round in three ways, and the limit."""
    need_torch()
    data = images()
    whole = mj.models.efficientnet_lite0(data, normalisation="frozen")
    head = mj.models.frozen_backbone(whole, whole.init(jax.random.key(0)))
    local = lambda size: mj.local_sgd(LR, epochs=1, batch_size=size, momentum=MOMENTUM)
    method = lambda model, size=BATCH: mj.fedavg(model, local=local(size))
    begin = time.process_time()
    features = embedded(data, head)
    once = time.process_time() - begin
    on_features = ours(method(head), data, 10)
    through_network = ours(method(head._replace(embed=None)), data, 1)
    loop = busy(torch_loop(features))
    (flops, moved), limits = counted(method(head, None), features), machine()
    least = max(flops / limits.gflops, moved / limits.gigabytes) / 1e9
    print(f"features of {len(data.train.x) + len(data.test.x):,} images, once: {once:.1f} s of processors")
    print(f"a round on features: {1e3 * on_features:.1f} ms, {on_features / least:.1f} times the limit")
    print(
        f"a round through the whole network: {through_network:.1f} s, {through_network / on_features:.0f} times as long"
    )
    print(f"a PyTorch loop on features: {1e3 * loop:.0f} ms, {loop / on_features:.1f} times as long")


if __name__ == "__main__":
    main()
