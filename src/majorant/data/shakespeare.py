"""Shakespeare's plays by speaking role: the next character after 80, one client for each role in each play.

A role's lines are joined by spaces, and every position with 80 characters before it is a sample, as LEAF (Caldas et
al. 2018) makes them. Characters are codes into LEAF's 80 letters, one byte each; others become spaces. Files are looked
for under ``$MAJORANT_DATA/shakespeare``: LEAF's own JSON (``users``, ``user_data`` with ``x`` and ``y``), or
``shakespeare.jsonl.bz2``, a line ``{"play", "role", "lines"}`` for each role.
"""

from __future__ import annotations

import bz2
import json
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from majorant.data.federated import FederatedData, Ragged
from majorant.data.image_files import check_content, data_folder
from majorant.data.splitting import split_in_order
from majorant.math.checks import check_whole

LETTERS = "\n !\"&'(),-.0123456789:;>?ABCDEFGHIJKLMNOPQRSTUVWXYZ[]abcdefghijklmnopqrstuvwxyz}"
WINDOW = 80
PLAYS = "ad69fc6fa5170e68b67846832b0413d979810fc2e429000cc60db4bdb44ca7e2"  # SHA-256 of shakespeare.jsonl.bz2
CODES = np.full(256, LETTERS.index(" "), np.uint8)
CODES[np.frombuffer(LETTERS.encode("latin-1"), np.uint8)] = np.arange(len(LETTERS))


def load_shakespeare(
    *,
    window: int = WINDOW,
    stride: int = 1,
    min_lines: int = 3,
    min_samples: int = 2,
    roles: int = 0,
    split: tuple[float, float, float] = (0.8, 0.0, 0.2),
    unseen: float = 0.0,
    seed: int = 0,
) -> FederatedData:
    """Sequences ``(N, window)`` of codes and the character that follows; each role's samples are split in their order.

    ``stride`` keeps every so many-th position, ``roles`` (0: all) so many roles drawn at random. Roles with fewer lines
    or samples than the least are left out.
    """
    for name, value in {"window": window, "stride": stride, "min_samples": min_samples}.items():
        check_whole(name, value)
    texts = {name: encoded(text) for name, text in read_roles(data_folder() / "shakespeare", min_lines)}
    names = sorted(name for name, text in texts.items() if len(range(0, len(text) - window, stride)) >= min_samples)
    if roles:
        check_whole("roles", roles, most=len(names))
        names = sorted(np.random.default_rng([seed, 3]).permutation(names)[:roles].tolist())
    parts = [samples(texts[name], window, stride) for name in names]
    x, y = np.concatenate([part[0] for part in parts]), np.concatenate([part[1] for part in parts])
    owner = np.repeat(np.arange(len(names)), [len(part[1]) for part in parts])
    pieces = split_in_order(np.arange(len(y)), owner, names, split)
    train, validation, test = (Ragged(x[rows], y[rows], offsets) for rows, offsets in pieces)
    nobody = np.zeros(len(names), bool)
    data = FederatedData(train, validation, test, nobody, tuple(names), tuple(LETTERS), "shakespeare")
    return data.with_unseen(unseen, seed=seed) if unseen else data


def encoded(text: str) -> np.ndarray:
    """A text as codes of letters; runs of blanks are one, and what is no letter here is a blank.

    >>> "".join(LETTERS[code] for code in encoded("To   be, or #"))
    'To be, or  '
    """
    plain = re.sub(r"\s+", " ", text)
    return CODES[np.frombuffer(re.sub(r"[^\x00-\x7f]", " ", plain).encode("ascii"), np.uint8)]


def samples(text: np.ndarray, window: int, stride: int) -> tuple[np.ndarray, np.ndarray]:
    """Every window of a text, and the letter that follows it.

    >>> x, y = samples(np.arange(6, dtype=np.uint8), 3, 2)
    >>> x.tolist(), y.tolist()
    ([[0, 1, 2], [2, 3, 4]], [3, 5])
    """
    begin = np.arange(0, max(len(text) - window, 0), stride)
    return text[begin[:, None] + np.arange(window)], text[begin + window].astype(np.int32)


def read_roles(folder: Path, min_lines: int) -> Iterator[tuple[str, str]]:
    """Names of roles and what they say, from whichever files are there."""
    plays = folder / "shakespeare.jsonl.bz2"
    leaf = sorted(folder.glob("*.json"))
    if plays.exists():
        raw = plays.read_bytes()
        check_content(plays, raw, PLAYS)
        for line in bz2.decompress(raw).decode().splitlines():
            role = json.loads(line)
            if len(role["lines"]) >= min_lines:
                yield f"{role['play']}: {role['role']}", " ".join(role["lines"])
    elif leaf:
        for path in leaf:
            yield from read_leaf(path)
    else:
        raise FileNotFoundError(
            f"{folder} has neither shakespeare.jsonl.bz2 nor LEAF's JSON files (all_data.json): put them there, or set "
            "MAJORANT_DATA to the folder that holds the data sets"
        )


def read_leaf(path: Path) -> Iterator[tuple[str, str]]:
    """Users of a LEAF file and their texts: their first sequence, and then what followed each of them."""
    try:
        whole = json.loads(path.read_text(encoding="utf-8"))
        for user in whole["users"]:
            own = whole["user_data"][user]
            if own["x"]:
                yield user, own["x"][0] + "".join(own["y"])
    except (KeyError, TypeError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise ValueError(f"{path} is not a LEAF file with users and user_data: {error!r}") from None
