"""Logs that survive torn lines."""

from __future__ import annotations

from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

from majorant.app.files import DamagedFile
from majorant.app.logs import append_jsonl, read_jsonl


def test_a_log_is_read_up_to_its_torn_line_and_goes_on_after_it(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    assert read_jsonl(path) == []
    records = [{"round": r, "text": "→ " * 10} for r in range(3)]
    for record in records:
        append_jsonl(path, record)
    whole = path.read_bytes()
    second = len(whole) // 3 * 2
    for cut in range(second, len(whole)):
        path.write_bytes(whole[:cut])
        assert read_jsonl(path) == records[:2]
        append_jsonl(path, records[2])
        assert path.read_bytes() == whole
    path.write_bytes(b"x" * 200_000)
    append_jsonl(path, records[0])
    assert read_jsonl(path) == records[:1]


def test_a_damaged_line_inside_a_log_is_named(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    for bad in (b"{", b"3", b"", b"\xff"):
        path.write_bytes(b'{"round": 1}\n' + bad + b'\n{"round": 2}\n')
        with pytest.raises(DamagedFile, match=r"line 2 of .*metrics\.jsonl"):
            read_jsonl(path)


def test_logs_hold_arrays_and_strict_json(tmp_path: Path) -> None:
    path = tmp_path / "log"
    record = {
        "a": np.float32(0.5),
        "b": jnp.arange(2),
        "c": float("inf"),
        "d": (1, None),
        3: jnp.ones((), jnp.bfloat16),
    }
    append_jsonl(path, record)
    assert read_jsonl(path) == [{"a": 0.5, "b": [0, 1], "c": None, "d": [1, None], "3": 1.0}]


def test_a_link_in_place_of_a_log_is_refused(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("x\n")
    (tmp_path / "metrics.jsonl").symlink_to(tmp_path / "precious")
    with pytest.raises(OSError, match="symbolic links"):
        append_jsonl(tmp_path / "metrics.jsonl", {"round": 1})
    assert (tmp_path / "precious").read_text() == "x\n"
