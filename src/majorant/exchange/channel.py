"""Stages of channels: vectors in fewer bits, by chance and without bias, or by leaving most of it out; losses.

A stage Q is *unbiased with variance ω* where E Q(x) = x and E ‖Q(x) − x‖² ≤ ω ‖x‖². Here d is the length of x, or
of a block of it; each block has a norm of its own, sent as a number.

=============  ============================================================  ==========================  ===============
name           Q(x), coordinate by coordinate                                ω                           bits
=============  ============================================================  ==========================  ===============
identity       x                                                             0                           32 d
quantized      ‖x‖ sign(x) ξ/s, ξ = s|x|/‖x‖ rounded up or down by chance    min(d/(4s²), √d/s)          b d + 32
natural        sign(x) 2^e, the power of two above or below by chance        1/8                         9 d
random_k       d/k · x on k places drawn at random, else 0                   d/k − 1                     32 k + 32
top_k          x on the k places where it is largest, else 0                 biased                      (32 + log₂ d) k
clip           x · min(1, radius/‖x‖)                                        biased                      32 d
sometimes      Q'(x)/p with probability p, else nothing                      ω' + (1 + ω')(1 − p)/p      p · those of Q'
lossy          x, which arrives with probability 1 − p                       0                           32 d
secure_sum     x in fixed point, of which the server learns the sum alone    0, and an error in size     (b + log₂ n) d
=============  ============================================================  ==========================  ===============

A coordinate of b bits has its sign and s = 2^(b−1) − 1 levels. The norm is the Euclidean one (QSGD) or the largest
coordinate's ("max"), where ω is d/(4s²) alone. The places of random_k follow from a seed that is sent instead.

*Error feedback*, for stages that leave something out: a client remembers what was left out, e, sends Q(x + e) and keeps
the rest for the next round, e ← x + e − Q(x + e). `top_k` always has it. A message that is lost changes no memory.

References: Alistarh et al., *QSGD*, NeurIPS 2017; Mishchenko et al., *Distributed learning with compressed gradient
differences*, 2019 (quantization in blocks); Horváth et al., *Natural compression for distributed deep learning*, 2019;
Karimireddy, Rebjock, Stich, Jaggi, *Error feedback fixes SignSGD and other gradient compression schemes*, ICML 2019.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import jax
import jax.numpy as jnp

from majorant.core import Key, Tree
from majorant.exchange._stage import Encoded, Stage, chain
from majorant.exchange.secure_sum import secure_sum
from majorant.math.checks import check_range, check_whole

__all__ = [
    "chain",
    "clip",
    "error_feedback",
    "identity",
    "lossy",
    "natural",
    "quantized",
    "random_k",
    "secure_sum",
    "sometimes",
    "top_k",
]


@functools.cache
def identity() -> Stage:
    """Everything as it is."""
    keep = lambda key, x, memory: (Encoded(x), ())
    return Stage("identity", keep, plain, lambda d: 0.0, linear=True, bound=lambda norm: norm)


def plain(message: Encoded, length: int) -> jax.Array:
    """The payload as it is."""
    return message.payload


@functools.cache
def quantized(bits: int = 8, *, block: int | None = None, norm: str = "euclidean") -> Stage:
    """Stochastic quantization to ``bits`` a coordinate, its sign included, in blocks of ``block`` (None: one).

    >>> quantized(8).bits(1000), quantized(2, block=100).bits(1000)
    (8032, 2320)
    """
    check_whole("bits", bits, least=2, most=16)  # a sign and one level at least
    check_whole("block", block, optional=True)
    if norm not in ("euclidean", "max"):
        raise ValueError(f"norm must be 'euclidean' or 'max', got {norm!r}")
    levels = 2 ** (bits - 1) - 1

    def encode(key: Key, x: jax.Array, memory: Tree) -> tuple[Encoded, Tree]:
        rows = in_blocks(x, block)
        top = jnp.abs(rows).max(axis=1, keepdims=True)
        safe = jnp.where(top > 0, top, 1)  # squares of numbers up to 1 do not overflow
        size = top if norm == "max" else safe * jnp.sqrt(jnp.square(rows / safe).sum(axis=1, keepdims=True))
        scaled = levels * (jnp.abs(rows) / jnp.where(size > 0, size, 1))
        low = jnp.floor(scaled)
        up = jax.random.uniform(key, rows.shape, rows.dtype) < scaled - low
        level = jnp.where(jnp.isfinite(scaled), jnp.sign(rows) * (low + up), 0)
        return Encoded(level.reshape(-1)[: x.size].astype(jnp.int16), (size[:, 0],)), ()

    def decode(message: Encoded, length: int) -> jax.Array:
        (size,) = message.side
        rows = in_blocks(message.payload.astype(size.dtype), block)
        return (size[:, None] * (rows / levels)).reshape(-1)[:length]

    def omega(d: int) -> float:
        length = min(d, block or d)
        rounding = length / (4 * levels**2)
        return rounding if norm == "max" else min(rounding, math.sqrt(length) / levels)

    name = f"quantized:{bits}" + (f",block={block}" if block else "") + (",norm=max" if norm == "max" else "")
    return Stage(name, encode, decode, omega, widths=lambda d: (bits,))


@functools.cache
def natural() -> Stage:
    """Every coordinate becomes one of the two powers of two beside it: a sign and an exponent of 8 bits.

    >>> natural().bits(10)
    90
    """

    def encode(key: Key, x: jax.Array, memory: Tree) -> tuple[Encoded, Tree]:
        mantissa, exponent = jnp.frexp(jnp.abs(x))  # |x| = mantissa · 2^exponent, mantissa in [1/2, 1)
        up = jax.random.uniform(key, x.shape, x.dtype) < 2 * mantissa - 1
        power = jnp.minimum(exponent - 1 + up, jnp.finfo(x.dtype).maxexp - 1)  # the largest there is
        return Encoded(jnp.where(x == 0, 0, jnp.sign(x) * jnp.ldexp(jnp.ones_like(x), power))), ()

    return Stage("natural", encode, plain, lambda d: 0.125, widths=lambda d: (9,))


@functools.cache
def random_k(share: float = 0.1) -> Stage:
    """A random ``share`` of the coordinates (at least one), scaled up so that the mean is right.

    >>> random_k(0.25).omega(100), random_k(0.25).bits(100)
    (3.0, 832)
    """
    check_range("share", share, above=0, most=1)
    places = lambda seed, d: jax.random.permutation(jax.random.key(seed), d)[: kept(d, share)]

    def encode(key: Key, x: jax.Array, memory: Tree) -> tuple[Encoded, Tree]:
        seed = jax.random.bits(key, (), jnp.uint32)
        return Encoded(x[places(seed, x.size)] * (x.size / kept(x.size, share)), (seed,)), ()

    def decode(message: Encoded, length: int) -> jax.Array:
        values, (seed,) = message
        return jnp.zeros(length, values.dtype).at[places(seed, length)].set(values)

    omega = lambda d: d / kept(d, share) - 1
    return Stage(f"random-k:{share:g}", encode, decode, omega, length=lambda d: kept(d, share))


@functools.cache
def top_k(share: float = 0.1) -> Stage:
    """The ``share`` of the coordinates (at least one) that are largest, with error feedback, as it is biased.

    >>> top_k(0.1).bits(1000) == 100 * (32 + 10)
    True
    """
    check_range("share", share, above=0, most=1)

    def encode(key: Key, x: jax.Array, memory: Tree) -> tuple[Encoded, Tree]:
        places = jax.lax.top_k(jnp.abs(x), kept(x.size, share))[1]
        return Encoded(x[places], (places,)), ()

    def decode(message: Encoded, length: int) -> jax.Array:
        values, (places,) = message
        return jnp.zeros(length, values.dtype).at[places].set(values)

    widths = lambda d: (None, math.ceil(math.log2(max(d, 2))))
    largest = Stage(
        f"top-k:{share:g}",
        encode,
        decode,
        lambda d: math.inf,
        widths=widths,
        length=lambda d: kept(d, share),
        unbiased=False,
    )
    return error_feedback(largest)


@functools.cache
def error_feedback(stage: Stage) -> Stage:
    """A stage whose clients remember what it leaves out, and send that later.

    >>> error_feedback(natural()).remembers
    True
    """

    def encode(key: Key, x: jax.Array, memory: Tree) -> tuple[Encoded, Tree]:
        error, own = memory
        whole = x + error
        message, own = stage.encode(key, whole, own)
        return message, (whole - stage.decode(message, x.size), own)

    def memory(d: int) -> Tree:
        return jnp.zeros(d, jnp.result_type(float)), stage.memory(d)

    return stage._replace(encode=encode, memory=memory, remembers=True)


@functools.cache
def clip(radius: float) -> Stage:
    """Displacements of at most a length: longer ones are shortened.

    >>> message, _ = clip(1.0).encode(jax.random.key(0), jnp.array([3.0, 4.0]), ())
    >>> [round(float(value), 3) for value in message.payload]
    [0.6, 0.8]
    """
    check_range("radius", radius, above=0)

    def encode(key: Key, x: jax.Array, memory: Tree) -> tuple[Encoded, Tree]:
        return Encoded(shortened(x, radius)), ()

    return Stage(
        f"clip:{radius:g}",
        encode,
        plain,
        lambda d: math.inf,
        unbiased=False,
        linear=True,
        bound=lambda norm: min(norm, radius),
    )


def shortened(x: jax.Array, radius: Any) -> jax.Array:
    """A vector of at most a length."""
    return x * jnp.minimum(1, radius / jnp.maximum(length_of(x), jnp.finfo(x.dtype).tiny))


def length_of(x: jax.Array) -> jax.Array:
    """The Euclidean norm, without overflow on its way."""
    largest = jnp.abs(x).max(initial=0)
    safe = jnp.where(largest > 0, largest, 1)
    return safe * jnp.linalg.norm(x / safe)


@functools.cache
def sometimes(probability: float, stage: Stage | None = None) -> Stage:
    """Another stage's vector, scaled up, with a probability, else nothing: how absent clients look to the server.

    FedMM with clients that take part independently with probability p is FedMM with all clients and this stage
    (Dieuleveut et al., 2025, Appendix D.2). The bits are those that are sent on average.

    >>> sometimes(0.5, quantized(8)).bits(1000), sometimes(0.5).omega(1000)
    (4016, 1.0)
    """
    check_range("probability", probability, above=0, most=1)
    inner = identity() if stage is None else stage
    if inner.remembers:
        raise ValueError(f"{inner.name} remembers what it leaves out: it cannot also be silent by chance")

    def encode(key: Key, x: jax.Array, memory: Tree) -> tuple[Encoded, Tree]:
        present = jax.random.bernoulli(jax.random.fold_in(key, 1), probability)
        (payload, side), memory = inner.encode(key, x, memory)
        return Encoded(payload, (present, side)), memory

    def decode(message: Encoded, length: int) -> jax.Array:
        present, side = message.side
        return jnp.where(present, inner.decode(Encoded(message.payload, side), length) / probability, 0)

    return inner._replace(
        name=f"sometimes:{probability:g},{inner.name}",
        encode=encode,
        decode=decode,
        omega=lambda d: inner.omega(d) + (1 + inner.omega(d)) * (1 - probability) / probability,
        widths=lambda d: ((inner.widths(d) or (None,))[0], 0, *inner.widths(d)[1:]),
        linear=False,
        bound=lambda norm: math.inf,
        sent=probability,
    )


@functools.cache
def lossy(probability: float) -> Stage:
    """Messages that are lost with a probability, each on its own: neither side is changed by a lost one.

    >>> lossy(0.1).arrives
    0.9
    """
    check_range("probability", probability, least=0, below=1)
    return identity()._replace(name=f"lossy:{probability:g}", arrives=1 - probability)


def kept(length: int, share: float) -> int:
    """How many coordinates a share is."""
    return max(1, round(share * length))


def in_blocks(x: jax.Array, block: int | None) -> jax.Array:
    """A vector as rows of equal length, zeros at the end."""
    length = min(block or x.size, x.size) or 1
    return jnp.pad(x, (0, -x.size % length)).reshape(-1, length)
