"""Files that survive a crash: a write either happened completely or did not happen.

A file is written under another name in the same folder, synced, and renamed: a symbolic link that was there is
replaced, never followed. Links on the way to the folder are followed, so that ``runs/last`` can be named.
"""

from __future__ import annotations

import contextlib
import errno
import json
import math
import os
import re
import shutil
import uuid
from pathlib import Path
from typing import Any

import numpy as np

TEMPORARY = re.compile(r"\.[0-9a-f]{32}\.tmp")
REPLACED = re.compile(r"\.(?P<name>.+)\.(new|old)")
REASONS = {
    errno.ENOSPC: "the disk is full: free some space, or choose another folder",
    errno.EFBIG: "the file is larger than this process may write: raise the limit, or choose another folder",
    errno.EDQUOT: "your disk quota is used up: free some space, or choose another folder",
    errno.EACCES: "permission denied: choose a folder that you may write to",
    errno.EPERM: "permission denied: choose a folder that you may write to",
    errno.EROFS: "the file system is read-only: choose another folder",
    errno.ENOENT: "no such file or folder",
    errno.ENOTDIR: "a part of the path is a file, not a folder",
    errno.EEXIST: "something else is already there",
    errno.EISDIR: "it is a folder, not a file",
    errno.ELOOP: "it is a symbolic link, and links are not followed when files are written: remove it",
    errno.ENAMETOOLONG: "the name is too long",
    errno.EIO: "the disk reports a read or write error",
}


class DamagedFile(ValueError):
    """A file that is missing, cut short, altered, or was never written by Majorant."""


def placed(path: str | Path) -> Path:
    """A path whose folder is resolved and whose last part is not: a link there is a link."""
    path = Path(path)
    return Path(os.path.realpath(path.parent)) / path.name


def atomic_write_bytes(path: str | Path, data: bytes) -> None:
    """Writes a file so that at any moment either the old or the new content is there, complete.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     atomic_write_bytes(f"{folder}/note", b"hello")
    ...     Path(folder, "note").read_bytes()
    b'hello'
    """
    path = placed(path)
    temporary = path.parent / temporary_name()
    try:
        write_synced(temporary, data)
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise
    sync_folder(path.parent)


def atomic_write_text(path: str | Path, text: str) -> None:
    """Writes a text file in UTF-8; see `atomic_write_bytes`."""
    atomic_write_bytes(path, text.encode())


def temporary_name() -> str:
    """A name for a file that is about to get its own, or to go; `tidy` knows it."""
    return f".{uuid.uuid4().hex}.tmp"


def siblings(folder: Path) -> tuple[Path, Path]:
    """Where the folder that will take a folder's place is made, and where the old one is put meanwhile."""
    return folder.with_name(f".{folder.name}.new"), folder.with_name(f".{folder.name}.old")


def settle(folder: Path) -> None:
    """Ends a replacement of a folder that was cut short: the old one is back, unless the new one is in its place."""
    new, away = siblings(folder)
    for link in (new, away):
        if link.is_symlink():  # never one of ours: what it leads to is left alone
            link.unlink()
    if away.exists() and not folder.exists():
        os.rename(away, folder)
    for leftover in (new, away):
        shutil.rmtree(leftover, ignore_errors=True)


def is_leftover(name: str) -> bool:
    """Whether only a process that was killed leaves something of this name.

    >>> [is_leftover(name) for name in (temporary_name(), ".checkpoint.old", "checkpoint", "notes.tmp")]
    [True, True, False, False]
    """
    return TEMPORARY.fullmatch(name) is not None or REPLACED.fullmatch(name) is not None


def tidy(folder: Path) -> None:
    """Removes what a process that was killed has left in a folder, which no process is using."""
    for entry in sorted(folder.iterdir()):
        if found := REPLACED.fullmatch(entry.name):
            settle(folder / found["name"])
        elif TEMPORARY.fullmatch(entry.name):
            entry.unlink(missing_ok=True)


def write_synced(path: Path, data: bytes, mode: int = 0o666) -> None:
    """Writes a new file and waits until the disk has it."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), mode)
    try:
        write_all(descriptor, data)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_all(descriptor: int, data: bytes) -> None:
    """Writes all of the data, however little the system takes at once."""
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def sync_folder(folder: Path) -> None:
    """Waits until the disk has a folder's entries."""
    with contextlib.suppress(OSError):  # some file systems cannot sync a folder; the files themselves are synced
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def make_folder(folder: Path) -> None:
    """Creates a folder, if need be; a symbolic link in its place is not followed."""
    if folder.is_symlink():
        raise OSError(errno.ELOOP, "a symbolic link is there", str(folder))
    folder.mkdir(parents=True, exist_ok=True)


def check_writable(folder: str | Path) -> None:
    """Creates the folder if need be and writes a small file there, to raise ``OSError`` before work is spent."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    probe = folder / temporary_name()
    try:
        write_synced(probe, b"majorant\n")
    finally:
        with contextlib.suppress(OSError):
            probe.unlink()


def explain_os_error(error: OSError, path: str | Path) -> str:
    """A sentence about what went wrong with a file.

    >>> explain_os_error(OSError(errno.ENOSPC, "No space left on device"), "runs/last")
    'cannot use runs/last: the disk is full: free some space, or choose another folder'
    """
    reason = REASONS.get(error.errno or 0) or error.strerror or str(error) or type(error).__name__
    return f"cannot use {path}: {reason}"


def read_bytes(path: Path) -> bytes:
    """The content of a file that must be there."""
    try:
        return path.read_bytes()
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        raise DamagedFile(f"{path} is missing: nothing complete was saved there") from None


def read_json(path: Path) -> Any:
    """What a JSON file that must be there holds."""
    try:
        return json.loads(read_bytes(path))
    except (ValueError, RecursionError) as error:
        if isinstance(error, DamagedFile):
            raise
        raise DamagedFile(f"{path} is cut short or altered: it is not JSON") from None


def strict_json(value: Any, *, indent: int | None = None) -> str:
    """JSON that every reader takes: arrays become lists, and numbers that are not finite become null.

    >>> strict_json({"loss": float("nan"), "clients": np.arange(3)})
    '{"loss": null, "clients": [0, 1, 2]}'
    """
    return json.dumps(_plain(value), indent=indent, ensure_ascii=False, allow_nan=False)


def _plain(value: Any) -> Any:
    if hasattr(value, "__array__"):  # of NumPy or JAX, which is not imported for this
        value = np.asarray(value).tolist()
    if isinstance(value, dict):
        return {str(key): _plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(entry) for entry in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
