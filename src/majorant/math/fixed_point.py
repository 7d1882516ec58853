"""Fixed points of functions of trees, by repeating them."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp

from majorant.core import Tree


def fixed_point(step: Callable[[Tree], Tree], start: Tree, *, limit: int = 1000, tolerance: float = 1e-6) -> Tree:
    """``step`` again and again, until no number moves by more than ``tolerance``.

    >>> fixed_point(lambda a: (a + 2 / a) / 2, jnp.ones(1))
    Array([1.4142135], dtype=float32)
    """
    if not jax.tree.leaves(start):
        return start

    def unfinished(state: tuple[jax.Array, Tree, Tree]) -> jax.Array:
        k, here, before = state
        moves = [jnp.abs(a - b).max() for a, b in zip(jax.tree.leaves(here), jax.tree.leaves(before), strict=True)]
        return (k < limit) & ((k == 0) | (jnp.stack(moves).max() > tolerance))

    body = lambda state: (state[0] + 1, step(state[1]), state[1])
    return jax.lax.while_loop(unfinished, body, (jnp.asarray(0), start, start))[1]
