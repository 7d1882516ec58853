"""How much fits: the memory that a run may use, and how many clients go side by side within it."""

from __future__ import annotations

import functools
import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from majorant.core import BLOCK_VALUES, Algorithm, ClientData, Stack, Upload, tree_bytes
from majorant.data.federated import FederatedData
from majorant.engines.population import Bucket
from majorant.exchange.participation import Participation

CACHE_BYTES = 4 << 20  # a chunk's samples on a CPU: about what its cache holds
LARGE_MODEL = 20_000  # parameters above which, on a CPU, one client at a time fills the machine


def chunk_size(budget: int) -> int:
    """Bytes of training samples that run side by side: what a CPU's cache holds, or much of a GPU's memory."""
    return min(CACHE_BYTES if jax.default_backend() == "cpu" else 1 << 30, max(1, budget // 8))


def most_side_by_side(algorithm: Algorithm, data: FederatedData, budget: int, runs: int) -> int:
    """How many clients fit the budget side by side, by the size of all intermediate results of a prediction."""
    rows = int(max(data.train.sizes.max(), data.test.sizes.max(), 1))
    rows = min(rows, max(64, BLOCK_VALUES // max(1, int(np.prod(data.spec.features)))))
    one = shapes_of(tiny_client(data))
    two = one._replace(x=longer(one.x), y=longer(one.y))
    first = values_of_a_prediction(algorithm, one)
    each = values_of_a_prediction(algorithm, two) - first  # what a further sample adds: parameters are there once
    return int(max(1, budget // 4 // max(1, 4 * runs * (first + each * (rows - 1)))))


def longer(samples: Any) -> Any:
    """The shape with one more sample."""
    return jax.ShapeDtypeStruct((samples.shape[0] + 1, *samples.shape[1:]), samples.dtype)


def shapes_of(client: ClientData) -> ClientData:
    """Shapes and types in place of arrays: what tracing needs, and a key to remember its results by."""
    return jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape, a.dtype), client)


@functools.lru_cache(maxsize=64)
def values_of_a_prediction(algorithm: Algorithm, one: ClientData) -> int:
    """The values that joining and predicting produce on their way, for a client of this shape."""

    def predict(key: jax.Array, one: ClientData) -> jax.Array:
        view = algorithm.broadcast(algorithm.init(key), key)
        model = algorithm.deploy(view, algorithm.join(view, one, key), one, key)
        return algorithm.predict(model, one.x) if algorithm.losses is None else algorithm.losses(model, one.x, one.y)

    return intermediate_values(jax.make_jaxpr(predict)(jax.random.key(0), one).jaxpr)


def intermediate_values(jaxpr: Any) -> int:
    """The number of values that the operations of a program produce, loops once."""
    return sum(produced(jaxpr))


def largest_value(jaxpr: Any) -> int:
    """The number of values in the largest array that a program produces on its way."""
    return max(produced(jaxpr))


def produced(jaxpr: Any) -> Iterator[int]:
    """The sizes of all arrays that the operations of a program produce, loops once."""
    for equation in jaxpr.eqns:
        yield from (int(np.prod(v.aval.shape)) for v in equation.outvars if hasattr(v.aval, "shape"))
        for value in jax.tree.leaves(list(equation.params.values()), is_leaf=lambda v: hasattr(v, "eqns")):
            inner = getattr(value, "jaxpr", value)
            if hasattr(inner, "eqns"):
                yield from produced(inner)


def fewer(bucket: Bucket, share: float) -> int:
    """How many clients run side by side when about ``share`` of the bucket's take part."""
    expected = share * bucket.real + (share * (1 - share) * bucket.real) ** 0.5
    return int(np.clip(round(expected), 1, bucket.chunk))


def runs_one_at_a_time(algorithm: Algorithm, clients: str) -> bool:
    """Whether clients go through one by one: large models on a CPU, unless said otherwise."""
    if clients not in ("auto", "vmap", "map"):
        raise ValueError(f"clients must be 'auto', 'vmap' or 'map', got {clients!r}")
    return fills_the_machine(algorithm) if clients == "auto" else clients == "map"


def runs_in_turn(algorithm: Algorithm) -> bool:
    """Whether the runs of a grid, or of several seeds, go one after the other: on a CPU, where rounds differ in length
    (all would wait for the longest) and where one model is work enough (the others would push it out of the cache)."""
    return fills_the_machine(algorithm) or (algorithm.uneven_rounds and jax.default_backend() == "cpu")


def fills_the_machine(algorithm: Algorithm) -> bool:
    """Whether one client's work on one model keeps the device busy: large models on a CPU."""
    return jax.default_backend() == "cpu" and parameters(algorithm) > LARGE_MODEL


@functools.lru_cache(maxsize=64)
def parameters(algorithm: Algorithm) -> int:
    """The numbers in the point that a client starts from."""
    server = jax.eval_shape(algorithm.init, jax.random.key(0))
    seen = lambda server, key: algorithm.address(algorithm.broadcast(server, key), jnp.int32(0))
    view = jax.eval_shape(seen, server, jax.random.key(0))
    return sum(leaf.size for leaf in jax.tree.leaves(algorithm.origin(view)))


def message_bytes(algorithm: Algorithm, data: FederatedData, bucket: Bucket) -> tuple[int, int, int]:
    """Bytes that a client sends and is sent in a round, and bytes of its private state."""
    up, down, client = message_shapes(algorithm, jax.tree.map(lambda a: a[0], bucket.train(data, np.array([0]))))
    return algorithm.wire(up.value), tree_bytes(down), tree_bytes(client)


def message_shapes(algorithm: Algorithm, one: ClientData) -> tuple[Upload, Any, Any]:
    """The shapes of what a client uploads, is sent and keeps. Tracing a round brings out a method's complaints, too."""
    return traced_message(algorithm, shapes_of(one), jnp.result_type(float))


@functools.lru_cache(maxsize=64)
def traced_message(algorithm: Algorithm, one: ClientData, precision: Any) -> tuple[Upload, Any, Any]:
    """`message_shapes` for a client of this shape, in this precision."""

    def message(data: ClientData, key: jax.Array) -> Any:
        view = algorithm.address(algorithm.broadcast(algorithm.init(key), key), data.id)
        client = algorithm.init_client(view, data, key)
        return algorithm.client_update(view, client, data, key)[0], view.value, client

    return jax.eval_shape(message, one, jax.random.key(0))


def tiny_client(data: FederatedData) -> ClientData:
    """A client with one sample of zeros."""
    x, y = jnp.zeros((1, *data.spec.features), data.train.x.dtype), jnp.zeros(1, data.train.y.dtype)
    return ClientData(x, y, jnp.int32(1), jnp.int32(np.flatnonzero(~data.unseen)[0]))


def refuse_too_large_stack(algorithm: Algorithm, clients: int, padded: ClientData, runs: int, budget: int) -> None:
    """Methods that need every upload side by side cannot work in chunks: all must fit, with what they make of it."""
    if algorithm.aggregate is None:
        return
    aggregate = algorithm.aggregate

    def whole(key: jax.Array, one: ClientData) -> Any:
        server = algorithm.init(key)
        view = algorithm.address(algorithm.broadcast(server, key), one.id)
        upload = algorithm.client_update(view, algorithm.init_client(view, one, key), one, key)[0]
        stacked = jax.tree.map(lambda a: jnp.zeros((clients, *a.shape), a.dtype), (upload.value, upload.weight))
        return server, stacked, aggregate(server, Stack(*stacked))

    one = jax.tree.map(lambda a: a[0], padded)
    traced, shapes = jax.make_jaxpr(whole, return_shape=True)(jax.random.key(0), one)
    needed = runs * (2 * tree_bytes(shapes[:2]) + 4 * largest_value(traced.jaxpr))
    if needed > budget:
        raise ValueError(
            f"{algorithm.name} holds the uploads of all {clients} clients side by side, which takes about "
            f"{needed / 2**30:.2g} GiB, more than the budget of {budget / 2**30:.2g} GiB: give fewer clients or seeds, "
            "a smaller model or a larger memory budget, or take a method that averages at a server"
        )


def refuse_absences(algorithm: Algorithm, participation: Participation, data: FederatedData) -> None:
    """Some methods need everybody in every round, and so do networks whose links are one-sided."""
    if not algorithm.needs_everyone or participation.probability(int((~data.unseen).sum())) == 1:
        return
    why = "" if algorithm.network is None else " (its network's links are one-sided: absences would move the mean)"
    raise ValueError(
        f"{algorithm.name} must see every client in every round{why} and cannot run with participation"
        f" {participation.name!r}: use full participation"
    )


def refuse_other_nodes(algorithm: Algorithm, training: np.ndarray) -> None:
    """A network must have been laid out for the clients that train."""
    if algorithm.network is not None and not np.array_equal(algorithm.network().ids, training):
        raise ValueError(
            f"{algorithm.name} was made for a network of {len(algorithm.network().ids)} nodes that are not the "
            f"{len(training)} clients of this data that train: make it anew, as in gossip(algorithm, topology, data)"
        )


def rounds_that_count(algorithm: Algorithm, clients: int) -> int:
    """For how many rounds the number of messages surely fits a 32-bit counter."""
    most = clients * max(algorithm.traffic.parts if algorithm.traffic else (1, 1))
    if algorithm.network is not None:
        network = algorithm.network().network
        shapes = jax.tree.leaves(jax.eval_shape(network.draw, jax.random.key(0), 1))
        most = max(math.prod(leaf.shape) for leaf in shapes)
    return max(1, min(1 << 20, (1 << 31) // (most + 1)))


def default_budget() -> int:
    """Half of the memory of the device, or of the machine."""
    stats = jax.devices()[0].memory_stats() if jax.default_backend() != "cpu" else None
    if stats and "bytes_limit" in stats:
        return int(stats["bytes_limit"]) // 2
    memory = 8 << 30
    if hasattr(os, "sysconf"):
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limit = Path("/sys/fs/cgroup/memory.max")  # of a container
    if limit.exists() and limit.read_text().strip().isdigit():
        memory = min(memory, int(limit.read_text()))
    return memory // 2
