"""Synthetic data of dictionary learning: sparse combinations of the atoms of a known dictionary.

    θ⋆ ~ N(0, 1)^{p×K},    z = θ⋆ h,    h with 20 % of its entries, at random places, from N(0, 1), and else 0

Reference: Dieuleveut et al., 2025, Section 6. The paper does not state p; here it is 20 unless given. It splits the
heterogeneous samples into clusters of equal size "while maximizing the average distance between clusters": that is
k-means with constrained cluster sizes (Bradley et al., 2000).
"""

from __future__ import annotations

import numpy as np

from majorant.data.checks import check_seed
from majorant.data.federated import FederatedData, Ragged, offsets_of
from majorant.data.partition import balanced_kmeans
from majorant.math.checks import check_whole
from majorant.math.room import refuse_too_large


def sparse_codes(
    *,
    clients: int = 20,
    atoms: int = 15,
    features: int = 20,
    samples: int = 250,
    density: float = 0.2,
    heterogeneous: bool = False,
    seed: int = 0,
) -> FederatedData:
    """``samples`` vectors for each client, without labels: the same for all, or (``heterogeneous``) clusters of many.

    Everything is training data, and labels are 0. ``truth`` holds ``theta``, the dictionary (p, K).

    >>> data = sparse_codes(clients=3, samples=10, features=5)
    >>> data.train.x.shape, bool((data.train.client(0)[0] == data.train.client(2)[0]).all())
    ((30, 5), True)
    """
    for name, value in {"clients": clients, "atoms": atoms, "features": features, "samples": samples}.items():
        check_whole(name, value)
    if not 0 < density <= 1:
        raise ValueError(f"density is the share of a code's entries that are not 0: in (0, 1], got {density}")
    refuse_too_large(
        f"{clients} clients with {samples} samples of {features} features",
        4 * clients * samples * (features + (4 * atoms if heterogeneous else 0)) + 8 * features * atoms,
        "give fewer clients, samples, features or atoms",
    )
    rng = np.random.default_rng(check_seed(seed))
    theta = rng.normal(size=(features, atoms))
    total = samples * clients if heterogeneous else samples
    places = np.argsort(rng.random((total, atoms)), axis=1) < max(round(density * atoms), 1)
    x = (np.where(places, rng.normal(size=(total, atoms)), 0) @ theta.T).astype(np.float32)
    rows = np.argsort(balanced_kmeans(x, clients, seed), kind="stable") if heterogeneous else np.arange(samples)
    rows = rows if heterogeneous else np.tile(rows, clients)
    name = "sparse-codes, heterogeneous" if heterogeneous else "sparse-codes"
    return without_labels(x[rows], np.full(clients, samples), name, theta)


def without_labels(x: np.ndarray, sizes: np.ndarray, name: str, theta: np.ndarray | None = None) -> FederatedData:
    """Federated data that only trains: samples client after client, labels 0."""
    train = Ragged(x, np.zeros(len(x), np.float32), offsets_of(sizes))
    empty = Ragged(x[:0], train.y[:0], np.zeros(len(sizes) + 1, np.int64))
    names = tuple(str(c) for c in range(len(sizes)))
    truth = {} if theta is None else {"theta": theta}
    return FederatedData(train, empty, empty, np.zeros(len(sizes), bool), names, (), name, truth)
