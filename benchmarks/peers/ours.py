"""Majorant on a piece of work; ``mixed`` as second argument asks for mixed precision."""

from __future__ import annotations

import itertools
import statistics
import sys

import jax
import numpy as np

import majorant as mj
from benchmarks.peers.clock import Clock, work_file
from benchmarks.peers.work import Split, Work, load
from majorant.data.federated import FederatedData, Ragged
from majorant.models import Model


def federation(work: Work, train: Split, test: Split) -> FederatedData:
    """The rows as the library holds them."""

    def ragged(split: Split) -> Ragged:
        clients, rows = split.y.shape
        return Ragged(split.x.reshape(-1, *split.x.shape[2:]), split.y.reshape(-1), rows * np.arange(clients + 1))

    nothing = Ragged(ragged(train).x[:0], ragged(train).y[:0], np.zeros(work.clients + 1, np.int64))
    names = tuple(map(str, range(work.clients)))
    classes = tuple(range(work.classes))
    return FederatedData(ragged(train), nothing, ragged(test), np.zeros(work.clients, bool), names, classes)


def network(work: Work, data: FederatedData) -> Model:
    """The model of a piece of work."""
    if work.model == "mobilenet":
        return mj.models.mobilenet_v2(data, dropout=0.0)
    return getattr(mj.models, work.model)(data, **({"hidden": (work.hidden,)} if work.model == "mlp" else {}))


def main() -> None:
    """Trains, and tells the time as the run does: compiling apart."""
    work, train, test = load(work_file())
    clock = Clock(work)
    data = federation(work, train, test)
    local = mj.local_sgd(work.lr, epochs=1, batch_size=work.batch, momentum=work.momentum, weight_decay=work.decay)
    model = network(work, data)
    model = mj.models.mixed_precision(model) if "mixed" in sys.argv else model
    if work.method == "fedem":
        algorithm = mj.fedem(model, components=work.components, local=local)
    else:
        algorithm = mj.fedavg(model, local=local)
    share = work.sampled / work.clients
    clock.ready()
    run = mj.simulate(
        algorithm,
        data,
        rounds=work.rounds,
        participation=mj.participation.uniform(share) if share < 1 else mj.participation.full(),
        evaluation=mj.Evaluation(every=max(1, work.rounds // 10)),
    )
    lines = [(0, 0.0), *((line["round"], line["seconds"]) for line in run.history if line["round"])]
    between = [(after[1] - before[1]) / (after[0] - before[0]) for before, after in itertools.pairwise(lines)]
    each = statistics.median(between)  # of a round, between evaluations
    clock.rounds = [run.seconds["compile"] + each] + [each] * (run.rounds - 1)
    clock.accuracy = [(line["round"], line["test_accuracy"]["mean"]) for line in run.history if line["round"]]
    clock.finish(version=f"jax {jax.__version__}", compile_s=run.seconds["compile"])


if __name__ == "__main__":
    main()
