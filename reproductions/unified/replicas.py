"""Solvers of personalized objectives on many data sets of one kind: the machinery of the unified framework's Section 5.

A `Problem` is an objective, data sets that it is minimised on, and the minimum on each, in double precision. `follow`
runs a method on all of them in one program and records, at every evaluation, F − F* and the estimation error

    ‖s ŵ − w*‖² + Σ_m ‖β̂_m − β_m*‖²,     s = M^{−1/2}

to the coefficients that the data were drawn with (the paper prints it without s, which the rescaling of w calls for).
Call all of this where double precision is on.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import majorant as mj
from majorant.core import Algorithm, Tree
from majorant.data.federated import FederatedData
from majorant.engines.replicas import with_own_hyper
from majorant.engines.snapshots import Snapshot
from majorant.objectives.base import Constants, Objective
from majorant.objectives.reference import Reference, functions_of, mean_value, reference_solution, training_batches

SMALLEST = 1e-16  # F − F* below this is rounding


class Problem(NamedTuple):
    """An objective on several data sets, with what is known of it on each."""

    objective: Objective
    data: list[FederatedData]
    constants: list[Constants]
    minima: list[Reference]
    samples: Any  # all of them, and the clients' slots, (data sets, ...)
    made: dict[Method, tuple[Algorithm, dict[str, list[float]]]]  # methods for all data sets, and their numbers on each


class Method(NamedTuple):
    """How a method is made for a data set, and where its (w, all β_m) are in a snapshot of the runs."""

    make: Callable[[Objective, Constants], Algorithm]
    at: Callable[[Snapshot], tuple[Tree, Tree]]


class Path(NamedTuple):
    """What was recorded: a row for each run, a column for each evaluation; the first one is the start."""

    rounds: np.ndarray  # (evaluations,)
    iterations: np.ndarray  # (runs, evaluations)
    gap: np.ndarray  # F − F*
    error: np.ndarray  # the estimation error
    seconds: float  # of training

    def end(self, values: np.ndarray) -> str:
        """The last value of the runs, mean ± standard error."""
        return with_error(values[:, -1])


def make_problem(
    make: Callable[[FederatedData], Objective], data: Sequence[FederatedData], mu: Callable[[FederatedData], float]
) -> Problem:
    """The problem with the objective's constants on each data set, but with ``mu`` for μ."""
    objective = make(data[0])
    constants = [objective.constants(one)._replace(mu=mu(one)) for one in data]
    samples = jax.tree.map(lambda *parts: jnp.stack(parts), *(training_batches(one) for one in data))
    return Problem(objective, list(data), constants, [reference_solution(objective, one) for one in data], samples, {})


@functools.lru_cache(maxsize=8)
def values_of(objective: Objective) -> Callable:
    """F of each run, as a compiled function of the runs' (w, all β_m) and of the data sets' samples."""
    one = lambda at: mean_value(objective)(*at[0], *at[1])
    return jax.jit(lambda at, samples: jax.lax.map(one, (at, samples)))


def prepared(problem: Problem, method: Method) -> tuple[Algorithm, dict[str, list[float]]]:
    """A method for all data sets, and its hyperparameters on each; made once, so that programs are compiled once."""
    if method not in problem.made:
        each = [method.make(problem.objective, constants) for constants in problem.constants]
        problem.made[method] = with_own_hyper(each, problem.data)
    return problem.made[method]


def follow(
    problem: Problem, method: Method, rounds: int, evaluations: int, hyper: dict[str, Any] | None = None
) -> Path:
    """Runs a method on every data set of a problem."""
    algorithm, own = prepared(problem, method)
    minima = np.array([best.value for best in problem.minima])
    value, samples = values_of(problem.objective), problem.samples
    found: list[tuple[int, list[float], np.ndarray, np.ndarray]] = []

    def look(records: list[dict[str, Any]], snapshot: Callable[[], Snapshot]) -> None:
        at = method.at(snapshot())
        iterations = [record.get("iterations", np.nan) for record in records]
        found.append((records[0]["round"], iterations, np.asarray(value(at, samples)), errors(problem, *at)))

    starts = start(problem)
    found.append((0, [0.0] * len(minima), np.asarray(value(starts, samples)), errors(problem, *starts)))
    every = max(1, rounds // evaluations)
    run = mj.simulate(
        algorithm,
        problem.data,
        rounds=rounds,
        hyper=own | (hyper or {}),
        evaluation=mj.Evaluation(every=every, report=look),
    )
    times, iterations, values, error = (np.array(column) for column in zip(*found, strict=True))
    return Path(times, iterations.T, values.T - minima[:, None], error.T, run.seconds["train"])


def repeated(problem: Problem, times: int) -> Problem:
    """The problem with all of its data sets several times, one after the other."""
    samples = jax.tree.map(lambda a: jnp.concatenate([a] * times), problem.samples)
    data, constants, minima = problem.data * times, problem.constants * times, problem.minima * times
    return Problem(problem.objective, data, constants, minima, samples, {})


def minimum(problem: Problem) -> tuple[Tree, Tree]:
    """(w, all β_m) at the minimum, for each data set."""
    stack = lambda trees: jax.tree.map(lambda *leaves: np.stack(leaves), *trees)
    return stack([best.w for best in problem.minima]), stack([best.beta for best in problem.minima])


def start(problem: Problem) -> tuple[Tree, Tree]:
    """The (w, all β_m) that every method starts at, for each run."""
    w, beta = problem.objective.init(jax.random.key(0)), problem.objective.init_personal(jax.random.key(0))
    runs, clients = len(problem.data), problem.objective.clients
    repeat = lambda tree, *shape: jax.tree.map(lambda a: jnp.broadcast_to(a, (*shape, *a.shape)), tree)
    return repeat(w, runs), repeat(beta, runs, clients)


def errors(problem: Problem, w: Tree, beta: Tree) -> np.ndarray:
    """The estimation error of each run."""
    flat = lambda tree, axes: np.concatenate([np.reshape(a, (*a.shape[:axes], -1)) for a in jax.tree.leaves(tree)], -1)
    shared = flat(w, 1) / problem.objective.clients**0.5
    true_w = np.stack([data.truth["w"] for data in problem.data])
    true_beta = np.stack([data.truth["beta"] for data in problem.data])
    return np.square(shared - true_w).sum(axis=1) + np.square(flat(beta, 2) - true_beta).sum(axis=(1, 2))


def curvature_at_truth(data: FederatedData) -> float:
    """The least eigenvalue of the mean Hessian of the logistic losses at the true coefficients: the paper's μ'."""
    w, beta = data.truth["w"], data.truth["beta"]
    width = data.train.x.shape[1]
    coefficients = beta if beta.shape[1] == width else np.concatenate([np.tile(w, (len(beta), 1)), beta], axis=1)
    x = data.train.x.astype(np.float64)
    score = np.einsum("nd,nd->n", x, np.repeat(coefficients, data.train.sizes, axis=0))
    weight = 1 / (2 + np.exp(score) + np.exp(-score))  # sigmoid(score) (1 − sigmoid(score))
    return float(np.linalg.eigvalsh((x * weight[:, None]).T @ x / len(x))[0])


def curvature_at_minimum(problem: Problem, number: int) -> float:
    """μ as it is near the minimum of one data set: the least eigenvalue of F's second derivative there."""
    flat, best, clients = functions_of(problem.objective), problem.minima[number], problem.objective.clients
    rows = lambda tree: np.concatenate([np.reshape(a, (len(a), -1)) for a in jax.tree.leaves(tree)], axis=1)
    w, beta = rows(jax.tree.map(lambda a: a[None], best.w)), rows(best.beta)
    samples = jax.tree.map(lambda a: a[number], problem.samples)
    h = flat.hessians(np.concatenate([np.tile(w, (clients, 1)), beta], axis=1), *samples)
    shared, own, h = w.size, beta.shape[1], np.asarray(h) / clients
    whole = np.zeros((shared + clients * own,) * 2)
    whole[:shared, :shared] = h[:, :shared, :shared].sum(axis=0)
    for m in range(clients):
        place = slice(shared + m * own, shared + (m + 1) * own)
        whole[place, place], whole[:shared, place] = h[m, shared:, shared:], h[m, :shared, shared:]
        whole[place, :shared] = h[m, shared:, :shared]
    return float(np.linalg.eigvalsh(whole)[0])


def side_by_side(*work: Callable[[], Any]) -> list[Any]:
    """Calls functions in double precision, as many at once as there are processors."""

    def call(function: Callable[[], Any]) -> Any:
        with jax.enable_x64(True):  # threads do not inherit it
            return function()

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return [done.result() for done in [pool.submit(call, function) for function in work]]


def with_error(values: np.ndarray) -> str:
    """A mean with its standard error."""
    return f"{np.mean(values):.3g} ± {standard_error(values):.2g}"


def standard_error(values: np.ndarray) -> np.ndarray:
    """Of the mean over runs, the first axis; 0 for one run."""
    spread = np.std(values, axis=0, ddof=1) if len(values) > 1 else np.zeros(values.shape[1:])
    return spread / len(values) ** 0.5


def log_curve(
    x: np.ndarray, values: np.ndarray
) -> tuple[tuple[list[float], list[float]], tuple[list[float], list[float]]]:
    """A curve of the mean over runs, and the band of its standard error, in powers of ten."""
    log = lambda y: np.log10(np.maximum(y, SMALLEST)).tolist()
    mean, error = values.mean(axis=0), standard_error(values)
    low = np.maximum(mean - error, mean / 10)  # an error as large as the mean would reach down without end
    return (np.asarray(x, float).tolist(), log(mean)), (log(low), log(mean + error))


def first_below(x: np.ndarray, values: np.ndarray, level: float) -> str:
    """The first of the x at which the mean over runs is at or below a level."""
    below = np.flatnonzero(values.mean(axis=0) <= level)
    return f"{x[below[0]]:,.0f}" if len(below) else "–"
