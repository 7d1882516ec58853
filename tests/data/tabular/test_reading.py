"""Files as people have them: separators, encodings, several files, data frames; ids stay the texts they are."""

import gzip

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from made_tables import CLASSES, PARTS, REGRESSION, lines, visits, write
from majorant.data import FederatedData
from majorant.data.tabular import TableError, TableNotice, check_header, encode_table, from_table
from majorant.data.tabular.csv_files import guess_separator
from majorant.data.tabular.reading import header_of, read_source

HEADER = ["hospital", "age", "sex", "sick"]
ROWS = [[f"h{i % 2}", f"{20 + i % 40}.5", "fm"[i % 3 == 0], str(i % 5 // 2)] for i in range(60)]
OPTIONS = {"client_column": "hospital", "label_column": "sick"}


def same(a: FederatedData, b: FederatedData) -> bool:
    return a.names == b.names and all(
        (getattr(a, p).x == getattr(b, p).x).all() and (getattr(a, p).y == getattr(b, p).y).all() for p in PARTS
    )


@pytest.fixture
def plain(tmp_path):
    return from_table(lines(tmp_path / "plain.csv", ",".join(HEADER), map(",".join, ROWS)), **OPTIONS)[0]


@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
@pytest.mark.parametrize("name", ["t.csv", "t.tsv", "t.csv.gz", "t.tsv.gz"])
def test_separators_and_compression_are_found(tmp_path, plain, separator, name):
    text = "\n".join(map(separator.join, [HEADER, *ROWS])).encode()
    (tmp_path / name).write_bytes(gzip.compress(text) if name.endswith(".gz") else text)
    assert same(from_table(tmp_path / name, **OPTIONS)[0], plain)


@pytest.mark.parametrize("end", ["\r\n", "\r"])
def test_line_ends_are_found(tmp_path, plain, end):
    (tmp_path / "t.csv").write_bytes(end.join(map(",".join, [HEADER, *ROWS])).encode())
    assert same(from_table(tmp_path / "t.csv", **OPTIONS)[0], plain)


def test_separators_inside_cells_do_not_count():
    assert guess_separator('a,b\n"x;y;z",1\n"u;v;w",2\n') == ","
    assert guess_separator("place;note\nBern;a, b, c\nBonn;d\n") == ";"
    assert guess_separator("one\n1\n2\n") == ","


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "latin-1", "cp1252"])
def test_encodings_are_found_and_latin_is_told(tmp_path, encoding):
    rows = [f"{name},{i},{i % 3 // 2}" for name in ("Zürich", "Genève") for i in range(30)]
    path = lines(tmp_path / "t.csv", "hôpital,âge,sick", rows, encoding)
    options = {"client_column": "hôpital", "label_column": "sick", "drop": [], "categorical": ["âge"]}
    if encoding in ("latin-1", "cp1252"):
        with pytest.warns(TableNotice, match="it is not UTF-8 and was read as Latin-1"):
            data, encoded = from_table(path, **options)
    else:
        data, encoded = from_table(path, **options)
    assert data.names == ("Genève", "Zürich")
    assert encoded.columns[0].name == "âge"
    assert header_of(path) == ["hôpital", "âge", "sick"]


def test_a_byte_that_is_not_utf8_late_in_a_file_is_read_all_the_same(tmp_path):
    rows = [f"h{i % 2},{i % 7 / 2},{i % 3 // 2}" for i in range(20_000)] + ["Zürich,1.5,1", "Zürich,1,0"] * 15
    path = lines(tmp_path / "t.csv", "hospital,dose,sick", rows, "latin-1")
    with pytest.warns(TableNotice, match="Latin-1"):
        assert from_table(path, **OPTIONS)[0].names == ("Zürich", "h0", "h1")


def test_ids_and_categories_are_texts(tmp_path):
    """001, 01 and 1 are three clients and three categories, in CSV files and in data frames of texts."""
    rows = [
        f"{name},{i},{code},{i % 2}" for name in ("001", "01", "1") for i, code in enumerate(["007", "7", "07"] * 10)
    ]
    path = lines(tmp_path / "t.csv", "client,dose,code,sick", rows)
    with pytest.warns(TableNotice, match="'code' has numbers with zeros in front: codes, taken as categories"):
        data, encoding = from_table(path, client_column="client", label_column="sick")
    assert data.names == ("001", "01", "1")
    assert data.train.sizes.tolist() == [18, 18, 18]
    assert encoding.features == ("dose", "code=007", "code=07", "code=7")
    frame = pa.table({"client": [row.split(",")[0] for row in rows], "x": np.arange(90) / 7, "y": np.arange(90) % 2})
    assert from_table(frame, client_column="client", label_column="y")[0].names == ("001", "01", "1")


def test_ids_that_are_numbers_are_in_their_order(tmp_path):
    rows = [f"{client},{i % 7},{i % 2}" for client in (10, 9, 2) for i in range(10)]
    data, _ = from_table(lines(tmp_path / "t.csv", "c,x,y", rows), client_column="c", label_column="y")
    assert data.names == ("2", "9", "10")
    typed = pa.table({"c": [2.0, 10.0] * 10, "x": np.arange(20) % 7, "y": [0, 0, 1, 1] * 5})
    assert from_table(typed, client_column="c", label_column="y")[0].names == ("2", "10")


def test_white_space_around_cells_is_no_part_of_them(tmp_path):
    rows = [f" {'ab'[i % 2]} , {i % 7} ,{'f ' if i % 3 else ' NA'}, {i % 5 // 2}" for i in range(40)]
    path = lines(tmp_path / "t.csv", " hospital , age,sex ,sick", rows)
    with pytest.warns(TableNotice, match=r"values are missing \('sex' 14\)"):
        data, encoding = from_table(path, **OPTIONS)
    assert data.names == ("a", "b")
    assert encoding.features == ("age", "sex=f", "sex=(missing)")


def test_marks_of_missing_values_in_quotes_are_values(tmp_path):
    rows = [f"{'ab'[i % 2]},{i % 7},{['NA', chr(34) + 'NA' + chr(34), 'CH'][i % 3]},{i % 5 // 2}" for i in range(60)]
    with pytest.warns(TableNotice, match=r"values are missing \('country' 20\)"):
        _, encoding = from_table(lines(tmp_path / "t.csv", "hospital,age,country,sick", rows), **OPTIONS)
    assert encoding["country"].categories == ("CH", "NA")


def test_points_beside_decimal_commas_are_told(tmp_path):
    """Who writes 1,5 may mean twenty thousand by 20.000."""
    rows = [f"{i % 2};{i}.000;{i},5;{i % 3 % 2}" for i in range(60)]
    path = lines(tmp_path / "t.csv", "who;price;dose;sick", rows)
    with pytest.warns(TableNotice) as notices:
        from_table(path, client_column="who", label_column="sick")
    told = [str(notice.message) for notice in notices]
    assert (
        [note for note in told if "points in" in note] == [note for note in told if "points in 'price'" in note] != []
    )


def test_a_folder_is_no_table(tmp_path):
    with pytest.raises(TableError, match=r"it is a folder: name the files in it, as in '.*/\*\.csv'"):
        read_source(tmp_path)


def test_decimal_commas(tmp_path):
    rows = [f"{'ab'[i % 2]};{i},5;{i % 5 // 2}" for i in range(40)]
    path = lines(tmp_path / "t.csv", "hospital;dose;sick", rows)
    with pytest.warns(TableNotice, match="the commas in 'dose' were read as decimal points"):
        _, encoding = from_table(path, **OPTIONS, split=(1, 0, 0))
    assert encoding["dose"].mean == 20
    x, _ = encode_table(path, encoding)
    assert np.allclose(x[:, 0], (np.arange(40) - 19.5) / np.std(np.arange(40)), atol=1e-6)


def test_decimal_commas_in_one_of_several_files(tmp_path):
    lines(tmp_path / "h0.csv", "dose,sick", [f"{i},{i % 2}" for i in range(20)])
    lines(tmp_path / "h1.csv", "dose;sick", [f"{i},5;{i % 2}" for i in range(20)])
    with pytest.warns(TableNotice, match="the commas in 'dose' were read as decimal points"):
        _, encoding = from_table(tmp_path / "h?.csv", label_column="sick", split=(1, 0, 0))
    assert encoding["dose"].mean == 9.75


def test_a_file_that_a_pattern_finds_is_a_client_though_it_is_the_only_one(tmp_path):
    path = lines(tmp_path / "north.csv", "dose,sick", [f"{i % 7},{i // 2 % 2}" for i in range(40)])
    for pattern in (tmp_path / "*.csv", [tmp_path / "*.csv"]):
        data, _ = from_table(pattern, label_column="sick")
        assert data.names == ("north",)
    with pytest.raises(TableError, match="client"):
        from_table(path, label_column="sick")


def test_columns_without_a_name_are_left_out(tmp_path):
    rows = [f"{i},{'ab'[i % 2]},{i % 7},{i % 5 // 2}" for i in range(40)]
    with pytest.warns(TableNotice, match="column 1 has no name"):
        _, encoding = from_table(lines(tmp_path / "t.csv", ",hospital,age,sick", rows), **OPTIONS)
    assert encoding.features == ("age",)


def test_blank_lines_before_the_names(tmp_path, plain):
    path = lines(tmp_path / "t.csv", "\n\n" + ",".join(HEADER), map(",".join, ROWS))
    assert same(from_table(path, **OPTIONS)[0], plain)


def test_unreadable_files_are_named(tmp_path):
    with pytest.raises(TableError, match=r"there is no file .*absent.csv"):
        from_table(tmp_path / "absent.csv", **CLASSES)
    with pytest.raises(TableError, match=r"no file matches .*\*.csv"):
        from_table(tmp_path / "*.csv", **CLASSES)
    for name, content, message in [
        ("t.xlsx", "a", "it is none of .csv"),
        ("t.parquet", "not parquet", r"t.parquet: it cannot be read"),
        ("t.csv", "a,b\n1,2,3\n4,5\n6\n", "2 rows do not have 2 cells as the first line has, line 2 has 3"),
        ("empty.csv", "", "empty.csv: it is empty"),
        ("binary.csv", "a,b\0\n1,2\n", "it is not a text file"),
        ("broken.csv.gz", "not gzip", "broken.csv.gz: it cannot be read"),
        ("header.csv", "hospital,outcome\n", "it has no rows"),
        ("twice.csv", "hospital,a,a\nx,1,2\n", "several columns are named 'a'"),
    ]:
        (tmp_path / name).write_text(content)
        with pytest.raises(TableError, match=message):
            from_table(tmp_path / name, **CLASSES)


def test_a_file_per_client(tmp_path):
    for client in ("h0", "h1"):
        rows = [",".join(row[1:]) for row in ROWS if row[0] == client]
        lines(tmp_path / f"{client}.csv", ",".join(HEADER[1:]), rows)
    data, encoding = from_table(tmp_path / "h?.csv", label_column="sick")
    assert data.names == ("h0", "h1")
    assert encoding.client_column is None
    assert sum(len(getattr(data, part).y) for part in PARTS) == len(ROWS)
    for client, name in enumerate(data.names):
        x, _ = encode_table(tmp_path / f"{name}.csv", encoding)
        mine = np.concatenate([getattr(data, part).client(client)[0] for part in PARTS])
        assert sorted(mine.tolist()) == sorted(x.tolist())
    assert from_table([tmp_path / "h1.csv", tmp_path / "h0.csv"], label_column="sick")[0].names == data.names
    with pytest.raises(TableError, match="no column says whose the rows are: say which in client_column, or give a"):
        from_table(tmp_path / "h0.csv", label_column="sick")


def test_files_that_do_not_go_together_are_refused_with_all_reasons(tmp_path):
    (tmp_path / "north").mkdir()
    lines(tmp_path / "a.csv", "age,sick", ["1,0", "2,1", "3,0"])
    lines(tmp_path / "b.csv", "age,ill", ["1,0", "2,1", "3,0"])
    lines(tmp_path / "north" / "a.csv", "age,sick,dose", ["1,0,1", "2,1,1", "3,0,1"])
    paths = [tmp_path / "a.csv", tmp_path / "b.csv", tmp_path / "north" / "a.csv"]
    with pytest.raises(TableError) as error:
        from_table(paths, label_column="sick")
    text = str(error.value)
    assert "the files has 3 problems" in text
    assert "lacks the columns 'sick' and also has 'ill'" in text
    assert "also has 'dose'" in text
    assert "several files are named 'a'" in text
    lines(tmp_path / "b.csv", "age,sick", ["1,0", "x7,1", "3,0"] + ["5,1"] * 30)
    with pytest.raises(TableError, match=r"'x7' in row 2 of .*b.csv is not"):
        from_table([tmp_path / "a.csv", tmp_path / "b.csv"], label_column="sick")


def test_frames_of_pandas_and_polars_give_what_a_file_gives(tmp_path):
    raw = visits()
    path = write(tmp_path / "t.parquet", raw)
    wanted, record = from_table(path, **REGRESSION)
    for frame in (pd.DataFrame(raw), pl.DataFrame(raw), pa.table(raw)):
        data, encoding = from_table(frame, **REGRESSION)
        assert same(data, wanted)
        assert encoding == record
        assert (encode_table(frame, encoding)[0] == encode_table(path, encoding)[0]).all()


def test_types_of_pandas(tmp_path):
    n = 60
    frame = pd.DataFrame(
        {
            "site": pd.Categorical(["a", "b"] * (n // 2)),
            "dose": pd.array([1, 2, None, 4, 5, 6] * 10, dtype="Int64"),
            "when": pd.date_range("2024-01-01", periods=n, freq="D"),
            "kind": pd.Categorical([1, 2, 3] * 20),
            "ok": pd.array([True, None, False] * 20, dtype="boolean"),
            "sick": [0, 0, 1, 1] * 15,
        },
        index=[f"r{i}" for i in range(n)],
    )
    with pytest.warns(TableNotice, match=r"values are missing \('dose' 10, 'ok' 20\)"):
        _, encoding = from_table(frame, client_column="site", label_column="sick")
    assert [(column.name, column.kind) for column in encoding.columns] == [
        ("dose", "number"),
        ("when", "date"),
        ("kind", "category"),
        ("ok", "boolean"),
    ]
    assert encoding["kind"].categories == ("1", "2", "3")
    with pytest.raises(TableError, match="values of mixed types"):
        from_table(pd.DataFrame({"a": [1, "x"], "b": [1, 2]}), client_column="a", label_column="b")


def test_what_is_no_table_is_refused():
    for wrong in (3, None, [], [1, 2], np.ones((3, 2))):
        with pytest.raises(ValueError, match="a table is a path, a list of paths, or a data frame"):
            from_table(wrong, **CLASSES)


def test_a_header_is_checked_without_reading_the_file(tmp_path):
    path = lines(tmp_path / "t.csv", "hospital,age,sick", ["a,1,0"])
    check_header(path, client_column="hospital", label_column="sick", drop="age")
    with pytest.raises(TableError) as error:
        check_header(path, client_column="hopsital", label_column="sik", drop="age,agee", categorical=["x"])
    assert [problem.what.split("'")[1] for problem in error.value.problems] == ["hopsital", "sik", "agee", "x"]
    parquet = write(tmp_path / "t.parquet", visits())
    assert header_of(parquet) == list(visits())
    assert read_source(parquet).names == list(visits())
