"""MovieLens 100K: 100,000 ratings, from 1 to 5, of 1,682 films by 943 users, as rows of users.

The file ``u.data`` is looked for in ``movielens-100k/`` under ``$MAJORANT_DATA`` (by default ``~/.cache/majorant``),
and downloaded once where that is possible. GroupLens allows research use, and no redistribution.

The experiments of Dieuleveut et al., 2025, Section 6, take MovieLens 1M, 5,000 users and 500 films, spread over 20
clients by k-means with constrained cluster sizes. The paper does not say which films, nor what it does about missing
ratings: here the films with most ratings, and a choice of two.

Reference: Harper and Konstan, *The MovieLens datasets: history and context*, 2015.
"""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np

from majorant.data.dictionary import without_labels
from majorant.data.federated import FederatedData
from majorant.data.image_files import check_content, data_folder, download
from majorant.data.missing import with_missing
from majorant.data.partition import balanced_kmeans
from majorant.math.checks import check_whole

URL = "https://files.grouplens.org/datasets/movielens/ml-100k.zip"
DOWNLOAD = "md5:0e33842e24a9c977be4e0107933c0723"
CONTENT = "06416e597f82b7342361e41163890c81036900f418ad91315590814211dca490"
FILMS = 1682
MISSING = ("zero", "mask")


def movielens_100k(*, items: int = 500, clients: int = 20, missing: str = "zero", seed: int = 0) -> FederatedData:
    """The 943 users' ratings of the ``items`` films with most ratings, on equally large clients of like users.

    ``missing="zero"`` gives rows (items,) with 0 where there is no rating; ``"mask"`` samples (2, items), ratings and
    which there are, as `with_missing` does. Everything is training data, without labels.
    """
    check_whole("items", items, most=FILMS)
    if missing not in MISSING:
        raise ValueError(f"missing must be one of {', '.join(map(repr, MISSING))}, got {missing!r}")
    folder = data_folder() / "movielens-100k"
    path = folder / "u.data"
    if not path.exists():
        archive = download(URL, DOWNLOAD, folder / "ml-100k.zip", folder)
        with zipfile.ZipFile(archive) as packed:
            path.write_bytes(packed.read("ml-100k/u.data"))
        archive.unlink()
    check_content(path, path.read_bytes(), CONTENT)
    ratings = most_rated(read_ratings(path), items)
    owner = balanced_kmeans(ratings, clients, seed)
    order = np.argsort(owner, kind="stable")
    rows = ratings[order] if missing == "zero" else with_missing(ratings[order], missing=0)
    return without_labels(rows, np.bincount(owner, minlength=clients), "movielens-100k")


def read_ratings(path: Path) -> np.ndarray:
    """The matrix of users and films in a file of lines ``user film rating time``, counted from 1; 0: no rating."""
    table = np.loadtxt(path, dtype=np.int64, ndmin=2)
    if table.shape[1] < 3 or table[:, :2].min() < 1:
        raise ValueError(f"{path} is not a table of ratings: its lines must be user, film, rating, from 1 on")
    matrix = np.zeros(table[:, :2].max(axis=0), np.float32)
    matrix[table[:, 0] - 1, table[:, 1] - 1] = table[:, 2]
    return matrix


def most_rated(ratings: np.ndarray, items: int) -> np.ndarray:
    """The columns with most ratings, the most rated first.

    >>> most_rated(np.array([[0, 5, 1], [0, 4, 0]]), 2).tolist()
    [[5, 1], [4, 0]]
    """
    return ratings[:, np.argsort(-(ratings > 0).sum(axis=0), kind="stable")[:items]]
