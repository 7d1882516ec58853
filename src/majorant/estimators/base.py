"""What all estimators share: rows sorted by client, seeds, and shapes that few compiled programs serve.

A *group* is a client: ``groups`` has one entry for each row of X, as in scikit-learn's splitters, and the entries may
be numbers, texts or anything hashable. Without groups all rows belong to one client.

JAX compiles a program for each shape of its arguments. Estimators are fitted often to data of slightly different
shapes (folds, grids), so small data is padded to round shapes: rows to 64, 256, 1024, …, clients to powers of two,
features to multiples of 16. Padding has no effect on results, beyond rounding.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Hashable, Sized
from typing import Any, NamedTuple

import jax
import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import validate_data

from majorant.core import ClientData
from majorant.data.federated import Ragged, offsets_of
from majorant.engines.population import stack

LEAST_ROWS, FEATURES = 64, 16


class Grouped(NamedTuple):
    """Rows sorted by client (in their own order within each), and the clients' names, sorted."""

    samples: Ragged
    names: np.ndarray  # (clients,)
    order: np.ndarray  # (n,) where each sorted row was before

    @property
    def clients(self) -> int:
        """How many clients there are."""
        return len(self.names)


class GroupedEstimator(BaseEstimator):
    """An estimator that is fitted to the rows of several clients, and remembers the clients as ``groups_``."""

    groups_: np.ndarray

    def _checked(self, X: Any, *y: Any, reset: bool, **options: Any) -> Any:
        """X (and y) as scikit-learn validates them: a dense matrix of finite floating point numbers, and its labels."""
        return validate_data(self, X, *y, reset=reset, dtype=(np.float64, np.float32), **options)

    def _clients_of(self, groups: Any, rows: int) -> np.ndarray:
        """For each row the place of its client in ``groups_``, ``(n,)``; −1 where it is unknown or not given."""
        if groups is None:
            return np.full(rows, -1 if len(self.groups_) > 1 else 0)
        names, owner = encode_groups(groups, rows)
        place = {name: i for i, name in enumerate(self.groups_.tolist())}
        return np.array([place.get(name, -1) for name in names.tolist()])[owner]


def joined(known: np.ndarray | None, new: np.ndarray) -> np.ndarray:
    """The groups that were known, and those of a new batch that were not.

    >>> joined(np.array(["a", "c"]), np.array(["b", "c"])).tolist()
    ['a', 'c', 'b']
    """
    if known is None:
        return new
    before = known.tolist()
    return as_names([*before, *(name for name in new.tolist() if name not in set(before))])


def grouped(X: np.ndarray, y: np.ndarray | None = None, groups: Any = None) -> Grouped:
    """Sorts rows by client; without y there are zeros in its place, without groups there is one client, named 0.

    >>> found = grouped(np.array([[1.0], [2.0], [3.0]]), groups=["b", "a", "b"])
    >>> found.names.tolist(), found.samples.x.ravel().tolist(), found.samples.sizes.tolist()
    (['a', 'b'], [2.0, 1.0, 3.0], [1, 2])
    """
    rows = len(X)
    names, owner = (np.zeros(1, int), np.zeros(rows, int)) if groups is None else encode_groups(groups, rows)
    order = np.argsort(owner, kind="stable")
    labels = np.zeros(rows, X.dtype) if y is None else y
    sizes = np.bincount(owner, minlength=len(names))
    return Grouped(Ragged(X[order], labels[order], offsets_of(sizes)), names, order)


def encode_groups(groups: Any, rows: int) -> tuple[np.ndarray, np.ndarray]:
    """The distinct groups, sorted, and for each row the place of its own.

    >>> encode_groups(["b", "a", "b"], 3)
    (array(['a', 'b'], dtype='<U1'), array([1, 0, 1]))
    >>> encode_groups([1.0, float("nan")], 2)
    Traceback (most recent call last):
    ValueError: groups has 1 missing values, the first in row 1: every row needs the name of its client
    """
    if isinstance(groups, (str, bytes)) or not isinstance(groups, Sized) or getattr(groups, "shape", (1,)) == ():
        raise ValueError(f"groups must have one entry for each row of X, got {groups!r}")
    names = as_names(groups)
    if len(names) != rows:
        raise ValueError(f"groups must have one entry for each row of X: got {len(names)} groups for {rows} rows")
    missing = np.flatnonzero(is_missing(names))
    if len(missing):
        raise ValueError(
            f"groups has {len(missing)} missing values, the first in row {missing[0]}: "
            "every row needs the name of its client"
        )
    try:
        found, owner = np.unique(names, return_inverse=True)
        return found, owner
    except TypeError:  # names of several types, which have no order of their own
        distinct = sorted(set(names.tolist()), key=lambda name: (type(name).__name__, repr(name)))
        place = {name: i for i, name in enumerate(distinct)}
        return as_names(distinct), np.array([place[name] for name in names.tolist()])


def as_names(groups: Any) -> np.ndarray:
    """Names as an array of one dimension. Lists of several types, or of tuples, keep their entries as they are."""
    plain = np.asarray(groups) if hasattr(groups, "dtype") or len({type(g) for g in groups}) == 1 else np.zeros(0)
    if plain.ndim == 1 and len(plain) == len(groups):
        return plain
    if hasattr(groups, "dtype"):
        raise ValueError(f"groups must be an array of one dimension, got one of shape {plain.shape}")
    if not all(isinstance(group, Hashable) for group in groups):
        raise ValueError("groups must be names of clients, such as numbers or texts: some entries are not hashable")
    return np.fromiter(groups, object, len(groups))


def is_missing(names: np.ndarray) -> np.ndarray:
    """Where a name is NaN, None, NaT or pandas' NA."""
    if names.dtype.kind in "fc":
        return np.isnan(names)
    if names.dtype.kind in "mM":
        return np.isnat(names)
    if names.dtype.kind != "O":
        return np.zeros(len(names), bool)
    none = lambda name: name is None or type(name).__name__ in ("NAType", "NaTType")
    return np.array(
        [none(name) or (isinstance(name, (float, np.floating)) and math.isnan(name)) for name in names], bool
    )


def seed_of(random_state: int | np.random.RandomState | None) -> int:
    """A seed for JAX: a whole number as it is; otherwise drawn, from NumPy's global state where there is None.

    >>> seed_of(7)
    7
    """
    source = check_random_state(random_state)
    return int(random_state) if isinstance(random_state, (int, np.integer)) else int(source.randint(1 << 31))


def precision_of(X: np.ndarray) -> contextlib.AbstractContextManager[Any]:
    """Computes in the precision of X for the time of a ``with`` block, whatever is switched on outside.

    >>> with precision_of(np.zeros(1)):
    ...     print(jax.numpy.ones(1).dtype)
    float64
    """
    return jax.enable_x64(X.dtype == np.float64)


def round_rows(rows: int) -> int:
    """The next of 64, 256, 1024, …: powers of four, so that few programs are compiled.

    >>> [round_rows(n) for n in (1, 64, 65, 1000, 1025)]
    [64, 64, 256, 1024, 4096]
    """
    blocks = -(-rows // LEAST_ROWS)
    return LEAST_ROWS * 4 ** (((blocks - 1).bit_length() + 1) // 2)


def round_clients(clients: int) -> int:
    """The next power of two.

    >>> [round_clients(n) for n in (1, 3, 64)]
    [1, 4, 64]
    """
    return 1 << (clients - 1).bit_length()


def round_features(features: int) -> int:
    """The next multiple of 16.

    >>> [round_features(n) for n in (1, 16, 17)]
    [16, 16, 32]
    """
    return -(-features // FEATURES) * FEATURES


def padded(samples: Ragged, *, features: bool = True) -> ClientData:
    """Stacked clients, ``(clients, rows, features)``, in round shapes; clients that fill up have id −1 and no rows.

    >>> data = padded(Ragged(np.ones((3, 2)), np.ones(3), np.array([0, 1, 3])))
    >>> data.x.shape, data.size.tolist()
    ((2, 64, 16), [1, 2])

    ``features=False`` leaves the features alone, for models in which columns of zeros would count.
    """
    clients, width = len(samples.sizes), samples.x.shape[1]
    ids = np.concatenate([np.arange(clients), np.full(round_clients(clients) - clients, -1)])
    stacked = stack(samples, ids, round_rows(int(samples.sizes.max())))
    more = round_features(width) - width if features else 0
    wider: Any = np.pad(stacked.x, [(0, 0), (0, 0), (0, more)])
    return stacked._replace(x=wider)


def padded_size(samples: Ragged) -> int:
    """How many numbers `padded` would make of the features."""
    rows = round_clients(len(samples.sizes)) * round_rows(int(samples.sizes.max()))
    return rows * round_features(samples.x.shape[1])
