"""The clients of a run as rectangular arrays: a few size buckets, each padded to its own longest client.

Sizes are log-normal in practice, so padding everybody to the largest would waste most of the work. Clients are sorted
by size and cut into a few buckets (each is one more program to compile); the cuts minimise the padded samples. A bucket
is worked through in chunks of clients that run side by side: small enough for the processor's cache or the memory
budget, large enough to amortise the cost of each operation.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from majorant.core import ClientData
from majorant.data.federated import FederatedData, Ragged, concatenated_ranges

MAX_BUCKETS = 4
BUCKET_COST = 0.08  # a further bucket must save this share of the padded samples to be worth compiling …
LEAST_SAVED = 5_000_000  # … and this many numbers a round: a second's work over 200 rounds, and compiling takes as long
USUAL_BATCH = 128  # samples of a client that go through a model at once
STACKED_AT_ONCE = 4096  # clients: gathering the samples of all at once would hold them a third time


class Bucket(NamedTuple):
    """Clients of similar size. Those of id −1 are fillers of a device's last chunk, without samples."""

    ids: np.ndarray  # (devices × rows,) index of each client in the federated data; one device's after the other's
    length: int  # rows to which training samples are padded
    validation_length: int  # 0 where the data has no validation part
    test_length: int
    chunk: int  # how many clients run side by side on a device
    devices: int = 1  # over which the clients are dealt
    lanes: int | None = None  # how many of a chunk make steps at once (`core.lanes`); None: all

    @property
    def real(self) -> np.ndarray:
        """The rows of clients, without the fillers."""
        return np.flatnonzero(self.ids >= 0)

    @property
    def rows(self) -> int:
        """The rows of each device."""
        return len(self.ids) // self.devices

    def pieces(self) -> np.ndarray:
        """The rows that run at the same time, a chunk of each device's: ``(chunks, devices × chunk)``."""
        rows = np.arange(len(self.ids)).reshape(self.devices, -1, self.chunk)
        return rows.swapaxes(0, 1).reshape(-1, self.devices * self.chunk)

    def one(self, data: FederatedData) -> ClientData:
        """A client with no samples, of the shape of the bucket's: no file is read for it."""
        x = np.zeros((self.length, *data.train.x.shape[1:]), data.train.x.dtype)
        nothing: Any = np.int32(0)
        return ClientData(x, np.zeros(self.length, data.train.y.dtype), nothing, nothing, nothing)  # type: ignore[arg-type]

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


def best_lanes(sizes: np.ndarray, saturating: int, most: int, share: float = 1.0) -> int:
    """How many clients make steps at once, so that a round takes the least time (`core.lanes`).

    A round takes as many steps as its longest client, or as all have together, dealt over the lanes. A step takes time
    for each lane and, however few they are, as long as ``saturating`` ones more (its kernels are launched one by one).
    ``share`` of the clients take part: a few draws of these tell.

    >>> best_lanes(np.array([1280, 1280, 1280, 1280]), saturating=2, most=8)
    4
    >>> best_lanes(np.array([1280, 640, 320, 320]), saturating=2, most=8)
    2
    """
    steps, rng = -(-sizes // USUAL_BATCH), np.random.default_rng(0)
    drawn = [steps] if share == 1 else [steps[rng.random(len(steps)) < share] for _ in range(16)]
    lanes = np.arange(1, min(most, len(sizes)) + 1)
    seconds = sum(np.maximum(own.max(initial=0), own.sum() / lanes) * (lanes + saturating) for own in drawn)
    return int(lanes[np.argmin(seconds)])


def stack(ragged: Ragged, clients: np.ndarray, length: int) -> ClientData:
    """The samples of some clients (−1: a filler without samples) as ``(clients, length, ...)``.

    A client's last sample is repeated as padding, so that what a model makes of padding is what it makes of samples:
    zeros may be no input at all (a model that divides by a norm). Fillers have zeros.
    """
    sizes = np.where(clients >= 0, ragged.sizes[clients], 0)
    whole: Any = (sizes.astype(np.int32), clients.astype(np.int32), clients.astype(np.int32))  # ids, slots
    if (sizes == length).all() and (np.diff(clients) == 1).all():  # already rectangular: no copy
        rows, shape = slice(ragged.offsets[clients[0]], ragged.offsets[clients[-1] + 1]), (len(clients), length)
        samples: Any = (ragged.x[rows].reshape(shape + ragged.x.shape[1:]), ragged.y[rows].reshape(shape))
        return ClientData(*samples, *whole)
    x = np.zeros((len(clients), length, *ragged.x.shape[1:]), ragged.x.dtype)
    y = np.zeros((len(clients), length), ragged.y.dtype)
    for begin in range(0, len(clients), STACKED_AT_ONCE):
        some = slice(begin, begin + STACKED_AT_ONCE)
        own, firsts = sizes[some], ragged.offsets[:-1][clients[some]]
        source = concatenated_ranges(firsts, own)
        target = np.repeat(np.arange(len(own)), own), concatenated_ranges(np.zeros(len(own), np.int64), own)
        x[some][target], y[some][target] = ragged.x[source], ragged.y[source]
        missing = np.where(own > 0, length - own, 0)
        whose = np.repeat(np.arange(len(own)), missing)
        behind = whose, concatenated_ranges(own, missing)
        x[some][behind], y[some][behind] = x[some][whose, own[whose] - 1], y[some][whose, own[whose] - 1]
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
    most_held: int | None = None,
    share: float = 1.0,
    devices: int = 1,
    homes: np.ndarray | None = None,
) -> list[Bucket]:
    """Buckets over the given clients; a chunk holds about ``chunk_bytes`` of training samples and ``most`` clients.

    Nothing here depends on how many rounds there will be: a run that is extended goes on with the same sums. Over
    several devices clients are dealt by work, or each goes to its home (``homes[client]``), where it has one.

    ``saturating`` clients side by side keep the device busy, where that is known: if there are more, they are one
    bucket (a large model takes long to compile for each) and go through it in lanes, at most ``most`` of them, while a
    chunk has the models of at most ``most_held``. ``share`` of the clients take part in a round.
    ``extra_padding`` rows are added to every client: they change nothing, and a test says so.
    """
    if len(clients) == 0:
        return []
    sizes = data.train.sizes[clients]
    order = np.argsort(sizes, kind="stable")
    buckets, begin = [], 0
    least = LEAST_SAVED / max(1, int(np.prod(data.train.x.shape[1:])))
    large = saturating is not None and devices * saturating < len(clients)
    loads = np.zeros(devices)
    for end in [len(clients)] if large else bucket_edges(sizes, least=least):
        members = clients[order[begin:end]]  # by size: those that run side by side take about as many steps
        begin = end
        length = max(1, int(data.train.sizes[members].max())) + extra_padding  # no program sees an empty array
        test_length = max(1, int(data.test.sizes[members].max())) + extra_padding
        validated = len(data.validation.y) > 0  # in some client, of this bucket or another
        validation_length = max(1, int(data.validation.sizes[members].max())) + extra_padding if validated else 0
        per_client = max(1, length * int(np.prod(data.train.x.shape[1:])) * data.train.x.itemsize)
        hands = deal(members, data.train.sizes[members], loads, None if homes is None else homes[members])
        rows = max(map(len, hands))
        in_lanes = large and not one_at_a_time
        limit = (most_held if in_lanes else most) or rows
        chunk = 1 if one_at_a_time else int(np.clip(chunk_bytes // per_client, 1, min(rows, limit)))
        chunks = -(-rows // chunk)
        chunk = -(-rows // chunks)  # even chunks, fewer fillers
        ids = np.full((devices, chunks * chunk), -1)
        for row, hand in zip(ids, hands, strict=True):
            row[: len(hand)] = hand
        bucket = Bucket(ids.ravel(), length, validation_length, test_length, chunk, devices)
        if in_lanes:
            lanes = best_lanes(data.train.sizes[max(hands, key=len)], saturating or 1, most or rows, share)
            bucket = bucket._replace(lanes=lanes if lanes < chunk else None)
        buckets.append(bucket)
    return buckets


def deal(members: np.ndarray, sizes: np.ndarray, loads: np.ndarray, homes: np.ndarray | None) -> list[np.ndarray]:
    """Clients, sorted by size, for each device, as many for each and about as many samples; adds these to ``loads``.

    The largest go first, one to each device and then one to each in the opposite order; those that are left over, the
    smallest, go to the devices with the least. Chunks of the same number have clients of about the same size then, so
    that no device waits for another. Clients that have homes go there.

    >>> loads = np.zeros(2)
    >>> [hand.tolist() for hand in deal(np.arange(5), np.array([1, 1, 2, 3, 3]), loads, None)], loads
    ([[0, 1, 4], [2, 3]], array([5., 5.]))
    """
    devices = len(loads)
    if homes is None:
        turns = np.arange(len(members))[::-1]  # the largest has turn 0
        lap, seat = np.divmod(turns, devices)
        seat = np.where(lap % 2 == 0, seat, devices - 1 - seat)
        homes = np.argsort(loads, kind="stable")[seat]
        left = turns >= len(members) // devices * devices
        so_far = loads + np.bincount(homes[~left], sizes[~left], devices)
        homes[left] = np.argsort(so_far, kind="stable")[: left.sum()][::-1]
    loads += np.bincount(homes, sizes, devices)
    return [members[homes == device] for device in range(devices)]


def neighbourhoods(sizes: np.ndarray, devices: int) -> np.ndarray:
    """A device for each node of a network, in contiguous pieces, as neighbours often have close numbers; half of what
    is balanced is the number of nodes, which are mixed, and half that of their samples.

    >>> neighbourhoods(np.array([4, 1, 1, 1, 1, 4]), 2).tolist()
    [0, 0, 0, 1, 1, 1]
    """
    work = 1 + sizes / max(1.0, float(sizes.mean()))
    middle = np.cumsum(work) - work / 2
    return np.minimum((devices * middle / work.sum()).astype(np.int64), devices - 1)


def padded_bytes(data: FederatedData, buckets: list[Bucket]) -> int:
    """The memory that all buckets' samples take when they are stacked, on all devices together."""
    sample = int(np.prod(data.train.x.shape[1:])) * data.train.x.itemsize + data.train.y.itemsize
    return sum(len(b.ids) * (b.length + b.validation_length + b.test_length) for b in buckets) * sample


def padding(data: FederatedData, buckets: list[Bucket]) -> dict[str, float]:
    """The share of training rows that hold no sample: of those in memory, and of those that chunks go through.

    A chunk ends with its longest client, so that much of what is in memory costs no time; in lanes it takes as many
    steps as that, or as all its clients have together.

    >>> owner = np.array([0, 0, 0, 1, 2, 2])
    >>> data = FederatedData.from_arrays(np.eye(6), np.arange(6.0), owner, split=(1, 0, 0))
    >>> padding(data, [Bucket(np.array([1, 2, 0, -1]), length=4, validation_length=0, test_length=1, chunk=2)])
    {'memory': 0.625, 'work': 0.4}
    """
    sizes = [np.where(b.ids >= 0, data.train.sizes[b.ids], 0).reshape(-1, b.chunk) for b in buckets]
    samples = sum(int(each.sum()) for each in sizes)
    held = sum(len(b.ids) * b.length for b in buckets)
    passed = sum(
        (b.lanes or b.chunk) * int(np.maximum(each.max(axis=1), each.sum(axis=1) // (b.lanes or b.chunk)).sum())
        for b, each in zip(buckets, sizes, strict=True)
    )
    return {"memory": 1 - samples / held, "work": 1 - samples / max(1, passed)}


def in_order(buckets: list[Bucket], scores: list[dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """The scores of all buckets, ``(runs, clients)``, in the order of the clients' ids."""
    order = np.argsort(np.concatenate([b.ids[b.real] for b in buckets]))
    together = lambda name: np.concatenate([s[name][:, b.real] for b, s in zip(buckets, scores, strict=True)], axis=1)
    return {name: together(name)[:, order] for name in scores[0]}
