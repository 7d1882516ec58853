"""The FedEM paper's deep rows: trains methods on CIFAR-10 and -100, EMNIST or its stand-ins, and Shakespeare.

A GPU is needed; data, networks and settings are in `deep_settings`. While a method trains the next one is compiled, and
results are saved at every evaluation. FedAvg+ trains as FedAvg does: a run of FedAvg also ends with the scores of
FedAvg+. With clients that join after training, a run ends with their scores by the share of their samples, as in the
paper's Figure 2. A method may have settings of its own behind ``@``, which are the options below::

    python -m majorant_reproductions.fedem.deep FOLDER --minutes 9 --methods fedem,fedavg --weights FILE
    python -m majorant_reproductions.fedem.deep FOLDER --methods fedem,fedem@seed=1,fedem@rounds=66,fedavg@unseen=0.2
    python -m majorant_reproductions.fedem.deep FOLDER --data shakespeare --roles 100 --rounds 80
    python -m majorant_reproductions.fedem.deep FOLDER --tiny              a few random images, a small network
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import functools
import json
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from majorant_reproductions.fedem.deep_settings import GREY, PAPER, WEIGHTS, method, network, samples

import majorant as mj
from majorant.app.files import atomic_write_text
from majorant.app.reproduce import Context, Result
from majorant.data.federated import FederatedData
from majorant.data.image_files import data_folder
from majorant.engines.simulation import Simulation
from majorant.engines.simulator import planned

SHARES = (0.0, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0)  # of the samples of clients that join, in Figure 2
OF_DATA = ("data", "split", "seed", "unseen", "roles", "stride")  # settings that samples depend on
TITLES = {
    "cifar10": "CIFAR-10",
    "cifar100": "CIFAR-100",
    "emnist": "EMNIST",
    "mnist": "MNIST in EMNIST's place",
    "fashion-mnist": "Fashion-MNIST in EMNIST's place",
    "shakespeare": "Shakespeare",
}


class Over(Exception):
    """The time is over."""


class Prepared(NamedTuple):
    """A method's run before round 1, compiled, and when that began."""

    simulation: Simulation
    begin: float
    tuned: Simulation | None = None  # FedAvg+ beside FedAvg: its training is FedAvg's


def prepared(name: str, given: Any, samples: Any) -> Prepared:
    """Compiles what a method will run."""
    begin, data = time.perf_counter(), samples(*(getattr(given, name) for name in OF_DATA))
    exchange: dict[str, Any] = {}
    if given.participation < 1:
        exchange["participation"] = mj.participation.uniform(given.participation)
    if given.topology:
        exchange["exchange"] = mj.gossip(graph(given.topology))
    model = network(data, given)
    resources = mj.Resources(side_by_side=given.side_by_side)
    plan = lambda name: planned(
        method(name, model, data, given), data, given.rounds, seed=given.seed, resources=resources, **exchange
    )
    simulation = plan(name)
    simulation.start()
    if name != "fedavg" or not given.tuned:
        return Prepared(simulation, begin)
    tuned = plan("fedavg+")
    engine = tuned.engine
    engine.programs.evaluate.lowered(simulation.engine.state, engine.keys, engine.data, engine.unseen)()
    return Prepared(simulation, begin, tuned)


def graph(weights: str) -> Any:
    """The paper's graph with weights by their name, or any graph from a file with its matrix."""
    if weights.endswith(".npy"):
        return mj.topology.from_matrix(np.load(weights))
    return mj.topology.erdos_renyi(0.5, weights=weights)


def train(name: str, run: Prepared, given: Any, end: float) -> None:
    """Trains and saves at every evaluation how good and how fast it is; stops at the end of the time."""
    simulation, begin, tuned = run
    lines: list[dict[str, Any]] = []

    def report(records: list[dict[str, Any]], snapshot: Any) -> None:
        record = records[0]
        lines.append(line_of(record, begin))
        given.tell(f"{given.name}{name}: {json.dumps(lines[-1])}")
        finished = record["round"] == given.rounds
        save(name, given, found_of(name, simulation, given, begin, finished, lines))
        if finished and tuned is not None:
            tuned.engine.state = simulation.engine.state
            tuned.scores = tuned.evaluate()
            last = [line_of(record | tuned.scores[0].summary(tuned.metric), begin)]
            given.tell(f"{given.name}fedavg+: {json.dumps(last[0])}")
            save("fedavg+", given, found_of("fedavg+", tuned, given, begin, finished, last))
        if time.perf_counter() > end:
            raise Over

    with contextlib.suppress(Over):
        simulation.train(given.every or max(1, given.rounds // 10), report)


def line_of(record: dict[str, Any], begin: float) -> dict[str, Any]:
    """What is kept of an evaluation."""
    found = {
        "round": record["round"],
        "seconds": time.perf_counter() - begin,
        "train_seconds": record["seconds"],
        "loss": record.get("loss"),
        "train_accuracy": 100 * record["train_accuracy"]["mean"],
        "test_accuracy": 100 * record["test_accuracy"]["mean"],
        "bottom_decile": 100 * record["test_accuracy"]["bottom_decile"],
    }
    others = ("unseen_accuracy", "unseen_train_accuracy", "validation_accuracy")
    return found | {name: 100 * record[name]["mean"] for name in others if name in record}


def found_of(
    name: str, simulation: Simulation, given: Any, begin: float, finished: bool, lines: list[dict[str, Any]]
) -> dict[str, Any]:
    """What is saved of a method."""
    found = {
        "settings": {k: str(v) for k, v in vars(given).items() if k not in ("tell", "folder")},
        "paper": PAPER[given.data].get(name),
        "wall_seconds": time.perf_counter() - begin,
        "seconds": dict(simulation.seconds),
        "finished": finished,
        "history": lines,
        "clients": of_each_client(simulation),
    }
    return found | ({"unseen_by_share": by_share(simulation)} if finished and given.unseen else {})


def by_share(simulation: Simulation) -> dict[str, float]:
    """Figure 2: test accuracy of the clients that join, by the share of their training samples that they may use."""
    engine, found = simulation.engine, {}
    whole = engine.unseen
    for share in SHARES:
        fewer = lambda part, share=share: part._replace(
            size=jnp.floor(share * part.size + 1e-4).astype(part.size.dtype)
        )
        engine.unseen = tuple(bucket._replace(train=fewer(bucket.train)) for bucket in whole)
        found[f"{share:g}"] = 100 * simulation.evaluate()[0].summary(simulation.metric)["unseen_accuracy"]["mean"]
    engine.unseen = whole
    return found


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


def saved(name: str, given: Any) -> dict[str, Any]:
    """What was saved of a method before."""
    path = given.folder / f"{given.name}{name}.json"
    return json.loads(path.read_text()) if path.exists() else {}


def train_all(given: Any) -> None:
    """Method after method, until the time is over; one that fails does not take the others with it.

    While a method trains, the next one is compiled: one at a time, as several take longer side by side than in turn.
    """
    end = time.perf_counter() + 60 * given.minutes
    given.folder.mkdir(parents=True, exist_ok=True)

    @functools.lru_cache(maxsize=2)
    def kept(*which: Any) -> FederatedData:
        own = copy.copy(given)
        vars(own).update(zip(OF_DATA, which, strict=True))
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
                train(name, run, own, end)
            except Exception as error:
                found = f"{type(error).__name__}: {error}"[:3000]
                given.tell(f"{own.name}{name}: {found}")
                save(name, own, {"history": []} | saved(name, own) | {"error": found})


def with_own_settings(item: str, given: Any) -> tuple[str, Any]:
    """A method's name, and the settings with its own ones: ``fedem@rounds=66``."""
    name, *changes = item.split("@")
    own = copy.copy(given)
    if changes:
        folder = str(given.folder)
        changed = arguments([folder, *(word for c in changes for word in ("--" + c).split("=", 1))])
        for key in (change.partition("=")[0].replace("-", "_") for change in changes):
            setattr(own, key, getattr(changed, key))
        own.name = given.name + "".join(f"{change}-" for change in changes).replace("/", "_")
    return name, own


def rows_of(folders: Sequence[Path]) -> list[list[Any]]:
    """A row for each method, over the seeds whose results are in these folders, beside the paper's accuracies.

    Means and standard deviations are over the seeds that were trained to their end, which all are named.
    """
    rows = []
    for name in sorted({path.name for folder in folders for path in folder.glob("*.json")}):
        found = [json.loads((folder / name).read_text()) for folder in folders if (folder / name).exists()]
        ends = [run["history"][-1] for run in found if run.get("finished")]
        over = lambda what, ends=ends: spread([end[what] for end in ends])
        ours = f"{over('test_accuracy')} / {over('bottom_decile')}" if ends else ""
        paper = "{:.1f} / {:.1f}".format(*found[0]["paper"]) if found[0].get("paper") else ""
        rounds, seconds = (
            (ends[0]["round"], f"{np.mean([end['seconds'] for end in ends]):.0f}") if ends else (None, None)
        )
        rows.append([name.removesuffix(".json"), ours, ", ".join(map(end_of, found)), paper, rounds, seconds])
    return rows


def spread(values: list[float]) -> str:
    """The mean and, of several values, their standard deviation."""
    return f"{np.mean(values):.1f}" + (f" ± {np.std(values, ddof=1):.1f}" if len(values) > 1 else "")


def end_of(found: dict[str, Any]) -> str:
    """A seed's last test accuracy, the round it is of where that is not the last, and what went wrong."""
    last = found["history"][-1] if found["history"] else None
    accuracy = f"{last['test_accuracy']:.1f}" if last else ""
    early = f" after {last['round']} rounds" if last and not found.get("finished") else ""
    return " ".join(filter(None, [accuracy + early, found.get("error", "")[:60]]))


def table2(context: Context, weights: bool = False, data: str = "cifar10") -> list[Result]:
    """A row of Table 2, by default CIFAR-10's."""
    with tempfile.TemporaryDirectory() as place:
        folders = [Path(place) / str(seed) for seed in range(1 if context.quick else context.seeds or 3)]
        for seed, folder in enumerate(folders):
            given = arguments([str(folder), "--data", data])
            given.every_position = True
            given.weights = data_folder() / WEIGHTS if weights else None
            given.tiny, given.seed, given.tell, given.minutes = context.quick, seed, context.tell, 24 * 60
            if context.quick:
                given.rounds, given.methods = 2, "fedem,fedavg"
            train_all(given)
        rows = rows_of(folders)
    ours = "EfficientNet-Lite0 from ImageNet weights" if weights else "MobileNet-v2 from random weights"
    images = f"{ours}; the paper: MobileNet-v2 from ImageNet weights, one seed, learning rates by grid search"
    text = (
        "lines are split; a loss at each of 80 characters, weighted as in the released code; all count for the accuracy"
    )
    grey = "the released network, LEAF's, from random weights" + ("" if data == "emnist" else "; in EMNIST's place")
    notes = [
        text if data == "shakespeare" else grey if data in GREY else images,
        "learning rates of the paper's Table 5; average over clients, weighted by their test samples / the (T/10)-th "
        "smallest; ± is the standard deviation of the seeds (partition, start and minibatches)",
    ]
    columns = ["method", "ours", "each seed", "paper", "rounds", "seconds"]
    return [Result(f"Table 2, {TITLES[data]}: test accuracy", columns, rows, notes)]


def table2_weights(context: Context) -> list[Result]:
    """Table 2, CIFAR-10, from ImageNet weights."""
    return table2(context, weights=True)


def table2_hundred(context: Context) -> list[Result]:
    """Table 2, CIFAR-100, from ImageNet weights."""
    return table2(context, weights=True, data="cifar100")


def table2_emnist(context: Context) -> list[Result]:
    """Table 2, EMNIST."""
    return table2(context, data="emnist")


def table2_mnist(context: Context) -> list[Result]:
    """Table 2, MNIST in EMNIST's place."""
    return table2(context, data="mnist")


def table2_fashion(context: Context) -> list[Result]:
    """Table 2, Fashion-MNIST in EMNIST's place."""
    return table2(context, data="fashion-mnist")


def table2_text(context: Context) -> list[Result]:
    """Table 2, Shakespeare."""
    return table2(context, data="shakespeare")


def arguments(given: list[str] | None = None) -> argparse.Namespace:
    """The command line's."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--methods", default="fedem,fedavg,local,clustered,pfedme,fedprox,fedper,apfl")
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
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--momentum", type=float, help="0.9 unless told, for fedprox and pfedme 0, as released")
    parser.add_argument("--mu", type=float, default=1.0, help="penalty of fedprox and pfedme")
    parser.add_argument("--components", type=int, default=3, help="of fedem")
    parser.add_argument("--fedem", default="{}", help="options of fedem, as JSON")
    parser.add_argument("--network", default="", help="resnet18 or resnet34, in place of the inverted residuals")
    parser.add_argument("--participation", type=float, default=1.0, help="share of the clients in a round")
    parser.add_argument("--unseen", type=float, default=0.0, help="share of the clients that join after training")
    parser.add_argument(
        "--topology",
        default="",
        help="no server but an Erdős–Rényi graph with weights of this name, or a file with a graph's matrix",
    )
    parser.add_argument("--rounds", type=int, help="200 unless told, for Shakespeare 80, as in the paper")
    parser.add_argument("--roles", type=int, default=0, help="of Shakespeare's, drawn at random; 0: all")
    parser.add_argument("--stride", type=int, default=1, help="of Shakespeare's windows: every so many-th is a sample")
    parser.add_argument(
        "--every-position", action="store_true", help="of Shakespeare's windows: a loss at each of them"
    )
    parser.add_argument(
        "--class-weights",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="Shakespeare's frequent characters count less, as in the released code",
    )
    parser.add_argument("--lstm", default="{}", help="options of Shakespeare's network, as JSON")
    parser.add_argument("--tuned", action=argparse.BooleanOptionalAction, default=True, help="FedAvg+ beside FedAvg")
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
