"""What hostile clients do to a round: they send other uploads than their own, or old ones."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from majorant.core import Key, Tree, Upload, Uploads, View, beside, magnitude, stream_key, weighted_sum
from majorant.engines.extremes import largest_allowed
from majorant.exchange.attack import ATTACK_STREAM, Hostile, Seen
from majorant.exchange.federation import Federation
from majorant.exchange.gossip import Peers

if TYPE_CHECKING:
    from majorant.engines.client_part import Sent


def delayed(hostile: Hostile, upload: Upload, late: Tree, slot: Any) -> tuple[Upload, Tree]:
    """A straggler's upload of some rounds ago, and the uploads that will still be sent."""
    here = jnp.isin(slot, jnp.asarray(hostile.slots))
    value = jax.tree.map(lambda old, v: jnp.where(here, old[0], v), late, upload.value)
    late = jax.tree.map(lambda old, v: jnp.concatenate([old[1:], v[None]]), late, upload.value)
    return upload._replace(value=value), late


def honest_alone(hostile: Hostile, sent: Sent) -> Sent:
    """What clients sent, in which hostile ones have no weight: for the log, which is about the others."""
    honest = ~jnp.isin(sent.slot, jnp.asarray(hostile.slots))
    return sent._replace(upload=sent.upload._replace(weight=jnp.where(honest, sent.upload.weight, 0)))


def attacked(
    federation: Federation, view: View, key: Key, uploads: Uploads, heard: jax.Array
) -> tuple[Uploads, jax.Array, jax.Array]:
    """Uploads, those of hostile clients forged; who is heard then, and how many were rejected for it.

    They come side by side, and stay so where the exchange reads them so; else they are summed.
    """
    assert federation.hostile is not None
    uploads, heard, refused = forged(federation, view, key, uploads, heard, federation.hostile)
    if federation.exchange.stacks(federation.algorithm):
        return uploads, heard, refused
    value = jax.tree.map(functools.partial(weighted_sum, uploads.weight), uploads.value)
    return Uploads(value, uploads.weight.sum()), heard, refused


def forged(
    federation: Federation, view: View, key: Key, uploads: Uploads, heard: jax.Array, hostile: Hostile
) -> tuple[Uploads, jax.Array, jax.Array]:
    """Uploads side by side with those that hostile clients put in the place of their own."""
    attack, peers = hostile.attack, federation.exchange
    slots = peers.slots if isinstance(peers, Peers) else np.arange(heard.shape[0])  # of the rows
    mask = jnp.asarray(hostile.among(slots))
    if attack.forge is None or not jax.tree.leaves(uploads.value):
        return uploads, heard, jnp.asarray(0)
    algorithm, exchange = federation.algorithm, federation.exchange
    origin = jax.vmap(lambda slot: algorithm.client.origin(exchange.seen(algorithm, view, slot)))(jnp.asarray(slots))
    moved = jax.tree.map(jnp.subtract, uploads.value, origin)
    sent = attack.forge(stream_key(key, ATTACK_STREAM), Seen(moved, heard & ~mask, heard & mask))
    value = jax.tree.map(lambda o, f: (o + f).astype(o.dtype), origin, sent)
    sound = jax.vmap(magnitude)(value) <= largest_allowed()  # False for NaN
    value = jax.tree.map(
        lambda f, v: jnp.where(beside(mask, v), jnp.where(beside(sound & heard, v), f, 0), v), value, uploads.value
    )
    weight = jnp.where(mask & ~sound, 0, uploads.weight)
    return Uploads(value, weight), heard & (sound | ~mask), (mask & heard & ~sound).sum()
