"""What privacy costs: accuracy against ε for DP-FedAvg, DP-FedEM and DP-FedMM.

``python -m benchmarks.privacy accuracy OUT.json [--data synthetic digits fashion] [--methods fedavg fedem fedmm]``:
every client counts once, a fifth of the clients takes part in a round by independent coins, displacements are clipped
adaptively at their median length, noise at the server is solved for by the budget. "inf" is the same method without
clipping and noise. A method's step size is one of a grid, the one that is best on the clients' validation rows; test
rows choose nothing. Grid and seeds run side by side. ``digits`` and ``fashion`` read MNIST and Fashion-MNIST from the
data folder.

``python -m benchmarks.privacy table OUT.json …`` prints what was measured as tables of a page. What stages cost in
seconds and bytes, `benchmarks.attacks` measures.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import majorant as mj
from majorant.exchange import adaptive_clip

BUDGETS = (None, 8.0, 4.0, 2.0, 1.0)
SHARE = 0.2
METHODS = ("fedavg", "fedem", "fedmm")
STEPS = {
    "synthetic": (0.1, 0.3, 1.0, 3.0, 10.0),
    "digits": (0.03, 0.1, 0.3, 1.0, 3.0),
    "fashion": (0.01, 0.03, 0.1, 0.3, 1.0),
}


def synthetic(clients: int) -> mj.FederatedData:
    """The FedEM paper's mixture of linear classifiers in 150 dimensions."""
    return mj.data.synthetic_mixture(clients=clients, noise=0.1, seed=0)


def digits(clients: int) -> mj.FederatedData:
    """MNIST at 14 × 14 pixels, dealt out at random, upside down for every second client: 35 images each at 2,000."""
    x, y = mj.data.load_mnist()
    x = np.asarray(x, np.float32).reshape(-1, 14, 2, 14, 2).mean(axis=(2, 4)) / 255
    each = len(x) // clients
    rows = np.random.default_rng(0).permutation(len(x))[: each * clients]
    owner = np.repeat(np.arange(clients), each)
    x, y = x[rows], y[rows]
    x[owner % 2 == 1] = x[owner % 2 == 1, ::-1, ::-1]
    return mj.data.partitioned(x.reshape(len(x), -1), y, owner, seed=0, name="turned-digits")


def fashion(clients: int) -> mj.FederatedData:
    """Fashion-MNIST in full, of which each client has some classes more (Dirichlet, α = 0.4)."""
    x, y = mj.data.load_fashion_mnist()
    x = np.asarray(x, np.float32).reshape(len(x), -1) / 255
    owner = {"clients": clients, "alpha": 0.4, "min_samples": 10}
    return mj.data.partitioned(x, y, "dirichlet", seed=0, name="fashion-mnist", **owner)


DATA: dict[str, Callable[[int], mj.FederatedData]] = {"synthetic": synthetic, "digits": digits, "fashion": fashion}


def method(name: str, data: mj.FederatedData, steps: tuple[float, ...]) -> tuple[mj.Algorithm, dict[str, list[float]]]:
    """A method with a linear model, and the grid of its step size."""
    model = mj.models.linear(data)
    local = mj.local_sgd(1.0, steps=5, batch_size=32)
    if name == "fedavg":
        return mj.fedavg(model, local=local), {"lr": list(steps)}
    if name == "fedem":
        return mj.fedem(model, components=3, local=local), {"lr": list(steps)}
    surrogate = mj.surrogates.proximal_gradient(model, rho=max(steps))  # γ = 1 is the longest step
    start = jax.tree.map(jnp.zeros_like, surrogate.init(jax.random.key(0)))  # known beforehand: nothing is asked
    return mj.fedmm(surrogate, data, start=start, alpha=0), {"gamma": [step / max(steps) for step in steps]}


def accuracies(run: Any, data: mj.FederatedData, name: str) -> dict[str, list[float]]:
    """The accuracy of each run on validation and test rows, a mean over all clients' samples."""
    parts = ("validation", "test")
    if name != "fedmm":
        return {part: [float(run[i].summary()[f"{part}_accuracy"]["mean"]) for i in range(len(run))] for part in parts}
    model = mj.models.linear(data)  # one model for everybody, scored by its objective
    found = {}
    for part in parts:
        x, y = (jnp.asarray(rows) for rows in (getattr(data, part).x, getattr(data, part).y))
        right = lambda params, x=x, y=y: (model.predict(params, x).argmax(axis=-1) == y).mean()
        found[part] = [float(a) for a in jax.lax.map(right, run.snapshot.server.value.params)]
    return found


def trained(
    algorithm: mj.Algorithm,
    data: mj.FederatedData,
    grid: dict[str, list[float]],
    rounds: int,
    seeds: int,
    budget: float | None,
) -> Any:
    """Runs within a budget, or without any."""
    private: dict[str, Any] = {}
    if budget is not None:
        private = {"channel": adaptive_clip(start=0.1), "privacy": mj.Privacy(epsilon=budget, delta=1e-5)}
    return mj.simulate(
        algorithm,
        data,
        rounds=rounds,
        seeds=seeds,
        grid=grid,
        participation=mj.participation.bernoulli(SHARE),
        evaluation=mj.Evaluation(every=max(1, rounds // 4)),
        **private,
    )


def line_of(run: Any, data: mj.FederatedData, where: str, name: str, budget: float | None) -> dict[str, Any]:
    """What was found for a data set, a method and a budget: scores by step size and seed, and how they came about."""
    scores = accuracies(run, data, name)
    seeds = len({setting["seed"] for setting in run.settings})
    found: dict[str, Any] = {"data": where, "clients": data.clients, "rounds": run.rounds, "method": name}
    found |= {"budget": budget, "steps": list(STEPS[where]), "device": jax.devices()[0].device_kind}
    found |= {part: np.reshape(each, (-1, seeds)).tolist() for part, each in scores.items()}
    if name != "fedmm":
        history = [[line["test_accuracy"]["mean"] for line in lines] for lines in run.histories]
        found["rounds_evaluated"] = [line["round"] for line in run.histories[0]]
        found["test_by_round"] = np.reshape(history, (-1, seeds, len(history[0]))).tolist()
    if budget is not None:
        promised = run.summary()["privacy"]
        found |= {key: promised[key] for key in ("epsilon", "delta", "noise_multiplier", "accountant")}
    return found


def chosen(line: dict[str, Any]) -> dict[str, float]:
    """The step size that is best on validation rows, and its scores on test rows."""
    place = int(np.nanargmax(np.mean(line["validation"], axis=1)))
    test = line["test"][place]
    spread = float(np.std(test, ddof=1)) if len(test) > 1 else 0.0
    return {"step": line["steps"][place], "mean": float(np.mean(test)), "std": spread}


def against_epsilon(
    where: str,
    methods: Sequence[str],
    budgets: Sequence[float | None],
    clients: int,
    rounds: int,
    seeds: int,
    tell: Callable[[dict[str, Any]], None],
) -> None:
    """A line for every method and budget on a data set, told as it is measured."""
    data = DATA[where](clients)
    for name in methods:
        algorithm, grid = method(name, data, STEPS[where])
        for budget in budgets:
            begin = time.perf_counter()
            run = trained(algorithm, data, grid, rounds, seeds, budget)
            tell(line_of(run, data, where, name, budget) | {"seconds": time.perf_counter() - begin})


def tables(files: list[Path]) -> str:
    """A table for each data set, of budgets by methods: accuracy on test rows, and the step size in brackets."""
    lines = [line for file in files for line in json.loads(file.read_text(encoding="utf-8"))]
    told = []
    for where in dict.fromkeys(line["data"] for line in lines):
        here = {(line["method"], line["budget"]): line for line in lines if line["data"] == where}
        methods = [name for name in METHODS if any(name == known for known, _ in here)]
        told += [f"{where}:", "| ε | noise | " + " | ".join(methods) + " |", "|---" * (2 + len(methods)) + "|"]
        for budget in BUDGETS:
            best = [chosen(here[name, budget]) if (name, budget) in here else None for name in methods]
            cells = [
                "–" if b is None else f"{100 * b['mean']:.1f} ± {100 * b['std']:.1f} ({b['step']:g})" for b in best
            ]
            noise = {line.get("noise_multiplier", "–") for (_, own), line in here.items() if own == budget}
            told.append(
                f"| {'∞' if budget is None else f'{budget:g}'} | {', '.join(map(str, noise))} | "
                + " | ".join(cells)
                + " |"
            )
    return "\n".join(told)


def main() -> None:
    """``accuracy OUT.json …`` or ``table OUT.json …``."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=["accuracy", "table"])
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--data", nargs="*", default=list(DATA), choices=list(DATA))
    parser.add_argument("--methods", nargs="*", default=list(METHODS), choices=METHODS)
    parser.add_argument("--clients", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=500)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--budgets", nargs="*", type=float, default=None, help="inf is without privacy")
    options = parser.parse_args()
    if options.kind == "table":
        print(tables(options.files))
        return
    warnings.simplefilter("ignore")
    found: list[dict[str, Any]] = []

    def tell(line: dict[str, Any]) -> None:
        found.append(line)
        best = chosen(line)
        budget = "inf" if line["budget"] is None else f"{line['budget']:g}"
        spread = f"{100 * best['mean']:.1f} ± {100 * best['std']:.1f} % at step {best['step']:g}"
        noise = f"noise {line.get('noise_multiplier', 0):g}"
        print(f"{line['data']:10s} {line['method']:7s} ε {budget:>4s}  {spread}  {noise}", f"{line['seconds']:.1f} s")
        options.files[0].write_text(json.dumps(found), encoding="utf-8")

    wanted = BUDGETS if options.budgets is None else [None if b == float("inf") else b for b in options.budgets]
    for where in options.data:
        against_epsilon(where, options.methods, wanted, options.clients, options.rounds, options.seeds, tell)


if __name__ == "__main__":
    main()
