"""Where estimators start: centres by one-shot federated k-means, and dictionaries by principal directions.

In one-shot k-means every client clusters its own rows and sends centres and counts; the server clusters the centres,
weighted by the counts. With one client it is k-means on its rows, as scikit-learn starts its own estimators. Where
there are many clients, some of them, drawn at random, are asked. A client has at most a third as many centres as rows,
and clients with fewer than three rows are asked only where there are no others: a centre of one row *is* the row. (What
a client sends later, sums over its rows, says as much about a client of one row.)

Reference: Dennis, Li, Smith, *Heterogeneity for the win: one-shot federated clustering*, ICML 2021.
"""

from __future__ import annotations

import warnings

import numpy as np
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning

from majorant.data.federated import Ragged

ASKED, ROWS_A_CENTER = 100, 3  # clients; rows


def one_shot_centers(samples: Ragged, clusters: int, random: np.random.RandomState) -> np.ndarray:
    """K centres ``(K, p)``.

    >>> rows = np.repeat([[0.0], [5.0], [0.2], [5.2]], 3, axis=0)
    >>> centers = one_shot_centers(Ragged(rows, rows[:, 0], np.array([0, 6, 12])), 2, np.random.RandomState(0))
    >>> np.sort(centers[:, 0]).round(1).tolist()
    [0.1, 5.1]
    """
    able = np.flatnonzero(samples.sizes >= ROWS_A_CENTER)
    able = able if len(able) else np.flatnonzero(samples.sizes > 0)
    alone = len(samples.sizes) == 1
    asked = able if len(able) <= ASKED else np.sort(random.choice(able, ASKED, replace=False))
    centers, counts = [], []
    for client in asked:
        x, _ = samples.client(int(client))
        own = clusters if alone else min(clusters, max(1, len(x) // ROWS_A_CENTER))
        found, count = cluster(x, own, np.ones(len(x)), random)
        centers.append(found)
        counts.append(count)
    if alone:
        return centers[0]
    points, weights = np.concatenate(centers), np.concatenate(counts)
    if len(points) < clusters:  # few clients with few rows were asked: repeat what there is, a little moved
        more = random.choice(len(points), clusters - len(points))
        spread = points.std(axis=0) + 1e-3
        points = np.concatenate(
            [points, points[more] + 0.01 * spread * random.normal(size=(len(more), points.shape[1]))]
        )
        weights = np.concatenate([weights, np.ones(len(more))])
    return cluster(points, clusters, weights, random)[0]


def cluster(
    x: np.ndarray, clusters: int, weights: np.ndarray, random: np.random.RandomState
) -> tuple[np.ndarray, np.ndarray]:
    """Centres and the weight of the rows that are nearest to each."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # fewer distinct rows than clusters: centres repeat
        found = KMeans(clusters, n_init=1, random_state=random).fit(x, sample_weight=weights)
    return found.cluster_centers_, np.bincount(found.labels_, weights, clusters)


def principal_directions(x: np.ndarray, count: int, random: np.random.RandomState) -> np.ndarray:
    """Unit vectors ``(p, count)`` along which rows vary most around zero, and random ones where that is not enough.

    All that is needed of the rows is Σ x xᵀ, which clients can add up.

    >>> principal_directions(np.array([[2.0, 0.0], [0.0, 1.0]]), 1, np.random.RandomState(0)).round(3).tolist()
    [[1.0], [0.0]]
    """
    features = x.shape[1]
    values, vectors = np.linalg.eigh(x.T @ x / len(x))
    order = np.argsort(-values)
    kept = [k for k in order if values[k] > 1e-10 * max(values.max(), 1e-300)][:count]
    found = vectors[:, kept]
    found = found * np.where(found[np.abs(found).argmax(axis=0), np.arange(len(kept))] < 0, -1.0, 1.0)
    more = random.normal(size=(features, count - len(kept)))
    return np.concatenate([found, more / np.linalg.norm(more, axis=0)], axis=1)
