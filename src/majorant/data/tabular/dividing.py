"""Which rows of a table are used, and which of them are for training, validation and test."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from majorant._words import some
from majorant.data.checks import PARTS, check_split
from majorant.data.splitting import (
    PART_NAMES,
    Parts,
    draw_unseen,
    split_as_told,
    split_groups,
    split_in_order,
    split_rows,
)
from majorant.data.tabular.problems import FILL, counted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from majorant.data.tabular.kinds import Column
    from majorant.data.tabular.survey import Survey


def leave_out_rows(found: Survey) -> None:
    """Rows with missing values or labels where that is asked for, then clients with too few rows."""
    options, owner = found.options, found.owner
    assert owner is not None
    gaps = {column.name: int(column.absent.sum()) for column in found.columns if column.absent.any()}
    if gaps and options.missing == "refuse":
        for name, count in gaps.items():
            found.trouble(f"column {name!r} has {count} missing values", "fill them in, drop it, or impute them")
    if options.missing == "drop":
        absent = [column.absent for column in found.columns]
        broken = np.any([*absent, *([] if found.unlabelled is None else [found.unlabelled])], axis=0)
        owner = np.where(broken, -1, owner)
        if broken.any():
            found.notes.append(f"{int(broken.sum())} of {len(broken)} rows have missing values and are left out")
    sizes = np.bincount(owner[owner >= 0], minlength=len(found.names))
    kept = sizes >= max(options.min_samples, 1)
    if not kept.all():
        lost = [name for name, keep in zip(found.names, kept, strict=True) if not keep]
        few = f"fewer than {options.min_samples} rows" if options.min_samples > 1 else "no rows left"
        found.notes.append(f"left out: {counted(len(lost), 'client')} with {few} ({some(lost)})")
        found.names = tuple(name for name, keep in zip(found.names, kept, strict=True) if keep)
        owner = np.where(kept[owner] & (owner >= 0), (np.cumsum(kept) - 1)[owner], -1)
    found.owner = owner
    if not found.names:
        found.trouble("no client is left", "lower min_samples, or impute missing values")


def divide(found: Survey) -> None:
    """The rows of every client in three parts, and the clients that are kept away from training."""
    options = found.options
    assert found.owner is not None
    rows = np.flatnonzero(found.owner >= 0)
    parts = parts_of(found, rows, found.owner[rows])
    if parts is None:
        return
    found.parts = [(rows[chosen], offsets) for chosen, offsets in parts]
    found.unseen = draw_unseen(len(found.names), options.unseen, options.seed)
    if found.unseen.all():
        found.trouble("every client is kept away from training", "lower unseen")
    idle = [name for name, n in zip(found.names, np.diff(parts[0][1]), strict=True) if n == 0]
    if idle:
        found.trouble(f"{len(idle)} clients have no training rows ({some(idle)})", f"look at {options.split_column!r}")


def parts_of(found: Survey, rows: np.ndarray, owner: np.ndarray) -> Parts | None:
    """The split, by time, by groups, as told, or at random; None and a problem where it cannot be."""
    options, names = found.options, found.names
    if options.split_column is not None:
        return told_parts(found, rows, owner)
    if options.together_column is not None:
        group = found.text_column(options.together_column, "together")
        if group is None:
            return None
        groups = len(group.levels)
        pairs = np.unique(owner * groups + group.values[rows])
        if too_small(found, pairs // groups, "groups"):
            return None
        found.notes += at_several_clients(group, pairs, names)
        return split_groups(group.values[rows], owner, names, options.split, options.seed)
    if options.time_column is not None:
        time = time_values(found)
        if time is None or too_small(found, owner, "samples"):
            return None
        return split_in_order(time[rows], owner, names, options.split)
    return None if too_small(found, owner, "samples") else split_rows(owner, names, options.split, options.seed)


def at_several_clients(group: Column, pairs: np.ndarray, names: Sequence[str]) -> list[str]:
    """That some groups have rows at several clients, which are split one by one; a pair is client · groups + group."""
    client, value = np.divmod(pairs, len(group.levels))
    wide = np.flatnonzero(np.bincount(value) > 1)
    if not len(wide):
        return []
    where = some([names[c] for c in client[value == wide[0]]])
    return [
        f"{len(wide)} of {len(np.unique(value))} values of {group.name!r} occur at several clients"
        f" ({group.levels[wide[0]]!r} at {where}), and each client is split by itself: if such a value is one and the"
        " same everywhere, its rows may train at one client and test at another; a split_column can prevent that"
    ]


def too_small(found: Survey, owner: np.ndarray, what: str) -> bool:
    """Whether clients have fewer samples or groups than there are parts."""
    needed = check_split(found.options.split) > 0
    sizes = np.bincount(owner, minlength=len(found.names))
    short = np.flatnonzero(sizes < needed.sum())
    if len(short):
        parts = " and ".join(p for p, n in zip(PARTS, needed, strict=True) if n)
        fix = "" if what == "groups" else f"min_samples={needed.sum()} leaves them out; or "
        others = f" ({len(short)} such clients)" if len(short) > 1 else ""
        one = what.removesuffix("s") if sizes[short[0]] == 1 else what
        found.trouble(
            f"client {found.names[short[0]]!r} has {sizes[short[0]]} {one}, too few for non-empty {parts} parts"
            + others,
            f"{fix}drop or merge such clients, or set the share of a part to 0 in split",
        )
    return bool(len(short))


def time_values(found: Survey) -> np.ndarray | None:
    """The times of all rows, as numbers."""
    name = found.options.time_column
    assert name is not None
    if name not in found.source.names:
        return None
    column = next((each for each in found.columns if each.name == name), None) or found.read_column(name)
    if column is None:
        return None
    if column.kind not in ("number", "date"):
        found.trouble(f"time column {name!r} holds neither dates nor numbers", "say how dates are written, in dates")
        return None
    gaps = np.flatnonzero(column.absent)
    if len(gaps):
        what = f"{counted(len(gaps), 'empty value')}, the first in {found.source.row(int(gaps[0]))}"
        found.trouble(f"time column {name!r} has {what}", FILL)
        return None
    return column.values


def told_parts(found: Survey, rows: np.ndarray, owner: np.ndarray) -> Parts | None:
    """The parts that a column names."""
    name = found.options.split_column
    assert name is not None
    column = found.text_column(name, "split")
    if column is None:
        return None
    codes = [PART_NAMES.get(level.lower(), -1) for level in column.levels]
    if -1 in codes:
        wrong = [level for level, code in zip(column.levels, codes, strict=True) if code < 0]
        found.trouble(f"split column {name!r} has the values {some(wrong)}", "it may say train, validation and test")
        return None
    return split_as_told(np.array(codes)[column.values[rows]], owner, len(found.names))
