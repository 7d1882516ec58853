"""Texts of others do no harm in terminals, spreadsheets and pages."""

from __future__ import annotations

import csv

import pytest

from majorant.app._text import cell, csv_text, html_text, neutral, uncell

HOSTILE = ["=cmd|' /C calc'!A0", "+1+1", "-2+3", "@SUM(A1)", "\t=1", "\r=1", "-", "=", "-1e", "+１"]


@pytest.mark.parametrize("text", HOSTILE)
def test_no_cell_begins_a_formula(text: str) -> None:
    (row,) = csv.reader(csv_text([[text, 1.5]]).splitlines(keepends=True)) if "\r" not in text else [[cell(text)]]
    assert row[0][0] == "'"
    assert uncell(row[0]) == text


@pytest.mark.parametrize("value", ["client-1", "-5", "+3", "1e3", "'quoted'", "", -0.5, 7, None, "a=b"])
def test_names_and_numbers_stay_as_they_are(value: object) -> None:
    assert cell(value) == value
    if isinstance(value, str):
        assert uncell(value) == value


def test_nothing_moves_the_cursor() -> None:
    assert neutral("a\x1b]0;title\x07b") == "a\\x1b]0;title\\x07b"
    assert neutral("first\nsecond\r\x00") == "first\\nsecond\\r\\x00"
    assert neutral("\u202eright to left\u2066") == "\\u202eright to left\\u2066"
    assert neutral("\udcff") == "\\udcff"  # a byte of a path that is no text
    assert neutral("naïve → λ [bold]") == "naïve → λ [bold]"


def test_pages_have_no_markup_of_others() -> None:
    assert html_text('<b title="x">\x00\u202e') == "&lt;b title=&quot;x&quot;&gt;��"
