"""Numbers that are too large to go on with: what an upload may hold at most, and whose held the largest.

Finite numbers can add up to infinite ones, and a model of finite but enormous parameters gives NaN on everybody else's
samples. So an upload is rejected as soon as the square of one of its numbers would not be finite: distances between
points and norms are squares, and sums of what is left cannot overflow. Where training fails all the same, the largest
uploads tell whether one client did it, or all of them together.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

OUTLIER = 1e6  # how many times the second largest upload the largest one must be for its client to be the cause


def largest_allowed() -> float:
    """What no number of an upload may exceed: the root of the largest number of the current precision.

    >>> f"{largest_allowed():.1e}"
    '1.8e+19'
    """
    return math.sqrt(float(jnp.finfo(jnp.result_type(float)).max))


class Largest(NamedTuple):
    """The largest absolute values in uploads that were taken, of the client that sent the largest and of all others."""

    first: Any
    second: Any
    slot: Any  # the client's place

    def stands_out(self) -> np.ndarray:
        """Whether one client's numbers are of another order than all others'."""
        return np.asarray(self.first) > OUTLIER * np.maximum(self.second, 1.0)


def largest_of(sizes: jax.Array, slots: jax.Array) -> Largest:
    """The largest of some clients' values, ``(clients,)``.

    >>> [float(entry) for entry in largest_of(jnp.array([1.0, 5.0, 3.0]), jnp.array([7, 8, 9]))]
    [5.0, 3.0, 8.0]
    """
    where = jnp.argmax(sizes)
    others = jnp.where(jnp.arange(sizes.shape[0]) == where, 0, sizes)
    return Largest(sizes[where], others.max(), slots[where])


def larger(one: Largest, two: Largest) -> Largest:
    """The largest of both, which may be the same client's."""
    ahead = one.first >= two.first
    behind = jnp.where(one.slot == two.slot, 0, jnp.minimum(one.first, two.first))
    second = jnp.maximum(jnp.maximum(one.second, two.second), behind)
    return Largest(jnp.maximum(one.first, two.first), second, jnp.where(ahead, one.slot, two.slot))
