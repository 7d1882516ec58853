"""Poisson numbers of a large mean, drawn in single precision without losing the shape of their distribution.

Hörmann's transformed rejection proposes k = λ + x, x from a table-mountain hat, and accepts it by its probability

    log P(k) = −λ + k log λ − log k!

whose three terms are millions where their sum is a few units: in single precision nothing is left of it, and numbers so
drawn have a variance that is off by 15 % at λ = 8·10⁶ (`jax.random.poisson`). Noise would be smaller than what is
accounted for. Loader's form has no such terms,

    log P(k) = −½ log 2πk − 1/(12k) + 1/(360k³) − D
    D = k log(k/λ) + λ − k = (k − λ) v + 2k Σ_{j≥1} v^{2j+1}/(2j + 1),        v = (k − λ)/(k + λ),

v being small wherever k is likely. k − λ is kept as it was drawn, and added to λ at the end, as a whole number.

References: Hörmann, *The transformed rejection method for generating Poisson random variables*, 1993 (PTRS); Loader,
*Fast and accurate computation of binomial probabilities*, 2000.
"""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp

from majorant.core import Key

FEW = 100.0  # below it JAX's own numbers are right
TERMS = 8  # of the series, in |v| < 1/2 wherever k is likely


def poisson(key: Key, mean: float, shape: tuple[int, ...]) -> jax.Array:
    """Poisson numbers, as whole numbers of 32 bits.

    >>> drawn = poisson(jax.random.key(0), 1e6, (10_000,))
    >>> bool(abs(drawn.mean() - 1e6) < 100), bool(abs(drawn.std() - 1000) < 30)
    (True, True)
    """
    if mean < FEW:
        return jax.random.poisson(key, mean, shape).astype(jnp.int32)
    base = math.floor(mean)
    rest = mean - base  # k − λ is a whole number less this
    b = 0.931 + 2.53 * math.sqrt(mean)
    a = -0.059 + 0.02483 * b
    inverse_alpha = 1.1239 + 1.1328 / (b - 3.4)
    squeeze = 0.9277 - 3.6224 / (b - 2)

    def attempt(state: tuple[jax.Array, jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array, jax.Array]:
        number, found, done = state
        first, second = jax.random.split(jax.random.fold_in(key, number))
        u = jax.random.uniform(first, shape, jnp.float32) - 0.5
        v = jax.random.uniform(second, shape, jnp.float32)
        edge = 0.5 - jnp.abs(u)
        above = jnp.floor((2 * a / edge + b) * u + (rest + 0.43))  # k − ⌊λ⌋
        inside = (above > -base) & (above < base) & (edge > 0)
        level = jnp.log(v * inverse_alpha / (a / jnp.square(edge) + b))
        sure = (edge >= 0.07) & (v <= squeeze)
        accepted = inside & (sure | (level <= log_probability(jnp.where(inside, above, 0) - rest, mean)))
        return number + 1, jnp.where(done, found, jnp.where(inside, above, 0).astype(jnp.int32)), done | accepted

    start = (jnp.int32(0), jnp.zeros(shape, jnp.int32), jnp.zeros(shape, bool))
    return base + jax.lax.while_loop(lambda state: ~state[2].all(), attempt, start)[1]


def log_probability(away: jax.Array, mean: float) -> jax.Array:
    """The logarithm of a Poisson number's probability, from its distance to the mean.

    >>> round(float(log_probability(jnp.float32(3.0), 1000.0)), 3)  # scipy.stats.poisson(1000).logpmf(1003)
    -4.379
    """
    k = mean + away
    v = away / (k + mean)
    square = jnp.square(v)
    series = sum((square**j / (2 * j + 1) for j in range(1, TERMS)), jnp.zeros_like(v))
    return -0.5 * jnp.log(2 * math.pi * k) - 1 / (12 * k) + 1 / (360 * k**3) - (away * v + 2 * k * v * series)
