"""Compressors: vectors in fewer bits, by chance and without bias, or by leaving most of it out.

A compressor Q is *unbiased with variance ω* where E Q(x) = x and E ‖Q(x) − x‖² ≤ ω ‖x‖². Here d is the length of x, or
of a block of it; each block has a norm of its own, sent as a 32-bit number.

=============  ============================================================  ==========================  ===============
name           Q(x), coordinate by coordinate                                ω                           bits
=============  ============================================================  ==========================  ===============
identity       x                                                             0                           32 d
quantized      ‖x‖ sign(x) ξ/s, ξ = s|x|/‖x‖ rounded up or down by chance    min(d/(4s²), √d/s)          b d + 32
natural        sign(x) 2^e, the power of two above or below by chance        1/8                         9 d
random_k       d/k · x on k places drawn at random, else 0                   d/k − 1                     32 k + 32
top_k          x on the k places where it is largest, else 0                 biased                      (32 + log₂ d) k
sometimes      Q'(x)/p with probability p, else nothing                      ω' + (1 + ω')(1 − p)/p      p · those of Q'
=============  ============================================================  ==========================  ===============

A coordinate of b bits has its sign and s = 2^(b−1) − 1 levels. The norm is the Euclidean one (QSGD) or the largest
coordinate's ("max"), where ω is d/(4s²) alone. The places of random_k follow from a 32-bit seed that is sent instead.

References: Alistarh et al., *QSGD*, NeurIPS 2017; Mishchenko et al., *Distributed learning with compressed gradient
differences*, 2019 (quantization in blocks); Horváth et al., *Natural compression for distributed deep learning*, 2019.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from majorant.core import Key
from majorant.math.checks import check_range

NUMBER = 32  # bits of a number that is not compressed


class Compressor(NamedTuple):
    """A vector as it arrives, the variance for a length, and the bits that a vector of a length takes."""

    name: str
    compress: Callable[[Key, jax.Array], jax.Array]
    omega: Callable[[int], float]  # infinite where it is biased, NaN where it is not known
    bits: Callable[[int], int]
    unbiased: bool = True  # whether E Q(x) = x


@functools.cache
def identity() -> Compressor:
    """Nothing is compressed."""
    return Compressor("identity", lambda key, x: x, lambda d: 0.0, lambda d: NUMBER * d)


@functools.cache
def quantized(bits: int = 8, *, block: int | None = None, norm: str = "euclidean") -> Compressor:
    """Stochastic quantization to ``bits`` a coordinate, its sign included, in blocks of ``block`` (None: one).

    >>> quantized(8).bits(1000)
    8032
    >>> quantized(2, block=100).bits(1000)
    2320
    """
    if bits != int(bits) or not 2 <= bits <= 16:
        raise ValueError(f"bits must be a whole number from 2 (sign and one level) to 16, got {bits}")
    check_block(block)
    if norm not in ("euclidean", "max"):
        raise ValueError(f"norm must be 'euclidean' or 'max', got {norm!r}")
    levels = 2 ** (bits - 1) - 1

    def compress(key: Key, x: jax.Array) -> jax.Array:
        rows = in_blocks(x, block)
        top = jnp.abs(rows).max(axis=1, keepdims=True)
        safe = jnp.where(top > 0, top, 1)  # squares of numbers up to 1 do not overflow
        size = top if norm == "max" else safe * jnp.sqrt(jnp.square(rows / safe).sum(axis=1, keepdims=True))
        scaled = levels * (jnp.abs(rows) / jnp.where(size > 0, size, 1))
        low = jnp.floor(scaled)
        up = jax.random.uniform(key, rows.shape, rows.dtype) < scaled - low
        return (size * (jnp.sign(rows) * (low + up) / levels)).reshape(-1)[: x.size]

    def omega(d: int) -> float:
        length = min(d, block or d)
        rounding = length / (4 * levels**2)
        return rounding if norm == "max" else min(rounding, math.sqrt(length) / levels)

    name = f"quantized:{bits}" + (f",block={block}" if block else "") + (",norm=max" if norm == "max" else "")
    return Compressor(name, compress, omega, lambda d: bits * d + NUMBER * math.ceil(d / (block or max(d, 1))))


@functools.cache
def natural() -> Compressor:
    """Every coordinate becomes one of the two powers of two beside it: a sign and an exponent of 8 bits."""

    def compress(key: Key, x: jax.Array) -> jax.Array:
        mantissa, exponent = jnp.frexp(jnp.abs(x))  # |x| = mantissa · 2^exponent, mantissa in [1/2, 1)
        up = jax.random.uniform(key, x.shape, x.dtype) < 2 * mantissa - 1
        power = jnp.minimum(exponent - 1 + up, jnp.finfo(x.dtype).maxexp - 1)  # the largest there is
        return jnp.where(x == 0, 0, jnp.sign(x) * jnp.ldexp(jnp.ones_like(x), power))

    return Compressor("natural", compress, lambda d: 0.125, lambda d: 9 * d)


@functools.cache
def random_k(share: float = 0.1) -> Compressor:
    """A random ``share`` of the coordinates (at least one), scaled up so that the mean is right.

    >>> random_k(0.25).omega(100), random_k(0.25).bits(100)
    (3.0, 832)
    """
    check_range("share", share, above=0, most=1)

    def compress(key: Key, x: jax.Array) -> jax.Array:
        k = kept(x.size, share)
        places = jax.random.permutation(key, x.size)[:k]
        return jnp.zeros_like(x).at[places].set(x[places] * (x.size / k))

    return Compressor(
        f"random-k:{share:g}", compress, lambda d: d / kept(d, share) - 1, lambda d: NUMBER * (kept(d, share) + 1)
    )


@functools.cache
def top_k(share: float = 0.1) -> Compressor:
    """The ``share`` of the coordinates (at least one) that are largest; biased, so it needs error feedback."""
    check_range("share", share, above=0, most=1)

    def compress(key: Key, x: jax.Array) -> jax.Array:
        places = jax.lax.top_k(jnp.abs(x), kept(x.size, share))[1]
        return jnp.zeros_like(x).at[places].set(x[places])

    bits = lambda d: (NUMBER + math.ceil(math.log2(max(d, 2)))) * kept(d, share)
    return Compressor(f"top-k:{share:g}", compress, lambda d: math.inf, bits, unbiased=False)


@functools.cache
def sometimes(probability: float, compressor: Compressor | None = None) -> Compressor:
    """Another compressor's vector, scaled up, with a probability, else nothing: how absent clients look to the server.

    FedMM with clients that take part independently with probability p is FedMM with all clients and this compressor
    (Dieuleveut et al., 2025, Appendix D.2). The bits are those that are sent on average.

    >>> sometimes(0.5, quantized(8)).bits(1000), sometimes(0.5).omega(1000)
    (4016, 1.0)
    """
    check_range("probability", probability, above=0, most=1)
    inner = identity() if compressor is None else compressor

    def compress(key: Key, x: jax.Array) -> jax.Array:
        present = jax.random.bernoulli(jax.random.fold_in(key, 1), probability)
        return jnp.where(present, inner.compress(key, x) / probability, 0)

    return Compressor(
        f"sometimes:{probability:g},{inner.name}",
        compress,
        lambda d: inner.omega(d) + (1 + inner.omega(d)) * (1 - probability) / probability,
        lambda d: math.ceil(probability * inner.bits(d)),
        inner.unbiased,
    )


def kept(length: int, share: float) -> int:
    """How many coordinates a share is."""
    return max(1, round(share * length))


def in_blocks(x: jax.Array, block: int | None) -> jax.Array:
    """A vector as rows of equal length, zeros at the end."""
    length = min(block or x.size, x.size) or 1
    return jnp.pad(x, (0, -x.size % length)).reshape(-1, length)


def check_block(block: int | None) -> None:
    """A block is a positive whole number of coordinates."""
    if block is not None and (block != int(block) or block < 1):
        raise ValueError(f"block must be a positive whole number of coordinates, got {block}")
