"""FedMM: a round of dictionary learning, Gaussian mixtures, and how the cost grows, against NumPy and scikit-learn.

1. A round of dictionary learning (p = 500, K = 50, 20 clients × 250 vectors, all take part) against a loop over clients
   in NumPy with scikit-learn's `sparse_encode` (coordinate descent), to the same precision of the codes.
2. `FederatedGaussianMixture` with one client against scikit-learn's `GaussianMixture`: 1e5 × 20, 10 components, 20
   iterations from the same start, double precision.
3. The time of a round against the number of clients, of dimensions and of atoms.

The products of a round are also set against the machine's limit. Run: python -m benchmarks.fedmm
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable

import numpy as np

import majorant as mj
from benchmarks.machine import interleaved, measure_limits
from majorant.data.dictionary import without_labels
from majorant.data.federated import FederatedData
from majorant.math.symmetric import unpack

SPARSITY, RIDGE = 0.1, 0.2


def problem(clients: int, features: int, atoms: int, samples: int = 250) -> FederatedData:
    """Sparse combinations of random atoms, with a little noise."""
    rng = np.random.default_rng(0)
    theta = rng.normal(size=(features, atoms)) / np.sqrt(features)
    codes = rng.normal(size=(clients * samples, atoms)) * (rng.random((clients * samples, atoms)) < 0.2)
    x = (codes @ theta.T + 0.01 * rng.normal(size=(clients * samples, features))).astype(np.float32)
    return without_labels(x, np.full(clients, samples), "codes", theta)


class NumpyFedMM:
    """FedMM with all clients as one would write it in NumPy and scikit-learn: a loop over clients."""

    def __init__(self, data: FederatedData, atoms: int, start: dict[str, np.ndarray]) -> None:
        self.clients = [data.train.client(c)[0].astype(np.float64) for c in range(data.clients)]
        self.shares = data.train.sizes / data.train.sizes.sum()
        self.gram, self.cross = start["gram"], start["cross"]
        zero = lambda: (np.zeros_like(self.gram), np.zeros_like(self.cross))
        self.variates, self.variate, self.atoms = [zero() for _ in self.clients], zero(), atoms

    def minimise(self) -> np.ndarray:
        """T: θ (s⁽¹⁾ + 2ηI) = s⁽²⁾."""
        return np.linalg.solve(self.gram + 2 * RIDGE * np.eye(self.atoms), self.cross.T).T

    def round(self, gamma: float = 1.0, alpha: float = 1.0) -> None:
        """One round."""
        from sklearn.decomposition import sparse_encode

        theta = self.minimise()
        sums = [np.zeros_like(self.gram), np.zeros_like(self.cross)]
        for c, x in enumerate(self.clients):
            h = sparse_encode(x, theta.T, algorithm="lasso_cd", alpha=SPARSITY, max_iter=1000)
            own = (h.T @ h / len(x), x.T @ h / len(x))
            drift = [s - at - v for s, at, v in zip(own, (self.gram, self.cross), self.variates[c], strict=True)]
            self.variates[c] = tuple(v + alpha * d for v, d in zip(self.variates[c], drift, strict=True))
            for total, d in zip(sums, drift, strict=True):
                total += self.shares[c] * d
        values, vectors = np.linalg.eigh(self.gram + gamma * (self.variate[0] + sums[0]))
        self.gram = (vectors * np.maximum(values, 0)) @ vectors.T
        self.cross = self.cross + gamma * (self.variate[1] + sums[1])
        self.variate = tuple(v + alpha * d for v, d in zip(self.variate, sums, strict=True))


def ours(data: FederatedData, atoms: int, rounds: int, tolerance: float | None = None) -> Callable[[], float]:
    """Seconds of a round, from a run of several (the first compiles)."""
    surrogate = mj.surrogates.dictionary_learning(
        data.spec.features[0], atoms, sparsity=SPARSITY, l2=RIDGE, tolerance=tolerance
    )
    algorithm = mj.fedmm(surrogate, data)
    run = lambda: (
        mj.simulate(algorithm, data, rounds=rounds, evaluation=mj.Evaluation(every=rounds)).seconds["train"] / rounds
    )
    run()
    return run


def dictionary_round(clients: int = 20, features: int = 500, atoms: int = 50, rounds: int = 5) -> dict[str, float]:
    """Seconds of a round by FedMM and by the loop, in turns, and what the two lead to."""
    data = problem(clients, features, atoms)
    mine = ours(data, atoms, rounds)
    surrogate = mj.surrogates.dictionary_learning(features, atoms, sparsity=SPARSITY, l2=RIDGE)
    first = mj.methods.initial_statistic(surrogate, data)
    start = {"gram": np.asarray(unpack(first["gram"]), np.float64), "cross": np.asarray(first["cross"], np.float64)}
    loop = NumpyFedMM(data, atoms, start)
    best = {"ours": np.inf, "loop": np.inf}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # codes that need more sweeps than the loop allows
        for _ in range(3):
            best["ours"] = min(best["ours"], mine())
            begin = time.perf_counter()
            loop.round()
            best["loop"] = min(best["loop"], time.perf_counter() - begin)
    return best


def mixture_iterations(
    rows: int = 100_000, features: int = 20, components: int = 10, iterations: int = 20
) -> dict[str, float]:
    """Seconds of a fit by both, from the same start."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.mixture import GaussianMixture

    from majorant.estimators import FederatedGaussianMixture

    rng = np.random.default_rng(0)
    centers = rng.normal(0, 2, (components, features))
    x = centers[rng.integers(components, size=rows)] + rng.normal(size=(rows, features))
    start = {
        "means_init": centers + 0.5 * rng.normal(size=centers.shape),
        "weights_init": np.full(components, 1 / components),
        "precisions_init": np.stack([np.eye(features)] * components),
    }
    options = {"n_components": components, "max_iter": iterations, "tol": 0.0, "init_params": "random"} | start
    fits = {
        "ours": lambda: FederatedGaussianMixture(**options, random_state=0).fit(x),
        "scikit-learn": lambda: GaussianMixture(**options, random_state=0).fit(x),
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        found = {name: fit() for name, fit in fits.items()}
        np.testing.assert_allclose(found["ours"].means_, found["scikit-learn"].means_, rtol=1e-4, atol=1e-4)
        return interleaved(fits, repeats=3)


def flops_of_a_round(data: FederatedData, atoms: int, codes_steps: int) -> float:
    """Multiplications and additions in the products of a round: codes, statistics and T."""
    n, p = data.train.x.shape
    return 2.0 * n * atoms * (2 * p + atoms * (codes_steps + 1)) + 2.0 * p * atoms**2


def main() -> None:
    """Prints the ratios."""
    limits = measure_limits()
    print(f"machine: {limits.gflops:.0f} GFLOP/s, {limits.gigabytes:.1f} GB/s")
    best = dictionary_round()
    data = problem(20, 500, 50)
    least = flops_of_a_round(data, 50, 20) / 1e9 / limits.gflops
    print(
        f"a round of dictionary learning, p = 500, K = 50, 20 × 250: {best['ours']:.3f} s, NumPy and scikit-learn loop "
        f"{best['loop']:.3f} s: {best['loop'] / best['ours']:.1f} times as fast; its products with 20 steps for the "
        f"codes would take {least:.3f} s at the machine's best"
    )
    fits = mixture_iterations()
    print(
        f"Gaussian mixture, 1e5 × 20, K = 10, 20 iterations, one client: {fits['ours']:.2f} s, scikit-learn "
        f"{fits['scikit-learn']:.2f} s: {fits['scikit-learn'] / fits['ours']:.2f} times as fast"
    )
    base = ours(problem(20, 100, 20), 20, 5)()
    for what, case in {
        "5 times the clients (100)": (100, 100, 20),
        "5 times the features (500)": (20, 500, 20),
        "4 times the atoms (80)": (20, 100, 80),
    }.items():
        clients, features, atoms = case
        seconds = ours(problem(clients, features, atoms), atoms, 5)()
        print(f"{what}: {seconds / base:.1f} times the round of 20 clients, p = 100, K = 20 ({base * 1e3:.1f} ms)")


if __name__ == "__main__":
    main()
