"""Tables as the world has them: odd cells, odd headers, odd bytes. What `majorant check` says of one must be true."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
from fuzz_cases import Case, Ended, foreseen
from fuzz_commands import flags
from hypothesis import strategies as st

from majorant.app.table_settings import TableSettings
from majorant.data import encode_table, from_table

CELLS = {
    "number": ["1", "2.5", "-3", "0", "1e3", "7", "0.1"],
    "text": ["a", "b", "c", "red", "blue"],
    "id": ["001", "01", "1", "a 1", "A1", "x", "y"],
    "truth": ["true", "false", "True", "0", "1", "yes", "no"],
    "date": ["2024-01-02", "2023-12-31", "01/02/2024", "2024-01-02T03:04:05", "31/12/2023"],
    "constant": ["4"],
    "odd": ["", " ", "NA", "n/a", "nan", "NaN", "inf", "-inf", "1e300", "-1e300", "1e-300", "1e999", "3e38",
            "=1+1", "@x", "<b>", "[bold]", "\x1b[31m", "é", "１２", "1_000", "1,5", "\"", "'", "a;b", "a\tb", "null",
            "-999", "0x1F", "9" * 40, "١٢", "\u202e", "None", "x" * 3000, "1e5e5", "+", "-", ".", "12:30",
            "99999-01-01", "2024-13-45"],
}  # fmt: skip
NAMES = ["client", "age", "dose", "ward", "visit", "y", "part", "é", "", " ", "a b", "y", "=x", "[x]", "a,b", "x" * 300]
FLAGS = ["--client-column", "client", "--label-column", "y"]


@st.composite
def column(draw: Any, rows: int, kinds: list[str]) -> list[str]:
    """The cells of a column: of one kind, with a few odd ones among them."""
    kind = draw(st.sampled_from(kinds))
    cells = draw(st.lists(st.sampled_from(CELLS[kind]), min_size=rows, max_size=rows))
    for place in (
        draw(st.lists(st.integers(0, max(rows - 1, 0)), max_size=2)) if rows and draw(st.integers(0, 3)) == 2 else []
    ):
        cells[place] = draw(st.sampled_from(CELLS["odd"]))
    return cells


@st.composite
def tables(draw: Any) -> Case:
    """A table, and the command that looks at it."""
    rows = draw(st.sampled_from([24, 30, 40, 60, 12, 30, 40, 5, 0]))
    header, columns = (
        ["client", "y"],
        [draw(column(rows, ["id", "text"])), draw(column(rows, ["text", "number", "truth", "id"]))],
    )
    for _ in range(draw(st.integers(0, 4))):
        header.append(draw(st.sampled_from(NAMES)) if draw(st.integers(0, 3)) == 2 else f"x{len(header)}")
        columns.append(draw(column(rows, list(CELLS))))
    if draw(st.integers(0, 19)) == 7:
        header = header[: draw(st.integers(0, len(header)))]
    separator = draw(st.sampled_from([",", ",", ",", ";", "\t", "|"]))
    quote = lambda cell: (
        '"' + cell.replace('"', '""') + '"' if set(cell) & set('",;\t|\n') and draw(st.integers(0, 9)) else cell
    )
    lines = [separator.join(map(quote, cells)) for cells in [header, *zip(*columns, strict=True)]]
    if draw(st.integers(0, 19)) == 7 and len(lines) > 1:
        place = draw(st.integers(1, len(lines) - 1))
        lines[place] += draw(st.sampled_from([separator, separator + "x", '"', "\0", "\r"]))
    end = draw(st.sampled_from(["\n", "\n", "\n", "\n", "\r\n", "\r"]))
    data = (end.join(lines) + end).encode(
        draw(st.sampled_from(["utf-8"] * 12 + ["latin-1", "utf-16", "utf-8-sig", "utf-7"])), "replace"
    )
    if draw(st.integers(0, 19)) == 7:
        data = data[: draw(st.integers(0, len(data)))] + draw(st.binary(max_size=4))
    name = draw(st.sampled_from(["t.csv"] * 16 + ["t.tsv", "t.parquet", "t.csv.gz"]))
    more = draw(flags(TableSettings, 2)) if draw(st.integers(0, 2)) == 1 else []
    return Case(["check", name, *FLAGS, *[text for text in more if "\0" not in text]], {name: data})


def same_as_training(case: Case, ended: Ended) -> str:
    """What is wrong, if anything: a table that is ready must load, one with problems must not; codes are finite."""
    if case.arguments[2:] != FLAGS:
        return ""
    name = case.arguments[1]
    options = TableSettings(data=name, client_column="client", label_column="y").table_options()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made, words = foreseen(lambda: from_table(name, **options))
        if (made is None) != (ended.code == 2):
            return f"check ended with {ended.code}, and training with {words or 'data'}"
        if made is None:
            return ""
        data, encoding = made
        (x, y), words = foreseen(lambda: encode_table(Path(name), encoding))[0] or (None, None), None
    if x is None or y is None:
        return "the table that was trained on cannot be encoded again"
    if x.shape[1:] != data.spec.features or not np.isfinite(x).all() or not np.isfinite(data.train.x).all():
        return "features are not finite, or not as many as in training"
    if sorted(np.concatenate([part.x for part in (data.train, data.validation, data.test)]).tolist()) != sorted(
        x.tolist()
    ):
        return "the rows are encoded otherwise than in training"
    return ""
