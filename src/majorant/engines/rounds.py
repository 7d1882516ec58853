"""A round as pure functions over stacked clients: the one definition that every way of simulating runs.

``bucket_pass`` is the heart: it takes the active clients of one bucket through their part (`client_part`), chunk by
chunk, and adds up what arrives (`tally`). A server whose step is not finite keeps its state, and the round counts as
one in which every upload was rejected.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree

from majorant.core import (
    CHANNEL_STREAM,
    LINKS_STREAM,
    SERVER_STREAM,
    ClientData,
    Key,
    Server,
    Tree,
    Upload,
    Uploads,
    View,
    all_finite,
    leaf_travels,
    round_key,
    select,
    stream_key,
)
from majorant.engines.client_part import Held, Sent, empty_sent, guarded_update
from majorant.engines.extremes import larger
from majorant.engines.forging import attacked, honest_alone
from majorant.engines.programs import side_by_side
from majorant.engines.tally import Sums, Tally, add_up, merged
from majorant.engines.turns import Turn, those_active
from majorant.exchange._stage import numbers_of, received
from majorant.exchange.federation import Federation
from majorant.exchange.secure_sum import Masked, open_sum

THIN = 8  # numbers of a value for each number of a sample, up to which products take as long as reading the samples


class State(NamedTuple):
    """Everything that a run is, at the end of a round: the server, and what is on each bucket's clients."""

    server: Server
    clients: tuple[Held, ...]


class BucketData(NamedTuple):
    """A bucket's arrays on the device."""

    train: ClientData  # (clients, length, ...)
    validation: ClientData
    test: ClientData
    position: jax.Array  # (clients,) place among the clients that train, or 0
    real: jax.Array  # (clients,) False for fillers
    row: Any = ()  # (clients that train,) the row of each, or how many rows there are where it is in another bucket


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


def a_copy_for_each(values: Tree, data: ClientData) -> bool:
    """Whether the clients of a chunk compute with copies of the value that all are sent: on a CPU, if it is small.

    A product of every client's samples with one value is, to XLA, a product of all their rows as one matrix, and the
    products that follow take them client by client. On a CPU it would copy a chunk out of all clients for each of the
    two forms. Where a value has few numbers for each of a sample's, that takes as long as the products.
    """
    samples = sum(math.prod(leaf.shape[2:]) for leaf in jax.tree.leaves(data.x))
    return jax.default_backend() == "cpu" and numbers_of(values) <= THIN * samples * data.size.shape[0]


def chunk_pass(
    federation: Federation, view: View, key: Key, clients: Held, data: ClientData, active: jax.Array
) -> tuple[Sums, Held, Any]:
    """One chunk of clients through a round: their sums, what they hold, and the uploads where they must be seen."""
    rows = active.shape[0]
    seen = lambda slot: federation.exchange.seen(federation.algorithm, view, slot)

    def update(value: Tree, held: Held, data: ClientData, active: jax.Array) -> tuple[Sent, Held]:
        own = seen(data.slot) if value is None else seen(data.slot)._replace(value=value)
        return guarded_update(federation, own, key, held, data, active)

    values = over_clients(lambda slot: seen(slot).value, rows)(data.slot)
    sent, clients = over_clients(update, rows)(values if a_copy_for_each(values, data) else None, clients, data, active)
    counted = sent if federation.hostile is None else honest_alone(federation.hostile, sent)
    stacks = federation.stacks
    return add_up(counted, active, not stacks), clients, by_slot(sent) if stacks else None


def by_slot(sent: Sent) -> tuple[Uploads, jax.Array]:
    """What is kept of each upload where they are needed side by side."""
    return Uploads(sent.upload.value, sent.upload.weight), sent.heard


def bucket_pass(
    federation: Federation,
    view: View,
    key: Key,
    clients: Held,
    data: ClientData,
    active: jax.Array | Turn,
    *,
    chunk: int,
    everyone: bool,
    upload: Upload,
) -> tuple[Sums, Held, Any]:
    """All active clients of a bucket through a round, ``chunk`` at a time.

    ``upload`` has the shapes of a message.
    When not everyone takes part, active clients are gathered first, so that a round costs what its participants cost.
    """
    step = lambda clients, data, active: chunk_pass(federation, view, key, clients, data, active)
    count = data.slot.shape[0]
    if count == chunk and everyone:
        return step(clients, data, active)
    piece = lambda t, rows: jax.tree.map(lambda a: a[rows], t)
    first = jnp.arange(chunk)
    nothing = lambda rows: empty_sent(upload, rows, federation)
    stacks, nobody = federation.stacks, jnp.zeros(1, bool)
    few = nothing(1)
    zeros = add_up(few, nobody, keep_value=False)
    if not stacks:
        zeros = zeros._replace(value=jax.tree.map(lambda v: jnp.zeros(v.shape[1:], v.dtype), few.upload.value))
    if everyone:

        def body(sums: Sums, args: Any) -> tuple[Sums, Any]:
            added, clients, uploads = step(*args)
            return merged(sums, added), (clients, uploads)

        sums, out = jax.lax.scan(body, zeros, chunked((clients, data, active), chunk))
        return sums, *unchunked(out)

    order, total = active if isinstance(active, Turn) else those_active(active)
    order = jnp.concatenate([order, jnp.zeros(-len(order) % chunk, order.dtype)])
    empty = by_slot(nothing(count)) if stacks else None

    def gathered(state: Any) -> Any:
        i, sums, clients, uploads = state
        rows = jax.lax.dynamic_slice(order, (i * chunk,), (chunk,))
        inside = i * chunk + first < total
        added, updated, sent = step(piece(clients, rows), piece(data, rows), inside)
        target = jnp.where(inside, rows, count)  # absent clients write out of bounds: dropped
        put = lambda whole, part: whole.at[target].set(part, mode="drop")
        return i + 1, merged(sums, added), *jax.tree.map(put, (clients, uploads), (updated, sent))

    start = (jnp.asarray(0), zeros, clients, empty)
    return jax.lax.while_loop(lambda s: s[0] * chunk < total, gathered, start)[1:]


def opened(federation: Federation, view: View, sums: Sums) -> tuple[Uploads, jax.Array]:
    """What a secure sum holds, and whether it can be opened: else it holds nothing."""
    channel, algorithm = federation.way, federation.algorithm
    origin = algorithm.client.origin(federation.exchange.seen(algorithm, view, jnp.int32(0)))  # the same for all
    flat, back = ravel_pytree(origin)
    moved, weight = open_sum(channel, sums.value, view.terms.largest_weight, flat.dtype)
    enough = sums.heard >= channel.secure[0].threshold
    value = jax.tree.map(lambda o, m: jnp.where(enough, weight.astype(o.dtype) * o + m, 0), origin, back(moved))
    return Uploads(value, jnp.where(enough, weight, 0)), enough


def begin_round(federation: Federation, server: Server, run_key: Key) -> tuple[View, Key]:
    """The view that clients are sent in the next round, and the round's key."""
    key = round_key(run_key, server.round + 1)
    return sent_view(federation, server, stream_key(key, SERVER_STREAM)), key


def sent_view(federation: Federation, server: Server, key: Key) -> View:
    """All that clients are sent in a round."""
    view = federation.exchange.broadcast(federation.algorithm, server, key)
    if not federation.adds_payloads:
        return view
    return view._replace(channel=federation.far_end.told(server.channel))


def end_round(
    federation: Federation, server: Server, view: View, key: Key, sums: Sums, stack: Any, tally: Tally
) -> tuple[Server, Tally]:
    """The server's step on what arrived; a round without a usable upload counts all the same."""
    heard: Any = None
    news, enough = server.channel, jnp.asarray(True)
    seen = federation.exchange.seen(federation.algorithm, view, jnp.int32(0))  # all are sent as much
    if stack is not None:
        uploads, heard = stack
    elif isinstance(sums.value, Masked):
        uploads, enough = opened(federation, view, sums)
    elif federation.adds_payloads and numbers_of(sums.value):
        weight = jnp.asarray(federation.expected, sums.weight.dtype) if federation.expected else sums.weight
        origin, own = federation.algorithm.client.origin(seen), stream_key(key, CHANNEL_STREAM)
        value, news = received(federation.way, own, sums.value, origin, weight, news)
        uploads = Uploads(value, weight)
    else:
        uploads = Uploads(sums.value, sums.weight)
    if federation.hostile is not None:
        uploads, heard, refused = attacked(federation, view, key, uploads, heard)
        sums = sums._replace(rejected=sums.rejected + refused)
    links = stream_key(key, LINKS_STREAM)
    barren = (sums.participants > 0) & (sums.rejected == sums.participants)
    moved, messages = federation.exchange.finish(federation.algorithm, server, view, uploads, heard, barren, links)
    everywhere = federation.exchange.everywhere
    finite = everywhere(all_finite((moved.value, moved.state))) | ~everywhere(all_finite((server.value, server.state)))
    new = select(finite, moved, server)
    rejected = jnp.where(finite, sums.rejected, sums.participants)
    down = leaf_travels(seen.value, seen.travels)
    if messages is None:
        messages, up, down = sums.participants, sums.travelled, down * sums.participants
    else:  # what one peer sends is what another receives, whole
        up, down = jnp.ones_like(sums.travelled) * messages, jnp.ones_like(down) * messages
    tally = Tally(
        jax.tree.map(jnp.add, tally.info, sums.info),
        tally.weight + sums.weight,
        tally.participants + sums.participants,
        tally.rejected + rejected,
        jnp.maximum(tally.offender, sums.offender),
        jnp.where(2 * rejected > sums.participants, tally.fruitless + 1, 0),
        larger(tally.largest, sums.largest),
        tally.unopened + (~enough & (sums.participants > 0)),
        tally.messages + messages,
        (tally.up + up).astype(jnp.int32),
        (tally.down + down).astype(jnp.int32),
    )
    return new._replace(round=server.round + 1, rounds=server.rounds, terms=server.terms, channel=news), tally
