"""The list of past runs: newest first, with the numbers of their summaries."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from majorant.app.folders import claimed
from majorant.app.runs import find_runs

SUMMARY: dict[str, Any] = {
    "algorithm": "fedem", "dataset": "visits", "rounds": 60, "clients": 8, "metric": "accuracy",
    "test_accuracy": {"mean": 0.875, "bottom_decile": 0.75, "std": None},
    "communication": {"rounds": 60, "bytes_up": 1500, "bytes_down": 500},
}  # fmt: skip


def write(folder: Path, summary: Any = None, when: int = 0) -> None:
    """A run that ended at a time, or one that did not."""
    folder.mkdir(parents=True)
    (folder / "config.toml").write_text('algorithm = "fedavg"\ndata = "synthetic"\n')
    if summary is not None:
        (folder / "summary.json").write_text(json.dumps(summary))
    for path in folder.iterdir():
        os.utime(path, (when, when))


def test_runs_are_found_newest_first(tmp_path: Path) -> None:
    write(tmp_path / "b-old", SUMMARY, when=1_000)
    write(tmp_path / "a-new", SUMMARY | {"metric": "rmse", "test_rmse": {"mean": 1.5}}, when=3_000_000)
    write(tmp_path / "compared" / "local", SUMMARY | {"algorithm": "local"}, when=2_000_000)
    write(tmp_path / "killed", when=500)
    write(tmp_path / "busy", when=400)
    (tmp_path / "last").symlink_to("a-new")
    (tmp_path / "notes").mkdir()
    with claimed(tmp_path / "busy"):
        found = find_runs(tmp_path)
    names = [Path(run.folder).relative_to(tmp_path).as_posix() for run in found]
    assert names == ["a-new", "compared/local", "b-old", "killed", "busy"]
    assert [run.state for run in found] == ["finished"] * 3 + ["unfinished", "running"]
    newest, _, old, killed, _ = found
    assert (old.method, old.data, old.rounds) == ("fedem", "visits", 60)
    assert (old.mean, old.bottom_decile, old.bytes) == (0.875, 0.75, 2000)
    assert (newest.metric, newest.mean, newest.bottom_decile) == ("rmse", 1.5, None)
    assert (killed.method, killed.data, killed.mean) == ("fedavg", "synthetic", None)


def test_a_damaged_run_is_warned_of_and_the_others_are_shown(tmp_path: Path) -> None:
    write(tmp_path / "good", SUMMARY)
    write(tmp_path / "bad", SUMMARY | {"rounds": -1})
    with pytest.warns(
        UserWarning, match=r"bad/summary\.json was altered.*rounds: .*greater than or equal to 0, got -1"
    ):
        found = find_runs(tmp_path)
    assert [Path(run.folder).name for run in found] == ["good"]


def test_a_place_without_runs_is_told(tmp_path: Path) -> None:
    assert find_runs(tmp_path) == []
    with pytest.raises(ValueError, match="does not exist"):
        find_runs(tmp_path / "nowhere")
