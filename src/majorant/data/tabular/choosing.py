"""Which columns become features, and what their owner should know: ids, empty columns, wild numbers, missing values."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from majorant._extras import require
from majorant._words import some
from majorant.data.tabular import cells
from majorant.data.tabular.csv_files import PURPOSE
from majorant.data.tabular.dates import find_formats, short_formats
from majorant.data.tabular.kinds import Column
from majorant.data.tabular.options import TableOptions
from majorant.data.tabular.reading import Source

LEAST_IDS = 20  # fewer different values may be different by chance
EXACT = 2**53  # whole numbers beyond it cannot be told apart as floats
WILD = 1e6  # an outlier is so many times farther away than the middle half of the values is wide


def left_out(column: Column, owner: np.ndarray | None, options: TableOptions, asked: bool) -> str | None:
    """Why a column cannot be a feature, if so; ``asked``: its owner says that it is a category."""
    if column.kind == "empty":
        return "it has no values"
    if asked or not (column.kind == "category" or column.whole):
        return None
    known = ~column.absent
    if column.whole and np.abs(column.values[known]).max() >= EXACT:
        return "an id: whole numbers of more than 15 digits"
    different, which = np.unique(column.values[known], return_inverse=True)
    rows, values, distinct = len(which), column.values[known], len(different)
    if distinct < LEAST_IDS:
        return None
    pairs = distinct if owner is None else len(np.unique(owner[known] * distinct + which))
    single = pairs > 0.95 * rows  # a value stands for one row of a client
    if column.kind == "category" and (2 * distinct > rows or (single and distinct > options.max_categories)):
        return f"an id or free text: {distinct} different values in {rows} rows"
    if column.whole and single:
        if is_id_name(column.name):
            return f"an id: {distinct} different whole numbers in {rows} rows, and named like one"
        if distinct == rows and values.max() - values.min() < 1.1 * rows:  # a few may have been taken away
            return "it numbers the rows"
    return None


def is_id_name(name: str) -> bool:
    """Whether a column is named like an id.

    >>> [name for name in ("id", "patient_id", "PatientID", "userId", "acid", "Covid") if is_id_name(name)]
    ['id', 'patient_id', 'PatientID', 'userId']
    """
    return bool(re.search(r"(^|[ _.-])(id|uuid|guid)$", name.lower()) or re.search(r"[a-z]I[Dd]$", name))


def column_notes(column: Column, source: Source) -> list[str]:
    """What should be known about a feature column besides its kind."""
    notes = list(column.notes)
    if column.kind == "number":
        values = column.values[~column.absent]
        low, middle, high = np.quantile(values, (0.25, 0.5, 0.75), method="nearest")
        with np.errstate(over="ignore"):
            farthest = values[np.argmax(np.abs(values - middle))]
            if high > low and abs(farthest - middle) > WILD * (high - low):
                notes.append(
                    f"{column.name!r} has values as far away as {farthest:.3g}, which squeeze all others together:"
                    " correct them, or name them in missing_values"
                )
    if (
        column.kind == "category"
        and len(column.levels) > 2
        and not (source.textual or column.name in source.categorical)
    ):
        levels = require("pyarrow", "tabular", PURPOSE).array(column.levels)
        if not cells.parse_numbers(levels).odd.any():
            notes.append(
                f"{column.name!r} is text that looks like numbers, taken as categories:"
                " convert it if they are quantities"
            )
    return notes + date_notes(column, source) + unit_notes(column, source)


def date_notes(column: Column, source: Source) -> list[str]:
    """That a column that is not read as dates looks like them, and how to say that it holds some."""
    known = column.values[~column.absent] if column.whole else np.zeros(0)
    if len(known) and days_in_digits(known):
        how = f"say so in dates if they are: {column.name}=%Y%m%d"
        return [f"{column.name!r} has whole numbers that look like dates, such as {known[0]:.0f}: {how}"]
    if column.kind != "category" or column.name in source.categorical:
        return []
    levels = require("pyarrow", "tabular", PURPOSE).array(column.levels)
    formats = ([] if source.textual else find_formats(levels)) or short_formats(levels)
    likely = " or ".join(f"{column.name}={format}" for format in formats)
    return [f"{column.name!r} is text that looks like dates: say how they are written in dates: {likely}"] * bool(
        formats
    )


def days_in_digits(values: np.ndarray) -> bool:
    """Whether whole numbers are years, months and days written in one, as 20240131 is.

    >>> days_in_digits(np.array([20240131.0, 20231224.0])), days_in_digits(np.array([20240131.0, 20239999.0]))
    (True, False)
    """
    if values.min() < 1900_00_00 or values.max() > 2100_00_00:
        return False
    month, day = values // 100 % 100, values % 100
    return bool(((month >= 1) & (month <= 12) & (day >= 1) & (day <= 31)).all())


def unit_notes(column: Column, source: Source) -> list[str]:
    """That numbers are text because each has the same unit."""
    if column.kind != "category" or len(column.levels) < 3 or column.name in source.categorical:
        return []
    found = [re.fullmatch(r"([$€£¥]?) ?[-+]?\d+(?:[.,]\d+)? ?([^\d.,;:/-][^\d]*)?", level) for level in column.levels]
    units = {"".join(part or "" for part in match.groups()) if match else "" for match in found}
    unit = units.pop()
    if units or not unit:
        return []
    return [f"{column.name!r} is text because every number has {unit!r} with it: write the numbers alone"]


def decimal_notes(columns: Sequence[Column]) -> list[str]:
    """Points in numbers of a table whose other numbers have decimal commas may separate thousands."""
    if not any(column.comma for column in columns):
        return []
    pointed = [c.name for c in columns if c.kind == "number" and not c.whole and not c.comma]
    return [
        f"the points in {name!r} were read as decimal points, although other columns have decimal commas: if they"
        " separate thousands, write the numbers without"
        for name in pointed
    ]


def missing_note(columns: Sequence[Column], options: TableOptions) -> list[str]:
    """What happens to missing values, in one sentence for all columns."""
    gaps = {column.name: int(column.absent.sum()) for column in columns}
    found = [f"{name!r} {count}" for name, count in gaps.items() if count]
    if not found or options.missing != "impute":
        return []
    return [
        f"values are missing ({some(found, 8, str)}): numbers and dates become the training mean, categories none of "
        "the known ones, and where training rows have gaps an extra feature marks them"
    ]
