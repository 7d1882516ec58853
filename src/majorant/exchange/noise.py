"""Stages that hide a client: noise in proportion to what one client can add to a sum, and clipping that adapts.

Before noise, a stage must bound what one client adds, ``‖x_i‖ ≤ C``: `clip`, or `adaptive_clip`. Then a round's sum
moves by at most C when a client comes or goes, by at most 2C when one is replaced, and noise of standard deviation z C
in every entry hides it: z, the *noise multiplier*, is what accountants ask for (`majorant.exchange.accounting`).

============  ==============================  ============================================================
noise at      Σ_i x_i becomes                 hides a client from
============  ==============================  ============================================================
the server    Σ_i x_i + N(0, z² C² I)         everybody who sees the models, but not the server
a client      Σ_i (x_i + N(0, z² C² I))       everybody, the server included
all together  Σ_i x_i + Skellam(z² C²)        everybody, the server included, under a secure sum
============  ==============================  ============================================================

With noise at the server every client counts equally and the mean is Σ_i x_i / (p N), p N being the clients *expected*
in a round: dividing by who came would tell who came, and dividing by samples would tell how many there are.

*Together*: under a secure sum the server sees the sum alone, and every client adds a part of the noise to its whole
numbers before they are masked. A difference of two Poisson numbers has Skellam's distribution, and sums of such have
it, too: parts of variance v/n from n clients make exactly one of variance v. A sum is not opened with fewer clients
than the ``threshold``, so each adds its part of noise for as many: with more there is more. Rounding to whole numbers
lengthens a vector of d by at most √d steps, which the bound counts in.

*Adaptive clipping* steers its radius R towards a quantile γ of the displacements' lengths. A client sends, in one
vector of bounded length, x/R clipped to length 1 and s (b − ½), where b says whether ‖x‖ ≤ R; noise falls on all of
it. With b̄ the noisy share of those with b = 1, R ← R exp(−η (b̄ − γ)). The bound is C = √(1 + s²/4), whatever R is:
Theorem 1 of Andrew et al., with σ_b = z C / s for the count and z C for the displacements, is Gaussian noise on this
one vector.

References: Agarwal, Kairouz, Liu, *The Skellam mechanism for differentially private federated learning*, NeurIPS 2021;
Andrew, Thakkar, McMahan, Ramaswamy, *Differentially private learning with adaptive clipping*, NeurIPS 2021.
"""

from __future__ import annotations

import functools
import math

import jax
import jax.numpy as jnp

from majorant.core import Key, Tree
from majorant.exchange._stage import Encoded, Noise, ServerEnd, Stage
from majorant.exchange.channel import identity, length_of, plain, shortened
from majorant.math.checks import check_range


@functools.cache
def gaussian(multiplier: float, *, at: str = "server") -> Stage:
    """Gaussian noise of ``multiplier`` times the largest length of a client's message, drawn ``at`` server or client.

    >>> from majorant.exchange import chain
    >>> from majorant.exchange.channel import clip
    >>> chain(clip(0.5), gaussian(2.0)).noise
    Noise(multiplier=2.0, at='server', bound=0.5)
    """
    check_range("noise multiplier", multiplier, above=0)
    if at not in ("server", "client"):
        raise ValueError(f"noise is drawn at 'server' or 'client', got {at!r}")

    def after(bound: float) -> Stage:
        deviation = multiplier * bound

        def drawn(key: Key, x: jax.Array, deviation: jax.Array) -> jax.Array:
            return x + deviation.astype(x.dtype) * jax.random.normal(key, x.shape, x.dtype)

        def encode(key: Key, x: jax.Array, memory: Tree) -> tuple[Encoded, Tree]:
            return Encoded(drawn(key, x, jnp.asarray(deviation)) if at == "client" else x), ()

        def collect(key: Key, total: jax.Array, news: Tree, weight: jax.Array) -> tuple[jax.Array, Tree]:
            return drawn(key, total, news), news

        kept = lambda: jnp.asarray(deviation, jnp.result_type(float))  # an array: other noise is the same program

        return Stage(
            name=f"gaussian:{multiplier:g}" + (",at=client" if at == "client" else ""),
            encode=encode,
            decode=plain,
            omega=lambda d: math.nan,
            linear=True,
            after=after,
            noise=Noise(multiplier, at, bound),
            server=ServerEnd(collect, kept) if at == "server" else None,
        )

    return after(math.inf)


@functools.cache
def skellam(multiplier: float) -> Stage:
    """Noise on whole numbers that all clients draw together, right before `secure_sum`.

    >>> from majorant.exchange import chain
    >>> from majorant.exchange.channel import clip
    >>> from majorant.exchange.secure_sum import secure_sum
    >>> chain(clip(1.0), skellam(1.0), secure_sum(1.0, bits=12, threshold=50)).noise.at
    'together'
    """
    check_range("noise multiplier", multiplier, above=0)

    def after(bound: float) -> Stage:
        return identity()._replace(
            name=f"skellam:{multiplier:g}",
            after=after,
            noise=Noise(multiplier, "together", bound),
            omega=lambda d: math.nan,
        )

    return after(math.inf)


@functools.cache
def adaptive_clip(quantile: float = 0.5, *, start: float = 1.0, rate: float = 0.2, count: float = 0.2) -> Stage:
    """Displacements clipped to a length that follows the ``quantile`` of their lengths, from ``start`` on.

    The radius moves by a factor of at most e^rate in a round; ``count`` is s, the weight of a client's answer whether
    its displacement was shorter.

    >>> round(adaptive_clip(count=0.2).bound(math.inf), 4)
    1.005
    """
    check_range("quantile", quantile, above=0, below=1)
    check_range("start", start, above=0)
    check_range("rate", rate, above=0, most=1)
    check_range("count", count, above=0)

    def with_radius(radius: jax.Array | float) -> Stage:
        def encode(key: Key, x: jax.Array, memory: Tree) -> tuple[Encoded, Tree]:
            safe = jnp.asarray(radius, x.dtype)
            within = jnp.where(length_of(x) <= safe, 0.5, -0.5).astype(x.dtype)
            return Encoded(jnp.append(shortened(x / safe, 1.0), count * within)), ()

        return Stage(
            name=f"adaptive-clip:{quantile:g}" + "".join(said),
            encode=encode,
            decode=lambda message, length: message.payload[:length] * jnp.asarray(radius, message.payload.dtype),
            omega=lambda d: math.inf,
            length=lambda d: d + 1,
            unbiased=False,
            linear=True,
            bound=lambda norm: math.sqrt(1 + count**2 / 4),
            server=ServerEnd(
                collect,
                news=lambda: jnp.asarray(start, jnp.result_type(float)),
                told=lambda radius: radius,
                inform=with_radius,
            ),
        )

    def collect(key: Key, total: jax.Array, radius: Tree, weight: jax.Array) -> tuple[jax.Array, Tree]:
        share = total[-1] / (count * jnp.maximum(weight, jnp.finfo(total.dtype).tiny)) + 0.5
        heard = jnp.where(weight > 0, rate * (jnp.clip(share, 0, 1) - quantile), 0)
        return total[:-1] * radius.astype(total.dtype), (radius * jnp.exp(-heard)).astype(radius.dtype)

    usual = {"start": (start, 1.0), "rate": (rate, 0.2), "count": (count, 0.2)}
    said = [f",{name}={value:g}" for name, (value, default) in usual.items() if value != default]
    return with_radius(start)
