"""A compiled local epoch in JAX and a Python loop over clients: what FedJAX's simplest backend does.

Linear models and perceptrons are written out; networks for images are our functions, without the rest of the library.
"""

from __future__ import annotations

import itertools
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.peers.clock import Clock, work_file
from benchmarks.peers.work import Split, Work, load


def dense(work: Work, features: int) -> tuple[Any, Any]:
    """Parameters of a linear model or perceptron, and its logits in training."""
    sizes = [features, *([work.hidden] if work.model == "mlp" else []), work.classes]
    rng = np.random.default_rng(0)
    layers = [
        (jnp.asarray(rng.uniform(-1, 1, (a, b)) / np.sqrt(a), jnp.float32), jnp.zeros(b))
        for a, b in itertools.pairwise(sizes)
    ]

    def logits(layers, x):
        given = layers
        for weights, offset in layers[:-1]:
            x = jax.nn.relu(x @ weights + offset)
        return x @ layers[-1][0] + layers[-1][1], given

    return layers, logits


def convolutional(work: Work, shape: tuple[int, ...]) -> tuple[Any, Any]:
    """The same of the networks for images; statistics of batches are refreshed among the parameters."""
    from benchmarks.peers.ours import network
    from majorant.models.base import Draw, Spec

    ours = network(work, Spec(shape, classes=work.classes))

    def logits(params, x):
        if ours.train_apply is None:
            return ours.apply(params, x), params
        return ours.train_apply(params, x, Draw(jax.random.key(0), jnp.ones(len(x))))

    return jax.jit(ours.init)(jax.random.key(0)), logits


def model(work: Work, test: Split) -> tuple[Any, Any, Any]:
    """Parameters to start with, the loss of a batch with refreshed ones, and the share of test rows that are right."""
    shape = test.x.shape[2:]
    params, logits = dense(work, shape[-1]) if len(shape) == 1 else convolutional(work, shape)

    def loss(params, x, y):
        outputs, refreshed = logits(params, x)
        told = jnp.take_along_axis(jax.nn.log_softmax(outputs), y[:, None], axis=1)
        return -told.mean(), refreshed

    x, y = test.x.reshape(-1, *shape), test.y.reshape(-1)
    return params, loss, jax.jit(lambda params: (logits(params, x)[0].argmax(-1) == y).mean())


def main() -> None:
    """FedAvg."""
    work, train, test = load(work_file())
    shared, loss, right = model(work, test)

    @jax.jit
    def epoch(params, x, y, order):
        def step(params, rows):
            slope, refreshed = jax.grad(loss, has_aux=True)(params, x[rows], y[rows])
            return jax.tree.map(lambda p, g: p - work.lr * g, refreshed, slope), None

        return jax.lax.scan(step, params, order.reshape(-1, work.batch))[0]

    add = jax.jit(partial(jax.tree.map, jnp.add))
    scale = jax.jit(lambda params: jax.tree.map(lambda p: p / work.sampled, params))
    clients = [(jnp.asarray(x), jnp.asarray(y)) for x, y in zip(train.x, train.y, strict=True)]
    rng = np.random.default_rng(0)
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
