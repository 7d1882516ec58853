"""Samples that people give beside the data of a run, in ``.npz`` files of named arrays."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from zipfile import BadZipFile
from zlib import error as BadCompression

import numpy as np
from numpy.lib.npyio import NpzFile


def read_npz(path: Path, needed: Sequence[str]) -> dict[str, np.ndarray]:
    """All arrays of a file that must have the needed ones; complaints say what is there instead."""
    try:
        with path.open("rb") as opened:
            arrays = np.load(opened, allow_pickle=False)
            found = {name: arrays[name] for name in arrays} if isinstance(arrays, NpzFile) else None
    except FileNotFoundError:
        raise ValueError(f"there is no file {path}") from None
    except (OSError, EOFError, ValueError, NotImplementedError, MemoryError, BadZipFile, BadCompression) as error:
        raise ValueError(f"{path} is not a readable .npz file: {error}") from None
    if found is None:
        raise ValueError(f"{path} is not an .npz file but one array: save x and the others by name, with numpy.savez")
    missing = [name for name in needed if name not in found]
    if missing:
        has = f"it has {', '.join(found)}" if found else "it is empty"
        raise ValueError(f"{path} has no array {missing[0]!r}: it needs {', '.join(needed)}, and {has}")
    return found
