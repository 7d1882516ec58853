"""Large λ: the paper cannot train for λ ≥ 0.88. Is that a failure of training, or is Θ = 0 what was asked for?

The i.i.d. experiment as in the notebooks, S = (c/2) ‖Θ‖² with c = 10⁻², for λ from 0.87 to 0.99. Constant answers are
the model with all parameters 0 but the biases of the last layer, with the best biases for F (a convex problem in ten
numbers): near Θ = 0, and a local minimum of F for every λ > 0, as the network's other outputs are products of four
layers. F is compared there and at points that were reached

    cold             as in the notebooks, from a random start: 50 rounds of Adam with rate 0.01
    cold, slow       the same with rate 0.001
    ramp, slow       with that rate, λ rising from 0 to its value over the first 80 % of the 50 rounds
    cold, implicit   50 rounds of SGD (rate 0.5, batches of 64) on (1 − λ) C_i, S's proximal operator after every step
    warm             λ rises in steps from a model trained with λ = 0.5, 10 rounds of Adam with rate 0.001 at each
    warm, implicit   from there, 10 more rounds with the implicit step

All but the last two have the same number of rounds and are one program each.

A run has collapsed where its test accuracy is below 0.2. A point below the constant answers in F shows that these are
not the minimiser; where none is found, they are the best that is known. Whether they *are* the minimiser would need a
proof.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from majorant_reproductions.tradeoffs.agents import Agents, accuracy, answers_of, norms
from majorant_reproductions.tradeoffs.images import lengths, made_agents
from majorant_reproductions.tradeoffs.released import RELEASED, network, released, released_solver
from scipy.optimize import minimize
from scipy.special import logsumexp

import majorant as mj
from majorant.app.reproduce import Context, Result
from majorant.core import Algorithm, Tree, blockwise
from majorant.engines.run import Run
from majorant.models.base import Model

LAMBDAS = (0.87, 0.88, 0.89, 0.9, 0.91, 0.92, 0.93, 0.95, 0.97, 0.975, 0.98, 0.99)
START, BEFORE = 0.5, (0.6, 0.7, 0.75, 0.8, 0.84)  # where the warm path begins, and what it passes on its way
SEEDS, WARM_ROUNDS, RAMP, COLLAPSED, ROUNDING = 3, 10, 0.8, 0.2, 1e-3
FACTOR = RELEASED["iid"].factor


class Found(NamedTuple):
    """Points that were reached, ``(λ, seeds)`` each."""

    objective: np.ndarray
    accuracy: np.ndarray
    norm: np.ndarray
    params: Tree  # (λ · seeds, ...)


class Judge:
    """Measures models side by side: F on all training samples, and the accuracy on the test samples."""

    def __init__(self, model: Model, held: Agents) -> None:
        self.confusions = answers_of(model, held)
        self.samples = jnp.asarray(held.data.train.x), jnp.asarray(held.data.train.y)
        each = lambda params, x, y: blockwise(lambda x, y: model.losses(params, x, y), x, y).mean()
        self.loss = jax.jit(lambda params, x, y: jax.lax.map(lambda p: each(p, x, y), params))

    def __call__(self, run: Run, lambdas: Sequence[float]) -> Found:
        params = run.snapshot.server.value
        loss, norm = np.asarray(self.loss(params, *self.samples), float), norms(run)
        lam = np.repeat(lambdas, len(loss) // len(lambdas))
        objective = (1 - lam) * loss + lam * FACTOR / 2 * norm**2
        right = accuracy(self.confusions(params)[1])
        shape = lambda values: values.reshape(len(lambdas), -1)
        return Found(shape(objective), shape(right), shape(norm), params)


def constant_answers(labels: np.ndarray, weight: float, factor: float) -> tuple[float, float]:
    """The least F of a model that answers the same to all, and the norm of its biases.

    >>> value, norm = constant_answers(np.arange(100) % 10, 0.9, 0.01)
    >>> bool(np.isclose(value, 0.1 * np.log(10))), round(norm, 6)
    (True, 0.0)
    """
    shares = np.bincount(labels) / len(labels)

    def value_and_gradient(b: np.ndarray) -> tuple[float, np.ndarray]:
        whole = logsumexp(b)
        value = (1 - weight) * (whole - shares @ b) + weight * factor / 2 * (b @ b)
        return value, (1 - weight) * (np.exp(b - whole) - shares) + weight * factor * b

    found = minimize(value_and_gradient, np.zeros(len(shares)), jac=True, method="L-BFGS-B", options={"gtol": 1e-10})
    return float(found.fun), float(np.linalg.norm(found.x))


def collapse(context: Context) -> list[Result]:
    """The objective at zero and at all points that were reached."""
    lambdas = (0.87, 0.99) if context.quick else LAMBDAS
    held = made_agents(context, "MNIST", "iid", 9_600, 2_400)
    seeds = 2 if context.quick else context.seeds or SEEDS
    model = network(held.data)
    found = reached(context, model, held, lambdas, seeds)
    flat = [constant_answers(held.data.train.y, value, FACTOR)[0] for value in lambdas]
    zero = [(1 - value) * np.log(len(held.data.classes)) for value in lambdas]
    return [objectives(lambdas, zero, flat, found), scores(lambdas, found, flat)]


def reached(context: Context, model: Model, held: Agents, lambdas: Sequence[float], seeds: int) -> dict[str, Found]:
    """Points by every way of the module's introduction."""
    rounds, short, judge = lengths(context)[0], 2 if context.quick else WARM_ROUNDS, Judge(model, held)
    own = mj.criteria.squared_norm(FACTOR)
    explicit = mj.tradeoffs.weighted_sum(model, own, local=released_solver("iid"))
    sgd = mj.local_sgd(0.5, epochs=1, batch_size=64)
    implicit = mj.tradeoffs.weighted_sum(model, own, local=sgd, step="implicit")
    theirs = released(model, "iid")

    def train(algorithm: Algorithm, rounds: int, **options: Any) -> Run:
        return mj.simulate(
            algorithm, held.data, rounds=rounds, evaluation=mj.Evaluation(every=rounds), seeds=seeds, **options
        )

    found, grid = {}, {"lambda": list(lambdas)}
    for name, rate in {"cold": 1.0, "cold, slow": 0.1}.items():
        context.tell(f"{name}: {len(lambdas)} λ × {seeds} seeds, {rounds} rounds")
        found[name] = judge(train(theirs, rounds, grid=grid, hyper={"lr_scale": rate}), lambdas)
    context.tell(f"ramp, slow: {rounds} rounds")
    rising = released(model, "iid", ramp=RAMP)
    found["ramp, slow"] = judge(train(rising, rounds, grid=grid, hyper={"lr_scale": 0.1}), lambdas)
    context.tell(f"cold, implicit: {rounds} rounds")
    found["cold, implicit"] = judge(train(implicit, rounds, grid=grid), lambdas)
    context.tell(f"warm: {rounds} rounds with λ = {START:g}, then {short} for each λ")
    run, along = train(explicit, rounds, hyper={"lambda": START}), []
    for value in (*BEFORE, *lambdas):
        here = start_at(run.snapshot.server.value)
        run = train(explicit, short, hyper={"lambda": value, "lr_scale": 0.1}, resume=here)
        along.append(judge(run, [value]))
    kept = along[len(BEFORE) :]
    params = jax.tree.map(lambda *leaves: np.concatenate(leaves), *[each.params for each in kept])
    joined = lambda name: np.concatenate([getattr(each, name) for each in kept])
    found["warm"] = Found(joined("objective"), joined("accuracy"), joined("norm"), params)
    context.tell(f"warm, implicit: {short} rounds")
    found["warm, implicit"] = judge(train(implicit, short, grid=grid, resume=start_at(params)), lambdas)
    return found


def start_at(params: Tree) -> Callable:
    """Fresh runs with these models in place of random ones."""
    return lambda fresh: fresh._replace(server=fresh.server._replace(value=params))


def better(found: dict[str, Found], flat: Sequence[float]) -> list[bool]:
    """For every λ, whether a point was reached that is below the constant answers by more than rounding."""
    lowest = np.min([each.objective.min(axis=1) for each in found.values()], axis=0)
    return (lowest < (1 - ROUNDING) * np.asarray(flat)).tolist()


def objectives(
    lambdas: Sequence[float], zero: Sequence[float], flat: Sequence[float], found: dict[str, Found]
) -> Result:
    """F everywhere, and where it is least."""
    rows, curves, below = [], {"constant answers": (list(lambdas), list(flat))}, better(found, flat)
    for i, value in enumerate(lambdas):
        least = {name: float(each.objective[i].min()) for name, each in found.items()}
        best = min(least, key=lambda name: least[name])
        where = best if below[i] else "constant answers"
        cells = [f"{each.objective[i].mean():.5f}" for each in found.values()]
        rows.append([f"{value:g}", f"{zero[i]:.5f}", f"{flat[i]:.5f}", *cells, f"{least[best]:.5f}", where])
    for name, each in found.items():
        curves[name] = (list(lambdas), each.objective.mean(axis=1).tolist())
    largest = max((value for value, under in zip(lambdas, below, strict=True) if under), default="none")
    notes = [
        f"F = (1 − λ) · mean loss + λ (c/2) ‖Θ‖², c = {FACTOR:g}, on all training images; means over "
        f"{next(iter(found.values())).objective.shape[1]} seeds, and the lowest of all runs.",
        f"The largest λ at which a point below the constant answers was found: {largest}.",
    ]
    columns = ["λ", "Θ = 0", "constant answers", *found, "lowest reached", "lowest is"]
    return Result("F at zero and at the points reached, i.i.d. MNIST", columns, rows, notes, curves, ("λ", "F"))


def scores(lambdas: Sequence[float], found: dict[str, Found], flat: Sequence[float]) -> Result:
    """Accuracy, norm, and how many runs collapsed."""
    rows = []
    for i, value in enumerate(lambdas):
        cells = []
        for each in found.values():
            fallen = int((each.accuracy[i] < COLLAPSED).sum())
            cells.append(f"{each.accuracy[i].mean():.4f}, ‖Θ‖ = {each.norm[i].mean():.3g}, {fallen} collapsed")
        rows.append([f"{value:g}", *cells])
    trains = lambda each: [v for i, v in enumerate(lambdas) if (each.accuracy[i] >= COLLAPSED).any()]
    traps = [
        f"{value:g}"
        for value, worst, under in zip(lambdas, found["cold"].accuracy.min(axis=1), better(found, flat), strict=True)
        if worst < COLLAPSED and under
    ]
    notes = [
        "The largest λ at which some run trains: "
        + ", ".join(f"{max(trains(each), default='none')} ({name})" for name, each in found.items())
        + ".",
        f"λ where a cold run collapsed though something is better than constant answers: {', '.join(traps) or '–'}.",
        "The paper: λ ≥ 0.88 could not be trained.",
    ]
    return Result("Test accuracy and collapse for large λ, i.i.d. MNIST", ["λ", *found], rows, notes)
