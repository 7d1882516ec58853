"""Logs with a JSON record per line: they grow by whole lines, and a torn last line is ignored."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from majorant.app.files import DamagedFile, placed, strict_json, write_all


def append_jsonl(path: str | Path, record: dict[str, Any]) -> None:
    """Adds a record to a log as one whole line; a torn line that a crash left at the end is dropped first.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     append_jsonl(f"{folder}/log", {"round": 1})
    ...     append_jsonl(f"{folder}/log", {"round": 2})
    ...     read_jsonl(f"{folder}/log")
    [{'round': 1}, {'round': 2}]
    """
    line = strict_json(record).encode() + b"\n"
    unlinked = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
    descriptor = os.open(placed(path), os.O_RDWR | os.O_APPEND | os.O_CREAT | unlinked, 0o666)
    try:
        size = os.lseek(descriptor, 0, os.SEEK_END)
        end = _whole_lines(descriptor, size)
        if end < size:
            os.ftruncate(descriptor, end)
        try:
            write_all(descriptor, line)
        except OSError:
            os.ftruncate(descriptor, end)  # a full disk may have taken half of the line
            raise
    finally:
        os.close(descriptor)


def _whole_lines(descriptor: int, size: int, block: int = 1 << 16) -> int:
    """Where the last whole line of a file ends."""
    end = size
    while end > 0:
        start = max(0, end - block)
        os.lseek(descriptor, start, os.SEEK_SET)
        found = os.read(descriptor, end - start).rfind(b"\n")
        if found >= 0:
            return start + found + 1
        end = start
    return 0


def read_jsonl(path: str | Path) -> list[dict[str, Any]]:
    """The records of a log; a torn last line is left out, and a missing file has no records."""
    try:
        data = Path(path).read_bytes()
    except FileNotFoundError:
        return []
    records: list[dict[str, Any]] = []
    for number, line in enumerate(data.split(b"\n")[:-1], 1):  # what follows the last newline is torn, or nothing
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            record = None
        if not isinstance(record, dict):
            raise DamagedFile(f"line {number} of {path} is damaged: it is not a JSON record")
        records.append(record)
    return records
