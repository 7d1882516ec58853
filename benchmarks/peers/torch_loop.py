"""A loop over clients in plain PyTorch, as most research code has it: FedAvg and FedEM."""

from __future__ import annotations

import copy

import numpy as np
import torch

from benchmarks.peers.clock import Clock, work_file
from benchmarks.peers.torch_parts import accuracy, chosen, mixture_accuracy, network, tensors
from benchmarks.peers.work import load


def main() -> None:
    work, train, test = load(work_file())
    x, y = tensors(train, work.device)
    held_out = tensors(test, work.device)
    shared = [network(work, train.x.shape[2:], seed) for seed in range(work.components)]
    pi = torch.full((work.clients, work.components), 1 / work.components)
    loss = torch.nn.functional.cross_entropy
    averaged = lambda model: [v for v in model.state_dict().values() if v.is_floating_point()]  # statistics, too
    rng = np.random.default_rng(0)
    clock = Clock(work)

    def score() -> float:
        return accuracy(shared[0], held_out) if work.components == 1 else mixture_accuracy(shared, pi, held_out)

    clock.ready()
    for _ in range(work.rounds):
        clients = chosen(work, rng)
        means = [[torch.zeros_like(p) for p in averaged(model)] for model in shared]
        for t in clients:
            q = None
            if work.components > 1:
                with torch.no_grad():
                    losses = torch.stack([loss(model(x[t]), y[t], reduction="none") for model in shared], 1)
                    q = torch.softmax(torch.log(pi[t]) - losses, 1)
                    pi[t] = q.mean(0)
            for m, model in enumerate(shared):
                local = copy.deepcopy(model)
                optimizer = torch.optim.SGD(
                    local.parameters(), lr=work.lr, momentum=work.momentum, weight_decay=work.decay
                )
                for rows in torch.randperm(work.rows, device=work.device).split(work.batch):
                    optimizer.zero_grad(set_to_none=True)
                    each = loss(local(x[t][rows]), y[t][rows], reduction="none")
                    (each.mean() if q is None else (q[rows, m] * each).mean()).backward()
                    optimizer.step()
                for mean, p in zip(means[m], averaged(local), strict=True):
                    mean += p / len(clients)
        with torch.no_grad():
            for model, mean in zip(shared, means, strict=True):
                for p, value in zip(averaged(model), mean, strict=True):
                    p.copy_(value)
        clock.round(score)
    clock.finish(version=f"torch {torch.__version__}")


if __name__ == "__main__":
    main()
