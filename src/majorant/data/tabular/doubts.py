"""What looks like a mistake in a table that can be used all the same: its owner is told, and nothing is changed."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

import numpy as np

from majorant.data.tabular.kinds import Column

LOOKED_AT = 10_000  # rows, before all of them are
FEW = 5  # values, of which none is far from the others
MANY_OF_A_CLASS = 10  # rows
SEVERAL = 3  # times all others: different units rather than different people
FAR = 5.0  # standard deviations from the training mean
MANY = 50  # whole numbers that are different by chance


def alike(name: str, levels: Sequence[str], what: str) -> list[str]:
    """That some names differ in case, spaces or the encoding of accents alone, and so may be meant to be one.

    >>> alike("site", ["Ulm", "Bonn", "ulm"], "clients")
    ["'Ulm' and 'ulm' in 'site' are different clients, although only case, spaces or accents' codes differ"]
    """
    seen: dict[str, str] = {}
    plain = lambda level: " ".join(unicodedata.normalize("NFKC", level).casefold().split())
    pairs = [(first, level) for level in levels if (first := seen.setdefault(plain(level), level)) != level]
    more = f" and {len(pairs) - 1} more such pairs" if len(pairs) > 1 else ""
    return [
        f"{one!r} and {other!r}{more} in {name!r} are different {what}, although only case, spaces or accents' codes"
        " differ"
        for one, other in pairs[:1]
    ]


def stands_for_missing(column: Column) -> list[str]:
    """That the largest or least number is made of nines, as -999 is, or a date far from all others, more than once."""
    values = column.values[~column.absent] if column.kind in ("number", "date") else np.zeros(0)
    for end in (values.min(), values.max()) if len(values) else ():
        times = int((values == end).sum())
        others = values[values != end] if times > 1 else values[:0]
        with np.errstate(over="ignore"):
            near = len(others) == 0 or np.abs(others - end).min() <= np.ptp(others)
        if near or len(np.unique(others)) < FEW:
            continue
        if column.kind == "date" or (abs(end) >= 99 and set(f"{abs(end):.0f}") == {"9"}):
            shown = f"{end:g}" if column.kind == "number" else np.datetime64(int(end), "s").astype("datetime64[D]")
            return [
                f"{column.name!r} has {times} times {shown}, far from all others: if it marks a"
                " missing value, name it in missing_values"
            ]
    return []


def names_rows(column: Column) -> list[str]:
    """That whole numbers are almost all different, as those of patients are."""
    known = column.values[~column.absent] if column.whole else np.zeros(0)
    all_different = lambda some: len(np.unique(some)) > 0.9 * max(len(some), MANY)
    if not (all_different(known[:LOOKED_AT]) and all_different(known)):
        return []
    different = len(np.unique(known))
    return [
        f"{column.name!r} has {different} different whole numbers in {len(known)} rows, and is a feature: drop it if"
        " it only names rows"
    ]


def tells_label(column: Column, codes: np.ndarray, classes: int) -> list[str]:
    """That a column says what the label is, in every row."""
    known = ~column.absent
    x, y = column.values[known], codes[known]
    if not classes:
        told = column.kind == "number" and len(x) > 2 and copies_target(x, y)
    else:
        countable = column.kind in ("category", "boolean") or column.whole
        told = countable and all(determines(x[:rows], y[:rows]) for rows in (LOOKED_AT, len(x)))
        told = told or (column.kind in ("number", "date") and separates(x, y))
    return [f"{column.name!r} alone says what the label is: drop it if it is known only when the label is"] * told


def copies_target(x: np.ndarray, y: np.ndarray) -> bool:
    """Whether one is the other in other units."""
    with np.errstate(over="ignore", invalid="ignore"):
        x, y = (x - x.mean()) / (np.ptp(x) or 1), (y - y.mean()) / (np.ptp(y) or 1)
        return bool(abs(x @ y) > (1 - 1e-9) * np.sqrt((x @ x) * (y @ y)) > 0)


def determines(x: np.ndarray, y: np.ndarray) -> bool:
    """Whether rows with the same value have the same label, where every value has ten rows on average."""
    different, place = np.unique(x, return_inverse=True)
    if not 1 < len(different) <= len(x) / 10 or len(np.unique(y)) < 2:
        return False
    label = np.zeros(len(different), y.dtype)
    label[place] = y
    return bool((label[place] == y).all())


def separates(x: np.ndarray, y: np.ndarray) -> bool:
    """Whether thresholds on the values tell the labels apart, each of which has ten rows: chance does not.

    >>> label = np.repeat([0, 1], 12)
    >>> separates(label + np.linspace(0, 0.5, 24), label), separates(np.arange(24) % 12.0, label)
    (True, False)
    """
    labels, place, count = np.unique(y, return_inverse=True, return_counts=True)
    if len(labels) < 2 or count.min() < MANY_OF_A_CLASS:
        return False
    low, high = np.full(len(labels), np.inf), np.full(len(labels), -np.inf)
    np.minimum.at(low, place, x)
    np.maximum.at(high, place, x)
    order = np.argsort(low)
    return bool((high[order][:-1] < low[order][1:]).all())


def in_another_unit(column: Column, owner: np.ndarray | None, names: Sequence[str]) -> list[str]:
    """That one client's numbers are several times all others', as kPa beside mmHg are."""
    known = ~column.absent if column.kind == "number" else np.zeros(0, bool)
    if owner is None or len(names) < 3 or not known.any() or column.values[known].min() <= 0:
        return []
    values, whose = column.values[known], owner[known]
    count = np.bincount(whose, minlength=len(names))
    low, high = np.full(len(names), np.inf), np.full(len(names), -np.inf)
    np.minimum.at(low, whose, values)
    np.maximum.at(high, whose, values)
    found = []
    for client in {int(high.argmin()), int(low.argmax())}:  # nobody else can lie beyond all others
        if count[client] < FEW or high[client] == low[client]:
            continue
        others = np.arange(len(names)) != client
        least, most = low[others].min(), high[others].max()
        middle = np.median(values[whose == client]) / np.median(values[whose != client])
        if (high[client] < least or low[client] > most) and not 1 / SEVERAL < middle < SEVERAL:
            found.append((client, least, most))
    return [
        f"{column.name!r} lies between {low[client]:.4g} and {high[client]:.4g} at client {names[client]!r}, and"
        f" between {least:.4g} and {most:.4g} at all others: is it in another unit there?"
        for client, least, most in found[:1]
    ]


def far_away(column: Column, mean: float, scale: float) -> list[str]:
    """That all numbers of a later file are on one side of those of training, and far from them.

    >>> far_away(Column("bp", "number", np.array([15.5, 16.5])), mean=120.0, scale=10.0)
    ["all of 'bp' is far from training (15.5 to 16.5; mean 120, scale 10): another unit, or written otherwise?"]
    """
    known = column.values[~column.absent]
    if not len(known) or scale == 0:
        return []
    low, high = float(known.min()), float(known.max())
    if low - mean <= FAR * scale and high - mean >= -FAR * scale:
        return []
    return [
        f"all of {column.name!r} is far from training ({low:.4g} to {high:.4g}; mean {mean:.4g}, scale {scale:.4g}):"
        " another unit, or written otherwise?"
    ]


def copied(columns: Sequence[Column], owner: np.ndarray | None, codes: np.ndarray | None) -> list[str]:
    """That rows recur, although some column has almost as many values as there are different rows."""
    parts = [column.values for column in columns] + [part for part in (owner, codes) if part is not None]
    rows = len(parts[0]) if parts else 0
    digest = np.zeros(rows, np.uint64)
    for part in parts:  # 64 bits mixed after every column
        digest = (digest ^ part.astype(np.float64).view(np.uint64)) * np.uint64(0x9E3779B97F4A7C15)
        digest ^= digest >> np.uint64(29)
    digest.sort()
    again = int((digest[1:] == digest[:-1]).sum())
    if again < max(2, rows / 200) or not any(
        len(np.unique(column.values)) > 0.9 * (rows - again) for column in columns
    ):
        return []
    return [f"{again} of {rows} rows are copies of others: where one trains and the other tests, scores are too good"]
