"""How much fits: the memory that a run may use, and how many clients go side by side within it."""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from majorant.core import BLOCK_VALUES, Algorithm, ClientData, Uploads, tree_bytes
from majorant.data.federated import FederatedData
from majorant.engines import forging, set_up
from majorant.engines.embedding import is_embedded
from majorant.engines.messages import message_shapes, shapes_of, tiny_client
from majorant.engines.population import USUAL_BATCH, Bucket
from majorant.exchange._stage import numbers_sent
from majorant.exchange.federation import Federation
from majorant.math.room import machine_memory, refuse_too_large
from majorant.models.lstm import check_codes

BUSY_BYTES = 3 << 29  # of matrix products' results, in single precision, made while a step's kernels are launched
KEPT_TIMES = 6  # how often a training step holds each product: normalised, activated, and the gradients of these
MORE_PER_SAMPLE = 8  # times what one sample takes: more than a further one can add
CACHE_BYTES = 2 << 20  # a chunk's samples on a CPU: about what a core's own cache holds
SEEDS_IN_CACHE = 4  # whose minibatches it holds beside each other
COPIES = 8  # of a client's parameters that a round holds: found, sent, moments, before and after
HISTORY_BYTES = 4096  # of a run, at least: its settings, counters and lines
LARGE_MODEL = 20_000  # parameters above which, on a CPU, one client at a time fills the machine


def chunk_size(budget: int, seeds: int = 1) -> int:
    """Bytes of training samples that run side by side: what a CPU's cache holds, or much of a GPU's memory.

    Seeds side by side gather minibatches of their own, which a CPU's cache holds for a few of them.
    """
    cached = CACHE_BYTES // max(1, seeds // SEEDS_IN_CACHE)
    return min(cached if jax.default_backend() == "cpu" else 1 << 30, max(1, budget // 8))


def clients_that_saturate(algorithm: Algorithm, data: FederatedData, runs: int) -> int | None:
    """How many clients' steps take a GPU as long as launching a step's kernels, by the matrix products of a batch."""
    if jax.default_backend() == "cpu":
        return None
    return max(1, BUSY_BYTES // bytes_of_products(algorithm, data, runs))


def bytes_of_products(algorithm: Algorithm, data: FederatedData, runs: int) -> int:
    """The bytes of the matrix products that a client's batch makes in a prediction."""
    one = shapes_of(tiny_client(data))
    two = one._replace(x=longer(one.x), y=longer(one.y))
    each = values_of_products(algorithm, two) - values_of_products(algorithm, one)
    rows = int(min(max(data.train.sizes.max(), 1), USUAL_BATCH))
    return max(1, number_bytes() * runs * each * rows)


@contextlib.contextmanager
def explained_shortage(chunk: int) -> Iterator[None]:
    """Says what to lower where the device's memory does not suffice."""
    try:
        yield
    except jax.errors.JaxRuntimeError as error:
        if "RESOURCE_EXHAUSTED" not in str(error):
            raise
        raise MemoryError(
            f"the device's memory does not suffice for {chunk} clients side by side: lower side_by_side or "
            "memory_budget in resources, the batch size, or the number of seeds"
        ) from error


def fitting_chunk(chunk: int, temporary: int, room: int) -> int | None:
    """How many clients to run side by side where a program for ``chunk`` takes more than the ``room`` there is.

    None: it fits, or there is no smaller one. What a program takes is nearly proportional to its clients.

    >>> fitting_chunk(10, temporary=40, room=30), fitting_chunk(10, temporary=20, room=30)
    (6, None)
    """
    if temporary <= room or chunk == 1:
        return None
    return max(1, min(chunk - 1, int(0.9 * chunk * room / temporary)))


def most_side_by_side(algorithm: Algorithm, data: FederatedData, budget: int, runs: int) -> int:
    """How many clients fit the budget side by side: on a CPU by the size of all intermediate results of a prediction,
    elsewhere by a guess from its matrix products, which is corrected by what the compiled program says it takes."""
    if jax.default_backend() != "cpu":
        return int(max(1, budget // (KEPT_TIMES * bytes_of_products(algorithm, data, runs))))
    rows = int(max(data.train.sizes.max(), data.test.sizes.max(), 1))
    rows = min(rows, max(64, BLOCK_VALUES // max(1, int(np.prod(data.spec.features)))))
    one = shapes_of(tiny_client(data))
    two = one._replace(x=longer(one.x), y=longer(one.y))
    first = values_of_a_prediction(algorithm, one)
    enough = budget // 4 // max(1, number_bytes() * runs * MORE_PER_SAMPLE * first * rows)
    if enough >= data.clients:  # small models of few samples: tracing once tells
        return int(enough)
    each = values_of_a_prediction(algorithm, two) - first  # what a further sample adds: parameters are there once
    return int(max(1, budget // 4 // max(1, number_bytes() * runs * (first + each * (rows - 1)))))


def most_held(algorithm: Algorithm, budget: int, runs: int) -> int:
    """How many clients' models fit the budget at once."""
    return int(max(1, budget // max(1, COPIES * number_bytes() * runs * numbers_sent(algorithm))))


def number_bytes() -> int:
    """The bytes of a number in the precision that is computed with."""
    return jnp.dtype(jnp.result_type(float)).itemsize


def longer(samples: Any) -> Any:
    """The shape with one more sample."""
    return jax.ShapeDtypeStruct((samples.shape[0] + 1, *samples.shape[1:]), samples.dtype)


def values_of_a_prediction(algorithm: Algorithm, one: ClientData) -> int:
    """The values that joining and predicting produce on their way, for a client of this shape."""
    return sum(produced(program_of_a_prediction(algorithm, one)))


def values_of_products(algorithm: Algorithm, one: ClientData) -> int:
    """The values that the matrix products and convolutions of joining and predicting give."""
    return sum(produced(program_of_a_prediction(algorithm, one), ("dot_general", "conv_general_dilated")))


@functools.lru_cache(maxsize=64)
def program_of_a_prediction(algorithm: Algorithm, one: ClientData) -> Any:
    """What joining and predicting does, for a client of this shape."""
    deployment = algorithm.deployment

    def predict(key: jax.Array, one: ClientData) -> jax.Array:
        view = algorithm.release(algorithm.server.init(key), key)
        model = algorithm.deploy(view, algorithm.join(view, one, key), one, key)
        judge = deployment.losses or deployment.scores
        return deployment.predict(model, one.x) if judge is None else judge(model, one.x, one.y)

    return jax.make_jaxpr(predict)(jax.random.key(0), one).jaxpr


def largest_value(jaxpr: Any) -> int:
    """The number of values in the largest array that a program produces on its way."""
    return max(produced(jaxpr))


def produced(jaxpr: Any, only: tuple[str, ...] = ()) -> Iterator[int]:
    """The sizes of all arrays that the operations of a program, or some kinds of them, produce, loops once."""
    for equation in jaxpr.eqns:
        if not only or equation.primitive.name in only:
            yield from (int(np.prod(v.aval.shape)) for v in equation.outvars if hasattr(v.aval, "shape"))
        for value in jax.tree.leaves(list(equation.params.values()), is_leaf=lambda v: hasattr(v, "eqns")):
            inner = getattr(value, "jaxpr", value)
            if hasattr(inner, "eqns"):
                yield from produced(inner, only)


def fewer(bucket: Bucket, share: float) -> int:
    """How many clients run side by side on a device when about ``share`` of the bucket's take part."""
    here = len(bucket.real) / bucket.devices
    expected = share * here + (share * (1 - share) * here) ** 0.5
    return int(np.clip(round(expected), 1, bucket.chunk))


def runs_one_at_a_time(algorithm: Algorithm, clients: str) -> bool:
    """Whether clients go through one by one: large models on a CPU, unless said otherwise."""
    if clients not in ("auto", "vmap", "map"):
        raise ValueError(f"clients must be 'auto', 'vmap' or 'map', got {clients!r}")
    return fills_the_machine(algorithm) if clients == "auto" else clients == "map"


def runs_in_turn(algorithm: Algorithm) -> bool:
    """Whether the runs of a grid, or of several seeds, go one after the other: on a CPU, where rounds differ in length
    (all would wait for the longest) and where one model is work enough (the others would push it out of the cache)."""
    return fills_the_machine(algorithm) or (algorithm.traits.uneven_rounds and jax.default_backend() == "cpu")


def fills_the_machine(algorithm: Algorithm) -> bool:
    """Whether one client's work on one model keeps the device busy: large models on a CPU."""
    return jax.default_backend() == "cpu" and numbers_sent(algorithm) > LARGE_MODEL


def refuse_too_large_stack(federation: Federation, clients: int, one: ClientData, runs: int, budget: int) -> None:
    """Methods that need every upload side by side cannot work in chunks: all must fit, with what they make of it."""
    if not federation.stacks:
        return
    upload, *_ = message_shapes(federation, one)
    slots = clients if federation.exchange.network is None else federation.exchange.network.nodes
    nothing = lambda: jax.tree.map(lambda a: jnp.zeros((slots, *a.shape), a.dtype), (upload.value, upload.weight))

    def whole(key: jax.Array) -> Any:
        server = set_up.start_server(federation, clients, key, {}, jnp.int32(1))
        view = federation.exchange.broadcast(federation.algorithm, server, key)
        uploads, everyone = Uploads(*nothing()), jnp.ones(slots, bool)
        received = (uploads, everyone)
        if federation.hostile is not None:
            received = forging.attacked(federation, view, key, uploads, everyone)[:2]
        finish = federation.exchange.finish
        return (server, uploads), finish(federation.algorithm, server, view, *received, jnp.asarray(False), key)[0]

    traced, shapes = jax.make_jaxpr(whole, return_shape=True)(jax.random.key(0))
    needed = runs * (2 * tree_bytes(shapes[0]) + number_bytes() * largest_value(traced.jaxpr))
    if needed > budget:
        raise ValueError(
            f"{federation.name} holds the uploads of all {clients} clients side by side, which takes about "
            f"{needed / 2**30:.2g} GiB, more than the budget of {budget / 2**30:.2g} GiB: give fewer clients or seeds, "
            "a smaller model or a larger memory budget, or take a method, and a rule, that averages at a server"
        )


def refuse_too_many_runs(algorithm: Algorithm, runs: int) -> None:
    """Every run has a server, of which the old, the new and the uploads' sum are there at once; and a history."""
    server = tree_bytes(jax.eval_shape(algorithm.server.init, jax.random.key(0)))
    what = f"{algorithm.name} with {server / 4:.3g} numbers" + (f" in {runs} runs" if runs > 1 else "")
    refuse_too_large(what, runs * (3 * server + HISTORY_BYTES), "give a smaller model" + ", or fewer runs" * (runs > 1))


def refuse_unequal_sizes(algorithm: Algorithm, data: FederatedData) -> None:
    """Some methods need clients with the same number of samples."""
    sizes = data.train.sizes[~data.unseen]
    if algorithm.traits.equal_sizes and len(np.unique(sizes)) > 1:
        raise ValueError(
            f"{algorithm.name} with shared samples needs clients of equal sizes, but they go from {sizes.min()} to "
            f"{sizes.max()}: use sampling='independent'"
        )


def refuse_other_problem(algorithm: Algorithm, data: FederatedData) -> None:
    """A model that was made for other samples or labels would fail in the middle of a round, or learn nothing."""
    model = algorithm.deployment.model
    if model is None or is_embedded(data, model):
        return
    made, given = model.spec, data.spec
    if math.prod(made.features) != math.prod(given.features):
        raise ValueError(f"{model.name} is for samples of shape {made.features}, and the data's have {given.features}")
    if given.classes > made.classes or bool(given.classes) != bool(made.classes):
        words = [f"{spec.classes} classes" if spec.classes else "regression" for spec in (made, given)]
        raise ValueError(f"{model.name} is for {words[0]}, and the data has {words[1]}: make the model from this data")
    if model.codes:
        check_codes(data, model.codes)


def rounds_that_count(federation: Federation, clients: int) -> int:
    """For how many rounds the number of messages surely fits a 32-bit counter."""
    most, network = clients, federation.exchange.network
    if network is not None:
        shapes = jax.tree.leaves(jax.eval_shape(network.draw, jax.random.key(0), 1))
        most = max(math.prod(leaf.shape) for leaf in shapes)
    return max(1, min(1 << 20, (1 << 31) // (most + 1)))


def default_budget(devices: int = 1) -> int:
    """Half of the memory of each device; processors share their machine's."""
    stats = jax.local_devices()[0].memory_stats() if jax.default_backend() != "cpu" else None
    if stats and "bytes_limit" in stats:
        return int(stats["bytes_limit"]) // 2
    return machine_memory() // 2 // max(1, devices // jax.process_count())
