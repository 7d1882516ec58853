"""MLflow and Weights & Biases, where they are installed (``make test-trackers``): their own local stores, read back."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator

import mlflow
import pytest
from wandb.proto import wandb_internal_pb2

from commands import invoke
from majorant.app.trackers import numbers_of

TINY = ["--data", "synthetic:clients=3,dimension=2", "--rounds", "4", "--evaluate-every", "2", "--lr", "0.1"]
pytestmark = pytest.mark.filterwarnings("default")  # the trackers' own


def logged(run) -> dict[tuple[str, int], float]:
    """What the run folder says."""
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return {(name, line["round"]): value for line in lines for name, value in numbers_of([line]).items()}


def records(data: bytes) -> Iterator[wandb_internal_pb2.Record]:
    """The records of a file of Weights & Biases: LevelDB's log format, blocks of 32 KiB after a header of 7 bytes."""
    place, parts = 7, b""
    while place < len(data):
        left = 32768 - place % 32768
        if left < 7:
            place += left
            continue
        _, length, kind = struct.unpack_from("<IHB", data, place)
        parts += data[place + 7 : place + 7 + length]
        place += 7 + length
        if kind in (1, 4):  # whole, or the last part
            yield wandb_internal_pb2.Record.FromString(parts)
            parts = b""


def test_mlflow_has_settings_and_every_evaluation(tmp_path, monkeypatch):
    store = (tmp_path / "mlruns").as_uri()
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", store)
    mlflow.set_tracking_uri(store)
    run = tmp_path / "run"
    invoke("run", "fedavg", *TINY, "--track", "mlflow", "--out", run)
    client = mlflow.MlflowClient(store)
    (found,) = client.search_runs([e.experiment_id for e in client.search_experiments()])
    assert found.info.status == "FINISHED"
    assert found.data.params["local.lr"] == "0.1"
    for (name, step), value in logged(run).items():
        history = {each.step: each.value for each in client.get_metric_history(found.info.run_id, name)}
        assert history[step] == pytest.approx(value)


def test_wandb_offline_has_settings_and_every_evaluation(tmp_path, monkeypatch):
    monkeypatch.setenv("WANDB_MODE", "offline")
    run = tmp_path / "run"
    invoke("run", "fedavg", *TINY, "--track", "wandb", "--out", run)
    (path,) = run.glob("wandb/offline-run-*/run-*.wandb")
    told, config = {}, {}
    for record in records(path.read_bytes()):
        for update in record.run.config.update:
            config[update.key] = json.loads(update.value_json)
        items = {item.key or "/".join(item.nested_key): item.value_json for item in record.history.item}
        if "_step" in items:
            told |= {(name, int(items["_step"])): json.loads(value) for name, value in items.items()}
    assert config["rounds"] == 4
    for key, value in logged(run).items():
        assert told[key] == pytest.approx(value)
