"""Accelerated proximal gradient descent (FISTA) whose momentum starts anew when it points uphill.

With a step x ↦ prox(x − ∇f(x)/L) of a convex f that is L-smooth, from y_1 = x_0 and t_1 = 1::

    x_k = step(y_k)
    t_{k+1} = (1 + √(1 + 4 t_k²)) / 2,   y_{k+1} = x_k + (t_k − 1)/t_{k+1} (x_k − x_{k−1})

and where ⟨y_k − x_k, x_k − x_{k−1}⟩ > 0, t_{k+1} = 1 and y_{k+1} = x_k instead.

References: Beck, Teboulle, *A fast iterative shrinkage-thresholding algorithm*, SIAM J. Imaging Sciences 2009;
O'Donoghue, Candès, *Adaptive restart for accelerated gradient schemes*, FoCM 2015.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

Axis = int | tuple[int, ...] | None


class Descent(NamedTuple):
    """Where it is (x), where momentum leads (y), and its clock (t)."""

    here: jax.Array
    ahead: jax.Array
    clock: jax.Array


def begin(start: jax.Array, axis: Axis = None) -> Descent:
    """A descent that has not moved; with ``axis``, one for every entry of the other axes, each with its own clock."""
    return Descent(start, start, jnp.ones_like(start.sum(axis=axis, keepdims=axis is not None)))


def onward(state: Descent, new: jax.Array, axis: Axis = None) -> Descent:
    """The state after the step from ``state.ahead`` to ``new``."""
    here, ahead, t = state
    uphill = ((ahead - new) * (new - here)).sum(axis=axis, keepdims=axis is not None) > 0
    later = jnp.where(uphill, 1, (1 + jnp.sqrt(1 + 4 * t * t)) / 2)
    return Descent(new, new + jnp.where(uphill, 0, (t - 1) / later) * (new - here), later)


def fista(
    step: Callable[[jax.Array], jax.Array],
    start: jax.Array,
    *,
    steps: int,
    moves: Callable[[jax.Array, jax.Array], jax.Array],
    axis: Axis = None,
    every: int = 1,
) -> jax.Array:
    """Steps until ``moves(new, ahead)`` is False, which is looked at after ``every`` few, or ``steps`` were made.

    >>> onto = lambda x: jnp.clip(x - (x - jnp.array([3.0, 0.5])) / 2, 0, 1)
    >>> fista(onto, jnp.zeros(2), steps=100, moves=lambda new, ahead: (new != ahead).any()).round(4)
    Array([1. , 0.5], dtype=float32)
    """

    def iterate(_: int, carry: tuple[Descent, jax.Array]) -> tuple[Descent, jax.Array]:
        state, _moving = carry
        new = step(state.ahead)
        return onward(state, new, axis), moves(new, state.ahead)

    def several(carry: Any) -> Any:
        (state, moving), count = carry
        return jax.lax.fori_loop(0, every, iterate, (state, moving)), count + every

    first = ((begin(start, axis), jnp.asarray(True)), jnp.asarray(0))
    unfinished = lambda carry: carry[0][1] & (carry[1] < steps)
    return jax.lax.while_loop(unfinished, several, first)[0][0].here
