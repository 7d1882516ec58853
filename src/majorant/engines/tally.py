"""What is added up over clients, chunks and devices in a round, and over the rounds of a block."""

from __future__ import annotations

import functools
import operator
from typing import NamedTuple, TypeVar

import jax
import jax.numpy as jnp

from majorant.core import Tree, Upload, View, collectives, weighted_sum
from majorant.core.collectives import Axis
from majorant.engines.client_part import Sent
from majorant.engines.extremes import Largest, larger, largest_of
from majorant.exchange.secure_sum import Masked


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


Counted = TypeVar("Counted", Sums, Tally)


def add_up(sent: Sent, active: jax.Array, keep_value: bool) -> Sums:
    """Sums over the leading axis of what clients sent."""
    weigh = functools.partial(weighted_sum, sent.upload.weight)
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


def merged(one: Counted, two: Counted) -> Counted:
    """Two passes, or blocks of rounds, together."""
    total = jax.tree.map(operator.add, one, two)
    offender = jnp.maximum(one.offender, two.offender)
    return total._replace(offender=offender, largest=larger(one.largest, two.largest))


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
