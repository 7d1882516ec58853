"""Fronts of models: the weighted sum for many λ in one program, and what each of its models is worth.

Every λ gives a model; it is measured by the agents' mean loss and every criterion. Those that another one dominates are
set aside. Where neighbours lie far apart, new λ between theirs are run, from the model of the smaller λ. Every
point has a certificate of Pareto stationarity: the norm of the shortest convex combination of the gradients of mean
loss and criteria (0 where nothing near is better in all; then the same holds for the agents' single losses, of
whose gradients the mean is a convex combination). Where a criterion has a kink, which has no gradient, it is the length
of a proximal step on the point's own weighted sum.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from sklearn.metrics import f1_score

from majorant.algorithms.weighted_sum import released_solver, weighted_sum
from majorant.communication.participation import Participation
from majorant.core import BLOCK_VALUES, Tree, blocks, blockwise, squared_norm
from majorant.criteria import Coordinator, Criterion, coordinate
from majorant.data.federated import FederatedData
from majorant.engines.simulator import simulate
from majorant.models.base import Model
from majorant.pareto import dominance
from majorant.pareto.min_norm import shortest
from majorant.solvers import check_range


class Point(NamedTuple):
    """A model of a front and what it is worth."""

    weight: float  # λ
    loss: float  # the agents' mean training loss
    criteria: dict[str, float]
    accuracy: float  # on all clients' test samples; NaN for regression, or without any
    macro_f1: float
    certificate: float
    norm: float  # of the parameters
    params: Tree

    @property
    def values(self) -> list[float]:
        """The agents' mean loss and the criteria."""
        return [self.loss, *self.criteria.values()]


@dataclass(frozen=True)
class Front:
    """Models that no other one found dominates, in the order of λ, and those that one does."""

    model: Model
    points: tuple[Point, ...]
    dominated: tuple[Point, ...]

    def __len__(self) -> int:
        return len(self.points)

    def __iter__(self) -> Iterator[Point]:
        return iter(self.points)

    def __getitem__(self, index: int) -> Point:
        return self.points[index]

    @property
    def values(self) -> np.ndarray:
        """The agents' mean loss and the criteria of every point, ``(points, 1 + N)``."""
        return np.array([point.values for point in self.points])

    def pick(
        self,
        *,
        knee: bool | None = None,
        max_norm: float | None = None,
        limits: Mapping[str, float] | None = None,
    ) -> Point:
        """The knee; or, with bounds on the parameters' norm or on criteria, the least loss within them."""
        bounded = max_norm is not None or bool(limits)
        if bounded and knee:
            raise ValueError("give knee=True or bounds (max_norm, limits), not both")
        if not bounded:
            if knee is False:
                raise ValueError("say which point: knee=True, max_norm=..., or limits={criterion: bound}")
            return self.points[dominance.knee(self.values)]
        unknown = set(limits or {}) - set(self.points[0].criteria)
        if unknown:
            raise ValueError(f"there is no criterion {unknown.pop()!r}; there are {', '.join(self.points[0].criteria)}")
        fits = [
            point
            for point in self.points
            if (max_norm is None or point.norm <= max_norm)
            and all(point.criteria[name] <= bound for name, bound in (limits or {}).items())
        ]
        if not fits:
            least = {"norm": min(p.norm for p in self.points)} | {
                name: min(p.criteria[name] for p in self.points) for name in limits or {}
            }
            raise ValueError(f"no point of the front is within the bounds; the least values on it are {least}")
        return min(fits, key=lambda point: point.loss)

    def predict(self, point: Point, x: Any) -> jax.Array:
        """What a point's model says: probabilities ``(n, classes)``, or values ``(n,)``."""
        return self.model.predict(point.params, jnp.asarray(x))

    def hypervolume(self, reference: Sequence[float] | None = None) -> float:
        """What the front dominates, by default within its own worst values and a tenth of its extent more."""
        if reference is None:
            low, high = self.values.min(axis=0), self.values.max(axis=0)
            reference = (high + 0.1 * np.where(high > low, high - low, 1)).tolist()
        return dominance.hypervolume(self.values, reference)

    def spread(self) -> float:
        """How unevenly the points lie along the front; 0 is even."""
        return dominance.spread(self.values)


def pareto_front(
    model: Model,
    data: FederatedData,
    criteria: Criterion | Sequence[Criterion],
    *,
    weights: Sequence[float] | np.ndarray | None = None,
    rounds: int = 100,
    refine: int = 0,
    criteria_weights: Sequence[float] | None = None,
    seed: int = 0,
    participation: Participation | None = None,
    **method: Any,
) -> Front:
    """The front between the agents' mean loss and a coordinator's criteria, by weighted sums.

    ``weights`` are the λ, eight from 0 to 0.9 unless given; they run side by side in one program, ``rounds`` rounds.
    ``refine`` is how many more are put where the front is sparse. ``method`` goes to `weighted_sum`: ``local``,
    ``step`` (by default implicit where a criterion has a kink), ``agents``, ``variant``.

    >>> import majorant as mj
    >>> data = mj.data.synthetic_mixture(clients=5, dimension=4, seed=0)
    >>> local = mj.local_sgd(1.0, steps=1, batch_size=None)
    >>> front = mj.pareto_front(mj.models.linear(data), data, mj.criteria.squared_norm(), rounds=50, local=local)
    >>> len(front), front[0].loss < front[-1].loss, front[0].norm > front[-1].norm
    (8, True, True)
    """
    lambdas = np.unique(np.linspace(0, 0.9, 8) if weights is None else np.asarray(weights, float).ravel())
    for value in lambdas:
        check_range("every weight (λ)", float(value), least=0, below=1)
    if len(lambdas) < 2:
        raise ValueError(f"a front needs at least two different weights, got {lambdas.tolist()}")
    if refine != int(refine) or refine < 0:
        raise ValueError(f"refine must be a whole number of points, at least 0, got {refine}")
    listed = [criteria] if isinstance(criteria, Criterion) else list(criteria)
    if "step" not in method:
        kinked = any(isinstance(c, Criterion) and not c.smooth for c in listed)
        method = method | {"step": "implicit" if kinked else "explicit"}
    coordinator = coordinate(listed, criteria_weights, step=method["step"])
    make = lambda how: weighted_sum(model, listed, weight=float(lambdas[0]), weights=criteria_weights, **how)
    algorithm = make(method)
    onwards = lambda how: algorithm if how.get("variant") != "released" else make(without_own_starts(how))
    judge = Judge(model, coordinator, data, method.get("agents", "equal"))
    options: dict[str, Any] = {"rounds": rounds, "evaluate_every": rounds, "seed": seed, "participation": participation}

    run = simulate(algorithm, data, grid={"lambda": lambdas.tolist()}, **options)
    points = judge.points(lambdas, run.snapshot.server.value)
    extra, neighbours = between_neighbours(points, int(refine))
    if extra:
        warm = jax.tree.map(lambda *leaves: np.stack(leaves), *[neighbour.params for neighbour in neighbours])
        start = lambda fresh: fresh._replace(server=fresh.server._replace(value=warm))
        run = simulate(onwards(method), data, grid={"lambda": extra}, resume=start, **options)
        points = points + judge.points(extra, run.snapshot.server.value)
    points = sorted(points, key=lambda point: point.weight)
    best = dominance.nondominated([point.values for point in points])
    if not best.any():
        raise ValueError("training diverged for every weight: lower the learning rate")
    chosen = lambda mask: tuple(point for point, kept in zip(points, mask, strict=True) if kept)
    return Front(model, chosen(best), chosen(~best))


def without_own_starts(method: dict[str, Any]) -> dict[str, Any]:
    """The released variant for agents that start from the neighbour's model, not each from a point of its own."""
    solver = method.get("local") or released_solver(method.get("setting", "iid"))
    return method | {"variant": "paper", "local": solver}


def between_neighbours(points: Sequence[Point], count: int) -> tuple[list[float], list[Point]]:
    """New λ in the middle of the widest gaps of the front, and for each the point to start from, of smaller λ."""
    kept = [p for p, good in zip(points, dominance.nondominated([p.values for p in points]), strict=True) if good]
    if len(kept) < 2 or count == 0:
        return [], []
    apart = np.linalg.norm(np.diff(dominance.normalized([p.values for p in kept]), axis=0), axis=1)
    gaps = [(a, b.weight, a.weight, float(d)) for a, b, d in zip(kept[:-1], kept[1:], apart, strict=True)]
    found: list[tuple[float, Point]] = []
    for _ in range(count):
        widest = max(range(len(gaps)), key=lambda i: gaps[i][3])
        point, high, low, distance = gaps.pop(widest)
        middle = (low + high) / 2
        found.append((middle, point))
        gaps += [(point, middle, low, distance / 2), (point, high, middle, distance / 2)]
    found.sort(key=lambda pair: pair[0])
    return [value for value, _ in found], [point for _, point in found]


class Judge:
    """Measures models on the pooled samples of a data set: a pass over them for each."""

    def __init__(self, model: Model, coordinator: Coordinator, data: FederatedData, agents: str) -> None:
        self.model, self.coordinator = model, coordinator
        sizes = data.train.sizes
        votes = ~data.unseen * (sizes > 0) * (1.0 if agents == "equal" else sizes)
        each = np.repeat(votes / votes.sum() / np.maximum(sizes, 1), sizes)  # every sample's weight in the mean loss
        used = each > 0
        rows = model.at_once or max(64, BLOCK_VALUES // max(1, int(np.prod(data.spec.features))))
        train = (jnp.asarray(data.train.x[used]), jnp.asarray(data.train.y[used]))
        weight = jnp.asarray(each[used], jnp.result_type(float))
        self.train = (*blocks(train, rows), blocks(weight, rows, padding="constant"))
        self.test = (data.test.x, data.test.y) if data.classes else (data.test.x[:0], data.test.y[:0])
        self.measure = jax.jit(self._measure)
        self.answers = jax.jit(lambda params, x: blockwise(lambda x: model.predict(params, x).argmax(axis=1), x))

    def _measure(self, params: Tree, lam: jax.Array, train: Tree) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
        """The agents' mean loss, the criteria, the certificate and the norm of the parameters."""
        model, coordinator = self.model, self.coordinator

        def add(total: Tree, block: Tree) -> tuple[Tree, None]:
            x, y, weight = block
            part = jax.value_and_grad(lambda p: (weight * model.losses(p, x, y)).sum())(params)
            return jax.tree.map(jnp.add, total, part), None

        start = jnp.zeros((), jnp.result_type(float)), jax.tree.map(jnp.zeros_like, params)
        (loss, gradient), _ = jax.lax.scan(add, start, train)
        if coordinator.smooth:
            slopes = [jax.grad(lambda p, c=c: c.value(p))(params) for c in coordinator.criteria]
            short = shortest(jax.tree.map(lambda *rows: jnp.stack(rows), gradient, *slopes))[1]
        else:
            forward = jax.grad(lambda p: coordinator.value(p, without_prox=True))(params)
            step = jax.tree.map(lambda v, g, s: v - (1 - lam) * g - lam * s, params, gradient, forward)
            short = jax.tree.map(jnp.subtract, params, coordinator.prox(step, lam))
        return loss, coordinator.values(params), jnp.sqrt(squared_norm(short)), jnp.sqrt(squared_norm(params))

    def points(self, lambdas: Sequence[float] | np.ndarray, stacked: Tree) -> list[Point]:
        """A point for every λ, from the models side by side."""
        return [
            self.point(float(value), jax.tree.map(lambda a, i=i: np.asarray(a[i]), stacked))
            for i, value in enumerate(lambdas)
        ]

    def point(self, lam: float, params: Tree) -> Point:
        """A model and what it is worth."""
        loss, values, certificate, norm = jax.tree.map(np.asarray, self.measure(params, lam, self.train))
        criteria = dict(zip(self.coordinator.names, values.tolist(), strict=True))
        x, truth = self.test
        accuracy = f1 = float("nan")
        if len(truth):
            said = np.asarray(self.answers(params, x))
            accuracy = float((said == truth).mean())
            f1 = float(f1_score(truth, said, average="macro", zero_division=0))
        return Point(lam, float(loss), criteria, accuracy, f1, float(certificate), float(norm), params)
