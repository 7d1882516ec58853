"""The FedEM paper's CIFAR-10 column, method after method, each saved as it is done, until the time is over.

    python -m benchmarks.deep_study FOLDER --minutes 8 --methods fedem,fedavg,local
    python -m benchmarks.deep_study FOLDER --tiny                                     random images, a small network

``$MAJORANT_DATA/cifar10`` has the images (`benchmarks.pack_images`). 80 clients. The paper's text spreads each label by
Dirichlet(0.4) and splits 60/20/20 (``--split paper``); its released code spreads three groups of labels and splits
80/20 (``--split released``). Learning rates are those of the paper's Table 5; momentum 0.9, weight decay 5e-4, batches
of 128, one local epoch, ×0.1 at 1/2 and 3/4 of the rounds, as in the released code. ``--weights FILE`` starts
EfficientNet-Lite0 from ImageNet weights in place of MobileNet-v2 from random ones.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np

import majorant as mj
from majorant.data.federated import FederatedData
from majorant.models import inverted_residuals

PAPER = {  # Table 2, CIFAR-10: average and bottom decile of test accuracy
    "local": (70.2, 48.7),
    "fedavg": (78.2, 72.4),
    "fedprox": (78.0, 70.8),
    "fedavg+": (82.3, 70.6),
    "clustered": (78.6, 71.2),
    "pfedme": (81.7, 73.6),
    "fedem": (84.3, 78.1),
}
RATES = {
    "local": -1.5,
    "fedavg": -1.5,
    "fedprox": -1.5,
    "fedavg+": -1.5,
    "clustered": -1.5,
    "pfedme": -1.0,
    "fedem": -1.0,
}


def images(split: str, tiny: bool, seed: int) -> FederatedData:
    """CIFAR-10 among 80 clients, or a few random images."""
    if tiny:
        rng = np.random.default_rng(0)
        x, y, clients = rng.integers(0, 256, (240, 32, 32, 3), dtype=np.uint8), np.arange(240) % 10, 4
    else:
        (x, y), clients = mj.data.load_cifar10(), 80
    released = split == "released"
    owner = mj.data.dirichlet(y, clients, alpha=0.4, seed=seed, groups=3 if released else None)
    shares = (0.8, 0.0, 0.2) if released else (0.6, 0.2, 0.2)
    return FederatedData.from_arrays(x, y, owner, split=shares, seed=seed, name=f"cifar10-{split}")


def network(data: FederatedData, given: Any) -> Any:
    """MobileNet-v2 from random weights, or EfficientNet-Lite0 from a file's."""
    if given.tiny:
        plan = inverted_residuals.MOBILENET_V2
        plan = plan._replace(stages=plan.stages[:2])
        model = inverted_residuals.network(plan, data, given.normalisation, 0.2, "cifar10", 0.25, 2)
    elif given.weights:
        lite = mj.models.efficientnet_lite0(data, normalisation=given.normalisation, pixels="cifar10")
        model = mj.models.pretrained(lite, given.weights)
    else:
        model = mj.models.mobilenet_v2(data, normalisation=given.normalisation, pixels="cifar10")
    if given.augment:
        model = mj.models.augmented(model)
    return mj.models.mixed_precision(model) if given.precision == "mixed" else model


def method(name: str, model: Any, data: FederatedData, given: Any) -> Any:
    """The algorithm with the paper's settings."""
    schedule = mj.solvers.schedules.multi_step()
    rate = 10 ** (RATES[name] if given.lr is None else given.lr)
    still = name in ("pfedme", "fedprox")  # the released code has no momentum there
    local = mj.local_sgd(
        rate,
        epochs=1,
        batch_size=128,
        momentum=0.0 if still else 0.9,
        weight_decay=5e-4,
        schedule=schedule,
        clip=given.clip,
    )
    if name == "fedem":
        return mj.fedem(model, components=3, local=local)
    if name == "clustered":
        return mj.clustered(model, local=local, clients=data.clients)
    named = {"local": mj.local, "fedavg": mj.fedavg, "fedprox": mj.fedprox, "fedavg+": mj.fedavg_plus}
    return (named | {"pfedme": mj.pfedme})[name](model, local=local)


def run(name: str, data: FederatedData, given: Any, end: float) -> dict[str, Any]:
    """Trains, and says how good and how fast; stops at the end of the time."""
    begin = time.perf_counter()
    algorithm = method(name, network(data, given), data, given)
    lines: list[dict[str, Any]] = []

    class Over(Exception):
        pass

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
        )
        print(f"{name}: {json.dumps(lines[-1])}", flush=True)
        if time.perf_counter() > end:
            raise Over

    resources = mj.Resources(side_by_side=given.side_by_side)
    evaluation = mj.Evaluation(every=given.every or max(1, given.rounds // 10), report=report)
    seconds = {}
    try:
        done = mj.simulate(
            algorithm, data, rounds=given.rounds, seed=given.seed, evaluation=evaluation, resources=resources
        )
        seconds = dict(done.seconds)
    except Over:
        pass
    return {
        "method": name,
        "settings": {k: str(v) for k, v in vars(given).items()},
        "paper": PAPER[name],
        "wall_seconds": time.perf_counter() - begin,
        "seconds": seconds,
        "finished": bool(seconds),
        "history": lines,
    }


def main() -> None:
    """Runs methods until the time is over."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--methods", default="fedem,fedavg,local,fedavg+,clustered,pfedme")
    parser.add_argument("--split", choices=("paper", "released"), default="released")
    parser.add_argument("--normalisation", default="averaged")
    parser.add_argument("--precision", choices=("single", "mixed"), default="mixed")
    parser.add_argument("--weights", type=Path)
    parser.add_argument("--augment", action="store_true")
    parser.add_argument("--clip", type=float)
    parser.add_argument("--lr", type=float, help="base-10 logarithm, in place of the paper's")
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--every", type=int)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--side-by-side", type=int)
    parser.add_argument("--name", default="", help="goes before the names of the files")
    parser.add_argument("--tiny", action="store_true")
    given = parser.parse_args()
    end = time.perf_counter() + 60 * given.minutes
    given.folder.mkdir(parents=True, exist_ok=True)
    begin = time.perf_counter()
    data = images(given.split, given.tiny, given.seed)
    print(f"{data.describe()}; {time.perf_counter() - begin:.1f} s", flush=True)
    for name in given.methods.split(","):
        if time.perf_counter() > end:
            print(f"{name}: left out, the time is over")
            continue
        try:
            found = run(name, data, given, end)
        except Exception as error:  # the other methods count all the same
            found = {"method": name, "error": f"{type(error).__name__}: {error}"[:3000]}
            print(f"{name}: {found['error']}", flush=True)
        (given.folder / f"study-{given.name}{name}.json").write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
