"""A run between two rounds: what the buckets hold in the order of the clients' ids, and back again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from majorant.core import Server, Tree
from majorant.engines.client_part import Held
from majorant.engines.population import Bucket
from majorant.engines.resident import positions

STATES = ("server", "clients", "memory")


class Snapshot(NamedTuple):
    """A run between two rounds, in the order of the clients' ids: all that resuming needs."""

    server: Server  # (runs, ...)
    clients: Tree  # (runs, training clients, ...)
    counters: dict[str, Any]
    memory: Tree = ()  # (runs, training clients, ...) what the channel keeps on clients
    best: Tree = ()  # with patience: server, clients and memory of each run at its best evaluation


def states_of(snapshot: Snapshot) -> dict[str, Tree]:
    """What server and clients hold, and what the channel keeps on clients."""
    return {name: getattr(snapshot, name) for name in STATES}


def some_runs(snapshot: Snapshot, runs: Sequence[int]) -> Snapshot:
    """A snapshot of some of its runs, in the given order."""
    rows = slice(runs[0], runs[0] + 1) if len(runs) == 1 else np.asarray(runs, int)  # one of them without a copy
    pick = lambda tree: jax.tree.map(lambda a: np.asarray(a)[rows], tree)
    counters = dict(snapshot.counters)
    for name in ("communication", "history"):
        counters[name] = [counters[name][i] for i in runs]
    return Snapshot(counters=counters, **{name: pick(getattr(snapshot, name)) for name in (*STATES, "best")})


def in_order_of_ids(clients: Sequence[Held], buckets: list[Bucket]) -> Held:
    """What the buckets hold of clients, ``(runs, clients, ...)``."""
    order = np.argsort(np.concatenate([b.ids[b.real] for b in buckets]))

    def gather(*leaves: Any) -> np.ndarray:
        rows = [np.asarray(leaf)[:, b.real] for leaf, b in zip(leaves, buckets, strict=True)]
        longest = np.max([r.shape[2:] for r in rows], axis=0)  # states of single samples are as long as the bucket
        short = lambda r: [(0, 0), (0, 0), *((0, int(m) - n) for m, n in zip(longest, r.shape[2:], strict=True))]
        return np.concatenate([np.pad(r, short(r)) for r in rows], axis=1)[:, order]

    return jax.tree.map(gather, *clients)


def into_buckets(held: Held, buckets: list[Bucket], fresh: Sequence[Held]) -> tuple[Held, ...]:
    """The other way round; ``fresh`` has the shapes of what the buckets hold."""

    def scatter(bucket: Bucket, position: np.ndarray, like: Held) -> Held:
        rows = np.where(bucket.ids >= 0, position, 0)
        cut = lambda a, b: np.asarray(a)[:, rows][tuple(slice(n) for n in b.shape)]
        return jax.tree.map(cut, held, like)

    return tuple(scatter(*part) for part in zip(buckets, positions(buckets), fresh, strict=True))
