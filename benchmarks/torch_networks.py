"""MobileNet-v2, the papers' CNN and LSTM as one would write them in PyTorch, and a FedAvg round in two ways."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

STAGES = ((1, 1, 1, 16), (2, 2, 6, 24), (3, 2, 6, 32), (4, 2, 6, 64), (3, 1, 6, 96), (3, 2, 6, 160), (1, 1, 6, 320))


def mobilenet(classes: int, *, track: bool, stages: tuple = STAGES) -> Any:
    """MobileNet-v2; ``track`` keeps running statistics, as training one client after the other does.

    Without, batch normalisation is written out, because a compiled ``vmap`` of PyTorch's own fails.
    """
    import torch
    from torch import nn

    class BatchStatistics(nn.Module):
        def __init__(self, channels: int) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(channels, 1, 1))
            self.bias = nn.Parameter(torch.zeros(channels, 1, 1))

        def forward(self, x: Any) -> Any:
            variance, mean = torch.var_mean(x, dim=(0, 2, 3), correction=0, keepdim=True)
            return (x - mean) * torch.rsqrt(variance + 1e-5) * self.weight + self.bias

    def conv(a: int, b: int, kernel: int, stride: int = 1, groups: int = 1, act: bool = True) -> list[Any]:
        layers = [
            nn.Conv2d(a, b, kernel, stride, kernel // 2, groups=groups, bias=False),
            nn.BatchNorm2d(b) if track else BatchStatistics(b),
        ]
        return [*layers, nn.ReLU6()] if act else layers

    class Block(nn.Module):
        def __init__(self, a: int, b: int, stride: int, expansion: int) -> None:
            super().__init__()
            h = a * expansion
            wide = conv(a, h, 1) if expansion != 1 else []
            self.body = nn.Sequential(*wide, *conv(h, h, 3, stride, groups=h), *conv(h, b, 1, act=False))
            self.added = stride == 1 and a == b

        def forward(self, x: Any) -> Any:
            return x + self.body(x) if self.added else self.body(x)

    layers, channels = conv(3, 32, 3, 2), 32
    for repeats, stride, expansion, out in stages:
        for i in range(repeats):
            layers.append(Block(channels, out, stride if i == 0 else 1, expansion))
            channels = out
    tail = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(1280, classes)]
    return nn.Sequential(*layers, *conv(channels, 1280, 1), *tail)


def cnn(classes: int, shape: tuple[int, ...] = (28, 28, 1)) -> Any:
    """The papers' network for images (h, w, c)."""
    from torch import nn

    return nn.Sequential(
        nn.Conv2d(shape[2], 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(64 * (shape[0] // 4) * (shape[1] // 4), 128), nn.ReLU(), nn.Linear(128, classes),
    )  # fmt: skip


def lstm(codes: int, *, embedding: int = 8, hidden: int = 256) -> Any:
    """The papers' network for text (n, length): outputs (n, codes, length) after each character."""
    from torch import nn

    class Network(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(codes, embedding)
            self.layers = nn.LSTM(embedding, hidden, 2, batch_first=True)
            self.dense = nn.Linear(hidden, codes)

        def forward(self, x: Any) -> Any:
            return self.dense(self.layers(self.embedding(x.long()))[0]).transpose(1, 2)

    return Network()


def pixels(x: Any) -> Any:
    """Bytes of images as numbers from 0 to 1."""
    return x.float() / 255


def on_device(x: np.ndarray, y: np.ndarray) -> tuple[Any, Any]:
    """Images (clients, n, h, w, c) of bytes as (clients, n, c, h, w), or texts, and labels, where PyTorch computes."""
    import torch

    device = "cuda" if torch.cuda.is_available() else "cpu"
    samples, labels = torch.from_numpy(x).to(device), torch.from_numpy(y).long().to(device)
    return samples.permute(0, 1, 4, 2, 3).contiguous() if samples.ndim == 5 else samples, labels


def finish() -> None:
    """Waits until the device is done."""
    import torch

    if torch.cuda.is_available():
        torch.cuda.synchronize()


def loop_round(
    make: Callable[[], Any],
    x: Any,
    y: Any,
    *,
    steps: int,
    batch: int,
    lr: float,
    read: Callable[[Any], Any] = pixels,
) -> Callable[[], None]:
    """A round that trains one client after the other."""
    import torch

    shared = make().to(x.device)
    local = make().to(x.device)

    def work() -> None:
        total = {name: torch.zeros_like(v, dtype=torch.float32) for name, v in shared.state_dict().items()}
        for own_x, own_y in zip(x, y, strict=True):
            local.load_state_dict(shared.state_dict())
            optimizer = torch.optim.SGD(local.parameters(), lr=lr, momentum=0.9)
            for _ in range(steps):
                rows = torch.randint(len(own_y), (batch,), device=x.device)
                optimizer.zero_grad()
                torch.nn.functional.cross_entropy(local(read(own_x[rows])), own_y[rows]).backward()
                optimizer.step()
            for name, value in local.state_dict().items():
                total[name] += value / len(y)
        shared.load_state_dict({name: v.to(shared.state_dict()[name].dtype) for name, v in total.items()})
        finish()

    return work


def side_by_side_round(
    make: Callable[[], Any], x: Any, y: Any, *, steps: int, batch: int, lr: float, compiled: bool
) -> Callable[[], None]:
    """A round that trains all clients at once: ``torch.func.vmap`` of the gradient, compiled where asked for."""
    import torch

    module = make().to(x.device)
    shared = {name: v.detach() for name, v in module.named_parameters()}

    def loss(params: dict, x: Any, y: Any) -> Any:
        outputs = torch.func.functional_call(module, params, (x.float() / 255,))
        return torch.nn.functional.cross_entropy(outputs, y)

    gradient = torch.func.vmap(torch.func.grad(loss))

    def step(params: dict, moments: dict, x: Any, y: Any) -> tuple[dict, dict]:
        found = gradient(params, x, y)
        moments = {name: 0.9 * moments[name] + found[name] for name in found}
        return {name: params[name] - lr * moments[name] for name in params}, moments

    run = torch.compile(step) if compiled else step
    each = torch.arange(len(y), device=x.device)[:, None]

    def work() -> None:
        params = {name: v.expand(len(y), *v.shape).clone() for name, v in shared.items()}
        moments = {name: torch.zeros_like(v) for name, v in params.items()}
        for _ in range(steps):
            rows = torch.randint(y.shape[1], (len(y), batch), device=x.device)
            params, moments = run(params, moments, x[each, rows], y[each, rows])
        for name, value in params.items():
            shared[name] = value.mean(0)
        finish()

    return work


def timed(work: Callable[[], None], seconds: float) -> dict[str, float]:
    """The first call, which compiles, and the shortest of the calls that fit into some seconds after it."""
    begin = time.perf_counter()
    work()
    first = time.perf_counter() - begin
    best, end, calls = float("inf"), time.perf_counter() + seconds, 0
    while calls < 2 or (time.perf_counter() < end and calls < 20):
        begin = time.perf_counter()
        work()
        best, calls = min(best, time.perf_counter() - begin), calls + 1
    return {"first_seconds": first, "round_seconds": best, "calls": calls}
