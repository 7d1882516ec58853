"""The Wasserstein-2 benchmark Mix3 → Mix10: pairs (P, Q = T*#P) whose optimal map T* is known, and clients of P.

P is a mixture of three Gaussians, and T* the gradient of a sum of two dense convex networks, scaled so that Var Q = d.
Files ``w2/mix3_to_mix10_d{d}.npz`` are looked for under ``$MAJORANT_DATA`` (by default ``~/.cache/majorant``): the
arrays of the published checkpoints. The error of a map is its unexplained variance in per cent::

    L2-UVP(T) = 100 · E_P ‖T(X) − T*(X)‖² / tr Cov(Q)            inverse: 100 · E_P ‖S(T*(X)) − X‖² / tr Cov(P)

(The FedMM paper calls the denominator the L1 norm of the covariance; in the benchmark's code it is the trace.)

Reference: Korotin et al., *Do neural optimal transport solvers work?*, NeurIPS 2021.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import majorant as mj
from majorant.core import Key, Tree
from majorant.data.federated import FederatedData
from majorant.data.image_files import data_folder
from majorant.models.convex import dense_icnn
from majorant.surrogates.linear.gaussian_map import map_matrix

PUBLISHED_CONVEXITY = 0.01  # of each of the two potentials of T*
FITTED = 1000  # samples a cell that its centre is fitted to


class Benchmark(NamedTuple):
    """One pair, with what its file says of it."""

    dimension: int
    arrays: dict[str, np.ndarray]
    truth: Callable[[jax.Array], jax.Array]  # T*
    p_var: float
    q_var: float

    def source(self, key: Key, count: int) -> jax.Array:
        """Samples of P, (count, d)."""
        which, noise = jax.random.split(key)
        k = jax.random.randint(which, (count,), 0, 3)
        z = jax.random.normal(noise, (count, self.dimension))
        every = jnp.einsum("kij,nj->kni", self.arrays["factors"], z) + self.arrays["means"][:, None]
        return jnp.take_along_axis(every, k[None, :, None], axis=0)[0]

    def target(self, key: Key, count: int) -> jax.Array:
        """Samples of Q, (count, d): fresh ones, as P's pushed forward."""
        return self.truth(self.source(key, count))


def load(dimension: int) -> Benchmark:
    """The pair of a dimension: 2, 4, 8, 16, 32, 64 or 128."""
    path = data_folder() / "w2" / f"mix3_to_mix10_d{dimension}.npz"
    if not path.exists():
        raise FileNotFoundError(
            f"{path} is not there: put the benchmark's arrays under {path.parent}, or set MAJORANT_DATA to the folder"
        )
    with np.load(path) as file:
        arrays = {name: file[name] for name in file.files}
    widths = tuple(arrays[f"v1_A{layer}"].shape[1] for layer in range(3))
    network = dense_icnn(dimension, hidden=widths, strong_convexity=PUBLISHED_CONVEXITY)
    names = [f"{kind}{layer}" for kind in "ABc" for layer in range(3)] + ["U1", "U2", "u"]
    parts = [{name: arrays[f"{which}_{name}"] for name in names} for which in ("v1", "v2")]
    for part in parts:
        network.check(part)

    def truth(x: jax.Array) -> jax.Array:
        moved = sum(network.gradient(part, x) for part in parts)
        return arrays["scale"] * (moved - arrays["shift"])

    return Benchmark(dimension, arrays, truth, float(arrays["p_var"]), float(arrays["q_var"]))


def errors_of(benchmark: Benchmark, points: int = 4096, seed: int = 0) -> Callable[[Tree, Tree], tuple[Any, Any]]:
    """A function of the parameters of many runs that gives both L2-UVPs of each, (runs,)."""
    network = dense_icnn(benchmark.dimension)
    x = benchmark.source(jax.random.key(seed + 1_000_003), points)
    y = benchmark.truth(x)

    def one(pair: tuple[Tree, Tree]) -> tuple[jax.Array, jax.Array]:
        return uvp(network.gradient(pair[0], x), y, benchmark.q_var), uvp(
            network.gradient(pair[1], y), x, benchmark.p_var
        )

    return jax.jit(lambda omega, theta: jax.lax.map(one, (omega, theta)))


def uvp(found: jax.Array, right: jax.Array, variance: float) -> jax.Array:
    """100 · E ‖found − right‖² / variance."""
    return 100 * ((found - right) ** 2).sum(axis=1).mean() / variance


def gaussian_errors(
    benchmark: Benchmark, data: FederatedData, reference: np.ndarray, seed: int = 0
) -> tuple[float, float]:
    """Both L2-UVPs of the affine map from federated means and covariances: one round of FedMM."""
    surrogate = mj.surrogates.gaussian_map(reference.mean(axis=0), np.cov(reference.T))
    run = mj.simulate(mj.fedmm(surrogate, data), data, rounds=1)
    found = run.server.value.params
    x = benchmark.source(jax.random.key(seed + 1_000_003), 4096)
    y = benchmark.truth(x)
    matrix = np.linalg.inv(np.asarray(map_matrix(found["covariance"], jnp.asarray(np.cov(reference.T), jnp.float32))))
    back = np.asarray(found["mean"]) + (np.asarray(y) - reference.mean(axis=0)) @ matrix
    moved = surrogate.predict(found, x)
    return float(uvp(moved, y, benchmark.q_var)), float(uvp(back, x, benchmark.p_var))


def cells(x: np.ndarray, count: int, *, seed: int = 0, iterations: int = 12) -> np.ndarray:
    """Constrained k-means: the cell of each sample, (n,); all cells have the same number of samples, give or take one.

    Prices are the multipliers of the constraints on sizes (Bradley et al., 2000): ‖x − c_k‖² + price_k decides, and
    cells that are too large become dearer. Centres come from some of the samples; what does not fit into its cell at
    the end goes where it costs least.
    """
    few = x[: max(count, min(len(x), FITTED * count))]
    rng = np.random.default_rng(seed)
    centres, prices = few[rng.choice(len(few), count, replace=False)], np.zeros(count)
    for _ in range(iterations):
        distances = far(few, centres)
        prices = priced(distances, prices, few.var(axis=0).sum())
        owner = balanced(distances + prices)
        centres = np.stack([few[owner == k].mean(axis=0) for k in range(count)])
    distances = far(x, centres)
    return balanced(distances + priced(distances, prices, x.var(axis=0).sum()))


def priced(distances: np.ndarray, prices: np.ndarray, spread: float) -> np.ndarray:
    """Prices at which cells are of nearly the same size."""
    n, count = distances.shape
    for step in np.geomspace(1.0, 0.01, 30):
        owner = (distances + prices).argmin(axis=1)
        prices = prices + step * spread * (np.bincount(owner, minlength=count) / n - 1 / count)
    return prices


def balanced(costs: np.ndarray) -> np.ndarray:
    """The cheapest cell of each sample, from costs (n, k); in full cells those stay who would lose most elsewhere."""
    n, count = costs.shape
    room = np.full(count, n // count) + (np.arange(count) < n % count)
    owner, waiting = np.full(n, -1), np.arange(n)
    while len(waiting):
        here = np.where(room > 0, costs[waiting], np.inf)
        wish = here.argmin(axis=1)
        next_best = np.partition(here, 1, axis=1)[:, 1] if count > 1 else np.zeros(len(here))
        last_first = np.argsort(here.min(axis=1) - next_best, kind="stable")
        for k in range(count):
            mine = last_first[wish[last_first] == k][: room[k]]
            owner[waiting[mine]] = k
            room[k] -= len(mine)
        waiting = np.flatnonzero(owner < 0)
    return owner


def far(x: np.ndarray, centres: np.ndarray) -> np.ndarray:
    """Squared distances of samples from centres, (n, k)."""
    return (x**2).sum(axis=1)[:, None] - 2 * x @ centres.T + (centres**2).sum(axis=1)


def clients_of(
    benchmark: Benchmark, *, clients: int = 10, samples: int = 10_000, share: float = 1.0, seed: int = 0
) -> FederatedData:
    """One sample of P, split into clients of equal size: a ``share`` of each is a cell, the rest is dealt at random.

    All clients together have a sample of P, whatever the share.
    """
    rng = np.random.default_rng(seed)
    x = draw(benchmark, rng, clients * samples)
    celled = round(share * samples) * clients
    dealt = np.arange(len(x) - celled) % clients
    owner = np.concatenate([cells(x[:celled], clients, seed=seed), dealt]) if celled else dealt
    name = f"mix3 to mix10, d = {benchmark.dimension}"
    return FederatedData.unlabelled(x.astype(np.float32), clients=owner, seed=seed, name=name)


def draw(benchmark: Benchmark, rng: np.random.Generator, count: int) -> np.ndarray:
    """Samples of P by NumPy."""
    k, z = rng.integers(0, 3, count), rng.standard_normal((count, benchmark.dimension))
    x = np.empty_like(z)
    for which in range(3):
        x[k == which] = z[k == which] @ benchmark.arrays["factors"][which].T + benchmark.arrays["means"][which]
    return x
