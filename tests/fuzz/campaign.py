"""Thousands of odd inputs, one after the other: none may end in a traceback, a hang, or half a folder.

    make fuzz                                   5,000 cases and more from seed 0
    make fuzz FUZZ='--seed 7 --scale 2'         twice as many, others
    make fuzz FUZZ='tables folders'             two kinds alone
    make fuzz FUZZ='tables/12/34'               a single case again: kind, seed of its batch, place in it

Cases come in small batches, each from a seed of its own, so that a case is found again by three words. They run
in this process, one at a time, with a limit on time and on memory each; a case that stops the clock inside compiled
code ends the process, with its name on the last line.
"""

from __future__ import annotations

import argparse
import collections
import os
import sys
import tempfile
import threading
import time
import tomllib
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import fuzz_arrays
import fuzz_commands
import fuzz_folders
import fuzz_settings
import fuzz_tables
from fuzz_cases import SECONDS, Case, Ended, foreseen, inside, lay_out, limited, run_case
from hypothesis import HealthCheck, Phase, given, seed, settings

from commands import COLUMNS, invoke, write_visits
from majorant.app.build import build
from majorant.app.config import make_config

BATCH = 25  # hypothesis varies a case before it draws another: small batches are of more kinds


class Kind(NamedTuple):
    """A kind of cases."""

    strategy: Callable[[dict[str, Path]], Any]
    run: Callable[[Any, dict[str, Path]], Ended]
    cases: int  # in a campaign


def command_and_again(case: Case, bases: dict[str, Path]) -> Ended:
    """A command; what a dry run prints must mean the same when it is read back."""
    ended = run_case(case, bases)
    again = None if ended.wrong else fuzz_commands.read_back(case, ended)
    if again is not None and run_case(again, bases).output != ended.output:
        return ended._replace(wrong="inconsistent", detail="the printed settings mean something else")
    return ended


def table_and_training(case: Case, bases: dict[str, Path]) -> Ended:
    """A table, as `majorant check` sees it and as training does."""
    ended = run_case(case, bases)
    if ended.wrong:
        return ended
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
        lay_out(case, Path(folder), bases)

        def compared() -> Ended:
            try:
                difference = fuzz_tables.same_as_training(case, ended)
            except Exception as error:
                return ended._replace(wrong="traceback", detail=f"{type(error).__name__}: {error}")
            return ended._replace(wrong="inconsistent" if difference else "", detail=difference)

        return limited(Path(folder), compared)


def altered_folder(case: Case, bases: dict[str, Path]) -> Ended:
    """A folder with an altered file; what has a checksum must not be taken for what was written."""
    ended = run_case(case, bases)
    taken = "" if ended.wrong else fuzz_folders.accepted(case, ended, bases)
    return ended._replace(wrong="accepted", detail=taken) if taken else ended


def data_by_hand(given: dict[str, Any], bases: dict[str, Path]) -> Ended:
    """Federated data from arrays."""

    def made() -> Ended:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                fuzz_arrays.make_by_hand(given)
        except AssertionError as error:
            return Ended(None, "", "inconsistent", f"data that is not whole is taken: {error}")
        except Exception as error:
            return Ended(None, "", "traceback", f"{type(error).__name__}: {error}")
        return Ended(0, "")

    return limited(Path.cwd(), made)


def built(case: Case, bases: dict[str, Path]) -> Ended:
    """A run up to where it would begin to train: data, model, algorithm and exchange are made and traced."""
    ended = run_case(case._replace(arguments=[*case.arguments, "--dry-run"], writes=()), bases)
    if ended.wrong or ended.code:
        return ended

    def made() -> Ended:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                settings = tomllib.loads(ended.output[ended.output.index("data = ") :])
                _, words = foreseen(lambda: build(make_config(settings)))
        except MemoryError:
            raise
        except Exception as error:
            return ended._replace(wrong="traceback", detail=f"{type(error).__name__}: {error}")
        return ended._replace(code=2 if words else 0, output=words or "")

    return limited(Path.cwd(), made)


SMALL = ["logistic:clients=3,samples=6,test_samples=2,dimension=2", "synthetic:clients=3,dimension=2"]
KINDS = {
    "commands": Kind(lambda bases: fuzz_commands.commands(), command_and_again, 1700),
    "settings": Kind(lambda bases: fuzz_settings.settings(), command_and_again, 1000),
    "tables": Kind(lambda bases: fuzz_tables.tables(), table_and_training, 1000),
    "data": Kind(lambda bases: fuzz_arrays.by_hand(), data_by_hand, 700),
    "samples": Kind(lambda bases: fuzz_arrays.sample_files(), run_case, 200),
    "builds": Kind(lambda bases: fuzz_commands.trainings(SMALL), built, 300),
    "trainings": Kind(lambda bases: fuzz_commands.trainings(SMALL), run_case, 60),
    "folders": Kind(lambda bases: fuzz_folders.folders(bases), altered_folder, 600),
}


def make_bases(place: Path, front: bool = True) -> dict[str, Path]:
    """The folders of a small trained run and of a small front, and the table of a new client."""
    table = write_visits(place / "visits.csv", range(4))
    small = ["--data", table, *COLUMNS, "--lr", "0.5"]
    invoke("run", "fedem:components=2", *small, "--rounds", "2", "--out", place / "run")
    if front:
        few = ["--criterion", "squared-norm", "--weights", "0,0.5", "--rounds", "2"]
        invoke("pareto", *small, *few, "--out", place / "front")
    new = write_visits(place / "new.csv", range(9, 10))
    bases = {"run": place / "run", "new.csv": new} | ({"front": place / "front"} if front else {})
    for folder in (bases[name] for name in ("run", "front") if name in bases):
        (folder / "report.html").unlink(missing_ok=True)
    return bases


def batch(kind: str, start: int, size: int, bases: dict[str, Path]) -> list[Any]:
    """The cases of a batch."""
    found: list[Any] = []

    @seed(start)
    @settings(
        max_examples=size,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(KINDS[kind].strategy(bases))
    def collect(case: Any) -> None:
        found.append(case)

    collect()
    return found


def watched(name: str, work: Callable[[], Ended]) -> Ended:
    """Runs a case; where even the limit on time does not end it, the process ends."""

    def give_up() -> None:
        print(f"\nFAILED hang {name}: inside compiled code, for {3 * SECONDS} seconds", flush=True)
        os._exit(1)

    timer = threading.Timer(3 * SECONDS, give_up)
    timer.daemon = True
    timer.start()
    try:
        return work()
    finally:
        timer.cancel()


def main() -> int:
    """Runs a campaign, or single cases, and prints the counts by kind."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("what", nargs="*", help="kinds (all), or cases as they are printed: tables/12/34")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--scale", type=float, default=1.0, help="times the usual number of cases")
    parser.add_argument("--verbose", action="store_true", help="print what a single case is given and says")
    asked = parser.parse_args()
    single = [text.split("/") for text in asked.what if "/" in text]
    kinds = [text for text in asked.what if "/" not in text] or ([] if single else list(KINDS))
    counts: dict[str, collections.Counter[str]] = {}
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="fuzz-bases-") as folder, inside(Path(folder)):
        needed = {*kinds, *(kind for kind, *_ in single)} & {"samples", "folders"}
        bases = make_bases(Path(folder), front="folders" in needed) if needed else {}
        jobs = [(kind, int(start), [int(place)]) for kind, start, place in single]
        for kind in kinds:
            wanted = round(KINDS[kind].cases * asked.scale)
            starts = range(asked.seed * 10_000, asked.seed * 10_000 + -(-wanted // BATCH))
            jobs += [(kind, start, list(range(min(BATCH, wanted - BATCH * i)))) for i, start in enumerate(starts)]
        for kind, start, places in jobs:
            cases = batch(kind, start, BATCH, bases)
            for place in places[: len(cases)] if not single else places:
                case, name = cases[place], f"{kind}/{start}/{place}"
                ended = watched(name, lambda case=case, kind=kind: KINDS[kind].run(case, bases))
                counts.setdefault(kind, collections.Counter())[
                    f"failed: {ended.wrong}" if ended.wrong else f"exit {ended.code}"
                ] += 1
                if ended.wrong:
                    print(f"FAILED {ended.wrong} {name}: {ended.detail[:300]}", flush=True)
                if asked.verbose or (ended.wrong and isinstance(case, Case)):
                    print(f"    majorant {case.arguments}" if isinstance(case, Case) else f"    {case}", flush=True)
                if asked.verbose:
                    print(case, ended.output, sep="\n")
    failed = 0
    for kind, found in counts.items():
        failed += sum(count for what, count in found.items() if what.startswith("failed"))
        print(f"{kind}: {sum(found.values())} cases: " + ", ".join(f"{found[what]} {what}" for what in sorted(found)))
    total = sum(sum(found.values()) for found in counts.values())
    print(f"{total} cases, {failed} failures, {time.monotonic() - began:.0f} seconds")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
