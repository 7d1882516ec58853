"""A case: a command, the files it finds, and what must hold once it has ended, whatever it was given.

It runs in process, in an empty folder of its own, within limits on time and memory. It must end with a documented exit
code (0 done, 1 and 2 refused, 3 diverged, 130 interrupted), say nothing that looks like a traceback, leave no file of
half a write and no folder of half a run, and change none of the files that it was given to read.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import resource
import shutil
import signal
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from typer.main import get_command

from majorant.cli._streams import adapt_streams
from majorant.cli.main import app

SECONDS, BYTES = 60, 6 << 30  # of a case, the bytes beyond those that the process has
CODES = (0, 1, 2, 3, 130)
COMMAND: Any = get_command(app)  # made once: that takes longer than most cases
TRACES = re.compile(r"Traceback \(most recent|^\s+File \".*\", line \d+", re.MULTILINE)
HALVES = re.compile(r"\.tmp$|^\.lock$|^\..*\.(new|old)$|^\.last-")
WHOLE = {"config.toml", "metrics.jsonl", "summary.json", "clients.csv", "model", "checkpoint"}  # of a finished run


class Case(NamedTuple):
    """What a command is given."""

    arguments: list[str]
    files: Mapping[str, bytes | None] = MappingProxyType({})  # laid over the base; None removes one
    base: str | None = None  # a folder that is copied to the same name: of a run, or of a front
    writes: tuple[str, ...] = ()  # what the command may change of what it was given


class Ended(NamedTuple):
    """How a case ended."""

    code: int | None
    output: str
    wrong: str = ""  # in a word: traceback, exit code, hang, memory, left behind, changed, inconsistent, accepted
    detail: str = ""


class TooLong(BaseException):
    """Time is up. Not an Exception: nobody catches it by accident."""


def run_case(case: Case, bases: dict[str, Path]) -> Ended:
    """Runs a case in a folder of its own, and judges how it ended."""
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
        place = Path(folder)
        lay_out(case, place, bases)
        before = snapshot(place)
        ended = limited(place, lambda: called(case.arguments))
        return ended if ended.wrong else judged(case, ended, place, before)


def lay_out(case: Case, place: Path, bases: dict[str, Path]) -> None:
    """Puts the files of a case where its command finds them."""
    if case.base is not None:
        shutil.copytree(bases[case.base], place / case.base)
    for name, content in case.files.items():
        path = place / name
        if content is None:
            path.unlink(missing_ok=True)
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)


def called(arguments: list[str]) -> Ended:
    """The command line, as a person calls it, on a terminal in UTF-8."""
    output = io.TextIOWrapper(io.BytesIO(), "utf-8")
    code: int | None = 0
    wrong = detail = ""
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
        adapt_streams()
        try:
            COMMAND.main(arguments, prog_name="majorant")
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
        except Exception as error:
            if isinstance(error, MemoryError):
                raise
            code, wrong, detail = None, "traceback", f"{type(error).__name__}: {error}"
        output.flush()
    return Ended(code, output.buffer.getvalue().decode(), wrong, detail)


def limited(place: Path, work: Any) -> Ended:
    """Does some work inside a folder, within the limits."""
    try:
        with inside(place), at_most(SECONDS, BYTES):
            return work()
    except TooLong:
        return Ended(None, "", "hang", f"longer than {SECONDS} seconds")
    except MemoryError:
        return Ended(None, "", "memory", f"more than {BYTES >> 30} GiB")


@contextlib.contextmanager
def inside(place: Path) -> Iterator[None]:
    """The folder is the working folder, and temporary files go there."""
    outside, temporary = os.getcwd(), tempfile.tempdir
    os.chdir(place)
    tempfile.tempdir = str(place)
    try:
        yield
    finally:
        os.chdir(outside)
        tempfile.tempdir = temporary


@contextlib.contextmanager
def at_most(seconds: float, more: int) -> Iterator[None]:
    """Ends what takes longer, or allocates more."""

    def ring(*_: Any) -> None:
        raise TooLong

    previous, limits = signal.signal(signal.SIGALRM, ring), resource.getrlimit(resource.RLIMIT_AS)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + more, limits[1]))
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)
        resource.setrlimit(resource.RLIMIT_AS, limits)


def judged(case: Case, ended: Ended, place: Path, before: dict[str, bytes]) -> Ended:
    """The ended case, with what is wrong about it."""
    last = (ended.output.strip().splitlines() or [""])[-1]
    if ended.code not in CODES:
        return ended._replace(wrong="exit code", detail=f"{ended.code}: {last}")
    if TRACES.search(ended.output):
        return ended._replace(wrong="traceback", detail=last)
    after = snapshot(place)
    changed = [n for n in before if after.get(n) != before[n] and not n.startswith(case.writes or ("\0",))]
    if changed:
        return ended._replace(wrong="changed", detail=", ".join(changed))
    left = sorted(name for name in after.keys() - before.keys() if not name.startswith(case.writes or ("\0",)))
    halves = [name for name in after.keys() - before.keys() if HALVES.search(Path(name).name)]
    if halves or (ended.code != 0 and left):
        return ended._replace(wrong="left behind", detail=", ".join(halves or left))
    for made in {Path(name).parent for name in left if Path(name).name == "config.toml"}:
        missing = WHOLE - {path.name for path in (place / made).iterdir()}
        if missing and not (place / made / "front.json").exists():
            return ended._replace(wrong="left behind", detail=f"{made} without {', '.join(sorted(missing))}")
    return ended


def snapshot(place: Path) -> dict[str, bytes]:
    """All files in a folder with what they hold; empty folders have a slash at the end."""
    found: dict[str, bytes] = {}
    for folder, folders, names in os.walk(place):
        here = Path(folder)
        for name in names:
            path = here / name
            found[str(path.relative_to(place))] = path.read_bytes() if path.is_file() else b""
        found.update(
            {f"{(here / name).relative_to(place)}/": b"" for name in folders if not any((here / name).iterdir())}
        )
    return found


def foreseen(work: Any) -> tuple[Any, str | None]:
    """What some work of the library gives, or the complaint that the command line would make of its failure.

    Failures that the command line has no words for are let through.
    """
    from majorant.cli._failures import complaint

    try:
        return work(), None
    except Exception as error:
        words = complaint(error)
        if words is None:
            raise
        return None, words
