"""The FedEM paper's deep rows: CIFAR-10, CIFAR-100 and Shakespeare.

The paper's MobileNet-v2 starts from ImageNet weights in the authors' released code. Those are not part of the data that
`majorant` loads; EfficientNet-Lite0, a near relative with free weights, stands in for it and is named in each table.
Images stay 32×32. CIFAR-10 has 80 clients: the released code (``split="released"``) spreads three groups of labels by
Dirichlet(0.4) and splits 80/20; the paper's text (``"paper"``) spreads each label and splits 60/20/20. CIFAR-100 has
100 clients by Pachinko allocation with α = 0.4 and β = 10, and the same two splits. Shakespeare's roles are split 80/20
in the order of their lines; a stacked LSTM learns the next character after 80. Settings are the released ones:
momentum 0.9 kept on the client (0 for FedProx and pFedMe), weight decay 5e-4, batches of 128 (of images, without an
epoch's remainder), one local epoch, learning rate ×0.1 at 1/2 and 3/4 of the rounds, no augmentation.

A GPU is needed. While a method trains the next one is compiled, and results are saved at every evaluation. A method
may have settings of its own behind ``@``, which are the options below::

    python -m majorant_reproductions.fedem.deep FOLDER --minutes 9 --methods fedem,fedavg --weights FILE
    python -m majorant_reproductions.fedem.deep FOLDER --methods fedem,fedem@seed=1,fedem@rounds=66,fedavg@unseen=0.2
    python -m majorant_reproductions.fedem.deep FOLDER --data shakespeare --roles 100 --rounds 80
    python -m majorant_reproductions.fedem.deep FOLDER --tiny              a few random images, a small network
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import dataclasses
import functools
import json
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np

import majorant as mj
from majorant.app.files import atomic_write_text
from majorant.app.reproduce import Context, Result
from majorant.core import Algorithm
from majorant.data.federated import FederatedData
from majorant.data.image_files import data_folder
from majorant.data.images import CIFAR100_COARSE
from majorant.engines.simulation import Simulation
from majorant.engines.simulator import planned
from majorant.models import inverted_residuals
from majorant.models.base import Model

PAPER = {  # Table 2: average and bottom decile of test accuracy
    "cifar10": {
        "local": (70.2, 48.7),
        "fedavg": (78.2, 72.4),
        "fedprox": (78.0, 70.8),
        "fedavg+": (82.3, 70.6),
        "clustered": (78.6, 71.2),
        "pfedme": (81.7, 73.6),
        "fedem": (84.3, 78.1),
    },
    "cifar100": {
        "local": (31.5, 19.9),
        "fedavg": (40.9, 33.2),
        "fedprox": (41.0, 33.2),
        "fedavg+": (39.0, 28.3),
        "clustered": (41.5, 34.1),
        "pfedme": (41.8, 32.5),
        "fedem": (44.1, 35.0),
    },
    "shakespeare": {
        "local": (32.0, 16.6),
        "fedavg": (46.7, 42.8),
        "fedprox": (45.7, 41.9),
        "fedavg+": (40.0, 25.5),
        "clustered": (46.6, 42.7),
        "pfedme": (41.2, 36.8),
        "fedem": (46.7, 43.0),
    },
}
RATES = {  # the paper's Table 5; it has no line for Local, which gets FedAvg's, as have personal heads and APFL
    "cifar10": {"pfedme": 10**-1.0, "fedem": 10**-1.0, "others": 10**-1.5},
    "cifar100": {"fedem": 10**-0.5, "others": 10**-1.0},
    "shakespeare": {"fedem": 10**-0.5, "others": 10**-1.0},
}
RELEASED = {  # learning rates of the released script for CIFAR-10
    "local": 0.03,
    "fedavg+": 0.001,
    "clustered": 0.003,
    "pfedme": 0.001,
    "fedem": 0.03,
    "others": 0.01,
}
TITLES = {"cifar10": "CIFAR-10", "cifar100": "CIFAR-100", "shakespeare": "Shakespeare"}
WEIGHTS = Path("efficientnet-lite0") / "efficientnet-lite0.safetensors"


def samples(given: Any) -> FederatedData:
    """CIFAR-10 among 80 clients, CIFAR-100 among 100, roles of Shakespeare's plays, or a few random images."""
    released = given.split == "released"
    shares = (0.8, 0.0, 0.2) if released else (0.6, 0.2, 0.2)
    if given.data == "shakespeare" and not given.tiny:
        return mj.data.load_shakespeare(roles=given.roles, split=shares, seed=given.seed)
    if given.tiny:
        rng = np.random.default_rng(0)
        x, y, clients = rng.integers(0, 256, (240, 32, 32, 3), dtype=np.uint8), np.arange(240) % 10, 4
    else:
        (x, y), clients = (mj.data.load_cifar10(), 80) if given.data == "cifar10" else (mj.data.load_cifar100(), 100)
    if given.data == "cifar100" and not given.tiny:
        owner = mj.data.pachinko(y, CIFAR100_COARSE, clients, alpha=0.4, beta=10.0, seed=given.seed)
    else:
        owner = mj.data.dirichlet(y, clients, alpha=0.4, seed=given.seed, groups=3 if released else None)
    data = FederatedData.from_arrays(x, y, owner, split=shares, seed=given.seed, name=f"{given.data}-{given.split}")
    if not given.unseen:
        return data
    joining = np.random.default_rng(given.seed).permutation(data.clients)[: round(given.unseen * data.clients)]
    return dataclasses.replace(data, unseen=np.isin(np.arange(data.clients), joining))


def network(data: FederatedData, given: Any) -> Model:
    """MobileNet-v2 from random weights, or EfficientNet-Lite0 from a file's; the LSTM."""
    if given.data == "shakespeare" and not given.tiny:
        model = mj.models.lstm(data)
        return mj.models.mixed_precision(model) if given.precision == "mixed" else model
    options: dict[str, Any] = {"normalisation": given.normalisation, "pixels": given.data}
    if given.tiny:
        plan = inverted_residuals.MOBILENET_V2
        plan = plan._replace(stages=plan.stages[:2])
        model = mj.models.packed(inverted_residuals.network(plan, data, given.normalisation, 0.2, "cifar10", 0.25, 2))
    elif given.network.startswith("resnet"):
        model = getattr(mj.models, given.network)(data, **options)
    elif given.weights:
        model = mj.models.pretrained(mj.models.efficientnet_lite0(data, **options), given.weights)
    else:
        model = mj.models.mobilenet_v2(data, **options)
    if given.augment:
        model = mj.models.augmented(model)
    return mj.models.mixed_precision(model) if given.precision == "mixed" else model


def method(name: str, model: Model, data: FederatedData, given: Any) -> Algorithm:
    """The algorithm with the released settings."""
    local = mj.local_sgd(
        given.lr or rate(name, given),
        epochs=1,
        batch_size=128,
        momentum=0.0 if name in ("pfedme", "fedprox") else 0.9,
        weight_decay=5e-4,
        schedule=mj.schedules.multi_step(),
        clip=given.clip,
        drop_last=False if given.keep_last else None,
    )
    if name == "fedem":
        return mj.fedem(model, local=local, components=given.components, **json.loads(given.fedem))
    if name == "clustered":
        return mj.clustered(model, local=local, clients=data.clients)
    if name in ("pfedme", "fedprox"):
        return getattr(mj, name)(model, mu=given.mu, local=local)
    return getattr(mj.methods, name.replace("+", "_plus"))(model, local=local)


def rate(name: str, given: Any) -> float:
    """A method's learning rate: the paper's, or the released script's."""
    if given.rates == "released" and given.data != "cifar10":
        raise ValueError("the released script has learning rates for CIFAR-10 alone: use --rates paper, or give --lr")
    rates = RELEASED if given.rates == "released" else RATES[given.data]
    return rates.get(name, rates["others"])


class Over(Exception):
    """The time is over."""


def prepared(name: str, given: Any, samples: Any) -> tuple[Simulation, float]:
    """A method's run before round 1, compiled, and when that began."""
    begin, data = time.perf_counter(), samples(given.data, given.split, given.seed, given.unseen)
    exchange: dict[str, Any] = {}
    if given.participation < 1:
        exchange["participation"] = mj.participation.uniform(given.participation)
    if given.topology:
        exchange["exchange"] = mj.gossip(mj.topology.erdos_renyi(0.5, weights=given.topology))
    simulation = planned(
        method(name, network(data, given), data, given),
        data,
        given.rounds,
        seed=given.seed,
        resources=mj.Resources(side_by_side=given.side_by_side),
        **exchange,
    )
    simulation.start()
    return simulation, begin


def train(name: str, simulation: Simulation, begin: float, given: Any, end: float) -> None:
    """Trains and saves at every evaluation how good and how fast it is; stops at the end of the time."""
    lines: list[dict[str, Any]] = []

    def report(records: list[dict[str, Any]], snapshot: Any) -> None:
        record = records[0]
        accuracy = record["test_accuracy"]
        lines.append(
            {
                "round": record["round"],
                "seconds": time.perf_counter() - begin,
                "train_seconds": record["seconds"],
                "loss": record.get("loss"),
                "train_accuracy": 100 * record["train_accuracy"]["mean"],
                "test_accuracy": 100 * accuracy["mean"],
                "bottom_decile": 100 * accuracy["bottom_decile"],
            }
            | {k: 100 * record[k]["mean"] for k in ("unseen_accuracy", "unseen_train_accuracy") if k in record}
        )
        given.tell(f"{given.name}{name}: {json.dumps(lines[-1])}")
        found = {
            "settings": {k: str(v) for k, v in vars(given).items() if k not in ("tell", "folder")},
            "paper": PAPER[given.data].get(name),
            "wall_seconds": time.perf_counter() - begin,
            "seconds": dict(simulation.seconds),
            "finished": record["round"] == given.rounds,
            "history": lines,
            "clients": of_each_client(simulation),
        }
        save(name, given, found)
        if time.perf_counter() > end:
            raise Over

    with contextlib.suppress(Over):
        simulation.train(given.every or max(1, given.rounds // 10), report)


def of_each_client(simulation: Simulation) -> dict[str, Any]:
    """Sizes, accuracies and mixture weights of all clients at the last evaluation."""
    scores = simulation.scores[0]
    found = {"train_samples": scores.samples["train"].tolist(), "test_samples": scores.samples["test"].tolist()}
    for name in ("train_score", "test_score", "pi"):
        if name in scores.values:
            found[name] = np.round(np.asarray(scores.values[name], float), 4).tolist()
    return found


def save(name: str, given: Any, found: dict[str, Any]) -> None:
    """Writes what was found of a method."""
    text = json.dumps({"method": name} | found, indent=1) + "\n"
    atomic_write_text(given.folder / f"{given.name}{name}.json", text)


def train_all(given: Any) -> None:
    """Method after method, until the time is over; one that fails does not take the others with it.

    While a method trains, the next one is compiled: one at a time, as several take longer side by side than in turn.
    """
    end = time.perf_counter() + 60 * given.minutes
    given.folder.mkdir(parents=True, exist_ok=True)

    @functools.lru_cache(maxsize=2)
    def kept(*which: Any) -> FederatedData:
        own = copy.copy(given)
        own.data, own.split, own.seed, own.unseen = which
        data = samples(own)
        given.tell(data.describe())
        return data

    jobs = [with_own_settings(item, given) for item in given.methods.split(",")]
    with ThreadPoolExecutor(1) as compiler:
        ahead = compiler.submit(prepared, *jobs[0], kept)
        for (name, own), following in zip_longest(jobs, jobs[1:]):
            if time.perf_counter() > end:
                given.tell(f"{own.name}{name}: left out, the time is over")
                continue
            try:
                try:
                    run = ahead.result()
                finally:
                    if following is not None:
                        ahead = compiler.submit(prepared, *following, kept)
                train(name, *run, own, end)
            except Exception as error:
                found = f"{type(error).__name__}: {error}"[:3000]
                given.tell(f"{own.name}{name}: {found}")
                save(name, own, {"error": found, "history": []})


def with_own_settings(item: str, given: Any) -> tuple[str, Any]:
    """A method's name, and the settings with its own ones: ``fedem@rounds=66``."""
    name, *changes = item.split("@")
    own = copy.copy(given)
    if changes:
        folder = str(given.folder)
        changed = arguments([folder, *(word for c in changes for word in ("--" + c).split("=", 1))])
        for key in (change.partition("=")[0].replace("-", "_") for change in changes):
            setattr(own, key, getattr(changed, key))
        own.name = given.name + "".join(f"{change}-" for change in changes)
    return name, own


def rows_of(folder: Path) -> list[list[Any]]:
    """A row for each method that was trained: its last accuracies beside the paper's, its rounds and seconds."""
    rows = []
    for path in sorted(folder.glob("*.json")):
        found = json.loads(path.read_text())
        last = found["history"][-1] if found["history"] else None
        ours = f"{last['test_accuracy']:.1f} / {last['bottom_decile']:.1f}" if last else found.get("error", "")[:60]
        paper = "{:.1f} / {:.1f}".format(*found["paper"]) if found.get("paper") else ""
        rows.append([found["method"], ours, paper, last and last["round"], last and f"{last['seconds']:.0f}"])
    return rows


def table2(context: Context, weights: bool = False, data: str = "cifar10") -> list[Result]:
    """A row of Table 2, by default CIFAR-10's."""
    rows = []
    for seed in range(1 if context.quick else context.seeds or 3):
        with tempfile.TemporaryDirectory() as place:
            given = arguments([place, "--data", data])
            given.weights = data_folder() / WEIGHTS if weights else None
            given.tiny, given.seed, given.tell, given.minutes = context.quick, seed, context.tell, 24 * 60
            if context.quick:
                given.rounds, given.methods = 2, "fedem,fedavg"
            train_all(given)
            rows += [[row[0], seed, *row[1:]] for row in rows_of(Path(place))]
    ours = "EfficientNet-Lite0 from ImageNet weights" if weights else "MobileNet-v2 from random weights"
    images = f"{ours}; the paper: MobileNet-v2 from ImageNet weights, one seed, learning rates by grid search"
    text = "a loss for the last of 80 characters alone; the released code has one for each"
    notes = [
        text if data == "shakespeare" else images,
        "learning rates of the paper's Table 5; average over clients, weighted by their test samples / the (T/10)-th "
        "smallest",
    ]
    columns = ["method", "seed", "ours", "paper", "rounds", "seconds"]
    return [Result(f"Table 2, {TITLES[data]}: test accuracy", columns, rows, notes)]


def table2_weights(context: Context) -> list[Result]:
    """Table 2, CIFAR-10, from ImageNet weights."""
    return table2(context, weights=True)


def table2_hundred(context: Context) -> list[Result]:
    """Table 2, CIFAR-100, from ImageNet weights."""
    return table2(context, weights=True, data="cifar100")


def table2_text(context: Context) -> list[Result]:
    """Table 2, Shakespeare."""
    return table2(context, data="shakespeare")


def arguments(given: list[str] | None = None) -> argparse.Namespace:
    """The command line's."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--methods", default="fedem,fedavg,local,fedavg+,clustered,pfedme,fedprox,fedper,apfl")
    parser.add_argument("--data", choices=tuple(PAPER), default="cifar10")
    parser.add_argument("--split", choices=("paper", "released"), default="released")
    parser.add_argument("--normalisation", default="averaged")
    parser.add_argument("--precision", choices=("single", "mixed"), default="mixed")
    parser.add_argument("--weights", type=Path)
    parser.add_argument("--augment", action="store_true")
    parser.add_argument("--clip", type=float)
    parser.add_argument("--keep-last", action="store_true", help="also train on what an epoch leaves over of batches")
    parser.add_argument("--rates", choices=("paper", "released"), default="paper", help="learning rates")
    parser.add_argument("--lr", type=float, help="in place of these")
    parser.add_argument("--mu", type=float, default=1.0, help="penalty of fedprox and pfedme")
    parser.add_argument("--components", type=int, default=3, help="of fedem")
    parser.add_argument("--fedem", default="{}", help="options of fedem, as JSON")
    parser.add_argument("--network", default="", help="resnet18 or resnet34, in place of the inverted residuals")
    parser.add_argument("--participation", type=float, default=1.0, help="share of the clients in a round")
    parser.add_argument("--unseen", type=float, default=0.0, help="share of the clients that join after training")
    parser.add_argument("--topology", default="", help="no server but an Erdős–Rényi graph with these weights")
    parser.add_argument("--rounds", type=int, help="200 unless told, for Shakespeare 80, as in the paper")
    parser.add_argument("--roles", type=int, default=0, help="of Shakespeare's, drawn at random; 0: all")
    parser.add_argument("--every", type=int)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--side-by-side", type=int)
    parser.add_argument("--name", default="", help="goes before the names of the files")
    parser.add_argument("--tiny", action="store_true")
    parsed = parser.parse_args(given)
    parsed.rounds = parsed.rounds or (80 if parsed.data == "shakespeare" else 200)
    parsed.tell = lambda text: print(text, flush=True)
    return parsed


if __name__ == "__main__":
    train_all(arguments())
