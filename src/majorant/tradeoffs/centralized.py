"""Weighted sums solved with all samples in one place: how far the points of a front are from the true ones.

Where the model's loss and every criterion are convex, the minimiser of

    F(Θ) = ((1 − λ)/M) Σ_i C_i(Θ) + λ Σ_j w_j S_j(Θ)

can be had to many digits: in double precision, by SciPy's L-BFGS where every criterion is smooth and, where one has a
kink, by accelerated proximal gradient descent (`math.fista`) with the criteria's exact proximal operator. Larger λ come
first, as these are easier, and each starts from the one before. A point found in federated rounds *agrees* where its F
is as small.

That a problem is convex is known from marks (`Model.convex`, `Criterion.convex`), never guessed; others are refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from scipy.optimize import minimize

from majorant.core import Tree, blocks
from majorant.core.compilation import jit
from majorant.data.federated import FederatedData
from majorant.math.checks import check_range
from majorant.math.fista import Descent, begin, onward
from majorant.models.base import Model
from majorant.tradeoffs.coordinator import Coordinator
from majorant.tradeoffs.criteria import coordinate
from majorant.tradeoffs.criterion import check_shapes

NEAR_ZERO = 1e-6  # of F at Θ = 0: where F* is smaller, F − F* is told in place of F/F* − 1
RESIDUAL, STEPS = 1e-8, 100_000  # where proximal descent stops
AT_ONCE = 1 << 27  # input values that go through the model at once: few blocks, as products in loops are slow on CPUs
STEEPEST = 1e30
LBFGS = {"maxiter": 20_000, "maxfun": 40_000, "ftol": 1e-16, "gtol": 1e-9, "maxcor": 30}


class Solution(NamedTuple):
    """The minimiser of a weighted sum, in double precision.

    ``residual`` is the norm of ∇F there or, where a criterion has a kink, of the proximal step Θ − prox(Θ − ∇): 0 at a
    minimiser. With λ = 0 a minimiser need not be unique, or exist (classes that a plane separates): then what the
    criteria are at this one says little.
    """

    weight: float  # λ
    params: Tree
    objective: float  # F*
    loss: float  # the agents' mean loss
    criteria: dict[str, float]
    residual: float

    @property
    def values(self) -> list[float]:
        """The agents' mean loss and the criteria."""
        return [self.loss, *self.criteria.values()]


class Agreement(NamedTuple):
    """How far a point is from the minimiser of its weighted sum.

    ``gap`` is F/F* − 1 where ``relative`` is true, and F − F* where F* is near 0; below 0 by more than rounding it says
    that the centralized solve stopped early. ``distance`` is that of (loss, criteria) from the true ones, in units of
    the true points' extent along each axis over all λ (of their size, where they do not differ).
    """

    weight: float  # λ
    objective: float  # F
    loss: float
    criteria: dict[str, float]
    gap: float
    relative: bool
    distance: float
    truth: Solution

    @property
    def values(self) -> list[float]:
        """The agents' mean loss and the criteria."""
        return [self.loss, *self.criteria.values()]


def agreement(
    model: Model,
    data: FederatedData,
    coordinator: Coordinator,
    lambdas: Sequence[float] | np.ndarray,
    points: Sequence[Tree],
    *,
    criteria_weights: Sequence[Sequence[float]] | None = None,
    agents: str = "equal",
) -> list[Agreement]:
    """Compares points, the parameters found for every λ, with the true minimisers.

    ``criteria_weights`` are the w_j of every λ, the coordinator's own unless given. ``agents`` "equal" counts every
    agent that trains once, "samples" by its samples, as in `weighted_sum`.

    >>> import majorant as mj
    >>> data = mj.data.synthetic_mixture(clients=5, dimension=4, seed=0)
    >>> model, small = mj.models.linear(data), mj.criteria.squared_norm()
    >>> local = mj.local_sgd(1.0, steps=1, batch_size=None)
    >>> front = mj.pareto_front(model, data, small, weights=[0.1, 0.5], rounds=200, scale="none", local=local)
    >>> found = agreement(model, data, mj.criteria.coordinate(small), [0.1, 0.5], [point.params for point in front])
    >>> [each.gap < 1e-6 and each.distance < 1e-3 for each in found]
    [True, True]
    """
    if len(points) != len(lambdas):
        raise ValueError(f"there are {len(lambdas)} weights (λ) but {len(points)} points: give the parameters of each")
    wanted = jax.eval_shape(model.init, jax.random.key(0))
    for params in points:
        check_shapes("a point", params, wanted)
    shares = check(model, coordinator, lambdas, criteria_weights, agents)
    with jax.enable_x64(True):
        problem = Problem(model, data, coordinator, agents)
        truths = problem.solve(lambdas, shares)
        scale = problem.at(np.zeros(problem.size))[0]
        extent = np.ptp([truth.values for truth in truths], axis=0)
        found = []
        for truth, params, weights in zip(truths, points, shares, strict=True):
            loss, values = problem.at(problem.flat(params))
            total = objective(truth.weight, weights, loss, values)
            relative = truth.objective > NEAR_ZERO * scale
            gap = total / truth.objective - 1 if relative else total - truth.objective
            unit = np.where(extent > 0, extent, np.maximum(np.abs(truth.values), 1e-300))
            away = float(np.linalg.norm((np.array([loss, *values]) - truth.values) / unit))
            named = dict(zip(coordinator.names, values.tolist(), strict=True))
            found.append(Agreement(truth.weight, total, loss, named, gap, relative, away, truth))
    return found


def solve_centrally(
    model: Model,
    data: FederatedData,
    coordinator: Coordinator,
    lambdas: Sequence[float] | np.ndarray,
    *,
    criteria_weights: Sequence[Sequence[float]] | None = None,
    agents: str = "equal",
) -> list[Solution]:
    """The minimiser of the weighted sum for every λ, in the order given.

    >>> import majorant as mj
    >>> data = mj.data.synthetic_mixture(clients=5, dimension=4, seed=0)
    >>> few = mj.criteria.coordinate(mj.criteria.l1(), step="implicit")
    >>> dense, sparse = solve_centrally(mj.models.linear(data), data, few, [0.01, 0.6])
    >>> dense.criteria["l1"] > 1, sparse.criteria["l1"]
    (True, 0.0)
    """
    shares = check(model, coordinator, lambdas, criteria_weights, agents)
    with jax.enable_x64(True):
        return Problem(model, data, coordinator, agents).solve(lambdas, shares)


def check(
    model: Model,
    coordinator: Coordinator,
    lambdas: Sequence[float] | np.ndarray,
    criteria_weights: Sequence[Sequence[float]] | None,
    agents: str,
) -> list[tuple[float, ...]]:
    """The criteria's weights for every λ, after checking all that is asked for."""
    check_convex(model, coordinator)
    if not len(lambdas):
        raise ValueError("there are no weights (λ): give at least one")
    for value in lambdas:
        check_range("every weight (λ)", float(value), least=0, below=1)
    if agents not in ("equal", "samples"):
        raise ValueError(f"agents must be 'equal' or 'samples', got {agents!r}")
    if criteria_weights is None:
        return [coordinator.shares] * len(lambdas)
    if len(criteria_weights) != len(lambdas):
        raise ValueError(
            f"there are {len(lambdas)} weights (λ) but {len(criteria_weights)} rows of criteria's weights: one for each"
        )
    step = "explicit" if coordinator.smooth else "implicit"
    return [coordinate(coordinator.criteria, row, step=step).shares for row in criteria_weights]


def check_convex(model: Model, coordinator: Coordinator) -> None:
    """Refuses what is not known to be convex."""
    if not model.convex:
        raise ValueError(
            f"the loss of {model.name} is not known to be convex in its parameters, so that a centralized solve may "
            "end elsewhere: use models.linear, or say model._replace(convex=True) of your own model where it is"
        )
    for each in coordinator.criteria:
        if not each.convex:
            raise ValueError(
                f"the criterion {each.name} is not known to be convex, so that a centralized solve may end elsewhere: "
                "say criterion(..., convex=True) of your own where it is"
            )
    if not coordinator.smooth:
        coordinate(coordinator.criteria, coordinator.shares, step="implicit")  # its proximal operator must be exact


def objective(lam: float, weights: Any, loss: float, values: np.ndarray) -> float:
    """F from its parts."""
    return float((1 - lam) * loss + lam * np.dot(weights, values))


class Problem:
    """The pooled samples with their weights in the agents' mean loss, and programs over parameters in one vector."""

    def __init__(self, model: Model, data: FederatedData, coordinator: Coordinator, agents: str) -> None:
        self.coordinator = coordinator
        shapes = jax.eval_shape(model.init, jax.random.key(0))
        fresh, self.unravel = ravel_pytree(jax.tree.map(lambda leaf: jnp.zeros(leaf.shape), shapes))
        self.size = fresh.size
        sizes = data.train.sizes
        votes = ~data.unseen * (sizes > 0) * (1.0 if agents == "equal" else sizes)
        if not votes.sum() > 0:
            raise ValueError("no client has training samples")
        each = np.repeat(votes / votes.sum() / np.maximum(sizes, 1), sizes)
        used, x = each > 0, data.train.x
        x = x[used].astype(float) if np.issubdtype(x.dtype, np.floating) else x[used]
        rows = max(64, AT_ONCE // max(1, int(np.prod(data.spec.features))))
        cut = lambda x, y, each: (*blocks((x, y), rows), blocks(each, rows, padding="constant"))
        self.samples = jit(cut)(x, data.train.y[used], each[used])

        def loss(flat: jax.Array, samples: Tree) -> jax.Array:
            params = self.unravel(flat)
            part = lambda block: (block[2] * model.losses(params, block[0], block[1])).sum()
            if len(samples[2]) == 1:
                return part(jax.tree.map(lambda a: a[0], samples))
            return jax.lax.map(part, samples).sum()

        def total(flat: jax.Array, lam: jax.Array, weights: jax.Array, samples: Tree, rest: bool) -> jax.Array:
            asked = coordinator.value(self.unravel(flat), weights, without_prox=rest)
            return (1 - lam) * loss(flat, samples) + lam * asked

        self._parts = jit(lambda flat, samples: (loss(flat, samples), coordinator.values(self.unravel(flat))))
        self._slope = jit(jax.value_and_grad(total), static_argnums=4)

        @jit
        def attempt(state: Descent, height: Any, slope: Any, steep: Any, lam: Any, weights: Any, samples: Tree) -> Any:
            """A step of length 1/steep, whether F's smooth part is below its quadratic bound there; how far."""
            at = state.ahead
            new = self.prox(at - slope / steep, lam / steep, weights)
            bound = height + slope @ (new - at) + steep / 2 * jnp.square(new - at).sum()
            slack = 1e-14 * (1 + jnp.abs(height))  # what rounding may do
            fits = total(new, lam, weights, samples, True) <= bound + slack
            return onward(state, new), fits, jnp.linalg.norm(new - at)

        self._attempt = attempt

    def prox(self, flat: jax.Array, rho: jax.Array, weights: jax.Array) -> jax.Array:
        """The criteria's proximal operator."""
        return ravel_pytree(self.coordinator.prox(self.unravel(flat), rho, list(weights)))[0]

    def flat(self, params: Tree) -> np.ndarray:
        """Parameters as a vector."""
        return np.concatenate([np.asarray(leaf, float).ravel() for leaf in jax.tree.leaves(params)])

    def at(self, flat: np.ndarray) -> tuple[float, np.ndarray]:
        """The agents' mean loss and the criteria."""
        loss, values = self._parts(flat, self.samples)
        return float(loss), np.asarray(values)

    def values(self, flat: np.ndarray) -> list[float]:
        """The agents' mean loss and the criteria, in one list."""
        loss, values = self.at(flat)
        return [loss, *values.tolist()]

    def slope(self, flat: np.ndarray, lam: float, weights: np.ndarray, rest: bool) -> tuple[float, np.ndarray]:
        """F and its gradient, or those of the ``rest`` of it that the proximal operator leaves."""
        value, gradient = self._slope(flat, lam, weights, self.samples, rest)
        return float(value), np.asarray(gradient)

    def solve(self, lambdas: Sequence[float] | np.ndarray, shares: Sequence[tuple[float, ...]]) -> list[Solution]:
        """The minimisers, each from that of the next larger λ."""
        for name, value in zip(("loss", *self.coordinator.names), self.values(np.zeros(self.size)), strict=True):
            if not np.isfinite(value):
                raise ValueError(f"the {name} is {value} at Θ = 0, where a centralized solve starts")
        found: dict[int, Solution] = {}
        flat, steep, kinked = np.zeros(self.size), 1.0, not self.coordinator.smooth
        for place in np.argsort(lambdas)[::-1].tolist():
            lam, weights = float(lambdas[place]), np.array(shares[place])
            if kinked and lam > 0:
                flat, steep = self.descend(flat, steep / 2, lam, weights)
            else:  # with λ = 0 a kink counts for nothing
                work = lambda at, lam=lam, weights=weights: self.slope(at, lam, weights, kinked)
                flat = minimize(work, flat, jac=True, method="L-BFGS-B", options=LBFGS).x
            found[place] = self.solution(flat, lam, weights)
        return [found[place] for place in range(len(lambdas))]

    def descend(self, flat: np.ndarray, steep: float, lam: float, weights: np.ndarray) -> tuple[np.ndarray, float]:
        """FISTA with restart, from a point and 1 over the length of a step, which is halved where it is too long."""
        state = begin(jnp.asarray(flat))
        for _ in range(STEPS):
            height, slope = self._slope(state.ahead, lam, weights, self.samples, True)
            while True:
                new, fits, length = self._attempt(state, height, slope, steep, lam, weights, self.samples)
                if fits:
                    break
                steep *= 2
                if not steep < STEEPEST:
                    raise ValueError(
                        f"the weighted sum of λ = {lam:g} is not finite near Θ, or not smooth where it should"
                    )
            state = new
            if steep * float(length) <= RESIDUAL:
                break
        return np.asarray(state.here), steep

    def solution(self, flat: np.ndarray, lam: float, weights: np.ndarray) -> Solution:
        """A minimiser and what it is worth."""
        kinked = not self.coordinator.smooth
        step = self.slope(flat, lam, weights, kinked)[1]
        if kinked:
            step = flat - np.asarray(self.prox(jnp.asarray(flat - step), jnp.asarray(lam), jnp.asarray(weights)))
        loss, values = self.at(flat)
        named = dict(zip(self.coordinator.names, values.tolist(), strict=True))
        params = jax.tree.map(np.asarray, self.unravel(jnp.asarray(flat)))
        return Solution(lam, params, objective(lam, weights, loss, values), loss, named, float(np.linalg.norm(step)))
