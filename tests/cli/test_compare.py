"""Comparisons on a table: one command ends with a verdict, in the same numbers everywhere."""

from __future__ import annotations

import json

import numpy as np
import pytest

from commands import SETTINGS, invoke, refused, write_visits
from made_tables import lines
from majorant.app.wording import between, difference, shown

TABLE = ["--client-column", "hospital", "--label-column", "outcome"]


def test_the_methods_need_not_be_named():
    text = invoke("compare", "--data", "synthetic", "--dry-run")
    methods = [line.partition('"')[2].strip('"') for line in text.splitlines() if line.startswith("algorithm")]
    assert methods == ["local", "fedavg", "fedavg+", "fedem", "pfedme", "clustered"]


def test_one_command_ends_with_the_verdict(tmp_path, monkeypatch):
    """Half the hospitals contradict the others: one model for all loses, and says so with names."""
    monkeypatch.setenv("COLUMNS", "80")
    visits = write_visits(tmp_path / "visits.csv", range(6))
    flags = [*TABLE, *SETTINGS, "--seeds", "2", "--group-column", "ward", "--out", tmp_path / "c"]
    text = invoke("compare", "local", "fedavg", "--data", visits, *flags)
    found = json.loads((tmp_path / "c" / "summary.json").read_text())
    verdict, metric = found["verdict"], found["metric"]
    assert (verdict["best"], verdict["over"], verdict["worth_it"]) == ("fedavg", "local", "no")
    assert verdict["lose_clients"] == [f"h{i}" for i in range(6) if found["clients"][i]["verdict"] == "loses"] != []
    assert found["splits"] == 2
    assert found["redrawn"]
    # each client has 8 test rows in a split; both splits together have more different ones, and never more than 16
    assert set(found["methods"]["fedavg"]["scores"]) == {
        "accuracy", "balanced_accuracy", "macro_f1", "auc", "log_loss", "calibration_error"
    }  # fmt: skip
    assert set(found["methods"]["local"]["gaps"]["groups"]) == {"a", "b"}
    flat = " ".join(text.split())
    for words in (
        shown(found["methods"]["fedavg"]["mean"], metric),
        difference(abs(verdict["gain"]), metric),
        between(verdict["interval"], metric),
        *verdict["sentences"],
        *verdict["lose_clients"],
    ):
        assert words in flat
    drawn = [line for line in text.splitlines() if str(tmp_path) not in line and "/" not in line]
    assert max(map(len, drawn)) <= 80
    for name in ("local", "fedavg"):  # the runs' own summaries say the same
        own = json.loads((tmp_path / "c" / found["methods"][name]["folder"] / "summary.json").read_text())
        assert own["test_accuracy"]["mean"] == pytest.approx(found["methods"][name]["mean"], abs=1e-6)
        sent = own["communication"]["bytes_up"] + own["communication"]["bytes_down"]
        assert found["methods"][name]["megabytes"] == pytest.approx(sent / 1e6)
    assert "report.html" in invoke("report", tmp_path / "c")


def test_seeds_of_a_table_are_splits_of_it(tmp_path):
    from majorant.app.build import load_data, splits_of
    from majorant.app.config import make_config

    visits = write_visits(tmp_path / "visits.csv", range(3))
    about = {"data": str(visits), "client_column": "hospital", "label_column": "outcome", "algorithm": "local"}
    config = make_config(about, seeds=3)
    data, _ = load_data(config)
    drawn = splits_of(config, data)
    assert len(drawn) == 3
    tests = [set(each.test.rows.tolist()) for each in drawn]
    assert len(tests[0] & tests[1]) < len(tests[0])
    for each in drawn:
        rows = np.concatenate([each.train.rows, each.validation.rows, each.test.rows])
        assert sorted(rows.tolist()) == list(range(120))
        assert not set(each.train.rows.tolist()) & set(each.test.rows.tolist())
        whole = np.concatenate([each.train.x, each.validation.x, each.test.x])[np.argsort(rows)]
        first = np.concatenate([data.train.x, data.validation.x, data.test.x])
        first_rows = np.concatenate([data.train.rows, data.validation.rows, data.test.rows])
        np.testing.assert_array_equal(whole, first[np.argsort(first_rows)])
    timed = make_config(about, seeds=3, time_column="age")
    told, _ = load_data(timed)
    assert splits_of(timed, told) is told  # which is which, the column says
    assert splits_of(make_config(about), data) is data


def test_a_method_that_diverges_on_some_clients_is_named_and_cannot_win(tmp_path):
    """Life over the years by country; years of one country are in other units, and steps are too long there."""
    rng = np.random.default_rng(0)
    rows = []
    for country in range(6):
        for _ in range(25):
            year = rng.normal() * (60 if country == 4 else 1)
            rows.append(f"c{country},{year:.3f},{50 + 3 * country + 0.1 * year + rng.normal():.3f}")
    table = lines(tmp_path / "life.csv", "country,year,life", rows)
    flags = ["--client-column", "country", "--label-column", "life", "--rounds", "20", "--out", tmp_path / "c"]
    text = " ".join(invoke("compare", "local:lr=0.7", "fedavg:lr=0.005", "--data", table, *flags, code=3).split())
    found = json.loads((tmp_path / "c" / "summary.json").read_text())
    verdict = found["verdict"]
    assert found["metric"] == "rmse"
    assert not found["higher_is_better"]
    assert verdict["diverged"] == {"local:lr=0.7": ["c4"]}
    assert verdict["best"] == "fedavg:lr=0.005"
    assert found["methods"]["local:lr=0.7"]["mean"] is None
    assert found["clients"][4]["verdict"] == "diverged"
    assert verdict["gain"] is not None  # over the other clients
    assert "local:lr=0.7 diverged on 1 client (c4) and cannot win" in text
    assert "diverged on 1" in text
    assert "NaN" not in (tmp_path / "c" / "summary.json").read_text()


def test_groups_are_few(tmp_path):
    visits = write_visits(tmp_path / "visits.csv", range(2))
    assert "no column 'wrad'" in refused("compare", "--data", visits, *TABLE, "--group-column", "wrad")
    assert "together_column" in refused("compare", "--data", visits, *TABLE, "--group-column", "age")
