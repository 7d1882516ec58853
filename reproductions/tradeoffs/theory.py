"""The weighted sum where the truth can be computed: softmax regression against its true front, and Theorem 2.4.

The front: five agents with 2,000 MNIST images each (i.i.d., and two digits an agent), pixels in [0, 1] less their
means, S = (c/2) ‖Θ‖² with c = 0.1. With all samples in one place, SciPy's L-BFGS finds the minimiser of every weighted
sum in double precision; as the problem is convex, these are the whole front. Our models come from federated rounds: one
step on all samples a round (then it is gradient descent), five steps, and an epoch of minibatches.

The theorem: logistic regression on 5 agents × 200 samples of unit norm, S = ½ ‖Θ‖², from Θ = 0. The left side is the
mean over rounds and local steps of F(mean_i Θ_i) − F(Θ*), for which the agents' points *within* rounds are needed: they
are made anew from the models at the beginning of rounds with the rounds' own keys. The constants hold everywhere: a
sample's gradient is at most √2 long, so that ζ ≤ (1 − λ) 2√2 (M − 1)/M and, for batches of b drawn with replacement,
Σ ≤ (1 − λ)² 2/b.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from majorant_reproductions.tradeoffs.agents import LOADERS, agents
from majorant_reproductions.tradeoffs.bounds import smoothness, step_size, suboptimality_bound

import majorant as mj
from majorant.app.reproduce import Context, Result
from majorant.core import Algorithm, ClientData, Tree, View, client_key, round_key
from majorant.data.federated import FederatedData
from majorant.data.few_classes import unit_norm, with_features
from majorant.models.base import Model

FRONT_FACTOR, FRONT_SAMPLES, FRONT_POINTS = 0.1, 2_000, 120
FRONT_LAMBDAS = (0.05, 0.25, 0.5, 0.65, 0.75, 0.87, 0.95, 0.99)
THEOREM_LAMBDAS, TAUS, BATCHES, LENGTHS, SEEDS = (0.1, 0.5, 0.9), (1, 5), (None, 10), (25, 100, 400, 1600), 10
STEEP_SAMPLE = 2.0  # the largest ‖(x, 1)‖² of samples of unit norm


class Convex(NamedTuple):
    """A convex problem whose agents have equally many samples, so that their mean loss is that of all samples."""

    data: FederatedData
    model: Model
    factor: float  # c

    def parts(self, flat: jax.Array, x: jax.Array, y: jax.Array) -> tuple[jax.Array, jax.Array]:
        """The agents' mean loss, on all samples, and S at parameters in one vector."""
        return self.model.losses(self.unravel(flat), x, y).mean(), self.factor / 2 * (flat**2).sum()

    def measured(self, points: np.ndarray | jax.Array) -> np.ndarray:
        """The agents' mean loss and S at many points, ``(…, parameters)`` to ``(…, 2)``."""
        rows = jnp.asarray(points).reshape(-1, points.shape[-1])
        loss, norm = measuring(self)(rows, *self.samples)
        return np.stack([np.asarray(loss), np.asarray(norm)], axis=1).reshape(*points.shape[:-1], 2)

    @property
    def samples(self) -> tuple[jax.Array, jax.Array]:
        """All agents' samples."""
        return jnp.asarray(self.data.train.x), jnp.asarray(self.data.train.y)

    @property
    def start(self) -> np.ndarray:
        """Zeros."""
        return np.zeros(ravel_pytree(self.model.init(jax.random.key(0)))[0].shape)

    def unravel(self, flat: jax.Array) -> Tree:
        """Parameters from a vector."""
        return ravel_pytree(self.model.init(jax.random.key(0)))[1](flat)

    def smooth(self) -> float:
        """The largest smoothness of an agent's loss: ¼ (two classes) or ½ (more) times that of (x, 1)."""
        curved = 0.25 if len(self.data.classes) == 2 else 0.5
        each = [self.data.train.client(c)[0] for c in range(self.data.clients)]
        with_one = [np.concatenate([x.reshape(len(x), -1), np.ones((len(x), 1))], axis=1) for x in each]
        return curved * max(float(np.linalg.eigvalsh(x.T @ x / len(x))[-1]) for x in with_one)


def measuring(problem: Convex) -> Callable:
    """The program that measures points, one after the other."""
    return jax.jit(lambda points, x, y: jax.lax.map(lambda flat: problem.parts(flat, x, y), points, batch_size=64))


def double(data: FederatedData) -> FederatedData:
    """The data in double precision."""
    return with_features(data, lambda x: x.astype(np.float64))


def minimisers(problem: Convex, lambdas: Sequence[float] | np.ndarray) -> np.ndarray:
    """The minimiser of every weighted sum, ``(λ, parameters)``, with all samples in one place."""
    coordinator = mj.criteria.coordinate(mj.criteria.squared_norm(problem.factor))
    found = mj.tradeoffs.solve_centrally(problem.model, problem.data, coordinator, lambdas)
    return np.stack([np.asarray(ravel_pytree(one.params)[0]) for one in found])


def distance_to_curve(points: np.ndarray, curve: np.ndarray) -> np.ndarray:
    """How far points ``(n, 2)`` are from a polygon through ``curve``, in units of the curve's extent.

    >>> corner = np.array([[0.0, 0.0], [10.0, 0.0], [10.0, 2.0]])
    >>> distance_to_curve(np.array([[5.0, 1.0], [12.0, 0.0]]), corner).round(6).tolist()
    [0.5, 0.2]
    """
    extent = np.ptp(curve, axis=0)
    points, curve = points / extent, curve / extent
    begin, along = curve[:-1], np.diff(curve, axis=0)
    share = ((points[:, None] - begin) * along).sum(axis=2) / np.maximum((along**2).sum(axis=1), 1e-300)
    nearest = begin + np.clip(share, 0, 1)[..., None] * along
    return np.linalg.norm(points[:, None] - nearest, axis=2).min(axis=1)


def logistic(context: Context) -> list[Result]:
    """Softmax regression: our points and the true front."""
    with jax.enable_x64(True):
        return [against_the_front(context, split) for split in ("iid", "two-digits")]


def front_problem(context: Context, split: str) -> Convex:
    """MNIST images less their means."""
    count = 60 if context.quick else FRONT_SAMPLES
    data = agents(LOADERS["MNIST"](), split, train=count, validation=1, test=1).data
    pixels = with_features(data, lambda x: x.astype(np.float64) / 255)
    mean = pixels.train.x.mean(axis=0)
    whole = with_features(pixels, lambda x: x - mean)
    return Convex(whole, mj.models.linear(whole, start="zeros"), FRONT_FACTOR)


def against_the_front(context: Context, split: str) -> Result:
    """A row for every λ and way to train."""
    problem = front_problem(context, split)
    lambdas = FRONT_LAMBDAS[2::3] if context.quick else FRONT_LAMBDAS
    count = 10 if context.quick else FRONT_POINTS
    odds = np.geomspace(0.04, 200, count)
    dense = np.unique(np.concatenate([odds / (1 + odds), lambdas]))
    context.tell(f"{split}: {len(dense)} minimisers by L-BFGS")
    curve = problem.measured(minimisers(problem, dense))  # (λ, 2)
    best = np.array([curve[np.flatnonzero(dense == value)[0]] for value in lambdas])
    rate, short = 1 / problem.smooth(), context.quick
    ways: dict[str, tuple[Any, int]] = {
        "one step on all samples": (mj.local_sgd(rate, steps=1, batch_size=None), 50 if short else 10_000),
        "5 steps on all samples": (mj.local_sgd(rate, steps=5, batch_size=None), 20 if short else 2_000),
        "an epoch, batches of 50": (mj.local_sgd(rate / 10, epochs=1, batch_size=50), 5 if short else 200),
    }
    rows, curves = [], {"the true front": (curve[:, 1].tolist(), curve[:, 0].tolist())}
    for name, (local, rounds) in ways.items():
        context.tell(f"{split}: {name}, {rounds} rounds")
        algorithm = mj.tradeoffs.weighted_sum(problem.model, mj.criteria.squared_norm(problem.factor), local=local)
        run = mj.simulate(
            algorithm, problem.data, rounds=rounds, evaluation=mj.Evaluation(every=rounds), grid={"lambda": lambdas}
        )
        ours = problem.measured(flattened(run.snapshot.server.value))
        away = distance_to_curve(ours, curve)
        weights = np.stack([1 - np.array(lambdas), np.array(lambdas)], axis=1)
        gap = (weights * ours).sum(axis=1) / (weights * best).sum(axis=1) - 1
        curves[name] = (ours[:, 1].tolist(), ours[:, 0].tolist())
        for i, value in enumerate(lambdas):
            numbers = [f"{n:.5f}" for n in (ours[i, 0], best[i, 0], ours[i, 1], best[i, 1])]
            rows.append([f"{name}, {rounds} rounds", f"{value:g}", *numbers, f"{away[i]:.1e}", f"{gap[i]:.1e}"])
    notes = [
        f"C: the mean loss of 5 agents × {problem.data.train.sizes[0]} images; S = (c/2) ‖Θ‖², c = {problem.factor:g}; "
        f"double precision; steps of 1/L_C = {rate:.3g} on all samples, a tenth of it on batches.",
        f"Distance: to the polygon through {len(dense)} true points, in units of the front's extent along each axis "
        f"(with half of these points, the others would be up to {distance_to_curve(curve[1::2], curve[::2]).max():.0e} "
        "away). A model can be near the front and far from its own λ's point: then F/F* − 1 is large.",
    ]
    columns = ["trained by", "λ", "C", "true C", "S", "true S", "distance from the front", "F/F* − 1"]
    title = (
        f"Softmax regression, {'i.i.d.' if split == 'iid' else 'two digits an agent'}: our points and the true front"
    )
    return Result(title, columns, rows, notes, curves, ("S", "agents' mean loss"), dots=tuple(ways))


def flattened(params: Tree) -> jax.Array:
    """Parameters side by side as vectors, ``(runs, parameters)``."""
    return jax.vmap(lambda p: ravel_pytree(p)[0])(jax.tree.map(jnp.asarray, params))


def theorem(context: Context) -> list[Result]:
    """Both sides of Theorem 2.4."""
    with jax.enable_x64(True):
        return both_sides(context)


def theorem_problem(samples: int = 200) -> Convex:
    """Logistic regressions that differ from agent to agent, with features of unit norm."""
    data = unit_norm(mj.data.heterogeneous_logistic(clients=5, samples=samples, dimension=10, sigma=2.0, seed=0))
    data = double(data)
    return Convex(data, mj.models.linear(data, start="zeros"), 1.0)


def both_sides(context: Context) -> list[Result]:
    """A row for every λ, number of local steps, batch size and number of rounds."""
    problem = theorem_problem()
    seeds = 2 if context.quick else context.seeds or SEEDS
    spans = LENGTHS[:2] if context.quick else LENGTHS
    best = minimisers(problem, THEOREM_LAMBDAS)
    rows: list[list[Any]] = []
    slopes: list[list[Any]] = []
    for tau in TAUS:
        for batch in BATCHES:
            measured = {}
            for rounds in spans:
                context.tell(f"τ = {tau}, batches of {batch or 'all'}, {rounds} rounds")
                measured[rounds] = sides(problem, best, tau, batch, rounds, seeds if batch else 1)
            label = [str(tau), str(batch or "all")]
            for place, value in enumerate(THEOREM_LAMBDAS):
                for rounds, found in measured.items():
                    left, right = found.left[place], found.right[place]
                    numbers = [f"{left:.3g}", f"{right:.3g}", f"{left / right:.2g}", "yes" if left <= right else "NO"]
                    rows.append([f"{value:g}", *label, str(rounds), f"{found.rates[place]:.3g}", *numbers])
                ends = np.log([found.left[place] for found in measured.values()])
                exponents = np.diff(ends) / np.diff(np.log(spans))
                slopes.append([f"{value:g}", *label, *(f"{each:.3f}" for each in exponents)])
    notes = [
        f"{seeds} seeds where there are batches; L, D, ζ and Σ of the errata, on (1 − λ) C_i + λ S; "
        "η = 1/(4 L τ √T), another run for every T.",
        "The left side is the mean of F(mean_i Θ_i) − F(Θ*) over all rounds and local steps; Θ* by L-BFGS.",
    ]
    columns = ["λ", "τ", "batch", "T", "η", "left side", "bound", "left / bound", "holds"]
    return [
        Result("Theorem 2.4: measured suboptimality and the bound", columns, rows, notes),
        Result(
            "The left side's exponent of T between two numbers of rounds",
            ["λ", "τ", "batch", *(f"{a} to {b}" for a, b in itertools.pairwise(spans))],
            slopes,
            [
                "The bound's leading terms have −1/2. As η τ T = √T/(4 L), short runs end before they converge, and "
                "their mean of F − F* is nearly that at the start, whatever T is: exponents come to −1/2 from above."
            ],
        ),
    ]


class Sides(NamedTuple):
    """Both sides of the theorem and the learning rate, ``(λ,)`` each."""

    left: np.ndarray
    right: np.ndarray
    rates: np.ndarray
    mismatch: float  # between the models that rounds led to and those made anew


def sides(problem: Convex, best: np.ndarray, tau: int, batch: int | None, rounds: int, seeds: int) -> Sides:
    """Runs all λ with the theorem's step, and measures."""
    count, lambdas = problem.data.clients, np.array(THEOREM_LAMBDAS)
    steep = [smoothness(problem.smooth(), [problem.factor], weight=value) for value in THEOREM_LAMBDAS]
    rates = np.array([step_size(value, tau=tau, rounds=rounds) for value in steep])
    make = lambda steps: weighted(problem, steps, batch)
    hyper = {"lambda": np.repeat(lambdas, seeds).tolist(), "lr": np.repeat(rates, seeds).tolist()}
    listed = list(range(seeds)) * len(lambdas)
    path: list[Tree] = []
    mj.simulate(
        make(tau),
        problem.data,
        rounds=rounds,
        seeds=listed,
        hyper=hyper,
        evaluation=mj.Evaluation(every=1, report=lambda records, snapshot: path.append(snapshot().server.value)),
    )
    ends = np.stack([np.asarray(flattened(params)) for params in path])  # (rounds, runs, parameters)
    begins = np.concatenate([np.broadcast_to(problem.start, (1, *ends.shape[1:])), ends[:-1]])
    inside = points_within(problem, [make(k) for k in range(1, tau + 1)], begins, hyper, listed, rounds)
    weigh = lambda lam, values: (1 - lam) * values[..., 0] + lam * values[..., 1]
    objective = weigh(np.repeat(lambdas, seeds)[:, None], problem.measured(inside))  # (rounds, runs, τ)
    least = weigh(lambdas, problem.measured(best))
    left = objective.mean(axis=(0, 2)).reshape(len(lambdas), seeds).mean(axis=1) - least
    right = [
        suboptimality_bound(
            steep[i],
            tau=tau,
            rounds=rounds,
            agents=count,
            distance=float(np.linalg.norm(best[i])),
            heterogeneity=(1 - value) * 2 * STEEP_SAMPLE**0.5 * (count - 1) / count,
            variance=(1 - value) ** 2 * STEEP_SAMPLE / batch if batch else 0.0,
        )
        for i, value in enumerate(lambdas)
    ]
    return Sides(left, np.array(right), rates, float(np.abs(np.asarray(inside)[:, :, -1] - ends).max()))


def weighted(problem: Convex, steps: int, batch: int | None) -> Algorithm:
    """The weighted sum with so many steps a round."""
    local = mj.local_sgd(0.1, steps=steps, batch_size=batch)
    return mj.tradeoffs.weighted_sum(problem.model, mj.criteria.squared_norm(problem.factor), local=local)


def points_within(
    problem: Convex,
    algorithms: list[Algorithm],
    begins: np.ndarray,
    hyper: dict[str, list[float]],
    seeds: list[int],
    rounds: int,
) -> jax.Array:
    """The agents' mean point after each local step, ``(rounds, runs, τ, parameters)``.

    Local solvers draw their j-th batch from the key of the round, the client and j: with k steps in place of τ they
    make the first k of the same steps.
    """
    data, count = problem.data, problem.data.clients
    size = int(data.train.sizes[0])
    cut = lambda a: jnp.asarray(a).reshape(count, size, *a.shape[1:])
    slots = jnp.arange(count)
    clients = ClientData(cut(data.train.x), cut(data.train.y), jnp.full(count, size), slots, slots)
    values = {name: jnp.asarray(v) for name, v in hyper.items()}
    keys = jax.vmap(jax.random.key)(jnp.asarray(seeds, jnp.uint32))

    def step(algorithm: Algorithm, flat: jax.Array, own: dict, key: jax.Array, t: jax.Array) -> jax.Array:
        view = View(problem.unravel(flat), own, t, jnp.asarray(rounds))
        key = round_key(key, t + 1)
        one = lambda client: algorithm.client.update(view, (), client, client_key(key, client.id))[0].value
        return flattened(jax.vmap(one)(clients)).mean(axis=0)

    @jax.jit
    def all_rounds(begins: jax.Array) -> jax.Array:
        def one_round(args: tuple[jax.Array, jax.Array]) -> jax.Array:
            flat, t = args
            each: list[Callable] = [functools.partial(step, algorithm) for algorithm in algorithms]
            return jnp.stack([jax.vmap(f, (0, 0, 0, None))(flat, values, keys, t) for f in each], axis=1)

        return jax.lax.map(one_round, (begins, jnp.arange(len(begins))))

    return all_rounds(jnp.asarray(begins))
