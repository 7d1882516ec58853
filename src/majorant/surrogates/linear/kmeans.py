"""k-means as a factorization: codes are one-hot, and MM is Lloyd's algorithm.

    ℓ(z, c) = min_k ½ ‖z − c_k‖²,    g(c) = η ‖c − c⁰‖²
    S̄(z, τ) = (e_k, e_k zᵀ) with k the nearest centre of τ,    ψ = 0,    φ(c) = ((−½ ‖c_k‖²)_k, c)
    T(s) = (s₂ + 2η c⁰) / (s₁ + 2η),    𝒮 = (numbers at least 0) × R^{K×p}

T sees statistics only: it does not know where an empty cluster was before. The small η says where it goes, to c⁰ (0
unless given), and hardly moves a centre with samples: by η times 2 over its share of the samples.

Reference: Dieuleveut et al., 2025, Section 4 (clustering as matrix factorization); Lloyd, 1982.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from majorant.core import Key
from majorant.math.checks import check_range, check_whole
from majorant.math.quadratic import EXACT
from majorant.solvers import Batch
from majorant.surrogates.linear.dictionary import as_vectors
from majorant.surrogates.linear.record import LinearSurrogate


def k_means(
    features: int,
    clusters: int,
    *,
    l2: float = 1e-6,
    prior: np.ndarray | None = None,
    start: np.ndarray | None = None,
) -> LinearSurrogate:
    """Centres (K, p) of clusters; η = ``l2``, c⁰ = ``prior``, (K, p) or (p,). ``predict`` numbers the nearest one.

    ``start`` are centres to begin with, by default standard normal ones: good ones, such as samples far apart, matter.

    >>> surrogate = k_means(1, 2, start=[[0.0], [4.0]])
    >>> surrogate.predict(surrogate.init(None), jnp.array([[1.0], [5.0], [3.0]]))
    Array([0, 1, 1], dtype=int32)
    """
    check_whole("features", features)
    check_whole("clusters", clusters)
    check_range("l2", l2, above=0)
    shape = (clusters, features)
    anchor = np.zeros(shape) if prior is None else np.broadcast_to(np.asarray(prior, float), shape)
    first = None if start is None else np.asarray(start, float)
    if first is not None and first.shape != shape:
        raise ValueError(f"start must be centres of shape {shape}, got {first.shape}")
    if not np.isfinite(anchor).all() or (first is not None and not np.isfinite(first).all()):
        raise ValueError("prior or start has NaN or infinite numbers")

    def init(key: Key) -> jax.Array:
        return jax.random.normal(key, shape) if first is None else jnp.asarray(first, jnp.result_type(float))

    def nearest(params: jax.Array, x: jax.Array) -> jax.Array:
        products = jnp.matmul(x, params.T, precision=EXACT)
        return jnp.argmin((params**2).sum(axis=1) / 2 - products, axis=1).astype(jnp.int32)

    def losses(params: jax.Array, x: jax.Array, y: jax.Array) -> jax.Array:
        x = as_vectors(x, features, params.dtype)
        return ((x - params[nearest(params, x)]) ** 2).sum(axis=1) / 2

    def statistic(params: jax.Array, batch: Batch) -> dict[str, jax.Array]:
        x = as_vectors(batch.x, features, params.dtype)
        one_hot = jax.nn.one_hot(nearest(params, x), clusters, dtype=x.dtype) * batch.shares.astype(x.dtype)[:, None]
        return {"shares": one_hot.sum(axis=0), "sums": jnp.matmul(one_hot.T, x, precision=EXACT)}

    def minimize(s: dict[str, jax.Array]) -> jax.Array:
        return (s["sums"] + 2 * l2 * anchor.astype(s["sums"].dtype)) / (s["shares"] + 2 * l2)[:, None]

    return LinearSurrogate(
        name="k-means",
        init=init,
        statistic=statistic,
        minimize=minimize,
        losses=losses,
        project=lambda s: s | {"shares": jnp.maximum(s["shares"], 0)},
        penalty=lambda params: l2 * ((params - anchor.astype(params.dtype)) ** 2).sum(),
        psi=lambda params: jnp.zeros((), params.dtype),
        phi=lambda params: {"shares": -(params**2).sum(axis=1) / 2, "sums": params},
        predict=lambda params, x: nearest(params, as_vectors(x, features, params.dtype)),
    )
