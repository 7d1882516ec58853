"""Plants bugs one at a time and tells which of them the tests notice: ``python tests/mutants/run.py [PATTERN ...]``.

Every ``[[bug]]`` in ``planted/*.toml`` is a small textual change to one file, with the tests that must fail because of
it. A bug is put into a temporary copy of the tree, its tests run there, and it is taken out again. It is then

    killed        a test failed, as it should
    survived      its tests passed all the same: one is missing
    unfinished    the time limit came first: name quicker tests
    broken        pytest could not run the tests, or they fail without the bug as well
    not there     the text to change does not occur exactly once: the list must follow the code

Tests are run once without any bug before, as one that fails anyway kills nothing. Outcomes are kept in
``build/mutants.json`` and count as long as the bug, its file and the files of its tests stay the same: a run that was
stopped resumes. Patterns choose bugs by their ids (``'solvers.*'``), or by a part of them (``padding``).
"""

from __future__ import annotations

import argparse
import contextlib
import fnmatch
import hashlib
import importlib.util
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[2]
COPIED = ("src", "tests", "reproductions", "benchmarks", "docs", "pyproject.toml")
LIMIT = 240.0  # seconds that the tests of one bug may take
UNTRIED = ("broken", "not there")
PASSED, FAILED = 0, 1  # pytest's exit codes; with all others it could not run the tests


class Bug(NamedTuple):
    """With ``replace`` in the place of ``find``, once in ``file``, something is ``wrong``, which ``tests`` notice."""

    id: str
    file: str
    find: str
    replace: str
    wrong: str
    tests: tuple[str, ...]


class Outcome(NamedTuple):
    """What became of a bug: in which way, by which test, in how many seconds."""

    status: str
    by: str = ""
    seconds: float = 0.0


def planted(root: Path = ROOT) -> list[Bug]:
    """All bugs of the list, file after file; the file's name is the first part of their ids."""
    found = []
    for path in sorted((root / "tests" / "mutants" / "planted").glob("*.toml")):
        for entry in tomllib.loads(path.read_text(encoding="utf-8"))["bug"]:
            id, tests = f"{path.stem}.{entry['id']}", tuple(entry["tests"])
            found.append(Bug(**entry | {"id": id, "tests": tests}))
    return found


def chosen(bugs: Sequence[Bug], patterns: Sequence[str]) -> list[Bug]:
    """The bugs whose ids match a pattern, or have it in them; without patterns, all."""
    fits = lambda bug: any(fnmatch.fnmatch(bug.id, pattern) or pattern in bug.id for pattern in patterns)
    return [bug for bug in bugs if not patterns or fits(bug)]


def missing(bug: Bug, root: Path) -> str | None:
    """What of a bug is not there: the text to change, exactly once, or a test; None where all is."""
    path = root / bug.file
    count = path.read_text(encoding="utf-8").count(bug.find) if path.is_file() else 0
    if count != 1:
        return f"the text to change occurs {count} times in {bug.file}"
    for file, _, name in (test.partition("::") for test in bug.tests):
        text = (root / file).read_text(encoding="utf-8") if (root / file).is_file() else ""
        if f"def {name.partition('[')[0]}(" not in text if name else not text:
            return f"there is no test {name or file}" + (f" in {file}" if name else "")
    return None if bug.tests else "no test is named"


@contextlib.contextmanager
def copy_of(root: Path) -> Iterator[Path]:
    """A temporary copy of the tree, for the time of a ``with`` block."""
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        for name in COPIED:
            source, target = root / name, Path(folder) / name
            if source.is_dir():
                shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
            elif source.exists():
                shutil.copy(source, target)
        if (Path(folder) / "reproductions").exists():  # a package under another name, found before what is installed
            (Path(folder) / "src" / "majorant_reproductions").symlink_to("../reproductions")
        yield Path(folder)


@contextlib.contextmanager
def with_bug(bug: Bug, tree: Path) -> Iterator[None]:
    """The tree with a bug in it, for the time of a ``with`` block."""
    path = tree / bug.file
    text = path.read_text(encoding="utf-8")
    compiled = Path(importlib.util.cache_from_source(str(path)))
    try:
        path.write_text(text.replace(bug.find, bug.replace), encoding="utf-8")
        compiled.unlink(missing_ok=True)  # Python tells files apart by whole seconds and sizes only
        yield
    finally:
        path.write_text(text, encoding="utf-8")
        compiled.unlink(missing_ok=True)


def run_tests(
    tests: Sequence[str], tree: Path, cache: Path, *options: str, limit: float | None = None
) -> tuple[int | None, str]:
    """pytest's exit code (None: the time was up) and its output, for some tests of a tree."""
    path = os.pathsep.join([str(tree / "src"), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {"MAJORANT_COMPILATION_CACHE": str(cache)} | os.environ | {"PYTHONPATH": path}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options, *tests]
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    with subprocess.Popen(command, cwd=tree, env=environment, start_new_session=True, **pipes) as process:
        try:
            output, _ = process.communicate(timeout=limit)
            return process.returncode, output
        except subprocess.TimeoutExpired:
            return None, ""
        finally:
            with contextlib.suppress(ProcessLookupError):  # what tests have started ends with them
                os.killpg(process.pid, signal.SIGKILL)


def outcome_of(bug: Bug, tree: Path, limit: float, cache: Path) -> Outcome:
    """Plants a bug in a copy of the tree and runs its tests."""
    gone = missing(bug, tree)
    if gone:
        return Outcome("not there", gone)
    begin = time.perf_counter()
    with with_bug(bug, tree):
        code, output = run_tests(bug.tests, tree, cache, "-x", limit=limit)
    seconds = round(time.perf_counter() - begin, 1)
    if code == FAILED:
        return Outcome("killed", *failed_tests(output)[:1], seconds=seconds)
    if code is None:
        return Outcome("unfinished", f"after {limit:g} seconds", seconds)
    return Outcome("survived", "", seconds) if code == PASSED else Outcome("broken", last_line(output), seconds)


def failed_tests(output: str) -> list[str]:
    """The tests that failed, and the files that could not be read, from pytest's output."""
    return re.findall(r"^(?:FAILED|ERROR) (\S+)", output, re.MULTILINE)


def last_line(output: str) -> str:
    """The last line of an output that says something."""
    return next((line for line in reversed(output.splitlines()) if line.strip()), "no output")


def digest_of(files: Sequence[Path], *more: str) -> str:
    """A short digest of files and texts."""
    seen = hashlib.sha256("\0".join(more).encode())
    for file in files:
        seen.update(file.read_bytes() if file.is_file() else b"")
    return seen.hexdigest()[:16]


class Record:
    """Outcomes in a file: those that still count, by the ids of the bugs."""

    def __init__(self, path: Path, root: Path, *, fresh: bool = False) -> None:
        self.path, self.root = path, root
        self.found: dict[str, Any] = {"clean": {}, "bugs": {}}
        if path.exists() and not fresh:
            self.found |= json.loads(path.read_text(encoding="utf-8"))

    def digest(self, bug: Bug) -> str:
        """What the outcome of a bug depends on."""
        files = [bug.file, *sorted({test.partition("::")[0] for test in bug.tests})]
        return digest_of([self.root / file for file in files], repr(bug))

    def outcome(self, bug: Bug) -> Outcome | None:
        """The outcome of a bug, if it was found before and still counts."""
        known = self.found["bugs"].get(bug.id)
        if known is None or known["digest"] != self.digest(bug) or known["status"] in UNTRIED:
            return None
        return Outcome(known["status"], known["by"], known["seconds"])

    def add(self, bug: Bug, outcome: Outcome, digest: str) -> None:
        """Writes an outcome down, with the digest of what was tried."""
        about = {"file": bug.file, "wrong": bug.wrong, "digest": digest}
        self.found["bugs"][bug.id] = outcome._asdict() | about
        self.write()

    def clean(self) -> dict[str, str]:
        """By test, the one that fails without any bug in the tree as it is, or an empty text."""
        return self.found["clean"].get(self.tree_digest(), {})

    def add_clean(self, tests: dict[str, str]) -> None:
        """Writes down which tests pass and which fail without a bug."""
        self.found["clean"] = {self.tree_digest(): self.clean() | tests}
        self.write()

    def tree_digest(self) -> str:
        """A digest of all Python files."""
        return digest_of(
            sorted(
                file
                for name in ("src", "tests", "reproductions", "benchmarks")
                for file in (self.root / name).rglob("*.py")
            )
        )

    def write(self) -> None:
        """Writes everything; a file that is half written never takes the place of a whole one."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        half = self.path.with_suffix(".part")
        half.write_text(json.dumps(self.found, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        half.replace(self.path)


def run(bugs: Sequence[Bug], root: Path, record: Record, limit: float = LIMIT) -> dict[str, Outcome]:
    """The outcomes of bugs, those that are known already included."""
    cache = root / ".pytest_cache" / "xla"
    found = {bug.id: record.outcome(bug) for bug in bugs}
    waiting = [bug for bug in bugs if found[bug.id] is None]
    digests = {bug.id: record.digest(bug) for bug in waiting}  # files may change while it runs
    with copy_of(root) as tree:
        named = {test for bug in waiting if not missing(bug, tree) for test in bug.tests} - record.clean().keys()
        if named:
            print(f"{len(named)} tests, or files of tests, without any bug ...", flush=True)
            code, output = run_tests(sorted(named), tree, cache, "--continue-on-collection-errors")
            failed = failed_tests(output)
            if code != PASSED and not failed:
                raise SystemExit(f"pytest cannot run the tests: {last_line(output)}")
            own = lambda test, id: id == test or id.startswith((f"{test}::", f"{test}["))
            record.add_clean({test: next((id for id in failed if own(test, id)), "") for test in named})
        anyway = record.clean()
        for place, bug in enumerate(waiting, 1):
            wrong = next((anyway[test] for test in bug.tests if anyway.get(test)), "")
            outcome = (
                Outcome("broken", f"fails without the bug: {wrong}") if wrong else outcome_of(bug, tree, limit, cache)
            )
            found[bug.id] = outcome
            record.add(bug, outcome, digests[bug.id])
            told = f"{outcome.status} {outcome.by} ({outcome.seconds:.0f} s)"
            print(f"{place}/{len(waiting)} {bug.id}: {told}", flush=True)
    return {id: outcome for id, outcome in found.items() if outcome is not None}


def summary(outcomes: dict[str, Outcome], bugs: Sequence[Bug]) -> str:
    """How many bugs had which outcome, and all that were not killed."""
    wrong = {bug.id: bug.wrong for bug in bugs}
    counts = Counter(outcome.status for outcome in outcomes.values())
    spent = sum(outcome.seconds for outcome in outcomes.values()) / max(len(outcomes), 1)
    alive = [f"  {id}: {o.status} {o.by} – {wrong[id]}" for id, o in outcomes.items() if o.status != "killed"]
    told = ", ".join(f"{count} {status}" for status, count in counts.most_common()) or "none"
    return "\n".join([f"{len(outcomes)} planted bugs: {told}; {spent:.0f} seconds each", *alive])


def main(arguments: Sequence[str] | None = None) -> int:
    """0 where every chosen bug was killed."""
    parser = argparse.ArgumentParser(description="Plants bugs and tells which of them the tests notice.")
    parser.add_argument("patterns", nargs="*", help="ids of bugs, with * and ?, or parts of ids; none: all bugs")
    parser.add_argument("--fresh", action="store_true", help="forget the outcomes of earlier runs")
    parser.add_argument("--limit", type=float, default=LIMIT, help="seconds for the tests of one bug")
    parser.add_argument("--record", type=Path, default=ROOT / "build" / "mutants.json", help="where outcomes are kept")
    options = parser.parse_args(arguments)
    bugs = chosen(planted(), options.patterns)
    if not bugs:
        raise SystemExit(f"no planted bug has an id like {' or '.join(options.patterns)}")
    outcomes = run(bugs, ROOT, Record(options.record, ROOT, fresh=options.fresh), options.limit)
    print(summary(outcomes, bugs))
    return int(any(outcome.status != "killed" for outcome in outcomes.values()))


if __name__ == "__main__":
    sys.exit(main())
