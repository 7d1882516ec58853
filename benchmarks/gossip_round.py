"""A round of gossip for 16 to 10,000 nodes, dense and sparse, against a NumPy loop over nodes doing the same work.

Every node trains a logistic regression (50 features, 32 samples) for one epoch of shuffled batches of 16 and averages
with its neighbours. Only the mixing is also set against the machine's limit: it reads each neighbour's model once.
Run: python -m benchmarks.gossip_round
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import majorant as mj
from benchmarks.machine import best_of, measure_limits
from majorant.data.federated import FederatedData
from majorant.exchange.topology import Topology

FEATURES, SAMPLES, BATCH, LR, ROUNDS = 50, 32, 16, 0.1, 20
CASES: tuple[tuple[str, Topology, tuple[int, ...]], ...] = (
    ("ring", mj.topology.ring(), (16, 100, 1000, 10_000)),
    ("torus", mj.topology.torus(), (16, 100, 1000, 10_000)),
    ("exponential", mj.topology.exponential(), (16, 100, 1000, 10_000)),
    ("complete", mj.topology.complete(), (16, 100, 1000)),
)


def problem(nodes: int) -> FederatedData:
    """The same number of samples on every node."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(nodes * SAMPLES * 5 // 4, FEATURES)).astype(np.float32)
    y = (x @ rng.normal(size=FEATURES) > 0).astype(np.int32)
    return FederatedData.from_arrays(x, y, np.arange(len(x)) % nodes, split=(0.8, 0.0, 0.2), name="peers")


class NumpyGossip:
    """Decentralized FedAvg as one would write it in NumPy: a loop over nodes, batches and neighbours."""

    def __init__(self, data: FederatedData, mixing: Any) -> None:
        self.clients = [data.train.client(t) for t in range(data.clients)]
        identity = jnp.eye(data.clients) if data.clients <= 2048 else None
        everyone = jnp.ones(data.clients, bool)
        if identity is not None:
            weights = np.asarray(mixing.mix(identity, everyone))
            self.links = [(np.flatnonzero(row), row[np.flatnonzero(row)]) for row in weights]
        else:
            own, index, weight = (np.asarray(a) for a in (mixing.own, mixing.index, mixing.weight))
            self.links = [
                (np.append(index[i], i), np.append(weight[i], own[i]).astype(np.float32)) for i in range(data.clients)
            ]
        self.w = np.zeros((data.clients, FEATURES + 1), np.float32)
        self.rng = np.random.default_rng(0)

    def round(self) -> None:
        """One round of all nodes."""
        reached = np.empty_like(self.w)
        for t, (x, y) in enumerate(self.clients):
            w = self.w[t].copy()
            order = self.rng.permutation(len(y))
            for begin in range(0, len(y), BATCH):
                rows = order[begin : begin + BATCH]
                error = 1 / (1 + np.exp(-(x[rows] @ w[:-1] + w[-1]))) - y[rows]
                w[:-1] -= LR * (error @ x[rows]) / len(rows)
                w[-1] -= LR * error.mean()
            reached[t] = w
        for t, (neighbours, weights) in enumerate(self.links):
            self.w[t] = weights @ reached[neighbours]


def measure(name: str, topology: Topology, nodes: int, bandwidth: float) -> None:
    """A line for one network."""
    data = problem(nodes)
    local = mj.local_sgd(LR, epochs=1, batch_size=BATCH)
    algorithm, peers = mj.fedavg(mj.models.linear(data), local=local), mj.gossip(topology)
    run = lambda: mj.simulate(algorithm, data, rounds=ROUNDS, evaluation=mj.Evaluation(every=ROUNDS), exchange=peers)
    network = run().federation.exchange.network  # the first run compiles
    ours = min(run().seconds["train"] / ROUNDS for _ in range(3))
    draw = lambda: network.draw(jax.random.key(0), 0)
    loop = NumpyGossip(data, draw())
    theirs = best_of(loop.round, 3 if nodes < 5000 else 1)
    x, everyone = jnp.ones((nodes, FEATURES + 1)), jnp.ones(nodes, bool)
    mix = jax.jit(lambda x: draw().mix(x, everyone))
    mixing = best_of(lambda: jax.block_until_ready(mix(x)))
    links = int(draw().messages(everyone))
    moved = 4 * (FEATURES + 1) * (links + 2 * nodes)  # neighbours and itself read, the result written
    print(
        f"{name:12s} {nodes:6d} nodes {links:9d} links: round {1e3 * ours:8.2f} ms, NumPy loop {1e3 * theirs:9.1f} ms, "
        f"{theirs / ours:6.1f} times faster; mixing {1e3 * mixing:7.3f} ms, "
        f"{100 * moved / mixing / 1e9 / bandwidth:4.0f} % of the memory limit",
        flush=True,
    )


def main() -> None:
    """All networks and sizes."""
    limits = measure_limits()
    for name, topology, sizes in CASES:
        for nodes in sizes:
            measure(name, topology, nodes, limits.gigabytes)


if __name__ == "__main__":
    main()
