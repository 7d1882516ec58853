"""Past runs in a folder, with their headline numbers."""

from __future__ import annotations

import datetime
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from majorant.app.config import read_settings
from majorant.app.folders import in_use, what_is
from majorant.app.records import Summary, checked
from majorant.app.signed import ChangedFile, read_signed


class PastRun(NamedTuple):
    """A run or a front in a few words; what is not known is None."""

    folder: str
    when: str  # in local time
    state: str  # finished, running, unfinished, or changed since it ended
    method: str
    data: str
    rounds: int | None = None
    metric: str | None = None
    mean: float | None = None
    bottom_decile: float | None = None
    bytes: float | None = None  # sent and received


def find_runs(folder: Path) -> list[PastRun]:
    """All runs in a folder and in comparisons there, newest first; damaged ones are warned of and left out."""
    if not folder.is_dir():
        raise ValueError(f"there are no runs in {folder}: " + what_is(folder))
    found = []
    for place in run_places(folder):
        try:
            found.append(describe(place))
        except ValueError as error:
            warnings.warn(str(error), stacklevel=2)
    return sorted(found, key=lambda run: (run.when, run.folder), reverse=True)


def run_places(folder: Path) -> Iterator[Path]:
    """The folders of runs: those in a folder, and those in a comparison in it; links such as ``last`` lead to one."""
    for place in sorted(folder.iterdir()):
        if place.is_symlink() or not place.is_dir():
            continue
        if (place / "config.toml").exists():
            yield place
        else:
            yield from (path.parent for path in sorted(place.glob("*/config.toml")) if not path.parent.is_symlink())


def describe(folder: Path) -> PastRun:
    """A run folder in a few words; of one with changed files only its settings are told."""
    ended = next((folder / n for n in ("summary.json", "front.json") if (folder / n).is_file()), None)
    changed = (ended or folder / "config.toml").stat().st_mtime
    when = datetime.datetime.fromtimestamp(changed).isoformat(" ", "seconds")
    if ended is None:
        return without_numbers(folder, when, "running" if in_use(folder) else "unfinished")
    try:
        return (describe_front if ended.name == "front.json" else describe_run)(folder, when)
    except ChangedFile:
        return without_numbers(folder, when, "changed")


def without_numbers(folder: Path, when: str, state: str) -> PastRun:
    """A run or a front by its settings alone."""
    settings = read_settings(folder / "config.toml")
    return PastRun(str(folder), when, state, str(settings.get("algorithm", "pareto")), str(settings.get("data", "")))


def describe_run(folder: Path, when: str) -> PastRun:
    """A finished run in a few words."""
    s = checked(Summary, read_signed(folder / "summary.json"), folder / "summary.json")
    metric = s.metric or "accuracy"
    scores = getattr(s, f"test_{metric}", None) or {}
    sent = [s.communication[key] for key in ("bytes_up", "bytes_down") if key in s.communication]
    mean, worst = scores.get("mean"), scores.get("bottom_decile")
    total = sum(sent) if sent else None
    return PastRun(str(folder), when, "finished", s.algorithm, s.dataset, s.rounds, metric, mean, worst, total)


def describe_front(folder: Path, when: str) -> PastRun:
    """The folder of a front in a few words: the numbers are those of the picked point."""
    from majorant.app.front_record import read_front

    front = read_front(folder)
    accuracy = front.points[front.picked].accuracy
    mean = accuracy if accuracy == accuracy else None
    return PastRun(
        str(folder),
        when,
        "finished",
        f"pareto, {len(front.points)} points",
        front.dataset,
        front.rounds,
        "accuracy",
        mean,
    )
