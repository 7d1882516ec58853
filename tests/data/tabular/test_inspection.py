"""The report on a table agrees with what training would get, and lists problems instead of raising them."""

import json

import numpy as np
import pytest

from made_tables import CLASSES, REGRESSION, visits, write
from majorant.data.tabular import TableNotice, from_table, inspect_table


@pytest.fixture
def path(tmp_path):
    raw = visits() | {"patient_id": range(1000, 4600, 30), "sex": ["f", "m", "x", None, "f"] * 24}
    return write(tmp_path / "t.csv", raw)


def test_the_report_is_what_training_gets(path):
    with pytest.warns(TableNotice) as notices:
        data, encoding = from_table(path, **CLASSES, unseen=0.25)
    report = inspect_table(path, **CLASSES, unseen=0.25)
    assert report.problems == []
    assert report.features == list(encoding.features)
    assert [str(notice.message) for notice in notices] == [f"{path}: {note}" for note in report.notes]
    assert report.rows == 120
    assert report.task == "classification"
    assert [client.name for client in report.clients] == list(data.names)
    assert [client.train for client in report.clients] == data.train.sizes.tolist()
    assert [client.unseen for client in report.clients] == data.unseen.tolist()
    for client in report.clients:
        mine = visits()["outcome"][visits()["hospital"] == client.name]
        assert client.rows == len(mine) == 30
        assert client.classes == {value: int((mine == value).sum()) for value in ("bad", "good")}
    kinds = {column.name: column.kind for column in report.columns}
    assert kinds == {
        "hospital": "client",
        "age": "number",
        "dose": "number",
        "site": "number",
        "sex": "category",
        "smoker": "boolean",
        "row": "–",
        "outcome": "label",
        "patient_id": "–",
    }
    by_name = {column.name: column for column in report.columns}
    assert by_name["sex"].missing == 24
    assert by_name["sex"].features == 4
    assert by_name["sex"].decision == "one-hot: f, m, x; missing is a category"
    assert by_name["site"].decision == "constant: 0"
    assert by_name["patient_id"].decision.startswith("left out: an id")
    assert sum(column.features for column in report.columns) == len(encoding.features)
    assert json.loads(json.dumps(report.to_dict()))["columns"][0]["name"] == "hospital"
    marked = inspect_table(path, **CLASSES, missing_values="m")
    assert {column.missing for column in marked.columns if column.name == "sex"} == {48}  # gaps and marks


def test_regression_has_no_classes(path):
    report = inspect_table(path, **REGRESSION)
    assert report.task == "regression"
    assert report.classes == {}
    assert all(client.classes == {} for client in report.clients)
    label = REGRESSION["label_column"]
    for client in report.clients:
        mine = np.asarray(visits()[label][visits()["hospital"] == client.name], float)
        assert client.targets == pytest.approx({"mean": np.mean(mine), "std": np.std(mine)})


def test_problems_are_listed(path, tmp_path):
    report = inspect_table(path, client_column="hopsital", label_column="outcome", drop="rwo")
    assert [str(problem) for problem in report.problems] == [
        "it has no column 'hopsital': did you mean 'hospital'?",
        "it has no column 'rwo': did you mean 'row'?",
    ]
    assert report.clients == []
    assert report.features == []
    assert {"age", "dose"} <= {column.name for column in report.columns}
    report = inspect_table(tmp_path / "absent.csv", **CLASSES)
    assert report.problems[0].what.startswith("there is no file")
    assert json.dumps(report.to_dict())
