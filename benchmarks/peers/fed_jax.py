"""FedJAX's own federated averaging, with the models of the loop in JAX.

Its models in Haiku, files and downloads are not used, and the packages for them may be absent.
"""
# ruff: noqa: E402 - what may be absent is said before the imports

from __future__ import annotations

from functools import partial

import jax
import numpy as np

from benchmarks.peers.absent import may_be_absent

may_be_absent("haiku", "msgpack", "requests")
jax.tree_map = jax.tree.map  # JAX has moved it since the last release of FedJAX

import fedjax
from fedjax.algorithms.fed_avg import federated_averaging
from fedjax.version import __version__

from benchmarks.peers.clock import Clock, work_file
from benchmarks.peers.jax_loop import model
from benchmarks.peers.work import load


def main() -> None:
    """Its backend for one device compiles a step and loops over clients and batches."""
    work, train, test = load(work_file())
    shared, loss, right = model(work, test)
    gradient = jax.grad(lambda params, batch, _: loss(params, batch["x"], batch["y"])[0])
    batches = fedjax.ShuffleRepeatBatchHParams(batch_size=work.batch, num_epochs=1)
    sgd = fedjax.optimizers.sgd
    algorithm = federated_averaging(gradient, sgd(work.lr), sgd(1.0), batches)
    rows = [fedjax.ClientDataset({"x": x, "y": y}) for x, y in zip(train.x, train.y, strict=True)]
    keys = jax.random.split(jax.random.PRNGKey(0), work.clients)
    clients = [(str(t).encode(), rows[t], keys[t]) for t in range(work.clients)]
    rng = np.random.default_rng(0)
    state = algorithm.init(shared)
    clock = Clock(work)
    clock.ready()
    for _ in range(work.rounds):
        chosen = [clients[t] for t in rng.choice(work.clients, work.sampled, replace=False)]
        state, _ = algorithm.apply(state, chosen)
        jax.block_until_ready(state.params)
        clock.round(partial(right, state.params))
    clock.finish(version=f"fedjax {__version__}, jax {jax.__version__}")


if __name__ == "__main__":
    main()
