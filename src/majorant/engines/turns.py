"""Who takes part in a round: drawn from the run's key and the round's number, and found in the buckets of clients.

Where participation gives the places of those it draws, nobody else is touched: a round of a thousand clients costs the
same among ten thousand as among a million.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import jax
import jax.numpy as jnp

from majorant.core import PARTICIPATION_STREAM, Key, Server, round_key, stream_key
from majorant.exchange.federation import Federation

if TYPE_CHECKING:
    from majorant.engines.rounds import BucketData


class Turn(NamedTuple):
    """The clients of a bucket that take part in a round."""

    rows: jax.Array  # in ascending order; what comes after ``total`` of them says nothing
    total: jax.Array


def who_takes_part(federation: Federation, server: Server, run_key: Key, clients: int) -> jax.Array:
    """The clients of the next round, as booleans over those that train."""
    return federation.participation.active(*drawing(server, run_key), clients)


def who_is_chosen(federation: Federation, server: Server, run_key: Key, clients: int) -> jax.Array:
    """The same as places among those that train, where participation gives them."""
    assert federation.participation.chosen is not None
    return federation.participation.chosen(*drawing(server, run_key), clients)


def drawing(server: Server, run_key: Key) -> tuple[Key, jax.Array]:
    """What the clients of the next round are drawn from: a key, and the round's number."""
    number = jnp.asarray(server.round) + 1
    return stream_key(round_key(run_key, number), PARTICIPATION_STREAM), number


def turns(
    federation: Federation, server: Server, run_key: Key, clients: int, buckets: Sequence[BucketData]
) -> list[jax.Array | Turn]:
    """Who takes part of each bucket in the next round: rows, where nobody else need be touched, else marks."""
    if all(isinstance(b.row, tuple) for b in buckets):
        active = who_takes_part(federation, server, run_key, clients)
        return [active[b.position] & b.real for b in buckets]
    chosen = who_is_chosen(federation, server, run_key, clients)
    return [those_chosen(chosen, b.row, b.real.shape[0]) for b in buckets]


def those_active(active: jax.Array) -> Turn:
    """Who takes part, from a mark for every client of a bucket."""
    return Turn(jnp.nonzero(active, size=active.shape[0])[0], active.sum())


def those_chosen(chosen: jax.Array, row: jax.Array, count: int) -> Turn:
    """Who takes part of a bucket with ``count`` rows, from the places of all that do: nobody else is touched."""
    rows = jnp.sort(row[chosen])
    return Turn(jnp.minimum(rows, count - 1), (rows < count).sum())
