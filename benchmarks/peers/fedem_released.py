"""The FedEM authors' released code on our rows; run with a clone of it as second argument.

It imports packages for its images, pictures, clusters and networks of peers, which tables of numbers do not use and
which may be absent.
"""

from __future__ import annotations

import argparse
import os
import pickle
import sys
from pathlib import Path

import torch

from benchmarks.peers.absent import may_be_absent
from benchmarks.peers.clock import Clock, work_file
from benchmarks.peers.work import folder, load


class Silent:
    """In the place of TensorBoard's writer."""

    def __init__(self, *_: object, **__: object) -> None:
        pass

    def add_scalar(self, *_: object, **__: object) -> None:
        pass


def main() -> None:
    """Its own clients, learners and aggregator; logging is switched off while rounds are timed."""
    work, train, test = load(work_file())
    if work.model != "linear":
        raise SystemExit("its networks are those of the paper: only linear models are the same")
    clone = Path(sys.argv[2]).resolve()
    own = folder()
    os.chdir(own.name)
    sys.path.insert(0, str(clone))
    sys.modules["torch.utils.tensorboard"] = argparse.Namespace(SummaryWriter=Silent)
    may_be_absent("torchvision", "PIL", "cvxpy", "networkx", "sklearn", "matplotlib", "tensorboard")
    import run_experiment as released

    place = Path("data/synthetic/all_data")
    for t in range(work.clients):
        client = place / "train" / f"task_{t}"
        client.mkdir(parents=True)
        for part, split in (("train", train), ("test", test)):
            with (client / f"{part}.pkl").open("wb") as file:
                pickle.dump(list(zip(split.x[t], split.y[t], strict=True)), file)
    args = argparse.Namespace(
        experiment="synthetic", method="FedEM" if work.method == "fedem" else "FedAvg", bz=work.batch, validation=False,
        n_learners=work.components, device="cpu", optimizer="sgd", lr_scheduler="constant", lr=work.lr, mu=0,
        input_dimension=train.x.shape[-1], output_dimension=work.classes, n_rounds=work.rounds, seed=0, q=1,
        local_steps=1, locally_tune_clients=False, lr_lambda=0, communication_probability=0.1, log_freq=10**9,
        sampling_rate=work.sampled / work.clients, verbose=0,
    )  # fmt: skip
    clients = released.init_clients(args, str(place / "train"), "logs")
    ensemble = released.get_learners_ensemble(
        n_learners=args.n_learners, name=args.experiment, device=args.device, optimizer_name=args.optimizer,
        scheduler_name=args.lr_scheduler, initial_lr=args.lr, input_dim=args.input_dimension,
        output_dim=args.output_dimension, n_rounds=args.n_rounds, seed=args.seed, mu=args.mu,
    )  # fmt: skip
    aggregator = released.get_aggregator(
        aggregator_type="centralized", clients=clients, global_learners_ensemble=ensemble, lr_lambda=0, lr=args.lr, q=1,
        mu=0, communication_probability=0.1, sampling_rate=args.sampling_rate, log_freq=args.log_freq,
        global_train_logger=Silent(), global_test_logger=Silent(), test_clients=[], verbose=0, seed=0,
    )  # fmt: skip

    for learner in [*ensemble, *(learner for client in clients for learner in client.learners_ensemble)]:
        for group in learner.optimizer.param_groups:  # its SGD has fixed ones
            group |= {"momentum": work.momentum, "weight_decay": work.decay}

    def score() -> float:
        aggregator.update_clients()
        return sum(client.write_logs()[3] for client in clients) / len(clients)

    clock = Clock(work)
    clock.ready()
    for _ in range(work.rounds):
        aggregator.mix()
        clock.round(score)
    clock.finish(version=f"released code, torch {torch.__version__}")


if __name__ == "__main__":
    main()
