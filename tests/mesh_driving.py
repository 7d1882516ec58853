"""Starts `engines/mesh_runs.py` in processes of their own, and compares what it saved."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

PROGRAM = Path(__file__).parent / "engines" / "mesh_runs.py"
LIMIT = 1800  # seconds, on a machine that is busy with other tests


def results(out: Path, devices: int, runs: Sequence[str], processes: int = 1) -> dict[str, list[np.ndarray]]:
    """The leaves of every run, from one process or from several with so many devices each."""
    address = f"127.0.0.1:{free_port()}"
    command = [sys.executable, str(PROGRAM), str(out), "--devices", str(devices), "--runs", *runs]
    joined = [[*command, "--join", address, str(i), str(processes)] for i in range(processes)]
    environment = os.environ | {"XLA_FLAGS": ""}
    started = [
        subprocess.Popen(each, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        for each in (joined if processes > 1 else [command])
    ]
    said = [process.communicate(timeout=LIMIT)[0] for process in started]
    assert [process.returncode for process in started] == [0] * len(started), "\n".join(said)
    with np.load(out) as saved:
        count = lambda run: sum(key.rpartition("/")[0] == run for key in saved)
        return {run: [saved[f"{run}/{i}"] for i in range(count(run))] for run in runs}


def free_port() -> int:
    """A port that nobody listens at."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def assert_same(found: list[np.ndarray], expected: list[np.ndarray], tolerance: float = 2e-5) -> None:
    """The same numbers to rounding."""
    assert len(found) == len(expected) > 5
    for mine, theirs in zip(found, expected, strict=True):
        common = tuple(slice(min(n, m)) for n, m in zip(mine.shape, theirs.shape, strict=True))
        np.testing.assert_allclose(mine[common], theirs[common], rtol=tolerance, atol=tolerance)
