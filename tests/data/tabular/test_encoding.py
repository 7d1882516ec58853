"""The record of an encoding: JSON there and back, and nothing that is not as it should be."""

import json

import numpy as np
import pytest
from sklearn.preprocessing import StandardScaler

from made_tables import CLASSES, visits, write
from majorant.data.tabular import Encoding, TableNotice, from_table
from majorant.data.tabular.fitting import mean_and_scale


@pytest.fixture
def record(tmp_path):
    raw = visits() | {"when": ["2024-01-01", "2024-02-03", None] * 40, "sex": ["f", "m", "x", "y"] * 30}
    with pytest.warns(TableNotice):
        _, encoding = from_table(write(tmp_path / "t.csv", raw), **CLASSES, max_categories=3)
    return json.loads(json.dumps(encoding.to_dict()))


def test_there_and_back(record):
    encoding = Encoding.from_dict(record)
    assert encoding.to_dict() == record
    assert [column.kind for column in encoding.columns] == ["number", "number", "number", "category", "boolean", "date"]
    assert encoding["sex"].other
    assert encoding["when"].indicator
    assert encoding.left_out == {"row": "dropped, as asked"}
    assert encoding.client_column == "hospital"
    with pytest.raises(KeyError):
        encoding["row"]


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda r: r["columns"][0].pop("mean"), "columns.0.number.mean: Field required"),
        (lambda r: r["columns"][0].update(mean=float("nan")), "columns.0.number.mean: .*finite"),
        (lambda r: r["columns"][0].update(mean=None), "columns.0.number.mean"),
        (lambda r: r["columns"][0].update(scale=-1.0), "columns.0.number.scale"),
        (lambda r: r["columns"][0].update(kind="colour"), "columns.0: .*colour"),
        (lambda r: r["columns"][0].update(more=1), "columns.0.number.more: Extra inputs"),
        (lambda r: r["columns"].append(r["columns"][0]), "a column stands twice"),
        (lambda r: r["columns"][0].update(mean="40"), "columns.0.number.mean: .*number"),
        (lambda r: r["columns"][0].update(indicator="no"), "columns.0.number.indicator"),
        (lambda r: r["columns"][3]["categories"].append(r["columns"][3]["categories"][0]), "a category stands twice"),
        (lambda r: r["columns"][3].update(categories=[1, 2]), "columns.3.category.categories"),
        (lambda r: r["columns"][5]["means"].pop(), "means and scales are not those of the parts"),
        (lambda r: r["columns"][5].update(parts=["hours"]), "the parts are not those of a date"),
        (lambda r: r.update(columns=[]), "columns: .*at least 1"),
        (lambda r: r["label"].update(target=[0.0]), "label.target"),
        (lambda r: r["label"].update(target=[0.0, 1.0]), "the scale of the targets is that of no regression"),
        (lambda r: r["label"].update(kind="number", classes=[], target=[0.0, 0.0]), "the scale of the targets"),
        (lambda r: r["label"].update(classes=[]), "regression needs numbers"),
        (lambda r: r["label"].update(classes=["bad", "bad"]), "a class stands twice"),
        (lambda r: r["label"].update(classes=["bad", True]), "the classes are not those of a column of kind category"),
        (lambda r: r["label"].update(kind="number", classes=[0, True]), "not those of a column of kind number"),
        (lambda r: r.update(missing="guess"), "missing"),
        (lambda r: r.pop("label"), "label: Field required"),
    ],
)
def test_damaged_records_are_refused(record, spoil, message):
    spoil(record)
    with pytest.raises(ValueError, match=f"the encoding of the table is damaged: .*{message}"):
        Encoding.from_dict(record)


def test_records_of_earlier_versions_are_refused():
    with pytest.raises(ValueError, match="written by an earlier version of Majorant: train again"):
        Encoding.from_dict({"columns": ["age"], "means": {"age": 1.0}})


def test_moments_are_those_of_the_pooled_values_with_gaps_left_out():
    rng = np.random.default_rng(0)
    values, owner = rng.normal(1e6, 3, 500), rng.integers(7, size=500)
    values[rng.random(500) < 0.3] = np.nan
    scaler = StandardScaler().fit(values[:, None])
    mean, scale = mean_and_scale(values, owner)
    assert mean == pytest.approx(scaler.mean_[0], rel=1e-12)
    assert scale == pytest.approx(scaler.scale_[0], rel=1e-9)
    assert mean_and_scale(np.full(3, np.nan), np.zeros(3, int)) == (0, 0)
    assert mean_and_scale(np.full(3, 1e300), np.zeros(3, int)) == (1e300, 0)
