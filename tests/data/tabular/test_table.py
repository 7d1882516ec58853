"""Tables: encoding equals the pooled reference, learns from seen training data alone, and applies to later rows."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from sklearn.preprocessing import StandardScaler

from made_tables import CLASSES, PARTS, REGRESSION, lines, visits, write
from majorant.data.splitting import draw_unseen
from majorant.data.tabular import Encoding, TableError, TableNotice, encode_table, from_table


@pytest.fixture(params=["visits.csv", "visits.parquet"])
def file(request, tmp_path):
    return write(tmp_path / request.param, visits())


def test_standardisation_equals_the_pooled_scaler_on_seen_training_data(file):
    data, encoding = from_table(file, **REGRESSION, unseen=0.25, seed=5)
    raw = visits()
    numbers = np.stack([raw["age"], raw["dose"]], axis=1)
    owner = np.repeat(np.arange(4), data.train.sizes)
    rows = (data.train.y - 0.5).astype(int)
    scaler = StandardScaler().fit(numbers[rows[~data.unseen[owner]]])
    for part in (getattr(data, p) for p in PARTS):
        expected = scaler.transform(numbers[(part.y - 0.5).astype(int)])
        assert np.allclose(part.x[:, :2], expected, atol=1e-4)
    assert np.allclose([encoding["age"].mean, encoding["dose"].mean], scaler.mean_, rtol=1e-12)
    assert np.allclose([encoding["age"].scale, encoding["dose"].scale], scaler.scale_, rtol=1e-9)


def test_numbers_in_another_unit_are_told_where_they_come_later(tmp_path):
    """A newcomer's kPa where training saw mmHg, and thousands with commas in a file that may have decimal commas."""
    rng = np.random.default_rng(0)
    pressure, income = rng.normal(120, 10, 60).round(1), rng.normal(30000, 5000, 60).round(-3)
    rows = [f"{'ab'[i % 2]},{pressure[i]},{income[i]:.0f},{i}.5" for i in range(60)]
    first = lines(tmp_path / "first.csv", "site,pressure,income,row", rows)
    _, encoding = from_table(first, client_column="site", label_column="row")
    same = lines(
        tmp_path / "same.csv", "pressure;income", [f"{p};{i:.0f}" for p, i in zip(pressure, income, strict=True)]
    )
    encode_table(same, encoding, require_labels=False)  # without a word
    other = [f"{p / 7.5:.1f};{i:,.0f}" for p, i in zip(pressure, income, strict=True)]
    later = lines(tmp_path / "later.csv", "pressure;income", other)
    with pytest.warns(TableNotice) as told:
        encode_table(later, encoding, require_labels=False)
    words = [str(each.message) for each in told]
    assert any("all of 'pressure' is far from training (1" in text and "another unit" in text for text in words)
    assert any("all of 'income' is far from training (" in text for text in words)
    assert any("the points in 'pressure' were read as decimal points, although" in text for text in words)


def test_every_row_is_used_once_with_its_own_features_and_client(file):
    data, encoding = from_table(file, **REGRESSION)
    raw = visits()
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
    raw = visits()
    names = np.unique(raw["hospital"])
    away = names[draw_unseen(4, 0.25, seed=0)][0]
    raw["sex"] = np.where(raw["hospital"] == away, "unknown", raw["sex"])
    raw["age"] = np.where(raw["hospital"] == away, 10**6, raw["age"])
    raw["site"] = np.where(raw["hospital"] == away, 7.0, 0.1)
    data, encoding = from_table(write(tmp_path / "t.parquet", raw), **REGRESSION, unseen=0.25, seed=0)
    assert encoding["sex"].categories == ("f", "m", "x")
    assert encoding["age"].mean < 90
    assert encoding["site"].scale == 0
    x, _ = data.train.client(int(np.flatnonzero(data.unseen)[0]))
    assert data.names[int(np.flatnonzero(data.unseen)[0])] == away
    assert (x[:, 2:6] == 0).all()


def test_encoding_a_later_file_gives_the_same_features(file, tmp_path):
    data, encoding = from_table(file, **CLASSES)
    encoding = Encoding.from_dict(json.loads(json.dumps(encoding.to_dict())))
    x, y = encode_table(file, encoding)
    raw = visits()
    assert encoding.classes == data.classes == ("bad", "good")
    assert (y == raw["outcome"]).all()
    mine = np.concatenate([getattr(data, p).x for p in PARTS])
    assert (np.array(sorted(mine.tolist())) == np.array(sorted(x.tolist()))).all()
    later = {k: raw[k][:5] for k in ("smoker", "sex", "site", "dose", "age")}  # another order, no client, no label
    later["sex"] = np.array(["f", "new", "m", "new", "x"])
    path = write(tmp_path / "later.parquet", later)
    with pytest.warns(TableNotice, match=r"'sex' has categories that training did not know \('new'\)"):
        features, labels = encode_table(path, encoding, require_labels=False)
    assert labels is None
    assert (features[:, [0, 1, 2, 6, 7]] == x[:5, [0, 1, 2, 6, 7]]).all()
    assert features[:, 3:6].sum(axis=1).tolist() == [1, 0, 1, 0, 1]
    with pytest.raises(TableError, match=r"later.parquet: it has no column 'outcome'"):
        encode_table(path, encoding)


def test_a_later_file_that_lacks_columns_is_refused_with_all_of_them(file, tmp_path):
    _, encoding = from_table(file, **CLASSES)
    path = write(tmp_path / "new.csv", {"Age": [1], "dose": [2.0], "site": [1], "smoker": [True], "outcome": ["bad"]})
    with pytest.raises(TableError, match=r"2 problems:\n- it has no column 'age'.*'Age'\?\n- it has no column 'sex'"):
        encode_table(path, encoding)


def test_encoding_a_later_file_with_labels_that_training_did_not_know(file, tmp_path):
    _, encoding = from_table(file, **CLASSES)
    raw = visits(8)
    path = write(tmp_path / "new.csv", raw | {"outcome": ["bad"] * 7 + ["ugly"]})
    with pytest.raises(ValueError, match=r"new.csv: it has the label 'ugly', which training did not know"):
        encode_table(path, encoding)
    path = write(tmp_path / "text.csv", raw | {"age": ["old"] * 8, "smoker": ["never"] * 8})
    with pytest.raises(TableError, match=r"'age' held numbers at training, and now has 'old' in row 1 and 7 more") as e:
        encode_table(path, encoding)
    assert "'smoker' held true and false at training, and now has 'never' in row 1" in str(e.value)
    path = write(tmp_path / "gap.csv", raw | {"outcome": ["bad"] * 7 + [None]})
    with pytest.raises(TableError, match="'outcome' has 1 empty value, the first in row 8"):
        encode_table(path, encoding)


def test_labels_match_across_the_types_that_files_infer(tmp_path):
    raw = visits() | {"outcome": np.array(["1", "2b"])[np.arange(120) // 4 % 2]}
    _, encoding = from_table(write(tmp_path / "a.csv", raw), **CLASSES)
    path = write(tmp_path / "b.csv", visits(4) | {"outcome": [1, 1, 1, 1]})
    assert encode_table(path, encoding)[1].tolist() == ["1", "1", "1", "1"]
    _, encoding = from_table(write(tmp_path / "c.csv", raw | {"outcome": np.arange(120) // 4 % 2}), **CLASSES)
    path = write(tmp_path / "d.parquet", visits(4) | {"outcome": [1.0, 0.0, 1.0, 0.0]})
    assert encode_table(path, encoding)[1].tolist() == [1, 0, 1, 0]


def test_regression_of_a_later_file(file):
    data, encoding = from_table(file, **REGRESSION)
    assert data.classes == encoding.classes == ()
    assert encoding.task == "regression"
    assert data.target_scale is None
    assert (encode_table(file, encoding)[1] == visits()["row"].astype(np.float32)).all()


def test_regression_targets_are_scaled_by_the_moments_of_seen_training_rows(file):
    plain, _ = from_table(file, **REGRESSION, unseen=0.25)
    data, encoding = from_table(file, **REGRESSION | {"scale_target": True}, unseen=0.25)
    seen = plain.train.y[~data.unseen[np.repeat(np.arange(4), data.train.sizes)]].astype(np.float64)
    assert data.target_scale == encoding.target_scale
    assert np.allclose(data.target_scale, (seen.mean(), seen.std()), rtol=1e-12)
    for part in PARTS:
        assert np.allclose(data.label_values(getattr(data, part).y), getattr(plain, part).y, atol=1e-5)
    encoding = Encoding.from_dict(json.loads(json.dumps(encoding.to_dict())))
    assert (encode_table(file, encoding)[1] == visits()["row"]).all()  # in original units, to the last digit


def test_dictionary_and_decimal_and_index_columns(tmp_path):
    raw = visits()
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
    ward = pa.array(np.arange(120) // 4 % 3)
    frame = table.append_column("ward", ward.dictionary_encode())  # numbers that are said to be categories
    assert from_table(frame, **CLASSES | {"drop": ["cost", "sex"]})[1].features == ("ward=0", "ward=1", "ward=2")
    frame = table.append_column("ward", ward.cast("string"))
    with pytest.warns(TableNotice, match="'ward' is text that looks like numbers, taken as categories"):
        assert from_table(frame, **CLASSES | {"drop": ["cost", "sex"]})[1].features[0] == "ward=0"


def test_a_category_of_numerals_is_read_as_text_in_a_new_clients_file(tmp_path):
    """All values of the new file look like numbers, or like truth values: they are the categories of training."""
    wards, kinds = ["1", "2.50", "3b"], ["TRUE", "no"]
    rows = [f"{c},{i},{wards[i % 3]},{kinds[i // 3 % 2]},{i % 2}" for c in "ab" for i in range(30)]
    header = "site,dose,ward,kind,sick"
    _, encoding = from_table(
        lines(tmp_path / "t.csv", header, rows), client_column="site", label_column="sick", drop="dose"
    )
    assert encoding.features == ("ward=1", "ward=2.50", "ward=3b", "kind=TRUE", "kind=no")
    x, _ = encode_table(lines(tmp_path / "new.csv", header, ["c,1,2.50,TRUE,0", "c,1,1,TRUE,1"]), encoding)
    assert x.tolist() == [[0, 1, 0, 1, 0], [1, 0, 0, 1, 0]]
    frame = pa.table({"ward": [1.0, 1.0], "kind": ["TRUE", "no"], "sick": [0, 1]})
    assert encode_table(frame, encoding)[0].tolist() == [[1, 0, 0, 1, 0], [1, 0, 0, 0, 1]]


def test_thin_clients_are_warned_about(tmp_path):
    raw = visits(24)
    with pytest.warns(UserWarning, match="of 4 clients, 4 have fewer than 5 training samples"):
        from_table(write(tmp_path / "t.csv", raw), **REGRESSION)


def test_without_pyarrow_the_extra_is_named(file, monkeypatch):
    def missing(module):
        raise ModuleNotFoundError(module)

    monkeypatch.setattr("majorant._extras.import_module", missing)
    with pytest.raises(
        ImportError, match=r"reading tables needs the package 'pyarrow': pip install 'majorant\[tabular\]'"
    ):
        from_table(file, **CLASSES)


def test_values_too_far_from_those_of_training_are_refused_with_their_row(file, tmp_path):
    _, encoding = from_table(file, **CLASSES)
    path = write(tmp_path / "wild.csv", visits(8) | {"dose": [1.0] * 7 + [1e300]})
    with pytest.raises(
        TableError, match=r"'dose' has 1 values too far from those of training, the first 1e\+300 in row 8"
    ):
        encode_table(path, encoding)
    _, strict = from_table(file, **CLASSES, missing="drop")
    write(path, visits(8) | {"age": [None, *range(30, 37)], "dose": [1.0] * 7 + [1e300]})
    with pytest.raises(TableError, match="in row 8"):  # though the first one is left out
        encode_table(path, strict)
