"""Commands as a person gives them, and a table of visits to hospitals to give them."""

from __future__ import annotations

import atexit
import csv
import functools
import json
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np
from typer.testing import CliRunner

from majorant.cli.main import app

SETTINGS = ["--rounds", "60", "--lr", "0.5", "--evaluate-every", "15"]
COLUMNS = ["--client-column", "hospital", "--label-column", "outcome", "--unseen", "0.25"]


def invoke(*arguments: object, code: int = 0) -> str:
    """The output of a command that is expected to end with ``code``."""
    result = CliRunner().invoke(app, [str(a) for a in arguments])
    assert result.exit_code == code, (result.output, result.exception)
    return result.output


def refused(*arguments: object) -> str:
    """The complaint, on one line, of a command that must fail politely."""
    return " ".join(invoke(*arguments, code=2).split())


FORKING = """
import json, os, sys, tempfile
from majorant.cli.main import main
for line in sys.stdin:
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        child = os.fork()
        if not child:
            os.dup2(out.fileno(), 1), os.dup2(err.fileno(), 2)
            sys.argv = ["majorant", *json.loads(line)]
            try:
                main()
            finally:
                print("jax is loaded" if "jax" in sys.modules else "without jax")
            sys.exit(0)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        out.seek(0), err.seek(0)
        print(json.dumps([code, out.read(), err.read()]), flush=True)
"""


class Ended(NamedTuple):
    """What a command in a process of its own ended with."""

    code: int
    out: str  # the last line tells whether JAX was loaded
    err: str


def apart(*arguments: object) -> Ended:
    """A command in a process that has loaded nothing but the command line: copies of one, which is started once."""
    process = forking()
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(json.dumps([str(a) for a in arguments]) + "\n")
    process.stdin.flush()
    return Ended(*json.loads(process.stdout.readline()))


@functools.cache
def forking() -> subprocess.Popen:
    process = subprocess.Popen(
        [sys.executable, "-c", FORKING], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    atexit.register(process.communicate)
    return process


def alter(path: Path, *dropped: str, **changes: object) -> None:
    """Changes entries of a JSON file and leaves its checksums out, as older versions wrote it."""
    content = json.loads(path.read_text()) | changes
    path.write_text(json.dumps({key: content[key] for key in content if key not in ("check", "sha256", *dropped)}))


def timeless(summary: dict) -> dict:
    """What a summary says apart from times, and from checksums, which depend on them."""
    return {key: value for key, value in summary.items() if key not in ("seconds", "sha256", "check")}


def read(path: Path) -> list[dict[str, str]]:
    """The rows of a CSV file."""
    return list(csv.DictReader(path.read_text().splitlines()))


def write_visits(path: Path, hospitals: range, seed: int = 0, labels: bool = True) -> Path:
    """Visits to hospitals: in half of them the outcome follows age and dose one way, in the others the opposite."""
    rng = np.random.default_rng(seed)
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["hospital", "age", "dose", "ward", *(["outcome"] if labels else [])])
        for hospital in hospitals:
            for _ in range(40):
                age, dose = rng.normal(50, 20), rng.normal(3, 1)
                sick = ((age - 50) / 20 + (dose - 3)) * (1 if hospital % 2 else -1) > 0
                row = [f"h{hospital}", f"{age:.2f}", f"{dose:.3f}", rng.choice(["a", "b"])]
                writer.writerow([*row, *(["sick" if sick else "well"] if labels else [])])
    return path
