"""What the partitions share: their checks, and how samples are dealt out when a client or a label runs short."""

from __future__ import annotations

import heapq

import numpy as np

from majorant.data.checks import check_seed
from majorant.math.checks import check_whole

PARTITION_STREAM = 1


def stream(seed: int) -> np.random.Generator:
    """The random numbers of a partition: not those that split a client's samples, which come from the bare seed.

    With the same numbers for both, which samples a client has and which of them it trains on would depend on each
    other, and its test samples would not be like its training samples.
    """
    return np.random.default_rng([check_seed(seed), PARTITION_STREAM])


def check_sizes(n: int, clients: int, min_samples: int = 1) -> None:
    """Refuses more clients than the samples can serve."""
    check_whole("clients", clients)
    check_whole("min_samples", min_samples)  # a client without samples does not exist
    if clients * min_samples > n:
        each = f" with at least {min_samples} samples each" if min_samples > 1 else ""
        raise ValueError(f"{n} samples are too few for {clients} clients{each}: use at most {n // min_samples} clients")


def check_positive(**parameters: float) -> None:
    """Refuses Dirichlet parameters that are not positive."""
    for name, value in parameters.items():
        if not 0 < value < np.inf:
            raise ValueError(f"{name}, the parameter of a Dirichlet distribution, must be positive, got {value}")


def rows_by_label(rng: np.random.Generator, labels: np.ndarray) -> list[np.ndarray]:
    """The sample numbers of each label, shuffled."""
    codes = np.unique(labels, return_inverse=True)[1]
    order = np.lexsort((rng.random(len(codes)), codes))
    return np.split(order, np.cumsum(np.bincount(codes))[:-1])


def filled_up(rng: np.random.Generator, owner: np.ndarray, clients: int, least: int) -> np.ndarray:
    """Moves samples from the largest clients so that each has at least ``least``."""
    sizes = np.bincount(owner, minlength=clients)
    missing = np.maximum(least - sizes, 0)
    heap = [(-int(size), client) for client, size in enumerate(sizes)]
    heapq.heapify(heap)
    kept = sizes.copy()
    for _ in range(missing.sum()):
        size, client = heap[0]
        heapq.heapreplace(heap, (size + 1, client))
        kept[client] -= 1
    order = np.lexsort((rng.random(len(owner)), owner))
    rank = np.arange(len(owner)) - (np.cumsum(sizes) - sizes)[owner[order]]
    moved = order[rank >= kept[owner[order]]]
    owner[moved] = rng.permutation(np.repeat(np.arange(clients), missing))
    return owner


def allocate(rng: np.random.Generator, count: int, weights: np.ndarray, available: np.ndarray) -> np.ndarray:
    """How often each label is drawn in ``count`` draws without replacement: what is used up leaves the weights.

    Draws that land on a label beyond its supply are drawn again, which has the same law as renormalising at each draw.
    """
    taken = np.zeros_like(available)
    while count > 0:
        open_weights = np.where(taken < available, weights, 0.0)
        if not open_weights.sum() > 0:  # weights so small that they are zero in floating point
            open_weights = (taken < available).astype(float)
        drawn = rng.multinomial(count, open_weights / open_weights.sum())
        accepted = np.minimum(drawn, available - taken)
        taken += accepted
        count -= int(accepted.sum())
    return taken
