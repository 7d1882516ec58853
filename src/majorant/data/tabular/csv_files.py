"""CSV files as tables of text: the separator and the character encoding are found out, nothing is taken for a number.

A cell is null where it is empty or holds one of the usual marks of a missing value outside quotes. White space around
cells and column names is not part of them.
"""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import itertools
import zlib
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from majorant._extras import require
from majorant.data.tabular.problems import Problem, TableError

SUFFIXES = (".csv", ".tsv", ".csv.gz", ".tsv.gz")
PURPOSE = "reading tables"
SEPARATORS = ",;\t|"
SAMPLE = 1 << 16  # bytes that are looked at to find the separator
MARKS = (  # of a missing value
    "",
    "NA",
    "N/A",
    "n/a",
    "#N/A",
    "#NA",
    "#N/A N/A",
    "<NA>",
    "NaN",
    "nan",
    "-NaN",
    "-nan",
    "1.#IND",
    "-1.#IND",
    "1.#QNAN",
    "-1.#QNAN",
    "NULL",
    "null",
)


class Form(NamedTuple):
    """How a file is written."""

    separator: str
    encoding: str
    names: tuple[str, ...]  # of the columns
    blank: int = 0  # lines before the names


def find_form(path: Path) -> Form:
    """Separator, character encoding and column names, from the beginning of a file."""
    try:
        with gzip.open(path) if path.name.endswith(".gz") else path.open("rb") as file:
            start = file.read(SAMPLE)
    except (OSError, EOFError, zlib.error) as error:
        raise TableError(str(path), [Problem(f"it cannot be read ({error})", "write it again")]) from None
    encoding = guess_encoding(start, len(start) < SAMPLE)
    text = codecs.getincrementaldecoder(encoding)(errors="replace").decode(start)
    if not text.strip():
        raise TableError(str(path), [Problem("it is empty", "it needs a line of column names and a line per sample")])
    if "\0" in text:
        raise TableError(str(path), [Problem("it is not a text file", "save the table as CSV or Parquet")])
    if text.lstrip("\ufeff \t\r\n")[:9].lower().startswith(("<!doctype", "<html")):
        raise TableError(str(path), [Problem("it is a web page, and no table", "download the file itself")])
    whole = text if len(start) < SAMPLE else text[: text.rfind("\n") + 1] or text
    separator = guess_separator(whole, "\t" if ".tsv" in path.name else ",")
    blank = len(whole[: len(whole) - len(whole.lstrip())].splitlines()) if whole[0] in "\r\n" else 0
    header = next(row for row in csv.reader(io.StringIO(whole, newline=""), delimiter=separator) if row)
    return Form(separator, encoding, tuple(name.strip() for name in header), blank)


def guess_encoding(start: bytes, whole: bool = False) -> str:
    """The encoding of a text that begins so, or is so as a ``whole``: then no character is cut off at its end.

    >>> guess_encoding("né,1".encode("utf-8")), guess_encoding("né,1".encode("latin-1"))
    ('utf-8-sig', 'cp1252')
    >>> guess_encoding(b"1,\\xc4"), guess_encoding(b"1,\\xc4", whole=True)
    ('utf-8-sig', 'cp1252')
    """
    if start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    for encoding in ("utf-8-sig", "cp1252"):
        try:
            codecs.getincrementaldecoder(encoding)().decode(start, final=whole)
            return encoding
        except UnicodeDecodeError:
            continue
    return "latin-1"


def guess_separator(text: str, usual: str = ",") -> str:
    """The separator that cuts the first lines into the most columns, and all of them into as many.

    >>> guess_separator("a;b;c\\n1,5;2;3\\n"), guess_separator("a,b\\n1;2,3\\n")
    (';', ',')
    """

    def merit(separator: str) -> tuple[bool, int, bool]:
        reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator)
        widths = [len(row) for row in itertools.islice(reader, 50) if row]
        same = widths.count(widths[0]) > 0.9 * len(widths) and widths[0] > 1
        return same, widths[0] if same else 0, separator == usual

    return max(dict.fromkeys([usual, *SEPARATORS]), key=merit)


def read_csv(path: Path, rows: np.ndarray | None = None) -> tuple[Any, Form]:
    """An Arrow table whose columns are all text, of the whole file or of some rows, and how the file is written."""
    form = find_form(path)
    arrow = require("pyarrow", "tabular", PURPOSE)
    for encoding in dict.fromkeys([form.encoding, "cp1252", "latin-1"]):  # what is not UTF-8 may come late in a file
        try:
            table = parse(path, form._replace(encoding=encoding), rows=rows)
        except (arrow.ArrowInvalid, UnicodeDecodeError) as error:
            if "utf8" not in str(error).lower() and not isinstance(error, UnicodeDecodeError):
                raise TableError(str(path), row_problems(path, form) or [unreadable(error)]) from None
        else:
            return table.rename_columns(list(form.names)), form._replace(encoding=encoding)
    raise AssertionError("every byte is a character in Latin-1")


def parse(path: Path, form: Form, skipped: list[Any] | None = None, rows: np.ndarray | None = None) -> Any:
    """The file by Arrow's reader; rows of a wrong length go to ``skipped``, where that is given.

    Of a file of which some ``rows`` are wanted, a block at a time is in memory besides them.
    """
    reader = require("pyarrow.csv", "tabular", PURPOSE)
    arrow = require("pyarrow", "tabular", PURPOSE)
    raw = tuple(f"c{i}" for i in range(len(form.names)))  # names may stand twice; kinds are asked for by name
    convert = reader.ConvertOptions(
        column_types=dict.fromkeys(raw, arrow.string()),
        null_values=list(MARKS),
        strings_can_be_null=True,
        quoted_strings_can_be_null=False,
    )

    def skip(row: Any) -> str:
        assert skipped is not None
        skipped.append(row)
        return "skip"

    handler = None if skipped is None else skip
    parsing = reader.ParseOptions(delimiter=form.separator, newlines_in_values=True, invalid_row_handler=handler)
    encoding = "utf8" if form.encoding == "utf-8-sig" else form.encoding
    options = reader.ReadOptions(
        encoding=encoding,
        column_names=raw,
        skip_rows=form.blank,
        skip_rows_after_names=1,  # the names themselves
        use_threads=skipped is None,
        block_size=1 << 24,
    )
    with path.open("rb") as file:
        stream = arrow.input_stream(file, compression="gzip" if path.name.endswith(".gz") else None)
        how: Any = {"read_options": options, "parse_options": parsing, "convert_options": convert}
        return reader.read_csv(stream, **how) if rows is None else picked(path, reader.open_csv(stream, **how), rows)


def picked(path: Path, batches: Any, rows: np.ndarray, schema: Any = None) -> Any:
    """The table of some rows, in their order, out of all batches of a file."""
    arrow, found, begin = require("pyarrow", "tabular", PURPOSE), [], 0
    for batch in batches:
        here = rows[(rows >= begin) & (rows < begin + batch.num_rows)] - begin
        found += [batch.take(arrow.array(here))] if len(here) else []
        begin += batch.num_rows
    if len(rows) and rows[-1] >= begin:
        raise TableError(str(path), [Problem(f"it has {begin} rows, and had more before", "leave it as it is")])
    return arrow.Table.from_batches(found, schema or batches.schema)


def row_problems(path: Path, form: Form) -> list[Problem]:
    """The rows that have too many or too few cells."""
    skipped: list[Any] = []
    try:  # every byte is a character in Latin-1, also where cells are counted only
        parse(path, form if form.encoding == "utf-16" else form._replace(encoding="latin-1"), skipped)
    except Exception as error:  # it cannot be read for yet another reason: that is the one to tell
        return [unreadable(error)]
    if not skipped:
        return []
    first = skipped[0]
    where = f"line {first.number}" if first.number else "the first of them"
    return [
        Problem(
            f"{len(skipped)} rows do not have {first.expected_columns} cells as the first line has,"
            f" {where} has {first.actual_columns}",
            f"put texts that hold {form.separator!r} or line ends in quotes",
        )
    ]


def unreadable(error: Exception) -> Problem:
    """A file that no reader makes sense of."""
    words = str(error).strip().partition("\n")[0]  # Arrow may say where in its own code, too
    return Problem(f"it cannot be read ({words})", "write it again as CSV with a line of column names")
