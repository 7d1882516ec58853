"""Participation: which clients take part in a round.

The same arguments give the same object, because compiled programs are remembered by it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from majorant.core import Key


class Participation(NamedTuple):
    """``active(key, round, clients) -> (clients,)`` booleans, and the probability that a given client is active.

    ``scheme`` is for accountants of privacy: "full", "poisson" (each on its own), "fixed" (a fixed number, any of the
    same probability), "cyclic", or "other", about which no theorem says anything. A client takes part at most once in
    ``apart`` rounds.
    """

    name: str
    active: Callable[[Key, jax.Array, int], jax.Array]
    probability: Callable[[int], float]
    scheme: str = "other"
    apart: Callable[[int], int] = lambda clients: 1
    fixed: bool = True  # whether as many take part in every round


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

    def active(key: Key, round: jax.Array, clients: int) -> jax.Array:
        return jnp.zeros(clients, bool).at[jax.random.permutation(key, clients)[: count(clients)]].set(True)

    return Participation(f"uniform:{fraction}", active, lambda clients: count(clients) / clients, "fixed")


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
