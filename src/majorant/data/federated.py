"""Data that is spread over clients: all samples flat in memory, with offsets that say whose they are."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from majorant._words import some
from majorant.data.checks import PARTS, check, check_owners, check_scale, check_seed, plain_array
from majorant.data.labels import TargetScale, encode_labels, label_codes, label_values, tidy
from majorant.data.lazy import pick, side_by_side
from majorant.data.splitting import (
    concatenated_ranges,
    draw_unseen,
    offsets_of,
    part_numbers,
    split_as_told,
    split_rows,
)

if TYPE_CHECKING:
    from majorant.models.base import Spec

__all__ = ["PARTS", "FederatedData", "Ragged", "aligned", "concatenated_ranges", "offsets_of", "tidy"]

SHARED_TRUTH = ("theta",)  # entries of ``truth`` that belong to no single client, however many rows they have


class Ragged(NamedTuple):
    """Samples of every client, one client after the other: client c owns rows ``offsets[c]:offsets[c + 1]``."""

    x: np.ndarray  # (N, ...), or what is read when it is asked for (`lazy`)
    y: np.ndarray  # (N,)
    offsets: np.ndarray  # (clients + 1,)
    rows: np.ndarray | None = None  # (N,) which row of a table or of given arrays a sample was, where that is known

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
        return self.pick(rows, self.sizes[clients])

    def pick(self, rows: np.ndarray, sizes: np.ndarray) -> Ragged:
        """Some samples, client after client, of each so many."""
        known = None if self.rows is None else self.rows[rows]
        return Ragged(pick(self.x, rows), pick(self.y, rows), offsets_of(sizes), known)


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
    target_scale: TargetScale | None = None  # regression: what was done to the targets; None for nothing
    told: str = ""  # what said which part a sample is in, a column's name, say; empty where chance did

    def __post_init__(self) -> None:
        check(self)

    @property
    def clients(self) -> int:
        """How many clients there are, unseen ones included."""
        return len(self.names)

    @property
    def spec(self) -> Spec:
        """The shape of the learning problem."""
        from majorant.models.base import Spec  # here, so that a table is read before JAX is loaded

        return Spec(tuple(self.train.x.shape[1:]), len(self.classes))

    @classmethod
    def from_arrays(
        cls,
        x: np.ndarray,
        y: np.ndarray,
        clients: np.ndarray,
        *,
        split: Sequence[float] = (0.6, 0.2, 0.2),
        part: Sequence[str] | np.ndarray | None = None,
        task: str = "auto",
        seed: int = 0,
        name: str = "data",
    ) -> FederatedData:
        """Groups samples by client id and splits each client's samples at random into train, validation and test.

        Every part with a positive share gets at least one sample of every client, so a client needs at least as many
        samples as there are such parts. ``part`` says for every sample which one it is in (train, validation or test),
        in place of chance; each client needs one for training. ``task`` is "classification", "regression", or "auto":
        labels that are floating point numbers with a fraction mean regression.
        """
        x, y, clients = plain_array(x, "x"), plain_array(y, "y"), plain_array(clients, "clients")
        if not x.ndim * y.ndim * clients.ndim:
            raise ValueError("x, y and clients must be arrays with one entry per sample, and one of them is a number")
        if not len(x) == len(y) == len(clients):
            raise ValueError(f"x, y and clients must have one entry per sample; got {len(x)}, {len(y)}, {len(clients)}")
        if len(x) == 0:
            raise ValueError("there are no samples, so there are no clients: give at least one sample")
        labels, classes = encode_labels(y, task)
        names, owner = np.unique(check_owners(clients), return_inverse=True)
        check_scale(x, clients)
        if part is None:
            pieces = split_rows(owner, names, split, seed)
        else:
            pieces = split_as_told(part_numbers(part, len(x)), owner, len(names))
            idle = np.flatnonzero(np.diff(pieces[0][1]) == 0)
            if len(idle):
                raise ValueError(f"client {str(names[idle[0]])!r} has no training samples ({len(idle)} such clients)")
        train, validation, test = (Ragged(tidy(x[rows]), labels[rows], offsets, rows) for rows, offsets in pieces)
        unseen = np.zeros(len(names), bool)
        told = "" if part is None else "part"
        return cls(train, validation, test, unseen, tuple(str(n) for n in names), classes, name, told=told)

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

    def redrawn(self, seed: int) -> FederatedData:
        """The same samples in another random split into training and test parts, which keep their sizes.

        Validation parts stay as they are: what is chosen on them is tested on other samples, in all splits. Features
        and targets stay as they were encoded. Data that was not split at random, but by time, say, is refused.

        >>> data = FederatedData.from_arrays(np.eye(10), np.arange(10) % 2, clients=np.arange(10) // 5)
        >>> other = data.redrawn(1)
        >>> sorted(other.train.rows) == sorted(data.train.rows), other.validation is data.validation
        (False, True)
        """
        if self.told:
            raise ValueError(
                f"{self.told!r} says which samples are for training and which for test: another split would mix them"
            )
        both = shuffled((self.train, self.test), seed)
        first, sizes = both.offsets[:-1], self.train.sizes
        train = both.pick(concatenated_ranges(first, sizes), sizes)
        test = both.pick(concatenated_ranges(first + sizes, self.test.sizes), self.test.sizes)
        return replace(self, train=train, test=test)

    def folds(self, count: int, *, seed: int = 0) -> list[FederatedData]:
        """So many other splits of the samples for training and validation; test parts stay as they are.

        Each client's samples are put in random order and cut into ``count`` stretches, as equal as can be; in the k-th
        split those of the k-th stretch are for validation and the others for training. Stretches have equal lengths in
        all splits, so that runs on them make one program: neighbours share a sample where the cut does not come out
        even. A client with a single sample has it for training.

        >>> data = FederatedData.from_arrays(np.eye(10), np.arange(10) % 2, clients=np.arange(10) // 5)
        >>> [fold.validation.sizes.tolist() for fold in data.folds(4)]
        [[1, 1], [1, 1], [1, 1], [1, 1]]
        """
        both = shuffled((self.train, self.validation), seed)
        first, sizes = both.offsets[:-1], both.sizes
        held = np.minimum(-(-sizes // count), np.maximum(sizes - 1, 0))
        found = []
        for k in range(count):
            begin = k * sizes // count
            validation = both.pick(concatenated_ranges(first + begin, held), held)
            around = concatenated_ranges(  # for every client, what is before the stretch and what is after it
                np.column_stack([first, first + begin + held]).ravel(),
                np.column_stack([begin, sizes - begin - held]).ravel(),
            )
            found.append(replace(self, train=both.pick(around, sizes - held), validation=validation))
        return found

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

    def label_values(self, y: np.ndarray) -> np.ndarray:
        """Labels of this data as people know them: values of classes, or targets in original units."""
        return label_values(y, self.classes, self.target_scale)

    def describe(self) -> str:
        """One line about the data."""
        sizes = self.train.sizes
        labels = f"{len(self.classes)} classes" if self.classes else "regression" if self.train.y.any() else "no labels"
        who = f"{self.clients} client{'s' * (self.clients != 1)}"
        shape = "×".join(map(str, self.spec.features))
        return (
            f"{self.name}: {who} ({int(self.unseen.sum())} unseen), {shape} features, {labels}, "
            f"{len(self.train.y)} training samples (per client {sizes.min()} to {sizes.max()}, "
            f"median {int(np.median(sizes))}), {len(self.test.y)} test samples"
        )


def shuffled(parts: Sequence[Ragged], seed: int) -> Ragged:
    """The samples of some parts together, each client's in random order."""
    owner = np.concatenate([np.repeat(np.arange(len(part.sizes)), part.sizes) for part in parts])
    order = np.lexsort((np.random.default_rng(check_seed(seed)).random(len(owner)), owner))
    together = lambda name: side_by_side([getattr(part, name) for part in parts])
    known = np.arange(len(owner)) if any(part.rows is None for part in parts) else together("rows")
    sizes = np.sum([part.sizes for part in parts], axis=0)
    return Ragged(together("x"), together("y"), offsets_of(sizes), known).pick(order, sizes)


def aligned(data: FederatedData, like: FederatedData) -> FederatedData:
    """Data with the label codes or the target scale of other data: what a model trained on ``like`` can be given.

    >>> pets = FederatedData.from_arrays(np.ones((3, 1)), np.array(["cat", "dog", "cat"]), clients=np.zeros(3))
    >>> dogs = FederatedData.from_arrays(np.ones((3, 1)), np.array(["dog", "dog", "dog"]), clients=np.zeros(3))
    >>> aligned(dogs, pets).classes, aligned(dogs, pets).train.y.tolist()
    (('cat', 'dog'), [1])
    """
    if data.train.x.shape[1:] != like.train.x.shape[1:]:
        raise ValueError(
            f"the new clients' samples have shape {data.train.x.shape[1:]}, those of training {like.train.x.shape[1:]}"
        )
    if bool(data.classes) != bool(like.classes):
        words = ("classes", "numbers") if data.classes else ("numbers", "classes")
        raise ValueError(f"the new clients' labels are {words[0]}, those of training are {words[1]}")
    if (data.classes, data.target_scale) == (like.classes, like.target_scale):
        return data
    unknown = [label for label in data.classes if label not in like.classes]
    if unknown:
        raise ValueError(
            f"the new clients have classes [{some(unknown)}], which training did not know: ({some(like.classes, 10)})"
        )

    def moved(part: Ragged) -> Ragged:
        y = label_codes(data.label_values(part.y), like.classes, like.target_scale)
        return part._replace(y=y.astype(part.y.dtype, copy=False))

    train, validation, test = map(moved, (data.train, data.validation, data.test))
    return replace(
        data, train=train, validation=validation, test=test, classes=like.classes, target_scale=like.target_scale
    )


def warn_thin_clients(data: FederatedData, *, few: int = 5) -> None:
    """Warns, once and with counts, about clients with few training samples or a single class."""
    sizes = data.train.sizes
    small = int((sizes < few).sum())
    have = lambda count: f"{count} {'has' if count == 1 else 'have'}"
    notes = [f"{have(small)} fewer than {few} training samples"] if small else []
    if data.classes:
        owner = np.repeat(np.arange(data.clients), sizes)
        pairs = np.unique(owner * len(data.classes) + data.train.y)
        single = int((np.bincount(pairs // len(data.classes), minlength=data.clients) == 1).sum())
        notes += [f"{have(single)} a single class"] if single else []
    if notes:
        warnings.warn(f"of {data.clients} clients, {' and '.join(notes)}; they train all the same", stacklevel=3)
