"""Channels: what becomes of an upload between a client and whoever combines it.

A client's upload departs from a point that the server knows, ``origin(view)``: the broadcast model, or zero for
gradients. The displacement from it travels, as one vector, through a chain of stages::

    x = value − origin  →  stage 1  →  stage 2  →  …  →  message        and back, in reverse order, where it arrives

Sending the point itself would leave an error even at the optimum, where displacements vanish. A stage turns a vector
into a shorter or coarser one, the *payload*, which the next stage takes on, and *side* arrays that are sent as they are
(norms, places, seeds). It may keep a memory on the client. What a stage keeps of a vector it says itself: unbiased with
variance ω, linear (payloads of several clients can be added before they are decoded, which secure sums need), how often
messages arrive. Its bits are measured on what it encodes. Set-up answers and what comes down are sent as they are.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree

from majorant.core import Key, Tree

CHANNEL_STREAM = 0xC0DE
LOSS_STREAM = 0x1057


class Encoded(NamedTuple):
    """What a stage makes of a vector: a vector for the next stage, and arrays that are sent as they are."""

    payload: jax.Array
    side: Any = ()  # a tuple of arrays, or of such tuples


class Stage(NamedTuple):
    """One step of a channel, and a whole channel: chains of stages are stages.

    ``encode(key, x, memory)`` gives the message and the memory that the client keeps if it arrives;
    ``decode(message, length)`` is the vector of that length as it arrives.
    """

    name: str
    encode: Callable[[Key, jax.Array, Tree], tuple[Any, Tree]]
    decode: Callable[[Any, int], jax.Array]
    omega: Callable[[int], float]  # for vectors of a length; infinite where it is biased, NaN where it is not known
    memory: Callable[[int], Tree] = lambda length: ()
    widths: Callable[[int], tuple[int | None, ...]] = lambda length: ()  # bits of an entry of payload, side, …
    # … where they are not those of its type; of a chain: of the last payload and of all sides
    length: Callable[[int], int] = lambda length: length  # of the payload
    unbiased: bool = True  # whether E Q(x) = x
    linear: bool = False
    remembers: bool = False  # makes up in later rounds for what it has left out
    sent: float = 1.0  # the share of the rounds in which there is a message at all
    arrives: float = 1.0  # the probability that a message arrives
    secure: Any = None  # the last stage of a secure sum: (`SecureSum`, the stages before it)

    def apply(self, key: Key, x: jax.Array, memory: Tree = ()) -> jax.Array:
        """A vector as it arrives.

        >>> from majorant.exchange.channel import identity
        >>> identity().apply(jax.random.key(0), jnp.array([1.0, 2.0]))
        Array([1., 2.], dtype=float32)
        """
        return self.decode(self.encode(key, x, memory)[0], x.size)

    def bits(self, length: int, dtype: Any = jnp.float32) -> int:
        """The bits of a message for a vector of a length, on average over rounds, by the shapes of what is encoded.

        >>> from majorant.exchange.channel import quantized, random_k
        >>> quantized(8).bits(1000), chain(random_k(0.1), quantized(8)).bits(1000)
        (8032, 864)
        """
        if length == 0:
            return 0
        encode = lambda key, x, memory: self.encode(key, x, memory)[0]
        vector = jax.ShapeDtypeStruct((length,), dtype)
        message = jax.eval_shape(encode, jax.random.key(0), vector, jax.eval_shape(lambda: self.memory(length)))
        arrays = jax.tree.leaves(message)
        widths = self.widths(length) + (None,) * len(arrays)
        own = lambda array: 8 * array.dtype.itemsize
        total = sum(array.size * (own(array) if w is None else w) for array, w in zip(arrays, widths, strict=False))
        return math.ceil(self.sent * total)


@functools.cache
def chain(*stages: Stage) -> Stage:
    """Stages one after the other: the next one encodes the payload of the one before.

    >>> from majorant.exchange.channel import clip, quantized
    >>> chain(clip(1.0), quantized(8)).name
    'clip:1, quantized:8'
    """
    for stage in stages:
        if not isinstance(stage, Stage):
            raise ValueError(f"a channel is made of stages, such as quantized(8), got {stage!r}")
    if not stages:
        raise ValueError("a channel needs at least one stage")
    if len(stages) == 1:
        return stages[0]
    early = next((stage for stage in stages[:-1] if stage.secure is not None), None)
    if early is not None:
        raise ValueError(f"{early.name} must come last: nothing can be done to what is masked")
    if stages[-1].secure is not None:
        return stages[-1].secure[0].following(chain(*stages[:-1]))
    for place, stage in enumerate(stages):
        if stage.remembers and not all(before.linear for before in stages[:place]):
            raise ValueError(
                f"{stage.name} remembers what it leaves out of single coordinates, and {stages[place - 1].name} before "
                "it changes which these are: put it first"
            )

    def lengths(length: int) -> list[int]:
        found = [length]
        for stage in stages:
            found.append(stage.length(found[-1]))
        return found

    def encode(key: Key, x: jax.Array, memory: Tree) -> tuple[Encoded, Tree]:
        sides, memories = [], []
        for i, (stage, own) in enumerate(zip(stages, memory, strict=True)):
            (x, side), own = stage.encode(jax.random.fold_in(key, i), x, own)
            sides.append(side)
            memories.append(own)
        return Encoded(x, tuple(sides)), tuple(memories)

    def decode(message: Encoded, length: int) -> jax.Array:
        x = message.payload
        for stage, side, n in reversed(list(zip(stages, message.side, lengths(length), strict=False))):
            x = stage.decode(Encoded(x, side), n)
        return x

    def omega(length: int) -> float:
        return math.prod(1 + stage.omega(n) for stage, n in zip(stages, lengths(length), strict=False)) - 1

    def widths(length: int) -> tuple[int | None, ...]:
        """The last payload has the width of the last stage that says one; sides have their own."""
        payload: int | None = None
        sides: list[int | None] = []
        for stage, n in zip(stages, lengths(length), strict=False):
            stated = stage.widths(n)
            payload = stated[0] if stated and stated[0] is not None else payload
            encoded = jax.eval_shape(
                lambda x, stage=stage, n=n: stage.encode(jax.random.key(0), x, stage.memory(n))[0],
                jax.ShapeDtypeStruct((n,), jnp.float32),
            )
            count = len(jax.tree.leaves(encoded)) - 1
            sides += list((stated[1:] + (None,) * count)[:count])
        return (payload, *sides)

    return Stage(
        name=", ".join(stage.name for stage in stages),
        encode=encode,
        decode=decode,
        omega=omega,
        memory=lambda length: tuple(s.memory(n) for s, n in zip(stages, lengths(length), strict=False)),
        widths=widths,
        length=lambda length: lengths(length)[-1],
        unbiased=all(stage.unbiased for stage in stages),
        linear=all(stage.linear for stage in stages),
        remembers=any(stage.remembers for stage in stages),
        sent=math.prod(stage.sent for stage in stages),
        arrives=math.prod(stage.arrives for stage in stages),
    )


def numbers_of(tree: Tree) -> int:
    """How many numbers a tree of arrays (or of their shapes) has."""
    return sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(tree))


def encoded(channel: Stage, key: Key, value: Tree, origin: Tree, memory: Tree) -> tuple[Any, Tree]:
    """What travels of an uploaded value, and the client's memory if it arrives."""
    displacement, _ = ravel_pytree(jax.tree.map(lambda v, o: v - o, value, origin))
    return channel.encode(jax.random.fold_in(key, CHANNEL_STREAM), displacement, memory)


def decoded(channel: Stage, message: Any, origin: Tree) -> Tree:
    """An uploaded value as it arrives, where the point that it departs from is known."""
    start, unravel = ravel_pytree(origin)
    moved = unravel(channel.decode(message, start.size).astype(start.dtype))
    return jax.tree.map(lambda o, m: (o + m).astype(o.dtype), origin, moved)


def arrives(channel: Stage, key: Key) -> jax.Array:
    """Whether a client's message arrives, where the channel loses some."""
    if channel.arrives == 1:
        return jnp.asarray(True)
    own = jax.random.fold_in(key, CHANNEL_STREAM)
    return jax.random.bernoulli(jax.random.fold_in(own, LOSS_STREAM), channel.arrives)
