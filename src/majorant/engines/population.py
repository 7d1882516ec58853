"""The clients of a run as rectangular arrays: a few size buckets, each padded to its own longest client.

Sizes are log-normal in practice, so padding everybody to the largest would waste most of the work. Clients are sorted
by size and cut into a few buckets (each is one more program to compile); the cuts minimise the padded samples. A bucket
is worked through in chunks of clients that run side by side: small enough for the processor's cache or the memory
budget, large enough to amortise the cost of each operation.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from majorant.core import ClientData
from majorant.data.federated import FederatedData, Ragged, concatenated_ranges

MAX_BUCKETS = 4
BUCKET_COST = 0.08  # a further bucket must save this share of the padded samples to be worth compiling …
LEAST_SAVED = 1 << 30  # … and this many numbers over all rounds, about a second's work: compiling takes as long


class Bucket(NamedTuple):
    """Clients of similar size: ids past the ``real`` first are −1, fillers of the last chunk without samples."""

    ids: np.ndarray  # (clients,) index of each client in the federated data
    length: int  # rows to which training samples are padded
    validation_length: int  # 0 where the data has no validation part
    test_length: int
    chunk: int  # how many clients run side by side
    real: int

    def train(self, data: FederatedData, rows: np.ndarray | slice = slice(None)) -> ClientData:
        """The training samples of some of the bucket's clients, ``(clients, length, ...)``."""
        return stack(data.train, self.ids[rows], self.length)

    def validation(self, data: FederatedData, rows: np.ndarray | slice = slice(None)) -> ClientData:
        """The validation samples of some of the bucket's clients, ``(clients, validation_length, ...)``."""
        return stack(data.validation, self.ids[rows], self.validation_length)

    def test(self, data: FederatedData, rows: np.ndarray | slice = slice(None)) -> ClientData:
        """The test samples of some of the bucket's clients, ``(clients, test_length, ...)``."""
        return stack(data.test, self.ids[rows], self.test_length)


def bucket_edges(
    sizes: np.ndarray, *, most: int = MAX_BUCKETS, cost: float = BUCKET_COST, least: float = 0.0
) -> list[int]:
    """Ends (exclusive, in order of size) of the buckets that minimise Σ clients × longest, by dynamic programming.

    A further bucket must save the share ``cost`` of the padded samples, and ``least`` of them.

    >>> bucket_edges(np.array([1, 1, 1, 100, 100]))
    [3, 5]
    >>> bucket_edges(np.array([1, 1, 1, 100, 100]), least=1000)
    [5]
    """
    ordered = np.sort(sizes).astype(np.float64)
    n = len(ordered)
    # candidate cuts: where the size changes, thinned to at most 256
    cuts = np.unique(np.concatenate([np.flatnonzero(np.diff(ordered)) + 1, [n]]))
    if len(cuts) > 256:
        cuts = np.unique(np.concatenate([cuts[np.linspace(0, len(cuts) - 1, 256).astype(int)], [n]]))
    longest = ordered[cuts - 1]
    begins = np.concatenate([[0], cuts[:-1]])
    # waste[i, j]: padded samples of one bucket that spans candidate pieces i … j
    waste = np.where(begins[:, None] < cuts[None, :], (cuts[None, :] - begins[:, None]) * longest[None, :], np.inf)
    best, choice = waste[0], [np.zeros(len(cuts), int)]
    totals, ends = [best[-1]], [[n]]
    for _ in range(1, min(most, len(cuts))):
        options = best[:-1, None] + waste[1:, :]  # the last bucket starts after piece i
        choice.append(np.argmin(options, axis=0) + 1)
        best = options.min(axis=0)
        totals.append(best[-1])
        path, j = [], len(cuts) - 1
        for c in reversed(choice[1:]):
            path.append(int(cuts[j]))
            j = int(c[j]) - 1
        ends.append([int(cuts[j]), *reversed(path)])
    kept = 0
    for k in range(1, len(totals)):
        enough = totals[kept] - totals[k] >= least * (k - kept)
        if enough and totals[k] < totals[kept] * (1 - cost) ** (k - kept):
            kept = k
    return ends[kept]


def best_chunk(sizes: np.ndarray, saturating: int, most: int) -> int:
    """How many clients, sorted by size, run side by side so that a bucket takes the least time.

    A chunk takes as many steps as its longest client. A step takes time for each client and, however few they are, as
    long as ``saturating`` ones more (its kernels are launched one by one). Of equally fast chunks the largest.

    >>> best_chunk(np.array([8, 8, 8, 8]), saturating=2, most=4)
    4
    >>> best_chunk(np.array([1, 1, 8, 8]), saturating=2, most=4)
    2
    """
    ordered, best = np.sort(sizes), (math.inf, 1)
    for chunks in range(1, len(ordered) + 1):
        chunk = -(-len(ordered) // chunks)
        if chunk > most:
            continue
        longest = ordered[np.minimum(np.arange(chunk - 1, chunk * chunks, chunk), len(ordered) - 1)]
        best = min(best, (float(longest.sum()) * (chunk + saturating), -chunk))
    return max(1, -best[1])


def stack(ragged: Ragged, clients: np.ndarray, length: int) -> ClientData:
    """The samples of some clients (−1: a filler without samples) as ``(clients, length, ...)``, zeros as padding."""
    sizes = np.where(clients >= 0, ragged.sizes[clients], 0)
    whole: Any = (sizes.astype(np.int32), clients.astype(np.int32), clients.astype(np.int32))  # ids, slots
    if (sizes == length).all() and (np.diff(clients) == 1).all():  # already rectangular: no copy
        rows, shape = slice(ragged.offsets[clients[0]], ragged.offsets[clients[-1] + 1]), (len(clients), length)
        samples: Any = (ragged.x[rows].reshape(shape + ragged.x.shape[1:]), ragged.y[rows].reshape(shape))
        return ClientData(*samples, *whole)
    x = np.zeros((len(clients), length, *ragged.x.shape[1:]), ragged.x.dtype)
    y = np.zeros((len(clients), length), ragged.y.dtype)
    source = concatenated_ranges(ragged.offsets[:-1][clients], sizes)
    target = np.repeat(np.arange(len(clients)), sizes), concatenated_ranges(np.zeros(len(clients), np.int64), sizes)
    x[target], y[target] = ragged.x[source], ragged.y[source]
    samples = (x, y)
    return ClientData(*samples, *whole)


def build_buckets(
    data: FederatedData,
    clients: np.ndarray,
    *,
    chunk_bytes: int,
    most: int | None = None,
    one_at_a_time: bool = False,
    extra_padding: int = 0,
    saturating: int | None = None,
    rounds: int = 1,
) -> list[Bucket]:
    """Buckets over the given clients; a chunk holds about ``chunk_bytes`` of training samples and ``most`` clients.

    ``rounds`` is how often all clients are gone through: what a bucket saves is saved in each.
    ``saturating`` clients side by side keep the device busy, where that is known: if there are more, they are one
    bucket (a large model takes long to compile for each), whose chunks end with their longest client.
    ``extra_padding`` rows are added to every client: they change nothing, and a test says so.
    """
    if len(clients) == 0:
        return []
    sizes = data.train.sizes[clients]
    order = np.argsort(sizes, kind="stable")
    buckets, begin = [], 0
    least = LEAST_SAVED / rounds / max(1, int(np.prod(data.train.x.shape[1:])))
    large = saturating is not None and saturating < len(clients)
    for end in [len(clients)] if large else bucket_edges(sizes, least=least):
        members = clients[order[begin:end]]  # by size: those that run side by side take about as many steps
        begin = end
        length = max(1, int(data.train.sizes[members].max())) + extra_padding  # no program sees an empty array
        test_length = max(1, int(data.test.sizes[members].max())) + extra_padding
        validated = len(data.validation.y) > 0  # in some client, of this bucket or another
        validation_length = max(1, int(data.validation.sizes[members].max())) + extra_padding if validated else 0
        per_client = max(1, length * int(np.prod(data.train.x.shape[1:])) * data.train.x.itemsize)
        chunk = (
            1 if one_at_a_time else int(np.clip(chunk_bytes // per_client, 1, min(len(members), most or len(members))))
        )
        if large and not one_at_a_time:
            chunk = best_chunk(data.train.sizes[members], saturating or 1, chunk)
        chunks = -(-len(members) // chunk)
        chunk = -(-len(members) // chunks)  # even chunks, fewer fillers
        ids = np.concatenate([members, np.full(chunks * chunk - len(members), -1)])
        buckets.append(Bucket(ids, length, validation_length, test_length, chunk, len(members)))
    return buckets


def padded_bytes(data: FederatedData, buckets: list[Bucket]) -> int:
    """The memory that all buckets' samples take when they are stacked."""
    sample = int(np.prod(data.train.x.shape[1:])) * data.train.x.itemsize + data.train.y.itemsize
    return sum(len(b.ids) * (b.length + b.validation_length + b.test_length) for b in buckets) * sample


def in_order(buckets: list[Bucket], scores: list[dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """The scores of all buckets, ``(runs, clients)``, in the order of the clients' ids."""
    order = np.argsort(np.concatenate([b.ids[: b.real] for b in buckets]))
    together = lambda name: np.concatenate([s[name][:, : b.real] for b, s in zip(buckets, scores, strict=True)], axis=1)
    return {name: together(name)[:, order] for name in scores[0]}
