"""Channels: what becomes of an upload between a client and whoever combines it.

A client's upload departs from a point that the server knows, ``origin(view)``: the broadcast model, or zero for
gradients. The displacement from it travels, as one vector, through a chain of stages::

    x = value − origin  →  stage 1  →  stage 2  →  …  →  message        and back, in reverse order, where it arrives

Sending the point itself would leave an error even at the optimum, where displacements vanish. A stage turns a vector
into a shorter or coarser one, the *payload*, which the next stage takes on, and *side* arrays that are sent as they are
(norms, places, seeds). It may keep a memory on the client. What a stage keeps of a vector it says itself: unbiased with
variance ω, linear (payloads of several clients can be added before they are decoded, which secure sums need), how often
messages arrive. Its bits are measured on what it encodes. Set-up answers and what comes down are sent as they are.

Some stages have a part at the server, `ServerEnd`: it has the last word on the *sum* of what clients sent (noise that
hides each of them), and may tell all clients a number at the beginning of a round (the length to clip to). Payloads are
then added up as they are, and the sum is decoded.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree

from majorant.core import Algorithm, Key, Tree

STAGES_STREAM = 0xC0DE
LOSS_STREAM = 0x1057


class Encoded(NamedTuple):
    """What a stage makes of a vector: a vector for the next stage, and arrays that are sent as they are."""

    payload: jax.Array
    side: Any = ()  # a tuple of arrays, or of such tuples


class Noise(NamedTuple):
    """Noise that hides a client: its standard deviation is ``multiplier · bound``, in every entry of the sum."""

    multiplier: float
    at: str  # who draws it: the "server", or each "client" for itself, or all clients "together", each a part of it
    bound: float = math.inf  # the largest norm of what one client adds to the sum; infinite where nothing bounds it


class ServerEnd(NamedTuple):
    """The part of a stage that is at the server.

    ``collect(key, total, news, weight)`` makes of the sum of all payloads the sum of what they stand for, with the last
    word on it, and the next round's news; ``weight`` is the sum of the clients' weights.
    """

    collect: Callable[[Key, jax.Array, Tree, jax.Array], tuple[jax.Array, Tree]]
    news: Callable[[], Tree] = lambda: ()  # what the server keeps for the stage, before round 1
    told: Callable[[Tree], Tree] = lambda news: ()  # the part of it that clients are told at the beginning of a round
    inform: Callable[[Tree], Any] | None = (
        None  # the stage whose clients have been told; None: they need to know nothing
    )


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
    bound: Callable[[float], float] = lambda norm: math.inf  # of the payload's norm, from that of what it is given
    after: Callable[[float], Any] | None = None  # the stage, told the bound on what it is given
    noise: Noise | None = None
    server: ServerEnd | None = None
    secure: Any = None  # the last stage of a secure sum: (`SecureSum`, the stages before it)

    def informed(self, told: Tree) -> Stage:
        """The stage of clients that have been told the news of a round."""
        return self if self.server is None or self.server.inform is None else self.server.inform(told)

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
    return linked(*stages)


def linked(*stages: Stage) -> Stage:
    """`chain`, of stages that need not be remembered."""
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
    stages = bounded(stages)
    server = ends_of(stages)

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
        bound=lambda norm: functools.reduce(lambda found, stage: stage.bound(found), stages, norm),
        noise=next((stage.noise for stage in stages if stage.noise is not None), None),
        server=server,
    )


def bounded(stages: tuple[Stage, ...]) -> tuple[Stage, ...]:
    """Stages that know the bound on what they are given; noise on noise is refused."""
    found, norm = [], math.inf
    for stage in stages:
        found.append(stage if stage.after is None else stage.after(norm))
        norm = stage.bound(norm)
    noisy = [stage.name for stage in found if stage.noise is not None]
    if len(noisy) > 1:
        raise ValueError(f"a channel has one stage that adds noise, not {' and '.join(noisy)}")
    return tuple(found)


def ends_of(stages: tuple[Stage, ...]) -> ServerEnd | None:
    """What the server does with the sum of the payloads of a chain, where a stage has a part there."""
    there = [stage for stage in stages if stage.server is not None]
    if not there:
        return None
    apart = next((stage for stage in stages if stage.server is None and not stage.linear), None)
    if apart is not None:
        raise ValueError(
            f"{there[-1].name} works on the sum of all messages, and those of {apart.name} cannot be added up before "
            f"they are decoded: leave {apart.name} out"
        )

    def collect(key: Key, total: jax.Array, news: Tree, weight: jax.Array) -> tuple[jax.Array, Tree]:
        told = list(news)
        for i, stage in reversed(list(enumerate(stages))):
            if stage.server is not None:
                total, told[i] = stage.server.collect(jax.random.fold_in(key, i), total, told[i], weight)
        return total, tuple(told)

    def inform(news: Tree) -> Stage:
        return linked(*(stage.informed(own) for stage, own in zip(stages, news, strict=True)))

    def told(news: Tree) -> Tree:
        ends = zip(stages, news, strict=True)
        return tuple(() if stage.server is None else stage.server.told(own) for stage, own in ends)

    news = lambda: tuple(() if stage.server is None else stage.server.news() for stage in stages)
    return ServerEnd(collect, news, told, inform)


def numbers_of(tree: Tree) -> int:
    """How many numbers a tree of arrays (or of their shapes) has."""
    return sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(tree))


@functools.lru_cache(maxsize=64)
def numbers_sent(algorithm: Algorithm) -> int:
    """How many numbers the point has that an upload departs from, and so the upload."""

    def origin(key: Any) -> Any:
        view = algorithm.server.broadcast(algorithm.server.init(key), key)
        return algorithm.client.origin(algorithm.server.address(view, jnp.asarray(0)))

    return numbers_of(jax.eval_shape(origin, jax.random.key(0)))


class Delivery(NamedTuple):
    """What becomes of a client's value on its way."""

    value: Tree  # as it arrives, or as the client knows of it where the server sees the sum alone
    memory: Tree  # of the client, if it arrives
    arrived: jax.Array
    payload: Any = None  # the vector that is added up, where the channel has a part at the server
    message: Any = ()  # what travels


def send(channel: Stage, key: Key, value: Tree, origin: Tree, memory: Tree, news: Tree = ()) -> Delivery:
    """An uploaded value on its way through a channel, whose clients have been told the news."""
    displacement, unravel = ravel_pytree(jax.tree.map(lambda v, o: v - o, value, origin))
    own = jax.random.fold_in(key, STAGES_STREAM)
    stage = channel.informed(news)
    message, memory = stage.encode(own, displacement, memory)
    moved = unravel(stage.decode(message, displacement.size))
    value = jax.tree.map(lambda o, m: (o + m).astype(o.dtype), origin, moved)
    return Delivery(value, memory, arrives(channel, own), None if channel.server is None else message.payload, message)


def arrives(channel: Stage, own: Key) -> jax.Array:
    """Whether a client's message arrives, by the key of its stages."""
    if channel.arrives == 1:
        return jnp.asarray(True)
    return jax.random.bernoulli(jax.random.fold_in(own, LOSS_STREAM), channel.arrives)


def decoded(channel: Stage, message: Any, origin: Tree) -> Tree:
    """An uploaded value as it arrives, from what has travelled, where the point that it departs from is known."""
    start, unravel = ravel_pytree(origin)
    moved = unravel(channel.decode(message, start.size).astype(start.dtype))
    return jax.tree.map(lambda o, m: (o + m).astype(o.dtype), origin, moved)


def received(
    channel: Stage, key: Key, total: jax.Array, origin: Tree, weight: jax.Array, news: Tree
) -> tuple[Tree, Tree]:
    """Σ weight · value from the sum of all payloads, and the news of the next round."""
    assert channel.server is not None
    flat, unravel = ravel_pytree(origin)
    moved, news = channel.server.collect(jax.random.fold_in(key, STAGES_STREAM), total, news, weight)
    return unravel((weight.astype(flat.dtype) * flat + moved).astype(flat.dtype)), news


def payload_shape(channel: Stage, value: Tree) -> jax.ShapeDtypeStruct:
    """The shape of the vector that is added up in place of values of these shapes."""

    def payload(value: Tree) -> jax.Array:
        flat = ravel_pytree(value)[0]
        return channel.encode(jax.random.key(0), flat, channel.memory(flat.size))[0].payload

    return jax.eval_shape(payload, value)
