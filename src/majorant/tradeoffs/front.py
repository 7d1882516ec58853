"""Fronts of models: a scalarization for many λ and many weights of criteria in one program, and its models' worth.

Every λ, with every vector of the criteria's weights, gives a model; `majorant.tradeoffs.judge` measures it. Models that
another one dominates are set aside. Where neighbours on a vector's path over λ lie far apart, new λ between theirs are
run, those of all vectors in a second program. All models have the same start and the same number of rounds.

Runs are warm-started along the path: λ rises from 0 to a run's own over the first rounds (`weighted_sum`'s *ramp*), so
that every λ is trained from the model of a smaller one. At λ = 0 the criteria's weights make no difference, and all
paths begin with the same point. Chebyshev scalarization takes λ as a preference, and reaches points of fronts that are
not convex. So that λ from 0 to 0.9 cover the front whatever a criterion is measured in, criteria count by the scale of
the loss unless told otherwise (`majorant.tradeoffs.scaling`).
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from majorant.data.federated import FederatedData
from majorant.engines.deployment import check_features
from majorant.engines.options import Resources
from majorant.exchange.participation import Participation
from majorant.math.checks import check_range, check_whole
from majorant.models.base import Model
from majorant.tradeoffs import dominance
from majorant.tradeoffs.criteria import coordinate
from majorant.tradeoffs.criterion import Criterion
from majorant.tradeoffs.judge import MEAN, WORST, Judge, Point, Setting
from majorant.tradeoffs.scaling import SCALES, scaled_to_loss
from majorant.tradeoffs.sweep import Sweep, check_reference, first_model, scalarized, step_for

HIGHEST = 0.9  # of λ, unless given


class DivergedWarning(RuntimeWarning):
    """Some models of a front have parameters that are not finite."""


@dataclass(frozen=True)
class Front:
    """Models that no other one found dominates, by the criteria's weights and then by λ, and those that one does.

    Of models that are worth the same one counts. ``scales`` c are the criteria's: λ weighs c S against the loss.
    """

    model: Model
    points: tuple[Point, ...]
    dominated: tuple[Point, ...]
    scales: tuple[float, ...] = ()

    def __len__(self) -> int:
        return len(self.points)

    def __iter__(self) -> Iterator[Point]:
        return iter(self.points)

    def __getitem__(self, index: int) -> Point:
        return self.points[index]

    @property
    def values(self) -> np.ndarray:
        """The agents' mean (or worst) loss and the criteria of every point, ``(points, 1 + N)``."""
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
        for name, bound in {"max_norm": max_norm, **(limits or {})}.items():
            if bound is not None:
                check_range(f"the bound {name}", bound)
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
        return min(fits, key=lambda point: point.values[0])

    def predict(self, point: Point, x: Any) -> jax.Array:
        """What a point's model says: probabilities ``(n, classes)``, or values ``(n,)``."""
        return self.model.predict(point.params, jnp.asarray(check_features(x, self.model.spec.features)))

    def __repr__(self) -> str:
        return f"Front({len(self.points)} points, {len(self.dominated)} dominated, criteria {list(self[0].criteria)})"

    def hypervolume(self, reference: Sequence[float] | None = None) -> float:
        """What the front dominates, by default within its own worst values and a tenth of its extent more."""
        if reference is None:
            low, high = self.values.min(axis=0), self.values.max(axis=0)
            reference = (high + 0.1 * np.where(high > low, high - low, 1)).tolist()
        return dominance.hypervolume(self.values, reference)

    def spread(self) -> float:
        """How unevenly the points lie along the front; 0 is even. NaN for fewer than three points."""
        return dominance.spread(self.values) if len(self) > 2 else float("nan")


def pareto_front(
    model: Model,
    data: FederatedData,
    criteria: Criterion | Sequence[Criterion],
    *,
    weights: Sequence[float] | np.ndarray | None = None,
    rounds: int = 100,
    refine: int = 0,
    criteria_weights: Sequence[float] | Sequence[Sequence[float]] | None = None,
    scalarization: str = "weighted-sum",
    ramp: float | None = None,
    scale: str = "loss",
    seed: int = 0,
    participation: Participation | None = None,
    resources: Resources = Resources(),  # noqa: B008 - a plain record
    on_progress: Callable[[int, int], None] | None = None,
    **method: Any,
) -> Front:
    """The front between the agents' losses and a coordinator's criteria.

    ``weights`` are the λ, eight from 0 to 0.9 unless given, and ``criteria_weights`` the criteria's own weights: one
    vector or a list of them, each with all λ. Everything runs side by side in one program, ``rounds`` rounds.
    ``refine`` is how many more λ are put where a vector's path is sparse. ``ramp`` is the share of the rounds over
    which λ rises from 0, a quarter unless given; 0 is a cold start.

    ``scale`` "loss" trains λ = 0 first and measures criteria in units of the loss (`majorant.tradeoffs.scaling`), so
    that λ = 0.5 is about the knee; "none" weighs them as they are.

    With ``scalarization`` "weighted-sum" points are measured by the agents' mean loss, and ``method`` goes to
    `weighted_sum`: ``local``, ``step`` (by default implicit where a criterion has a kink), ``agents``.

    With "chebyshev" they are measured by the worst agent's loss, and ``method`` goes to `chebyshev`: ``local``,
    ``reference``, ``preferences``, ``mirror_rate`` (2 unless given), ``memory`` (0.9), ``output``, ``criteria_lr``
    (for epochs too, by default the agents' rate times their mean number of steps). A ``reference`` point that the
    untrained model is better than in everything is refused: no gap to it is positive, and λ would turn around.

    ``resources`` is as in `simulate`: the λ are dealt over several devices. ``on_progress`` is called with the number
    of the program (λ = 0 alone where criteria are scaled, the sweep, the refinement; from 0) and the rounds that it has
    made, about twenty times each.

    >>> import majorant as mj
    >>> data = mj.data.synthetic_mixture(clients=5, dimension=4, seed=0)
    >>> local = mj.local_sgd(1.0, steps=1, batch_size=None)
    >>> front = mj.pareto_front(mj.models.linear(data), data, mj.criteria.squared_norm(), rounds=50, local=local)
    >>> len(front), front[0].loss < front[-1].loss, front[0].norm > front[-1].norm
    (8, True, True)
    """
    lambdas = different_lambdas(weights)
    check_whole("refine", refine, least=0)
    if scale not in SCALES:
        raise ValueError(f"scale must be one of {', '.join(SCALES)}, got {scale!r}")
    if not isinstance(model, Model) or not isinstance(data, FederatedData):
        kinds = f"{type(model).__name__} and {type(data).__name__}"
        raise ValueError(f"a front is of a model and federated data, in this order, got {kinds}")
    several = isinstance(criteria, Sequence) and not isinstance(criteria, Criterion)
    listed: list[Any] = list(criteria) if several else [] if criteria is None else [criteria]
    vectors = as_vectors(criteria_weights, len(listed))
    step = method.get("step", step_for(listed)) if scalarization == "weighted-sum" else "implicit"
    coordinator, *_ = (coordinate(listed, vector, step=step) for vector in vectors)
    algorithm = scalarized(scalarization, model, data, listed, vectors[0], ramp=ramp, **method)
    by_worst = scalarization == "chebyshev"
    judge = Judge(model, coordinator, data, method.get("agents", "equal"), WORST if by_worst else MEAN)
    if by_worst:
        check_reference(judge, algorithm, data, seed, method.get("reference", 0.0))
    options: dict[str, Any] = {"rounds": rounds, "participation": participation, "resources": resources}
    sweep = Sweep(algorithm, judge, data, seed, method.get("output", "last"), options, on_progress)
    scales: tuple[float, ...] = (1.0,) * len(listed)
    known: list[Point] = []
    if scale == "loss":
        known = sweep.train([Setting(0.0, vectors[0])], scales)
        scales = scaled_to_loss(judge.point(Setting(0.0, vectors[0]), first_model(algorithm, seed)), known[0])
    pairs = itertools.product(vectors, lambdas)
    fresh = lambda vector, value: value > 0 or (vector == vectors[0] and not known)
    points = [*known] if 0.0 in lambdas else []
    points += sweep.train([Setting(value, vector) for vector, value in pairs if fresh(vector, value)], scales)
    path = lambda vector: [point for point in points if point.weight == 0 or point.criteria_weights == vector]
    extra = [Setting(value, vector) for vector in vectors for value in between(path(vector), int(refine))]
    points += sweep.train(extra, scales) if extra else []
    points.sort(key=lambda point: (vectors.index(point.criteria_weights), point.weight))
    return without_dominated(model, points, scales)


def different_lambdas(weights: Sequence[float] | np.ndarray | None) -> list[float]:
    """The λ of a front in their order, each once; eight of them unless given."""
    lambdas = np.unique(np.linspace(0, HIGHEST, 8) if weights is None else np.asarray(weights, float).ravel()).tolist()
    for value in lambdas:
        check_range("every weight (λ)", value, least=0, below=1)
    if len(lambdas) < 2:
        raise ValueError(f"a front needs at least two different weights, got {lambdas}")
    return lambdas


def without_dominated(model: Model, points: Sequence[Point], scales: tuple[float, ...]) -> Front:
    """The front of some points; those that another one dominates are set aside."""
    best = dominance.front_of([point.values for point in points])
    if not best.any():
        raise ValueError("training diverged for every weight: lower the learning rate")
    lost = [f"{point.weight:.3g}" for point in points if not np.isfinite(point.values).all()]
    if lost:
        words = "lower the learning rate, or take implicit steps; they are among the front's dominated points"
        warnings.warn(f"training diverged for λ = {', '.join(lost)}: {words}", DivergedWarning, stacklevel=3)
    chosen = lambda mask: tuple(point for point, kept in zip(points, mask, strict=True) if kept)
    return Front(model, chosen(best), chosen(~best), scales)


def as_vectors(criteria_weights: Any, count: int) -> list[tuple[float, ...]]:
    """The different vectors of criteria's weights, each of which has a path over λ; equal weights unless given.

    >>> as_vectors(None, 2), as_vectors([0.8, 0.2], 2), as_vectors([[0.8, 0.2], [0.5, 0.5]], 2)
    ([(0.5, 0.5)], [(0.8, 0.2)], [(0.8, 0.2), (0.5, 0.5)])
    """
    if criteria_weights is None or not count:
        return [tuple(1 / count for _ in range(count))]
    given = list(criteria_weights)
    kinds = {np.ndim(each) for each in given}
    if kinds not in ({0}, {1}):
        what = "is empty" if not given else "mixes numbers and vectors"
        raise ValueError(f"criteria_weights {what}: give a weight for each criterion, or a list of such vectors")
    vectors = given if kinds == {1} else [given]
    return list(dict.fromkeys(tuple(float(value) for value in vector) for vector in vectors))


def between(path: Sequence[Point], count: int) -> list[float]:
    """New λ in the middle of the widest gaps between neighbours on a path that none of its points dominates.

    Where dominated points lie in a gap it is the middle of the widest interval between their λ, none of these again.
    """
    kept = [p for p, good in zip(path, dominance.front_of([p.values for p in path]), strict=True) if good]
    if len(kept) < 2 or count == 0:
        return []
    apart = np.linalg.norm(np.diff(dominance.normalized([p.values for p in kept]), axis=0), axis=1)
    gaps = [(float(d), a.weight, b.weight) for a, b, d in zip(kept[:-1], kept[1:], apart, strict=True)]
    known = {point.weight for point in path}
    found = []
    for _ in range(count):
        widest = max(range(len(gaps)), key=lambda i: gaps[i][0])
        distance, low, high = gaps.pop(widest)
        inner = np.array(sorted(value for value in known if low <= value <= high))
        start = int(np.diff(inner).argmax())
        middle = float(inner[start : start + 2].mean())
        known.add(middle)
        found.append(middle)
        share = (middle - low) / (high - low)
        gaps += [(distance * share, low, middle), (distance * (1 - share), middle, high)]
    return sorted(found)
