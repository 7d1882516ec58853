"""What all tools do: federations of equal clients, a model, and local epochs of plain SGD that are averaged.

All clients have as many rows as whole batches hold, since some tools drop the last batch that is not whole.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np


class Work(NamedTuple):
    """A method on a model and data; rows are a client's training rows."""

    name: str
    method: str  # fedavg or fedem
    model: str  # linear, mlp, cnn or mobilenet
    clients: int
    rows: int
    sampled: int  # clients that take part in a round
    batch: int
    lr: float
    rounds: int
    target: float  # the test accuracy whose time is told
    components: int = 1
    momentum: float = 0.0
    decay: float = 0.0
    hidden: int = 64
    classes: int = 10
    images: bool = False  # made-up ones of 32×32×3 bytes
    few: int | None = None  # rounds of all tools but those in JAX, where rounds take long
    device: str = "cpu"  # or cuda


WORKS = (
    Work("FedAvg, linear, 300 clients", "fedavg", "linear", 300, 256, 300, 128, 0.3, 20, 0.78),
    Work("FedAvg, linear, 1,000 of 10,000 clients", "fedavg", "linear", 10_000, 32, 1_000, 32, 0.3, 20, 0.55),
    Work("FedAvg, MLP on digits, 50 clients", "fedavg", "mlp", 50, 32, 50, 16, 0.3, 40, 0.92),
    Work("FedAvg, CNN on Fashion-MNIST, 20 clients", "fedavg", "cnn", 20, 256, 20, 64, 0.05, 8, 0.70, few=5),
    Work("FedEM, linear, 300 clients", "fedem", "linear", 300, 256, 300, 128, 2.0, 40, 0.65, 3, few=20),
)

DEEP = (  # for a GPU
    Work("FedAvg, CNN on images, 100 clients", "fedavg", "cnn", 100, 512, 100, 128, 0.05, 40, 0.5, images=True, few=4),
    Work(
        "FedAvg, MobileNet-v2, 40 clients", "fedavg", "mobilenet", 40, 512, 40, 128, 0.05, 40, 0.5, images=True, few=3
    ),
)


def tiny(work: Work) -> Work:
    """The same for a try: three clients, two steps."""
    return work._replace(clients=3, sampled=3, rows=16, batch=8, rounds=2, few=2)


class Split(NamedTuple):
    """Rows of all clients: ``x[client, row]`` and ``y[client, row]``."""

    x: np.ndarray
    y: np.ndarray


def teachers(work: Work, features: int, seed: int = 0) -> tuple[Split, Split]:
    """Gaussian features, labels by one linear teacher, or by as many as there are components, mixed by the client."""
    rng = np.random.default_rng(seed)
    test = 64 if work.clients <= 1000 else 4
    weights = rng.normal(size=(work.components, features, work.classes))
    weights += np.sqrt(3) * rng.normal(size=(features, work.classes)) if work.components > 1 else 0.0
    x = rng.normal(size=(work.clients, work.rows + test, features)).astype(np.float32)
    shares = rng.dirichlet(np.full(work.components, 0.4), size=work.clients)
    which = np.stack([rng.choice(work.components, work.rows + test, p=share) for share in shares])
    y = np.empty(which.shape, np.int64)
    for k in range(work.components):
        scores = x @ weights[k] + rng.gumbel(scale=1.0, size=(*which.shape, work.classes))
        y = np.where(which == k, scores.argmax(-1), y)
    return Split(x[:, : work.rows], y[:, : work.rows]), Split(x[:, work.rows :], y[:, work.rows :])


def dealt(work: Work, x: np.ndarray, y: np.ndarray) -> tuple[Split, Split]:
    """Rows of one table, shuffled and dealt: each client its training rows, the rest are test rows, a few each."""
    order = np.random.default_rng(0).permutation(len(y))
    train = work.clients * work.rows
    each = min((len(y) - train) // work.clients, 64)
    if each < 1:
        raise ValueError(f"{work.name}: {len(y)} rows are too few for {work.clients} clients of {work.rows} rows")
    cut = lambda values, rows, count: values[rows].reshape(work.clients, count, *values.shape[1:])
    first, rest = order[:train], order[train : train + work.clients * each]
    return Split(cut(x, first, work.rows), cut(y, first, work.rows)), Split(cut(x, rest, each), cut(y, rest, each))


def patterns(work: Work) -> tuple[Split, Split]:
    """Images of noise and of the pattern of their class in large squares, in equal parts."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, work.classes, (work.clients, work.rows + 8))
    pattern = rng.integers(0, 128, (work.classes, 4, 4, 3), dtype=np.uint8).repeat(8, axis=1).repeat(8, axis=2)
    x = rng.integers(0, 128, (*y.shape, 32, 32, 3), dtype=np.uint8)
    x += pattern[y]
    return Split(x[:, : work.rows], y[:, : work.rows]), Split(x[:, work.rows :], y[:, work.rows :])


def samples(work: Work) -> tuple[Split, Split]:
    """The training and test rows of a piece of work."""
    if work.images:
        return patterns(work)
    if work.model == "linear":
        return teachers(work, 60 if work.clients <= 1000 else 20)
    if work.model == "mlp":
        from sklearn.datasets import load_digits

        x, y = load_digits(return_X_y=True)
        return dealt(work, (x / 16).astype(np.float32), y.astype(np.int64))
    import majorant as mj

    x, y = mj.data.load_fashion_mnist()
    return dealt(work, (x / 255).astype(np.float32), y.astype(np.int64))


def save(work: Work, data: tuple[Split, Split], path: Path) -> None:
    """Writes a piece of work with its training and test rows, for tools in other processes."""
    train, test = data
    settings = json.dumps(work._asdict())
    np.savez(path, train_x=train.x, train_y=train.y, test_x=test.x, test_y=test.y, settings=np.array(settings))


def load(path: str | Path) -> tuple[Work, Split, Split]:
    """What ``save`` has written."""
    with np.load(path, allow_pickle=False) as file:
        settings: dict[str, Any] = json.loads(str(file["settings"]))
        train, test = Split(file["train_x"], file["train_y"]), Split(file["test_x"], file["test_y"])
    return Work(**settings), train, test


def folder() -> tempfile.TemporaryDirectory:
    """A folder for files that a tool reads in each round: in memory, where there is room."""
    memory = Path("/dev/shm")
    return tempfile.TemporaryDirectory(dir=memory if memory.exists() and shutil.disk_usage(memory).free > 4e9 else None)
