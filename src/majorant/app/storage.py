"""Files that survive a crash: a write either happened completely or did not happen.

- A file is written under another name in the same folder, synced, and renamed.
- A *tree* of arrays (a checkpoint, a model) is a folder with ``arrays.safetensors``, one array per tree path, and
  ``manifest.json``, which holds the format version, the caller's ``meta``, types, shapes and checksums. A new tree
  takes the place of the old one by renaming: old away, new in, old deleted. A crash in between leaves the old one.
- A *log* (``.jsonl``) has a JSON record per line and grows by whole lines; a torn last line is ignored.

Nothing is pickled, so no file runs code when it is read.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import math
import os
import shutil
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import safetensors
import safetensors.numpy

FORMAT = 1
ARRAYS, MANIFEST = "arrays.safetensors", "manifest.json"
TYPES = (
    "bool",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "bfloat16",
    "float16",
    "float32",
    "float64",
    "complex64",
    "float8_e4m3fn",
    "float8_e5m2",
)
REASONS = {
    errno.ENOSPC: "the disk is full: free some space, or choose another folder",
    errno.EDQUOT: "your disk quota is used up: free some space, or choose another folder",
    errno.EACCES: "permission denied: choose a folder that you may write to",
    errno.EPERM: "permission denied: choose a folder that you may write to",
    errno.EROFS: "the file system is read-only: choose another folder",
    errno.ENOENT: "no such file or folder",
    errno.ENOTDIR: "a part of the path is a file, not a folder",
    errno.EEXIST: "something else is already there",
    errno.EISDIR: "it is a folder, not a file",
    errno.ENAMETOOLONG: "the name is too long",
    errno.EIO: "the disk reports a read or write error",
}


class DamagedFile(ValueError):
    """A file that is missing, cut short, altered, or was never written by Majorant."""


# Whole files


def atomic_write_bytes(path: str | Path, data: bytes) -> None:
    """Writes a file so that at any moment either the old or the new content is there, complete.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     atomic_write_bytes(f"{folder}/note", b"hello")
    ...     Path(folder, "note").read_bytes()
    b'hello'
    """
    path = Path(os.path.realpath(path))
    temporary = path.parent / f".{uuid.uuid4().hex}.tmp"
    try:
        _write_synced(temporary, data)
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise
    _sync_folder(path.parent)


def atomic_write_text(path: str | Path, text: str) -> None:
    """Writes a text file in UTF-8; see ``atomic_write_bytes``."""
    atomic_write_bytes(path, text.encode())


def _write_synced(path: Path, data: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), 0o666)
    try:
        _write_all(descriptor, data)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _write_all(descriptor: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def _sync_folder(folder: Path) -> None:
    with contextlib.suppress(OSError):  # some file systems cannot sync a folder; the files themselves are synced
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def check_writable(folder: str | Path) -> None:
    """Creates the folder if need be and writes a small file there, to raise ``OSError`` before work is spent."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    probe = folder / f".{uuid.uuid4().hex}.tmp"
    try:
        _write_synced(probe, b"majorant\n")
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


def strict_json(value: Any, *, indent: int | None = None) -> str:
    """JSON that every reader takes: arrays become lists, and numbers that are not finite become null.

    >>> strict_json({"loss": float("nan"), "clients": np.arange(3)})
    '{"loss": null, "clients": [0, 1, 2]}'
    """
    return json.dumps(_plain(value), indent=indent, ensure_ascii=False, allow_nan=False)


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray | np.generic | jax.Array):
        value = np.asarray(value).tolist()
    if isinstance(value, dict):
        return {str(key): _plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(entry) for entry in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


# Trees of arrays


def save_tree(folder: str | Path, tree: Any, meta: dict[str, Any]) -> None:
    """Saves a tree of arrays, numbers and None as a folder, in place of the tree that was there.

    ``meta`` is anything that JSON can say. An existing folder is replaced only if it holds a saved tree.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as place:
    ...     save_tree(f"{place}/model", {"steps": [7, None], "w": np.arange(3.0)}, {"round": 10})
    ...     load_tree(f"{place}/model", like={"steps": [0, None], "w": np.zeros(3)})
    ({'steps': [7, None], 'w': array([0., 1., 2.])}, {'round': 10})
    """
    folder = Path(os.path.realpath(folder))
    arrays = {path: _array(path, leaf) for path, leaf in _leaves(tree)}
    data = safetensors.numpy.save({path: array for path, array in arrays.items() if array is not None})
    leaves = {path: None if a is None else [a.dtype.name, list(a.shape)] for path, a in arrays.items()}
    content = {"format": FORMAT, "meta": meta, "leaves": leaves, "bytes": len(data), "sha256": _digest(data)}
    content = json.loads(strict_json(content))
    manifest = strict_json(content | {"check": _digest(_canonical(content))}, indent=1) + "\n"

    new, away = _siblings(folder)
    if folder.exists() and not _is_tree(folder):
        raise FileExistsError(errno.EEXIST, "something other than a saved tree is there, and is kept", str(folder))
    if away.exists() and not folder.exists():
        os.rename(away, folder)  # an earlier save ended between its renames
    for leftover in (new, away):
        shutil.rmtree(leftover, ignore_errors=True)
    folder.parent.mkdir(parents=True, exist_ok=True)
    try:
        new.mkdir()
        _write_synced(new / ARRAYS, data)
        _write_synced(new / MANIFEST, manifest.encode())
        _sync_folder(new)
        _swap(new, folder, away)
    except BaseException:
        shutil.rmtree(new, ignore_errors=True)
        raise
    shutil.rmtree(away, ignore_errors=True)


def _swap(new: Path, folder: Path, away: Path) -> None:
    if folder.exists():
        os.rename(folder, away)
    try:
        os.rename(new, folder)
    except OSError:
        if away.exists():
            os.rename(away, folder)
        raise
    _sync_folder(folder.parent)


def _siblings(folder: Path) -> tuple[Path, Path]:
    return folder.with_name(f".{folder.name}.new"), folder.with_name(f".{folder.name}.old")


def _is_tree(folder: Path) -> bool:
    return folder.is_dir() and {e.name for e in folder.iterdir() if e.name[0] != "."} <= {ARRAYS, MANIFEST}


def tree_exists(folder: str | Path) -> bool:
    """Whether a tree was saved there, even if the last save was cut short."""
    folder = Path(os.path.realpath(folder))
    return any((place / MANIFEST).is_file() for place in (folder, _siblings(folder)[1]))


def load_tree(folder: str | Path, like: Any = None) -> tuple[Any, dict[str, Any]]:
    """The tree saved in a folder, and its ``meta``.

    With ``like``, a tree of the same structure, shapes and types, every leaf comes back in its place and kind (JAX
    array, NumPy array, Python number). Without it, the result is nested dicts of NumPy arrays by tree path; empty
    containers leave no trace in it.
    """
    folder = Path(os.path.realpath(folder))
    place = folder if folder.exists() else _siblings(folder)[1]
    content = _read_manifest(place / MANIFEST)
    arrays = _read_arrays(place / ARRAYS, content)
    if like is None:
        return _nested(arrays), content["meta"]
    wanted = _leaves(like)
    odd = next((p for p, _ in wanted if p not in arrays), None) or next(iter(arrays.keys() - dict(wanted).keys()), None)
    if odd is not None:
        has, lacks = ("the saved tree", "the expected one") if odd in arrays else ("the expected tree", "the saved one")
        raise ValueError(f"{folder} holds another tree: {has} has a leaf {odd!r} and {lacks} does not")
    restored = [_restore(folder, path, arrays[path], leaf) for path, leaf in wanted]
    return jax.tree.unflatten(jax.tree.structure(like, is_leaf=_is_none), restored), content["meta"]


def _is_none(leaf: Any) -> bool:
    return leaf is None


def _leaves(tree: Any) -> list[tuple[str, Any]]:
    """The leaves by path, None included; slashes inside a key are escaped."""
    found: dict[str, Any] = {}
    for path, leaf in jax.tree.leaves_with_path(tree, is_leaf=_is_none):
        keys = [jax.tree_util.keystr((key,), simple=True).replace("%", "%25").replace("/", "%2F") for key in path]
        name = "/".join(keys).replace("__metadata__", "%5F_metadata__")  # reserved by safetensors
        if name in found:
            raise ValueError(f"two leaves of the tree have the path {name!r}")
        found[name] = leaf
    return list(found.items())


def _array(path: str, leaf: Any) -> np.ndarray | None:
    if leaf is None:
        return None
    if isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        raise TypeError(f"leaf {path!r} is a random key: save jax.random.key_data(key) in its place")
    if not isinstance(leaf, bool | int | float | np.ndarray | np.generic | jax.Array):
        raise TypeError(f"leaf {path!r} is a {type(leaf).__name__}: only arrays, numbers and None can be saved")
    array = np.array(leaf, order="C")
    if array.dtype.name not in TYPES:
        raise TypeError(f"leaf {path!r} is of type {array.dtype}, which cannot be saved")
    return array


def _restore(folder: Path, path: str, array: np.ndarray | None, leaf: Any) -> Any:
    if _kind(array) != _kind(leaf):
        raise ValueError(f"leaf {path!r} in {folder} is {_kind(array)}, expected {_kind(leaf)}")
    if array is None or isinstance(leaf, np.ndarray):
        return array
    if isinstance(leaf, np.generic):
        return array[()]
    return array.item() if isinstance(leaf, bool | int | float) else jnp.asarray(array)


def _kind(leaf: Any) -> str:
    if leaf is None:
        return "None"
    leaf = leaf if hasattr(leaf, "dtype") else np.asarray(leaf)
    return f"{leaf.dtype} of shape {tuple(leaf.shape)}"


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _canonical(content: dict[str, Any]) -> bytes:
    return json.dumps(content, sort_keys=True).encode()


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        raise DamagedFile(f"{path} is missing: nothing complete was saved there") from None


def _read_manifest(path: Path) -> dict[str, Any]:
    data = _read(path)
    try:
        content = json.loads(data)
    except (ValueError, RecursionError):
        raise DamagedFile(f"{path} is cut short or altered: it is not JSON") from None
    if not isinstance(content, dict) or not {"format", "meta", "leaves", "bytes", "sha256", "check"} <= content.keys():
        raise DamagedFile(f"{path} was not written by Majorant, or was altered")
    if content["format"] != FORMAT:
        raise DamagedFile(f"{path} has format {content['format']!r}; this version of Majorant reads format {FORMAT}")
    if content.pop("check") != _digest(_canonical(content)):
        raise DamagedFile(f"{path} was altered: its checksum does not match")
    return content


def _read_arrays(path: Path, content: dict[str, Any]) -> dict[str, np.ndarray | None]:
    data = _read(path)
    if len(data) != content["bytes"]:
        raise DamagedFile(f"{path} is cut short or altered: {len(data)} bytes, expected {content['bytes']}")
    if _digest(data) != content["sha256"]:
        raise DamagedFile(f"{path} was altered: its checksum does not match")
    try:
        found = {name: entry["data"] for name, entry in safetensors.deserialize(data)}
        return {
            name: None if kind is None else np.frombuffer(found[name], np.dtype(kind[0])).reshape(kind[1]).copy()
            for name, kind in content["leaves"].items()
        }
    except (safetensors.SafetensorError, KeyError, TypeError, ValueError) as error:
        raise DamagedFile(f"{path} does not match its manifest: {error}") from None


def _nested(arrays: dict[str, np.ndarray | None]) -> Any:
    if list(arrays) == [""]:
        return arrays[""]
    tree: dict[str, Any] = {}
    for path, array in arrays.items():
        *parents, last = [key.replace("%2F", "/").replace("%5F", "_").replace("%25", "%") for key in path.split("/")]
        place = tree
        for key in parents:
            place = place.setdefault(key, {})
        place[last] = array
    return tree


# Logs: a JSON record per line


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
    with open(path, "a+b", buffering=0) as file:
        size = file.seek(0, os.SEEK_END)
        end = _whole_lines(file.fileno(), size)
        if end < size:
            file.truncate(end)
        try:
            _write_all(file.fileno(), line)
        except OSError:
            file.truncate(end)  # a full disk may have taken half of the line
            raise


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


def _lines(path: str | Path) -> Iterator[tuple[str, dict[str, Any]]]:
    try:
        data = Path(path).read_bytes()
    except FileNotFoundError:
        return
    for number, line in enumerate(data.split(b"\n")[:-1], 1):  # what follows the last newline is torn, or nothing
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            record = None
        if not isinstance(record, dict):
            raise DamagedFile(f"line {number} of {path} is damaged: it is not a JSON record")
        yield line.decode(), record


def read_jsonl(path: str | Path, upto: int | None = None) -> list[dict[str, Any]]:
    """The records of a log, or its first ``upto``; a torn last line is left out, and a missing file has no records."""
    records: list[dict[str, Any]] = []
    for _, record in _lines(path):
        if upto is not None and len(records) >= upto:
            break
        records.append(record)
    return records


def truncate_jsonl(path: str | Path, keep: Callable[[dict[str, Any]], bool]) -> int:
    """Keeps the records for which ``keep`` is true and returns how many went; used when a run resumes.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     for number in range(5): append_jsonl(f"{folder}/log", {"round": number})
    ...     truncate_jsonl(f"{folder}/log", lambda record: record["round"] <= 2)
    2
    """
    if not Path(path).exists():
        return 0
    lines = list(_lines(path))
    kept = [line for line, record in lines if keep(record)]
    atomic_write_text(path, "".join(line + "\n" for line in kept))
    return len(lines) - len(kept)
