"""How fast a CNN trains on this machine with our ``conv2d``, against PyTorch and against XLA's own convolution.

The network is ``models.cnn`` on 28×28 images: 3×3 convolutions to 32 and 64 channels, each with 2×2 max pooling, then
128 hidden units. Every line is the same work: CLIENTS clients make STEPS steps of SGD each on batches of BATCH images.
(Single jitted steps suffer from something the loops do not: fresh memory at every call.)
Repeats are interleaved and the best of each is kept, because a busy machine is noisy; compare the ratios, not the
seconds. Run it with ``python benchmarks/convolution.py``.
"""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Callable
from typing import Any
from unittest import mock

import jax
import jax.numpy as jnp
from jax import lax

from majorant.models import Model, Spec, builtin, cnn, conv2d
from majorant.models.convolution import Method

try:
    import torch
    from torch import nn
except ImportError as missing:
    raise SystemExit('this benchmark compares with PyTorch: pip install "majorant[benchmark]"') from missing

CLIENTS, STEPS, BATCH, REPEATS, LEARNING_RATE = 8, 4, 64, 4, 0.01
SPEC = Spec((28, 28), classes=10)
LOOPS = {"one client at a time": "map", "vmap over clients": "vmap"}

key = jax.random.key(0)
x = jax.random.uniform(key, (CLIENTS, STEPS, BATCH, 28, 28))
y = jax.random.randint(key, (CLIENTS, STEPS, BATCH), 0, 10)


def sgd_step(model: Model, params: Any, x: jax.Array, y: jax.Array) -> Any:
    """One step of gradient descent on the mean loss of a batch."""
    gradient = jax.grad(lambda p: model.losses(p, x, y).mean())(params)
    return jax.tree.map(lambda p, g: p - LEARNING_RATE * g, params, gradient)


def train(model: Model, params: Any, x: jax.Array, y: jax.Array) -> Any:
    """One client's steps, in one compiled loop."""
    return lax.scan(lambda p, batch: (sgd_step(model, p, *batch), None), params, (x, y))[0]


def compiled(method: Method, clients: str, steps: int = STEPS) -> Callable[[], Any]:
    """All clients' steps with the given convolution, ``clients`` being "vmap", "map" or "steps" (no compiled loop)."""
    model = cnn(SPEC)
    images, labels = x[:, :steps], y[:, :steps]
    one = model.init(key)
    # The convolution is chosen when the model is traced, so everything is compiled inside this block.
    with mock.patch.object(builtin, "conv2d", functools.partial(conv2d, method=method)):
        if clients == "steps":
            batches = [(images[m, t], labels[m, t]) for m in range(CLIENTS) for t in range(steps)]
            step = jax.jit(functools.partial(sgd_step, model)).lower(one, *batches[0]).compile()
            return lambda: functools.reduce(lambda params, batch: step(params, *batch), batches, one)
        everyone = jax.tree.map(lambda p: jnp.repeat(p[None], CLIENTS, axis=0), one)
        client = functools.partial(train, model)
        many = jax.vmap(client) if clients == "vmap" else lambda *args: lax.map(lambda a: client(*a), args)
        run = jax.jit(many).lower(everyone, images, labels).compile()
        return lambda: run(everyone, images, labels)


def pytorch() -> Callable[[], Any]:
    """The same network and steps in PyTorch, eager, with as many threads as there are cores."""
    torch.set_num_threads(os.cpu_count() or 1)
    block = lambda a, b: [nn.Conv2d(a, b, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
    dense = [nn.Flatten(), nn.Linear(64 * 7 * 7, 128), nn.ReLU(), nn.Linear(128, 10)]
    network = nn.Sequential(*block(1, 32), *block(32, 64), *dense)
    optimizer = torch.optim.SGD(network.parameters(), LEARNING_RATE)
    images, labels = torch.tensor(jax.device_get(x)), torch.tensor(jax.device_get(y)).long()

    def run() -> None:
        for m in range(CLIENTS):
            for t in range(STEPS):
                optimizer.zero_grad()
                nn.functional.cross_entropy(network(images[m, t, :, None]), labels[m, t]).backward()
                optimizer.step()

    return run


def best(candidates: dict[str, Callable[[], Any]], repeats: int) -> dict[str, float]:
    """The best time of each candidate; one repeat of everything comes before the next."""
    seconds = dict.fromkeys(candidates, float("inf"))
    for _ in range(repeats):
        for name, run in candidates.items():
            start = time.perf_counter()
            jax.block_until_ready(run())
            seconds[name] = min(seconds[name], time.perf_counter() - start)
    return seconds


def work_per_step() -> float:
    """Floating point operations of the matrix products of one step: forward, dW, and dX after the first layer."""
    first, second = 28 * 28 * 9 * 1 * 32, 14 * 14 * 9 * 32 * 64
    dense = 64 * 7 * 7 * 128 + 128 * 10
    return 2 * BATCH * (2 * first + 3 * second + 3 * dense)


def main() -> None:
    """Measures everything and prints the table."""
    square = jnp.ones((2048, 2048))
    product = jax.jit(jnp.matmul)
    candidates = {
        "PyTorch eager": pytorch(),
        **{f"conv2d, {name}": compiled("patches", how) for name, how in LOOPS.items()},
        "conv2d, jitted steps": compiled("patches", "steps"),
        "XLA convolution, jitted steps": compiled("xla", "steps"),
        "matrix product 2048³": lambda: product(square, square),
    }
    seconds = best(candidates, REPEATS)
    # In compiled loops XLA's convolution can be so slow that one step of every client, once, must do.
    slow = {f"XLA convolution, {name}": compiled("xla", how, steps=1) for name, how in LOOPS.items()}
    seconds |= {name: value * STEPS for name, value in best(slow, 1).items()}
    limit = 2 * 2048**3 / seconds.pop("matrix product 2048³")
    work = CLIENTS * STEPS * work_per_step()
    print(f"{jax.default_backend()}: {limit / 1e9:.0f} GFLOP/s in a matrix product; batches of {BATCH}")
    print(f"{'':40}{'ms/step':>10}{'/ PyTorch':>12}{'of limit':>12}")
    for name, value in seconds.items():
        per_step = 1e3 * value / (CLIENTS * STEPS)
        print(f"{name:40}{per_step:10.2f}{value / seconds['PyTorch eager']:12.2f}{work / value / limit:12.0%}")


if __name__ == "__main__":
    main()
