"""The FedEM paper's deep rows: trains methods on CIFAR-10 and -100, EMNIST or its stand-ins, and Shakespeare.

A GPU is needed; data, networks and settings are in `deep_settings`. While a method trains the next one is compiled, and
results are saved at every evaluation; what was trained to its end, with the same settings, is not trained again.
FedAvg+ trains as FedAvg does: a run of FedAvg also ends with the scores of FedAvg+. With clients that join after
training, a run ends with their scores by the share of their samples, as in the paper's Figure 2. A method may have
settings of its own behind ``@``, which are the options below::

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
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from majorant_reproductions.fedem.deep_settings import PAPER, method, network, samples

import majorant as mj
from majorant.app.files import atomic_write_text
from majorant.data.federated import FederatedData
from majorant.engines.simulation import Simulation
from majorant.engines.simulator import planned

SHARES = (0.0, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0)  # of the samples of clients that join, in Figure 2
OF_DATA = ("data", "split", "seed", "unseen", "roles", "stride")  # settings that samples depend on


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
        "settings": settings_of(given),
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
    if given.weights and not Path(given.weights).is_file():
        raise ValueError(f"there is no file {given.weights}: docs/scripts/imagenet_weights.py makes one")
    end = time.perf_counter() + 60 * given.minutes
    given.folder.mkdir(parents=True, exist_ok=True)

    @functools.lru_cache(maxsize=2)
    def kept(*which: Any) -> FederatedData:
        own = copy.copy(given)
        vars(own).update(zip(OF_DATA, which, strict=True))
        data = samples(own)
        given.tell(data.describe())
        return data

    jobs = []
    for name, own in (with_own_settings(item, given) for item in given.methods.split(",")):
        if trained_before(name, own):
            given.tell(f"{own.name}{name}: was trained before, with the same settings")
        else:
            set_aside(name, own)
            jobs.append((name, own))
    if not jobs:
        return
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


def set_aside(name: str, given: Any) -> None:
    """Renames results of other settings: tables would take them for this job's where it fails or is left out."""
    for each in [name] + ["fedavg+"] * (name == "fedavg" and given.tuned):
        path = given.folder / f"{given.name}{each}.json"
        if saved(each, given).get("settings", settings_of(given)) != settings_of(given):
            path.replace(path.with_name(f"{path.name}.before"))


def trained_before(name: str, given: Any) -> bool:
    """Whether a method's results are there, of a run to its end with these settings."""
    found = saved(name, given)
    both = name != "fedavg" or not given.tuned or saved("fedavg+", given).get("finished")
    return bool(found.get("finished") and found["settings"] == settings_of(given) and both)


def settings_of(given: Any) -> dict[str, str]:
    """The settings that results depend on, as text."""
    without = ("tell", "folder", "name", "methods", "minutes", "every", "side_by_side")
    return {name: str(value) for name, value in vars(given).items() if name not in without}


def stem(item: str) -> str:
    """The name of the file with a job's results, without its ending.

    >>> stem("fedem@rounds=66@unseen=0.2")
    'rounds=66-unseen=0.2-fedem'
    """
    name, *changes = item.split("@")
    return "".join(f"{change}-" for change in changes).replace("/", "_") + name


def with_own_settings(item: str, given: Any) -> tuple[str, Any]:
    """A method's name, and the settings with its own ones: ``fedem@rounds=66``."""
    name, *changes = item.split("@")
    own = copy.copy(given)
    if changes:
        folder = str(given.folder)
        changed = arguments([folder, *(word for c in changes for word in ("--" + c).split("=", 1))])
        for key in (change.partition("=")[0].replace("-", "_") for change in changes):
            setattr(own, key, getattr(changed, key))
        own.name = given.name + stem(item).removesuffix(name)
    return name, own


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
    parser.add_argument("--trained", choices=("all", "head"), default="all", help="head: the last layer alone")
    parser.add_argument("--enlarge", type=int, default=1, help="images so many times as high and wide, for a head")
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
    parser.add_argument(
        "--network", default="", choices=("resnet18", "resnet34"), help="in place of the inverted residuals"
    )
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
    names = (item.split("@")[0] for item in parsed.methods.split(","))
    unknown = [name for name in names if not hasattr(mj.methods, name.replace("+", "_plus"))]
    if unknown:
        parser.error(f"there is no method {unknown[0]!r}: --methods takes names between commas, as in fedem,fedavg+")
    if parsed.trained == "head" and (parsed.data != "cifar10" or parsed.augment or parsed.network):
        parser.error("--trained head is for EfficientNet-Lite0 on CIFAR-10 as it is, without --augment")
    parsed.rounds = parsed.rounds or (80 if parsed.data == "shakespeare" else 200)
    parsed.tell = lambda text: print(text, flush=True)
    return parsed


if __name__ == "__main__":
    train_all(arguments())
