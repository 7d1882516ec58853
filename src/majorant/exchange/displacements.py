"""What robust rules are made of: sums, medians and distances of clients' displacements, some of which may be absent.

All hold the displacements of all clients side by side, ``(clients, ...)``; what absent ones hold may be anything.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from majorant.core import Tree, beside, weighted_sum

SORTED_VALUES = 1 << 22  # that a rule by coordinates takes on at once


def part(share: float, clients: int) -> int:
    """How many clients a share is, at most.

    >>> part(0.29, 100), part(0.25, 10)
    (29, 2)
    """
    return int(share * clients + 1e-9)


def borne(share: float, clients: int) -> jax.Array:
    """How many a share is, for every number of clients up to ``clients``."""
    return jnp.asarray(np.array([part(share, m) for m in range(clients + 1)], np.int32))


def minority(clients: int) -> int:
    """The largest number that is less than half."""
    return max(clients - 1, 0) // 2


def minus(x: Tree, v: Tree) -> Tree:
    """How far each client is from a point."""
    return jax.tree.map(lambda a, b: a - b, x, v)


def lengths(x: Tree) -> jax.Array:
    """The norm of each client's vector, (clients,); infinite where its square is."""
    each = [jnp.sum(jnp.square(a.reshape(a.shape[0], -1)), axis=1) for a in jax.tree.leaves(x)]
    return jnp.sqrt(functools.reduce(jnp.add, each))


def weighted(x: Tree, weight: jax.Array) -> Tree:
    """Σ weight · x, where what has weight 0 may be anything."""
    used = weight > 0
    return jax.tree.map(lambda a: weighted_sum(weight, jnp.where(beside(used, a), a, 0)), x)


def shortened_mean(x: Tree, present: jax.Array, radius: float | None) -> Tree:
    """The mean of vectors of at most a length."""
    length, count = lengths(x), present.sum()
    bound = middle_of(length, present) if radius is None else jnp.asarray(radius, length.dtype)
    factor = jnp.minimum(1, bound / jnp.maximum(length, jnp.finfo(length.dtype).tiny))
    return weighted(x, jnp.where(present, factor, 0) / jnp.maximum(count, 1))


def middle_of(values: jax.Array, present: jax.Array) -> jax.Array:
    """The (upper) median, along the first axis, of those numbers that are there."""
    ordered, count = jnp.sort(jnp.where(present, values, jnp.inf), axis=0), present.sum(axis=0)
    last = values.shape[0] - 1
    found = jnp.take_along_axis(ordered, jnp.minimum(count // 2, last)[None], axis=0)[0]
    return jnp.where(count > 0, found, 0)


def lower_median(ordered: jax.Array, count: jax.Array) -> jax.Array:
    """For `by_coordinate`."""
    return jnp.take(ordered, jnp.maximum((count - 1) // 2, 0), axis=0)


def distances(x: Tree, present: jax.Array) -> jax.Array:
    """The squared distances between clients, (clients, clients); infinite to and from absent ones."""
    centre = by_coordinate(lower_median, x, present)  # products of what is left lose fewer digits
    total: Any = 0
    for leaf in jax.tree.leaves(minus(x, centre)):
        rows = leaf.reshape(leaf.shape[0], -1)
        size = jnp.sum(jnp.square(rows), axis=1)
        product = jnp.matmul(rows, rows.T, precision="highest")
        apart = size[:, None] + size[None, :] - 2 * product
        total = total + jnp.where(jnp.isnan(apart), jnp.inf, jnp.maximum(apart, 0))
    there = present[:, None] & present[None, :]
    return jnp.where(there, total, jnp.inf)


def by_coordinate(rule: Callable[[jax.Array, jax.Array], jax.Array], x: Tree, present: jax.Array) -> Tree:
    """A rule on the sorted values of each coordinate, absent ones at the end; some columns at a time."""
    n, count = present.shape[0], present.sum()
    columns = max(1, SORTED_VALUES // n)

    def of_columns(block: jax.Array) -> jax.Array:
        ordered = jnp.sort(jnp.where(present[:, None], block, jnp.inf), axis=0)
        return jnp.where(count > 0, rule(ordered, count), 0)

    def of_leaf(leaf: jax.Array) -> jax.Array:
        width = math.prod(leaf.shape[1:])
        rows = leaf.reshape(n, width)
        if width <= columns:
            return of_columns(rows).reshape(leaf.shape[1:])

        def put(i: jax.Array, out: jax.Array) -> jax.Array:
            begin = jnp.minimum(i * columns, width - columns)  # the last block overlaps the one before
            block = jax.lax.dynamic_slice(rows, (0, begin), (n, columns))
            return jax.lax.dynamic_update_slice(out, of_columns(block), (begin,))

        whole = jax.lax.fori_loop(0, -(-width // columns), put, jnp.zeros(width, leaf.dtype))
        return whole.reshape(leaf.shape[1:])

    return jax.tree.map(of_leaf, x)
