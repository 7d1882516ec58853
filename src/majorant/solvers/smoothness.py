"""A step size that is stable for local gradient descent on linear models, whatever the scale of the features."""

from __future__ import annotations

import itertools
import math

import numpy as np

from majorant.data.federated import Ragged, offsets_of
from majorant.models.base import Model
from majorant.models.cost import parameter_count

LOOKED_AT = 1 << 22  # numbers: of larger data, a part is looked at
IN_CACHE = 1 << 16  # numbers
POWER_STEPS = 12
CURVATURES = {"squared": 1.0, "logistic": 0.25, "cross_entropy": 0.5}  # of losses in their outputs, at most


def stable_step(samples: Ragged, curvature: float, batch_size: int | None, *, every_batch: bool = False) -> float:
    """1/L(b), the smoothness that a minibatch of b rows is expected to have on the steepest client.

    With rows x̃ = (x, 1) and λ the largest eigenvalue of a client's (1/n) Σ x̃ x̃ᵀ, L(b) = curvature · (λ + (n − b) /
    (b (n − 1)) · max ‖x̃‖²). It bounds the expected smoothness of minibatches without replacement in Gower et al., *SGD:
    general analysis and improved rates*, ICML 2019, where λ has the factor n (b − 1) / (b (n − 1)) ≤ 1. A step of 2/L
    would still be stable for whole batches. ``curvature`` bounds the loss's second derivative in the model's output. An
    epoch's last batch may be smaller, and is steeper then: b is its size, if ``every_batch`` must be stable, as it must
    with much momentum.

    >>> x = np.array([[3.0], [3.0]])
    >>> round(stable_step(Ragged(x, np.zeros(2), np.array([0, 2])), 1.0, None), 6)
    0.1
    >>> round(stable_step(Ragged(np.full((3, 1), 3.0), np.zeros(3), np.array([0, 3])), 1.0, 2, every_batch=True), 6)
    0.05
    """
    x, sizes = thinned(samples)
    squares = np.einsum("nd,nd->n", x, x) + 1
    begin = offsets_of(sizes)[:-1]
    longest = np.maximum.reduceat(squares, begin)
    steepest = largest_eigenvalues(x, sizes)
    rows = np.minimum(sizes, batch_size or sizes)
    if every_batch:
        rows = np.where(sizes % rows, sizes % rows, rows)
    smoothness = steepest + (sizes - rows) / (rows * np.maximum(sizes - 1, 1)) * longest
    return float(1 / (curvature * smoothness.max()))


def curvature_of(model: Model) -> float | None:
    """The largest second derivative of the loss in the outputs of a linear model; None for others, which need a rate.

    A convex model need not be linear in its samples: a head over fixed layers is linear in what these make of them.
    """
    weights = (math.prod(model.spec.features) + 1) * model.loss.outputs(model.spec.classes)
    linear = model.convex and parameter_count(model) == weights
    return CURVATURES.get(model.loss.name) if linear else None


def largest_eigenvalues(x: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """The largest eigenvalue of each client's (1/n) Σ x̃ x̃ᵀ, ``(clients,)``, by power iteration.

    Some clients go side by side: as many as a cache holds, because their rows are read again in every step.
    """
    ends, rng = offsets_of(sizes), np.random.default_rng(0)  # only a direction to start from
    start = rng.normal(size=(len(sizes), x.shape[1] + 1))
    first = np.unique(ends[:-1] // max(1, IN_CACHE // x.shape[1]), return_index=True)[1]
    pieces = itertools.pairwise([*first, len(sizes)])
    return np.concatenate([power_iteration(x[ends[a] : ends[b]], sizes[a:b], start[a:b]) for a, b in pieces])


def power_iteration(x: np.ndarray, sizes: np.ndarray, v: np.ndarray) -> np.ndarray:
    """The largest eigenvalues of some clients, from the directions ``v``."""
    rows, begin = np.column_stack([x, np.ones(len(x))]), offsets_of(sizes)[:-1]
    values = np.zeros(len(sizes))
    for _ in range(POWER_STEPS):
        v = v / np.linalg.norm(v, axis=1, keepdims=True)
        along = np.einsum("nd,nd->n", rows, np.repeat(v, sizes, axis=0))
        v = np.add.reduceat(rows * along[:, None], begin) / sizes[:, None]
        values = np.linalg.norm(v, axis=1)
    return values


def thinned(samples: Ragged) -> tuple[np.ndarray, np.ndarray]:
    """Rows in double precision and the sizes of the clients that have some: every k-th row where there are many."""
    every = -(-samples.x.size // LOOKED_AT)
    rows = np.arange(0, len(samples.x), every)
    owner = np.searchsorted(samples.offsets, rows, side="right") - 1
    x = samples.x[rows].reshape(len(rows), -1).astype(np.float64)
    return x / 255 if samples.x.dtype == np.uint8 else x, np.unique(owner, return_counts=True)[1]
