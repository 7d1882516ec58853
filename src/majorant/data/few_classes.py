"""Clients that see a few of the classes: small samples of an image set, with standardised features of unit norm.

Every client is given k classes, and from these its own samples for training and for testing; no sample is used twice.
Features are standardised by columns, (x − mean)/deviation, with the mean and the deviation over the training samples
of all clients (a column that is constant there becomes 0), and then every sample is divided by its norm. So a linear
model with a bias, whose features end with a 1, has ‖x‖² ≤ 2, and one without has ‖x‖² ≤ 1.

Reference: Hanzely, Zhao, Kolar, *Personalized federated learning: a unified framework and universal optimization
techniques*, TMLR 2023, Section 6.1, which does not say over which samples the columns are standardised.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from majorant.data.checks import check_seed
from majorant.data.federated import PARTS, FederatedData
from majorant.data.partition import classes_per_client
from majorant.math.checks import check_whole

DRAW_STREAM = 2  # of random numbers: apart from those that assign classes, and those that split into parts
LUMA = (0.299, 0.587, 0.114)  # of red, green and blue, by ITU-R BT.601


def few_classes(
    x: np.ndarray,
    y: np.ndarray,
    *,
    k: int,
    clients: int = 20,
    samples: int = 100,
    test_samples: int = 300,
    seed: int = 0,
    name: str = "data",
) -> FederatedData:
    """Clients with k classes each, ``samples`` to train on and ``test_samples`` to test on; see the module.

    >>> from majorant.data.images import load_digits
    >>> data = few_classes(*load_digits(), k=2, clients=5, samples=40, test_samples=60)
    >>> data.train.sizes.tolist(), len(set(data.train.client(0)[1].tolist()))
    ([40, 40, 40, 40, 40], 2)
    """
    for word, value in {"samples": samples, "test_samples": test_samples}.items():
        check_whole(word, value)
    owner = classes_per_client(y, clients, k, seed)
    wanted, held = samples + test_samples, np.bincount(owner, minlength=clients)
    if held.min() < wanted:
        raise ValueError(
            f"each of {clients} clients needs {wanted} samples of its own, but one has {held.min()} of the {len(y)}: "
            "use fewer clients or samples"
        )
    rng = np.random.default_rng([check_seed(seed), DRAW_STREAM])
    order = np.lexsort((rng.random(len(owner)), owner))  # by client, shuffled within
    begins = np.cumsum(held) - held
    rows = (begins[:, None] + np.arange(wanted)).ravel()
    chosen = order[rows]
    flat = np.asarray(x)[chosen].reshape(len(chosen), -1)
    share = samples / wanted
    data = FederatedData.from_arrays(
        flat.astype(np.float32),
        np.asarray(y)[chosen],
        owner[chosen],
        split=(share, 0.0, 1 - share),
        seed=seed,
        name=name,
    )
    return unit_norm(standardised(data))


def standardised(data: FederatedData) -> FederatedData:
    """Columns with mean 0 and variance 1 over all training samples; those that are constant there become 0."""
    rows = data.train.x.astype(np.float64)
    mean, deviation = rows.mean(axis=0), rows.std(axis=0)
    varies = np.ptp(rows, axis=0) > 0
    divisor = np.where(varies, deviation, 1.0)
    scale = lambda x: np.where(varies, (x - mean) / divisor, 0.0).astype(np.float32)
    return with_features(data, scale)


def unit_norm(data: FederatedData) -> FederatedData:
    """Every sample divided by its norm; a sample of zeros stays."""

    def scale(x: np.ndarray) -> np.ndarray:
        norms = np.linalg.norm(x, axis=1, keepdims=True)
        return (x / np.where(norms > 0, norms, 1.0)).astype(np.float32)

    return with_features(data, scale)


def with_features(data: FederatedData, change: Callable[[np.ndarray], np.ndarray]) -> FederatedData:
    """The data with its samples changed in all parts."""
    parts = {part: getattr(data, part) for part in PARTS}
    return replace(data, **{part: ragged._replace(x=change(ragged.x)) for part, ragged in parts.items()})


def gray(x: np.ndarray) -> np.ndarray:
    """Colour images ``(N, H, W, 3)`` as gray ones ``(N, H, W, 1)``, by their luma.

    >>> gray(np.array([[[[255, 0, 0], [100, 100, 100]]]], np.uint8))[0, 0, :, 0].round().astype(int).tolist()
    [76, 100]
    """
    return np.asarray(x @ np.asarray(LUMA, np.float32), np.float32)[..., None]
