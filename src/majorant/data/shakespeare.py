"""Shakespeare's plays by speaking role: the next character after 80, one client for each role in each play.

A role's lines are joined by spaces, and every position with 80 characters before it is a sample, as LEAF (Caldas et
al. 2018) makes them. The samples are split in their order, or the lines are, before there are samples: the first test
samples then do not begin with the last characters that were trained on. Characters are codes into LEAF's 80 letters,
one byte each; others become spaces. Files are looked for under ``$MAJORANT_DATA/shakespeare``: LEAF's own JSON
(``users``, ``user_data`` with ``x`` and ``y``), or ``shakespeare.jsonl.bz2``, a line ``{"play", "role", "lines"}`` for
each role.
"""

from __future__ import annotations

import bz2
import json
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from majorant.data.checks import check_split
from majorant.data.federated import FederatedData, Ragged
from majorant.data.femnist import check_listed_once
from majorant.data.image_files import check_content, data_folder
from majorant.data.splitting import split_as_told, split_counts
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
    split_lines: bool = False,
    unseen: float = 0.0,
    seed: int = 0,
) -> FederatedData:
    """Sequences ``(N, window)`` of codes and the character that follows; each role's samples are split in their order.

    ``stride`` keeps every so many-th position, ``roles`` (0: all) so many roles drawn at random. Roles with fewer lines
    or samples than the least are left out. With ``split_lines`` each role's lines are split, as in the FedEM authors'
    released code, and roles are left out that have no sample in some part.
    """
    for name, value in {"window": window, "stride": stride, "min_samples": min_samples}.items():
        check_whole(name, value)
    needed = check_split(split) > 0
    spoken = list(read_roles(data_folder() / "shakespeare", min_lines))
    check_listed_once([name for name, _ in spoken], data_folder() / "shakespeare")
    lines = dict(spoken)
    texts = {name: parted(own, split) if split_lines else [encoded(" ".join(own))] for name, own in lines.items()}
    counts = {name: np.array([len(range(0, len(t) - window, stride)) for t in own]) for name, own in texts.items()}
    needed = needed if split_lines else np.ones(1, bool)
    names = sorted(name for name, of in counts.items() if of.sum() >= min_samples and of[needed].min() > 0)
    if not names:
        without = ", some in each part (LEAF's files have no lines to split)" if split_lines else ""
        raise ValueError(f"no role has {min_samples} samples of {window} characters{without}")
    if roles:
        check_whole("roles", roles, most=len(names))
        names = sorted(np.random.default_rng([seed, 3]).permutation(names)[:roles].tolist())
    parts = [samples(text, window, stride) for name in names for text in texts[name]]
    x, y = np.concatenate([part[0] for part in parts]), np.concatenate([part[1] for part in parts])
    sizes = np.array([counts[name] for name in names])  # (roles, 3), or (roles, 1) where samples are split
    owner = np.repeat(np.arange(len(names)), sizes.sum(axis=1))
    sizes = sizes if split_lines else split_counts(sizes[:, 0], split, names)
    pieces = split_as_told(np.repeat(np.tile(np.arange(3), len(names)), sizes.ravel()), owner, len(names))
    train, validation, test = (Ragged(x[rows], y[rows], offsets) for rows, offsets in pieces)
    nobody = np.zeros(len(names), bool)
    data = FederatedData(train, validation, test, nobody, tuple(names), tuple(LETTERS), "shakespeare")
    return data.with_unseen(unseen, seed=seed) if unseen else data


def parted(lines: list[str], split: tuple[float, float, float]) -> list[np.ndarray]:
    """A role's texts for training, validation and test, of its first, next and last lines; of too few lines nothing.

    >>> texts = parted(["Who's", "there?", "Nay"], (0.6, 0, 0.4))
    >>> ["".join(LETTERS[code] for code in text) for text in texts]
    ["Who's there?", '', 'Nay']
    """
    if len(lines) < np.count_nonzero(split):
        return [encoded("")] * 3
    counts = split_counts(np.array([len(lines)]), split, [""])[0]
    ends = np.cumsum(counts)
    return [encoded(" ".join(lines[end - count : end])) for count, end in zip(counts, ends, strict=True)]


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


def read_roles(folder: Path, min_lines: int) -> Iterator[tuple[str, list[str]]]:
    """Names of roles and the lines that they say, from whichever files are there."""
    plays = folder / "shakespeare.jsonl.bz2"
    leaf = sorted(folder.glob("*.json"))
    if plays.exists():
        raw = plays.read_bytes()
        check_content(plays, raw, PLAYS)
        for line in bz2.decompress(raw).decode().splitlines():
            role = json.loads(line)
            if len(role["lines"]) >= min_lines:
                yield f"{role['play']}: {role['role']}", role["lines"]
    elif leaf:
        for path in leaf:
            yield from read_leaf(path)
    else:
        raise FileNotFoundError(
            f"{folder} has neither shakespeare.jsonl.bz2 nor LEAF's JSON files (all_data.json): put them there, or set "
            "MAJORANT_DATA to the folder that holds the data sets"
        )


def read_leaf(path: Path) -> Iterator[tuple[str, list[str]]]:
    """Users of a LEAF file, and as one line their text: their first sequence, and then what followed each of them."""
    try:
        whole = json.loads(path.read_text(encoding="utf-8"))
        for user in whole["users"]:
            x, y = (whole["user_data"][user][part] for part in ("x", "y"))
            if any(now[1:] + letter != later for now, later, letter in zip(x, x[1:], y, strict=False)):
                raise ValueError(
                    f"{path}: the windows of {user} do not follow each other letter by letter, some are left out: give "
                    "LEAF's all_data.json, not its samples of that or its training and test files"
                )
            if x:
                yield user, [x[0] + "".join(y)]
    except (KeyError, TypeError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise ValueError(f"{path} is not a LEAF file with users and user_data: {error!r}") from None
