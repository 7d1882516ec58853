"""All clients of a round side by side by ``torch.func.vmap`` of stacked parameters, compiled on a GPU only: FedAvg."""

from __future__ import annotations

import numpy as np
import torch
from torch.func import functional_call, grad, vmap

from benchmarks.peers.clock import Clock, work_file
from benchmarks.peers.torch_parts import accuracy, chosen, network, tensors
from benchmarks.peers.work import load


def main() -> None:
    work, train, test = load(work_file())
    x, y = tensors(train, work.device)
    held_out = tensors(test, work.device)
    model = network(work, train.x.shape[2:], track=False)
    shared = {name: p.detach() for name, p in model.named_parameters()}

    def loss(parameters, rows, labels):
        return torch.nn.functional.cross_entropy(functional_call(model, parameters, (rows,)), labels)

    gradients = vmap(grad(loss))

    def step(local, rows, labels):
        slope = gradients(local, rows, labels)
        return {name: p - work.lr * slope[name] for name, p in local.items()}

    run = torch.compile(step) if work.device == "cuda" else step
    rng = np.random.default_rng(0)
    clock = Clock(work)
    clock.ready()
    for _ in range(work.rounds):
        clients = torch.from_numpy(chosen(work, rng)).to(work.device)
        local = {name: p.expand(len(clients), *p.shape).clone() for name, p in shared.items()}
        order = torch.rand(len(clients), work.rows, device=work.device).argsort(1)
        for rows in order.split(work.batch, dim=1):
            batch = clients[:, None], rows
            local = run(local, x[batch], y[batch])
        shared = {name: p.mean(0) for name, p in local.items()}
        model.load_state_dict(shared)
        clock.round(lambda: accuracy(model, held_out))
    clock.finish(version=f"torch {torch.__version__}")


if __name__ == "__main__":
    main()
