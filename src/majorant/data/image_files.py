"""Files of images: where they are kept, how they are fetched, and readers of the idx and CIFAR-10 formats."""

from __future__ import annotations

import gzip
import hashlib
import os
import zlib
from pathlib import Path

import numpy as np

from majorant._extras import require

IDX_TYPES = {8: ">u1", 9: ">i1", 11: ">i2", 12: ">i4", 13: ">f4", 14: ">f8"}
CIFAR_PIXELS = 3 * 32 * 32  # the red, green and blue planes that follow the labels of a record


def data_folder() -> Path:
    """Where data sets are kept: ``$MAJORANT_DATA``, or ``~/.cache/majorant``."""
    return Path(os.environ.get("MAJORANT_DATA") or "~/.cache/majorant").expanduser()


def download(url: str, checksum: str, target: Path, folder: Path) -> Path:
    """Fetches a file once; without a network, says where it could be put by hand."""
    pooch = require("pooch", "images", f"{folder} has no such data set, and downloading it")
    try:
        pooch.retrieve(url, known_hash=checksum, fname=target.name, path=target.parent)
    except OSError as error:
        raise FileNotFoundError(
            f"{target.name} is neither in the folder {target.parent} nor could it be downloaded from {url} ({error});"
            f" put the published files under {folder}, or set MAJORANT_DATA to the folder that holds the data sets"
        ) from error
    return target


def read_idx(path: Path, content: str | None = None) -> np.ndarray:
    """The array in an idx file, compressed or not; ``content`` is the SHA-256 that its decoded bytes should have."""
    raw = path.read_bytes()
    if raw[:2] == b"\x1f\x8b":
        try:
            raw = gzip.decompress(raw)
        except (EOFError, OSError, zlib.error) as error:
            raise ValueError(f"{path} is damaged, its compressed data cannot be read ({error}): remove it") from error
    if len(raw) < 4 or raw[:2] != b"\0\0" or raw[2] not in IDX_TYPES or raw[3] == 0:
        raise ValueError(f"{path} is not an idx file: it begins with the bytes {raw[:4].hex() or '(none)'}")
    dtype, start = np.dtype(IDX_TYPES[raw[2]]), 4 + 4 * raw[3]
    shape = tuple(int.from_bytes(raw[i : i + 4], "big") for i in range(4, start, 4))
    expected = start + dtype.itemsize * int(np.prod(shape))
    if len(raw) != expected:
        raise ValueError(f"{path} is damaged: {len(raw)} bytes, its header announces {expected} for shape {shape}")
    check_content(path, raw, content)
    array = np.frombuffer(raw, dtype, offset=start).reshape(shape)
    return array.astype(dtype.newbyteorder("="))


def read_cifar(
    path: Path, content: str | None = None, *, labels: int = 1, classes: int = 10
) -> tuple[np.ndarray, np.ndarray]:
    """Images ``(N, 32, 32, 3)`` and labels in a binary CIFAR batch: records of labels and three colour planes.

    CIFAR-10 has one label, CIFAR-100 two, of which the second, the fine one, is given.
    """
    raw, length = path.read_bytes(), labels + CIFAR_PIXELS
    if len(raw) == 0 or len(raw) % length:
        raise ValueError(f"{path} is damaged: {len(raw)} bytes are not a whole number of {length}-byte records")
    records = np.frombuffer(raw, np.uint8).reshape(-1, length)
    label = records[:, labels - 1]
    if label.max() >= classes:
        raise ValueError(
            f"{path} is damaged or not CIFAR-{classes}: a record has the label {label.max()}, above {classes - 1}"
        )
    check_content(path, raw, content)
    images = records[:, labels:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
    return np.ascontiguousarray(images), label.astype(np.int32)


def check_content(path: Path, raw: bytes, content: str | None) -> None:
    """Refuses a file that is well formed but is not the published one."""
    if content is not None and hashlib.sha256(raw).hexdigest() != content:
        raise ValueError(f"{path} is not the published file (its decoded content has another SHA-256): remove it")
