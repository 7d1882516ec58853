"""A round as pure functions over stacked clients: the one definition that every way of simulating runs.

``bucket_pass`` is the heart: it takes the active clients of one bucket through their update, chunk by chunk, and adds
up what arrives. A value that is not finite, or too large to be added up (`extremes`), is caught on its client: weight
0, private state unchanged, counted. So is a message that is lost on its way. A server whose step is not finite all the
same keeps its state, and the round counts as one in which every upload was rejected.
"""

from __future__ import annotations

import functools
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
    client_key,
    collectives,
    leaf_travels,
    magnitude,
    round_key,
    select,
    stream_key,
)
from majorant.core.collectives import Axis
from majorant.engines.extremes import Largest, larger, largest_allowed, largest_of
from majorant.engines.forging import attacked, delayed, honest_alone
from majorant.engines.memory import message_shapes
from majorant.engines.programs import side_by_side
from majorant.engines.turns import Turn, those_active
from majorant.exchange._stage import numbers_of, payload_shape, received, send
from majorant.exchange.federation import Federation
from majorant.exchange.secure_sum import Masked, open_sum, seal

THIN = 8  # numbers of a value for each number of a sample, up to which products take as long as reading the samples


class Held(NamedTuple):
    """What is on a client and never travels: the method's state, and the channel's memory."""

    state: Tree
    memory: Tree


class Tally(NamedTuple):
    """What is counted over the rounds of a block."""

    info: dict[str, jax.Array]  # Σ weight · info, for the scalars that clients log
    weight: jax.Array
    participants: jax.Array
    rejected: jax.Array  # uploads that were not finite, or too large
    offender: jax.Array  # the slot of a client whose upload was rejected, or −1
    fruitless: jax.Array  # rounds at the end of the block in which most uploads were rejected
    largest: Largest
    unopened: jax.Array  # rounds in which fewer messages arrived than a secure sum needs
    messages: jax.Array  # that travelled up, and as many down
    up: jax.Array  # (leaves of an upload's value,) how often each travelled
    down: jax.Array  # (leaves of a view's value,) how often each travelled


class Sums(NamedTuple):
    """What a pass over clients adds up."""

    value: Tree  # Σ weight · value, or () when uploads are stacked; under a secure sum the sums of residues
    weight: jax.Array
    info: dict[str, jax.Array]
    participants: jax.Array
    heard: jax.Array
    rejected: jax.Array
    travelled: jax.Array  # (leaves,) of the uploads' values
    offender: jax.Array  # the slot of a client whose upload was rejected, or −1
    largest: Largest


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


class Sent(NamedTuple):
    """A client's part of a round, as it reaches whoever combines."""

    upload: Upload  # weight 0 if the client is absent, its message lost or rejected
    heard: jax.Array
    rejected: jax.Array
    travelled: jax.Array  # (leaves,)
    size: jax.Array  # its largest absolute value
    slot: jax.Array


class Leaving(NamedTuple):
    """A client's part of a round as its message leaves it."""

    upload: Upload  # as it arrives, if it does
    added: Tree  # what is added up of it: the value, a payload or masked numbers
    message: Tree  # what travels of its value, where a channel makes something else of it; else ()
    delivered: Held  # what the client holds once the message has arrived
    sound: jax.Array  # whether all of it is finite, and not too large
    travels: jax.Array  # (leaves,) the parts of the value that need to be sent
    size: jax.Array  # its largest absolute value
    arrived: jax.Array  # False where the channel loses it


def client_part(federation: Federation, seen: View, own: Key, held: Held, data: ClientData) -> Leaving:
    """One client's part of a round, from what it is sent and its own key, up to the message."""
    algorithm, channel = federation.algorithm, federation.channel
    upload, state = algorithm.client.update(seen, held.state, data, own)
    upload = as_sent(federation, upload)
    hostile, memory, late = federation.hostile, held.memory, ()
    if hostile is not None and hostile.attack.delay:
        memory, late = held.memory
        upload, late = delayed(hostile, upload, late, data.slot)
    travels, arrived = leaf_travels(upload.value, upload.travels), jnp.asarray(True)
    added: Any = upload.value
    message: Any = ()
    most, size = largest_allowed(), magnitude(upload.value)
    sound = size <= most  # False for NaN; before the channel, which may turn what is not finite into what is
    if secures(federation, upload):
        travels = jnp.ones_like(travels)
        origin, largest = algorithm.client.origin(seen), seen.terms.largest_weight
        moved, back = displacement(upload.value, origin)
        added, moved, fits, memory, arrived = seal(federation.way, own, moved, upload.weight, largest, memory)
        message, upload = added, upload._replace(value=jax.tree.map(jnp.add, origin, back(moved)))
        sound &= fits
    elif channel is not None and numbers_of(upload.value):
        if channel.remembers:  # what was left out earlier may lie in any part
            travels = jnp.ones_like(travels)
        sent = send(channel, own, upload.value, algorithm.client.origin(seen), memory, seen.channel)
        message, upload, memory = sent.message, upload._replace(value=sent.value), sent.memory
        added, arrived = sent.value if sent.payload is None else sent.payload, sent.arrived
        size = jnp.maximum(magnitude(sent.value), magnitude(added))
    if hostile is not None and hostile.attack.delay:
        memory = memory, late
    delivered = Held(algorithm.client.delivered(seen, state, upload), memory)
    sound &= (size <= most) & (jnp.abs(upload.weight) <= most) & all_finite(delivered)
    return Leaving(upload, added, message, delivered, sound, travels, size, arrived)


def guarded_update(
    federation: Federation, seen: View, key: Key, held: Held, data: ClientData, active: jax.Array
) -> tuple[Sent, Held]:
    """One client's part of a round, from what it is sent: what arrives of its upload, and what it holds then.

    A client commits what was delivered: if its message is lost or rejected, it is as if it had not taken part. One that
    is absent, and fills a place beside others, has no samples to work on.
    """
    data = data._replace(size=jnp.where(active, data.size, 0))
    upload, added, _, updated, sound, travels, size, arrived = client_part(
        federation, seen, client_key(key, data.id), held, data
    )
    counts = active & sound & arrived
    weight = jnp.where(counts, upload.weight, 0)
    value = jax.tree.map(lambda v: jnp.where(counts, v, 0), added)
    info = jax.tree.map(lambda v: jnp.where(counts, v, 0), upload.info)
    size, slot = jnp.where(counts, size, 0), jnp.asarray(data.slot, jnp.int32)
    part = Sent(Upload(value, weight, info), counts, active & ~sound, travels * active, size, slot)
    return part, select(counts, updated, held)


def add_up(sent: Sent, active: jax.Array, keep_value: bool) -> Sums:
    """Sums over the leading axis of what clients sent."""
    weigh = lambda v: weighted_sum(sent.upload.weight.astype(v.dtype), v)
    total = weigh if not isinstance(sent.upload.value, Masked) else lambda v: v.sum(axis=0, dtype=v.dtype)
    return Sums(
        jax.tree.map(total, sent.upload.value) if keep_value else (),
        sent.upload.weight.sum(),
        jax.tree.map(weigh, sent.upload.info),
        active.sum(),
        sent.heard.sum(),
        sent.rejected.sum(),
        sent.travelled.sum(axis=0, dtype=jnp.int32),
        jnp.where(sent.rejected, sent.slot, -1).max(),
        largest_of(sent.size, sent.slot),
    )


def weighted_sum(weight: jax.Array, values: jax.Array) -> jax.Array:
    """Σ weight · values over the leading axis.

    On a CPU it is a matrix product. On a GPU that would be one to tune for every shape that a model has, in a precision
    that is not that of the values (TF32); a sum of products is as fast: it reads the same memory.
    """
    if jax.default_backend() == "cpu":
        return jnp.tensordot(weight, values, axes=1)
    return (weight.reshape(-1, *(1,) * (values.ndim - 1)) * values).sum(axis=0)


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
    upload: Upload | None = None,
) -> tuple[Sums, Held, Any]:
    """All active clients of a bucket through a round, ``chunk`` at a time.

    ``upload`` has the shapes of a message: those of one bucket's clients are those of all, and finding them takes time.
    When not everyone takes part, active clients are gathered first, so that a round costs what its participants cost.
    """
    step = lambda clients, data, active: chunk_pass(federation, view, key, clients, data, active)
    count = data.slot.shape[0]
    if count == chunk and everyone:
        return step(clients, data, active)
    piece = lambda t, rows: jax.tree.map(lambda a: a[rows], t)
    first = jnp.arange(chunk)
    shapes = message_shapes(federation, piece(data, 0))[0] if upload is None else upload
    nothing = lambda rows: empty_sent(shapes, rows, federation)
    stacks, nobody = federation.stacks, jnp.zeros(1, bool)
    few = nothing(1)
    zeros = add_up(few, nobody, keep_value=False)
    if not stacks:
        zeros = zeros._replace(value=jax.tree.map(lambda v: jnp.zeros(v.shape[1:], v.dtype), few.upload.value))
    if everyone:

        def body(sums: Sums, args: Any) -> tuple[Sums, Any]:
            added, clients, uploads = step(*args)
            return add_sums([sums, added]), (clients, uploads)

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
        return i + 1, add_sums([sums, added]), *jax.tree.map(put, (clients, uploads), (updated, sent))

    start = (jnp.asarray(0), zeros, clients, empty)
    return jax.lax.while_loop(lambda s: s[0] * chunk < total, gathered, start)[1:]


def empty_sent(upload: Upload, rows: int, federation: Federation | None = None) -> Sent:
    """What some absent clients send, from the shapes of an upload; of a federation, as it travels there."""
    zeros = lambda tree: jax.tree.map(lambda s: jnp.zeros((rows, *s.shape), s.dtype), tree)
    nobody, leaves = jnp.zeros(rows, bool), len(jax.tree.leaves(upload.value))
    if federation is not None and secures(federation, upload):
        words = jax.ShapeDtypeStruct((numbers_of(upload.value),), federation.way.secure[0].dtype)
        upload = upload._replace(value=Masked(words, jax.ShapeDtypeStruct((), jnp.uint32)))
    elif federation is not None and federation.adds_payloads and numbers_of(upload.value):
        upload = upload._replace(value=payload_shape(federation.way, upload.value))
    value, weight, info = zeros(upload[:3])
    size, slot = jnp.zeros(rows, jnp.result_type(float)), jnp.full(rows, -1, jnp.int32)
    return Sent(Upload(value, weight, info), nobody, nobody, jnp.zeros((rows, leaves), jnp.int32), size, slot)


def secures(federation: Federation, upload: Upload) -> bool:
    """Whether uploads travel in a secure sum."""
    channel = federation.channel
    return channel is not None and channel.secure is not None and numbers_of(upload.value) > 0


def as_sent(federation: Federation, upload: Upload) -> Upload:
    """An upload without scalars for the log where it goes into a secure sum, or clients draw noise.

    No noise covers them, and the server would see them one by one.

    Where noise hides clients, all count the same.
    """
    if federation.hides:
        upload = upload._replace(weight=jnp.ones_like(upload.weight))
    return upload._replace(info={}) if secures(federation, upload) or federation.hides_from_server else upload


def opened(federation: Federation, view: View, sums: Sums) -> tuple[Uploads, jax.Array]:
    """What a secure sum holds, and whether it can be opened: else it holds nothing."""
    channel, algorithm = federation.way, federation.algorithm
    origin = algorithm.client.origin(federation.exchange.seen(algorithm, view, jnp.int32(0)))  # the same for all
    flat, back = ravel_pytree(origin)
    moved, weight = open_sum(channel, sums.value, view.terms.largest_weight, flat.dtype)
    enough = sums.heard >= channel.secure[0].threshold
    value = jax.tree.map(lambda o, m: jnp.where(enough, weight.astype(o.dtype) * o + m, 0), origin, back(moved))
    return Uploads(value, jnp.where(enough, weight, 0)), enough


def displacement(value: Tree, origin: Tree) -> tuple[jax.Array, Callable[[jax.Array], Tree]]:
    """How far an upload is from the point that it departs from, as a vector, and the way back to trees."""
    return ravel_pytree(jax.tree.map(jnp.subtract, value, origin))


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


def add_sums(parts: list[Sums]) -> Sums:
    """The sums of several passes together."""
    total = jax.tree.map(lambda *leaves: sum(leaves[1:], leaves[0]), *parts)
    offender = functools.reduce(jnp.maximum, (part.offender for part in parts))
    return total._replace(offender=offender, largest=functools.reduce(larger, (part.largest for part in parts)))


def of_all_devices(sums: Sums, axis: Axis) -> Sums:
    """The sums of all devices together."""
    if axis is None:
        return sums
    added = collectives.total(sums._replace(offender=(), largest=()), axis)  # type: ignore[arg-type]
    each = collectives.of_each(sums.largest, axis)
    largest = [jax.tree.map(lambda a, k=k: a[k], each) for k in range(each.first.shape[0])]
    return added._replace(offender=collectives.highest(sums.offender, axis), largest=functools.reduce(larger, largest))


def empty_tally(shapes: tuple[Upload, View, Tree]) -> Tally:
    """A tally of nothing, for messages of these shapes."""
    upload, view, _ = shapes
    zero, nothing, nobody = jnp.asarray(0), jnp.zeros(()), jnp.int32(-1)
    info = jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), upload.info)
    leaves = lambda tree: jnp.zeros(len(jax.tree.leaves(tree)), jnp.int32)
    largest = Largest(jnp.zeros((), jnp.result_type(float)), jnp.zeros((), jnp.result_type(float)), nobody)
    up, down = leaves(upload.value), leaves(view.value)
    return Tally(info, nothing, zero, zero, nobody, zero, largest, zero, zero, up, down)
