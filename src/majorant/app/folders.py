"""Run folders: names for new ones, a lock for the process that writes, and what may be written where."""

from __future__ import annotations

import contextlib
import datetime
import itertools
import os
import re
import shutil
import stat
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from majorant.app.files import check_writable, is_leftover, tidy

LOCK, ATTEMPTS = ".lock", 5


def new_folder(root: Path, label: str) -> Path:
    """Creates a folder that nothing else has: time and label, and a number where several start in one second."""
    stamp = datetime.datetime.now().strftime("%Y%m%d-%H%M%S")
    base, number = root / f"{stamp}-{slug(label)}", 1
    root.mkdir(parents=True, exist_ok=True)
    folder = base
    while True:
        try:
            folder.mkdir()  # which fails where another process was first
            return folder
        except FileExistsError:
            number += 1
            folder = base.with_name(f"{base.name}-{number}")


def slug(label: str) -> str:
    """A label as a file name.

    >>> slug("fedem:components=3, data/x.csv")
    'fedem-components-3-data-x-csv'
    """
    return re.sub(r"[^A-Za-z0-9+_]+", "-", label).strip("-")[:80] or "run"


def point_last_at(folder: Path) -> None:
    """``runs/last`` leads to the newest run in ``runs``, where the file system has links."""
    folder = folder.resolve()  # a run may be named by the link itself
    if folder.parent.name != "runs":
        return
    link, temporary = folder.parent / "last", folder.parent / f".last-{os.getpid()}"
    if link.exists() and not link.is_symlink():
        return
    try:
        temporary.symlink_to(folder.name)
        temporary.replace(link)
    except OSError:
        temporary.unlink(missing_ok=True)


def check_folder(folder: Path, *, resume: bool = False) -> None:
    """Refuses, before any work, what cannot become a run folder: files, devices, and folders with something in them.

    What a process left that was killed before it had written anything of worth does not count.
    """
    if folder.is_dir():
        if not resume and any(entry.name != LOCK and not is_leftover(entry.name) for entry in folder.iterdir()):
            raise FileExistsError(f"{folder} is not empty: choose another --out, or resume its run with --resume")
    elif resume:
        raise ValueError(f"{folder} is not a run folder: " + what_is(folder))
    elif os.path.lexists(folder):
        raise FileExistsError(f"{folder} cannot become a run folder: {what_is(folder)}")


def check_file(path: Path, beginning: bytes, made: str) -> None:
    """Refuses to write over folders, devices, links, and files that begin unlike those that we make."""
    if not os.path.lexists(path):
        return
    if path.is_symlink() or not path.is_file():
        raise FileExistsError(f"{path} is not written: {what_is(path)}")
    with path.open("rb") as file:
        if file.read(len(beginning)).lower() not in (beginning, b""):
            raise FileExistsError(f"{path} is not written: it is there already, and is not {made}")


def what_is(path: Path) -> str:
    """What is at a path, in words."""
    if path.is_symlink():
        return "it is a symbolic link"
    if not path.exists():
        return "it does not exist"
    mode = path.stat().st_mode
    return "it is a folder" if stat.S_ISDIR(mode) else "it is a file" if stat.S_ISREG(mode) else "it is a device"


def check_run_folder(folder: Path) -> None:
    """Refuses what is no run folder, with what it is, or the runs that it holds."""
    if not folder.is_dir():
        raise ValueError(f"{folder} is not a run folder: {what_is(folder)}")
    if not (folder / "config.toml").exists():
        runs = sorted(str(path.parent) for path in folder.glob("*/config.toml"))
        hint = f"; it holds the runs {', '.join(runs)}: name one of them" if runs else ""
        raise ValueError(f"{folder} is not a run folder: it has no config.toml{hint}")


@contextlib.contextmanager
def working_in(folder: Path, keep: Callable[[], bool] = lambda: False, *, resume: bool = False) -> Iterator[None]:
    """Creates a run folder, or with ``resume`` takes one that is there, and keeps other processes out of it.

    A failure removes a folder that was new, unless ``keep()`` says that it holds something of worth.
    """
    check_folder(folder, resume=resume)
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with claimed(folder):
            check_folder(folder, resume=resume)  # again, now that it is ours alone
            try:
                tidy(folder)
                check_writable(folder)
                yield
            except BaseException:
                if not resume and not keep():
                    shutil.rmtree(folder, ignore_errors=True)
                raise
    except BaseException:
        with contextlib.suppress(OSError):
            folder.rmdir()  # which only removes a folder with nothing in it
        raise


@contextlib.contextmanager
def claimed(folder: Path) -> Iterator[None]:
    """Keeps other processes from writing into a folder for the time of a ``with`` block.

    The lock is the system's, on a file that names the process: it ends with the process, however that ends, and a file
    that a dead process left is taken over.
    """
    path = folder / LOCK
    descriptor = opened_and_locked(path)
    try:
        os.ftruncate(descriptor, 0)
        os.write(descriptor, f"{os.getpid()}\n".encode())
        yield
    finally:
        with contextlib.suppress(OSError):
            if same_file(descriptor, path):
                path.unlink()
        os.close(descriptor)


def opened_and_locked(path: Path) -> int:
    """A descriptor of the file with its lock taken; a process that only looks (`in_use`) has it for a moment."""
    for attempt in itertools.count(1):
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o666)
        ours = locked(descriptor)
        if ours and same_file(descriptor, path):  # which the last owner may have removed between our two steps
            return descriptor
        owner = os.read(descriptor, 20).decode("ascii", "replace").strip() or "unknown"
        os.close(descriptor)
        if not ours and attempt >= ATTEMPTS:
            break
        time.sleep(0.02)
    raise ValueError(f"another process ({owner}) is writing to {path.parent}: wait until it ends")


def locked(descriptor: int) -> bool:
    """Takes the lock of an open file; False where another process has it."""
    system: Any
    try:
        if sys.platform == "win32":
            import msvcrt as system

            system.locking(descriptor, system.LK_NBLCK, 1)
        else:
            import fcntl as system

            system.flock(descriptor, system.LOCK_EX | system.LOCK_NB)
    except (BlockingIOError, PermissionError):
        return False
    except OSError:  # a file system without locks
        return True
    return True


def same_file(descriptor: int, path: Path) -> bool:
    """Whether a path leads to an open file."""
    try:
        return os.path.samestat(os.fstat(descriptor), os.lstat(path))
    except FileNotFoundError:
        return False


def in_use(folder: Path) -> bool:
    """Whether a process is writing to a folder."""
    try:
        descriptor = os.open(folder / LOCK, os.O_RDWR | getattr(os, "O_NOFOLLOW", 0))
    except OSError:
        return False
    try:
        return not locked(descriptor)
    finally:
        os.close(descriptor)
