"""Changes of a file, and of the files beside it, are noticed; other layouts of the same content are not changes."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from majorant.app.files import DamagedFile
from majorant.app.signed import ChangedFile, read_signed, write_signed

CONTENT = {"mean": 0.1 + 0.2, "tiny": 5e-324, "name": "Zürich 💧", "none": float("nan"), "all": np.arange(3)}


def test_what_was_written_is_read(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(b"1\r\n")
    write_signed(tmp_path / "a.json", CONTENT, ("log",))
    found = read_signed(tmp_path / "a.json")
    assert list(found.pop("sha256")) == ["log"]
    assert found == CONTENT | {"none": None, "all": [0, 1, 2]}
    again = json.loads((tmp_path / "a.json").read_text())
    (tmp_path / "a.json").write_text(json.dumps(dict(reversed(again.items()))))
    assert read_signed(tmp_path / "a.json")["mean"] == CONTENT["mean"]


@pytest.mark.parametrize(
    "change", [{"mean": 0.3}, {"none": 0}, {"more": None}, {"sha256": {}}, {"check": None}, {"all": [0, 1]}]
)
def test_a_change_is_noticed(tmp_path: Path, change: dict) -> None:
    (tmp_path / "log").write_bytes(b"1\n")
    write_signed(tmp_path / "a.json", CONTENT, ("log",))
    (tmp_path / "a.json").write_text(json.dumps(json.loads((tmp_path / "a.json").read_text()) | change))
    with pytest.raises(ChangedFile, match=r"a\.json was altered"):
        read_signed(tmp_path / "a.json")


def test_a_change_beside_is_noticed(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(b"1\n")
    write_signed(tmp_path / "a.json", {}, ("log",))
    (tmp_path / "log").write_bytes(b"1\n2\n")
    with pytest.raises(ChangedFile, match="log was altered"):
        read_signed(tmp_path / "a.json")
    (tmp_path / "log").unlink()
    with pytest.raises(ChangedFile, match="log is missing"):
        read_signed(tmp_path / "a.json")


def test_files_without_checksums_are_read_as_they_are(tmp_path: Path) -> None:
    for content in ({"mean": 0.5}, [1], None, {"sha256": "x"}):
        (tmp_path / "a.json").write_text(json.dumps(content))
        assert read_signed(tmp_path / "a.json") == content
    with pytest.raises(DamagedFile, match="is missing"):
        read_signed(tmp_path / "b.json")
