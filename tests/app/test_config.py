"""Configurations: what files hold, what is refused and in which words, and that files give back what was written."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from majorant.app._fingerprint import settings_digest
from majorant.app.build import build_exchange, check_names, local_solver
from majorant.app.config import LocalConfig, RunConfig, load_config, make_config, to_toml
from majorant.app.front_config import make_front_config
from majorant.app.table_settings import check_table


@pytest.mark.parametrize(
    "settings",
    [
        {"algorithm": "fedem:components=3"},
        {"algorithm": "fedavg", "data": 'a "quoted"\\path\n.csv', "client_column": "\x7f\x01", "label_column": "ü→"},
        {"algorithm": "fedavg", "until": ["round > 1", "loss < 1e-9"], "drop": ["a", "b, c"], "seed": 2**32 - 1},
        {"algorithm": "fedavg", "local": {"lr": 1e-300, "batch_size": 0, "steps": 7, "keep_moments": False}},
    ],
)
def test_a_file_gives_back_what_was_written(tmp_path: Path, settings: dict[str, Any]) -> None:
    config = make_config(settings)
    (tmp_path / "config.toml").write_text(to_toml(config), encoding="utf-8")
    assert load_config(tmp_path / "config.toml") == config
    assert load_config(tmp_path / "config.toml").differences(config) == []


def test_a_front_gives_back_what_was_written(tmp_path: Path) -> None:
    both = {"criteria": ("l1", "squared-norm"), "criteria_weights": ((0.5, 0.5), (0.1, 0.9)), "weights": (0.0, 0.5)}
    config = make_front_config(**both)
    (tmp_path / "config.toml").write_text(to_toml(config), encoding="utf-8")
    assert make_front_config(tmp_path / "config.toml") == config


def test_no_batch_size_is_all_samples_at_once() -> None:
    config = RunConfig(algorithm="fedavg", local=LocalConfig(batch_size=None))
    assert make_config(tomllib.loads(to_toml(config))) == config
    assert config.local.batch_size == 0


def test_the_points_of_a_front_are_even() -> None:
    found = make_front_config(criteria=("l1",), points=4).lambdas
    assert found == pytest.approx([0, 0.3, 0.6, 0.9])
    assert found[-1] == 0.9


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"rounds": "１２"}, "rounds: input should be a valid integer, got '１２'"),
        ({"rounds": "12"}, "rounds: input should be a valid integer"),
        ({"rounds": True}, "rounds: input should be a valid integer"),
        ({"rounds": 2**40}, "rounds: input should be less than 2147483648"),
        ({"seed": 2**32}, "seed: input should be less than"),
        ({"local": {"lr": float("nan")}}, "local.lr: input should be a finite number"),
        ({"local": {"momentum": float("inf")}}, "local.momentum: input should be a finite number"),
        ({"local": {"lr": "0.1"}}, "local.lr: input should be a valid number"),
        ({"local": 3}, r"\[local\] must be a table"),
        ({"drop": [1]}, "drop.0: input should be a valid string"),
        ({"task": "ranking"}, "task: input should be 'auto', 'classification' or 'regression'"),
        ({"data": "x" * 500, "rounds": "y" * 500}, "^.{0,120}$"),
        ({"round": 3}, "there is no setting 'round'; did you mean 'rounds'?"),
        ({"lr": 3}, r"there is no setting 'lr'; did you mean '\[local\] lr'"),
        ({"algorithm": "fedavg:lr=1_0"}, "option 'lr' of algorithm 'fedavg' must be a number or none, got '1_0'"),
        ({"algorithm": "fedavg:steps=1.5"}, "option 'steps' of algorithm 'fedavg' must be a whole number"),
        ({"algorithm": "fedavg:lr=1,lr=2"}, "^option 'lr' is given twice"),
    ],
)
def test_wrong_settings_are_named(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make_config({"algorithm": "fedavg"} | settings)


def test_local_options_of_the_algorithm_are_values_of_their_type() -> None:
    local = make_config({"algorithm": "fedavg:lr=3,schedule=constant,keep_moments=false,batch_size=0"}).local
    assert (local.lr, local.schedule, local.keep_moments, local.batch_size) == (3.0, "constant", False, 0)
    assert local_solver(local) is not None
    own = make_config({"algorithm": "k-means:batch_size=5"})  # an option of the method, though a solver has one, too
    assert (own.algorithm, own.local.batch_size) == (
        "k-means:batch_size=5",
        make_config({"algorithm": "k-means"}).local.batch_size,
    )


@pytest.mark.parametrize("content", [b"\xff", b"= 1", b"a = " + b"[" * 5000, b"algorithm = 1\nalgorithm = 2"])
def test_files_that_are_no_settings_are_named(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "study.toml").write_bytes(content)
    with pytest.raises(ValueError, match=r"study\.toml is not a valid TOML file"):
        load_config(tmp_path / "study.toml")


def test_names_are_checked_before_anything_is_loaded() -> None:
    with pytest.raises(ValueError, match="scaling is about peers"):
        check_names(make_config({"algorithm": "fedavg", "scaling": "none"}))


def test_stages_of_a_channel_come_in_order_and_compression_still_works():
    several = make_config({"algorithm": "fedavg", "channel": ["clip:1.0", "quantized:4"]})
    assert build_exchange(several)["channel"].name == "clip:1, quantized:4"
    for key in ("channel", "compression"):  # the second is what version 0.1 called it
        assert make_config({"algorithm": "fedavg", key: "quantized:8"}).channel == ("quantized:8",)
    assert build_exchange(make_config({"algorithm": "fedavg"}))["channel"] is None
    with pytest.raises(ValueError, match="give channel alone"):
        make_config({"algorithm": "fedavg", "channel": "natural", "compression": "quantized:8"})
    with pytest.raises(ValueError, match=r"unknown channel 'quantised'.*did you mean 'quantized'"):
        check_names(make_config({"algorithm": "fedavg", "channel": "quantised:8"}))


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"algorithm": "mocha", "model": "mlp"}, "mocha has a linear model of its own, and would ignore mlp"),
        ({"algorithm": "acd", "objective": "mixture", "model": "cnn"}, "the objective mixture has a linear model"),
        ({"algorithm": "fedavg", "reference": True}, "reference is about the minimum of a personalized objective"),
        ({"algorithm": "asvrcd:sizes=3", "objective": "mixture"}, "unknown option 'sizes'"),
        ({"algorithm": "asvrcd:constants=3", "objective": "mixture"}, "unknown option 'constants'"),
    ],
)
def test_what_would_be_ignored_is_refused(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        check_names(make_config(settings))


def test_what_changes_nothing_may_be_said() -> None:
    check_names(make_config({"algorithm": "mocha", "model": "linear"}))
    check_names(make_config({"algorithm": "acd", "objective": "mixture", "model": "auto", "reference": True}))
    check_names(make_config({"algorithm": "fedavg", "reference": False}))


def test_where_a_run_runs_makes_no_difference() -> None:
    one, eight = make_config({"algorithm": "fedavg"}), make_config({"algorithm": "fedavg", "devices": 8})
    assert eight.differences(one) == []
    assert settings_digest(eight) == settings_digest(one)
    assert make_config(tomllib.loads(to_toml(eight))).devices == 8
    for devices in (0, -1, 2.5):
        with pytest.raises(ValueError, match="devices"):
            make_config({"algorithm": "fedavg", "devices": devices})


def test_a_file_may_begin_with_the_mark_that_windows_writes(tmp_path):
    """The table's columns are checked from the same file before all else, so that reader takes it, too."""
    path = tmp_path / "study.toml"
    path.write_bytes('\ufeffalgorithm = "fedavg"\r\ndata = "nowhere.csv"\r\n'.encode())
    assert load_config(path).algorithm == "fedavg"
    with pytest.raises(ValueError, match="a table needs client_column"):
        check_table({}, path)
