"""When a stochastic method with a constant step has come as near as gradient noise lets it.

Its point then no longer gets away from where it began. The squared distance Δ_k = ‖w_k − w_0‖² grows like a power of
the number of iterations k while the method travels (k² along a slope, k by diffusion), and levels off in the end. At
iterations k_1 < k_2 < … that grow by a factor of 1.5, from one pass over the mean number of samples on, the method
counts as stalled when::

    log(Δ_{k_{i+1}} / Δ_{k_i}) / log(k_{i+1} / k_i) < 0.6

The server needs nothing but its own iterates for it.

Reference: Pesme, Dieuleveut, Flammarion, *On convergence-diagnostic based step sizes for stochastic gradient descent*,
ICML 2020, Section 4, whose two numbers these are.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from majorant.core import Tree, squared_norm

FACTOR, SLOWEST = 1.5, 0.6


class Watch(NamedTuple):
    """Where it began, and the iterations and the squared distance when that was last looked at (0: never)."""

    start: Tree
    looked: jax.Array
    distance: jax.Array


def begin_watch(start: Tree) -> Watch:
    """A watch over a method that begins here."""
    zero = jnp.zeros((), jnp.result_type(float))
    return Watch(start, zero, zero)


def watch(before: Watch, now: Tree, iterations: jax.Array, first: jax.Array) -> tuple[Watch, jax.Array]:
    """The watch after a look, if one is due, and whether the method has stalled; the first look is at ``first``.

    >>> seen, _ = watch(begin_watch(jnp.zeros(2)), jnp.ones(2), jnp.asarray(10), jnp.asarray(10.0))
    >>> bool(watch(seen, 2 * jnp.ones(2), jnp.asarray(15), jnp.asarray(10.0))[1])
    False
    >>> bool(watch(seen, 1.1 * jnp.ones(2), jnp.asarray(15), jnp.asarray(10.0))[1])
    True
    """
    k = iterations.astype(before.looked.dtype)
    due = k >= jnp.where(before.looked > 0, FACTOR * before.looked, first)
    distance = squared_norm(jax.tree.map(jnp.subtract, now, before.start)).astype(before.distance.dtype)
    known = due & (before.looked > 0) & (before.distance > 0)
    ratio = lambda a, b: jnp.log(jnp.maximum(a, 1e-300 if a.dtype == jnp.float64 else 1e-37) / jnp.where(known, b, 1))
    stalled = known & (ratio(distance, before.distance) < SLOWEST * ratio(k, before.looked))
    after = Watch(before.start, jnp.where(due, k, before.looked), jnp.where(due, distance, before.distance))
    return after, stalled
