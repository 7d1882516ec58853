"""Secure sums: the server learns the sum of what clients send, and of no client what it sent.

Clients send whole numbers modulo 2^k, each with masks that cancel in the sum of those who are heard. What the masks do
not hide is the sum, so a simulation of it needs no masks, but the same arithmetic: a vector x of client i, of weight
w_i ≤ W (both powers of two in what follows: multiplying by them rounds nothing), is encoded in fixed point as

    q_i = round(x · w_i/W / step)          step = range / 2^(bits − 1),  |x| ≤ range in every coordinate

and the server decodes the sum modulo 2^k as a whole number of either sign, Σ w_i x_i ≈ W · step · Σ q_i. Rounding is
to the nearest whole number, or up or down by chance so that it is right on average ("stochastic"). One more number
carries the weight, with a step of its own: sums of whole weights, such as numbers of samples, are exact as long as the
number of clients times W is at most 2^31.

**Error.** Each client adds at most step/2 (nearest), or less than a step (stochastic), to a coordinate of Σ w x / W. If
all weights are equal and a power of two, the mean is off by as much; `SecureSum.error` says it for any weights.

**Range.** A client whose numbers are not finite, or outside of the range, finds out before it masks them, and drops
out; a sum would be destroyed by them. So would one be by a modulus that n clients together can pass: n · 2^(bits − 1),
and what noise adds, must be less than 2^(k − 1), else the channel is refused. k is the smallest that suffices.

**Drop-outs.** A sum of fewer than ``threshold`` clients is not opened, and the run stops.

Stages before it must be *linear*: payloads that can be added before they are decoded. Quantization with a norm for each
client is not; ``bits`` is the quantization that is. Noise is added to the whole numbers, before the masks
(`skellam`). What this protects, and what not, is on the page about the threat model.

References: Bonawitz et al., *Practical secure aggregation for privacy-preserving machine learning*, CCS 2017; Bell et
al., *Secure single-server aggregation with (poly)logarithmic overhead*, CCS 2020 (SecAgg+).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from majorant.core import Key, Tree, in_double
from majorant.exchange._poisson import poisson
from majorant.exchange._stage import STAGES_STREAM, Encoded, Stage, arrives
from majorant.math.checks import check_range, check_whole

ROUNDINGS = ("stochastic", "nearest")
SLACK = 1e-5  # by how much a number may pass the range by rounding alone: what was clipped to the range is within it
NOISE_STREAM = 0x4015E
COUNTED = 2.0**23  # the largest mean of Poisson numbers that are drawn in single precision: it has all whole numbers …
# … up to twice as much, and uniform numbers fine enough to propose each of them
SURE = 12  # standard deviations that noise does not pass


class WholeNoise(NamedTuple):
    """Whole numbers that each client adds to its own before it masks them."""

    add: Callable[[Key, jax.Array], jax.Array]  # (key, whole numbers of either sign) -> as many, of the same type
    most: Callable[[int], int]  # (clients) -> what the noise of all of them surely, or all but surely, adds at most


@functools.cache
def skellam_parts(multiplier: float, length: float, threshold: int) -> WholeNoise:
    """Skellam noise of which ``threshold`` clients' parts have ``multiplier`` times a client's largest length.

    That is ``length`` in steps, and √d more by rounding. A part is a difference of two Poisson numbers, whose rate must
    be one that floating-point numbers count up to.
    """

    def rate(d: int) -> float:
        return (multiplier * (length + math.sqrt(d))) ** 2 / threshold / 2

    def add(key: Key, whole: jax.Array) -> jax.Array:
        mean = rate(whole.size)
        if mean > COUNTED or math.sqrt(whole.size) > length:
            raise ValueError(
                f"noise for whole numbers up to {length:.3g} in {whole.size:,} coordinates cannot be drawn exactly: "
                + ("give more bits" if math.sqrt(whole.size) > length else "give fewer bits, or a larger threshold")
                + " to secure-sum"
            )
        up, down = (poisson(k, mean, whole.shape) for k in jax.random.split(key))
        return whole + (up - down).astype(whole.dtype)

    most = lambda clients: math.ceil(SURE * math.sqrt(clients * 2 * rate(int(length**2))))
    return WholeNoise(add, most)


class SecureSum(NamedTuple):
    """Fixed-point numbers that are added up modulo 2^modulus."""

    range: float
    bits: int = 16
    rounding: str = "stochastic"
    threshold: int = 2
    modulus: int | None = None  # bits; None until the number of clients is known
    noise: WholeNoise | None = None  # that clients draw together
    clients: int = 2  # those that may be in a sum

    @property
    def name(self) -> str:
        """For messages."""
        more = "" if self.rounding == "stochastic" else f",rounding={self.rounding}"
        more += "" if self.threshold == 2 else f",threshold={self.threshold}"
        return f"secure-sum:{self.range:g},bits={self.bits}{more}"

    @property
    def step(self) -> float:
        """What one unit of the whole numbers stands for.

        >>> SecureSum(range=3.0, bits=3).step  # eight levels of [-4, 4]
        1.0
        """
        return 2.0 ** (math.ceil(math.log2(self.range)) - (self.bits - 1))

    @property
    def dtype(self) -> Any:
        """The type of the whole numbers."""
        return np.uint32 if (self.modulus or 32) <= 32 else np.uint64

    @property
    def weight_digits(self) -> int:
        """The binary digits of a weight as a part of the largest: a sum of all clients' weights fits 32 bits."""
        return 31 - (self.clients - 1).bit_length()

    def needed(self, clients: int) -> int:
        """The bits in which a sum of so many clients' numbers fits, its sign included.

        >>> SecureSum(range=1.0, bits=8).needed(100)
        15
        """
        noise = 0 if self.noise is None else self.noise.most(clients)
        return (clients * 2 ** (self.bits - 1) + noise).bit_length() + 1

    def among(self, clients: int) -> SecureSum:
        """With a modulus for so many clients; refuses what cannot hold their sum, and too few of them."""
        if clients < self.threshold:
            raise ValueError(
                f"{self.name}: a sum of fewer than {self.threshold} clients is not opened, and {clients} train"
                + (": what one client sends is its sum" if self.threshold == 2 else "")
            )
        needed = self.needed(clients)
        if self.modulus is not None and needed > self.modulus:
            raise ValueError(
                f"{self.name}: the sum of {clients} clients' numbers needs {needed} bits, more than the modulus of "
                f"{self.modulus}: lower bits to {self.bits - (needed - self.modulus)}, or give a larger modulus"
            )
        widest = 64 if in_double() else 32
        if (self.modulus or needed) > widest:
            raise ValueError(
                f"{self.name}: the sum of {clients} clients' numbers needs {self.modulus or needed} bits, more than "
                f"the {widest} of whole numbers here: lower bits"
                + (" or calculate in double precision" if widest == 32 else "")
            )
        return self._replace(modulus=self.modulus or needed, clients=clients)

    def error(self, weights: Any) -> float:
        """By how much a coordinate of the weighted mean can be off, for the weights of those who are heard.

        >>> SecureSum(range=1.0, bits=8, rounding="nearest").error([4.0, 4.0]) == 2.0**-7 / 2
        True
        """
        each = self.step * (0.5 if self.rounding == "nearest" else 1.0)
        bound = float(power_of_two(jnp.max(jnp.asarray(weights, float))))
        return len(weights) * each * bound / float(sum(weights))

    def encode(self, key: Key, x: jax.Array, ratio: jax.Array) -> tuple[jax.Array, jax.Array]:
        """A client's whole numbers, as residues, and whether x was within the range.

        ``ratio`` is the client's weight as a part of the largest: whole numbers are those of ratio · x.
        """
        within = jnp.abs(x).max(initial=0) <= self.range * (1 + SLACK)  # False for NaN
        most = 2.0 ** (self.bits - 1)
        scaled = jnp.clip(jnp.where(within, x, 0) * ratio / self.step, -most, most)
        if self.rounding == "nearest":
            whole = jnp.round(scaled)
        else:
            low = jnp.floor(scaled)
            whole = low + (jax.random.uniform(key, x.shape, x.dtype) < scaled - low)
        signed = whole.astype(jnp.int32 if self.dtype == np.uint32 else jnp.int64)
        if self.noise is not None:
            signed = self.noise.add(jax.random.fold_in(key, NOISE_STREAM), signed)
        return self.residue(signed), within

    def residue(self, signed: jax.Array) -> jax.Array:
        """Whole numbers modulo 2^modulus: what is masked and sent."""
        bits = 8 * np.dtype(self.dtype).itemsize
        return signed.astype(self.dtype) & self.dtype((1 << (self.modulus or bits)) - 1)

    def signed(self, total: jax.Array) -> jax.Array:
        """The whole numbers of either sign that residues stand for: the modulus decides what is negative."""
        bits = 8 * np.dtype(self.dtype).itemsize
        away = bits - (self.modulus or bits)
        return (total << away).astype(jnp.int32 if bits == 32 else jnp.int64) >> away

    def decode(self, total: jax.Array, dtype: Any = jnp.float32) -> jax.Array:
        """Σ ratio · x from the sum of residues."""
        return self.signed(total).astype(dtype) * self.step

    def following(self, before: Stage | None = None) -> Stage:
        """The stage, after others; noise that clients draw together is this stage's to add."""
        shared = None if before is None else before.noise
        if shared is not None and shared.at == "together" and self.noise is None and math.isfinite(shared.bound):
            noise = skellam_parts(shared.multiplier, shared.bound / self.step, self.threshold)
            return self._replace(noise=noise).following(before)

        def encode(key: Key, x: jax.Array, memory: Tree) -> tuple[Encoded, Tree]:
            if before is not None:
                message, memory = before.encode(key, x, memory)
                x = before.decode(message, x.size)
            return Encoded(self.encode(jax.random.fold_in(key, STAGES_STREAM), x, jnp.ones((), x.dtype))[0]), memory

        decode = lambda message, length: self.decode(message.payload)
        own = Stage(self.name, encode, decode, lambda d: 0.0, linear=True, secure=(self, before))
        own = own._replace(widths=lambda d: (self.modulus or 8 * np.dtype(self.dtype).itemsize,))
        if before is None:
            return own
        if not before.linear:
            raise ValueError(
                f"{before.name} cannot stand before {self.name}: its messages cannot be added up before they are "
                "decoded, and nobody may decode one client's. Secure sums have a quantization of their own, bits"
            )
        if before.server is not None:
            raise ValueError(
                f"{before.name} has a part at the server, which works on sums of floating-point numbers, and those of "
                f"{self.name} are whole: use clip, and let clients draw the noise together (skellam)"
            )
        return own._replace(
            name=f"{before.name}, {self.name}",
            noise=before.noise,
            bound=before.bound,
            memory=before.memory,
            omega=before.omega,
            unbiased=before.unbiased,
            remembers=before.remembers,
            arrives=before.arrives,
        )


@functools.cache
def secure_sum(
    range: float,
    *,
    bits: int = 16,
    rounding: str = "stochastic",
    threshold: int = 2,
    modulus: int | None = None,
) -> Stage:
    """A sum that the server learns, and nothing else: the last stage of a channel.

    ``range`` bounds every coordinate of a displacement; with ``clip(range)`` before it, nothing is outside. ``bits``
    are those of a coordinate before the sum, ``modulus`` those of the sum (None: as many as all clients need).

    >>> secure_sum(1.0, bits=8).secure[0].among(100).modulus
    15
    """
    check_range("range", range, above=0)
    check_whole("bits", bits, least=2, most=48)
    check_whole("threshold", threshold, least=2)
    check_whole("modulus", modulus, least=2, most=64, optional=True)
    if rounding not in ROUNDINGS:
        raise ValueError(f"rounding must be 'stochastic' or 'nearest', got {rounding!r}")
    return SecureSum(float(range), int(bits), rounding, int(threshold), modulus).following()


def settled(channel: Stage | None, clients: int) -> Stage | None:
    """The channel for so many clients: the modulus of a secure sum follows from their number."""
    if channel is None or channel.secure is None:
        return channel
    spec, before = channel.secure
    return at_size(spec, before, clients, in_double())


@functools.lru_cache(maxsize=64)
def at_size(spec: SecureSum, before: Stage | None, clients: int, double: bool) -> Stage:
    """The same object for the same arguments, because compiled programs are remembered by it."""
    return spec.among(clients).following(before)


class Masked(NamedTuple):
    """What a client gives to a secure sum: residues, of its numbers and of its weight."""

    numbers: Any  # arrays, or their shapes
    weight: Any


def seal(
    channel: Stage, key: Key, displacement: jax.Array, weight: jax.Array, largest: jax.Array, memory: Tree
) -> tuple[Masked, jax.Array, jax.Array, Tree, jax.Array]:
    """A client's message, the displacement that the sum will hold of it, and whether it could be encoded.

    Also the client's memory, and whether the message arrives. ``largest`` is the largest weight of any client.
    """
    spec, before = channel.secure
    own = jax.random.fold_in(key, STAGES_STREAM)
    x = displacement
    if before is not None:
        message, memory = before.encode(own, x, memory)
        x = before.decode(message, x.size)
    bound = power_of_two(largest)
    ratio = weight / bound
    numbers, within = spec.encode(jax.random.fold_in(own, 1), x, ratio.astype(x.dtype))
    held = spec.decode(numbers, x.dtype) / jnp.where(ratio > 0, ratio, 1).astype(x.dtype)
    fair = (weight >= 0) & (weight <= bound)
    part = jnp.round(jnp.clip(jnp.nan_to_num(ratio), 0, 1) * 2.0**spec.weight_digits).astype(jnp.uint32)
    return Masked(numbers, part), held, within & fair, memory, arrives(channel, own)


def open_sum(channel: Stage, total: Masked, largest: jax.Array, dtype: Any) -> tuple[jax.Array, jax.Array]:
    """Σ weight · displacement and Σ weight, from the sums of residues."""
    spec, _ = channel.secure
    bound = power_of_two(largest).astype(dtype)
    return spec.decode(total.numbers, dtype) * bound, total.weight.astype(dtype) * bound * 2.0**-spec.weight_digits


def power_of_two(value: jax.Array) -> jax.Array:
    """The smallest power of two that is at least a positive number, else 1.

    >>> [float(power_of_two(jnp.float32(v))) for v in (0.3, 4.0, 5.0, 0.0)]
    [0.5, 4.0, 8.0, 1.0]
    """
    fraction, exponent = jnp.frexp(jnp.where(value > 0, value, 1))
    return jnp.ldexp(jnp.ones_like(fraction), jnp.where(fraction == 0.5, exponent - 1, exponent))
