"""Ends real processes in a hundred ways and looks at what is left: ``python tests/crash/drive.py [--kills 100]``.

Every trial trains a small run (`victims`) in a process of its own and lets a fault happen to it. Then another process
goes on with the folder, as a person would: it resumes the run, or begins anew where there is nothing to resume. The
trial is survived if the run then ends exactly as one that nothing happened to, with every number the same bit for bit,
and nothing lies in the folder that does not belong there. A fault that a process can notice (a full disk, an interrupt)
must also end it with one line of complaint. A small disk is a file system of a few pages, which is full in earnest and
gets larger before the run goes on; where it may not be mounted, the system's refusal to write is made up.

Processes are forked off one that has imported everything and computed nothing. They compile as the tests do, and keep
every program in a cache of their own: a trial is a matter of a second or two.
"""

from __future__ import annotations

import argparse
import contextlib
import errno
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1])]
warnings.filterwarnings("ignore", "os.fork", RuntimeWarning)

from compiling import QUICK  # noqa: E402

os.environ["XLA_FLAGS"] = " ".join(f"--{name}={str(value).lower()}" for name, value in QUICK.items())

import jax  # noqa: E402
import typer  # noqa: E402
from disk import Disk, Fault, killed, receives, refuses  # noqa: E402
from victims import ROUNDS, VICTIMS, content, finish, left_over, train  # noqa: E402

from majorant.cli._failures import at_work_in, told  # noqa: E402
from majorant.cli.train import left_in  # noqa: E402
from majorant.engines import programs  # noqa: E402

programs.QUICK_COMPILATION = QUICK

WEIGHTS = {
    "killed at an operation": 34,
    "killed before config.toml": 6,
    "killed within a write": 10,
    "killed at a random moment": 14,
    "killed again while resuming": 8,
    "full disk": 3,
    "small disk": 3,
    "limited file size": 4,
    "read-only folder": 4,
    "interrupted (SIGINT)": 5,
    "terminated (SIGTERM)": 5,
    "two processes": 2,
    "clock jumps": 2,
}
CHANGES = ("open", "mkdir", "write", "rename", "replace", "ftruncate")


class End(NamedTuple):
    """How a process ended: its exit code, minus the signal that ended it, and what it said."""

    code: int
    said: str
    seconds: float


def in_process(work: Callable[[], None], during: Callable[[int], None] = lambda pid: None, limit: float = 120) -> End:
    """Runs something in a forked process, as a command does it: failures are told, into a pipe, which has no limits."""
    reading, writing = os.pipe()
    begin, pid = time.perf_counter(), os.fork()
    if pid == 0:
        signal.signal(signal.SIGINT, signal.default_int_handler)  # which a process in the background does not have
        os.dup2(writing, 1)
        os.dup2(writing, 2)
        code = 70
        try:
            with told():
                work()
            code = 0
        except typer.Exit as end:
            code = end.exit_code
        finally:
            os._exit(code)
    os.close(writing)
    during(pid)
    status = waited(pid, begin + limit)
    with os.fdopen(reading, errors="replace") as words:
        return End(os.waitstatus_to_exitcode(status), words.read(), time.perf_counter() - begin)


def waited(pid: int, until: float) -> int:
    """The status of a process at its end; one that hangs is ended."""
    while True:
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            return status
        if time.perf_counter() > until:
            os.kill(pid, signal.SIGKILL)
        time.sleep(0.01)


def trained(name: str, folder: Path, *, at: int | None = None, fault: Fault | None = None, again: bool = False) -> None:
    """A command's work in a folder, with a fault at one of its operations."""
    with at_work_in(folder, lambda: left_in(folder, ROUNDS)), Disk(folder, at, fault):
        (finish if again else train)(name, folder)


class Whole(NamedTuple):
    """A run that nothing happened to: what it left, its operations, and how long it took."""

    content: dict[str, Any]
    names: list[str]
    seconds: float


def undisturbed(name: str, place: Path) -> Whole:
    """Runs a victim twice: the first time programs may be compiled."""
    seconds = 0.0
    for attempt in ("first", "second"):
        folder = place / attempt / "run"
        folder.parent.mkdir(parents=True)
        noted = folder.parent / "names"

        def work(folder: Path = folder, noted: Path = noted) -> None:
            with Disk(folder) as disk:
                train(name, folder)
            noted.write_text("\n".join(disk.names))

        end = in_process(work, limit=600)
        if end.code != 0:
            raise SystemExit(f"{name} failed without any fault: {end.said}")
        seconds = end.seconds
    return Whole(content(folder), noted.read_text().split("\n"), seconds)


def trial(kind: str, name: str, whole: Whole, folder: Path, draw: random.Random) -> str | None:
    """One fault, and what is wrong with what it left; None where nothing is."""
    at = draw.randrange(len(whole.names))
    files = [i for i, operation in enumerate(whole.names) if operation == "write"]
    run = lambda at=None, fault=None, again=False: in_process(
        lambda: trained(name, folder, at=at, fault=fault, again=again)
    )
    dead, polite = (-signal.SIGKILL,), (2,)
    if kind == "killed at an operation":
        end, codes = run(at, killed(draw.choice(["before", "after"]))), dead
    elif kind == "killed before config.toml":
        end, codes = run(draw.randrange(whole.names.index("replace")), killed(draw.choice(["before", "after"]))), dead
    elif kind == "killed within a write":
        end, codes = run(draw.choice(files), killed("within")), dead
    elif kind == "killed at a random moment":
        moment = draw.uniform(0.1, 1.0) * whole.seconds
        later = lambda pid: (time.sleep(moment), os.kill(pid, signal.SIGKILL))
        end, codes = in_process(lambda: trained(name, folder), later), (*dead, 0)
    elif kind == "killed again while resuming":
        run(at, killed("before"))
        end, codes = run(draw.randrange(30), killed("after"), again=True), (*dead, 0)
    elif kind == "small disk" and mounted(folder.parent, draw.randint(1, 7)):
        try:
            end, codes = in_process(lambda: trained(name, folder)), polite
            called("mount", "-o", "remount,size=64m", folder.parent)
            return wrong_with(name, whole, folder, end, codes)
        finally:
            called("umount", "-l", folder.parent)
    elif kind in ("full disk", "small disk"):
        end, codes = run(draw.choice(files), refuses(errno.ENOSPC, "write")), polite
    elif kind == "limited file size":
        most = draw.choice([0, 20, 700, 1500])

        def limited() -> None:
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
            trained(name, folder)

        end, codes = in_process(limited), polite
    elif kind == "read-only folder":
        end, codes = run(draw.randrange(at + 1), refuses(errno.EROFS, *CHANGES)), polite
    elif kind == "interrupted (SIGINT)":
        end, codes = run(at, receives(signal.SIGINT)), (130,)
    elif kind == "terminated (SIGTERM)":
        end, codes = run(at, receives(signal.SIGTERM)), (143,)
    elif kind == "two processes":
        end, codes = two_at_once(name, folder, draw.choice(files[2:])), (0,)
    else:
        end, codes = in_process(lambda: with_jumping_clock(name, folder)), (0,)
    return wrong_with(name, whole, folder, end, codes)


def mounted(place: Path, pages: int) -> bool:
    """Whether a file system of a few pages of 4 KiB is now at a place: not everybody may mount one."""
    return called("mount", "-t", "tmpfs", "-o", f"size={4 * pages}k", "crash", place)


def called(*words: Any) -> bool:
    """Whether a command of the system did what it should."""
    return shutil.which(words[0]) is not None and subprocess.run(words, capture_output=True).returncode == 0


def two_at_once(name: str, folder: Path, at: int) -> End:
    """A process stops in the middle; another one, which wants the same folder, must be told; the first goes on."""
    seen: list[End] = []

    def meanwhile(pid: int) -> None:
        os.waitpid(pid, os.WUNTRACED)
        seen.append(in_process(lambda: trained(name, folder, again=True)))
        os.kill(pid, signal.SIGCONT)

    first = in_process(lambda: trained(name, folder, at=at, fault=receives(signal.SIGSTOP)), meanwhile)
    told_so = seen[0].code == 2 and "another process" in seen[0].said
    return first if told_so else End(1, f"the second process ended with {seen[0].code}: {seen[0].said}", 0)


def with_jumping_clock(name: str, folder: Path) -> None:
    """Time goes by leaps of a month, forwards and backwards."""
    draw, now, steady = random.Random(0), time.time, time.monotonic
    time.time = lambda: now() + draw.uniform(-3e6, 3e6)
    time.monotonic = lambda: steady() + draw.uniform(0, 3e6)
    trained(name, folder)


def wrong_with(name: str, whole: Whole, folder: Path, end: End, codes: tuple[int, ...]) -> str | None:
    """What is wrong: with the end of a process, with going on in its folder, or with what is there then."""
    if end.code not in codes:
        return f"ended with {end.code} rather than {' or '.join(map(str, codes))}: {end.said.strip()[-300:]}"
    if end.code > 0 and ("Traceback" in end.said or len(end.said.strip().splitlines()) != 1):
        return f"is not one line of complaint: {end.said.strip()[-300:]}"
    again = in_process(lambda: trained(name, folder, again=True))
    if again.code != 0:
        return f"cannot be gone on with ({again.code}): {again.said.strip()[-300:]}"
    different = [part for part, value in content(folder).items() if value != whole.content[part]]
    if different:
        return f"ended with other {', '.join(different)}"
    remaining = left_over(folder)
    return f"left {', '.join(sorted(remaining))} behind" if remaining else None


def main() -> int:
    """Tries all kinds of faults on all victims in turn, and tells how many were survived."""
    parser = argparse.ArgumentParser(description=__doc__.partition(":")[0])
    parser.add_argument("--kills", type=int, help="how many processes to end; all kinds together 100")
    parser.add_argument("--seed", type=int, default=0, help="of the moments that are drawn")
    parser.add_argument("--only", default="", help="faults whose names have this in them")
    chosen = parser.parse_args()
    draw = random.Random(chosen.seed)
    kinds = [kind for kind, count in WEIGHTS.items() for _ in range(count) if chosen.only in kind]
    if not kinds:
        parser.error(f"no fault has {chosen.only!r} in its name; there are: {', '.join(WEIGHTS)}")
    draw.shuffle(kinds)
    kinds = [kinds[i % len(kinds)] for i in range(len(kinds) if chosen.kills is None else chosen.kills)]
    tried, survived = Counter[str](), Counter[str]()
    wholes: dict[str, Whole] = {}
    with contextlib.ExitStack() as stack:
        place = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="crash-")))
        jax.config.update("jax_compilation_cache_dir", str(place / "programs"))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
        jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
        for number, kind in enumerate(kinds):
            name = list(VICTIMS)[number % len(VICTIMS)]
            if name not in wholes:
                wholes[name] = undisturbed(name, place / f"whole-{len(wholes)}")
            folder = place / f"trial-{number}" / "run"
            folder.parent.mkdir()
            wrong = trial(kind, name, wholes[name], folder, draw)
            tried[kind] += 1
            survived[kind] += wrong is None
            print(f"{number + 1:4d}  {kind:28s} {name:11s} {'survived' if wrong is None else wrong}", flush=True)
            shutil.rmtree(folder.parent)
    print()
    for kind in sorted(tried, key=list(WEIGHTS).index):
        print(f"{kind:28s} {survived[kind]:3d} of {tried[kind]:3d}")
    print(f"{'all':28s} {survived.total():3d} of {tried.total():3d}")
    return int(survived != tried)


if __name__ == "__main__":
    raise SystemExit(main())
