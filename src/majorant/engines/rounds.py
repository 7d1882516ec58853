"""A round as pure functions over stacked clients: the one definition that every way of simulating runs.

``bucket_pass`` is the heart: it takes the active clients of one bucket through their update, chunk by chunk, and adds
up what they send. A value that is not finite is caught on its client: weight 0, private state unchanged, counted.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from majorant.core import (
    EVALUATION_STREAM,
    PARTICIPATION_STREAM,
    SERVER_STREAM,
    Algorithm,
    ClientData,
    Key,
    Server,
    Stack,
    Total,
    Tree,
    Upload,
    View,
    all_finite,
    blockwise,
    client_key,
    masked_mean,
    round_key,
    select,
    stream_key,
)
from majorant.engines.memory import message_shapes
from majorant.engines.programs import side_by_side
from majorant.exchange.participation import Participation
from majorant.metrics.scores import client_scores


class Tally(NamedTuple):
    """What is counted over the rounds of a block."""

    info: dict[str, jax.Array]  # Σ weight · info, for the scalars that clients log
    weight: jax.Array
    participants: jax.Array
    rejected: jax.Array  # uploads that were not finite
    fruitless: jax.Array  # rounds at the end of the block in which every upload was rejected
    uploads: jax.Array  # that travelled; their parts, where a message is made of several
    views: jax.Array


class Sums(NamedTuple):
    """What a pass over clients adds up."""

    value: Tree  # Σ weight · value, or () when uploads are stacked
    weight: jax.Array
    info: dict[str, jax.Array]
    participants: jax.Array
    rejected: jax.Array


class State(NamedTuple):
    """Everything that a run is, at the end of a round: the server, and the private states of each bucket's clients."""

    server: Server
    clients: tuple[Tree, ...]


class BucketData(NamedTuple):
    """A bucket's arrays on the device."""

    train: ClientData  # (clients, length, ...)
    validation: ClientData
    test: ClientData
    position: jax.Array  # (clients,) place among the clients that train, or 0
    real: jax.Array  # (clients,) False for fillers


def over_clients(function: Callable, chunk: int) -> Callable:
    """The function for each of some clients, side by side."""
    return lambda *args: side_by_side(function, chunk, (0,) * len(args))(*args)


def chunked(tree: Tree, chunk: int) -> Tree:
    """``(clients, ...)`` as ``(chunks, chunk, ...)``."""
    return jax.tree.map(lambda a: a.reshape((a.shape[0] // chunk, chunk, *a.shape[1:])), tree)


def unchunked(tree: Tree) -> Tree:
    """The inverse of `chunked`."""
    return jax.tree.map(lambda a: a.reshape((a.shape[0] * a.shape[1], *a.shape[2:])), tree)


def map_clients(function: Callable, chunk: int, *trees: Tree) -> Tree:
    """Applies a function to every client of a bucket, chunk by chunk, and stacks what it returns."""
    clients = jax.tree.leaves(trees)[0].shape[0]
    if clients == chunk:
        return over_clients(function, chunk)(*trees)
    body = lambda _, args: (None, over_clients(function, chunk)(*args))
    return unchunked(jax.lax.scan(body, None, chunked(trees, chunk))[1])


def guarded_update(
    algorithm: Algorithm, view: View, key: Key, client: Tree, data: ClientData, active: jax.Array
) -> tuple[Upload, Tree, jax.Array]:
    """One client's part of a round: its upload (weight 0 if absent or not finite), its state, and whether rejected."""
    seen = algorithm.address(view, data.id)
    upload, updated = algorithm.client_update(seen, client, data, client_key(key, data.id))
    updated = algorithm.sent(updated, upload)
    finite = all_finite((upload.value, updated)) & jnp.isfinite(upload.weight)
    counts = active & finite
    weight = jnp.where(counts, upload.weight, 0)
    value = jax.tree.map(lambda v: jnp.where(counts, v, 0), upload.value)
    info = jax.tree.map(lambda v: jnp.where(counts, v, 0), upload.info)
    return Upload(value, weight, info), select(counts, updated, client), active & ~finite


def add_up(uploads: Upload, active: jax.Array, rejected: jax.Array, keep_value: bool) -> Sums:
    """Sums over the leading axis of stacked uploads."""
    weigh = lambda v: jnp.tensordot(uploads.weight.astype(v.dtype), v, axes=1)
    return Sums(
        jax.tree.map(weigh, uploads.value) if keep_value else (),
        uploads.weight.sum(),
        jax.tree.map(weigh, uploads.info),
        active.sum(),
        rejected.sum(),
    )


def chunk_pass(
    algorithm: Algorithm, view: View, key: Key, clients: Tree, data: ClientData, active: jax.Array
) -> tuple[Sums, Tree, Any]:
    """One chunk of clients through a round: their sums, their new states, and the uploads where they must be seen."""
    update = lambda client, data, active: guarded_update(algorithm, view, key, client, data, active)
    uploads, clients, rejected = over_clients(update, active.shape[0])(clients, data, active)
    linear = algorithm.aggregate is None
    return add_up(uploads, active, rejected, linear), clients, None if linear else (uploads.value, uploads.weight)


def bucket_pass(
    algorithm: Algorithm,
    view: View,
    key: Key,
    clients: Tree,
    data: ClientData,
    active: jax.Array,
    *,
    chunk: int,
    everyone: bool,
) -> tuple[Sums, Tree, Any]:
    """All active clients of a bucket through a round, ``chunk`` at a time.

    When not everyone takes part, active clients are gathered first, so that a round costs what its participants cost.
    """
    step = lambda clients, data, active: chunk_pass(algorithm, view, key, clients, data, active)
    count = active.shape[0]
    if count == chunk and everyone:
        return step(clients, data, active)
    piece = lambda t, rows: jax.tree.map(lambda a: a[rows], t)
    first = jnp.arange(chunk)
    upload, *_ = message_shapes(algorithm, piece(data, 0))
    nothing = lambda rows: jax.tree.map(lambda s: jnp.zeros((rows, *s.shape), s.dtype), upload)
    linear, nobody = algorithm.aggregate is None, jnp.zeros(1, bool)
    zeros = add_up(nothing(1), nobody, nobody, linear)
    if everyone:

        def body(sums: Sums, args: Any) -> tuple[Sums, Any]:
            added, clients, uploads = step(*args)
            return jax.tree.map(jnp.add, sums, added), (clients, uploads)

        sums, out = jax.lax.scan(body, zeros, chunked((clients, data, active), chunk))
        return sums, *unchunked(out)

    order = jnp.argsort(~active, stable=True)  # active clients first
    order = jnp.concatenate([order, jnp.zeros(-count % chunk, order.dtype)])
    total = active.sum()
    empty = None if linear else (nothing(count).value, nothing(count).weight)

    def gathered(state: Any) -> Any:
        i, sums, clients, uploads = state
        rows = jax.lax.dynamic_slice(order, (i * chunk,), (chunk,))
        inside = i * chunk + first < total
        added, updated, sent = step(piece(clients, rows), piece(data, rows), inside)
        target = jnp.where(inside, rows, count)  # absent clients write out of bounds: dropped
        put = lambda whole, part: whole.at[target].set(part, mode="drop")
        return i + 1, jax.tree.map(jnp.add, sums, added), *jax.tree.map(put, (clients, uploads), (updated, sent))

    start = (jnp.asarray(0), zeros, clients, empty)
    return jax.lax.while_loop(lambda s: s[0] * chunk < total, gathered, start)[1:]


def begin_round(algorithm: Algorithm, server: Server, run_key: Key) -> tuple[View, Key]:
    """The view that clients are sent in the next round, and the round's key."""
    key = round_key(run_key, server.round + 1)
    return algorithm.broadcast(server, stream_key(key, SERVER_STREAM)), key


def who_takes_part(participation: Participation, server: Server, run_key: Key, clients: int) -> jax.Array:
    """The clients of the next round, as booleans over those that train."""
    number = jnp.asarray(server.round) + 1
    return participation.active(stream_key(round_key(run_key, number), PARTICIPATION_STREAM), number, clients)


def end_round(
    algorithm: Algorithm, server: Server, sums: Sums, stack: Stack | None, tally: Tally, inclusion: float
) -> tuple[Server, Tally]:
    """The server's step; a round without a usable upload leaves its value unchanged, and counts all the same."""
    total = Total(sums.value, sums.weight, inclusion)
    if algorithm.aggregate is not None and stack is not None:
        total = algorithm.aggregate(server, stack)
    before, waiting = server, server
    if algorithm.idle is not None:
        waiting = select(sums.participants == 0, algorithm.idle(server), server)
    server = select(sums.weight > 0, algorithm.server_update(server, total), waiting)
    messages = sums.participants if total.messages is None else total.messages
    up, down = (1, 1) if algorithm.traffic is None else algorithm.traffic.travelling(before, inclusion < 1)
    barren = (sums.participants > 0) & (sums.rejected == sums.participants)
    tally = Tally(
        jax.tree.map(jnp.add, tally.info, sums.info),
        tally.weight + sums.weight,
        tally.participants + sums.participants,
        tally.rejected + sums.rejected,
        jnp.where(barren, tally.fruitless + 1, 0),
        tally.uploads + messages * up,
        tally.views + messages * down,
    )
    return server._replace(round=before.round + 1, rounds=before.rounds), tally


def add_sums(parts: list[Sums]) -> Sums:
    """The sums of several passes together."""
    return jax.tree.map(lambda *leaves: sum(leaves[1:], leaves[0]), *parts)


def stack_uploads(uploads: Sequence[Any], ids: Sequence[jax.Array], clients: int) -> Stack:
    """Uploads of all buckets side by side, ordered by client id (fillers, with id −1, are dropped)."""
    target = jnp.concatenate(ids)
    target = jnp.where(target < 0, clients, target)

    def place(*parts: jax.Array) -> jax.Array:
        whole = jnp.concatenate(parts)
        return jnp.zeros((clients, *whole.shape[1:]), whole.dtype).at[target].set(whole, mode="drop")

    return Stack(*jax.tree.map(place, *uploads))


def empty_tally(info: dict[str, Any]) -> Tally:
    """A tally of nothing, for clients that log scalars of these shapes."""
    zero = jnp.asarray(0)
    return Tally(jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), info), jnp.zeros(()), zero, zero, zero, zero, zero)


def start_server(algorithm: Algorithm, run_key: Key, hyper: dict[str, jax.Array], planned: jax.Array) -> Server:
    """The server before round 1, with the given hyperparameters in place of the algorithm's own."""
    server = algorithm.init(stream_key(round_key(run_key, 0), SERVER_STREAM))
    values = {name: hyper.get(name, value) for name, value in server.hyper.items()}
    return server._replace(hyper=values, round=jnp.zeros((), jnp.int32), rounds=planned)


def start_clients(
    algorithm: Algorithm, server: Server, run_key: Key, data: ClientData, real: jax.Array, chunk: int
) -> tuple[Tree, Sums | None]:
    """The private states of a bucket's clients before round 1, and the sum of what they send in the set-up round."""
    key = round_key(run_key, 0)
    view = algorithm.broadcast(server, stream_key(key, SERVER_STREAM))

    def start(data: ClientData) -> tuple[Tree, Upload | None]:
        own, seen = client_key(key, data.id), algorithm.address(view, data.id)
        client = algorithm.init_client(seen, data, own)
        return client, algorithm.setup_client(seen, client, data, own) if algorithm.setup_client else None

    clients, uploads = map_clients(start, chunk, data)
    if uploads is None:
        return clients, None
    usable = real & jax.vmap(all_finite)((uploads.value, uploads.weight))
    mask = lambda a: jnp.where(usable.reshape((-1,) + (1,) * (a.ndim - 1)), a, 0)
    return clients, add_up(jax.tree.map(mask, uploads), real, real & ~usable, True)


def finish_start(algorithm: Algorithm, server: Server, sums: list[Sums | None], inclusion: float = 1.0) -> Server:
    """The server after the set-up round, where the method has one; it is told how often clients will take part."""
    if algorithm.setup_server is None:
        return server
    added = add_sums([s for s in sums if s is not None])
    return algorithm.setup_server(server, Total(added.value, added.weight, inclusion))


def evaluate_client(
    algorithm: Algorithm,
    classes: int,
    view: View,
    key: Key,
    client: Tree,
    train: ClientData,
    validation: ClientData,
    test: ClientData,
    unseen: bool,
) -> dict[str, jax.Array]:
    """A client's scores with the model it would deploy; an unseen client first joins, with its own training samples."""
    key = client_key(key, train.id)
    if unseen:
        client = algorithm.join(view, train, key)
    else:
        view = algorithm.address(view, train.id)
    model = algorithm.deploy(view, client, train, key)
    scores = {}
    for part, data in {"train": train, "validation": validation, "test": test}.items():
        if data.y.shape[0] == 0:  # the data has no such part
            continue
        if algorithm.losses is not None:
            each = functools.partial(algorithm.losses, model)
            loss = score = masked_mean(blockwise(each, data.x, data.y), data)
        else:
            predictions = blockwise(lambda x: algorithm.predict(model, x), data.x)
            loss, score = client_scores(predictions, data, classes)
        scores[f"{part}_loss"], scores[f"{part}_score"] = loss, score
    if algorithm.mixture is not None:
        scores["pi"] = algorithm.mixture(model)
    return scores


def evaluate_clients(
    algorithm: Algorithm,
    classes: int,
    server: Server,
    run_key: Key,
    clients: Tree,
    data: BucketData,
    *,
    chunk: int,
    unseen: bool,
) -> dict[str, jax.Array]:
    """The scores of every client of a bucket, ``(clients,)`` each."""
    view, key = server_view(algorithm, server, run_key)
    one = lambda client, train, validation, test: evaluate_client(
        algorithm, classes, view, key, client, train, validation, test, unseen
    )
    return map_clients(one, chunk, clients, data.train, data.validation, data.test)


def server_view(algorithm: Algorithm, server: Server, run_key: Key) -> tuple[View, Key]:
    """What clients would be sent of a server's state between two rounds, and the key of what is done with it."""
    key = round_key(run_key, server.round)
    return algorithm.broadcast(server, stream_key(key, SERVER_STREAM)), stream_key(key, EVALUATION_STREAM)


def measure_clients(
    algorithm: Algorithm, server: Server, run_key: Key, clients: Tree, data: ClientData, real: jax.Array, *, chunk: int
) -> Sums:
    """What a method measures of its convergence on a bucket's clients, summed with the weights it gives them."""
    view, key = server_view(algorithm, server, run_key)
    none = jnp.zeros((), bool)

    def one(client: Tree, data: ClientData, real: jax.Array) -> Sums:
        assert algorithm.diagnosis is not None
        measured = algorithm.diagnosis.measure(view, client, data, client_key(key, data.id))
        weight = jnp.where(real, algorithm.diagnosis.weight(data), 0).astype(jnp.result_type(float))
        return add_up(jax.tree.map(lambda a: a[None], Upload(measured, weight)), real[None], none[None], True)

    return jax.tree.map(lambda a: a.sum(axis=0), map_clients(one, chunk, clients, data, real))


def conclude(algorithm: Algorithm, server: Server, sums: Sums | None) -> dict[str, jax.Array]:
    """Named scalars about the server's state and, where clients were measured, about convergence."""
    found = algorithm.log(server) if algorithm.log is not None else {}
    if sums is not None and algorithm.diagnosis is not None:
        found = found | algorithm.diagnosis.conclude(server, Total(sums.value, sums.weight).mean())
    return found


def probe_client(
    algorithm: Algorithm, server: Server, run_key: Key, client: Tree, data: ClientData
) -> dict[str, jax.Array]:
    """What is too costly to measure on every client, on one."""
    assert algorithm.diagnosis is not None
    assert algorithm.diagnosis.probe is not None
    view, key = server_view(algorithm, server, run_key)
    return algorithm.diagnosis.probe(algorithm.address(view, data.id), client, data, client_key(key, data.id))
