"""Runs that go on: bit for bit, with the settings and data that they were started with, one process at a time."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import time

import pytest

from commands import invoke, refused


def test_resume_refuses_other_settings_and_damage(place, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(place / "run", copy)
    assert "another configuration" in refused("run", "--resume", copy, "--lr", "0.01")
    arrays = copy / "checkpoint" / "arrays.safetensors"
    whole = arrays.read_bytes()
    arrays.write_bytes(whole[: len(whole) // 2])
    assert "checkpoint" in refused("run", "--resume", copy)
    arrays.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    assert "checkpoint" in refused("run", "--resume", copy)
    shutil.rmtree(copy / "checkpoint")  # as if killed before the first one: the run begins anew and ends the same
    invoke("run", "--resume", copy)
    assert (copy / "model" / "arrays.safetensors").read_bytes() == (
        place / "run" / "model" / "arrays.safetensors"
    ).read_bytes()
    assert "is not a run folder" in refused("run", "--resume", tmp_path)


@pytest.mark.usefixtures("as_users_compile")
def test_a_run_killed_at_any_moment_resumes_bit_for_bit(tmp_path):
    """Kills a real process in the middle, resumes it, and compares every array with an undisturbed run's."""
    command = [
        sys.executable, "-c", "import majorant.app.execute as e; e.CHECKPOINT_SECONDS = 0; "
        "e.run_in_folder.__kwdefaults__['checkpoint_seconds'] = 0; from majorant.cli.main import main; main()",
        "run", "fedem:components=2", "--data", "synthetic:clients=8,dimension=6", "--rounds", "2000",
        "--evaluate-every", "20", "--participation", "uniform:0.5", "--out",
    ]  # fmt: skip
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    subprocess.run([*command, str(whole)], check=True, capture_output=True)
    process = subprocess.Popen([*command, str(cut)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    for _ in range(6000):
        if (cut / "checkpoint" / "manifest.json").exists() or process.poll() is not None:
            break
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not (cut / "summary.json").exists(), "the run ended before it could be killed: make it longer"
    invoke("run", "--resume", cut)
    for part in ("checkpoint", "model"):
        assert (cut / part / "arrays.safetensors").read_bytes() == (whole / part / "arrays.safetensors").read_bytes()
    numbers = lambda folder: [
        {k: v for k, v in json.loads(line).items() if k != "seconds"}
        for line in (folder / "metrics.jsonl").read_text().splitlines()
    ]
    assert numbers(cut) == numbers(whole)
    assert (cut / "clients.csv").read_text() == (whole / "clients.csv").read_text()
