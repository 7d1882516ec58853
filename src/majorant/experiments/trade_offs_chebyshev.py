"""Where weighted sums do not reach, and the worst client: Chebyshev scalarization, AFL, q-FFL and FedMGDA+.

1. Fonseca and Fleming's two functions of θ in R³, f₁ = 1 − exp(−‖θ − 1/√3‖²) and f₂ = 1 − exp(−‖θ + 1/√3‖²), have a
   concave front: θ = t/√3 · (1, 1, 1), t from −1 to 1. f₁ is the agent's loss and f₂ the coordinator's criterion.
   Minimisers of (1 − λ) f₁ + λ f₂ are near the ends for every λ; min max(w f₁, (1 − w) f₂) is where w f₁ = (1 − w) f₂.
2. Softmax regression on 10,000 images of MNIST with labels spread over 10 clients by Dirichlet(0.2), at least 100
   images each, 70 % to train on: 300 rounds of one epoch of SGD, rate 0.1, batches of 32; five partitions.
   AFL's mirror rate, q-FFL's q and L, FedMGDA+'s server rate and ε are those of small grids with the least worst
   *training* loss.

Reference of the functions: Fonseca, Fleming, *Multiobjective genetic algorithms made easy*, GALESIA 1995.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy.optimize import brentq

import majorant as mj
from majorant.core import Algorithm
from majorant.data.federated import FederatedData
from majorant.experiments.named import Context, Result
from majorant.experiments.trade_offs_agents import LOADERS
from majorant.experiments.trade_offs_theory import distance_to_curve
from majorant.models.base import Loss, Model, Spec

DIMENSION = 3
WEIGHTS = (0.05, 0.2, 0.35, 0.45, 0.5, 0.55, 0.65, 0.8, 0.95)
PREFERENCES = (0.1, 0.25, 0.4, 0.5, 0.6, 0.75, 0.9)
FRONT_ROUNDS, STARTS, RATE = 20_000, 20, 0.01
MIRROR_RATE, MEMORY = 200.0, 0.0  # a maximum smoothed with temperature 1/200: its minimisers are where runs settle
CLIENTS, ALPHA, FAIR_ROUNDS, FAIR_SEEDS = 10, 0.2, 300, 5


def chebyshev(context: Context) -> list[Result]:
    """A front that is not convex, and the worst client."""
    return [*concave_front(context), worst_client(context)]


def center(sign: float) -> np.ndarray:
    """The minimiser of f₁ (+1) or f₂ (−1)."""
    return np.full(DIMENSION, sign / DIMENSION**0.5, np.float32)


def bump(theta: jax.Array, at: jax.Array | np.ndarray) -> jax.Array:
    """1 − exp(−‖θ − center‖²), for every row of centers."""
    return 1 - jnp.exp(-jnp.square(theta - at).sum(axis=-1))


def two_bumps() -> tuple[Model, FederatedData, mj.criteria.Criterion]:
    """A model whose loss is f₁, the agent's only sample being its center, and the criterion f₂."""
    value = Loss("value", lambda out, y: out[:, 0], lambda out: out[:, 0], lambda classes: 1)
    model = mj.models.from_functions(
        lambda key: 0.4 * jax.random.normal(key, (DIMENSION,)),
        lambda theta, x: bump(theta, x)[:, None],
        Spec((DIMENSION,), 0),
        value,
        name="bump",
    )
    data = FederatedData.unlabelled(center(1.0)[None], clients=np.zeros(1, int), name="two bumps")
    return model, data, mj.criteria.criterion(lambda theta: bump(theta, center(-1.0)), name="other_bump")


def on_front(t: float | np.ndarray) -> np.ndarray:
    """(f₁, f₂) at θ = t/√n · (1 … 1)."""
    t = np.asarray(t, float)
    return np.stack([1 - np.exp(-((t - 1) ** 2)), 1 - np.exp(-((t + 1) ** 2))], axis=-1)


def preferred(w: float) -> float:
    """The t where w f₁ = (1 − w) f₂: the solution of the Chebyshev problem.

    >>> round(preferred(0.5), 6)
    0.0
    """
    return float(brentq(lambda t: w * on_front(t)[0] - (1 - w) * on_front(t)[1], -1, 1))


class Reached(NamedTuple):
    """Where runs from different starts ended."""

    t: np.ndarray  # (runs,) along the line through the centers
    values: np.ndarray  # (runs, 2)


def ends(theta: np.ndarray) -> Reached:
    """From parameters ``(runs, n)``."""
    values = [np.asarray(bump(jnp.asarray(theta), center(sign))) for sign in (1.0, -1.0)]
    return Reached(theta @ center(1.0), np.stack(values, axis=1))


def concave_front(context: Context) -> list[Result]:
    """What weighted sums and preferences reach."""
    rounds, starts = (2_000, 3) if context.quick else (FRONT_ROUNDS, context.seeds or STARTS)
    weights, preferences = (WEIGHTS[::4], PREFERENCES[::3]) if context.quick else (WEIGHTS, PREFERENCES)
    model, data, other = two_bumps()
    local = mj.local_sgd(RATE, steps=1, batch_size=None)
    curve = on_front(np.linspace(-1, 1, 2_001))

    context.tell(f"weighted sums: {len(weights)} λ, {starts} starts, {rounds} rounds")
    summed = mj.weighted_sum(model, other, local=local)
    run = mj.simulate(summed, data, rounds=rounds, evaluate_every=rounds, seeds=starts, grid={"lambda": weights})
    theta = np.asarray(run.snapshot.server.value).reshape(len(weights), starts, DIMENSION)
    rows: list[list[Any]] = []
    points: dict[str, list[np.ndarray]] = {"weighted sums": [], "Chebyshev": []}
    middle = {"weighted sums": 0, "Chebyshev": 0}
    for value, each in zip(weights, theta, strict=True):
        found = ends(each)
        best = int(np.argmin((1 - value) * found.values[:, 0] + value * found.values[:, 1]))
        rows.append(front_row(f"weighted sum, λ = {value:g}", found, best, curve, None))
        points["weighted sums"].append(found.values)
        middle["weighted sums"] += int((np.abs(found.t) < 0.5).any())
    context.tell(f"Chebyshev: {len(preferences)} preferences, {starts} starts, {rounds} rounds")
    algorithm = mj.chebyshev(
        model, other, clients=1, preferences=0.5, local=local, mirror_rate=MIRROR_RATE, memory=MEMORY
    )
    lambdas = [1 - w for w in preferences]  # f₁ then has preference ½ · 2(1 − λ) = w, and f₂ ½ · 2λ = 1 − w
    run = mj.simulate(algorithm, data, rounds=rounds, evaluate_every=rounds, seeds=starts, grid={"lambda": lambdas})
    theta = np.asarray(run.snapshot.server.value).reshape(len(preferences), starts, DIMENSION)
    for w, each in zip(preferences, theta, strict=True):
        found = ends(each)
        best = int(np.argmin(np.maximum(w * found.values[:, 0], (1 - w) * found.values[:, 1])))
        rows.append(front_row(f"Chebyshev, w = ({w:g}, {1 - w:g})", found, best, curve, preferred(w)))
        points["Chebyshev"].append(found.values)
        middle["Chebyshev"] += int((np.abs(found.t) < 0.5).any())
    notes = [
        f"{starts} random starts, {rounds:,} rounds of one step with rate {RATE:g}; Chebyshev with mirror rate "
        f"{MIRROR_RATE:g} and memory {MEMORY:g}: a maximum with temperature {1 / MIRROR_RATE:g}, whose minimisers are "
        "beside the true t. t = −1 and 1 are the ends of the front.",
        f"Settings that reach the middle half of the front, |t| < 0.5, from some start: {middle['weighted sums']} of "
        f"{len(weights)} weighted sums, {middle['Chebyshev']} of {len(preferences)} preferences.",
    ]
    columns = ["", "t of the best run", "t of all runs", "f₁", "f₂", "true t", "largest distance from the front"]
    line = {"the true front": (curve[:, 0].tolist(), curve[:, 1].tolist())}
    for name, parts in points.items():
        together = np.concatenate(parts)
        together = together[np.argsort(together[:, 0])]
        line[name] = (together[:, 0].tolist(), together[:, 1].tolist())
    return [Result("A concave front: Fonseca and Fleming's functions", columns, rows, notes, line, ("f₁", "f₂"))]


def front_row(name: str, found: Reached, best: int, curve: np.ndarray, truth: float | None) -> list[Any]:
    """A row of the table about the concave front."""
    away = distance_to_curve(found.values, curve).max()
    low, high = found.t.min(), found.t.max()
    spans = f"{low:.3f} to {high:.3f}"
    values = [f"{v:.4f}" for v in found.values[best]]
    return [name, f"{found.t[best]:.3f}", spans, *values, "" if truth is None else f"{truth:.3f}", f"{away:.1e}"]


class Fair(NamedTuple):
    """A method and the values of its own hyperparameters to choose from."""

    algorithm: Algorithm
    grid: Mapping[str, Sequence[float]]


def fair_methods(model: Model, clients: int) -> dict[str, Fair]:
    """All methods, with the same local work."""
    local = mj.local_sgd(0.1, epochs=1, batch_size=32)
    mirror = {"mirror_rate": (0.01, 0.1, 1.0)}
    return {
        "FedAvg": Fair(mj.fed_avg(model, local=local), {}),
        "AFL": Fair(mj.agnostic(model, clients=clients, local=local), mirror),
        "AFL, mean of rounds": Fair(mj.agnostic(model, clients=clients, local=local, output="average"), mirror),
        "q-FFL": Fair(
            mj.q_ffl(model, local=local, lipschitz=1.0), {"q": (0.1, 1.0, 5.0), "lipschitz": (0.1, 1.0, 10.0)}
        ),
        "FedMGDA+": Fair(mj.fed_mgda(model, local=local), {"server_lr": (0.1, 0.3, 1.0, 3.0), "epsilon": (0.1, 1.0)}),
    }


def spread_out(context: Context, seed: int) -> FederatedData:
    """Images whose labels are spread over clients by Dirichlet(α)."""
    count, least = (400, 15) if context.quick else (10_000, 100)
    x, y = LOADERS["MNIST"]()
    rows = np.random.default_rng([seed, 0xFA]).permutation(60_000)[:count]
    pixels = x[rows].reshape(count, -1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # clients with a single class are what this is about
        return mj.data.partitioned(
            pixels,
            y[rows],
            "dirichlet",
            clients=CLIENTS,
            alpha=ALPHA,
            min_samples=least,
            split=(0.7, 0.0, 0.3),
            seed=seed,
        )


def worst_client(context: Context) -> Result:
    """Accuracies of the worst client and of all, over partitions."""
    seeds = 2 if context.quick else context.seeds or FAIR_SEEDS
    rounds = 3 if context.quick else FAIR_ROUNDS
    found: dict[str, list[tuple[float, float, float, float, str]]] = {}
    for seed in range(seeds):
        data = spread_out(context, seed)
        model = mj.models.linear(data)
        for name, method in fair_methods(model, CLIENTS).items():
            context.tell(f"partition {seed}: {name}")
            run = mj.simulate(
                method.algorithm, data, rounds=rounds, evaluate_every=rounds, seed=seed, grid=method.grid or None
            )
            each = [scores.values for scores in run.scores]
            best = min(range(len(run)), key=lambda i: np.nan_to_num(each[i]["train_loss"].max(), nan=np.inf))
            chosen, tests = each[best], data.test.sizes
            mean = float(np.average(chosen["test_score"], weights=tests))
            values = " ".join(f"{value:g}" for value in run.settings[best]["hyper"].values())
            found.setdefault(name, []).append(
                (
                    float(chosen["test_score"].min()),
                    mean,
                    float(chosen["train_loss"].max()),
                    float(np.average(chosen["train_loss"], weights=data.train.sizes)),
                    values,
                )
            )
    rows = []
    base = np.array([one[0] for one in found["FedAvg"]])
    for name, runs in found.items():
        numbers = np.array([one[:4] for one in runs])
        gain = numbers[:, 0] - base
        error = gain.std(ddof=1) / len(gain) ** 0.5
        cells = [f"{numbers[:, k].mean():.4f} ± {numbers[:, k].std(ddof=1):.4f}" for k in range(4)]
        better = "" if name == "FedAvg" else f"{gain.mean():+.4f} ± {error:.4f}"
        rows.append([name, *cells[:2], better, *cells[2:], ", ".join(one[4] for one in runs if one[4])])
    columns = [
        "method",
        "worst client's accuracy",
        "mean accuracy",
        "worst: more than FedAvg",
        "worst training loss",
        "mean training loss",
        "chosen values",
    ]
    notes = [
        f"Softmax regression on MNIST, {CLIENTS} clients, Dirichlet({ALPHA:g}), {rounds} rounds, {seeds} partitions: "
        "mean ± deviation over them; the difference to FedAvg with its standard error.",
        "Accuracies on the clients' own test samples; chosen values (mirror rate; q and L; server rate and ε) have the "
        "least worst training loss, in each partition.",
    ]
    return Result("The worst client: AFL, q-FFL and FedMGDA+ against FedAvg", columns, rows, notes)
