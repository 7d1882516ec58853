"""Where weighted sums do not reach, and the worst client: Chebyshev scalarization, AFL, q-FFL and FedMGDA+.

1. Fonseca and Fleming's two functions of θ in R³, f₁ = 1 − exp(−‖θ − 1/√3‖²) and f₂ = 1 − exp(−‖θ + 1/√3‖²), have a
   concave front: θ = t/√3 · (1, 1, 1), t from −1 to 1. f₁ is the agent's loss and f₂ the coordinator's criterion.
   Minimisers of (1 − λ) f₁ + λ f₂ are near the ends for every λ; min max(w f₁, (1 − w) f₂) is where w f₁ = (1 − w) f₂.
2. Ten agents draw 1,000 images of MNIST to train on and 1,000 to test by, each with a distribution of labels of its own
   from Dirichlet(0.2). Softmax regression on 7×7 means of pixels, standardised: 2,000 rounds of 5 SGD steps on batches
   of 50; ten partitions. Every method chooses its learning rate from one grid, and its own parameters (AFL's mirror
   rate, q-FFL's q, FedMGDA+'s server rate and ε) from others, by the least worst *training* loss.

   The design is for what theory speaks of. All agents have equally many samples and steps: with an epoch each, larger
   agents would go further in a round, and descent would be on other weights than ρ. 49 features for 10,000 images:
   with all 784 pixels the training images are nearly separable, the least worst loss is about 0, and methods differ by
   how fast they get there; here agents truly compete, and AFL's duality gap says how near it has come. With 1,000 test
   images an agent the worst accuracy has a standard error of about 0.01.

Reference of the functions: Fonseca, Fleming, *Multiobjective genetic algorithms made easy*, GALESIA 1995.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from majorant_reproductions.tradeoffs.agents import LOADERS
from majorant_reproductions.tradeoffs.theory import distance_to_curve
from scipy.optimize import brentq

import majorant as mj
from majorant.app.reproduce import Context, Result
from majorant.core import Algorithm, Tree
from majorant.data.allocation import allocate
from majorant.data.federated import FederatedData, Ragged, offsets_of
from majorant.models.base import Loss, Model, Spec
from majorant.tradeoffs import duality_gap

DIMENSION = 3
WEIGHTS = (0.05, 0.2, 0.35, 0.45, 0.5, 0.55, 0.65, 0.8, 0.95)
PREFERENCES = (0.1, 0.25, 0.4, 0.5, 0.6, 0.75, 0.9)
FRONT_ROUNDS, STARTS, RATE = 20_000, 20, 0.01
MIRROR_RATE, MEMORY = 200.0, 0.0  # a maximum smoothed with temperature 1/200: its minimisers are where runs settle
CLIENTS, ALPHA, FAIR_ROUNDS, FAIR_SEEDS, IMAGES = 10, 0.2, 2_000, 10, 1_000
LEARNING_RATES = (0.03, 0.1, 0.3)


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
    summed = mj.tradeoffs.weighted_sum(model, other, local=local)
    run = mj.simulate(
        summed, data, rounds=rounds, evaluation=mj.Evaluation(every=rounds), seeds=starts, grid={"lambda": weights}
    )
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
    algorithm = mj.tradeoffs.chebyshev(
        model, other, clients=1, preferences=0.5, local=local, mirror_rate=MIRROR_RATE, memory=MEMORY
    )
    lambdas = [1 - w for w in preferences]  # f₁ then has preference ½ · 2(1 − λ) = w, and f₂ ½ · 2λ = 1 − w
    run = mj.simulate(
        algorithm, data, rounds=rounds, evaluation=mj.Evaluation(every=rounds), seeds=starts, grid={"lambda": lambdas}
    )
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
    title, axes = "A concave front: Fonseca and Fleming's functions", ("f₁", "f₂")
    return [Result(title, columns, rows, notes, line, axes, dots=tuple(points))]


def front_row(name: str, found: Reached, best: int, curve: np.ndarray, truth: float | None) -> list[Any]:
    """A row of the table about the concave front."""
    away = distance_to_curve(found.values, curve).max()
    low, high = found.t.min(), found.t.max()
    spans = f"{low:.3f} to {high:.3f}"
    values = [f"{v:.4f}" for v in found.values[best]]
    return [name, f"{found.t[best]:.3f}", spans, *values, "" if truth is None else f"{truth:.3f}", f"{away:.1e}"]


class Fair(NamedTuple):
    """A method and the values of its hyperparameters to choose from."""

    algorithm: Algorithm
    grid: Mapping[str, Sequence[float]]


def fair_methods(model: Model) -> dict[str, Fair]:
    """All methods, with the same local work and the same learning rates to choose from."""
    local, rates = mj.local_sgd(0.1, steps=5, batch_size=50), {"lr": LEARNING_RATES}
    return {
        "FedAvg": Fair(mj.fedavg(model, local=local), rates),
        "AFL": Fair(mj.tradeoffs.afl(model, clients=CLIENTS, local=local), rates | {"mirror_rate": (0.01, 0.1, 1.0)}),
        "q-FFL": Fair(mj.methods.q_ffl(model, local=local), rates | {"q": (0.1, 1.0, 5.0)}),
        "FedMGDA+": Fair(
            mj.methods.fedmgda_plus(model, local=local), rates | {"server_lr": (0.1, 0.3, 1.0), "epsilon": (0.1, 1.0)}
        ),
    }


def own_labels(count: int, seed: int) -> FederatedData:
    """Agents with so many images to train on and as many to test by, with labels from a Dirichlet(α) of their own."""
    x, y = (a[:60_000] for a in LOADERS["MNIST"]())
    small = x.reshape(-1, 7, 4, 7, 4).mean(axis=(2, 4)).reshape(-1, 49) / 255
    small = ((small - small.mean(axis=0)) / np.maximum(small.std(axis=0), 0.05)).astype(np.float32)
    rng = np.random.default_rng([seed, 0xFA])
    supply = [rng.permutation(np.flatnonzero(y == label)) for label in range(10)]
    used, rows = np.zeros(10, int), []
    for _ in range(CLIENTS):
        left = np.array([len(each) for each in supply]) - used
        taken = allocate(rng, 2 * count, rng.dirichlet(np.full(10, ALPHA)), left)
        own = [each[a : a + n] for each, a, n in zip(supply, used, taken, strict=True)]
        rows.append(rng.permutation(np.concatenate(own)))
        used += taken
    part = lambda each: Ragged(
        small[np.concatenate(each)],
        y[np.concatenate(each)].astype(np.int32),
        offsets_of(np.array([len(one) for one in each])),
    )
    train, none, test = (part([one[cut] for one in rows]) for cut in (slice(count), slice(0), slice(count, None)))
    names = tuple(f"agent {i + 1}" for i in range(CLIENTS))
    return FederatedData(train, none, test, np.zeros(CLIENTS, bool), names, tuple(range(10)), "own labels")


class Judged(NamedTuple):
    """Every agent's training loss and test accuracy, ``(runs, agents)``."""

    loss: np.ndarray
    accuracy: np.ndarray


def by_agent(part: Ragged) -> tuple[jax.Array, jax.Array]:
    """Samples of agents that have equally many, ``(agents, n, ...)``."""
    return jnp.asarray(part.x.reshape(CLIENTS, -1, part.x.shape[1])), jnp.asarray(part.y.reshape(CLIENTS, -1))


def agents_losses(model: Model, params: Tree, train: tuple[jax.Array, jax.Array]) -> jax.Array:
    """Every agent's mean loss."""
    return jax.vmap(lambda x, y: model.losses(params, x, y).mean())(*train)


def judge(model: Model, data: FederatedData, params: Tree) -> Judged:
    """Models side by side on every agent's samples."""
    right = lambda own, x, y: (model.predict(own, x).argmax(axis=1) == y).mean()
    both = lambda own, train, test: (
        agents_losses(model, own, train),
        jax.vmap(lambda x, y: right(own, x, y))(*test),
    )
    found = jax.jit(jax.vmap(both, (0, None, None)))(params, by_agent(data.train), by_agent(data.test))
    return Judged(*(np.asarray(each, float) for each in found))


def gap_of(model: Model, data: FederatedData, theta: Tree, rho: np.ndarray) -> float:
    """AFL's duality gap on the agents' training losses, in double precision."""
    with jax.enable_x64(True):
        x, y = by_agent(data.train)
        train, theta = (x.astype(float), y), jax.tree.map(lambda a: jnp.asarray(a, float), theta)
        return duality_gap(lambda at: agents_losses(model, at, train), theta, rho / rho.sum())


class Outcome(NamedTuple):
    """What the chosen model of a method is worth on a partition."""

    worst: float
    mean: float
    worst_loss: float
    mean_loss: float
    values: str  # the chosen hyperparameters


def outcome(
    judged: Judged,
    settings: Sequence[Mapping[str, Any]],
    rule: Callable[[np.ndarray], np.ndarray] = lambda losses: losses.max(axis=1),
) -> tuple[int, Outcome]:
    """The place of the model that a rule, the worst one, chooses by the training losses, and what it is worth."""
    best = int(np.nan_to_num(rule(judged.loss), nan=np.inf).argmin())
    right, losses = judged.accuracy[best], judged.loss[best]
    values = " ".join(f"{value:g}" for value in settings[best]["hyper"].values())
    numbers = [float(each) for each in (right.min(), right.mean(), losses.max(), losses.mean())]
    return best, Outcome(numbers[0], numbers[1], numbers[2], numbers[3], values)


def worst_client(context: Context) -> Result:
    """Accuracies of the worst agent and of all, over partitions."""
    seeds = 2 if context.quick else context.seeds or FAIR_SEEDS
    rounds, count = (3, 20) if context.quick else (FAIR_ROUNDS, IMAGES)
    found: dict[str, list[Outcome]] = {}
    gaps = []
    model = mj.models.linear(Spec((49,), 10))
    methods = fair_methods(model)
    for seed in range(seeds):
        data = own_labels(count, seed)
        for name, method in methods.items():
            context.tell(f"partition {seed}: {name}")
            run = mj.simulate(
                method.algorithm,
                data,
                rounds=rounds,
                evaluation=mj.Evaluation(every=rounds),
                seed=seed,
                grid=method.grid,
            )
            server = run.snapshot.server
            judged = judge(model, data, server.value)
            found.setdefault(name, []).append(outcome(judged, run.settings)[1])
            if name == "FedAvg":
                by_mean = outcome(judged, run.settings, lambda losses: losses.mean(axis=1))[1]
                found.setdefault("FedAvg, by the mean loss", []).append(by_mean)
            if name == "AFL":
                best, of_mean = outcome(judge(model, data, server.state.average), run.settings)
                found.setdefault("AFL, mean of rounds", []).append(of_mean)
                theta = jax.tree.map(lambda a, best=best: a[best], server.state.average)
                gaps.append(gap_of(model, data, theta, np.asarray(server.state.rho[best], float)))
    return fair_table(found, np.array(gaps), rounds)


def fair_table(found: dict[str, list[Outcome]], gaps: np.ndarray, rounds: int) -> Result:
    """A row for every method; differences to FedAvg are over the same partitions."""
    numbers = {name: np.array([one[:4] for one in runs]) for name, runs in found.items()}
    base, rows = numbers["FedAvg"], []
    for name, each in numbers.items():
        cells = [f"{each[:, k].mean():.4f} ± {each[:, k].std(ddof=1):.4f}" for k in range(4)]
        gains = [each[:, k] - base[:, k] for k in (0, 2)]
        more = [f"{g.mean():+.4f} ± {g.std(ddof=1) / len(g) ** 0.5:.4f}" for g in gains]
        more[0] += f", {int((gains[0] > 0).sum())} of {len(base)}"
        if name == "FedAvg":
            more = ["", ""]
        values = ", ".join(one.values for one in found[name])
        rows.append([name, cells[0], more[0], cells[1], cells[2], more[1], cells[3], values])
    columns = [
        "method",
        "worst agent's accuracy",
        "more than FedAvg",
        "mean accuracy",
        "worst training loss",
        "more than FedAvg",
        "mean training loss",
        "chosen values",
    ]
    averaged = numbers["AFL, mean of rounds"][:, 2]
    notes = [
        f"Softmax regression on MNIST in 7×7 pixels, {CLIENTS} agents with labels from Dirichlet({ALPHA:g}), {rounds} "
        f"rounds, {len(base)} partitions: mean ± deviation over them; differences to FedAvg with standard errors, "
        "and in how many partitions the worst accuracy is higher.",
        f"Chosen values, in each partition: the learning rate from {', '.join(f'{r:g}' for r in LEARNING_RATES)}, then "
        "mirror rate; q; server rate and ε; the least worst training loss decides (and once, for FedAvg, the mean).",
        f"AFL's duality gap (mean of rounds) is {gaps.mean():.4f}, at most {gaps.max():.4f}: no model's worst training "
        f"loss is below {(averaged - gaps).mean():.4f} on average over the partitions.",
    ]
    return Result("The worst agent: AFL, q-FFL and FedMGDA+ against FedAvg", columns, rows, notes)
