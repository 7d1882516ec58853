"""A compiled local epoch in JAX and a Python loop over clients: what FedJAX's simplest backend does."""

from __future__ import annotations

import itertools
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax

from benchmarks.peers.clock import Clock, work_file
from benchmarks.peers.work import load


def main() -> None:
    """FedAvg on linear models and perceptrons."""
    work, train, test = load(work_file())
    if work.model == "cnn":
        raise SystemExit("not written for images")
    sizes = [train.x.shape[-1], *([work.hidden] if work.model == "mlp" else []), work.classes]
    rng = np.random.default_rng(0)
    shared = [
        (jnp.asarray(rng.uniform(-1, 1, (a, b)) / np.sqrt(a), jnp.float32), jnp.zeros(b))
        for a, b in itertools.pairwise(sizes)
    ]

    def logits(layers, x):
        for weights, offset in layers[:-1]:
            x = jax.nn.relu(x @ weights + offset)
        return x @ layers[-1][0] + layers[-1][1]

    def loss(layers, x, y):
        return optax.softmax_cross_entropy_with_integer_labels(logits(layers, x), y).mean()

    @jax.jit
    def epoch(layers, x, y, order):
        def step(layers, rows):
            slope = jax.grad(loss)(layers, x[rows], y[rows])
            return jax.tree.map(lambda p, g: p - work.lr * g, layers, slope), None

        return jax.lax.scan(step, layers, order.reshape(-1, work.batch))[0]

    add = jax.jit(partial(jax.tree.map, jnp.add))
    scale = jax.jit(lambda layers: jax.tree.map(lambda p: p / work.sampled, layers))
    right = jax.jit(lambda layers: (logits(layers, test.x).argmax(-1) == test.y).mean())
    clients = [(jnp.asarray(x), jnp.asarray(y)) for x, y in zip(train.x, train.y, strict=True)]
    clock = Clock(work)
    clock.ready()
    for _ in range(work.rounds):
        total = jax.tree.map(jnp.zeros_like, shared)
        for t in rng.choice(work.clients, work.sampled, replace=False):
            total = add(total, epoch(shared, *clients[t], rng.permutation(work.rows)))
        shared = jax.block_until_ready(scale(total))
        clock.round(partial(right, shared))
    clock.finish(version=f"jax {jax.__version__}")


if __name__ == "__main__":
    main()
