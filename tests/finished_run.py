"""One finished run that the tests of all commands share."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from commands import COLUMNS, SETTINGS, invoke, write_visits


@pytest.fixture(scope="session")
def place(tmp_path_factory) -> Path:
    """A folder with a table, and one finished run on it."""
    folder = tmp_path_factory.mktemp("place")
    table = write_visits(folder / "visits.csv", range(8))
    (folder / "visits.csv.links").write_text("0,1\n1,2\n2,3\n3,7\n")
    text = invoke(
        "run", "fedem:components=2", "--data", table, *COLUMNS, *SETTINGS, "--out", folder / "run", "--figures", "svg"
    )
    assert "test accuracy" in text
    assert "report.html" in text
    return folder


@pytest.fixture
def copied(place, tmp_path) -> Path:
    """A copy of the run, which a test may damage."""
    return Path(shutil.copytree(place / "run", tmp_path / "copied"))
