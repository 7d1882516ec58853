"""The optimal transport map between Gaussians, from means and covariances alone: one round of FedMM, and it is exact.

    ℓ(x; m, C) = ½ log det C + ½ (x − m)ᵀ C⁻¹ (x − m),    g = (ρ/2) tr C⁻¹
    S̄(x) = (x, x xᵀ),    φ = (C⁻¹ m, −½ C⁻¹),    ψ = ½ log det C + ½ mᵀ C⁻¹ m
    T(s) = (s₁, s₂ − s₁ s₁ᵀ + ρ I)
    map    x ↦ m_Q + A (x − m),   A = C^{−½} (C^{½} C_Q C^{½})^{½} C^{−½}

S̄ does not depend on parameters, so that the first round ends at the maximum-likelihood Gaussian of all clients.
Where P and Q are not Gaussian, the map still carries mean and covariance of the one into those of the other; it is
the best map that is affine, and a start for others (`majorant.methods.transport`).

Reference: Dowson, Landau, *The Fréchet distance between multivariate normal distributions*, 1982.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from majorant.math.checks import check_range
from majorant.math.quadratic import EXACT
from majorant.math.symmetric import pack, unpack
from majorant.solvers import Batch
from majorant.surrogates.linear.dictionary import as_vectors
from majorant.surrogates.linear.record import LinearSurrogate


def gaussian_map(mean: np.ndarray, covariance: np.ndarray, *, ridge: float = 1e-6) -> LinearSurrogate:
    """A Gaussian of the clients' samples, whose ``predict`` maps samples onto a Gaussian of this mean and covariance.

    >>> surrogate = gaussian_map([1.0], [[4.0]])
    >>> surrogate.predict({"mean": jnp.zeros(1), "covariance": jnp.eye(1)}, jnp.array([[0.0], [1.0]])).ravel()
    Array([1., 3.], dtype=float32)
    """
    check_range("ridge", ridge, above=0)
    mean, covariance = np.asarray(mean, float), np.asarray(covariance, float)
    d = mean.shape[0]
    if mean.ndim != 1 or covariance.shape != (d, d):
        raise ValueError(f"mean (d,) and covariance (d, d) must agree, got {mean.shape} and {covariance.shape}")
    if not (np.isfinite(mean).all() and np.isfinite(covariance).all()):
        raise ValueError("mean or covariance of the reference has NaN or infinite numbers")

    def losses(params: dict[str, jax.Array], x: jax.Array, y: jax.Array) -> jax.Array:
        x = as_vectors(x, d, params["mean"].dtype)
        root = jnp.linalg.cholesky(params["covariance"])
        white = jax.scipy.linalg.solve_triangular(root, (x - params["mean"]).T, lower=True)
        return (white**2).sum(axis=0) / 2 + jnp.log(jnp.diagonal(root)).sum()

    def statistic(params: dict[str, jax.Array], batch: Batch) -> dict[str, jax.Array]:
        x = as_vectors(batch.x, d, params["mean"].dtype)
        weighed = batch.shares.astype(x.dtype)[:, None] * x
        return {"first": weighed.sum(axis=0), "second": pack(jnp.matmul(weighed.T, x, precision=EXACT))}

    def minimize(s: dict[str, jax.Array]) -> dict[str, jax.Array]:
        m = s["first"]
        return {"mean": m, "covariance": unpack(s["second"]) - jnp.outer(m, m) + ridge * jnp.eye(d, dtype=m.dtype)}

    def project(s: dict[str, jax.Array]) -> dict[str, jax.Array]:
        """Moments of the same mean that leave a covariance, what is negative in it cut off: in 𝒮, not the closest."""
        m = s["first"]
        values, vectors = jnp.linalg.eigh(unpack(s["second"]) - jnp.outer(m, m))
        kept = jnp.matmul(vectors * jnp.maximum(values, 0), vectors.T, precision=EXACT)
        return s | {"second": pack(kept + jnp.outer(m, m))}

    def inverse(params: dict[str, jax.Array]) -> jax.Array:
        return jnp.linalg.inv((params["covariance"] + params["covariance"].T) / 2)  # symmetric in its gradient, too

    def psi(params: dict[str, jax.Array]) -> jax.Array:
        m = params["mean"]
        return (jnp.linalg.slogdet(params["covariance"])[1] + m @ inverse(params) @ m) / 2

    def predict(params: dict[str, jax.Array], x: jax.Array) -> jax.Array:
        matrix = map_matrix(params["covariance"], jnp.asarray(covariance, x.dtype))
        return jnp.asarray(mean, x.dtype) + jnp.matmul(x - params["mean"], matrix, precision=EXACT)

    return LinearSurrogate(
        name="gaussian map",
        init=lambda key: {"mean": jnp.zeros(d, jnp.result_type(float)), "covariance": jnp.eye(d)},
        statistic=statistic,
        minimize=minimize,
        losses=losses,
        project=project,
        penalty=lambda params: ridge / 2 * jnp.trace(inverse(params)),
        psi=psi,
        phi=lambda params: {"first": inverse(params) @ params["mean"], "second": pack(-inverse(params) / 2)},
        predict=predict,
    )


def map_matrix(source: jax.Array, target: jax.Array) -> jax.Array:
    """A, symmetric and positive, with A C A = C_Q: the linear part of the map between Gaussians.

    >>> found = map_matrix(jnp.diag(jnp.array([1.0, 4.0])), jnp.diag(jnp.array([9.0, 1.0])))
    >>> bool(jnp.allclose(found, jnp.diag(jnp.array([3.0, 0.5])), atol=1e-5))
    True
    """
    root, back = roots(source)
    middle = roots(symmetric(root, target))[0]
    return symmetric(back, middle)


def roots(matrix: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The symmetric square root of a positive matrix, and its inverse (of what is not 0)."""
    values, vectors = jnp.linalg.eigh((matrix + matrix.T) / 2)
    values = jnp.maximum(values, 0)
    least = values.max() * values.shape[0] * jnp.finfo(values.dtype).eps
    rebuilt = lambda v: jnp.matmul(vectors * v, vectors.T, precision=EXACT)
    return rebuilt(jnp.sqrt(values)), rebuilt(jnp.where(values > least, 1 / jnp.sqrt(jnp.maximum(values, least)), 0))


def symmetric(outer: jax.Array, inner: jax.Array) -> jax.Array:
    """outer · inner · outer."""
    return jnp.matmul(jnp.matmul(outer, inner, precision=EXACT), outer, precision=EXACT)
