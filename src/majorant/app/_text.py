"""Texts of others (names of clients, paths, labels) made harmless for terminals, spreadsheets and pages."""

from __future__ import annotations

import csv
import html
import io
from collections.abc import Iterable
from typing import Any

from majorant._syntax import NUMBER

FORMULA = ("=", "+", "-", "@", "\t", "\r")  # what makes a spreadsheet take a cell for a formula


def neutral(text: str) -> str:
    r"""A text in one line in which nothing moves a cursor or turns the direction of writing: such characters are named.

    >>> neutral("a\x1b[31m\nb")
    'a\\x1b[31m\\nb'
    """
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def csv_text(rows: Iterable[list[Any]]) -> str:
    """Rows as CSV; a text that a spreadsheet would take for a formula gets an apostrophe before it.

    >>> print(csv_text([["name", "loss"], ["=1+1", -0.5], ["-7", 1]]), end="")
    name,loss
    '=1+1,-0.5
    -7,1
    """
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([cell(value) for value in row] for row in rows)
    return text.getvalue()


def cell(value: Any) -> Any:
    """A value as a cell of a table; plain numbers are no formulas."""
    risky = isinstance(value, str) and value.startswith(FORMULA) and not NUMBER.fullmatch(value)
    return f"'{value}" if risky else value


def uncell(text: str) -> str:
    """The text that `cell` was given."""
    return text[1:] if text.startswith("'") and cell(text[1:]) == text else text


def html_text(text: str) -> str:
    """A text for a page: no markup, and no characters that are not to be seen."""
    return html.escape("".join(c if c.isprintable() or c == "\n" else "�" for c in text))
