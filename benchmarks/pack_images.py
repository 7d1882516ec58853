"""CIFAR images in a few small files that lose nothing, for machines to which little can be sent at a time.

A pixel is predicted from its left, upper and upper-left neighbours (the median edge prediction of lossless JPEG), red
and blue as differences from green; what is left of all images is compressed by bz2. 60,000 images of 32×32×3 take
about half of their size.

    python -m benchmarks.pack_images pack FOLDER --parts 2      writes FOLDER/cifar10-0.bz2, -1.bz2 from the local copy
    python -m benchmarks.pack_images unpack FILE … --into DATA  writes DATA/cifar10/cifar-10-batches-bin/*.bin

Unpacking may be done part by part: a batch file is written once all its images are there.
"""

from __future__ import annotations

import argparse
import bz2
from pathlib import Path

import numpy as np

BATCHES = (*(f"data_batch_{i}.bin" for i in range(1, 6)), "test_batch.bin")
PER_BATCH, SIDE = 10_000, 32
ORDER = (1, 0, 2)  # green first: the others are stored as differences from it


def predicted(plane: np.ndarray, i: int, j: int) -> np.ndarray:
    """The guess at pixel (i, j) of every image ``plane (side, side, N)`` from those before it in reading order."""
    if i == 0 or j == 0:
        return plane[i, j - 1] if j else plane[i - 1, j] if i else np.zeros(plane.shape[2], np.int16)
    left, up, corner = plane[i, j - 1], plane[i - 1, j], plane[i - 1, j - 1]
    return np.clip(left + up - corner, np.minimum(left, up), np.maximum(left, up))


def encode(images: np.ndarray) -> np.ndarray:
    """What the prediction misses of images ``(N, 3, side, side)``, modulo 256, ``(3, N, side, side)``."""
    planes = images.transpose(1, 2, 3, 0).astype(np.int16)
    side = planes.shape[1]
    missed = np.empty(planes.shape, np.uint8)
    for place, channel in enumerate(ORDER):
        plane = planes[channel] - (planes[ORDER[0]] if place else 0)
        for i in range(side):
            for j in range(side):
                missed[place, i, j] = (plane[i, j] - predicted(plane, i, j)) & 255
    return np.ascontiguousarray(missed.transpose(0, 3, 1, 2))  # neighbours side by side: 10% smaller


def decode(missed: np.ndarray) -> np.ndarray:
    """The inverse of `encode`."""
    missed = np.ascontiguousarray(missed.transpose(0, 2, 3, 1))
    side = missed.shape[1]
    images = np.empty(missed.shape, np.uint8)
    for place, channel in enumerate(ORDER):
        plane = np.empty(missed.shape[1:], np.int16)
        base = images[ORDER[0]].astype(np.int16) if place else np.zeros(missed.shape[1:], np.int16)
        for i in range(side):
            for j in range(side):
                byte = (predicted(plane, i, j) + missed[place, i, j] + base[i, j]) & 255
                images[channel, i, j] = byte
                plane[i, j] = byte - base[i, j]
    return np.ascontiguousarray(images.transpose(3, 0, 1, 2))


def pack(source: Path, folder: Path, parts: int) -> None:
    """Writes all batches into ``parts`` files."""
    folder.mkdir(parents=True, exist_ok=True)
    raw = np.concatenate([np.fromfile(source / name, np.uint8) for name in BATCHES]).reshape(-1, 1 + 3 * SIDE * SIDE)
    rows = np.array_split(np.arange(len(raw)), parts)
    for part, own in enumerate(rows):
        missed = encode(raw[own, 1:].reshape(-1, 3, SIDE, SIDE))
        head = np.array([own[0], len(own)], "<u4").tobytes()
        body = bz2.compress(raw[own, 0].tobytes() + missed.tobytes(), 9)
        path = folder / f"cifar10-{part}.bz2"
        path.write_bytes(head + body)
        print(f"{path}: {len(own)} images, {path.stat().st_size / 2**20:.1f} MiB", flush=True)


def unpack(files: list[Path], data: Path) -> None:
    """Decodes parts into a folder of pieces, and writes the batches whose images are all there."""
    folder, pieces = data / "cifar10" / "cifar-10-batches-bin", data / "cifar10" / "pieces"
    folder.mkdir(parents=True, exist_ok=True)
    pieces.mkdir(parents=True, exist_ok=True)
    for path in files:
        raw = path.read_bytes()
        first, count = np.frombuffer(raw[:8], "<u4")
        body = np.frombuffer(bz2.decompress(raw[8:]), np.uint8)
        images = decode(body[count:].reshape(3, count, SIDE, SIDE))
        np.save(pieces / f"{first}.npy", np.hstack([body[:count, None], images.reshape(count, -1)]))
        print(f"{path}: {count} images from number {first}", flush=True)
    found = {int(p.stem): np.load(p, mmap_mode="r") for p in pieces.glob("*.npy")}
    if sum(map(len, found.values())) < PER_BATCH * len(BATCHES):
        return
    whole = np.concatenate([found[first] for first in sorted(found)])
    for i, name in enumerate(BATCHES):
        whole[i * PER_BATCH : (i + 1) * PER_BATCH].tofile(folder / name)
    print(f"{folder}: complete", flush=True)


def main() -> None:
    """Packs or unpacks."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    packing, unpacking = commands.add_parser("pack"), commands.add_parser("unpack")
    packing.add_argument("folder", type=Path)
    packing.add_argument("--source", type=Path, default=Path("~/.cache/majorant/cifar10/cifar-10-batches-bin"))
    packing.add_argument("--parts", type=int, default=2)
    unpacking.add_argument("files", type=Path, nargs="+")
    unpacking.add_argument("--into", type=Path, required=True)
    given = parser.parse_args()
    if given.command == "pack":
        pack(given.source.expanduser(), given.folder, given.parts)
    else:
        unpack(given.files, given.into)


if __name__ == "__main__":
    main()
