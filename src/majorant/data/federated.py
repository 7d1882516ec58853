"""Data that is spread over clients: all samples flat in memory, with offsets that say whose they are."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from majorant.models.base import Spec

PARTS = ("train", "validation", "test")
SHARED_TRUTH = ("theta",)  # entries of ``truth`` that belong to no single client, however many rows they have


class Ragged(NamedTuple):
    """Samples of every client, one client after the other: client c owns rows ``offsets[c]:offsets[c + 1]``."""

    x: np.ndarray  # (N, ...)
    y: np.ndarray  # (N,)
    offsets: np.ndarray  # (clients + 1,)

    @property
    def sizes(self) -> np.ndarray:
        """The number of samples of each client."""
        return np.diff(self.offsets)

    def client(self, index: int) -> tuple[np.ndarray, np.ndarray]:
        """The samples and labels of one client."""
        rows = slice(self.offsets[index], self.offsets[index + 1])
        return self.x[rows], self.y[rows]

    def take(self, clients: np.ndarray) -> Ragged:
        """The samples of some clients, in the given order."""
        rows = concatenated_ranges(self.offsets[:-1][clients], self.sizes[clients])
        return Ragged(self.x[rows], self.y[rows], offsets_of(self.sizes[clients]))


@dataclass(frozen=True)
class FederatedData:
    """Samples of many clients in train, validation and test parts; some clients may be *unseen* at training.

    >>> data = FederatedData.from_arrays(np.eye(10), np.arange(10) % 2, clients=np.arange(10) // 5)
    >>> data.clients, data.train.sizes.tolist(), data.test.sizes.tolist()
    (2, [3, 3], [1, 1])
    """

    train: Ragged
    validation: Ragged
    test: Ragged
    unseen: np.ndarray  # (clients,) bool
    names: tuple[str, ...]
    classes: tuple[Any, ...]  # the label values in the order of their codes; empty for regression
    name: str = "data"
    truth: dict[str, np.ndarray] = field(default_factory=dict)  # what a generator knows: true parameters, weights

    def __post_init__(self) -> None:
        check(self)

    @property
    def clients(self) -> int:
        """How many clients there are, unseen ones included."""
        return len(self.names)

    @property
    def spec(self) -> Spec:
        """The shape of the learning problem."""
        return Spec(tuple(self.train.x.shape[1:]), len(self.classes))

    @classmethod
    def from_arrays(
        cls,
        x: np.ndarray,
        y: np.ndarray,
        clients: np.ndarray,
        *,
        split: Sequence[float] = (0.6, 0.2, 0.2),
        task: str = "auto",
        seed: int = 0,
        name: str = "data",
    ) -> FederatedData:
        """Groups samples by client id and splits each client's samples at random into train, validation and test.

        Every part with a positive share gets at least one sample of every client, so a client needs at least as many
        samples as there are such parts. ``task`` is "classification", "regression", or "auto": labels that are
        floating point numbers with a fraction mean regression.
        """
        x, y, clients = np.asarray(x), np.asarray(y), np.asarray(clients)
        if not len(x) == len(y) == len(clients):
            raise ValueError(f"x, y and clients must have one entry per sample; got {len(x)}, {len(y)}, {len(clients)}")
        if len(x) == 0:
            raise ValueError("there are no samples, so there are no clients: give at least one sample")
        labels, classes = encode_labels(y, task)
        names, owner = np.unique(clients, return_inverse=True)
        train, validation, test = (
            Ragged(tidy(x[rows]), labels[rows], offsets) for rows, offsets in split_rows(owner, names, split, seed)
        )
        unseen = np.zeros(len(names), bool)
        return cls(train, validation, test, unseen, tuple(str(n) for n in names), classes, name)

    @classmethod
    def unlabelled(
        cls,
        x: np.ndarray,
        clients: np.ndarray,
        *,
        split: Sequence[float] = (1.0, 0.0, 0.0),
        seed: int = 0,
        name: str = "data",
    ) -> FederatedData:
        """Samples without labels, grouped by client id; by default all of them are for training.

        >>> FederatedData.unlabelled(np.eye(4), clients=np.array([0, 0, 0, 1])).train.sizes.tolist()
        [3, 1]
        """
        nothing = np.zeros(len(x), np.float32)
        return cls.from_arrays(x, nothing, clients, split=split, task="regression", seed=seed, name=name)

    def with_unseen(self, fraction: float, *, seed: int = 0) -> FederatedData:
        """Marks a random fraction of the clients as unseen: they take no part in training and join afterwards."""
        return replace(self, unseen=draw_unseen(self.clients, fraction, seed))

    def take(self, clients: np.ndarray) -> FederatedData:
        """Some of the clients, in the given order (indices or a mask)."""
        clients = np.arange(self.clients)[clients]
        per_client = {k: v[clients] for k, v in self.truth.items() if k not in SHARED_TRUTH and len(v) == self.clients}
        return replace(
            self,
            train=self.train.take(clients),
            validation=self.validation.take(clients),
            test=self.test.take(clients),
            unseen=self.unseen[clients],
            names=tuple(self.names[c] for c in clients),
            truth=self.truth | per_client,
        )

    def describe(self) -> str:
        """One line about the data."""
        sizes = self.train.sizes
        labels = f"{len(self.classes)} classes" if self.classes else "regression"
        shape = "×".join(map(str, self.spec.features))
        return (
            f"{self.name}: {self.clients} clients ({int(self.unseen.sum())} unseen), {shape} features, {labels}, "
            f"{len(self.train.y)} training samples (per client {sizes.min()} to {sizes.max()}, "
            f"median {int(np.median(sizes))}), {len(self.test.y)} test samples"
        )


def offsets_of(sizes: np.ndarray) -> np.ndarray:
    """Where each client's rows begin, and where the last one's end."""
    return np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)


def concatenated_ranges(starts: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """The numbers ``starts[0] … starts[0] + sizes[0] − 1, starts[1] …`` in one array.

    >>> concatenated_ranges(np.array([0, 10]), np.array([2, 3])).tolist()
    [0, 1, 10, 11, 12]
    """
    return np.arange(sizes.sum()) + np.repeat(starts - offsets_of(sizes)[:-1], sizes)


def split_rows(
    owner: np.ndarray, names: Sequence[Any] | np.ndarray, split: Sequence[float], seed: int
) -> list[tuple[np.ndarray, np.ndarray]]:
    """For train, validation and test: the sample numbers, client after client, and the offsets of the clients."""
    order = np.lexsort((np.random.default_rng(seed).random(len(owner)), owner))  # by client, shuffled within
    sizes = np.bincount(owner, minlength=len(names))
    counts = split_counts(sizes, split, names)  # (clients, 3)
    begin = offsets_of(sizes)[:-1, None] + np.cumsum(counts, axis=1) - counts
    return [(order[concatenated_ranges(begin[:, p], counts[:, p])], offsets_of(counts[:, p])) for p in range(3)]


def draw_unseen(clients: int, fraction: float, seed: int = 0) -> np.ndarray:
    """A random mask over clients with the given fraction of them, and at least one where that is positive.

    >>> int(draw_unseen(10, 0.2).sum()), int(draw_unseen(2, 0.1).sum())
    (2, 1)
    """
    if not 0 <= fraction < 1:
        raise ValueError(f"the fraction of unseen clients must be in [0, 1), got {fraction}")
    count = max(round(fraction * clients), fraction > 0)
    unseen = np.zeros(clients, bool)
    unseen[np.random.default_rng(seed).permutation(clients)[:count]] = True
    return unseen


def split_counts(sizes: np.ndarray, split: Sequence[float], names: Sequence[Any] | np.ndarray) -> np.ndarray:
    """How many samples of each client go to each part, ``(clients, 3)``: rounded shares, no positive share empty."""
    shares = np.asarray(split, float)
    if shares.shape != (3,) or (shares < 0).any() or not np.isclose(shares.sum(), 1):
        raise ValueError(f"split must be three shares (train, validation, test) that sum to 1, got {tuple(split)}")
    needed = shares > 0
    short = np.flatnonzero(sizes < needed.sum())
    if len(short):
        worst = short[0]
        parts = " and ".join(p for p, n in zip(PARTS, needed, strict=True) if n)
        raise ValueError(
            f"client {str(names[worst])!r} has {sizes[worst]} samples, too few for non-empty {parts} parts"
            f" ({len(short)} such clients): drop or merge these clients, use fewer clients,"
            f" or set the share of a part to 0 in split={tuple(split)}"
        )
    counts = np.floor(sizes[:, None] * shares + 1e-9).astype(np.int64)
    counts = np.where(needed, np.maximum(counts, 1), 0)
    largest = int(np.argmax(shares))
    counts[:, largest] += sizes - counts.sum(axis=1)
    while (counts[:, largest] < 1).any():  # many tiny parts took more than the rest can give: take back from the next
        poor = counts[:, largest] < 1
        donor = np.argmax(np.where(np.arange(3) == largest, -1, counts[poor]), axis=1)
        counts[np.flatnonzero(poor), donor] -= 1
        counts[poor, largest] += 1
    return counts


def encode_labels(y: np.ndarray, task: str = "auto") -> tuple[np.ndarray, tuple[Any, ...]]:
    """Class codes and the label values they stand for, or float targets and no classes for regression."""
    if y.ndim != 1:
        raise ValueError(f"labels must be one number or name per sample, got an array of shape {y.shape}")
    numeric = np.issubdtype(y.dtype, np.number)
    if numeric and not np.isfinite(y).all():
        raise ValueError(f"{int((~np.isfinite(y)).sum())} labels are NaN or infinite")
    if task == "auto":
        fractional = np.issubdtype(y.dtype, np.floating) and not np.equal(np.mod(y, 1), 0).all()
        task = "regression" if fractional else "classification"
    if task == "regression":
        if not numeric:
            raise ValueError(f"regression needs numbers as labels, got values such as {y.tolist()[0]!r}")
        return y.astype(np.float32), ()
    if task != "classification":
        raise ValueError(f"task must be 'auto', 'classification' or 'regression', got {task!r}")
    classes, codes = np.unique(y, return_inverse=True)
    return codes.astype(np.int32), tuple(classes.tolist())


def tidy(x: np.ndarray) -> np.ndarray:
    """Features in the types the simulator computes with: bytes stay bytes (pixels), all else is float32."""
    return x if x.dtype == np.uint8 else x.astype(np.float32, copy=False)


def check(data: FederatedData) -> None:
    """Refuses data that training could not use, and says why; warns about thin clients."""
    if data.clients == 0:
        raise ValueError("the data has zero clients: give at least one")
    for part in PARTS:
        ragged: Ragged = getattr(data, part)
        if len(ragged.offsets) != data.clients + 1 or not len(ragged.x) == len(ragged.y) == ragged.offsets[-1]:
            raise ValueError(
                f"the {part} part does not match its offsets: {len(ragged.x)} rows, {len(ragged.y)} labels"
            )
        if ragged.x.shape[1:] != data.train.x.shape[1:]:
            raise ValueError(f"{part} samples have shape {ragged.x.shape[1:]}, training ones {data.train.x.shape[1:]}")
        if np.issubdtype(ragged.x.dtype, np.floating) and not np.isfinite(ragged.x).all():
            bad = np.flatnonzero(~np.isfinite(ragged.x.reshape(len(ragged.x), -1)).all(axis=1))
            owner = int(np.searchsorted(ragged.offsets, bad[0], side="right") - 1)
            raise ValueError(
                f"{len(bad)} {part} samples have NaN or infinite features, the first at client"
                f" {data.names[owner]!r}: remove or impute them"
            )
    if data.unseen.shape != (data.clients,):
        raise ValueError(f"unseen must have one entry per client, got shape {data.unseen.shape}")
    if data.unseen.all():
        raise ValueError("every client is marked unseen: training needs at least one that is seen")


def warn_thin_clients(data: FederatedData, *, few: int = 5) -> None:
    """Warns, once and with counts, about clients with few training samples or a single class."""
    sizes = data.train.sizes
    small = int((sizes < few).sum())
    notes = [f"{small} have fewer than {few} training samples"] if small else []
    if data.classes:
        owner = np.repeat(np.arange(data.clients), sizes)
        pairs = np.unique(owner * len(data.classes) + data.train.y)
        single = int((np.bincount(pairs // len(data.classes), minlength=data.clients) == 1).sum())
        notes += [f"{single} have a single class"] if single else []
    if notes:
        warnings.warn(f"of {data.clients} clients, {' and '.join(notes)}; they train all the same", stacklevel=3)
