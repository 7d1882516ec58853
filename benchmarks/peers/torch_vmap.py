"""All clients of a round side by side by ``torch.func.vmap`` over stacked parameters, not compiled: FedAvg."""

from __future__ import annotations

import numpy as np
import torch
from torch.func import functional_call, grad, vmap

from benchmarks.peers.clock import Clock, work_file
from benchmarks.peers.torch_parts import accuracy, chosen, network, tensors
from benchmarks.peers.work import load


def main() -> None:
    work, train, test = load(work_file())
    x, y = tensors(train)
    held_out = tensors(test)
    model = network(work, train.x.shape[2:])
    shared = {name: p.detach() for name, p in model.named_parameters()}

    def loss(parameters, rows, labels):
        return torch.nn.functional.cross_entropy(functional_call(model, parameters, (rows,)), labels)

    gradients = vmap(grad(loss))
    rng = np.random.default_rng(0)
    clock = Clock(work)
    clock.ready()
    for _ in range(work.rounds):
        clients = torch.from_numpy(chosen(work, rng))
        local = {name: p.expand(len(clients), *p.shape).clone() for name, p in shared.items()}
        order = torch.rand(len(clients), work.rows).argsort(1)
        for rows in order.split(work.batch, dim=1):
            batch = clients[:, None], rows
            step = gradients(local, x[batch], y[batch])
            local = {name: p - work.lr * step[name] for name, p in local.items()}
        shared = {name: p.mean(0) for name, p in local.items()}
        model.load_state_dict(shared)
        clock.round(lambda: accuracy(model, held_out))
    clock.finish(version=f"torch {torch.__version__}")


if __name__ == "__main__":
    main()
