"""Randomness is derived: a run has one key, and nothing is split off sequentially.

So order, batching, chunking, padding and resuming change nothing. A client is handed its own key; nobody needs the
run's.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

Key = jax.Array

SERVER_STREAM = 0xFFFF_FFFF  # ids never get this far
PARTICIPATION_STREAM = 0xFFFF_FFFE
EVALUATION_STREAM = 0xFFFF_FFFD
LINKS_STREAM = 0xFFFF_FFFC
CHANNEL_STREAM = 0xFFFF_FFFB  # the channel's part at the server: noise on the sum


def round_key(run_key: Key, round: jax.Array | int) -> Key:
    """The key of a round (round 0 is the initialisation)."""
    return jax.random.fold_in(run_key, round)


def client_key(key_of_round: Key, id: jax.Array | int) -> Key:
    """The key of one client in one round, whatever the order, batching or sharding of the clients."""
    return jax.random.fold_in(key_of_round, id)


def stream_key(key_of_round: Key, stream: int) -> Key:
    """A key for something other than a client: the server's coins, who takes part, links of a graph, evaluation."""
    return jax.random.fold_in(key_of_round, jnp.uint32(stream))
