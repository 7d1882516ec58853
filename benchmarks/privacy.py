"""What privacy costs: accuracy against ε for DP-FedAvg, DP-FedEM and DP-FedMM, and the seconds of each stage.

Run with: python -m benchmarks.privacy [--data synthetic digits fashion] [--clients 1000] [--rounds 200] [--out FILE]

Every client counts once, a tenth of the clients takes part in a round by independent coins, displacements are clipped
adaptively at their median length, noise at the server is solved for by the budget. "inf" is the same method without
clipping and noise. Means over seeds, with the standard deviation between them. ``fashion`` reads Fashion-MNIST from the
data folder.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import majorant as mj
from benchmarks.machine import interleaved
from majorant.exchange import adaptive_clip, chain, gaussian

BUDGETS = (1.0, 2.0, 4.0, 8.0)
SHARE = 0.1


def synthetic(clients: int) -> mj.FederatedData:
    """The FedEM paper's mixture of linear classifiers."""
    return mj.data.synthetic_mixture(clients=clients, dimension=20, seed=0)


def digits(clients: int) -> mj.FederatedData:
    """scikit-learn's digits, turned by a client's own angle and shifted at random: 20 images for each client."""
    from majorant.data import load_digits, partitioned

    rng = np.random.default_rng(0)
    x, y = load_digits()
    rows = rng.integers(0, len(x), 20 * clients)
    owner = np.repeat(np.arange(clients), 20)
    shifts = rng.integers(-1, 2, (len(rows), 2))
    images = np.stack(
        [np.rot90(np.roll(x[r], s, (0, 1)), o % 2 * 2) for r, s, o in zip(rows, shifts, owner, strict=True)]
    )
    return partitioned(images, y[rows], owner, seed=0, name="turned-digits")


def fashion(clients: int) -> mj.FederatedData:
    """Fashion-MNIST, 30 images for each client, by a Dirichlet distribution over labels."""
    from majorant.app.catalogue import datasets

    return datasets.make(f"fashion-mnist:clients={clients},samples={30 * clients}")


DATA: dict[str, Callable[[int], mj.FederatedData]] = {"synthetic": synthetic, "digits": digits, "fashion": fashion}


def methods(data: mj.FederatedData) -> dict[str, mj.Algorithm]:
    """The three methods with a linear model."""
    model = mj.models.linear(data)
    local = mj.local_sgd(1.0, epochs=1, batch_size=16)
    surrogate = mj.surrogates.proximal_gradient(model, rho=1.0)
    start = jax.tree.map(jnp.zeros_like, surrogate.init(jax.random.key(0)))  # known beforehand: nothing is asked
    return {
        "fedavg": mj.fedavg(model, local=local),
        "fedem": mj.fedem(model, components=3, local=local),
        "fedmm": mj.fedmm(surrogate, data, start=start, alpha=0, step=1.0),
    }


def accuracies(run: Any, data: mj.FederatedData, name: str) -> list[float]:
    """The test accuracy of each seed, a mean over all clients' samples."""
    if name != "fedmm":  # one model for everybody, scored by its objective
        return [float(run[i].summary()["test_accuracy"]["mean"]) for i in range(len(run))]
    model, test = mj.models.linear(data), data.test
    x, y = np.asarray(test.x), np.asarray(test.y)
    each = jax.vmap(lambda params: (model.predict(params, x).argmax(axis=-1) == y).mean())
    return [float(a) for a in each(run.snapshot.server.value.params)]


def trained(algorithm: mj.Algorithm, data: mj.FederatedData, rounds: int, seeds: int, budget: float | None) -> Any:
    """Runs within a budget, or without any."""
    private: dict[str, Any] = {}
    if budget is not None:
        private = {"channel": adaptive_clip(start=0.1), "privacy": mj.Privacy(epsilon=budget, delta=1e-5)}
    return mj.simulate(
        algorithm,
        data,
        rounds=rounds,
        seeds=seeds,
        participation=mj.participation.bernoulli(SHARE),
        evaluation=mj.Evaluation(every=rounds),
        **private,
    )


def against_epsilon(names: list[str], clients: int, rounds: int, seeds: int, tell: Callable[[dict], None]) -> None:
    """A line for every data set, method and budget, told as it is measured."""
    for where in names:
        data = DATA[where](clients)
        for name, algorithm in methods(data).items():
            for budget in (None, *BUDGETS):
                begin = time.perf_counter()
                run = trained(algorithm, data, rounds, seeds, budget)
                found = accuracies(run, data, name)
                line: dict[str, Any] = {"data": where, "clients": clients, "rounds": rounds, "method": name}
                line |= {"budget": budget, "accuracy": float(np.mean(found)), "std": float(np.std(found, ddof=1))}
                if budget is not None:
                    promised = run.summary()["privacy"]
                    line |= {k: promised[k] for k in ("epsilon", "delta", "noise_multiplier", "accountant")}
                tell(line | {"seconds": time.perf_counter() - begin})


def costs(clients: int, rounds: int, repeats: int = 3) -> dict[str, float]:
    """Seconds of a FedAvg round with each stage, over those of a plain one."""
    data = synthetic(clients)
    algorithm = methods(data)["fedavg"]
    clip = mj.channel.clip(1.0)
    channels = {
        "plain": None,
        "clip": clip,
        "adaptive-clip": adaptive_clip(),
        "clip, gaussian": chain(clip, gaussian(1.0)),
        "adaptive-clip, gaussian": chain(adaptive_clip(), gaussian(1.0)),
        "clip, gaussian at clients": chain(clip, gaussian(1.0, at="client")),
    }
    seconds = dict.fromkeys(channels, float("inf"))

    def timed(name: str, channel: Any) -> None:
        evaluation = mj.Evaluation(every=rounds)
        run = mj.simulate(algorithm, data, rounds=rounds, channel=channel, evaluation=evaluation)
        seconds[name] = min(seconds[name], run.seconds["train"] / rounds)

    interleaved({name: lambda n=name, c=channel: timed(n, c) for name, channel in channels.items()}, repeats)
    return {name: value / seconds["plain"] for name, value in seconds.items()} | {"plain_seconds": seconds["plain"]}


def main() -> None:
    """Measures, prints, and writes a file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", nargs="*", default=["synthetic", "digits"], choices=list(DATA))
    parser.add_argument("--clients", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=None)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    found: dict[str, Any] = {"costs": {}, "accuracy": []}

    def save() -> None:
        if options.out is not None:
            options.out.write_text(json.dumps(found, indent=1), encoding="utf-8")

    def tell(line: dict[str, Any]) -> None:
        found["accuracy"].append(line)
        budget = "inf" if line["budget"] is None else f"{line['budget']:g}"
        spread = f"{100 * line['accuracy']:.1f} ± {100 * line['std']:.1f} %"
        noise = f"noise {line.get('noise_multiplier', 0):g}"
        print(f"{line['data']:10s} {line['method']:7s} ε {budget:>4s}  {spread}  {noise}", flush=True)
        save()

    against_epsilon(options.data, options.clients, options.rounds, options.seeds, tell)
    found["costs"] = costs(options.clients, 50)
    save()
    print(json.dumps(found["costs"], indent=1), file=sys.stdout)


if __name__ == "__main__":
    main()
