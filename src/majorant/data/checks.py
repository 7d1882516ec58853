"""What federated data must be, checked in one place: arrays without gaps, clients, splits, seeds, labels in range."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from numbers import Integral
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from majorant.data.federated import FederatedData, Ragged

PARTS = ("train", "validation", "test")
SMALLEST = 1.1e-19  # the root of the smallest normal number of single precision; of the largest, about its inverse
LOST = 0.01  # the share of a feature's spread that rounding may change


def check_seed(seed: Any, name: str = "seed") -> int:
    """A seed as a whole number from 0 on.

    >>> check_seed(np.int64(3))
    3
    """
    if isinstance(seed, bool | np.bool_) or not isinstance(seed, Integral) or seed < 0:
        raise ValueError(f"{name} must be a whole number from 0 on, got {seed!r}")
    return int(seed)


def check_split(split: Sequence[float]) -> np.ndarray:
    """The shares of train, validation and test; training needs a positive one.

    >>> check_split((0.8, 0, 0.2)).tolist()
    [0.8, 0.0, 0.2]
    """
    try:
        shares = np.asarray(split, float)
    except (TypeError, ValueError):
        shares = np.empty(0)
    if shares.shape != (3,) or not (shares >= 0).all() or not np.isclose(shares.sum(), 1):
        raise ValueError(f"split must be three shares (train, validation, test) that sum to 1, got {split!r}")
    if shares[0] == 0:
        raise ValueError(f"split={tuple(split)} leaves nothing to train on: give train a positive share")
    return shares


def plain_array(values: Any, name: str) -> np.ndarray:
    """An array; masked ones are refused, because their gaps would be read as values."""
    if isinstance(values, np.ma.MaskedArray):
        raise ValueError(f"{name} is a masked array: fill its {int(np.ma.count_masked(values))} gaps or remove them")
    try:
        return np.asarray(values)
    except ValueError:
        shapes = [np.shape(value) for value in values if not isinstance(value, str)]
        first = next((i for i, shape in enumerate(shapes) if shape != shapes[0]), None)
        if first is None:
            raise
        raise ValueError(
            f"the entries of {name} must have one shape, but entry 0 has {shapes[0]} and entry {first} has "
            f"{shapes[first]}: cut or pad sequences to one length, and images to one size"
        ) from None


def in_bytes(x: np.ndarray) -> np.ndarray:
    """Samples for a model that was trained on bytes, which it scales to [0, 1]: as bytes, or as scaled numbers.

    >>> in_bytes(np.array([[0, 255]])).dtype.name, in_bytes(np.array([[0.0, 1.0]])).dtype.name
    ('uint8', 'float64')
    """
    least, most = (x.min(), x.max()) if x.size and is_numeric(x.dtype) else (0, 0)
    if x.dtype.kind in "iu" and least >= 0 and most <= 255:
        return x.astype(np.uint8)
    if least < 0 or most > 1:
        raise ValueError(
            f"training saw bytes, which models scale to [0, 1], and these samples go from {least:g} to {most:g}: give "
            "bytes (x.astype(numpy.uint8)), or numbers in [0, 1]"
        )
    return x


def unread(values: Any) -> bool:
    """Whether samples are yet to be read (`lazy`)."""
    return hasattr(values, "source")


def is_numeric(kind: np.dtype) -> bool:
    """Whether values of a type are real numbers; bfloat16 and its relatives, which NumPy does not know as such, are."""
    return kind.kind in "biuf" or (kind.kind == "V" and kind.type is not np.void)


def check_owners(clients: Any) -> np.ndarray:
    """The client of every sample: one number or name each, without gaps."""
    column = plain_array(clients, "clients")
    if column.ndim != 1:
        raise ValueError(f"the clients must be one number or name per sample, got an array of shape {column.shape}")
    missing = sum(v is None or v != v or v == "" for v in column.tolist())
    if missing:
        raise ValueError(f"{missing} of {len(column)} samples have no client (empty or NaN): fill in or drop these")
    return column


def check(data: FederatedData) -> None:
    """Refuses data that training could not use, and says why."""
    for what, given in (("names of clients", data.names), ("classes", data.classes)):
        if not isinstance(given, tuple | list):
            raise ValueError(f"{what} must be a tuple, got {given!r}")
    if data.clients == 0:
        raise ValueError("the data has zero clients: give at least one")
    odd = next((name for name in data.names if not isinstance(name, str)), None)
    if odd is not None:
        raise ValueError(f"names of clients must be texts, got {odd!r}: use str({odd!r})")
    for what, known in (("clients are called", data.names), ("classes are", tuple(map(str, data.classes)))):
        twice = next((name for name, count in Counter(known).items() if count > 1), None)
        if twice is not None:
            raise ValueError(f"two {what} {twice!r}: give each a name of its own")
    unseen = plain_array(data.unseen, "unseen")
    if unseen.dtype != bool:
        raise ValueError(f"unseen must hold True or False for each client, got numbers of type {unseen.dtype}")
    if unseen.shape != (data.clients,):
        raise ValueError(f"unseen must have one entry per client, got shape {unseen.shape}")
    if unseen.all():
        raise ValueError("every client is marked unseen: training needs at least one that is seen")
    for part in PARTS:
        ragged: Ragged = getattr(data, part)
        check_offsets(ragged, part, data.clients)
        check_samples(ragged, part, data)
        check_codes(ragged, part, data)
    if data.target_scale is not None:
        if data.classes:
            raise ValueError("target_scale is for regression: the classes of classification have no scale")
        mean, scale = data.target_scale
        if not (math.isfinite(mean) and math.isfinite(scale) and scale > 0):
            raise ValueError(f"target_scale must be a finite mean and a positive scale, got {data.target_scale}")


def check_offsets(ragged: Ragged, part: str, clients: int) -> None:
    """Offsets must cut the samples into as many consecutive pieces as there are clients."""
    offsets = plain_array(ragged.offsets, f"the offsets of the {part} part")
    if offsets.ndim != 1 or not np.issubdtype(offsets.dtype, np.integer):
        raise ValueError(f"the offsets of the {part} part must be a list of whole numbers, got {offsets.dtype}")
    for name, values in (("samples", ragged.x), ("labels", ragged.y)):
        if not unread(values) and np.ndim(plain_array(values, f"the {name} of the {part} part")) == 0:
            raise ValueError(
                f"the {name} of the {part} part must be an array with one entry per sample, got {values!r}"
            )
    x, y = len(ragged.x), len(ragged.y)
    if len(offsets) != clients + 1 or not x == y == offsets[-1]:
        raise ValueError(
            f"the {part} part does not match its offsets: {x} rows, {y} labels, and {len(offsets)} offsets"
            f" up to {offsets[-1] if len(offsets) else 0} for {clients} clients"
        )
    if offsets[0] != 0 or (np.diff(offsets) < 0).any():
        raise ValueError(f"the offsets of the {part} part must begin with 0 and never decrease, got {offsets[:10]}")


def check_samples(ragged: Ragged, part: str, data: FederatedData) -> None:
    """Features must be finite numbers, of one shape in all parts."""
    x = ragged.x if unread(ragged.x) else plain_array(ragged.x, f"the {part} part")
    if not is_numeric(x.dtype):
        raise ValueError(f"{part} samples must be numbers, got type {x.dtype}")
    x = x.astype(np.float32) if x.dtype.kind == "V" else x
    if x.shape[1:] != data.train.x.shape[1:]:
        raise ValueError(f"{part} samples have shape {x.shape[1:]}, training ones {data.train.x.shape[1:]}")
    if unread(x):
        return  # its source checks what it reads
    if x.dtype.kind == "f" and not np.isfinite(x).all():
        bad = np.flatnonzero(~np.isfinite(x.reshape(len(x), -1)).all(axis=1))
        owner = int(np.searchsorted(ragged.offsets, bad[0], side="right") - 1)
        raise ValueError(
            f"{len(bad)} {part} samples have NaN or infinite features, the first at client"
            f" {data.names[owner]!r}: remove or impute them"
        )


def check_scale(x: np.ndarray, clients: np.ndarray) -> None:
    """Refuses finite features that single precision cannot compute with; ``clients`` has the client of each sample.

    Their squares must be neither infinite nor 0, and rounding must leave them their differences: a column of numbers
    around 1e6 that differ by 1 keeps four bits of what it says.

    >>> check_scale(np.array([[1e6], [1e6 + 1]]), np.array(["a", "b"]))
    >>> check_scale(np.array([[1e8], [1e8 + 1]]), np.array(["a", "b"]))
    Traceback (most recent call last):
        ...
    ValueError: feature 0 holds numbers around 1e+08 that differ by about 0.5, and rounding to single precision \
    changes them by up to 1: subtract the mean and divide by the spread (tables are read so), and start anew
    """
    if (x.dtype.kind != "f" and not (x.dtype.kind in "iu" and x.dtype.itemsize > 2)) or not len(x):
        return
    wide = x.reshape(len(x), -1)
    most = np.maximum(wide.max(axis=0).astype(np.float64), -wide.min(axis=0).astype(np.float64))
    advice = "subtract the mean and divide by the spread (tables are read so), and start anew"
    for column in np.flatnonzero(np.isfinite(most) & (most > 0) & ((most > 1 / SMALLEST) | (most < SMALLEST)))[:1]:
        row = int(np.argmax(np.abs(wide[:, column].astype(np.float64))))
        size, what = ("large", "infinite") if most[column] > 1 else ("small", "0")
        raise ValueError(
            f"feature {column} is too {size}: it is at most {most[column]:.2g} in size, at client"
            f" {str(clients[row])!r}, and squares of such numbers are {what} in single precision: {advice}"
        )
    if x.dtype in (np.float16, np.float32):
        return  # they are as they were given
    for column in np.flatnonzero(np.isfinite(most) & (most > 0)):  # others are refused elsewhere, or 0
        values = wide[:, column].astype(np.float64)
        spread = float(np.std(values / most[column])) * most[column]
        lost = float(np.abs(values.astype(np.float32) - values).max())
        if lost > LOST * spread > 0:
            raise ValueError(
                f"feature {column} holds numbers around {values.mean():.3g} that differ by about {spread:.2g}, and"
                f" rounding to single precision changes them by up to {lost:.2g}: {advice}"
            )


def check_codes(ragged: Ragged, part: str, data: FederatedData) -> None:
    """Labels must be codes of the classes, or finite numbers for regression."""
    if unread(ragged.y):
        return
    y = plain_array(ragged.y, f"the labels of the {part} part")
    if y.ndim != 1:
        raise ValueError(f"labels must be one number per sample, got {part} labels of shape {y.shape}")
    if len(y) == 0:
        return
    count = len(data.classes)
    if not count:
        if y.dtype.kind not in "biuf" or not np.isfinite(y).all():
            raise ValueError(f"the {part} part has labels that are not finite numbers: remove these samples")
    elif y.dtype.kind not in "iu":
        raise ValueError(f"{part} labels must be the codes of {count} classes, whole numbers, got type {y.dtype}")
    elif y.min() < 0 or y.max() >= count:
        wrong = y[(y < 0) | (y >= count)][0]
        raise ValueError(
            f"the {part} part has the label {wrong}, but the codes of {count} classes are 0 to {count - 1}"
        )
