"""What a column holds: numbers, categories, truth values or dates.

In CSV files the cells decide. A column is one of numbers where every cell is a number, a usual mark of a missing value,
or one of the marks that people use in columns of numbers (``?``, ``unknown``). A few other cells among numbers are a
problem, never a reason to take all numbers for categories. Numbers with zeros in front (``007``) are codes. In Parquet
files and data frames the stated type decides.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from majorant._extras import require
from majorant.data.tabular import cells
from majorant.data.tabular.csv_files import PURPOSE
from majorant.data.tabular.dates import ISO, find_formats, parse_dates, typed_seconds
from majorant.data.tabular.problems import Problem
from majorant.data.tabular.reading import Source, is_text

FEW = 0.1  # a smaller share of cells that are no numbers is a mistake in a column of numbers
WITH_COMMAS = {  # numbers by how they are written: what they have, and what would help
    cells.THOUSANDS: ("separators of thousands", "write them without"),
    cells.COMMA: ("decimal commas, in a file with commas between cells", "write points, or ';' between cells"),
}


@dataclass(frozen=True)
class Column:
    """A column as it was read: numbers (NaN where missing), or codes of levels (−1 where missing)."""

    name: str
    kind: str  # number, category, boolean, date, or empty
    values: np.ndarray  # (rows,) numbers, seconds since 1970, or codes
    levels: tuple[str, ...] = ()  # the categories that codes stand for, sorted
    format: str = ""  # how a date is written
    marks: tuple[str, ...] = ()  # texts that were taken for missing values here and nowhere else
    whole: bool = False  # whether numbers are written without decimals
    comma: bool = False  # whether they have decimals after a comma
    notes: tuple[str, ...] = ()

    @property
    def absent(self) -> np.ndarray:
        """Where a value is missing."""
        return self.values < 0 if self.kind in ("category", "boolean") else np.isnan(self.values)

    def take(self, rows: np.ndarray) -> Column:
        """Some rows of the column."""
        return replace(self, values=self.values[rows])


def column_of(
    source: Source,
    name: str,
    *,
    categorical: bool = False,
    date_format: str | None = None,
    marks: Sequence[str] = (),
) -> Column | Problem:
    """A column of a table whose kind is to be found; ``marks`` are further texts that mark a missing value."""
    try:
        column = cells.without_marks(source.column(name), marks)
        if not cells.present(column).any():
            return Column(name, "empty", np.full(len(column), np.nan))
        if categorical:
            return category(name, as_text(column))
        if is_text(column.type):
            if date_format is not None:
                return dates(source, name, column, date_format)
            return of_texts(source, name, column) if source.textual else category(name, column)
        return of_type(source, name, column) if date_format is None else dated(source, name, column, date_format)
    except Refused as refusal:
        return refusal.problem


CORRECT = "correct it, name it in missing_values, or name the column in categorical if these are categories"


class Refused(Exception):
    """A column that cannot be used."""

    def __init__(self, what: str, fix: str) -> None:
        self.problem = Problem(what, fix)


def as_text(column: Any) -> Any:
    """Values as their type writes them: whole numbers without a point, truth values as true and false."""
    try:
        return column.cast("string")
    except require("pyarrow", "tabular", PURPOSE).ArrowException:
        raise Refused(f"a column has type {column.type}, which has no text", "convert it to text") from None


def category(name: str, texts: Any) -> Column:
    """Texts as codes of their sorted levels."""
    encoded = require("pyarrow.compute", "tabular", PURPOSE).dictionary_encode(texts)
    levels = encoded.dictionary.to_pylist()
    order = sorted(range(len(levels)), key=levels.__getitem__)
    rank = np.empty(len(levels) + 1, np.int64)
    rank[order], rank[-1] = np.arange(len(levels)), -1
    codes = rank[encoded.indices.fill_null(len(levels)).to_numpy(zero_copy_only=False)]
    return Column(name, "category", codes, tuple(levels[i] for i in order))


def boolean(name: str, truth: np.ndarray) -> Column:
    """Ones and zeros as codes of true and false."""
    return Column(name, "boolean", np.where(np.isnan(truth), -1, truth).astype(np.int64), ("false", "true"))


def of_texts(source: Source, name: str, texts: Any) -> Column:
    """The kind that the cells of a CSV file show."""
    if cells.all_booleans(texts):
        return boolean(name, cells.parse_booleans(texts).values)
    comma = source.decimal_comma and bool(cells.matches(texts, cells.COMMA).any())
    parsed, count = cells.parse_numbers(texts, comma=comma), int(cells.present(texts).sum())
    if parsed.odd.sum() < count:
        if cells.holds_codes(texts):
            note = f"{name!r} has numbers with zeros in front: codes, taken as categories"
            return replace(category(name, texts), notes=(note,))
        if is_mostly(parsed, count, texts):
            found = numbers(source, name, texts, parsed, comma)
            whole = not comma and bool((cells.matches(texts, cells.WHOLE) | found.absent).all())
            return replace(found, whole=whole, comma=comma)
    refuse_commas(source, name, texts, parsed)
    formats = find_formats(texts)
    if len(formats) > 1:
        likely = " or ".join(f"{name}={format}" for format in formats)
        raise Refused(f"the dates in {name!r} may begin with the day or the month", f"say which in dates: {likely}")
    return dates(source, name, texts, formats[0]) if formats else category(name, texts)


def refuse_commas(source: Source, name: str, texts: Any, parsed: cells.Parsed) -> None:
    """Refuses numbers such as 20,000 or 1.234,5, and 0,5 between commas: taken as categories they lose their order."""
    for pattern, (what, fix) in WITH_COMMAS.items():
        found = parsed.odd & cells.matches(texts, pattern)
        if found.sum() > (1 - FEW) * parsed.odd.sum():
            first = int(np.flatnonzero(found)[0])
            raise Refused(
                f"column {name!r} has numbers with {what}, such as {texts[first].as_py()!r} in {source.row(first)}",
                f"{fix}, or name the column in categorical if these are categories",
            )


def is_mostly(parsed: cells.Parsed, count: int, texts: Any) -> bool:
    """Whether cells that could not be parsed are too few to be categories, or all mark missing values."""
    odd = int(parsed.odd.sum())
    return odd < FEW * count or (2 * odd < count and cells.soft_marks(odd_texts(texts, parsed)))


def odd_texts(texts: Any, parsed: cells.Parsed) -> list[str]:
    """The different texts in cells that could not be parsed."""
    mask = require("pyarrow", "tabular", PURPOSE).array(parsed.odd)
    return sorted(texts.filter(mask).unique().to_pylist())


def numbers(source: Source, name: str, texts: Any, parsed: cells.Parsed, comma: bool) -> Column:
    """A column of numbers, a few cells of which may be marks of missing values."""
    marks, notes = odd_cells(source, name, texts, parsed, "numbers")
    if comma:
        notes = (*notes, f"the commas in {name!r} were read as decimal points")
    return Column(name, "number", parsed.values, marks=marks, notes=notes)


def dates(source: Source, name: str, texts: Any, format: str) -> Column:
    """A column of dates, a few cells of which may be marks of missing values."""
    parsed = parse_dates(texts, format)
    marks, notes = odd_cells(source, name, texts, parsed, f"dates ({format})")
    return Column(name, "date", parsed.values, format=format, marks=marks, notes=notes)


def dated(source: Source, name: str, column: Any, format: str) -> Column:
    """A column that is no text, and holds dates as its owner says: whole numbers such as 20240131 may."""
    if require("pyarrow.types", "tabular", PURPOSE).is_integer(column.type):
        return dates(source, name, as_text(column), format)
    found = of_type(source, name, column)
    if found.kind != "date":
        what = f"column {name!r} has type {column.type}, and is named in dates"
        raise Refused(what, "convert it to text, whole numbers or dates, or leave it out of dates")
    return found


def odd_cells(
    source: Source, name: str, texts: Any, parsed: cells.Parsed, what: str
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The texts that mark missing values among numbers or dates, and the note that says so; all others are refused."""
    odd = odd_texts(texts, parsed)
    if not odd:
        return (), ()
    wrong = [text for text in odd if not cells.soft_marks([text])]
    if wrong:
        places = np.flatnonzero(parsed.odd)
        first = next(int(i) for i in places if texts[int(i)].as_py() in wrong)
        count = int(np.isin(np.array([texts[int(i)].as_py() for i in places], object), wrong).sum())
        raise Refused(
            f"column {name!r} holds {what}, but {texts[first].as_py()!r} in {source.row(first)}"
            + (f" and {count - 1} more cells are not" if count > 1 else " is not one"),
            CORRECT,
        )
    cells_of = f"{int(parsed.odd.sum())} cells of {name!r} ({', '.join(odd)}) count as missing values"
    return tuple(odd), (cells_of,)


def of_type(source: Source, name: str, column: Any) -> Column:
    """The kind that a stated type is."""
    types = require("pyarrow.types", "tabular", PURPOSE)
    if types.is_boolean(column.type):
        return boolean(name, column.cast("int8").cast("float64").to_numpy(zero_copy_only=False).astype(np.float64))
    if types.is_integer(column.type) or types.is_floating(column.type) or types.is_decimal(column.type):
        values = column.cast("float64", safe=False).to_numpy(zero_copy_only=False).astype(np.float64)
        if np.isinf(values).any():
            place = int(np.flatnonzero(np.isinf(values))[0])
            raise Refused(
                f"column {name!r} has {int(np.isinf(values).sum())} infinite values, the first in {source.row(place)}",
                "correct them, or make them missing",
            )
        return Column(name, "number", values, whole=types.is_integer(column.type))
    if types.is_timestamp(column.type) or types.is_date(column.type):
        return Column(name, "date", typed_seconds(column), format=ISO)
    if types.is_duration(column.type):
        seconds = column.cast("duration[us]", safe=False).cast("int64").cast("float64").to_numpy(zero_copy_only=False)
        return Column(name, "number", seconds.astype(np.float64) / 1e6)
    raise Refused(
        f"column {name!r} has type {column.type}, which is neither number, text nor date",
        "convert it, or name it in drop",
    )
