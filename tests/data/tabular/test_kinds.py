"""What a column holds is found out, or said to be unclear: odd cells, dates, truth values, ids, many categories."""

import time
from datetime import UTC, datetime

import numpy as np
import pyarrow as pa
import pytest

from made_tables import lines
from majorant.data.tabular import TableError, TableNotice, encode_table, from_table
from majorant.data.tabular.dates import ISO, parse_dates

OPTIONS = {"client_column": "site", "label_column": "sick"}


def table(path, column, n=None):
    """Two sites, and one column of interest."""
    n = n or len(column)
    rows = [f"{'ab'[i % 2]},{column[i % len(column)]},{i % 5 // 2 % 2}" for i in range(n)]
    return lines(path / "t.csv", "site,x,sick", rows)


@pytest.mark.parametrize("mark", ["?", "-", "unknown", "None", "n.a.", "Missing", ".", "NA "])
def test_a_mark_among_numbers_is_a_missing_value(tmp_path, mark):
    column = [f"{i % 13}.5" for i in range(60)]
    column[7] = mark
    with pytest.warns(TableNotice) as notices:
        _, encoding = from_table(table(tmp_path, column), **OPTIONS, split=(1, 0, 0))
    told = " ".join(str(notice.message) for notice in notices)
    assert "values are missing ('x' 1)" in told
    if mark != "NA ":  # which needs no explanation
        assert f"1 cells of 'x' ({mark}) count as missing values" in told
    assert encoding.features == ("x", "x (missing)")
    known = [float(cell) for i, cell in enumerate(column) if i != 7]
    assert encoding["x"].mean == pytest.approx(np.mean(known), rel=1e-12)
    assert encoding["x"].scale == pytest.approx(np.std(known), rel=1e-12)
    x, _ = encode_table(tmp_path / "t.csv", encoding)
    assert x[7].tolist() == [0, 1]


@pytest.mark.parametrize("type", [pa.int16(), pa.int64(), pa.float32(), pa.float64()], ids=str)
def test_a_mark_that_is_a_number_is_missing_in_columns_of_numbers(type):
    """-999 among typed numbers is the same as in a file of texts."""
    values = [i % 13 for i in range(60)]
    values[7] = values[20] = -999
    frame = pa.table({"site": ["a", "b"] * 30, "x": pa.array(values).cast(type), "sick": [0, 0, 1, 1] * 15})
    with pytest.warns(TableNotice, match=r"values are missing \('x' 2\)"):
        _, encoding = from_table(frame, **OPTIONS, split=(1, 0, 0), missing_values=["-999", "unknown"])
    assert encoding.features == ("x", "x (missing)")
    known = [value for value in values if value != -999]
    assert (encoding["x"].mean, encoding["x"].scale) == pytest.approx((np.mean(known), np.std(known)), rel=1e-12)
    x, _ = encode_table(frame, encoding)
    assert x[[7, 20]].tolist() == [[0, 1], [0, 1]]
    assert not x[[0, 1, 2], 1].any()


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_durations_are_seconds(unit):
    seconds = np.array([90.0, 3600, 5, 86400, 1, 7])
    spans = pa.array([*np.tile(seconds, 10).astype("timedelta64[s]"), None, None]).cast(pa.duration(unit))
    frame = pa.table({"site": ["a", "b"] * 31, "x": spans, "sick": [*[0, 1, 1] * 20, 0, 1]})
    with pytest.warns(TableNotice, match=r"values are missing \('x' 2\)"):
        _, encoding = from_table(frame, **OPTIONS, split=(1, 0, 0))
    assert encoding["x"].mean == pytest.approx(seconds.mean())
    assert encode_table(frame, encoding)[0][-1].tolist() == [0, 1]


def test_other_cells_among_numbers_are_refused_with_the_row(tmp_path):
    column = [f"{i}.5" for i in range(60)]
    column[7] = "12O"
    path = table(tmp_path, column)
    with pytest.raises(
        TableError, match="column 'x' holds numbers, but '12O' in row 8 is not one: correct it, name it in"
    ):
        from_table(path, **OPTIONS)
    with pytest.warns(TableNotice, match="values are missing"):
        _, encoding = from_table(path, **OPTIONS, split=(1, 0, 0), missing_values=["12O"])
    assert encoding.features == ("x", "x (missing)")
    x, _ = encode_table(lines(tmp_path / "new.csv", "x,sick", ["1,0", "12O,1", "?,1"]), encoding)
    assert x[:, 1].tolist() == [0, 1, 1]
    column[9] = "x"
    with pytest.raises(TableError, match="'12O' in row 8 and 1 more cells are not"):
        from_table(table(tmp_path, column), **OPTIONS)


def test_numbers_with_enough_texts_between_them_are_categories(tmp_path):
    _, encoding = from_table(table(tmp_path, ["0", "1", "2", "3+"], 60), **OPTIONS)
    assert encoding["x"].categories == ("0", "1", "2", "3+")


@pytest.mark.parametrize(
    ("cells", "what"),
    [
        (["20,000", "950", "1,250,000"], "separators of thousands"),
        (["1.234,5", "20.000,25"], "separators of thousands"),
        (["0,126", "3", "-12,5"], "decimal commas, in a file with commas between cells"),
    ],
)
def test_numbers_with_commas_between_commas_are_refused(tmp_path, cells, what):
    """As categories they would lose their order; who means categories says so."""
    path = table(tmp_path, [f'"{cell}"' for cell in cells], 60)
    with pytest.raises(TableError, match=f"'x' has numbers with {what}, such as '{cells[0]}' in row 1"):
        from_table(path, **OPTIONS)
    _, encoding = from_table(path, **OPTIONS, categorical="x")
    assert encoding["x"].categories == tuple(sorted(cells))


def test_text_that_looks_like_dates_is_told_where_types_are_stated():
    days = pa.array([f"{1 + i % 28:02d}.{1 + i % 12:02d}.2024" for i in range(60)])
    frame = pa.table({"site": ["a", "b"] * 30, "x": days, "sick": [0, 0, 1, 1] * 15})
    with pytest.warns(TableNotice) as notices:
        from_table(frame.append_column("y", pa.array(range(60), pa.float64())), **OPTIONS)
    said = "'x' is text that looks like dates: say how they are written in dates: x=%d.%m.%Y"
    assert any(said in str(notice.message) for notice in notices)
    _, encoding = from_table(frame, **OPTIONS, dates={"x": "%d.%m.%Y"})
    assert encoding["x"].kind == "date"


def test_columns_that_are_said_to_be_categories(tmp_path):
    path = table(tmp_path, ["1", "2", "3"], 60)
    assert from_table(path, **OPTIONS)[1].features == ("x",)
    assert from_table(path, **OPTIONS, categorical="x")[1].features == ("x=1", "x=2", "x=3")


def test_booleans_in_any_case(tmp_path):
    path = table(tmp_path, ["TRUE", "False", "true"], 60)
    _, encoding = from_table(path, **OPTIONS)
    assert encoding["x"].kind == "boolean"
    assert encoding["x"].categories == ("false", "true")
    later = [[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]]
    for cells in (["false", "True", "0"], ["0", "1", "0"]):
        path = lines(tmp_path / "new.csv", "x,sick", [f"{cell},0" for cell in cells])
        assert encode_table(path, encoding)[0].tolist() == later
    assert encode_table(pa.table({"x": [False, True, False], "sick": [0, 0, 0]}), encoding)[0].tolist() == later
    assert encode_table(pa.table({"x": [0, 1, 0], "sick": [0, 0, 0]}), encoding)[0].tolist() == later


DAYS = [datetime(2024, 1 + i % 12, 13 + i % 15, tzinfo=UTC) for i in range(60)]


@pytest.mark.parametrize(
    "format", ["%Y-%m-%d", "%Y/%m/%d", "%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y", "%d-%m-%Y", "%Y-%m-%dT%H:%M:%SZ"]
)
def test_dates_become_days_and_circles(tmp_path, format):
    path = table(tmp_path, [day.strftime(format) for day in DAYS])
    _, encoding = from_table(path, **OPTIONS, split=(1, 0, 0))
    parts = ("days", "year_sin", "year_cos", "week_sin", "week_cos")
    assert encoding.features == tuple(f"x.{part}" for part in parts)
    days = np.array([day.timestamp() / 86400 for day in DAYS])
    x, _ = encode_table(path, encoding)
    assert np.allclose(x[:, 0], (days - days.mean()) / days.std(), atol=1e-5)
    week = np.sin(2 * np.pi * (days % 7) / 7)
    assert np.allclose(x[:, 3], (week - week.mean()) / week.std(), atol=1e-5)
    typed = pa.table({"x": pa.array([day.replace(tzinfo=None) for day in DAYS]), "sick": [0] * 60})
    assert np.allclose(encode_table(typed, encoding)[0], x)


def test_times_in_different_zones_are_the_same_moments():
    texts = ["2024-07-01T10:00:00Z", "2024-07-01T12:00:00+02:00", "2024-07-01 10:00", "2024-07-01T04:30-05:30"]
    assert len(set(parse_dates(pa.array(texts), ISO).values.tolist())) == 1


@pytest.mark.skipif(not hasattr(time, "tzset"), reason="the time zone of a process cannot be set here")
def test_times_without_a_zone_do_not_depend_on_that_of_the_machine(monkeypatch):
    try:
        monkeypatch.setenv("TZ", "America/New_York")
        time.tzset()
        assert parse_dates(pa.array(["1970-01-02", "1970-01-02 00:00"]), ISO).values.tolist() == [86400] * 2
    finally:
        monkeypatch.undo()
        time.tzset()


def test_times_of_day_and_gaps_between_dates(tmp_path):
    column = [day.strftime("%Y-%m-%d 06:30") for day in DAYS]
    column[3] = ""
    with pytest.warns(TableNotice, match=r"values are missing \('x' 1\)"):
        _, encoding = from_table(table(tmp_path, column), **OPTIONS, split=(1, 0, 0))
    assert encoding.features[-3:] == ("x.day_sin", "x.day_cos", "x (missing)")
    x, _ = encode_table(tmp_path / "t.csv", encoding)
    assert (x[3] == [*[0] * 7, 1]).all()


def test_dates_whose_day_could_be_the_month_are_refused_until_it_is_said(tmp_path):
    path = table(tmp_path, ["01/02/2024", "03/04/2024"], 60)
    with pytest.raises(
        TableError, match=r"may begin with the day or the month: say which in dates: x=%d/%m/%Y or x=%m"
    ):
        from_table(path, **OPTIONS)
    _, encoding = from_table(path, **OPTIONS, dates={"x": "%m/%d/%Y"})
    assert encoding["x"].format == "%m/%d/%Y"
    new = lines(tmp_path / "new.csv", "x,sick", ["12/31/2024,0"])
    encode_table(new, encoding)
    _, encoding = from_table(path, **OPTIONS, dates={"x": "%d/%m/%Y"})
    with pytest.raises(TableError, match=r"holds dates \(%d/%m/%Y\), but '12/31/2024' in row 1 is not"):
        encode_table(new, encoding)


def test_days_that_no_month_has_are_refused(tmp_path):
    column = [f"{1 + i % 28:02}/02/2024" for i in range(60)]
    column[5] = "31/02/2024"
    with pytest.raises(TableError, match="'31/02/2024' in row 6 is not"):
        from_table(table(tmp_path, column), **OPTIONS)


@pytest.mark.parametrize(
    ("name", "column", "reason"),
    [
        ("patient", [f"p{i}" for i in range(60)], "an id or free text: 60 different values in 60 rows"),
        ("patient_id", [str(7 * i) for i in range(60)], "an id: 60 different whole numbers in 60 rows"),
        ("patientID", [str(i // 2 + 100) for i in range(60)], "an id: 30 different whole numbers in 60 rows"),
        ("nr", [str(i + 1) for i in range(60)], "it numbers the rows"),
        ("nr", [str(10**17 + i) for i in range(60)], "an id: whole numbers of more than 15 digits"),
        ("nothing", [""] * 60, "it has no values"),
    ],
)
def test_ids_are_left_out_and_told(tmp_path, name, column, reason):
    rows = [f"{'ab'[i % 2]},{i % 7},{column[i]},{i % 5 // 2}" for i in range(60)]
    path = lines(tmp_path / "t.csv", f"site,dose,{name},sick", rows)
    with pytest.warns(TableNotice, match=rf"'{name}' is left out \({reason}"):
        _, encoding = from_table(path, **OPTIONS)
    assert encoding.features == ("dose",)
    assert encoding.left_out[name].startswith(reason)


def test_numbers_that_only_happen_to_be_different_stay(tmp_path):
    column = [str(i * i) for i in range(60)]
    with pytest.warns(TableNotice, match="'x' has 60 different whole numbers in 60 rows, and is a feature: drop it if"):
        assert from_table(table(tmp_path, column), **OPTIONS)[1].features == ("x",)


def test_rare_categories_are_pooled(tmp_path):
    column = [f"c{min(i % 40, i % 7 + 3 * (i % 2))}" for i in range(400)]
    found = dict.fromkeys(column, 0)
    for value in column:
        found[value] += 1
    kept = sorted(sorted(found, key=lambda value: (-found[value], value))[:4])
    path = table(tmp_path, column)
    with pytest.warns(TableNotice, match=f"'x' has {len(found)} categories: the 4 most frequent are kept"):
        _, encoding = from_table(path, **OPTIONS, split=(1, 0, 0), max_categories=4)
    assert encoding.features == (*(f"x={value}" for value in kept), "x=(other)")
    x, _ = encode_table(path, encoding)
    assert (x.sum(axis=1) == 1).all()
    assert (x[:, 4] == [value not in kept for value in column]).all()
    x, _ = encode_table(lines(tmp_path / "new.csv", "x,sick", ["never seen,0"]), encoding)
    assert x.tolist() == [[0, 0, 0, 0, 1]]


def test_numbers_of_any_size_have_moments(tmp_path):
    """Squares of 1e300 are beyond all numbers, those of 1e-300 below them."""
    for size in (1e300, 1e-300, 1.7e308):
        column = [f"{size * (-1) ** (i // 2)!r}" for i in range(60)]
        _, encoding = from_table(table(tmp_path, column), **OPTIONS, split=(1, 0, 0))
        assert encoding["x"].scale == pytest.approx(size, rel=1e-9)
        x, _ = encode_table(tmp_path / "t.csv", encoding)
        assert np.allclose(x[:, 0], [(-1) ** (i // 2) for i in range(60)], atol=1e-6)


def test_one_wild_number_is_told(tmp_path):
    column = [f"{i % 13}.5" for i in range(60)]
    column[7] = "-1e300"
    with pytest.warns(TableNotice, match=r"'x' has values as far away as -1e\+300, which squeeze all others together"):
        _, encoding = from_table(table(tmp_path, column), **OPTIONS, split=(1, 0, 0))
    assert np.isfinite([encoding["x"].mean, encoding["x"].scale]).all()
    with pytest.warns(TableNotice, match="values are missing"):
        _, encoding = from_table(table(tmp_path, column), **OPTIONS, split=(1, 0, 0), missing_values=["-1e300"])
    assert encoding["x"].scale < 10


@pytest.mark.parametrize("values", [[np.inf, 1.0, 2.0], pa.array([[1], [2], [3]]), pa.array([0, 1, 2], pa.time32("s"))])
def test_types_without_a_meaning_are_refused(values):
    column = pa.concat_arrays([pa.array(values)] * 20)
    frame = pa.table({"site": ["a", "b"] * 30, "x": column, "sick": [0, 0, 1] * 20})
    with pytest.raises(TableError, match=r"column 'x' has (20 infinite values, the first in row 1|type )"):
        from_table(frame, **OPTIONS)
