"""Reading tables and their columns, with errors that name the file, the column and what to do."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from majorant.data.extras import require

MAX_CATEGORIES = 1000
PURPOSE = "reading tables"


def read_table(path: str | Path) -> Any:
    """The Arrow table in a CSV (also .csv.gz) or Parquet file."""
    path = Path(path)
    if not path.is_file():
        raise ValueError(f"there is no file {path}")
    arrow = require("pyarrow", "tabular", PURPOSE)
    try:
        if path.name.endswith((".csv", ".csv.gz")):
            csv = require("pyarrow.csv", "tabular", PURPOSE)
            convert = csv.ConvertOptions(strings_can_be_null=True, quoted_strings_can_be_null=False)
            table = csv.read_csv(path, convert_options=convert)
        elif path.suffix in (".parquet", ".pq"):
            table = require("pyarrow.parquet", "tabular", PURPOSE).read_table(path, partitioning=None)
        else:
            raise ValueError(f"{path} is none of .csv, .csv.gz, .parquet, .pq: convert it to one of these")
    except arrow.ArrowException as error:
        raise ValueError(f"{path} cannot be read: {error}") from error
    twice = sorted({c for c in table.column_names if table.column_names.count(c) > 1})
    if twice:
        raise ValueError(f"{path} has several columns named {twice[0]!r}: rename them")
    index = [c for c in table.column_names if re.fullmatch(r"__index_level_\d+__", c)]  # pandas' row labels
    return table.drop_columns(index)


def check_columns(table: Any, needed: Sequence[str], path: Path) -> None:
    """Refuses a table without the columns asked for, and suggests the nearest name."""
    for name in needed:
        if name not in table.column_names:
            near = difflib.get_close_matches(name, table.column_names, 1, 0.5)
            hint = f"did you mean {near[0]!r}?" if near else f"it has {', '.join(map(repr, table.column_names[:20]))}"
            raise ValueError(f"{path} has no column {name!r}: {hint}")


def values_of(table: Any, name: str, role: str) -> np.ndarray:
    """The client or label column, which may have no gaps."""
    values = typed_column(table, name)[0].to_numpy()
    gaps = sum(v is None or v != v or v == "" for v in values.tolist())  # NumPy has NaN or None where Arrow has null
    if gaps:
        raise ValueError(f"{role} column {name!r} has {gaps} empty values in {len(values)} rows: fill in or drop these")
    return values


def feature_columns(
    table: Any, columns: Sequence[str], numeric: Sequence[str] | None = None
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Numeric columns as floats and categorical ones as text, refused where values are missing or of no use.

    ``numeric`` names the columns that must be numbers, all others being text; by default the types of the table decide.
    """
    numbers, texts = {}, {}
    for name in columns:
        column, number = typed_column(table, name)
        if column.null_count:
            raise ValueError(f"column {name!r} has {column.null_count} missing values: fill them in or drop the column")
        if numeric is not None and name in numeric and not number:
            raise ValueError(f"column {name!r} has type {column.type}, but it held numbers when the encoding was made")
        if number if numeric is None else name in numeric:
            numbers[name] = column.cast("float64", safe=False).to_numpy()
            bad = int((~np.isfinite(numbers[name])).sum())
            if bad:
                raise ValueError(f"column {name!r} has {bad} NaN or infinite values: fill them in or drop the column")
        else:
            distinct = len(column.unique())
            if numeric is None and distinct > MAX_CATEGORIES:
                raise ValueError(
                    f"column {name!r} has {distinct} categories, more than {MAX_CATEGORIES}: it is probably an id;"
                    " add it to drop"
                )
            texts[name] = column.cast("string").to_numpy()
    return numbers, texts


def typed_column(table: Any, name: str) -> tuple[Any, bool]:
    """A column without dictionary encoding, and whether it holds numbers; refused if neither numbers nor text."""
    types = require("pyarrow.types", "tabular", PURPOSE)
    column = table.column(name)
    if types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if types.is_decimal(column.type):
        column = column.cast("float64")
    number = types.is_integer(column.type) or types.is_floating(column.type)
    text = types.is_string(column.type) or types.is_large_string(column.type) or types.is_boolean(column.type)
    if not (number or text or types.is_null(column.type)):
        raise ValueError(f"column {name!r} has type {column.type}, neither number nor text: convert it or drop it")
    return column, number
