"""The work that peers are compared on: what tools are given is sound, and ours does it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))
from benchmarks.peers import ours, page, work  # noqa: E402


@pytest.mark.parametrize("each", work.WORKS, ids=lambda each: each.name)
def test_clients_have_whole_batches(each):
    assert each.rows % each.batch == 0
    assert each.sampled <= each.clients


def test_work_travels_through_a_file_and_ours_does_it(tmp_path, monkeypatch):
    small = work.WORKS[0]._replace(clients=4, sampled=2, rows=16, batch=8, rounds=2)
    work.save(small, work.samples(small), tmp_path / "work.npz")
    again, train, test = work.load(tmp_path / "work.npz")
    assert again == small
    assert train.x.shape[:2] == (4, 16)
    assert len(np.unique(test.y)) > 1
    monkeypatch.setattr(sys, "argv", ["ours", str(tmp_path / "work.npz")])
    monkeypatch.setitem(os.environ, "PEERS_BEGAN", str(time.time()))
    monkeypatch.setitem(os.environ, "PEERS_OUT", str(tmp_path / "result.json"))
    ours.main()
    found = json.loads((tmp_path / "result.json").read_text()) | {"lines": 3}
    assert found["rounds"] == 2
    assert found["round_s"] > 0
    slower = found | {"round_s": 2 * found["round_s"]}
    table = page.table(small, {"Majorant": found, "slow": slower, "gone": {"not run": "it is not there"}})
    assert "| 1 × |" in table
    assert "| 2 × |" in table
    assert "not run: it is not there" in table
    lines = page.overview({small.name: {"Majorant": found, "slow": slower, "gone": {"not run": "no"}}}).splitlines()
    assert lines[3] == "| slow | 2 × |"
    assert lines[4] == "| gone | – |"


def test_memory_is_not_that_of_the_program_which_starts_a_tool():
    """A child's `ru_maxrss` begins at its parent's size: what is told must not."""
    large = np.ones(40_000_000)  # 320 MB, touched
    program = "from benchmarks.peers.clock import own_peak_megabytes; print(own_peak_megabytes())"
    found = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert 1 < float(found.stdout) < large.nbytes / 2**20
