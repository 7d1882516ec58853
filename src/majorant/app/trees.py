"""Trees of arrays in folders: checkpoints and models, which survive a crash at any moment.

A tree is a folder with ``arrays.safetensors``, one array per tree path, and ``manifest.json``, which holds the format
version, the caller's ``meta``, types, shapes and checksums. A new tree takes the place of the old one by renaming: old
away, new in, old deleted; a crash in between leaves the old one. Nothing is pickled, so no file runs code when it is
read, and everything is checked before it is used.
"""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import jax
import jax.numpy as jnp
import numpy as np
import safetensors
import safetensors.numpy
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from majorant.app.files import (
    DamagedFile,
    placed,
    read_bytes,
    read_json,
    settle,
    siblings,
    strict_json,
    sync_folder,
    write_synced,
)
from majorant.app.signed import digest, signed, verified

ARRAYS, MANIFEST = "arrays.safetensors", "manifest.json"
Type = Literal["bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "bfloat16", "float16",
               "float32", "float64", "complex64", "float8_e4m3fn", "float8_e5m2"]  # fmt: skip
Kind = Annotated[tuple[Type, list[Annotated[int, Field(ge=0)]]], Field(strict=False)]  # type and shape
Digest = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]


class Manifest(BaseModel):
    """What ``manifest.json`` says."""

    model_config = ConfigDict(strict=True, frozen=True)

    format: Literal[1]
    meta: dict[str, Any]  # the caller's
    leaves: dict[str, Kind | None]  # of each array
    bytes: int = Field(ge=0)  # of the file of arrays, as its digest
    sha256: Digest
    check: Digest  # of all the rest


def save_tree(folder: str | Path, tree: Any, meta: dict[str, Any], *, private: bool = False) -> None:
    """Saves a tree of arrays, numbers and None as a folder, in place of the tree that was there.

    ``meta`` is anything that JSON can say. An existing folder is replaced only if it holds a saved tree. A ``private``
    one can be read by its owner alone.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as place:
    ...     save_tree(f"{place}/model", {"steps": [7, None], "w": np.arange(3.0)}, {"round": 10})
    ...     load_tree(f"{place}/model", like={"steps": [0, None], "w": np.zeros(3)})
    ({'steps': [7, None], 'w': array([0., 1., 2.])}, {'round': 10})
    """
    folder = placed(folder)
    arrays = {path: _array(path, leaf) for path, leaf in _leaves(tree)}
    data = safetensors.numpy.save({path: array for path, array in arrays.items() if array is not None})
    leaves = {path: None if a is None else [a.dtype.name, list(a.shape)] for path, a in arrays.items()}
    content = {"format": 1, "meta": meta, "leaves": leaves, "bytes": len(data), "sha256": digest(data)}
    manifest = strict_json(signed(content), indent=1) + "\n"

    new, away = siblings(folder)
    if folder.is_symlink():
        raise OSError(errno.ELOOP, "a symbolic link is there", str(folder))
    if folder.exists() and not _is_tree(folder):
        raise FileExistsError(errno.EEXIST, "something other than a saved tree is there, and is kept", str(folder))
    settle(folder)  # an earlier save may have ended between its renames
    folder.parent.mkdir(parents=True, exist_ok=True)
    try:
        new.mkdir(mode=0o700 if private else 0o777)
        mode = 0o600 if private else 0o666
        write_synced(new / ARRAYS, data, mode)
        write_synced(new / MANIFEST, manifest.encode(), mode)
        sync_folder(new)
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
    sync_folder(folder.parent)


def _is_tree(folder: Path) -> bool:
    return folder.is_dir() and {e.name for e in folder.iterdir() if e.name[0] != "."} <= {ARRAYS, MANIFEST}


def tree_exists(folder: str | Path) -> bool:
    """Whether a tree was saved there, even if the last save was cut short or the tree was damaged since."""
    folder = placed(folder)
    return folder.exists() or siblings(folder)[1].exists()


def load_meta(folder: str | Path) -> dict[str, Any]:
    """The ``meta`` of a saved tree, without its arrays."""
    return _read_manifest(_place(folder) / MANIFEST).meta


def _place(folder: str | Path) -> Path:
    """Where a tree is: beside its folder, where a save ended between its renames."""
    folder = placed(folder)
    return folder if folder.exists() else siblings(folder)[1]


def load_tree(folder: str | Path, like: Any = None) -> tuple[Any, dict[str, Any]]:
    """The tree saved in a folder, and its ``meta``.

    With ``like``, a tree of the same structure, shapes and types, every leaf comes back in its place and kind (JAX
    array, NumPy array, Python number). Without it, the result is nested dicts of NumPy arrays by tree path; empty
    containers leave no trace in it.
    """
    place = _place(folder)
    manifest = _read_manifest(place / MANIFEST)
    arrays = _read_arrays(place / ARRAYS, manifest)
    if like is None:
        return _nested(arrays), manifest.meta
    wanted = _leaves(like)
    odd = next((p for p, _ in wanted if p not in arrays), None) or next(iter(arrays.keys() - dict(wanted).keys()), None)
    if odd is not None:
        has, lacks = ("the saved tree", "the expected one") if odd in arrays else ("the expected tree", "the saved one")
        raise ValueError(f"{folder} holds another tree: {has} has a leaf {odd!r} and {lacks} does not")
    restored = [_restore(place, path, arrays[path], leaf) for path, leaf in wanted]
    return jax.tree.unflatten(jax.tree.structure(like, is_leaf=_is_none), restored), manifest.meta


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
    if array.dtype.name not in get_args(Type):
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


def _read_manifest(path: Path) -> Manifest:
    content = read_json(path)
    form = content.get("format") if isinstance(content, dict) else None
    if isinstance(form, int) and form != 1:
        raise DamagedFile(f"{path} has format {form}; this version of Majorant reads format 1")
    try:
        manifest = Manifest.model_validate(content)
    except ValidationError:
        raise DamagedFile(f"{path} was not written by Majorant, or was altered") from None
    verified(content, path)
    return manifest


def _read_arrays(path: Path, manifest: Manifest) -> dict[str, np.ndarray | None]:
    data = read_bytes(path)
    if len(data) != manifest.bytes:
        raise DamagedFile(f"{path} is cut short or altered: {len(data)} bytes, expected {manifest.bytes}")
    if digest(data) != manifest.sha256:
        raise DamagedFile(f"{path} was altered: its checksum does not match")
    try:
        found = {name: entry["data"] for name, entry in safetensors.deserialize(data)}
        return {
            name: None if kind is None else np.frombuffer(found[name], np.dtype(kind[0])).reshape(kind[1]).copy()
            for name, kind in manifest.leaves.items()
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
