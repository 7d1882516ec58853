"""Samples that are read when they are asked for: of many clients a host holds those that it trains.

A `Lazy` array knows its shape and which rows of a source it consists of. Asking it for rows reads these and no others;
an operation on all of it reads everything, as any array would. `holding` reads some clients' rows once and answers from
memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from majorant.data.checks import PARTS, check_split, is_numeric
from majorant.data.labels import label_codes, tidy
from majorant.data.splitting import concatenated_ranges, offsets_of, split_rows

if TYPE_CHECKING:
    from majorant.data.federated import FederatedData, Ragged


class Source(Protocol):
    """Where rows are read from."""

    def read(self, rows: np.ndarray) -> tuple[np.ndarray, ...]:
        """The rows of these numbers, which are sorted and differ: features, or features and labels."""


class Lazy(NDArrayOperatorsMixin):
    """An array, the ``field``-th of what a source reads, whose entry i is the source's row ``rows[i]``."""

    def __init__(self, source: Source, rows: np.ndarray, shape: tuple[int, ...], dtype: Any, field: int = 0) -> None:
        self.source, self.rows, self.field = source, rows, field
        self.shape, self.dtype = (len(rows), *shape), np.dtype(dtype)

    ndim = property(lambda self: len(self.shape))
    size = property(lambda self: int(np.prod(self.shape)))
    itemsize = property(lambda self: self.dtype.itemsize)
    nbytes = property(lambda self: self.size * self.itemsize)

    def __len__(self) -> int:
        return len(self.rows)

    def __repr__(self) -> str:
        return f"<{self.dtype} array of shape {self.shape}, read when it is asked for>"

    def __getitem__(self, index: Any) -> np.ndarray:
        wanted = self.rows[index]
        rows, places = np.unique(wanted, return_inverse=True)
        if not len(rows):
            return np.zeros((*np.shape(wanted), *self.shape[1:]), self.dtype)
        found = self.source.read(rows)[self.field].astype(self.dtype, copy=False)
        return found[places.reshape(np.shape(wanted))]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return self[:].astype(self.dtype if dtype is None else dtype, copy=False)

    def __array_ufunc__(self, function: Any, method: str, *inputs: Any, **options: Any) -> Any:
        whole = [np.asarray(each) if isinstance(each, Lazy) else each for each in inputs]
        return getattr(function, method)(*whole, **options)

    def min(self, *args: Any, **options: Any) -> Any:
        """The smallest entries."""
        return np.asarray(self).min(*args, **options)

    def max(self, *args: Any, **options: Any) -> Any:
        """The largest entries."""
        return np.asarray(self).max(*args, **options)

    def astype(self, dtype: Any, copy: bool = True) -> Lazy:
        """The same in another type, still unread."""
        return Lazy(self.source, self.rows, self.shape[1:], dtype, self.field)

    def pick(self, index: np.ndarray) -> Lazy:
        """Some entries, still unread."""
        return Lazy(self.source, self.rows[index], self.shape[1:], self.dtype, self.field)


def pick(array: Any, index: np.ndarray) -> Any:
    """Some entries of an array; of one that is read when asked for, without reading them."""
    return array.pick(index) if isinstance(array, Lazy) else array[index]


def side_by_side(arrays: Sequence[Any]) -> Any:
    """Arrays one after the other; parts of the same source stay unread."""
    first = arrays[0]
    if not all(isinstance(each, Lazy) and each.source is first.source for each in arrays):
        return np.concatenate(arrays)
    rows = np.concatenate([each.rows for each in arrays])
    return Lazy(first.source, rows, first.shape[1:], first.dtype, first.field)


class Elsewhere(LookupError):
    """Samples that another process has."""


class Kept:
    """Some rows of a source, in memory."""

    def __init__(self, source: Source, rows: np.ndarray) -> None:
        self.rows = np.unique(rows)
        self.fields = source.read(self.rows)

    def read(self, rows: np.ndarray) -> tuple[np.ndarray, ...]:
        """The rows of these numbers."""
        places = np.searchsorted(self.rows, rows)
        there = places < len(self.rows)
        if not there.all() or (self.rows[places] != rows).any():
            raise Elsewhere("samples of a client of another process were asked for")
        return tuple(field[places] for field in self.fields)


def holding(data: FederatedData, clients: np.ndarray) -> FederatedData:
    """The data with the samples of some clients in memory, read in one go, and those of others out of reach.

    Arrays that are in memory already, or memory-mapped files, stay as they are.
    """
    arrays = [(part, name) for part in PARTS for name in ("x", "y")]
    lazy = {each: array for each in arrays if isinstance(array := getattr(getattr(data, each[0]), each[1]), Lazy)}
    wanted: dict[int, list[np.ndarray]] = {}
    for (part, _), array in lazy.items():
        ragged: Ragged = getattr(data, part)
        theirs = concatenated_ranges(ragged.offsets[:-1][clients], ragged.sizes[clients])
        wanted.setdefault(id(array.source), []).append(array.rows[theirs])
    sources = {id(array.source): array.source for array in lazy.values()}
    held = {which: Kept(source, np.concatenate(wanted[which])) for which, source in sources.items()}
    parts: dict[str, Any] = {part: getattr(data, part) for part in PARTS}
    for (part, name), array in lazy.items():
        there = Lazy(held[id(array.source)], array.rows, array.shape[1:], array.dtype, array.field)
        parts[part] = parts[part]._replace(**{name: there})
    return replace(data, **parts) if lazy else data


class ByClient:
    """Rows that a function reads, client after client: features and labels."""

    def __init__(self, read: Callable[[int], tuple[Any, Any]], data: Blank) -> None:
        self.function, self.data = read, data

    def read(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The rows of these numbers, from their clients and no others."""
        about = self.data
        x = np.empty((len(rows), *about.features), about.dtype)
        y = np.empty(len(rows), np.int32 if about.classes else np.float32)
        owners = np.searchsorted(about.offsets, rows, side="right") - 1
        for client in np.unique(owners):
            mine = owners == client
            its_x, its_y = self.checked(int(client))
            places = rows[mine] - about.offsets[client]
            x[mine], y[mine] = its_x[places], its_y[places]
        return x, y

    def checked(self, client: int) -> tuple[np.ndarray, np.ndarray]:
        """A client's samples and labels, as training computes with them."""
        about = self.data
        given_x, given_y = self.function(client)
        x, y = tidy(given_x), np.asarray(given_y)
        size, who = int(about.offsets[client + 1] - about.offsets[client]), repr(about.names[client])
        if x.shape != (size, *about.features) or y.shape != (size,):
            raise ValueError(
                f"client {who} should have {size} samples of shape {about.features}, but features of shape {x.shape} "
                f"and labels of shape {y.shape} were read: correct sizes or features, or what reads them"
            )
        if x.dtype != about.dtype:
            raise ValueError(f"the features of client {who} are {x.dtype}, not {about.dtype}: say so in dtype")
        if x.dtype.kind == "f" and not np.isfinite(x).all():
            raise ValueError(f"client {who} has NaN or infinite features: remove or impute them")
        try:
            return x, label_codes(y, about.classes)
        except ValueError as error:
            raise ValueError(f"client {who}: {error}") from None


class Blank:
    """What is known of clients' samples before any is read."""

    def __init__(self, sizes: Any, names: Any, features: Any, classes: Any, dtype: Any) -> None:
        counts = np.asarray(sizes)
        if counts.ndim != 1 or not np.issubdtype(counts.dtype, np.integer) or not len(counts) or (counts < 0).any():
            raise ValueError(f"sizes must hold the number of samples of each client, got {sizes!r}")
        self.offsets = offsets_of(counts)
        self.names = tuple(map(str, range(len(counts)))) if names is None else tuple(names)
        if len(self.names) != len(counts):
            raise ValueError(f"there are {len(counts)} sizes but {len(self.names)} names: give one of each per client")
        self.features = (features,) if isinstance(features, int) else tuple(features)
        self.classes = tuple(range(classes)) if isinstance(classes, int) else tuple(classes)
        self.dtype = np.dtype(dtype)
        if not is_numeric(self.dtype) or self.dtype not in (np.dtype(np.uint8), np.dtype(np.float32)):
            raise ValueError(f"features are computed with as float32, or bytes as uint8, got dtype={dtype!r}")


def from_clients(
    read: Callable[[int], tuple[Any, Any]],
    sizes: Sequence[int] | np.ndarray,
    *,
    features: int | Sequence[int],
    classes: int | Sequence[Any] = (),
    names: Sequence[str] | None = None,
    dtype: Any = np.float32,
    split: Sequence[float] = (0.6, 0.2, 0.2),
    seed: int = 0,
    name: str = "data",
) -> FederatedData:
    """Data that a function gives client by client: ``read(i)`` is the features and labels of the i-th client.

    Nothing is read before it is needed, and of several hosts each reads its own clients only. So what all must know is
    said: ``sizes``, the number of samples of each client; ``features``, the shape of a sample; ``classes``, how many or
    their values (none: regression). ``read`` gives the same samples whenever it is called, also from another host.
    Splits are those of `FederatedData.from_arrays`.

    >>> def read(client):
    ...     rng = np.random.default_rng(client)  # or np.load(f"clients/{client}.npz")
    ...     return rng.normal(size=(10, 3)), np.arange(10) % 2
    >>> data = from_clients(read, sizes=[10, 10], features=3, classes=2)
    >>> data.train.x
    <float32 array of shape (12, 3), read when it is asked for>
    >>> data.train.client(1)[0].shape
    (6, 3)
    """
    from majorant.data.federated import FederatedData, Ragged

    about = Blank(sizes, names, features, classes, dtype)
    source, counts = ByClient(read, about), np.diff(about.offsets)
    owner = np.repeat(np.arange(len(counts)), counts)
    check_split(split)

    def part(rows: np.ndarray, offsets: np.ndarray) -> Ragged:
        x: Any = Lazy(source, rows, about.features, about.dtype)
        y: Any = Lazy(source, rows, (), np.int32 if about.classes else np.float32, field=1)
        return Ragged(x, y, offsets, rows)

    train, validation, test = (part(*each) for each in split_rows(owner, about.names, split, seed))
    return FederatedData(train, validation, test, np.zeros(len(counts), bool), about.names, about.classes, name)
