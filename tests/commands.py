"""Commands as a person gives them, and a table of visits to hospitals to give them."""

from __future__ import annotations

import csv
import json
from pathlib import Path

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
