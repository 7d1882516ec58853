"""FedMM-OT: rounds a second against a PyTorch loop over clients, with the benchmark's dense convex network in both.

Ten clients take a gradient step on 1,024 samples and 1,024 of the reference; the server steps with Adam along their
mean and takes ten steps on the conjugate. The loop does the same, client by client, in full 32-bit precision like ours.
Ours is also timed with five seeds side by side. Run: python -m benchmarks.transport [dimension ...] [--out FILE]
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np
import optax

import majorant as mj
from benchmarks.machine import need_torch
from majorant.data.federated import FederatedData
from majorant.methods import best_response
from majorant.models.convex import dense_icnn
from majorant.surrogates import transport_potentials

CLIENTS, SAMPLES, BATCH, INNER, RATE = 10, 2048, 1024, 10, 1e-3


def problem(dimension: int, clients: int = CLIENTS, samples: int = SAMPLES) -> tuple[FederatedData, np.ndarray]:
    """Clients around centres of their own, and a reference of a few blobs."""
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(clients, dimension))
    x = np.repeat(centres, samples, axis=0) + 0.5 * rng.normal(size=(clients * samples, dimension))
    blobs = rng.normal(size=(10, dimension))
    y = blobs[rng.integers(0, 10, 4 * samples)] + 0.3 * rng.normal(size=(4 * samples, dimension))
    data = FederatedData.unlabelled(x.astype(np.float32), clients=np.repeat(np.arange(clients), samples))
    return data, y.astype(np.float32)


def ours(dimension: int, rounds: int, seeds: int = 1, batch: int = BATCH) -> tuple[float, float]:
    """Seconds of a round of all seeds, and seconds of compiling."""
    data, y = problem(dimension)
    game = transport_potentials(dense_icnn(dimension), y, batch=batch)
    algorithm = best_response(
        game,
        local=mj.local_sgd(0.01, steps=1, batch_size=batch),
        server=optax.adam(RATE),
        inner=optax.adam(RATE),
        inner_steps=INNER,
    )
    with jax.default_matmul_precision("highest"):
        run = lambda: mj.simulate(algorithm, data, rounds=rounds, seeds=seeds, evaluation=mj.Evaluation(every=rounds))
        compiling = run().seconds["compile"]
        return min(run().seconds["train"] for _ in range(3)) / rounds, compiling


def dense_network(dimension: int) -> Any:
    """The dense convex network as a PyTorch module, at the same start as ours."""
    import torch
    from torch import nn

    start = dense_icnn(dimension).init(jax.random.key(0))

    class Dense(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weights = nn.ParameterDict(
                {name: nn.Parameter(torch.tensor(np.array(v))) for name, v in start.items()}
            )

        def forward(self, x: Any) -> Any:
            w = self.weights
            q = [(x @ w[f"A{layer}"]) ** 2 + x @ w[f"B{layer}"] + w[f"c{layer}"] for layer in range(3)]
            z = nn.functional.celu(q[0] @ w["U1"] + q[1])
            z = nn.functional.celu(z @ w["U2"] + q[2])
            return z @ w["u"] + 1e-4 / 2 * (x**2).sum(dim=-1)

        def push(self, x: Any, *, graph: bool = False) -> Any:
            x = x if x.requires_grad else x.detach().requires_grad_(True)
            return torch.autograd.grad(self(x).sum(), x, create_graph=graph)[0]

        def clip(self) -> None:
            with torch.no_grad():
                for name in ("U1", "U2", "u"):
                    self.weights[name].clamp_(min=0)

    return Dense()


def loop(dimension: int, rounds: int, batch: int = BATCH, device: str | None = None) -> float:
    """Seconds of a round as one would write it in PyTorch."""
    import torch

    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    torch.backends.cuda.matmul.allow_tf32 = False
    data, reference = problem(dimension)
    clients = [torch.tensor(data.train.client(c)[0], device=device) for c in range(data.clients)]
    public = torch.tensor(reference, device=device)
    f, g = dense_network(dimension).to(device), dense_network(dimension).to(device)
    outer, inner = torch.optim.Adam(f.parameters(), lr=RATE), torch.optim.Adam(g.parameters(), lr=RATE)
    parameters = list(f.parameters())
    rows = lambda x: x[torch.randint(len(x), (batch,), device=device)]

    def one_round() -> None:
        total = [torch.zeros_like(p) for p in parameters]
        for x in clients:
            back = g.push(rows(public)).detach()
            loss = f(rows(x)).mean() - f(back).mean()
            for sum_, slope in zip(total, torch.autograd.grad(loss, parameters), strict=True):
                sum_ += slope / len(clients)
        for p, slope in zip(parameters, total, strict=True):
            p.grad = slope
        outer.step()
        f.clip()
        for _ in range(INNER):
            y = rows(public)
            back = g.push(y, graph=True)
            loss = (f(back) - (back * y).sum(dim=1)).mean()
            inner.zero_grad()
            loss.backward(inputs=list(g.parameters()))
            inner.step()
            g.clip()

    def timed(count: int) -> float:
        begin = time.perf_counter()
        for _ in range(count):
            one_round()
        if device == "cuda":
            torch.cuda.synchronize()
        return (time.perf_counter() - begin) / count

    timed(2)
    return min(timed(max(2, rounds // 3)) for _ in range(3))


def compare(dimension: int, rounds: int, loop_rounds: int) -> dict[str, float]:
    """Milliseconds of a round by each, and how many times more of ours fit a second."""
    alone, compiling = ours(dimension, rounds)
    together, _ = ours(dimension, rounds, seeds=5)
    torch = loop(dimension, loop_rounds)
    return {
        "dimension": dimension,
        "ours_ms": 1e3 * alone,
        "ours_five_seeds_ms": 1e3 * together,
        "compile_s": compiling,
        "torch_loop_ms": 1e3 * torch,
        "ratio": torch / alone,
        "ratio_five_seeds": 5 * torch / together,
    }


def main() -> None:
    """Prints a line for each dimension, and writes them."""
    need_torch()
    parser = argparse.ArgumentParser()
    parser.add_argument("dimensions", nargs="*", type=int, default=[2])
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--loop-rounds", type=int, default=60)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    device, found = jax.devices()[0].device_kind, []
    for dimension in given.dimensions:
        found.append(compare(dimension, given.rounds, given.loop_rounds) | {"device": device})
        print({k: round(v, 3) if isinstance(v, float) else v for k, v in found[-1].items()}, flush=True)
        if given.out is not None:
            given.out.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
