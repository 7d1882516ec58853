"""All problems of a table come at once, each with what would fix it; rows and clients are left out in the open."""

import numpy as np
import pyarrow as pa
import pytest

from made_tables import CLASSES, PARTS, REGRESSION, lines, visits, write
from majorant.data.tabular import TableError, TableNotice, encode_table, from_table

GAP = [None] * 3 + [1.0] * 117


def spoiled(name, values):
    return visits() | {name: values}


@pytest.mark.parametrize(
    ("values", "options", "message"),
    [
        (visits(), {"client_column": "hopsital"}, "has no column 'hopsital': did you mean 'hospital'?"),
        (visits(), {"label_column": "zzz"}, "has no column 'zzz': it has 'hospital', 'age'"),
        (visits(), {"drop": ["rows"]}, "has no column 'rows': did you mean 'row'?"),
        (visits(), {"drop": ["row", "outcome"]}, "must be different columns"),
        (visits(), {"drop": "age, dose,site, sex,smoker,row"}, "no column is left to predict from"),
        (
            visits(),
            {"task": "regression"},
            "'outcome' has values such as 'bad': regression needs numbers|such as 'good'",
        ),
        (visits(), {"task": "clustering"}, "task must be 'auto', 'classification' or 'regression'"),
        (visits(), {"split": (0.0, 0.5, 0.5)}, "give train a positive share"),
        (visits(), {"seed": 1.5}, "seed must be a whole number"),
        (visits(), {"missing": "guess"}, "missing must be one of impute, drop, refuse, got 'guess'"),
        (visits(), {"max_categories": 1}, "max_categories must be at least 2"),
        (visits(), {"dates": {"age": "dd/mm"}}, "must be like %d/%m/%Y"),
        (
            visits(),
            {"time_column": "age", "together_column": "sex"},
            "time_column and together_column are different ways",
        ),
        (visits(), {"time_column": "sex"}, "time column 'sex' holds neither dates nor numbers"),
        (visits(), {"split_column": "sex"}, "split column 'sex' has the values 'f', 'm', 'x': it may say train, valid"),
        (
            spoiled("hospital", ["a", "", None] + ["b"] * 117),
            {},
            "client column 'hospital' has 2 empty values in 120 rows, the first in row 2",
        ),
        (spoiled("hospital", [None] * 120), {}, "client column 'hospital' has 120 empty values"),
        (spoiled("hospital", [None, 1] + [2] * 118), {}, "client column 'hospital' has 1 empty value in"),
        (spoiled("outcome", [None, "bad"] * 60), {}, "label column 'outcome' has 60 empty values in 120 rows"),
        (spoiled("outcome", ["bad"] * 120), {}, "label column 'outcome' has one value only"),
        (spoiled("outcome", [f"o{i}" for i in range(120)]), {}, "'outcome' has 120 different texts in 120 rows"),
        (spoiled("outcome", [2**60 + i % 2 for i in range(120)]), {}, "whole numbers of more than 15 digits"),
        (spoiled("dose", GAP), {"missing": "refuse"}, "column 'dose' has 3 missing values"),
        (spoiled("sex", [None] + ["f"] * 119), {"missing": "refuse"}, "column 'sex' has 1 missing values"),
        (spoiled("hospital", ["tiny", *["big"] * 119]), {}, "'tiny' has 1 sample, too few.*min_samples=3 leaves them"),
    ],
)
@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_errors_name_the_column(tmp_path, values, options, message, suffix):
    path = write(tmp_path / f"t{suffix}", values)
    with pytest.raises(ValueError, match=message):
        from_table(path, **CLASSES | options)


def test_all_problems_come_at_once(tmp_path):
    raw = visits() | {
        "outcome": [None, "bad", "good"] * 40,
        "dose": ["12O"] + ["1.5"] * 119,
        "hospital": ["tiny"] + ["big"] * 119,
        "when": ["01/02/2024"] * 120,
    }
    with pytest.raises(TableError) as error:
        from_table(write(tmp_path / "t.csv", raw), **CLASSES | {"drop": "row,agee"})
    text = str(error.value)
    assert "t.csv has 5 problems:" in text
    for part in ("no column 'agee'", "'12O' in row 1", "'when' may begin", "'outcome' has 40 empty", "'tiny' has 1"):
        assert part in text
    assert all(problem.fix for problem in error.value.problems)


def with_gaps():
    raw = visits()
    rng = np.random.default_rng(3)
    raw["age"] = [None if rng.random() < 0.2 else int(age) for age in raw["age"]]
    raw["sex"] = [None if rng.random() < 0.2 else str(sex) for sex in raw["sex"]]
    return raw


def test_rows_with_missing_values_are_dropped_where_asked(tmp_path):
    raw = with_gaps()
    gaps = np.array([a is None or s is None for a, s in zip(raw["age"], raw["sex"], strict=True)])
    path = write(tmp_path / "t.csv", raw)
    with pytest.warns(TableNotice, match=f"{gaps.sum()} of 120 rows have missing values and are left out"):
        data, encoding = from_table(path, **REGRESSION, missing="drop")
    assert sorted(y for part in PARTS for y in getattr(data, part).y) == [i + 0.5 for i in np.flatnonzero(~gaps)]
    assert encoding.features == ("age", "dose", "site", "sex=f", "sex=m", "sex=x", "smoker=false", "smoker=true")
    with pytest.warns(TableNotice, match=f"{gaps.sum()} of 120 rows have missing"):
        _, y = encode_table(path, encoding)
    assert (y == np.flatnonzero(~gaps) + 0.5).all()
    unlabelled = write(tmp_path / "unlabelled.csv", {name: cells for name, cells in raw.items() if name != "row"})
    for asked in (path, unlabelled):  # a row that is to be predicted cannot be left out, whether it has a label or not
        with pytest.raises(
            TableError, match=rf"{gaps.sum()} rows have missing values, the first row \d+ \('age', 'sex'\)"
        ):
            encode_table(asked, encoding, require_labels=False)


@pytest.mark.parametrize("options", [REGRESSION, CLASSES], ids=["regression", "classes"])
def test_rows_without_labels_are_dropped_where_asked(tmp_path, options):
    raw, label = visits(), options["label_column"]
    empty = np.arange(120) % 7 == 2
    raw[label] = [None if gap else value for gap, value in zip(empty, raw[label].tolist(), strict=True)]
    path = write(tmp_path / "t.csv", raw)
    with pytest.raises(
        TableError, match=f"label column '{label}' has {empty.sum()} empty values.*leave these rows out"
    ):
        from_table(path, **options)
    with pytest.warns(TableNotice, match=f"{empty.sum()} of 120 rows have missing values and are left out"):
        data, encoding = from_table(path, **options, missing="drop")
    whole = {name: np.asarray(values)[~empty].tolist() for name, values in raw.items()}
    other, expected = from_table(write(tmp_path / "whole.csv", whole), **options, missing="drop")
    assert encoding == expected
    for part in PARTS:
        np.testing.assert_array_equal(getattr(data, part).x, getattr(other, part).x)
        np.testing.assert_array_equal(getattr(data, part).y, getattr(other, part).y)
    with pytest.warns(TableNotice, match=f"{empty.sum()} of 120 rows have missing"):
        x, y = encode_table(path, encoding)
    assert y.tolist() == whole[label]
    assert len(x) == len(y)
    assert len(encode_table(path, encoding, require_labels=False)[0]) == 120  # these can be predicted


def test_a_label_column_without_values_is_refused(tmp_path):
    path = write(tmp_path / "t.csv", visits() | {"outcome": pa.nulls(120, pa.string())})
    with pytest.raises(TableError, match="label column 'outcome'"):
        from_table(path, **CLASSES, missing="drop")


def test_gaps_that_training_did_not_have(tmp_path):
    path = write(tmp_path / "t.csv", visits())
    _, encoding = from_table(path, **CLASSES)
    later = write(tmp_path / "later.csv", visits(8) | {"age": [None] * 8, "sex": ["f"] * 7 + [None]})
    with pytest.warns(TableNotice) as notices:
        x, _ = encode_table(later, encoding)
    told = [str(notice.message) for notice in notices]
    assert "'age' has 8 missing values, and had none at training: they become the training mean" in told[0]
    assert "'sex' has 1 missing values, and had none at training: they become none of its categories" in told[1]
    assert (x[:, 0] == 0).all()
    assert x[:, 3:6].sum(axis=1).tolist() == [1] * 7 + [0]
    gaps = visits() | {
        "age": [None] * 9 + [20 + i % 50 for i in range(111)],
        "sex": [None] * 9 + [*visits()["sex"][9:]],
    }
    with pytest.warns(TableNotice, match="values are missing"):
        _, used_to = from_table(write(tmp_path / "gaps.csv", gaps), **CLASSES)
    encode_table(later, used_to)  # without a warning: there is nothing new to tell
    _, strict = from_table(path, **CLASSES, missing="refuse")
    with pytest.raises(TableError, match="8 rows have missing values"):
        encode_table(later, strict)


def test_small_clients_are_left_out_where_asked(tmp_path):
    raw = visits() | {"hospital": ["tiny"] * 2 + ["small"] * 9 + ["big", "large"] * 54 + ["big"]}
    path = write(tmp_path / "t.csv", raw)
    with pytest.warns(TableNotice, match=r"left out: 2 clients with fewer than 10 rows \('small', 'tiny'\)"):
        data, _ = from_table(path, **REGRESSION, min_samples=10)
    assert data.names == ("big", "large")
    rows = sorted(y for part in PARTS for y in getattr(data, part).y)
    assert rows == [i + 0.5 for i in range(11, 120)]
    with pytest.raises(TableError, match="no client is left"):
        from_table(path, **REGRESSION, min_samples=1000)


def test_many_whole_numbers_as_labels_are_told(tmp_path):
    rows = [f"{c},{i % 7},{i}" for c in "ab" for i in range(30)]
    path = lines(tmp_path / "t.csv", "client,x,count", rows)
    with pytest.warns(
        TableNotice, match="'count' has 30 different numbers in 60 rows, taken as classes: if they are quantities, say"
    ):
        from_table(path, client_column="client", label_column="count", split=(1, 0, 0))
    assert from_table(path, client_column="client", label_column="count", task="regression")[0].classes == ()


def test_numbers_that_hardly_recur_are_told_even_if_classes_are_asked_for(tmp_path):
    raw = spoiled("outcome", [i / 2 for i in range(120)])
    with pytest.warns(TableNotice, match="'outcome' has 120 different numbers in 120 rows, taken as classes"):
        from_table(write(tmp_path / "t.csv", raw), **CLASSES, task="classification", split=(1, 0, 0))


def test_a_table_without_features_says_where_they_went(tmp_path):
    path = lines(tmp_path / "t.csv", "client,n,age,sick", [f"{'ab'[i % 2]},{i},{i % 9},{i % 3 % 2}" for i in range(40)])
    left = "no column is left to predict from; 'age': dropped, as asked; 'n': it numbers the rows"
    with pytest.raises(TableError, match=left):
        from_table(path, client_column="client", label_column="sick", drop="age")


def test_a_class_without_training_rows_is_told(tmp_path):
    parts = ["train", "train", "validation", "test"]
    rows = [f"{'ab'[i % 2]},{i % 7},{parts[i // 2 % 4]},{'rare' if i // 2 % 4 == 3 else i % 3 % 2}" for i in range(80)]
    path = lines(tmp_path / "t.csv", "client,x,part,outcome", rows)
    with pytest.warns(TableNotice, match="no training row has the label 'rare': no model can learn it"):
        from_table(path, client_column="client", label_column="outcome", split_column="part")


def test_labels_keep_their_type(tmp_path):
    for cells, classes in [
        (["0", "1"], (0, 1)),
        (["1.0", "2.0"], (1.0, 2.0)),
        (["true", "FALSE"], (False, True)),
        (["01", "1"], ("01", "1")),
        (["b", "a"], ("a", "b")),
        (["2024-01-01", "2024-01-02"], ("2024-01-01", "2024-01-02")),
    ]:
        rows = [f"{c},{i % 7},{cells[i % 2]}" for c in "ab" for i in range(30)]
        path = lines(tmp_path / "t.csv", "client,x,y", rows)
        if cells[0] == "01":
            with pytest.warns(TableNotice, match="codes, taken as categories"):
                data, encoding = from_table(path, client_column="client", label_column="y")
        else:
            data, encoding = from_table(path, client_column="client", label_column="y")
        assert data.classes == encoding.classes == classes
        assert [type(c) for c in data.classes] == [type(c) for c in classes]
        again = type(encoding).from_dict(encoding.to_dict())
        assert [type(c) for c in again.classes] == [type(c) for c in classes]
        _, y = encode_table(path, again)
        assert {type(label) for label in y.tolist()} == {type(c) for c in classes}
        assert [str(label).lower() for label in y.tolist()] == [row.split(",")[2].lower() for row in rows]


def test_a_table_that_is_all_gaps(tmp_path):
    frame = pa.table({"site": ["a", "b"] * 10, "x": [None] * 20, "y": [0, 0, 1, 1] * 5})
    with pytest.raises(TableError, match="no column is left to predict from"):
        from_table(frame, client_column="site", label_column="y")
