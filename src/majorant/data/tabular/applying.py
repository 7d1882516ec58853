"""Features and labels of rows by a record: those of training, and those of a file that comes later.

A column of a later file is read as what it was at training, whatever it looks like there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from majorant._words import some
from majorant.data.labels import label_values
from majorant.data.tabular import cells
from majorant.data.tabular.dates import ISO, date_numbers
from majorant.data.tabular.encoding import CategoryColumn, ColumnRecord, DateColumn, Encoding, LabelRecord, NumberColumn
from majorant.data.tabular.fitting import SQUARES
from majorant.data.tabular.kinds import CORRECT, Column, Refused, as_text, boolean, category, dates, of_type
from majorant.data.tabular.problems import FILL, Problem, TableError, counted
from majorant.data.tabular.reading import Source, is_text

LARGEST = float(np.finfo(np.float32).max)
NO_LEVEL = ""  # no text is empty


def features_of(encoding: Encoding, columns: Sequence[Column], source: Source, rows: np.ndarray) -> np.ndarray:
    """The feature matrix (rows, features); ``rows`` are the numbers of the rows in the source, for complaints."""
    blocks, problems = [], []
    for record, column in zip(encoding.columns, columns, strict=True):
        block = block_of(record, column)
        wild = np.flatnonzero((np.abs(block) > LARGEST).any(axis=1))
        if len(wild):
            problems.append(
                Problem(
                    f"column {record.name!r} has {len(wild)} values too far from those of training, the first"
                    f" {column.values[wild[0]]:.3g} in {source.row(int(rows[wild[0]]))}",
                    "correct them, or name them in missing_values",
                )
            )
        blocks.append(np.where(np.abs(block) > LARGEST, 0, block).astype(np.float32))
    if problems:
        raise TableError(source.where, problems)
    return np.concatenate(blocks, axis=1)


def block_of(record: ColumnRecord, column: Column) -> np.ndarray:
    """The features of one column."""
    flags = [column.absent.astype(float)] * record.indicator
    if isinstance(record, NumberColumn):
        return np.stack([standardised(column.values, record.mean, record.scale), *flags], axis=1)
    if isinstance(record, DateColumn):
        numbers = date_numbers(column.values, record.parts).values()
        return np.stack([*map(standardised, numbers, record.means, record.scales), *flags], axis=1)
    return np.concatenate([one_hot(record, column), *(flag[:, None] for flag in flags)], axis=1)


def standardised(values: np.ndarray, mean: float, scale: float) -> np.ndarray:
    """Numbers from which the mean is taken, in units of the scale; missing ones, and all where it is 0, become 0."""
    if scale == 0:
        return np.zeros(len(values))
    unit = scale if scale > SQUARES else 1.0  # differences of very large numbers may be larger than all numbers
    with np.errstate(over="ignore"):
        return np.nan_to_num((values / unit - mean / unit) / (scale / unit), nan=0.0, posinf=np.inf, neginf=-np.inf)


def one_hot(record: CategoryColumn, column: Column) -> np.ndarray:
    """A feature per category, and one for all others where rare ones were pooled; unknown ones are 0 in all else."""
    place = {value: code for code, value in enumerate(record.categories)}
    width = len(record.categories) + record.other
    unknown = width - 1 if record.other else width
    target = np.array([place.get(level, unknown) for level in column.levels] + [width])  # the last: missing
    return np.eye(width + 1, width)[target[column.values]]


def unknown_levels(record: ColumnRecord, column: Column) -> list[str]:
    """Categories of a column that no feature stands for."""
    if not isinstance(record, CategoryColumn) or record.other:
        return []
    there = np.unique(column.values[~column.absent])
    return [column.levels[i] for i in there if column.levels[i] not in record.categories]


def read_as(source: Source, record: ColumnRecord | LabelRecord, marks: Sequence[str]) -> Column | Problem:
    """A column of a later file as what it was at training."""
    raw = cells.without_marks(source.column(record.name), [*marks, *getattr(record, "marks", ())])
    try:
        if not cells.present(raw).any():
            return nothing(record, len(raw))
        if record.kind == "category":
            return category(record.name, as_text(raw))
        if record.kind == "date":
            return read_dates(source, record, raw)
        return read_numbers(source, record, raw)
    except Refused as refusal:
        problem = refusal.problem
        return problem if problem.fix != CORRECT else problem._replace(fix="write it as at training")


def nothing(record: ColumnRecord | LabelRecord, count: int) -> Column:
    """A column without values."""
    if record.kind in ("category", "boolean"):
        return Column(record.name, record.kind, np.full(count, -1), (NO_LEVEL,))
    return Column(record.name, record.kind, np.full(count, np.nan))


def read_dates(source: Source, record: Any, raw: Any) -> Column:
    """Dates as they were written at training, or of a type that says so."""
    if is_text(raw.type):
        return dates(source, record.name, raw, record.format)
    found = of_type(source, record.name, raw)
    if found.whole and record.format != ISO:
        return dates(source, record.name, as_text(raw), record.format)
    if found.kind != "date":
        raise Refused(f"column {record.name!r} held dates at training, and now has type {raw.type}", "convert it")
    return found


def read_numbers(source: Source, record: Any, raw: Any) -> Column:
    """Numbers or truth values, written or of a type that says so."""
    name, what = record.name, "numbers" if record.kind == "number" else "true and false"
    if is_text(raw.type):
        comma = source.decimal_comma and bool(cells.matches(raw, cells.COMMA).any())
        whole = not comma and bool((cells.matches(raw, cells.WHOLE) | ~cells.present(raw)).all())
        parsed = cells.parse_booleans(raw) if record.kind == "boolean" else cells.parse_numbers(raw, comma=comma)
        wrong = [int(i) for i in np.flatnonzero(parsed.odd) if not cells.soft_marks([raw[int(i)].as_py()])]
        if wrong:
            first = f"{raw[wrong[0]].as_py()!r} in {source.row(wrong[0])}"
            raise Refused(
                f"column {name!r} held {what} at training, and now has {first}"
                + (f" and {len(wrong) - 1} more such cells" if len(wrong) > 1 else ""),
                "correct it, or leave the cell empty if the value is missing",
            )
        values = parsed.values
    else:
        comma, whole = False, False
        found = of_type(source, name, raw)
        values = np.where(found.absent, np.nan, found.values)
        known = values[~np.isnan(values)]
        if found.kind == "date" or (record.kind == "boolean" and not np.isin(known, (0, 1)).all()):
            raise Refused(f"column {name!r} held {what} at training, and now has type {raw.type}", "convert it")
    return (
        boolean(name, values) if record.kind == "boolean" else Column(name, "number", values, whole=whole, comma=comma)
    )


def labels_of(record: LabelRecord, column: Column, source: Source) -> np.ndarray:
    """Labels as people know them: values of classes, or targets in original units; unknown classes are refused."""
    gaps = np.flatnonzero(column.absent)
    if len(gaps):
        gap = f"{counted(len(gaps), 'empty value')}, the first in {source.row(int(gaps[0]))}"
        raise TableError(source.where, [Problem(f"label column {record.name!r} has {gap}", FILL)])
    if not record.classes:
        return column.values
    values = label_texts(column)
    known = {str(value) for value in record.classes} if record.kind == "category" else set(record.classes)
    unknown = [value for value in dict.fromkeys(values) if value not in known]
    if unknown:
        what = f"it has the label {some(unknown)}, which training did not know"
        raise TableError(source.where, [Problem(what, f"the classes are {some(record.classes, 20)}")])
    place = {value: code for code, value in enumerate(record.classes)}
    return label_values(np.array([place[value] for value in values], np.int32), record.classes)


def label_texts(column: Column) -> list[Any]:
    """The values of a label column: numbers, truth values or texts."""
    if column.kind == "number":
        return column.values.tolist()
    if column.kind == "boolean":
        return column.values.astype(bool).tolist()
    return [column.levels[code] for code in column.values]
