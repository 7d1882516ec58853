"""One client's part of a round: its update, what the channel makes of it, and what it holds once its message arrived.

A value that is not finite, or too large to be added up (`extremes`), is caught here: weight 0, private state unchanged,
counted. So is a message that is lost on its way.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree

from majorant.core import (
    ClientData,
    Key,
    Tree,
    Upload,
    View,
    all_finite,
    client_key,
    leaf_travels,
    magnitude,
    select,
)
from majorant.engines.extremes import largest_allowed
from majorant.engines.forging import delayed
from majorant.exchange._stage import numbers_of, payload_shape, send
from majorant.exchange.federation import Federation
from majorant.exchange.secure_sum import Masked, seal


class Held(NamedTuple):
    """What is on a client and never travels: the method's state, and the channel's memory."""

    state: Tree
    memory: Tree


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


def as_sent(federation: Federation, upload: Upload) -> Upload:
    """An upload without scalars for the log where it goes into a secure sum, or clients draw noise.

    No noise covers them, and the server would see them one by one.

    Where noise hides clients, all count the same.
    """
    if federation.hides:
        upload = upload._replace(weight=jnp.ones_like(upload.weight))
    return upload._replace(info={}) if secures(federation, upload) or federation.hides_from_server else upload


def secures(federation: Federation, upload: Upload) -> bool:
    """Whether uploads travel in a secure sum."""
    channel = federation.channel
    return channel is not None and channel.secure is not None and numbers_of(upload.value) > 0


def displacement(value: Tree, origin: Tree) -> tuple[jax.Array, Callable[[jax.Array], Tree]]:
    """How far an upload is from the point that it departs from, as a vector, and the way back to trees."""
    return ravel_pytree(jax.tree.map(jnp.subtract, value, origin))


def empty_sent(upload: Upload, rows: int, federation: Federation) -> Sent:
    """What some absent clients send, from the shapes of an upload, as it travels."""
    zeros = lambda tree: jax.tree.map(lambda s: jnp.zeros((rows, *s.shape), s.dtype), tree)
    nobody, leaves = jnp.zeros(rows, bool), len(jax.tree.leaves(upload.value))
    if secures(federation, upload):
        words = jax.ShapeDtypeStruct((numbers_of(upload.value),), federation.way.secure[0].dtype)
        upload = upload._replace(value=Masked(words, jax.ShapeDtypeStruct((), jnp.uint32)))
    elif federation.adds_payloads and numbers_of(upload.value):
        upload = upload._replace(value=payload_shape(federation.way, upload.value))
    value, weight, info = zeros(upload[:3])
    size, slot = jnp.zeros(rows, jnp.result_type(float)), jnp.full(rows, -1, jnp.int32)
    return Sent(Upload(value, weight, info), nobody, nobody, jnp.zeros((rows, leaves), jnp.int32), size, slot)
