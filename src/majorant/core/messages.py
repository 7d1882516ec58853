"""What the parties know and what travels between them.

A client receives a `View` and sends an `Upload`; the server receives `Uploads`. Nothing else travels, and all of it is
counted. What is personal is the client's own state, which is none of these.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from majorant.core.trees import Tree


class ClientData(NamedTuple):
    """The training samples of one client, padded at the end to the length its program was compiled for."""

    x: jax.Array  # (n, ...)
    y: jax.Array  # (n,)
    size: jax.Array  # how many of the n rows are real
    id: jax.Array  # opaque: what the client's randomness is derived from, and no index of anything
    slot: Any = -1  # the engine's place for the client, where something is kept for each; −1: it has none

    @property
    def mask(self) -> jax.Array:
        """True for the real rows, ``(n,)``."""
        return jnp.arange(self.y.shape[-1]) < self.size


class Terms(NamedTuple):
    """The terms of the exchange, which engines know and set: the one source for methods that depend on them."""

    inclusion: Any = 1.0  # the probability that a client takes part in a round and is heard
    omega: Any = 0.0  # the channel's variance: E ‖Q(x) − x‖² ≤ ω ‖x‖²
    remembers: Any = 0.0  # 1 where the channel makes up later for what it left out, else 0
    mean_weight: Any = 1.0  # of a client's upload, over those that train: agreed on where peers need it
    largest_weight: Any = ()  # of any client's upload, agreed on where there is a secure sum


class Server(NamedTuple):
    """What the server knows. Hyperparameters are arrays, so a new value never retraces and a grid is one more vmap."""

    value: Tree  # what it broadcasts: the shared point
    hyper: dict[str, jax.Array]
    state: Tree = ()  # what it keeps to itself: optimizer moments, cluster labels
    round: jax.Array | int = 0  # rounds finished
    rounds: jax.Array | int = 1  # rounds planned, for schedules
    terms: Terms = Terms()
    channel: Tree = ()  # what the channel's stages keep at the server


class View(NamedTuple):
    """Everything sent to a client; all of it is counted."""

    value: Tree
    hyper: dict[str, jax.Array]
    round: jax.Array | int
    rounds: jax.Array | int
    shared: Tree = ()  # what all clients are told beside the value: coins drawn for all, counters
    terms: Terms = Terms()
    travels: Tree = True  # a prefix of the value: False for the parts that clients have already
    channel: Tree = ()  # what the channel's stages tell clients: set by engines

    @property
    def progress(self) -> jax.Array:
        """The finished share of the planned rounds, in [0, 1]: the time that schedules run on."""
        return jnp.asarray(self.round, jnp.float32) / jnp.maximum(jnp.asarray(self.rounds, jnp.float32), 1)


class Upload(NamedTuple):
    """What leaves a client: a value, its weight in the average, and scalars for the log that the server never uses."""

    value: Tree
    weight: jax.Array
    info: dict[str, jax.Array] = {}  # noqa: RUF012 - never mutated
    travels: Tree = True  # a prefix of the value: False for the parts that are known to be zero


class Uploads(NamedTuple):
    """What a server receives in a round: Σ weight · value and Σ weight over the clients that were heard.

    Where a method's traits say that it reads "each", value and weight have an axis of slots instead, and the weight of
    a client that was not heard is 0.
    """

    value: Tree
    weight: jax.Array

    def mean(self) -> Tree:
        """The weighted mean of the uploaded values."""
        safe = jnp.where(self.weight > 0, self.weight, 1)
        return jax.tree.map(lambda v: v / safe.astype(v.dtype), self.value)


class Answer(NamedTuple):
    """What clients answer before round 1, of one client or of all together: a weighted sum, and largest values."""

    value: Tree
    weight: jax.Array
    largest: Tree = ()

    def mean(self) -> Tree:
        """The weighted mean of the values."""
        return Uploads(self.value, self.weight).mean()


def leaf_travels(value: Tree, travels: Tree) -> jax.Array:
    """Which leaves of a message's value travel, ``(leaves,)`` of 0 and 1.

    >>> leaf_travels({"a": (jnp.zeros(2), jnp.zeros(3)), "b": jnp.zeros(1)}, {"a": True, "b": False})
    Array([1, 1, 0], dtype=int32)
    """
    spread = jax.tree.map(lambda flag, part: [flag] * len(jax.tree.leaves(part)), travels, value)
    flags: list[Any] = [jnp.asarray(flag, jnp.int32) for flag in jax.tree.leaves(spread)]
    return jnp.stack(flags) if flags else jnp.zeros(0, jnp.int32)
