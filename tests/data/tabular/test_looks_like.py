"""Columns that are not what they look like: units, short years, dates in digits, pages in place of tables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from majorant.data import TableError, encode_table, from_table, inspect_table
from majorant.data.tabular.dates import short_formats

DAYS = np.datetime64("2023-01-01") + np.arange(0, 360, 4)


def table(folder: Path, cells: list[Any], name: str = "made.csv") -> Path:
    """A table with a column of these cells beside clients, labels and a number."""
    lines = [f"{'ab'[i % 2]},{(i * 7) % 11}.5,{cell},{'yn'[i // 2 % 2]}" for i, cell in enumerate(cells)]
    (folder / name).write_text("\n".join(["client,x,odd,label", *lines]) + "\n")
    return folder / name


def notes(path: Path, **options: Any) -> str:
    return "\n".join(inspect_table(path, client_column="client", label_column="label", **options).notes)


@pytest.mark.parametrize("form", ["{:.1f} mmHg", "{:.1f}%", "€ {:.2f}", "{:.0f} km"])
def test_numbers_with_a_unit_are_told_to_be_text(tmp_path: Path, form: str) -> None:
    unit = form.partition("{")[0].strip() + form.partition("}")[2].strip()
    assert f"'odd' is text because every number has {unit!r}" in notes(
        table(tmp_path, [form.format(7.3 * i) for i in range(90)])
    )


@pytest.mark.parametrize(
    "cells",
    [["1st", "2nd", "3rd"], ["10-20", "20-30", "30-40"], ["A1", "A2", "A3"], ["5 a", "b"], ["7 km", "8 mi", "9 m"]],
)
def test_categories_with_digits_have_no_unit(tmp_path: Path, cells: list[str]) -> None:
    assert "every number" not in notes(table(tmp_path, (cells * 60)[:90]))


def test_years_of_two_digits_are_told_with_the_ways_to_read_them(tmp_path: Path) -> None:
    path = table(tmp_path, [day.item().strftime("%d/%m/%y") for day in DAYS])
    assert "'odd' is text that looks like dates: say how they are written in dates: odd=%d/%m/%y" in notes(path)
    assert "looks like" not in notes(path, dates={"odd": "%d/%m/%y"})


def test_a_short_year_may_come_first() -> None:
    arrow = pytest.importorskip("pyarrow")
    assert short_formats(arrow.array(["99/01/31", "24/12/01"])) == ["%y/%m/%d"]


def test_dates_in_digits_are_told_and_read_from_typed_columns_too(tmp_path: Path) -> None:
    arrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    digits = [int(day.item().strftime("%Y%m%d")) for day in DAYS]
    path = table(tmp_path, digits)
    assert "'odd' has whole numbers that look like dates, such as 20230101" in notes(path)
    assert "look like" not in notes(table(tmp_path, [number + 60 for number in digits], "ids.csv"))
    columns = {"client": list("ab" * 45), "odd": digits, "label": list("yynn" * 22 + "yn")}
    parquet.write_table(arrow.table(columns), tmp_path / "made.parquet")
    parquet.write_table(arrow.table(columns | {"odd": [str(day) for day in DAYS]}), tmp_path / "iso.parquet")
    roles: Any = {"client_column": "client", "label_column": "label"}
    _, one = from_table(tmp_path / "made.parquet", **roles, dates={"odd": "%Y%m%d"})
    _, two = from_table(tmp_path / "iso.parquet", **roles, dates={"odd": "iso"})
    assert one.features == two.features
    np.testing.assert_allclose(
        encode_table(tmp_path / "made.parquet", one)[0], encode_table(tmp_path / "iso.parquet", two)[0], atol=1e-6
    )


def test_a_type_that_cannot_hold_dates_is_refused_where_dates_are_asked_for(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"client": list("ab" * 10), "odd": np.arange(20) + 0.5, "label": list("yynn" * 5)})
    with pytest.raises(TableError, match="'odd' has type double, and is named in dates"):
        from_table(frame, client_column="client", label_column="label", dates={"odd": "%Y%m%d"})


def test_a_web_page_is_called_one(tmp_path: Path) -> None:
    (tmp_path / "page.csv").write_text("\n<!DOCTYPE html>\n<html><body>log in</body></html>\n")
    with pytest.raises(TableError, match="it is a web page"):
        from_table(tmp_path / "page.csv", client_column="client", label_column="label")


def test_too_few_groups_have_a_fix_that_reads(tmp_path: Path) -> None:
    path = table(tmp_path, list("uvwxyz" * 15))
    with pytest.raises(TableError, match=r"parts \(2 such clients\): drop or merge such clients, or set"):
        from_table(path, client_column="client", label_column="label", together_column="label")


def test_what_a_later_file_writes_otherwise_has_a_fix_that_works_there(tmp_path: Path) -> None:
    """Settings such as missing_values are those of training: nobody can change them for a newcomer's file."""
    roles: Any = {"client_column": "client", "label_column": "label"}
    _, encoding = from_table(table(tmp_path, [day.item().strftime("%d.%m.%Y") for day in DAYS]), **roles)
    with pytest.raises(TableError, match=r"holds dates \(%d.%m.%Y\), but '2023-01-01' .*: write it as at training$"):
        encode_table(table(tmp_path, list(DAYS), "later.csv"), encoding)
