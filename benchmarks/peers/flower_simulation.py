"""Flower's own simulation on Ray: its FedAvg strategy, with clients in PyTorch as in its quickstart."""

from __future__ import annotations

import os
import sys
from importlib.metadata import version

os.environ |= {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1", "RAY_DEDUP_LOGS": "0"}

import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation

from benchmarks.peers.clock import Clock, work_file
from benchmarks.peers.torch_parts import accuracy, network, tensors
from benchmarks.peers.work import load

FILE = work_file() if len(sys.argv) > 1 else ""
client_app, server_app = ClientApp(), ServerApp()
held: list = []  # the rows, once per worker process


@client_app.train()
def train(message: Message, context: Context) -> Message:
    """One local epoch of a client."""
    if not held:
        torch.set_num_threads(1)  # a worker has one core
        work, rows, _ = load(os.environ["PEERS_WORK"])
        held.extend([work, *tensors(rows), network(work, rows.x.shape[2:])])
    work, x, y, model = held
    t = int(context.node_config["partition-id"])
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    optimizer = torch.optim.SGD(model.parameters(), lr=work.lr)
    for rows in torch.randperm(work.rows).split(work.batch):
        optimizer.zero_grad(set_to_none=True)
        torch.nn.functional.cross_entropy(model(x[t][rows]), y[t][rows]).backward()
        optimizer.step()
    content = {"arrays": ArrayRecord(model.state_dict()), "metrics": MetricRecord({"num-examples": work.rows})}
    return Message(content=RecordDict(content), reply_to=message)


@server_app.main()
def serve(grid: Grid, context: Context) -> None:
    """Flower's loop; its central evaluation is where a round ends for the clock."""
    work, rows, test = load(FILE)
    model, held_out = network(work, rows.x.shape[2:]), tensors(test)
    clock = Clock(work)

    def after(done: int, arrays: ArrayRecord) -> MetricRecord:
        if done:
            model.load_state_dict(arrays.to_torch_state_dict())
            clock.round(lambda: accuracy(model, held_out))
        else:
            clock.ready()
        return MetricRecord({"round": done})

    share = work.sampled / work.clients
    strategy = FedAvg(
        fraction_train=share,
        fraction_evaluate=0.0,
        min_train_nodes=work.sampled,
        min_evaluate_nodes=0,
        min_available_nodes=work.clients,
    )
    strategy.start(grid=grid, initial_arrays=ArrayRecord(model.state_dict()), num_rounds=work.rounds, evaluate_fn=after)
    clock.finish(version=f"flwr {version('flwr')}, torch {torch.__version__}")


if __name__ == "__main__":
    os.environ["PEERS_WORK"] = FILE
    resources = {"client_resources": {"num_cpus": 1, "num_gpus": 0.0}}
    work, _, _ = load(FILE)
    run_simulation(server_app, client_app, num_supernodes=work.clients, backend_config=resources)
