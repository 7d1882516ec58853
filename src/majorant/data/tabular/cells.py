"""What the texts in cells stand for: numbers, codes that only look like numbers, truth values, missing values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from majorant._extras import require
from majorant.data.tabular.csv_files import PURPOSE

NUMBER = r"^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$"
WHOLE = r"^[+-]?\d+$"
CODE = r"^[+-]?0\d"  # nobody writes a quantity as 007
COMMA = r"^[+-]?\d+,\d+$"
THOUSANDS = r"^[+-]?\d{1,3}([.,]\d{3})+([.,]\d+)?$"
SOFT_MARKS = (  # of a missing value, where all other cells of a column are numbers or dates; in any case
    "?",
    "-",
    "--",
    ".",
    "..",
    "*",
    "na",
    "n/a",
    "n.a.",
    "nan",
    "null",
    "nil",
    "none",
    "missing",
    "unknown",
    "not available",
    "not applicable",
    "not reported",
    "undefined",
)


class Parsed(NamedTuple):
    """Texts as numbers: NaN where a cell is null or ``odd``, that is no number."""

    values: np.ndarray  # (rows,) float64
    odd: np.ndarray  # (rows,) bool


def matches(texts: Any, pattern: str) -> np.ndarray:
    """Where a pattern matches; nowhere in nulls."""
    compute = require("pyarrow.compute", "tabular", PURPOSE)
    return filled(compute.match_substring_regex(texts, pattern))


def filled(mask: Any) -> np.ndarray:
    """An Arrow mask as an array, False where it is null."""
    return require("pyarrow.compute", "tabular", PURPOSE).fill_null(mask, False).to_numpy(zero_copy_only=False)


def present(column: Any) -> np.ndarray:
    """Where an Arrow column has values."""
    return require("pyarrow.compute", "tabular", PURPOSE).is_valid(column).to_numpy(zero_copy_only=False)


def parse_numbers(texts: Any, *, comma: bool = False) -> Parsed:
    """Texts as numbers; ``comma``: a comma may stand before decimals.

    >>> import pyarrow as pa
    >>> values, odd = parse_numbers(pa.array(["1", "-2.5e1", "n/a", None, "1e999"]))
    >>> values.tolist(), odd.tolist()
    ([1.0, -25.0, nan, nan, nan], [False, False, True, False, True])
    """
    compute = require("pyarrow.compute", "tabular", PURPOSE)
    if comma:
        texts = compute.if_else(
            compute.match_substring_regex(texts, COMMA), compute.replace_substring(texts, ",", "."), texts
        )
    number = compute.match_substring_regex(texts, NUMBER)
    values = compute.if_else(number, texts, None).cast("float64").to_numpy(zero_copy_only=False).astype(np.float64)
    values = np.where(np.isfinite(values), values, np.nan)  # a text such as 1e999 is beyond all numbers
    return Parsed(values, present(texts) & np.isnan(values))


def holds_codes(texts: Any) -> bool:
    """Whether numbers are written with zeros in front, so that 01 and 1 are different things.

    >>> import pyarrow as pa
    >>> holds_codes(pa.array(["10", "007"])), holds_codes(pa.array(["0", "0.5", "-0"]))
    (True, False)
    """
    return bool(matches(texts, CODE).any())


def parse_booleans(texts: Any) -> Parsed:
    """``true`` and ``false`` in any case, 1 and 0, as 1 and 0."""
    lower = require("pyarrow.compute", "tabular", PURPOSE).utf8_lower(texts)
    yes, no = matches(lower, "^(true|1|1.0)$"), matches(lower, "^(false|0|0.0)$")
    return Parsed(np.where(yes, 1.0, np.where(no, 0.0, np.nan)), present(texts) & ~yes & ~no)


def all_booleans(texts: Any) -> bool:
    """Whether texts are all ``true`` or ``false``, in any case."""
    return bool((matches(texts, "(?i)^(true|false)$") | ~present(texts)).all())


def soft_marks(texts: Sequence[str]) -> bool:
    """Whether texts that are no numbers all mark a missing value.

    >>> soft_marks(["?", "Unknown"]), soft_marks(["12O"])
    (True, False)
    """
    return all(text.strip().lower() in SOFT_MARKS for text in texts)


def without_marks(column: Any, marks: Sequence[str]) -> Any:
    """A column with nulls in place of the values that mark a missing one: texts as they are, numbers by value."""
    if not marks:
        return column
    arrow, compute = require("pyarrow", "tabular", PURPOSE), require("pyarrow.compute", "tabular", PURPOSE)
    types = require("pyarrow.types", "tabular", PURPOSE)
    if types.is_integer(column.type) or types.is_floating(column.type):
        numbers = parse_numbers(arrow.array(marks)).values
        wanted = arrow.array(numbers[np.isfinite(numbers)], "float64")
        return compute.if_else(compute.is_in(column.cast("float64", safe=False), value_set=wanted), None, column)
    if not types.is_string(column.type):
        return column
    return compute.if_else(compute.is_in(column, value_set=arrow.array(marks, "string")), None, column)
