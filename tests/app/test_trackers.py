"""Trackers hear of every evaluation: what they stored is read back and compared with the run folder's own record."""

from __future__ import annotations

import json
import struct
from contextlib import contextmanager

import pytest
from tensorboardX.proto.event_pb2 import Event

from commands import invoke, refused
from majorant.app.trackers import TRACKERS, numbers_of, tracking

TINY = ["--data", "synthetic:clients=3,dimension=2", "--rounds", "4", "--evaluate-every", "2"]


def events(folder) -> list[Event]:
    """The events in TensorBoard's files: records with their length and checksums around them."""
    found = []
    for path in sorted(folder.glob("events.*")):
        data, place = path.read_bytes(), 0
        while place < len(data):
            (length,) = struct.unpack_from("<Q", data, place)
            found.append(Event.FromString(data[place + 12 : place + 12 + length]))
            place += 16 + length
    return found


def test_tensorboard_has_the_numbers_of_every_evaluation(tmp_path):
    run = tmp_path / "run"
    invoke("run", "fedavg", *TINY, "--track", "tensorboard", "--out", run)
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    told = {
        (value.tag, event.step): value.simple_value
        for event in events(run / "tensorboard")
        for value in event.summary.value
    }
    assert len(lines) == 2
    for line in lines:
        for name, value in numbers_of([line]).items():
            assert told[name, line["round"]] == pytest.approx(value, rel=1e-6)
    assert any("settings" in tag for tag, _ in told)


def test_unknown_and_missing_trackers_are_refused_before_any_work(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "wandb", None)  # as where it is not installed
    assert "--track takes tensorboard, mlflow, wandb" in refused("run", "fedavg", *TINY, "--track", "tensorbord")
    assert "majorant[wandb]" in refused("run", "fedavg", *TINY, "--track", "wandb", "--out", tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_tracker_that_fails_does_not_stop_the_run(tmp_path, monkeypatch):
    heard = []

    @contextmanager
    def failing(config, folder):
        yield lambda numbers, step: heard.append(step) or 1 / 0

    @contextmanager
    def absent(config, folder):
        raise OSError("nobody is there")
        yield

    monkeypatch.setitem(TRACKERS, "tensorboard", failing)
    monkeypatch.setitem(TRACKERS, "mlflow", absent)
    with tracking(["tensorboard"], None, tmp_path) as told:
        with pytest.warns(UserWarning, match="tensorboard is told no more"):
            told([{"round": 1, "seed": 0}])
        told([{"round": 2, "seed": 0}])
    assert heard == [1]
    with (
        pytest.raises(ValueError, match="--track mlflow cannot start: nobody is there"),
        tracking(["mlflow"], None, tmp_path),
    ):
        pass


def test_seeds_are_told_apart():
    lines = [{"round": 1, "seed": seed, "loss": 0.5 * seed, "stopped": None, "ok": True} for seed in (0, 1)]
    assert numbers_of(lines) == {"seed_0/loss": 0.0, "seed_1/loss": 0.5}
