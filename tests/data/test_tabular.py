"""Tables: encoding equals the pooled reference, learns from seen training data alone, and errors name the column."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
from sklearn.preprocessing import StandardScaler

from majorant.data.splitting import draw_unseen
from majorant.data.tabular import Encoding, encode_table, from_table

pytestmark = pytest.mark.filterwarnings("ignore:label column")  # targets of other scales, many classes

PARTS = ("train", "validation", "test")


def columns(n=120, seed=0):
    rng = np.random.default_rng(seed)
    return {
        "hospital": np.array(["north", "south", "west", "east"])[np.arange(n) % 4],
        "age": rng.integers(20, 90, n),
        "dose": 1e6 + rng.normal(size=n),
        "site": np.full(n, 0.1),
        "sex": np.array(["f", "m", "x"])[rng.integers(3, size=n)],
        "smoker": rng.random(n) < 0.5,
        "row": np.arange(n) + 0.5,  # a regression label that tells which row a sample was
        "outcome": np.array(["bad", "good"])[rng.integers(2, size=n)],
    }


def write(path, values):
    table = pa.table(values)
    if path.suffix == ".csv":
        pa.csv.write_csv(table, path)
    else:
        pa.parquet.write_table(table, path)
    return path


@pytest.fixture(params=["visits.csv", "visits.parquet"])
def file(request, tmp_path):
    return write(tmp_path / request.param, columns())


REGRESSION = {"client_column": "hospital", "label_column": "row", "drop": ["outcome"]}
CLASSES = {"client_column": "hospital", "label_column": "outcome", "drop": ["row"]}


def test_standardisation_equals_the_pooled_scaler_on_seen_training_data(file):
    data, encoding = from_table(file, **REGRESSION, unseen=0.25, seed=5)
    raw = columns()
    numbers = np.stack([raw["age"], raw["dose"]], axis=1)
    owner = np.repeat(np.arange(4), data.train.sizes)
    rows = (data.train.y - 0.5).astype(int)
    scaler = StandardScaler().fit(numbers[rows[~data.unseen[owner]]])
    for part in (getattr(data, p) for p in PARTS):
        expected = scaler.transform(numbers[(part.y - 0.5).astype(int)])
        assert np.allclose(part.x[:, :2], expected, atol=1e-4)
    assert np.allclose([encoding.means["age"], encoding.means["dose"]], scaler.mean_, rtol=1e-12)
    assert np.allclose([encoding.scales["age"], encoding.scales["dose"]], scaler.scale_, rtol=1e-9)


def test_every_row_is_used_once_with_its_own_features_and_client(file):
    data, encoding = from_table(file, **REGRESSION)
    raw = columns()
    assert encoding.features == ("age", "dose", "site", "sex=f", "sex=m", "sex=x", "smoker=false", "smoker=true")
    seen = []
    for part in (getattr(data, p) for p in PARTS):
        rows = (part.y - 0.5).astype(int)
        seen += rows.tolist()
        names = np.repeat(np.array(data.names), part.sizes)
        assert (names == raw["hospital"][rows]).all()
        assert (part.x[:, 2] == 0).all()  # a constant column stays, as zeros
        assert (part.x[:, 3:6] == (raw["sex"][rows][:, None] == np.array(["f", "m", "x"]))).all()
        assert (part.x[:, 7] == raw["smoker"][rows]).all()
    assert sorted(seen) == list(range(120))


def test_categories_and_scales_come_from_seen_training_data_alone(tmp_path):
    raw = columns()
    names = np.unique(raw["hospital"])
    away = names[draw_unseen(4, 0.25, seed=0)][0]
    raw["sex"] = np.where(raw["hospital"] == away, "unknown", raw["sex"])
    raw["age"] = np.where(raw["hospital"] == away, 10**9, raw["age"])
    raw["site"] = np.where(raw["hospital"] == away, 7.0, 0.1)
    data, encoding = from_table(write(tmp_path / "t.parquet", raw), **REGRESSION, unseen=0.25, seed=0)
    assert encoding.categories["sex"] == ("f", "m", "x")
    assert encoding.means["age"] < 90
    assert encoding.scales["site"] == 0
    x, _ = data.train.client(int(np.flatnonzero(data.unseen)[0]))
    assert data.names[int(np.flatnonzero(data.unseen)[0])] == away
    assert (x[:, 2:6] == 0).all()


def test_encoding_a_later_file_gives_the_same_features(file, tmp_path):
    data, encoding = from_table(file, **CLASSES)
    encoding = Encoding.from_dict(json.loads(json.dumps(encoding.to_dict())))
    x, y = encode_table(file, encoding)
    raw = columns()
    assert encoding.classes == data.classes == ("bad", "good")
    assert (np.array(encoding.classes)[y] == raw["outcome"]).all()
    mine = np.concatenate([getattr(data, p).x for p in PARTS])
    assert (np.array(sorted(mine.tolist())) == np.array(sorted(x.tolist()))).all()
    later = {k: raw[k][:5] for k in ("smoker", "sex", "site", "dose", "age")}  # another order, no client, no label
    later["sex"] = np.array(["f", "new", "m", "new", "x"])
    path = write(tmp_path / "later.parquet", later)
    features, labels = encode_table(path, encoding, require_labels=False)
    assert labels is None
    assert (features[:, [0, 1, 2, 6, 7]] == x[:5, [0, 1, 2, 6, 7]]).all()
    assert features[:, 3:6].sum(axis=1).tolist() == [1, 0, 1, 0, 1]
    with pytest.raises(ValueError, match=r"later.parquet has no column 'outcome'"):
        encode_table(path, encoding)


def test_encoding_a_later_file_with_labels_that_training_did_not_know(file, tmp_path):
    _, encoding = from_table(file, **CLASSES)
    raw = columns(8)
    path = write(tmp_path / "new.csv", raw | {"outcome": ["bad"] * 7 + ["ugly"]})
    with pytest.raises(
        ValueError, match=r"new.csv has the label 'ugly', which training did not know: \('bad', 'good'\)"
    ):
        encode_table(path, encoding)
    path = write(tmp_path / "text.csv", raw | {"age": ["old"] * 8})
    with pytest.raises(ValueError, match="column 'age' has type string, but it held numbers"):
        encode_table(path, encoding)


def test_labels_match_across_the_types_that_files_infer(tmp_path):
    raw = columns() | {"outcome": np.array(["1", "2b"])[np.arange(120) // 4 % 2]}
    _, encoding = from_table(write(tmp_path / "a.csv", raw), **CLASSES)
    path = write(tmp_path / "b.csv", columns(4) | {"outcome": [1, 1, 1, 1]})
    assert encode_table(path, encoding)[1].tolist() == [0, 0, 0, 0]
    _, encoding = from_table(write(tmp_path / "c.csv", raw | {"outcome": np.arange(120) // 4 % 2}), **CLASSES)
    path = write(tmp_path / "d.parquet", columns(4) | {"outcome": [1.0, 0.0, 1.0, 0.0]})
    assert encode_table(path, encoding)[1].tolist() == [1, 0, 1, 0]


def test_regression_of_a_later_file(file):
    data, encoding = from_table(file, **REGRESSION)
    assert data.classes == encoding.classes == ()
    assert encoding.task == "regression"
    assert (encode_table(file, encoding)[1] == columns()["row"].astype(np.float32)).all()


def test_dictionary_and_decimal_and_index_columns(tmp_path):
    raw = columns()
    table = pa.table(
        {
            "hospital": pa.array(raw["hospital"]).dictionary_encode(),
            "sex": pa.array(raw["sex"]).dictionary_encode(),
            "cost": pa.array(raw["age"]).cast(pa.decimal128(22, 2)),
            "outcome": raw["outcome"],
            "__index_level_0__": np.arange(120),
        }
    )
    pa.parquet.write_table(table, tmp_path / "t.parquet")
    data, encoding = from_table(tmp_path / "t.parquet", client_column="hospital", label_column="outcome")
    assert encoding.features == ("sex=f", "sex=m", "sex=x", "cost")
    assert data.names == ("east", "north", "south", "west")


def test_thin_clients_are_warned_about(tmp_path):
    raw = columns(24)
    with pytest.warns(UserWarning, match="of 4 clients, 4 have fewer than 5 training samples"):
        from_table(write(tmp_path / "t.csv", raw), **REGRESSION)


def spoiled(name, values):
    return columns() | {name: values}


GAP = [None] * 3 + [1.0] * 117


@pytest.mark.parametrize(
    ("values", "options", "message"),
    [
        (columns(), {"client_column": "hopsital"}, "has no column 'hopsital': did you mean 'hospital'?"),
        (columns(), {"label_column": "zzz"}, "has no column 'zzz': it has 'hospital', 'age'"),
        (columns(), {"drop": ["rows"]}, "has no column 'rows': did you mean 'row'?"),
        (columns(), {"drop": ["outcome"]}, "must be different columns"),
        (columns(), {"drop": ["age", "dose", "site", "sex", "smoker", "row"]}, "has no feature columns besides"),
        (
            columns(),
            {"task": "regression"},
            "'outcome' has values such as 'bad': regression needs numbers|such as 'good'",
        ),
        (columns(), {"task": "clustering"}, "task must be 'auto', 'classification' or 'regression'"),
        (columns(), {"split": (0.0, 0.5, 0.5)}, "give train a positive share"),
        (
            spoiled("hospital", ["a", "", None] + ["b"] * 117),
            {},
            "client column 'hospital' has 2 empty values in 120 rows",
        ),
        (spoiled("hospital", [None] * 120), {}, "client column 'hospital' has 120 empty values"),
        (spoiled("hospital", [None, 1] + [2] * 118), {}, "client column 'hospital' has 1 empty values"),
        (spoiled("outcome", [None, "bad"] * 60), {}, "label column 'outcome' has 60 empty values in 120 rows"),
        (spoiled("dose", GAP), {}, "column 'dose' has 3 missing values"),
        (spoiled("dose", [np.inf, np.nan] + [1.0] * 118), {}, "column 'dose' has . (NaN or infinite|missing) values"),
        (spoiled("sex", [None] + ["f"] * 119), {}, "column 'sex' has 1 missing values"),
        (spoiled("age", pa.array([0] * 120, pa.timestamp("s"))), {}, r"column 'age' has type timestamp.*convert it or"),
    ],
)
@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_errors_name_the_column(tmp_path, values, options, message, suffix):
    path = write(tmp_path / f"t{suffix}", values)
    with pytest.raises(ValueError, match=message):
        from_table(path, **CLASSES | options)


def test_a_column_of_ids_is_refused(tmp_path):
    raw = columns(1100) | {"patient": [f"p{i}" for i in range(1100)]}
    path = write(tmp_path / "t.parquet", raw)
    with pytest.raises(
        ValueError, match="'patient' has 1100 categories, more than 1000: it is probably an id; add it to"
    ):
        from_table(path, **CLASSES)
    from_table(path, **CLASSES | {"drop": ["row", "patient"]})


def test_a_client_with_too_few_rows_is_named(tmp_path):
    path = write(tmp_path / "t.csv", spoiled("hospital", ["tiny", *["big"] * 119]))
    with pytest.raises(ValueError, match="client 'tiny' has 1 samples, too few"):
        from_table(path, **CLASSES)


def test_unreadable_files_are_named(tmp_path):
    with pytest.raises(ValueError, match=r"there is no file .*absent.csv"):
        from_table(tmp_path / "absent.csv", **CLASSES)
    for name, text, message in [
        ("t.xlsx", "a", "t.xlsx is none of .csv"),
        ("t.parquet", "not parquet", "t.parquet cannot be read"),
        ("t.csv", "a,b\n1,2,3\n", "t.csv cannot be read"),
        ("empty.csv", "", "empty.csv cannot be read"),
        ("header.csv", "hospital,outcome\n", "header.csv has no rows"),
        ("twice.csv", "hospital,a,a\nx,1,2\n", "several columns named 'a'"),
    ]:
        (tmp_path / name).write_text(text)
        with pytest.raises(ValueError, match=message):
            from_table(tmp_path / name, **CLASSES)


def test_without_pyarrow_the_extra_is_named(file, monkeypatch):
    def missing(module):
        raise ModuleNotFoundError(module)

    monkeypatch.setattr("majorant.data.extras.import_module", missing)
    with pytest.raises(
        ImportError, match=r"reading tables needs the package 'pyarrow': pip install 'majorant\[tabular\]'"
    ):
        from_table(file, **CLASSES)


@pytest.mark.filterwarnings("error")
def test_targets_of_another_scale_and_many_whole_numbers_are_warned_about(tmp_path):
    table = tmp_path / "t.csv"
    rows = [f"{c},{i % 7},{1000 * i}.5,{i}" for c in "ab" for i in range(30)]
    table.write_text("client,x,price,count\n" + "\n".join(rows) + "\n")
    with pytest.warns(UserWarning, match="rescale the column"):
        from_table(table, client_column="client", label_column="price", drop=("count",))
    with pytest.warns(UserWarning, match="taken as classes"):
        from_table(table, client_column="client", label_column="count", drop=("price",))
