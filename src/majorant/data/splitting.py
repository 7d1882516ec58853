"""Which samples of a client are for training, validation and test, and which clients are kept away from training.

Samples are split at random, in the order of time, in whole groups (the visits of one patient), or as a column says.
"""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Real
from typing import Any

import numpy as np

from majorant.data.checks import PARTS, check_seed, check_split

Parts = list[tuple[np.ndarray, np.ndarray]]  # of train, validation, test: sample numbers by client, and offsets
PART_NAMES = {  # what people may call the parts of a split
    **dict.fromkeys(("train", "training", "fit"), 0),
    **dict.fromkeys(("validation", "valid", "val", "dev", "tune"), 1),
    **dict.fromkeys(("test", "testing", "eval", "holdout"), 2),
}


def offsets_of(sizes: np.ndarray) -> np.ndarray:
    """Where each client's rows begin, and where the last one's end."""
    return np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)


def concatenated_ranges(starts: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """The numbers ``starts[0] … starts[0] + sizes[0] − 1, starts[1] …`` in one array.

    >>> concatenated_ranges(np.array([0, 10]), np.array([2, 3])).tolist()
    [0, 1, 10, 11, 12]
    """
    return np.arange(sizes.sum()) + np.repeat(starts - offsets_of(sizes)[:-1], sizes)


def split_rows(owner: np.ndarray, names: Sequence[Any] | np.ndarray, split: Sequence[float], seed: int) -> Parts:
    """For train, validation and test: the sample numbers, client after client, and the offsets of the clients."""
    return split_in_order(np.random.default_rng(check_seed(seed)).random(len(owner)), owner, names, split)


def split_in_order(
    time: np.ndarray, owner: np.ndarray, names: Sequence[Any] | np.ndarray, split: Sequence[float]
) -> Parts:
    """Each client's samples in the order of ``time``: the first are for training, the last for test.

    >>> time, owner = np.array([5, 1, 4, 2, 3]), np.zeros(5, int)
    >>> [rows.tolist() for rows, _ in split_in_order(time, owner, ["a"], (0.6, 0.2, 0.2))]
    [[1, 3, 4], [2], [0]]
    """
    order = np.lexsort((time, owner))  # stable: samples of the same time keep their order
    sizes = np.bincount(owner, minlength=len(names))
    counts = split_counts(sizes, split, names)  # (clients, 3)
    begin = offsets_of(sizes)[:-1, None] + np.cumsum(counts, axis=1) - counts
    return [(order[concatenated_ranges(begin[:, p], counts[:, p])], offsets_of(counts[:, p])) for p in range(3)]


def split_groups(
    group: np.ndarray, owner: np.ndarray, names: Sequence[Any] | np.ndarray, split: Sequence[float], seed: int
) -> Parts:
    """Whole groups of a client's samples, at random: those of one group are all in the same part.

    Shares are shares of groups, so a client needs as many groups as there are parts.

    >>> parts = split_groups(np.array([7, 7, 8, 8, 9, 9]), np.zeros(6, int), ["a"], (0.4, 0.3, 0.3), seed=0)
    >>> sorted(sorted(rows.tolist()) for rows, _ in parts)
    [[0, 1], [2, 3], [4, 5]]
    """
    groups, number = np.unique(group, return_inverse=True)
    pairs, which = np.unique(owner * len(groups) + number, return_inverse=True)  # a group of a client
    part_of_pair = np.empty(len(pairs), np.int64)
    for part, (chosen, _) in enumerate(split_rows(pairs // len(groups), names, split, seed)):
        part_of_pair[chosen] = part
    return split_as_told(part_of_pair[which], owner, len(names))


def split_as_told(part: np.ndarray, owner: np.ndarray, clients: int) -> Parts:
    """The parts that ``part`` (0, 1 or 2 for every sample) says, client after client."""
    found = []
    for p in range(3):
        rows = np.flatnonzero(part == p)
        rows = rows[np.argsort(owner[rows], kind="stable")]
        found.append((rows, offsets_of(np.bincount(owner[rows], minlength=clients))))
    return found


def part_numbers(part: Any, samples: int) -> np.ndarray:
    """The number of each sample's part, from its name.

    >>> part_numbers(["train", "Test", "val"], 3).tolist()
    [0, 2, 1]
    """
    part = np.asarray(part)
    if part.shape != (samples,):
        raise ValueError(f"part must have one entry for each of {samples} samples, not shape {part.shape}")
    values, place = np.unique(part, return_inverse=True)
    numbers = [PART_NAMES.get(str(value).strip().lower(), -1) for value in values]
    if -1 in numbers:
        wrong = values[numbers.index(-1)]
        raise ValueError(f"part may say train, validation or test for a sample, not {str(wrong)!r}")
    return np.array(numbers)[place]


def draw_unseen(clients: int, fraction: float, seed: int = 0) -> np.ndarray:
    """A random mask over clients with the given fraction of them, and at least one where that is positive.

    >>> int(draw_unseen(10, 0.2).sum()), int(draw_unseen(2, 0.1).sum())
    (2, 1)
    """
    if not isinstance(fraction, Real) or not 0 <= fraction < 1:
        raise ValueError(f"the fraction of unseen clients must be a number in [0, 1), got {fraction!r}")
    count = max(round(fraction * clients), fraction > 0)
    unseen = np.zeros(clients, bool)
    unseen[np.random.default_rng(check_seed(seed)).permutation(clients)[:count]] = True
    return unseen


def split_counts(sizes: np.ndarray, split: Sequence[float], names: Sequence[Any] | np.ndarray) -> np.ndarray:
    """How many samples of each client go to each part, ``(clients, 3)``: rounded shares, no positive share empty."""
    shares = check_split(split)
    needed = shares > 0
    short = np.flatnonzero(sizes < needed.sum())
    if len(short):
        worst = short[0]
        parts = " and ".join(p for p, n in zip(PARTS, needed, strict=True) if n)
        raise ValueError(
            f"client {str(names[worst])!r} has {sizes[worst]} samples, too few for non-empty {parts} parts"
            f" ({len(short)} such clients): drop or merge these clients, use fewer clients,"
            f" or set the share of a part to 0 in split={tuple(split)} (--split on the command line)"
        )
    counts = np.floor(sizes[:, None] * shares + 1e-9).astype(np.int64)
    counts = np.where(needed, np.maximum(counts, 1), 0)
    largest = int(np.argmax(shares))
    counts[:, largest] += sizes - counts.sum(axis=1)
    return counts
