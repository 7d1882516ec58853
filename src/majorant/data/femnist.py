"""FEMNIST: handwritten characters in 62 classes, a client for each writer, from the files that LEAF makes.

LEAF (Caldas et al. 2018) has no download: its script makes JSON files from NIST's images, each with ``users`` and
``user_data``, where a writer has ``x``, rows of 784 numbers in [0, 1], and ``y``, labels from 0 to 61 (digits, capital
letters, small letters). They are looked for under ``$MAJORANT_DATA/femnist``, in ``train`` and ``test`` or all in one
folder, and checked by what they say: LEAF publishes no checksums, as the files depend on the options of its script.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import numpy as np

from majorant.data.federated import FederatedData
from majorant.data.image_files import data_folder
from majorant.math.checks import check_whole

CLASSES, SIDE = 62, 28


def load_femnist(
    *,
    writers: int = 0,
    min_samples: int = 3,
    split: tuple[float, float, float] = (0.8, 0.0, 0.2),
    unseen: float = 0.0,
    seed: int = 0,
) -> FederatedData:
    """Images ``(N, 28, 28, 1)`` as bytes, a client for each writer, whose samples are split at random.

    ``writers`` (0: all) keeps so many, drawn at random; those with fewer samples than the least are left out. LEAF's
    own division into training and test files is not kept.
    """
    check_whole("min_samples", min_samples)
    folder = data_folder() / "femnist"
    flat, parted = sorted(folder.glob("*.json")), sorted([*folder.glob("train/*.json"), *folder.glob("test/*.json")])
    files = flat + parted
    if flat and parted:
        raise ValueError(
            f"{folder} has JSON files beside its folders train and test: their samples would count twice. Keep one or "
            "the other"
        )
    if not files:
        raise FileNotFoundError(
            f"{folder} has no JSON files of FEMNIST: make them by LEAF's script and put them there (or its folders "
            "train and test), or set MAJORANT_DATA to the folder that holds the data sets"
        )
    found: dict[str, list[tuple[np.ndarray, np.ndarray]]] = {}
    for path in files:
        for user, x, y in read_writers(path):
            found.setdefault(user, []).append((x, y))
    names = sorted(user for user, parts in found.items() if sum(len(y) for _, y in parts) >= min_samples)
    if not names:
        raise ValueError(f"no writer in {folder} has {min_samples} samples: lower min_samples")
    if writers:
        check_whole("writers", writers, most=len(names))
        names = sorted(np.random.default_rng([seed, 3]).permutation(names)[:writers].tolist())
    parts = [part for name in names for part in found[name]]
    owner = np.repeat([name for name in names for _ in found[name]], [len(y) for _, y in parts])
    x, y = np.concatenate([x for x, _ in parts]), np.concatenate([y for _, y in parts])
    data = FederatedData.from_arrays(x, y, owner, split=split, seed=seed, name="femnist")
    return data.with_unseen(unseen, seed=seed) if unseen else data


def check_listed_once(users: list[str], where: Path) -> None:
    """Refuses users that are there twice, whose samples would count twice or be lost."""
    twice = next((user for user, count in Counter(users).items() if count > 1), None)
    if twice is not None:
        raise ValueError(f"{where} has user {twice!r} twice: each may be there once")


def read_writers(path: Path) -> list[tuple[str, np.ndarray, np.ndarray]]:
    """Writers of a LEAF file with their images, as bytes, and labels."""
    try:
        whole = json.loads(path.read_text(encoding="utf-8"))
        given = [(str(user), whole["user_data"][user]["x"], whole["user_data"][user]["y"]) for user in whole["users"]]
        arrays = [(user, np.asarray(x, np.float32).reshape(len(y), -1), np.asarray(y)) for user, x, y in given if y]
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{path} is not a LEAF file with users and user_data: {error!r}") from None
    check_listed_once([user for user, *_ in given], path)
    found = []
    for user, x, y in arrays:
        if x.shape[1] != SIDE * SIDE or not (x.min() >= 0 and x.max() <= 1):
            raise ValueError(f"{path}: images of writer {user} must be {SIDE * SIDE} numbers in [0, 1]")
        if y.dtype.kind not in "iu" or y.min() < 0 or y.max() >= CLASSES:
            raise ValueError(f"{path}: labels of writer {user} must be whole numbers from 0 to {CLASSES - 1}")
        found.append((user, np.rint(255 * x).astype(np.uint8).reshape(-1, SIDE, SIDE, 1), y.astype(np.int32)))
    return found
