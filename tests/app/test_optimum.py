"""When the minimum of a configuration's objective is looked for, and a run in a folder that is measured against it."""

from __future__ import annotations

import json

import pytest

from commands import timeless
from majorant.app import optimum
from majorant.app.build import build
from majorant.app.config import load_config, make_config, to_toml
from majorant.app.execute import run_in_folder
from majorant.app.optimum import find_optimum

SETTINGS = {
    "algorithm": "acd",
    "data": "logistic:clients=4,samples=15,dimension=2",
    "objective": "mixture:lambda=0.1,l2=0.05",
    "rounds": 40,
    "evaluate_every": 1,
    "until": "suboptimality < 1e-5",
    "seeds": 2,
}


def config(**changes):
    return make_config(SETTINGS | changes)


@pytest.fixture(scope="module")
def problem():
    return build(config())


@pytest.fixture
def data(problem):
    return problem.data


def test_the_minimum_is_looked_for_where_it_is_of_use(data, monkeypatch):
    monkeypatch.setattr("majorant.objectives.reference_solution", lambda objective, data: Found())
    assert find_optimum(config(until=()), data) == 0.25
    assert find_optimum(config(until=(), diagnostics=False), data) is None
    assert find_optimum(config(until=(), reference=False), data) is None
    monkeypatch.setattr(optimum, "QUICK", 10)
    with pytest.warns(UserWarning, match="would take long .* --reference"):
        assert find_optimum(config(until=()), data) is None
    assert find_optimum(config(until=(), reference=True), data) == 0.25
    assert find_optimum(config(), data) == 0.25  # a bound on the suboptimality asks for it
    assert find_optimum(config(objective="maml", algorithm="lsgd:lr=0.1", until=()), data) is None  # not convex
    with pytest.warns(UserWarning, match="not convex"):
        assert find_optimum(config(objective="maml", algorithm="lsgd:lr=0.1", reference=True), data) is None


class Found:
    value = 0.25


def test_no_minimum_is_a_warning(data, monkeypatch):
    def fail(objective, data):
        raise ValueError("no minimum was found")

    monkeypatch.setattr("majorant.objectives.reference_solution", fail)
    with pytest.warns(UserWarning, match="no distance from the minimum F.* is shown: no minimum was found"):
        assert find_optimum(config(), data) is None


def test_settings_survive_a_file(tmp_path):
    for changes in ({}, {"until": (), "reference": False, "diagnostics": False, "precision": "double"}):
        (tmp_path / "config.toml").write_text(to_toml(config(**changes)))
        assert load_config(tmp_path / "config.toml") == config(**changes)
    assert config().measures
    assert not make_config({"algorithm": "fedem"}).measures


def test_an_interrupted_run_stops_where_an_undisturbed_one_does(problem, tmp_path):
    problem = problem._replace(optimum=find_optimum(config(), problem.data))
    whole = run_in_folder(config(), tmp_path / "whole", problem=problem)
    assert 2 < whole.rounds < 40

    def interrupt(records):
        if records[0]["round"] == 2:
            raise KeyboardInterrupt

    cut = tmp_path / "cut"
    with pytest.raises(KeyboardInterrupt):
        run_in_folder(config(), cut, problem=problem, on_evaluation=interrupt, checkpoint_seconds=0)
    assert json.loads((cut / "checkpoint" / "manifest.json").read_text())["meta"]["round"] == 2
    resumed = run_in_folder(config(), cut, problem=problem, resume=True)
    assert (resumed.rounds, resumed.stopped) == (whole.rounds, whole.stopped)
    for part in ("checkpoint", "model"):
        one, two = (tmp_path / name / part / "arrays.safetensors" for name in ("whole", "cut"))
        assert one.read_bytes() == two.read_bytes()
    logged = lambda folder: [timeless(json.loads(line)) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert logged(cut) == logged(tmp_path / "whole")
    assert [line["seed"] for line in logged(cut)] == [0, 1] * whole.rounds
