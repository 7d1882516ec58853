"""Networks, clients' rows and accuracy in PyTorch, for the tools that are built on it."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from benchmarks.peers.work import Split, Work


def network(work: Work, features: tuple[int, ...], seed: int | None = 0) -> Any:
    """The model of a piece of work: logits of rows. Without a seed it is drawn where the generator stands."""
    if seed is not None:
        torch.manual_seed(seed)
    inputs = int(np.prod(features))
    if work.model == "linear":
        return torch.nn.Linear(inputs, work.classes)
    if work.model == "mlp":
        layers = [torch.nn.Linear(inputs, work.hidden), torch.nn.ReLU(), torch.nn.Linear(work.hidden, work.classes)]
        return torch.nn.Sequential(*layers)
    return torch.nn.Sequential(
        torch.nn.Conv2d(1, 32, 3, padding=1), torch.nn.ReLU(), torch.nn.MaxPool2d(2),
        torch.nn.Conv2d(32, 64, 3, padding=1), torch.nn.ReLU(), torch.nn.MaxPool2d(2),
        torch.nn.Flatten(), torch.nn.Linear(64 * 49, 128), torch.nn.ReLU(), torch.nn.Linear(128, work.classes),
    )  # fmt: skip


def tensors(split: Split) -> tuple[Any, Any]:
    """Rows with channels first, as PyTorch has them, and labels."""
    x = torch.from_numpy(np.ascontiguousarray(split.x))
    if x.ndim == 5:
        x = x.permute(0, 1, 4, 2, 3).contiguous()
    return x, torch.from_numpy(split.y)


@torch.no_grad()
def accuracy(model: Any, test: tuple[Any, Any]) -> float:
    """The share of all test rows that are right."""
    x, y = test
    rows = x.reshape(-1, *x.shape[2:])
    parts = zip(rows.split(4096), y.reshape(-1).split(4096), strict=True)
    return sum(int((model(part).argmax(1) == labels).sum()) for part, labels in parts) / y.numel()


@torch.no_grad()
def mixture_accuracy(models: Any, weights: Any, test: tuple[Any, Any]) -> float:
    """The same share for clients' own mixtures: probabilities of all models, weighted by ``weights[client]``."""
    x, y = test
    flat = x.reshape(-1, *x.shape[2:])
    p = torch.stack([torch.softmax(model(flat), -1).reshape(*y.shape, -1) for model in models], -1)
    return float(((p * weights[:, None, None, :]).sum(-1).argmax(-1) == y).float().mean())


def chosen(work: Work, rng: np.random.Generator) -> np.ndarray:
    """The clients of a round."""
    everyone = np.arange(work.clients)
    return rng.choice(everyone, work.sampled, replace=False) if work.sampled < work.clients else everyone
