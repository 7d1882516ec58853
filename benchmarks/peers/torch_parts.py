"""Networks, clients' rows and accuracy in PyTorch, for the tools that are built on it."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from benchmarks import torch_networks
from benchmarks.peers.work import Split, Work


class Pixels(torch.nn.Module):
    """Bytes as numbers from 0 to 1."""

    def forward(self, x: Any) -> Any:
        return x.float() / 255


def network(work: Work, features: tuple[int, ...], seed: int | None = 0, *, track: bool = True) -> Any:
    """The model of a piece of work, on its device: logits of rows.

    Without a seed it is drawn where the generator stands. On a GPU, convolutions are the quickest that cuDNN finds, and
    products are in TF32, as those of JAX are. ``track``: see `torch_networks.mobilenet`.
    """
    if seed is not None:
        torch.manual_seed(seed)
    if work.device == "cuda":
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
        torch.backends.cudnn.benchmark, torch.backends.cudnn.deterministic = True, False
    if work.images:
        if work.model == "cnn":
            layers = torch_networks.cnn(work.classes, features)
        else:
            layers = torch_networks.mobilenet(work.classes, track=track)
        return torch.nn.Sequential(Pixels(), *layers).to(work.device)
    return on_features(work, features)


def on_features(work: Work, features: tuple[int, ...]) -> Any:
    """The models of the small works."""
    inputs = int(np.prod(features))
    if work.model == "linear":
        return torch.nn.Linear(inputs, work.classes)
    if work.model == "mlp":
        layers = [torch.nn.Linear(inputs, work.hidden), torch.nn.ReLU(), torch.nn.Linear(work.hidden, work.classes)]
        return torch.nn.Sequential(*layers)
    return torch_networks.cnn(work.classes, features)


def tensors(split: Split, device: str = "cpu") -> tuple[Any, Any]:
    """Rows with channels first, as PyTorch has them, and labels."""
    x = torch.from_numpy(np.ascontiguousarray(split.x))
    if x.ndim == 5:
        x = x.permute(0, 1, 4, 2, 3).contiguous()
    return x.to(device), torch.from_numpy(split.y).to(device)


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
