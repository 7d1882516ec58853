"""Loops of clients that run side by side, in lanes: whoever is done makes room for the next.

Under ``vmap`` a loop ends with its longest client, and those that are done wait. Where a step of a few clients keeps a
GPU busy, that is most of the time: of 80 clients of CIFAR-10 one takes 22 steps and a third take a single one. In lanes
(`in_lanes`) a step is made for a fixed number of clients. A client that has made its steps leaves its result, and the
next one takes its lane, the longest first. What each client computes is the same.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.custom_batching import custom_vmap

Tree = Any
Leaves = list[jax.Array]
Step = Callable[[Tree, jax.Array, Tree], Tree]  # (constants, number of the step, carry) -> carry

SHAPES = "shapes"
# How loops are traced: in so many lanes, for `SHAPES` alone, or None. What JAX remembers of functions goes by it, too.
_loops = jax.make_user_context(None)


@contextlib.contextmanager
def in_lanes(lanes: int | None) -> Iterator[None]:
    """Loops that are traced inside have so many lanes; None: as many as there are clients side by side."""
    with _loops(lanes):
        yield


@contextlib.contextmanager
def for_shapes() -> Iterator[None]:
    """Loops that are traced inside give back what they start with, which has the shapes of their results.

    What a step computes, such as a network's gradient, is most of what a client's part of a round is traced for.
    """
    with _loops(SHAPES):
        yield


def has_lanes() -> bool:
    """Whether clients run in lanes."""
    return _loops.value not in (None, SHAPES)


def repeat(count: jax.Array, step: Callable[[jax.Array, Tree], Tree], carry: Tree) -> Tree:
    """``step(i, carry)`` for i = 0 … count − 1; where clients have counts of their own, in lanes if there are any.

    >>> repeat(jnp.int32(3), lambda i, x: x + i, jnp.int32(10))
    Array(13, dtype=int32)
    """
    lanes = _loops.value
    if lanes == SHAPES:
        return jax.tree.map(jnp.asarray, carry)
    if lanes is None:
        return _loop(lambda _, i, carry: step(i, carry), count, (), carry)
    leaves, structure = jax.tree.flatten(carry)
    flat = lambda i, *leaves: jax.tree.leaves(step(i, jax.tree.unflatten(structure, leaves)))
    closed = jax.make_jaxpr(flat)(jnp.zeros_like(count), *leaves)  # what the step uses becomes an argument of it
    body: Step = lambda consts, i, carry: jax.core.eval_jaxpr(closed.jaxpr, consts, i, *carry)
    return jax.tree.unflatten(structure, _repeated(body, lanes)(jnp.asarray(count), closed.consts, leaves))


def once(condition: jax.Array, step: Callable[[Tree], Tree], carry: Tree) -> Tree:
    """``step(carry)`` where the condition holds, and else the carry: `repeat` without a loop, unless there are lanes.

    What a loop computes is kept apart from what comes before it. Without one, the compiler sees that a step computes
    what was computed already, such as a model's outputs at the point where a round begins, and does so once.

    >>> once(jnp.asarray(True), lambda x: x + 1, jnp.int32(10))
    Array(11, dtype=int32)
    """
    if _loops.value is not None:
        return repeat(condition.astype(jnp.int32), lambda _, carry: step(carry), carry)
    return jax.tree.map(lambda new, old: jnp.where(condition, new, old), step(carry), carry)


def _loop(step: Step, count: jax.Array, consts: Tree, carry: Tree) -> Tree:
    again = lambda state: (state[0] + 1, step(consts, *state))
    return jax.lax.while_loop(lambda state: state[0] < count, again, (jnp.zeros_like(count), carry))[1]


def _repeated(step: Step, lanes: int) -> Callable[[jax.Array, Leaves, Leaves], Leaves]:
    """A loop that knows what to do with several clients."""

    @custom_vmap
    def run(count: jax.Array, consts: Leaves, carry: Leaves) -> Leaves:
        return _loop(step, count, consts, carry)

    @run.def_vmap
    def side_by_side(
        clients: int, batched: Any, count: jax.Array, consts: Leaves, carry: Leaves
    ) -> tuple[Leaves, list[bool]]:
        own_count, own, started = batched
        axes = [0 if is_own else None for is_own in own]
        whole = [a if b else jnp.broadcast_to(a, (clients, *a.shape)) for a, b in zip(carry, started, strict=True)]
        if not own_count:  # components of one client, which take as many steps as it has
            found = _repeated(jax.vmap(step, in_axes=(axes, None, 0)), lanes)(count, consts, whole)
        elif clients <= lanes:
            found = jax.vmap(lambda n, c, x: _loop(step, n, c, x), in_axes=(0, axes, 0))(count, consts, whole)
        else:
            found = _by_lanes(step, lanes, count, (consts, own), (carry, started), whole)
        return found, [True] * len(found)

    return run


class Lanes(NamedTuple):
    """Who is in which lane, and how far."""

    client: jax.Array  # (lanes,), −1 for an idle one
    step: jax.Array  # (lanes,)
    own: Leaves  # what the steps of the lanes' clients use
    now: Leaves  # (lanes, …) where they are
    following: jax.Array  # how many clients have had a lane
    results: Leaves  # (clients, …)


def _by_lanes(step: Step, lanes: int, count: jax.Array, consts: Any, carry: Any, results: Leaves) -> Leaves:
    """Every client's result; those without a step keep what they start with."""
    order = jnp.argsort(-count)
    busy = (count > 0).sum()
    pick = lambda parts, at: [a[at] if is_own else a for a, is_own in zip(*parts, strict=True)]
    wide = lambda parts: [
        a if is_own else jnp.broadcast_to(a, (lanes, *a.shape))
        for a, is_own in zip(pick(parts, order[:lanes]), parts[1], strict=True)
    ]
    axes = [0 if is_own else None for is_own in consts[1]]

    def done(state: Lanes) -> jax.Array:
        return (state.client >= 0) & (state.step >= count[jnp.maximum(state.client, 0)])

    def replace(state: Lanes) -> Lanes:
        """The next client takes the lane of one that is done."""
        lane = jnp.argmax(done(state))
        following = order[jnp.minimum(state.following, count.shape[0] - 1)]
        put = lambda whole, part, at: jax.lax.dynamic_update_index_in_dim(whole, part, at, 0)
        kept = lambda whole, parts: [
            put(a, new, lane) if is_own else a
            for a, new, is_own in zip(whole, pick(parts, following), parts[1], strict=True)
        ]
        return Lanes(
            put(state.client, jnp.where(state.following < busy, following, -1).astype(state.client.dtype), lane),
            put(state.step, jnp.zeros((), state.step.dtype), lane),
            kept(state.own, consts),
            [put(a, new, lane) for a, new in zip(state.now, pick(carry, following), strict=True)],
            state.following + 1,
            [put(a, now[lane], state.client[lane]) for a, now in zip(state.results, state.now, strict=True)],
        )

    def advance(state: Lanes) -> Lanes:
        now = jax.vmap(step, in_axes=(axes, 0, 0))(state.own, state.step, state.now)
        moved = state._replace(now=now, step=state.step + (state.client >= 0))
        return jax.lax.while_loop(lambda state: done(state).any(), replace, moved)

    first = jnp.where(jnp.arange(lanes) < busy, order[:lanes], -1)
    start = Lanes(
        first, jnp.zeros(lanes, count.dtype), pick(consts, order[:lanes]), wide(carry), jnp.asarray(lanes), results
    )
    return jax.lax.while_loop(lambda state: (state.client >= 0).any(), advance, start).results
