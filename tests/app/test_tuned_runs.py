"""Tuning and safe steps in run folders: what is chosen is used, kept and resumed; steep clients do not diverge."""

import json
from dataclasses import replace

import jax
import numpy as np
import pytest

import majorant as mj
from commands import invoke, refused, write_visits
from majorant.app.build import build, parse_grid, safe_rate
from majorant.app.config import LocalConfig, make_config
from majorant.app.execute import rate_of, run_in_folder
from majorant.app.tuning import grid_of, tune_config
from majorant.models import Spec
from majorant.solvers.smoothness import stable_step

DATA = ["--data", "synthetic:clients=4,dimension=3", "--rounds", "4"]


def test_a_tuned_run_uses_what_was_chosen(tmp_path):
    """The same as a run that is given the values; ``majorant tune`` alone finds the same."""
    flags = [*DATA, "--grid", "lr=1e-6,0.3", "--seeds", "2"]
    tuned = json.loads(invoke("run", "fedprox", *flags, "--tune", "--json", "--out", tmp_path / "tuned"))
    found = json.loads((tmp_path / "tuned" / "tuning.json").read_text())
    assert found["best"] == {"lr": 0.3}
    assert [trial["lr"] for trial in found["trials"]] == [0.3, 1e-6]
    assert tuned["hyper"] == [{"lr": 0.3}] * 2
    plain = json.loads(invoke("run", "fedprox:lr=0.3", *DATA, "--seeds", "2", "--json", "--out", tmp_path / "plain"))
    assert tuned["test_accuracy"] == pytest.approx(plain["test_accuracy"])
    table = invoke("tune", "fedprox", *flags, "--out", tmp_path / "alone")
    assert "best on 5 folds of the training and validation samples: lr=0.3" in table  # 114 validate: few
    assert found["folds"] == 5
    assert json.loads((tmp_path / "alone" / "tuning.json").read_text()) == found


def test_every_split_of_a_table_is_tuned_by_itself(tmp_path):
    """Rows that test in one split validate in another: what is chosen for a seed has not seen its test rows."""
    write_visits(tmp_path / "visits.csv", range(4))
    settings = {"algorithm": "fedavg", "data": str(tmp_path / "visits.csv"), "client_column": "hospital", "rounds": 3}
    settings |= {"label_column": "outcome", "tune": True, "grid": ["lr=0.5,0.02"], "folds": 2, "seeds": 2}
    config = make_config(settings)
    run = run_in_folder(config, tmp_path / "run")
    record = json.loads((tmp_path / "run" / "tuning.json").read_text())
    chosen, problem = record["best"]["lr"], build(config)
    assert [each["hyper"] for each in run.settings] == [{"lr": pytest.approx(lr)} for lr in chosen]
    for i, split in enumerate((problem.data, problem.data.redrawn(config.split_seed + 1))):
        alone = tune_config(config.model_copy(update={"seed": i, "seeds": 1}), problem._replace(data=split))
        assert alone.best == {"lr": chosen[i]}
        scores = {trial["lr"]: trial["validation_accuracy"] for trial in record["trials"] if trial["split"] == i}
        assert scores == pytest.approx({trial.hyper["lr"]: trial.score for trial in alone.trials})


def test_a_resumed_run_is_not_tuned_again_and_keeps_its_best_round(tmp_path, monkeypatch):
    settings = {"algorithm": "local", "data": DATA[1], "rounds": 3, "evaluate_every": 1, "patience": 3}
    config = make_config(settings | {"tune": True, "grid": ["lr=0.2,1e-5"]})
    run = run_in_folder(config, tmp_path / "run")
    monkeypatch.setattr("majorant.app.tuning.tune_config", lambda *a: pytest.fail("tuned again"))
    again = run_in_folder(config, tmp_path / "run", resume=True)
    assert again.settings == run.settings == [{"seed": 0, "hyper": {"lr": 0.2}}]
    assert again.summary()["kept_round"] == run.summary()["kept_round"]
    assert again.summary()["test_accuracy"] == run.summary()["test_accuracy"]
    record = json.loads((tmp_path / "run" / "tuning.json").read_text())
    (tmp_path / "run" / "tuning.json").write_text(json.dumps(record | {"best": {"lr": 0.3}}))
    with pytest.raises(ValueError, match=r"tuning\.json was altered"):
        run_in_folder(config, tmp_path / "run", resume=True)


def test_tuning_trains_as_the_run_will(monkeypatch):
    monkeypatch.setattr("majorant.engines.tuning.tune", lambda algorithm, data, **options: options)
    asked = {"seed": 7, "seeds": 3, "rounds": 11, "halving": True, "folds": 4}
    options = tune_config(*problem_of("fedprox", tune=True, participation="uniform:0.5", **asked))
    assert asked.items() <= options.items()
    assert options["participation"].name == "uniform:0.5"


def test_what_to_choose_from():
    usual = grid_of(*problem_of("fedprox"))
    assert usual.keys() == {"lr", "mu"}
    assert 0.1 in usual["lr"]
    given = {"tune": True, "grid": ["server-lr=1", "lr=0.1"]}
    assert grid_of(*problem_of("fedprox", **given)) == {"server_lr": [1.0], "lr": [0.1]}
    for wrong in ("lr", "lr=", "lr=fast", "=1"):
        with pytest.raises(ValueError, match="--grid takes a name"):
            parse_grid([wrong])
    assert "grid goes with --tune" in refused("run", "fedavg", *DATA, "--grid", "lr=1")
    assert "no usual values to tune: give --grid" in refused("run", "local", *DATA, "--optimizer", "newton", "--tune")
    option = refused("tune", "fedem:components=2", *DATA, "--grid", "em_steps=1,2")
    assert "compare fedem:components=2,em_steps=1 fedem:components=2,em_steps=2" in option
    option = refused("tune", "fedem:components=2", *DATA, "--grid", "components=1,3")
    assert option.rstrip().endswith("compare fedem:components=1 fedem:components=3")
    assert "fedem has no hyperparameter 'size'; it has lr" in refused("tune", "fedem", *DATA, "--grid", "size=1")


def problem_of(algorithm, **settings):
    config = make_config({"algorithm": algorithm, "data": DATA[1], **settings})
    return config, build(config)


def steep(rng):
    """Twelve rows for each of eight clients, as countries have years; those of one are far out."""
    x = rng.normal(size=(96, 2)).astype(np.float32)
    owner = np.repeat(np.arange(8), 12)
    x[owner == 3] = 15 + 2 * x[owner == 3]
    y = (x @ [0.5, -0.3] + 0.1 * rng.normal(size=96)).astype(np.float32)
    return mj.data.FederatedData.from_arrays(x, y, clients=owner, task="regression", seed=0)


def test_default_steps_are_safe_for_the_steepest_client():
    """Local would diverge there with the usual rate; and a rate that is given is used as it is."""
    data = steep(np.random.default_rng(0))
    config = make_config({"algorithm": "local", "rounds": 30})
    with pytest.warns(UserWarning, match="so steep that the usual learning rate 0.1 may diverge"):
        problem = build(config, data)
    lr = float(problem.algorithm.server.init(jax.random.key(0)).hyper["lr"])
    assert lr == pytest.approx(1.9 * stable_step(data.train, 1.0, 128), rel=1e-5)
    both = mj.simulate(problem.algorithm, data, rounds=30, grid={"lr": [lr, 0.1]})
    assert rate_of(both[0], config) == {"lr": pytest.approx(lr, rel=1e-5)}  # which summary.json has
    assert rate_of(both[0], make_config({"algorithm": "local:lr=0.2"})) == {}
    safe, usual = (run.scores[0].values["train_score"] for run in (both[0], both[1]))
    assert np.isfinite(safe).all()
    assert (safe < 3 * data.train.y.std()).all()
    assert not usual[3] < 1e3
    model = mj.models.linear(data)
    flat = replace(data, train=data.train._replace(x=data.train.x / 100))
    with pytest.warns(UserWarning, match="so steep"):
        assert safe_rate(LocalConfig(), model, [flat, data]) == pytest.approx(
            lr, rel=1e-5
        )  # of the steepest of its splits
    assert safe_rate(LocalConfig(lr=0.2), model, data) == 0.2
    assert safe_rate(LocalConfig(), mj.models.mlp(data), data) == 0.1
    assert safe_rate(LocalConfig(optimizer="adam"), model, data) == 0.1


def test_samples_say_nothing_about_the_rate_of_a_head_over_fixed_layers():
    """It is linear in what these layers make of the samples, however steep those are."""
    data = mj.data.partitioned(np.full((40, 2), 1e3), np.arange(40) % 3, np.arange(40) % 2)
    head = mj.models.linear(Spec((5,), 3))._replace(spec=data.spec)
    assert safe_rate(LocalConfig(), head, data) == 0.1
    with pytest.warns(UserWarning, match="so steep"):
        assert safe_rate(LocalConfig(), mj.models.linear(data), data) < 1e-5
