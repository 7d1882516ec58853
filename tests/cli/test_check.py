"""``majorant check``: what training would see, problems with fixes, exit status, JSON; and answers without JAX."""

from __future__ import annotations

import json
import re

import pytest
from typer.testing import CliRunner

from commands import apart
from made_tables import lines, visits, write
from majorant.cli.main import app
from majorant.data.tabular import inspect_table

OPTIONS = ["--client-column", "hospital", "--label-column", "outcome"]


def invoke(*arguments: object, code: int = 0) -> str:
    result = CliRunner().invoke(app, ["check", *map(str, arguments)], env={"COLUMNS": "160"})
    assert result.exit_code == code, (result.output, result.exception)
    return result.output


@pytest.fixture
def table(tmp_path):
    return write(tmp_path / "visits.csv", visits() | {"patient_id": range(1000, 4600, 30), "dose": [None, 1, 2] * 40})


def test_a_good_table(table):
    text = invoke(table, *OPTIONS, "--drop", "row,site", "--unseen", 0.25)
    assert "120 rows, 4 clients, classification (bad " in text
    for part in ("standardised (mean", "left out: dropped, as asked", "left out: an id", "one-hot: f, m, x", "unseen"):
        assert part in text
    assert "note: values are missing ('dose' 40)" in text
    assert "ready to train, with 8 features" in text
    assert invoke("--data", table, *OPTIONS, "--drop", "row,site", "--unseen", 0.25) == text


def test_one_table_is_named(table):
    for tables in ([], [table, "--data", table]):
        result = CliRunner().invoke(app, ["check", *map(str, tables), *OPTIONS])
        assert result.exit_code == 2
        assert "name one table" in result.output


def test_problems_come_with_fixes_and_status_2(table):
    text = invoke(table, "--client-column", "hopsital", "--label-column", "outcome", "--drop", "rwo", code=2)
    assert "problem: it has no column 'hopsital'\n  fix: did you mean 'hospital'?" in text
    assert "problem: it has no column 'rwo'\n  fix: did you mean 'row'?" in text
    assert "ready to train" not in text
    text = invoke(table, *OPTIONS, "--missing", "refuse", code=2)
    assert "column 'dose' has 40 missing values" in text
    text = invoke(table.parent / "absent.csv", *OPTIONS, code=2)
    assert "absent.csv was not read\nproblem: there is no file" in text


def test_rows_that_are_not_divided_are_not_counted(table):
    """Where one client is too small for a split, no client's number of training rows is known."""
    tiny = table.with_name("tiny.csv")
    tiny.write_text("hospital,dose,outcome\n" + "big,1,bad\nbig,2,good\n" * 20 + "tiny,1,bad\n")
    text = invoke(tiny, *OPTIONS, code=2)
    assert re.search(r"^big +40 +bad 20, good 20", text, re.MULTILINE), text
    assert re.search(r"^big +40 +24 +bad 20, good 20", invoke(tiny, *OPTIONS, "--min-samples", 3), re.MULTILINE)


def test_a_misspelt_setting_about_a_table_is_the_complaint(table, tmp_path):
    """And not that the table lacks what the setting would have said."""
    file = tmp_path / "study.toml"
    file.write_text(f'algorithm = "fedavg"\ndata = "{table}"\nclient_colum = "hospital"\n')
    result = CliRunner().invoke(app, ["run", "--config", str(file)])
    assert result.exit_code == 2
    assert "there is no setting 'client_colum'; did you mean 'client_column'?" in " ".join(result.output.split())


def test_json_is_the_report(table):
    settings = ["--drop", "row", "--drop", "site", "--min-samples", 3, "--split", "0.8,0,0.2", "--split-seed", 4]
    found = json.loads(invoke(table, *OPTIONS, *settings, "--json"))
    options = {"client_column": "hospital", "label_column": "outcome", "drop": ["row", "site"]}
    report = inspect_table(table, **options, min_samples=3, split=(0.8, 0, 0.2), seed=4)
    assert found == json.loads(json.dumps(report.to_dict()))
    found = json.loads(invoke(table, "--client-column", "x", "--label-column", "outcome", "--json", code=2))
    assert found["problems"][0]["what"] == "it has no column 'x'"


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--label-column", "outcome"], "a table needs client_column"),
        ([*OPTIONS, "--split", "a,b"], "--split takes numbers between commas"),
        ([*OPTIONS, "--split", "0.5,0.5"], "split must be three shares"),
        ([*OPTIONS, "--dates", "age"], "as in visit=%d/%m/%Y"),
        ([*OPTIONS, "--missing", "guess"], "missing must be one of"),
    ],
)
def test_wrong_options_are_refused(table, arguments, complaint):
    assert complaint in " ".join(invoke(table, *arguments, code=2).split())


def test_many_clients_are_summed_up(tmp_path):
    rows = [f"c{i % 30},{i % 7},{i}.5" for i in range(300)]
    text = invoke(lines(tmp_path / "t.csv", "client,x,y", rows), "--client-column", "client", "--label-column", "y")
    assert "… and 10 more clients, of 10 to 10 rows, median 10" in text
    assert "regression" in text


def test_a_file_per_client(tmp_path):
    for name in ("a", "b"):
        lines(tmp_path / f"{name}.csv", "x,y", [f"{i % 7},{i % 3 // 2}" for i in range(30)])
    assert "60 rows, 2 clients" in invoke(tmp_path / "*.csv", "--label-column", "y")


@pytest.mark.parametrize("command", [["run", "fedem"], ["compare", "fedem", "fedavg"], ["pareto"]])
@pytest.mark.parametrize("where", ["flags", "file"])
def test_a_wrong_column_is_answered_before_jax_is_loaded(table, tmp_path, command, where):
    settings = {"data": str(table), "client_column": "hopsital", "label_column": "outcome"}
    if where == "file":
        path = tmp_path / "study.toml"
        path.write_text("".join(f"{name} = {json.dumps(value)}\n" for name, value in settings.items()))
        flags = ["--config", str(path)]
    else:
        flags = [word for k, v in settings.items() for word in (f"--{k.replace('_', '-')}", v)]
    done = apart(*command, *flags)
    assert done.code == 2
    assert "it has no column 'hopsital': did you mean 'hospital'?" in " ".join(done.err.split())
    assert done.out == "without jax\n"
