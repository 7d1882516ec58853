"""PFLlib's FedAvg on our network and rows; run with the folder ``system`` of a clone of PFLlib as second argument.

It imports packages for its own evaluation, results and attacks, which are not part of the timed work and may be absent.
"""

from __future__ import annotations

import argparse
import ast
import os
import random
import sys
from pathlib import Path

import numpy as np
import torch

from benchmarks.peers.absent import may_be_absent
from benchmarks.peers.clock import Clock, work_file
from benchmarks.peers.torch_parts import accuracy, network, tensors
from benchmarks.peers.work import folder, load


def defaults(main: Path) -> argparse.Namespace:
    """The defaults of PFLlib's command line, read from its source: they are made under ``if __name__``."""
    found = {}
    for node in ast.walk(ast.parse(main.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "add_argument":
            names = [a.value for a in node.args if isinstance(a, ast.Constant) and str(a.value).startswith("--")]
            value = [k.value for k in node.keywords if k.arg == "default"]
            if names and value:
                found[names[0][2:]] = ast.literal_eval(value[0])
    return argparse.Namespace(**found)


def main() -> None:
    """PFLlib reads clients' rows from files at each round; they are on a disk in memory."""
    work, train, test = load(work_file())
    system = Path(sys.argv[2]).resolve()
    own = folder()
    place = Path(own.name) / "dataset" / "rows"
    (Path(own.name) / "system").mkdir()
    (x, y), held_out = tensors(train), tensors(test, work.device)
    for part, rows, labels in (("train", x, y), ("test", *tensors(test))):
        (place / part).mkdir(parents=True)
        for t in range(work.clients):
            np.savez(place / part / f"{t}.npz", data={"x": rows[t].numpy(), "y": labels[t].numpy()})
    os.chdir(Path(own.name) / "system")
    sys.path.insert(0, str(system))
    may_be_absent("h5py", "matplotlib", "sklearn")
    from flcore.servers.serveravg import FedAvg

    np.random.seed(0)  # noqa: NPY002 - what it draws from
    random.seed(0)
    args = defaults(system / "main.py")
    args.__dict__ |= {
        "device": work.device, "dataset": "rows", "num_classes": work.classes,
        "model": network(work, train.x.shape[2:]),
        "batch_size": work.batch, "local_learning_rate": work.lr, "global_rounds": work.rounds - 1, "local_epochs": 1,
        "join_ratio": work.sampled / work.clients, "num_clients": work.clients, "eval_gap": 10 * work.rounds,
    }  # fmt: skip
    server = FedAvg(args, 0)
    clock = Clock(work)
    server.evaluate = lambda *_, **__: None  # accuracy is measured outside of the timed part, as for all tools
    server.rs_test_acc = [0.0]
    server.save_results = server.save_global_model = lambda: None
    inner = server.aggregate_parameters

    def aggregate() -> None:
        inner()
        clock.round(lambda: accuracy(server.global_model, held_out))

    server.aggregate_parameters = aggregate
    clock.ready()
    server.train()
    clock.finish(version=f"PFLlib, torch {torch.__version__}")


if __name__ == "__main__":
    main()
