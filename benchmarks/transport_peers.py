"""Transport against the tools that people have: POT's Gaussian maps, barycentres and plans, OTT's neural solver.

The pairs of the Wasserstein-2 benchmark have a known optimal map, so that all are judged alike: L2-UVP, the unexplained
variance of a map in per cent on fresh samples; 0 is the optimal map. POT and OTT have pooled rows; ours has all rows in
one group, and in 10. Times are those of `benchmarks.estimators`, and so are its options. POT and OTT are not among the
development tools: ``pip install POT 'ott-jax[neural]'``; the benchmark's arrays lie under ``$MAJORANT_DATA/w2``.
Run: python -m benchmarks.transport_peers [--json FILE] [--only NAME ...]
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np
from majorant_reproductions.fedmm import w2

from benchmarks.estimators import Pair, main

ROWS, FRESH, PLANNED, GROUPS = 20_000, 4_096, 2_000, 10
# our rounds, and OTT's steps, that take about as long for all rows in one group
NETWORKS: dict[str, Any] = {"max_iter": 2_000, "batch_size": 256}
STEPS = 5_000


class Problem:
    """Rows of P and of Q, and how far a map is from the optimal one."""

    def __init__(self, dimension: int) -> None:
        self.pair = w2.load(dimension)
        keys = jax.random.split(jax.random.key(0), 3)
        self.x = np.asarray(self.pair.source(keys[0], ROWS))
        self.y = np.asarray(self.pair.target(keys[1], ROWS))
        self.fresh = self.pair.source(keys[2], FRESH)
        self.right = self.pair.truth(self.fresh)

    def error(self, moved: Any) -> float:
        """The L2-UVP of what a map makes of fresh rows."""
        return float(w2.uvp(moved, self.right, self.pair.q_var))

    def ours(self, groups: np.ndarray | None, **options: Any) -> float:
        """The error of our estimator."""
        from majorant.estimators import FederatedTransport

        model = FederatedTransport(random_state=0, **options).fit(self.x, groups=groups, reference=self.y)
        return self.error(model.transform(np.asarray(self.fresh)))

    def both(self, theirs: Callable[[], float], **options: Any) -> Pair:
        """A tool's map and ours."""
        many = np.arange(len(self.x)) % GROUPS
        return Pair("L2-UVP", theirs, lambda: self.ours(None, **options), lambda: self.ours(many, **options))


def gaussian_map() -> Pair:
    """The affine map between the moments of 20,000 × 16 rows."""
    import ot

    problem = Problem(16)

    def theirs() -> float:
        matrix, shift = ot.gaussian.empirical_bures_wasserstein_mapping(problem.x, problem.y, reg=1e-6)
        return problem.error(np.asarray(problem.fresh) @ matrix + shift)

    return problem.both(theirs, method="gaussian")


def barycentre() -> Pair:
    """Of 100 Gaussians in 16 dimensions, from their moments; the quality is its mean squared distance to them."""
    import ot

    from majorant.estimators.barycentre import gaussian_barycentre

    rng = np.random.default_rng(0)
    means, roots = rng.normal(size=(100, 16)), rng.normal(size=(100, 16, 16))
    covariances, weights = roots @ roots.transpose(0, 2, 1) / 16 + 0.1 * np.eye(16), np.full(100, 1 / 100)

    def quality(mean: np.ndarray, covariance: np.ndarray) -> float:
        far = [ot.gaussian.bures_wasserstein_distance(mean, m, covariance, c) for m, c in zip(means, covariances)]  # noqa: B905
        return float(np.mean(np.square(far)))

    def theirs() -> float:
        found = ot.gaussian.bures_wasserstein_barycenter(means, covariances, weights, num_iter=200, eps=1e-9)
        return quality(*found)

    def ours() -> float:
        found = gaussian_barycentre(means, covariances, weights)
        return quality(found.mean, found.covariance)

    return Pair("mean squared distance", theirs, None, ours)


def plan_between_samples(dimension: int) -> Pair:
    """POT's exact plan between 2,000 rows of each, and new rows moved like their nearest neighbours; our networks."""
    import ot

    problem = Problem(dimension)

    def theirs() -> float:
        model = ot.da.EMDTransport(max_iter=1_000_000).fit(Xs=problem.x[:PLANNED], Xt=problem.y[:PLANNED])
        return problem.error(model.transform(Xs=np.asarray(problem.fresh)))

    return problem.both(theirs, **NETWORKS)


def neural_dual(dimension: int) -> Pair:
    """OTT's ENOT with its own networks, optimizers and settings, and fewer steps than its 20,000; our networks."""
    from ott.neural.methods.expectile_neural_dual import ExpectileNeuralDual

    problem = Problem(dimension)

    def batches(rows: np.ndarray, seed: int) -> Iterator[np.ndarray]:
        rng = np.random.default_rng(seed)
        while True:
            yield rows[rng.integers(len(rows), size=NETWORKS["batch_size"])]

    def theirs() -> float:
        solver = ExpectileNeuralDual(dimension, num_train_iters=STEPS, valid_freq=STEPS, rng=jax.random.key(0))
        found = solver(*(batches(rows, seed) for seed, rows in enumerate([problem.x, problem.y] * 2)))
        return problem.error(found.transport(problem.fresh))

    return problem.both(theirs, **NETWORKS)


PAIRS: dict[str, Callable[[], Pair]] = {
    "Gaussian map, POT": gaussian_map,
    "barycentre of 100 Gaussians, POT": barycentre,
    **{f"map in {d} dimensions, POT's plan": functools.partial(plan_between_samples, d) for d in (2, 16)},
    **{f"map in {d} dimensions, OTT's ENOT": functools.partial(neural_dual, d) for d in (2, 16)},
}


if __name__ == "__main__":
    main(PAIRS, __doc__)
