"""Dates in tables: how they are written, and the numbers that stand for them.

A date becomes its days since 1970, and its place on the circle of the year and of the week; with a time of day, also on
that of the day. Circles are a sine and a cosine, so that the end of December is near the beginning of January.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import numpy as np

from majorant._extras import require
from majorant.data.tabular.cells import Parsed, matches, present
from majorant.data.tabular.csv_files import PURPOSE

ISO = "iso"
CLOCK = r"( \d{1,2}:\d{2}(:\d{2})?)?$"
PATTERNS = {  # how a date may be written; day and month first are told apart by the numbers
    ISO: r"^\d{4}-\d{2}-\d{2}([T ]\d{2}:\d{2}(:\d{2}(\.\d{1,9})?)?(Z|[+-]\d{2}:?\d{2})?)?$",
    "%Y/%m/%d": r"^\d{4}/\d{1,2}/\d{1,2}" + CLOCK,
    "%d.%m.%Y": r"^\d{1,2}\.\d{1,2}\.\d{4}" + CLOCK,
    "%d/%m/%Y": r"^\d{1,2}/\d{1,2}/\d{4}" + CLOCK,
    "%m/%d/%Y": r"^\d{1,2}/\d{1,2}/\d{4}" + CLOCK,
    "%d-%m-%Y": r"^\d{1,2}-\d{1,2}-\d{4}" + CLOCK,
    "%m-%d-%Y": r"^\d{1,2}-\d{1,2}-\d{4}" + CLOCK,
}
DAY = 86400.0
YEAR = 365.2425 * DAY
DATE_PARTS = ("days", "year_sin", "year_cos", "week_sin", "week_cos")
CLOCK_PARTS = ("day_sin", "day_cos")


def find_formats(texts: Any) -> list[str]:
    """The ways of writing a date that fit most texts; several where day and month could be either.

    >>> import pyarrow as pa
    >>> find_formats(pa.array(["31/01/2024", "01/02/2024"])), find_formats(pa.array(["2024-01-31"]))
    (['%d/%m/%Y'], ['iso'])
    >>> find_formats(pa.array(["01/02/2024"])), find_formats(pa.array(["a", "b"]))
    (['%d/%m/%Y', '%m/%d/%Y'], [])
    """
    count = int(present(texts).sum())
    looks = {format: int(matches(texts, pattern).sum()) for format, pattern in PATTERNS.items()}
    likely = [format for format, found in looks.items() if found and found > 0.9 * count]
    wrong = {format: int(parse_dates(texts, format).odd.sum()) for format in likely}
    return [format for format in likely if wrong[format] == min(wrong.values())]


def short_formats(texts: Any) -> list[str]:
    """The ways of writing a date with a year of two digits that fit all texts.

    >>> import pyarrow as pa
    >>> short_formats(pa.array(["31/01/99", "01/02/24"])), short_formats(pa.array(["a"]))
    (['%d/%m/%y'], [])
    """
    found = []
    for sign in "./-":
        if bool(matches(texts, rf"^\d{{1,2}}[{sign}]\d{{1,2}}[{sign}]\d{{2}}$").all()):
            orders = (("d", "m", "y"), ("m", "d", "y"), ("y", "m", "d"))
            found = [sign.join(f"%{part}" for part in order) for order in orders]
    return [format for format in found if not parse_dates(texts, format).odd.any()]


def parse_dates(texts: Any, format: str) -> Parsed:
    """Texts as seconds since 1970, in UTC where a time zone is given."""
    codes = require("pyarrow.compute", "tabular", PURPOSE).dictionary_encode(texts)
    seconds = np.array([seconds_of(text, format) for text in codes.dictionary.to_pylist()] + [np.nan])
    index = codes.indices.fill_null(len(seconds) - 1).to_numpy(zero_copy_only=False)
    values = seconds[index]
    return Parsed(values, present(texts) & np.isnan(values))


def seconds_of(text: str, format: str) -> float:
    """Seconds since 1970, NaN where a text is no such date.

    >>> seconds_of("1970-01-02", ISO), seconds_of("02.01.1970 01:00", "%d.%m.%Y"), seconds_of("31/02/2024", "%d/%m/%Y")
    (86400.0, 90000.0, nan)
    """
    clock = {0: "", 1: " %H:%M", 2: " %H:%M:%S"}.get(text.count(":"), "") if "%H" not in format else ""
    try:
        found = datetime.fromisoformat(text) if format == ISO else datetime.strptime(text, format + clock)
    except ValueError:
        return float("nan")
    return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()


def typed_seconds(column: Any) -> np.ndarray:
    """An Arrow column of dates or time stamps as seconds since 1970, NaN where it is null."""
    micro = column.cast("timestamp[us]", safe=False).cast("int64")
    known = present(column)
    return np.where(known, micro.fill_null(0).to_numpy() / 1e6, np.nan)


def parts_of(seconds: np.ndarray) -> tuple[str, ...]:
    """The numbers that stand for these dates: those of the clock only where there is a time of day."""
    times = np.nan_to_num(seconds % DAY)
    return DATE_PARTS + (CLOCK_PARTS if times.any() else ())


def date_numbers(seconds: np.ndarray, parts: Sequence[str]) -> dict[str, np.ndarray]:
    """The numbers that stand for dates, NaN where one is missing.

    >>> numbers = date_numbers(np.array([0.0, 7 * DAY]), DATE_PARTS)
    >>> numbers["days"].tolist(), bool(np.isclose(*numbers["week_sin"]))
    ([0.0, 7.0], True)
    """
    found = {"days": seconds / DAY}
    for name, period in (("year", YEAR), ("week", 7 * DAY), ("day", DAY)):
        angle = 2 * np.pi * (seconds % period) / period
        found |= {f"{name}_sin": np.sin(angle), f"{name}_cos": np.cos(angle)}
    return {name: found[name] for name in parts}
