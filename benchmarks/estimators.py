"""Estimators and fronts against the tools that people have: scikit-learn on pooled rows, loops of its fits, SciPy.

Every pair minimises the same objective from the same start where both take one, and the objective that each reaches is
printed beside its time: a ratio counts where quality is equal. Ours runs with all rows in one group and with rows in
many, which scikit-learn cannot keep apart. Times are of a second fit; the first one, which compiles, stands beside
them. Seconds of processors count all threads: on a busy machine they are the ones to compare. scikit-learn
and SciPy have one thread, which takes the fewest.
Run: python -m benchmarks.estimators [--json FILE] [--only NAME ...]
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from threadpoolctl import threadpool_limits

GROUPS = 100


class Timed(NamedTuple):
    """Seconds on the clock and of processors, of the first call and of the next, and the quality that was reached."""

    first: float
    clock: float
    busy: float
    quality: float


class Pair(NamedTuple):
    """The same work by two tools."""

    quality: str  # what is compared
    theirs: Callable[[], float]
    one: Callable[[], float] | None  # ours with one group
    many: Callable[[], float] | None  # ours with many


def timed(work: Callable[[], float]) -> Timed:
    """Two calls."""
    begin = time.perf_counter()
    work()
    middle, before = time.perf_counter(), time.process_time()
    quality = work()
    return Timed(middle - begin, time.perf_counter() - middle, time.process_time() - before, quality)


def blobs(rows: int, features: int, kinds: int) -> np.ndarray:
    """Rows around some centres."""
    rng = np.random.default_rng(0)
    return rng.normal(size=(kinds, features))[rng.integers(kinds, size=rows)] * 3 + rng.normal(size=(rows, features))


def groups_of(x: np.ndarray) -> np.ndarray:
    """A group for every row, in turns."""
    return np.arange(len(x)) % GROUPS


def mixture() -> Pair:
    """EM for 5 Gaussians with full covariances, 20 iterations from given centres."""
    from sklearn.mixture import GaussianMixture

    from majorant.estimators import FederatedGaussianMixture

    x = blobs(20_000, 16, 5)
    start: dict[str, Any] = {"means_init": x[:5], "weights_init": np.full(5, 0.2), "tol": 0.0, "max_iter": 20}
    start["precisions_init"] = np.stack([np.eye(16)] * 5)
    ours = lambda groups: FederatedGaussianMixture(5, **start).fit(x, groups=groups).score(x)
    theirs = lambda: GaussianMixture(5, **start).fit(x).score(x)
    return Pair("mean log-likelihood", theirs, lambda: ours(None), lambda: ours(groups_of(x)))


def clusters() -> Pair:
    """20 iterations of Lloyd from given centres."""
    from sklearn.cluster import KMeans

    from majorant.estimators import FederatedKMeans

    x = blobs(50_000, 16, 20)
    start: dict[str, Any] = {"init": x[:20], "max_iter": 20, "tol": 0.0}
    ours = lambda groups: FederatedKMeans(20, **start).fit(x, groups=groups).inertia_ / len(x)
    theirs = lambda: KMeans(20, n_init=1, algorithm="lloyd", **start).fit(x).inertia_ / len(x)
    return Pair("inertia of a row", theirs, lambda: ours(None), lambda: ours(groups_of(x)))


def factors() -> Pair:
    """5 non-negative factors of 1,000 × 20, 30 iterations."""
    from sklearn.decomposition import NMF

    from majorant.estimators import FederatedNMF

    rng = np.random.default_rng(0)
    x = rng.gamma(1.0, size=(1_000, 5)) @ rng.gamma(0.5, size=(5, 20)) + 0.1 * rng.random((1_000, 20))
    error = lambda model: float(np.mean((x - model.transform(x) @ model.components_) ** 2))
    ours = lambda groups: error(FederatedNMF(5, max_iter=30, tol=0.0, random_state=0).fit(x, groups=groups))
    theirs = lambda: error(NMF(5, init="nndsvda", max_iter=30, tol=0.0, random_state=0).fit(x))
    return Pair("mean squared error", theirs, lambda: ours(None), lambda: ours(groups_of(x)))


def atoms() -> Pair:
    """A dictionary of 20 atoms for 1,000 × 16, codes with an L1 penalty, 20 iterations."""
    from sklearn.decomposition import DictionaryLearning, sparse_encode

    from majorant.estimators import FederatedDictionaryLearning

    rng = np.random.default_rng(0)
    x = (rng.normal(size=(1_000, 20)) * (rng.random((1_000, 20)) < 0.2)) @ rng.normal(size=(20, 16))
    alpha = 0.2

    def objective(components: np.ndarray) -> float:
        codes = sparse_encode(x, components, algorithm="lasso_cd", alpha=alpha, max_iter=2_000)
        return float(np.mean(0.5 * ((x - codes @ components) ** 2).sum(axis=1) + alpha * np.abs(codes).sum(axis=1)))

    ours = lambda groups: objective(
        FederatedDictionaryLearning(20, alpha=alpha, max_iter=20, tol=0.0, random_state=0)
        .fit(x, groups=groups)
        .components_
    )
    settings: dict[str, Any] = {"fit_algorithm": "cd", "max_iter": 20, "tol": 0.0, "random_state": 0}
    theirs = lambda: objective(DictionaryLearning(20, alpha=alpha, **settings).fit(x).components_)
    return Pair("objective", theirs, lambda: ours(None), lambda: ours(groups_of(x)))


def logistic(groups: int, rows: int) -> tuple[Any, Callable[[], float], Callable[[], float]]:
    """A logistic regression for each group: a loop of scikit-learn's fits, and one program; mean objective of both."""
    from sklearn.linear_model import LogisticRegression

    import majorant as mj
    from majorant.data.federated import FederatedData

    rng, l2 = np.random.default_rng(0), 1e-2
    owner = np.repeat(np.arange(groups), rows)
    x = rng.normal(size=(groups * rows, 20)).astype(np.float32)
    y = (x @ rng.normal(size=20) + 2 * rng.normal(size=len(x)) > 0).astype(int)
    data = FederatedData.from_arrays(x, y, owner, split=(1.0, 0.0, 0.0))

    def objective(group: int, weight: np.ndarray, bias: float) -> float:
        own, label = data.train.client(group)
        margin = (own @ weight + bias) * (2 * label - 1)
        return float(np.logaddexp(0, -margin).mean() + l2 / 2 * (weight @ weight))

    def theirs() -> float:
        found = []
        for group in range(groups):
            own, label = data.train.client(group)
            model = LogisticRegression(C=1 / (l2 * len(own)), tol=1e-6, max_iter=200).fit(own, label)
            found.append(objective(group, model.coef_[0], model.intercept_[0]))
        return float(np.mean(found))

    algorithm = mj.local(mj.models.linear(data), local=mj.solvers.local_newton(8, l2=l2))

    def ours() -> float:
        (theta,) = mj.simulate(algorithm, data, rounds=1).snapshot.clients.theta  # one layer
        weight, bias = (np.asarray(theta[name])[0].reshape(groups, -1) for name in ("weight", "bias"))
        return float(np.mean([objective(g, weight[g], bias[g, 0]) for g in range(groups)]))

    return data, theirs, ours


def regression_of_one() -> Pair:
    """One logistic regression of 20,000 rows."""
    _, theirs, ours = logistic(1, 20_000)
    return Pair("objective", theirs, ours, None)


def regressions_of_many() -> Pair:
    """A logistic regression for each of 300 groups of 100 rows, against a loop of fits."""
    _, theirs, ours = logistic(300, 100)
    return Pair("mean objective", theirs, None, ours)


def front() -> Pair:
    """16 points of a front between the mean loss and ½ ‖Θ‖², against a loop of SciPy's L-BFGS."""
    from scipy.optimize import minimize

    import majorant as mj
    from benchmarks.pareto_front import PROBLEMS, WEIGHTS, data_of, make

    problem = next(iter(PROBLEMS.values()))
    data = data_of(problem)
    x = np.column_stack([data.train.x, np.ones(len(data.train.y), np.float32)]).astype(float)
    sign = 2.0 * data.train.y - 1

    def value(theta: np.ndarray, weight: float) -> tuple[float, np.ndarray]:
        margin = sign * (x @ theta)
        slope = -sign / (1 + np.exp(margin)) / len(x)
        loss = (1 - weight) * np.logaddexp(0, -margin).mean() + weight / 2 * (theta @ theta)
        return float(loss), (1 - weight) * (slope @ x) + weight * theta

    def theirs() -> float:
        found = [minimize(value, np.zeros(x.shape[1]), (w,), jac=True, method="L-BFGS-B") for w in WEIGHTS[1:]]
        return float(np.mean([one.fun for one in found]))

    algorithm, rounds = make(problem, data), 400

    def ours() -> float:
        watch = mj.Evaluation(every=rounds)
        run = mj.simulate(algorithm, data, rounds=rounds, evaluation=watch, grid={"lambda": WEIGHTS[1:], "lr": [1.0]})
        (server,) = run.snapshot.server.value  # one layer
        parts = [np.asarray(server[name]).reshape(len(WEIGHTS) - 1, -1) for name in ("weight", "bias")]
        thetas = np.concatenate(parts, axis=1).astype(float)
        return float(np.mean([value(theta, w)[0] for theta, w in zip(thetas, WEIGHTS[1:], strict=True)]))

    return Pair("mean weighted sum", theirs, None, ours)


PAIRS: dict[str, Callable[[], Pair]] = {
    "Gaussian mixture": mixture,
    "k-means": clusters,
    "NMF": factors,
    "dictionary": atoms,
    "logistic regression, one": regression_of_one,
    "logistic regression, 300 groups": regressions_of_many,
    "front of 15 points": front,
}


def main(pairs: dict[str, Callable[[], Pair]] = PAIRS, about: str | None = __doc__) -> None:
    """A line per pair."""
    asked = argparse.ArgumentParser(description=about)
    asked.add_argument("--json", type=Path, help="where to write the numbers")
    asked.add_argument("--only", nargs="+", choices=pairs, default=list(pairs))
    given = asked.parse_args()
    rows: dict[str, Any] = {}
    for name in given.only:
        pair = pairs[name]()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # iterations are fixed: nothing converges
            with threadpool_limits(1):  # threads that wait for each other's small products count as busy
                found = {"theirs": timed(pair.theirs)._asdict()}
            ours = {"one": pair.one, "many": pair.many}
            found |= {who: timed(work)._asdict() for who, work in ours.items() if work is not None}
        rows[name] = {"quality": pair.quality, **found}
        theirs = found.pop("theirs")
        print(
            f"{name}: theirs {theirs['busy']:.3f} s of processors, {pair.quality} {theirs['quality']:.5g}", flush=True
        )
        for who, ours in found.items():
            rest = f"{ours['quality']:.5g}: {theirs['busy'] / ours['busy']:.1f} times faster"
            print(
                f"  ours, {who:5s} {ours['busy']:.3f} s (the first {ours['first']:.1f} s on the clock), {rest}",
                flush=True,
            )
        if given.json:
            given.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
