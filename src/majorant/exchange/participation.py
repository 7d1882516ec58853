"""Participation: which clients take part in a round.

The same arguments give the same object, because compiled programs are remembered by it. Where a fixed number of very
many clients is drawn, nothing here touches those that are not: a round then costs what its participants cost.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from majorant.core import Key

MANY = 10_000  # clients from which on drawing a few of them is cheaper than putting all in random order


class Participation(NamedTuple):
    """``active(key, round, clients) -> (clients,)`` booleans, and the probability that a given client is active.

    ``scheme`` is for accountants of privacy: "full", "poisson" (each on its own), "fixed" (a fixed number, any of the
    same probability), "cyclic", or "other", about which no theorem says anything. A client takes part at most once in
    ``apart`` rounds. Where as many take part in every round, ``chosen(key, round, clients) -> (count,)`` may give their
    places, each once, in any order: the very clients that ``active`` marks.
    """

    name: str
    active: Callable[[Key, jax.Array, int], jax.Array]
    probability: Callable[[int], float]
    scheme: str = "other"
    apart: Callable[[int], int] = lambda clients: 1
    fixed: bool = True  # whether as many take part in every round
    chosen: Callable[[Key, jax.Array, int], jax.Array] | None = None


@functools.cache
def full() -> Participation:
    """Everybody, every round."""
    everybody = lambda key, round, clients: jnp.ones(clients, bool)
    return Participation("full", everybody, lambda clients: 1.0, "full")


@functools.cache
def uniform(fraction: float) -> Participation:
    """A fixed number of clients, ``fraction`` of them all (at least one), drawn without replacement.

    >>> int(uniform(0.2).active(jax.random.key(0), 1, 50).sum())
    10
    """
    _check(fraction)
    count = lambda clients: max(1, int(fraction * clients + 1e-9))

    chosen = lambda key, round, clients: drawn(key, clients, count(clients))
    active = lambda key, round, clients: jnp.zeros(clients, bool).at[chosen(key, round, clients)].set(True)
    probability = lambda clients: count(clients) / clients
    return Participation(f"uniform:{fraction}", active, probability, "fixed", chosen=chosen)


def drawn(key: Key, clients: int, count: int) -> jax.Array:
    """``count`` different places below ``clients``, all sets of so many equally likely.

    Of very many clients places are drawn one after the other, and those that were drawn before are left out. So many
    are drawn at once that these hardly ever leave too few; then all are drawn again, which favours no place.

    >>> few = drawn(jax.random.key(0), 1_000_000, 5)
    >>> len(set(few.tolist())), bool((few < 1_000_000).all())
    (5, True)
    """
    if clients <= MANY or 4 * count > clients:
        return jax.random.permutation(key, clients)[:count]
    tries = math.ceil(-clients * math.log1p(-count / clients) + 8 * math.sqrt(count) + 8)

    def attempt(state: tuple[jax.Array, jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array, jax.Array]:
        number = state[0]
        places = jax.random.randint(jax.random.fold_in(key, number), (tries,), 0, clients)
        order = jnp.argsort(places, stable=True)
        ordered = places[order]
        first = jnp.concatenate([jnp.ones(1, bool), ordered[1:] != ordered[:-1]])
        fresh = jnp.zeros(tries, bool).at[order].set(first)  # in the order of the draws
        return number + 1, places[jnp.nonzero(fresh, size=count)[0]], fresh.sum() < count

    start = (jnp.int32(0), jnp.zeros(count, jnp.int32), jnp.asarray(True))
    return jax.lax.while_loop(lambda state: state[2], attempt, start)[1]


@functools.cache
def bernoulli(probability: float) -> Participation:
    """Each client on its own with the given probability; a round may be empty (most methods then wait)."""
    _check(probability)
    draw = lambda key, round, clients: jax.random.bernoulli(key, probability, (clients,))
    return Participation(f"bernoulli:{probability}", draw, lambda clients: probability, "poisson", fixed=False)


@functools.cache
def cyclic(fraction: float) -> Participation:
    """Groups that take turns: the next ``fraction`` of the clients (at least one) in each round.

    >>> [cyclic(0.5).active(jax.random.key(0), r, 4).astype(int).tolist() for r in (1, 2, 3)]
    [[1, 1, 0, 0], [0, 0, 1, 1], [1, 1, 0, 0]]
    """
    _check(fraction)
    count = lambda clients: max(1, int(fraction * clients + 1e-9))
    groups = lambda clients: -(-clients // count(clients))

    def active(key: Key, round: jax.Array, clients: int) -> jax.Array:
        return jnp.arange(clients) // count(clients) == (jnp.asarray(round) - 1) % groups(clients)

    return Participation(f"cyclic:{fraction}", active, lambda clients: 1 / groups(clients), "cyclic", groups)


def _check(fraction: float) -> None:
    if not 0 < fraction <= 1:
        raise ValueError(f"the participating share of clients must be in (0, 1], got {fraction}")
