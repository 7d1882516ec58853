"""Where tables come from: CSV and Parquet files, several files with a client each, and data frames.

What comes out is one Arrow table. The columns of CSV files are text, and what they hold is found out later; those of
Parquet files and data frames have the types that are stated.
"""

from __future__ import annotations

import glob
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from majorant._extras import require
from majorant._words import some
from majorant.data.tabular import csv_files
from majorant.data.tabular.csv_files import MARKS, PURPOSE
from majorant.data.tabular.problems import Problem, TableError

PARQUET = (".parquet", ".pq")
SUFFIXES = (*csv_files.SUFFIXES, *PARQUET)
INDEX = re.compile(r"__index_level_\d+__")  # pandas' row labels


@dataclass(frozen=True)
class Source:
    """A table in memory, and where it is from."""

    table: Any  # an Arrow table; texts have nulls where a value is missing
    textual: bool  # whether columns are texts whose kinds are to be found, as in CSV files
    where: str  # for messages
    title: str  # the name of the data
    notes: tuple[str, ...] = ()
    decimal_comma: bool = False  # whether a comma may stand in numbers
    files: tuple[str, ...] = ()  # where there are several
    starts: tuple[int, ...] = (0,)  # their first rows
    categorical: frozenset[str] = frozenset()  # columns whose type says that they are categories

    @property
    def names(self) -> list[str]:
        """The columns."""
        return self.table.column_names

    def column(self, name: str) -> Any:
        """A column as one Arrow array."""
        return self.table.column(name).combine_chunks()

    def row(self, index: int) -> str:
        """A row in words, counted from 1 without the line of names."""
        file = int(np.searchsorted(self.starts, index, side="right")) - 1
        inside = f" of {self.files[file]}" if self.files else ""
        return f"row {index - self.starts[file] + 1}{inside}"

    def stems(self) -> np.ndarray:
        """For every row, the name of its file without folder and suffix."""
        sizes = np.diff([*self.starts, self.table.num_rows])
        return np.repeat(np.array([stem(file) for file in self.files], object), sizes)


def read_source(source: Any) -> Source:
    """A file, several files (a pattern such as ``silos/*.csv``, or a list), or a data frame."""
    if hasattr(source, "__arrow_c_stream__"):
        return read_frame(source)
    paths = paths_of(source)
    if isinstance(source, str | Path) and len(paths) == 1 and str(paths[0]) == str(source):
        return read_file(paths[0])
    return stacked([read_file(path) for path in paths], str(source) if isinstance(source, str | Path) else "the files")


def paths_of(source: Any) -> list[Path]:
    """The files that a path, a pattern or a list of paths stands for."""
    if isinstance(source, str | Path):
        paths = [Path(source)] if Path(source).is_file() else [Path(p) for p in sorted(glob.glob(str(source)))]
        if not paths:
            pattern = any(c in str(source) for c in "*?[")
            what = f"no file matches {source}" if pattern else f"there is no file {source}"
            raise TableError(str(source), [Problem(what, "give the path of a CSV or Parquet file, or 'folder/*.csv'")])
    elif isinstance(source, Sequence) and source and all(isinstance(p, str | Path) for p in source):
        paths = [path for each in source for path in paths_of(each)]
    else:
        kinds = "a path, a list of paths, or a data frame (pandas, polars, Arrow)"
        raise ValueError(f"a table is {kinds}, got {type(source).__name__}")
    wrong = [path for path in paths if not path.name.lower().endswith(SUFFIXES)]
    if wrong and wrong[0].is_dir():
        raise TableError(str(wrong[0]), [Problem("it is a folder", f"name the files in it, as in '{wrong[0]}/*.csv'")])
    if wrong:
        raise TableError(str(wrong[0]), [Problem(f"it is none of {', '.join(SUFFIXES)}", "convert it to one of these")])
    return paths


def header_of(path: Path) -> list[str]:
    """The column names of a file, without reading the rest of it."""
    if path.name.lower().endswith(PARQUET):
        return [name for name in parquet(path, "read_schema").names if not INDEX.fullmatch(name)]
    return list(csv_files.find_form(path).names)


def parquet(path: Path, function: str, **options: Any) -> Any:
    """What a function of Arrow's Parquet reader makes of a file."""
    arrow = require("pyarrow", "tabular", PURPOSE)
    try:
        return getattr(require("pyarrow.parquet", "tabular", PURPOSE), function)(path, **options)
    except (arrow.ArrowException, OSError) as error:
        raise TableError(str(path), [Problem(f"it cannot be read ({error})", "write it again as Parquet")]) from None


def read_file(path: Path, rows: np.ndarray | None = None) -> Source:
    """One CSV or Parquet file, or some of its rows (sorted numbers), for which the rest is read but not held."""
    title = path.name.partition(".")[0]
    if path.name.lower().endswith(PARQUET):
        if rows is None:
            table = parquet(path, "read_table", partitioning=None)
        else:
            file = parquet(path, "ParquetFile")
            table = csv_files.picked(path, file.iter_batches(), rows, file.schema_arrow)
        return tidied(Source(table, False, str(path), title))
    table, form = csv_files.read_csv(path, rows)
    notes: tuple[str, ...] = ()
    if form.encoding in ("cp1252", "latin-1"):
        notes = ("it is not UTF-8 and was read as Latin-1: look whether names with accents are right",)
    return tidied(Source(table, True, str(path), title, notes, decimal_comma=form.separator != ","))


def read_frame(frame: Any) -> Source:
    """A data frame of pandas, polars or whatever speaks Arrow."""
    arrow = require("pyarrow", "tabular", PURPOSE)
    try:
        table = arrow.table(frame)
    except (arrow.ArrowException, TypeError) as error:
        fix = "give every column one type, as in frame['column'].astype(str)"
        raise TableError("the data frame", [Problem(f"it has values of mixed types ({error})", fix)]) from None
    return tidied(Source(table, False, "the data frame", "data"))


def tidied(source: Source) -> Source:
    """Texts without white space around them, null where nothing is left; columns without a name go."""
    names = source.table.column_names
    twice = sorted({name for name in names if name and names.count(name) > 1})
    if twice:
        raise TableError(source.where, [Problem(f"several columns are named {some(twice)}", "rename them")])
    unnamed = [i for i, name in enumerate(names) if not name]
    notes = source.notes
    if unnamed:
        places = ", ".join(str(i + 1) for i in unnamed)
        notes = (*notes, f"column {places} has no name (row numbers, perhaps) and is left out")
    kept = [i for i, name in enumerate(names) if name and not INDEX.fullmatch(name)]
    table = source.table.select(kept)
    types = require("pyarrow.types", "tabular", PURPOSE)
    stated = frozenset(each.name for each in table.schema if types.is_dictionary(each.type))
    columns = [trimmed(column, source.textual) for column in table.columns]
    arrow = require("pyarrow", "tabular", PURPOSE)
    table = arrow.table(columns, names=table.column_names)
    return replace(source, table=table, notes=notes, categorical=stated)


def trimmed(column: Any, textual: bool) -> Any:
    """A column whose texts have no white space around them, and none of which is empty."""
    types, compute = (require(f"pyarrow.{m}", "tabular", PURPOSE) for m in ("types", "compute"))
    if types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
        if not is_text(column.type):
            column = column.cast("string")  # a categorical of numbers: categories all the same
    if not is_text(column.type):
        return column
    column = column.cast("string")
    short = compute.utf8_trim_whitespace(column)
    gone = compute.equal(short, "")
    if textual:  # as in " NA": marks in quotes are values, but quotes keep no space
        marked = compute.is_in(short, value_set=require("pyarrow", "tabular", PURPOSE).array(MARKS, short.type))
        gone = compute.or_(gone, compute.and_(marked, compute.not_equal(short, column)))
    return compute.if_else(gone, None, short)


def is_text(kind: Any) -> bool:
    """Whether an Arrow type is text."""
    types = require("pyarrow.types", "tabular", PURPOSE)
    view = getattr(types, "is_string_view", lambda kind: False)
    return types.is_string(kind) or types.is_large_string(kind) or view(kind)


def stacked(sources: list[Source], where: str) -> Source:
    """Several files as one table; they need the same columns."""
    first, problems = sources[0], []
    for each in sources:
        if each.textual != first.textual:
            problems.append(Problem("CSV and Parquet files stand side by side", "convert them to one format"))
            break
    for each in sources[1:]:
        lacking = [name for name in first.names if name not in each.names]
        more = [name for name in each.names if name not in first.names]
        if lacking or more:
            words = [f"lacks the columns {some(lacking)}"] * bool(lacking) + [f"also has {some(more)}"] * bool(more)
            problems.append(
                Problem(f"{each.where} {' and '.join(words)}, compared with {first.where}", "give all files the same")
            )
    names = [stem(each.where) for each in sources]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        problems.append(Problem(f"several files are named {some(twice)}", "rename them: the name is the client's"))
    if problems:
        raise TableError(where, problems)
    arrow = require("pyarrow", "tabular", PURPOSE)
    try:
        table = arrow.concat_tables([s.table.select(first.names) for s in sources], promote_options="permissive")
    except arrow.ArrowException as error:
        fix = "give a column the same type in all files"
        raise TableError(where, [Problem(f"the files do not go together ({error})", fix)]) from None
    starts = np.cumsum([0, *(s.table.num_rows for s in sources[:-1])])
    files, notes = tuple(s.where for s in sources), tuple(f"{s.where}: {note}" for s in sources for note in s.notes)
    title, comma = Path(first.where).resolve().parent.name or "data", any(s.decimal_comma for s in sources)
    return Source(table, first.textual, where, title, notes, comma, files, tuple(starts.tolist()))


def stem(file: str) -> str:
    """A file's name without folder and suffixes.

    >>> stem("silos/north.csv.gz")
    'north'
    """
    name = Path(file).name
    suffix = max((s for s in SUFFIXES if name.lower().endswith(s)), key=len, default="")
    return name[: len(name) - len(suffix)]
