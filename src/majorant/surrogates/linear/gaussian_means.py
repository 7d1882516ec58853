"""A mixture of Gaussians with known weights ν and covariances Γ, whose means are learnt, by EM.

::

    ℓ(z, θ) = −log Σ_ℓ ν_ℓ N(z; m_ℓ, Γ_ℓ),      g(θ) = (λ/2) Σ_ℓ ‖m_ℓ‖²
    S̄(z, τ) = (r_ℓ, r_ℓ z)_ℓ,  r_ℓ = P(ℓ | z, τ)
    ψ(θ) = 0,  φ(θ) = (−½ m_ℓᵀ Γ_ℓ⁻¹ m_ℓ, Γ_ℓ⁻¹ m_ℓ)_ℓ
    T(s) = (s⁰_ℓ I + λ Γ_ℓ)⁻¹ s¹_ℓ
    𝒮: the shares s⁰ on the simplex (each at least ε), s¹ anything

All L blocks are kept. With the L − 1 of the paper's Appendix C.2, ψ holds the mean of all clients' samples, which the
server does not have; T is the same.

Reference: Dieuleveut et al., 2025, Appendix C.2.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from majorant.core import Key, Tree
from majorant.math.checks import check_range
from majorant.solvers import Batch
from majorant.surrogates.linear.gaussian_shapes import whitened_densities
from majorant.surrogates.linear.latent import (
    floored_simplex,
    given,
    given_covariances,
    given_weights,
    negative_log,
    posterior,
    precise,
    samples,
)
from majorant.surrogates.linear.record import LinearSurrogate


def gaussian_means(
    weights: Any, covariances: Any, *, penalty: float = 0.0, margin: float | None = None, start: Any = None
) -> LinearSurrogate:
    """Means ``(L, p)`` of Gaussians with the given weights ``(L,)`` and covariances ``(L, p, p)``.

    ``penalty`` is λ. ``margin`` is the least share of a component: by default 0, or 10⁻⁹ without a penalty, where T
    divides by shares. Without a ``start`` the means are drawn from N(0, I).

    >>> surrogate = gaussian_means([0.5, 0.5], jnp.ones((2, 1, 1)), penalty=0.5)
    >>> surrogate.minimize({"shares": jnp.array([0.25, 0.75]), "first": jnp.array([[1.5], [2.5]])})
    Array([[2.],
           [2.]], dtype=float32)
    """
    shape = np.shape(covariances)
    if len(shape) != 3 or shape[1] != shape[2] or 0 in shape:
        raise ValueError(f"covariances must have shape (components, features, features), got {shape}")
    count, features = shape[:2]
    nu = given_weights("weights", weights, count)
    gamma = given_covariances("covariances", covariances, count, features)
    check_range("penalty", penalty, least=0)
    least = (0.0 if penalty else 1e-9) if margin is None else margin
    check_range("margin", least, least=0, below=1 / count)
    if not penalty and not least:
        raise ValueError("without a penalty T divides by the components' shares: margin must be above 0")
    first = None if start is None else given("start", start, (count, features))
    values, vectors = np.linalg.eigh(gamma)  # of what is known, once
    factors = np.linalg.cholesky(gamma)
    whitening, precisions = np.linalg.inv(factors), np.linalg.inv(gamma)
    half = np.log(np.diagonal(factors, axis1=1, axis2=2)).sum(axis=1)

    def init(key: Key) -> jax.Array:
        dtype = jnp.result_type(float)
        return jax.random.normal(key, (count, features), dtype) if first is None else jnp.asarray(first, dtype)

    def joint(means: jax.Array, x: jax.Array) -> jax.Array:
        known = lambda a: jnp.asarray(a, means.dtype)
        z = samples(x, features, means.dtype)
        return jnp.log(known(nu)) + whitened_densities(means, known(whitening), known(half), z)

    def statistic(means: jax.Array, batch: Batch) -> Tree:
        r = posterior(joint(means, batch.x)) * batch.shares.astype(means.dtype)[:, None]
        return {"shares": r.sum(axis=0), "first": r.T @ batch.x.astype(means.dtype)}

    def minimize(s: Tree) -> jax.Array:
        axes = jnp.asarray(vectors, s["first"].dtype)
        scales = s["shares"][:, None] + penalty * jnp.asarray(values, s["first"].dtype)
        return jnp.einsum("lij,lj->li", axes, jnp.einsum("lij,li->lj", axes, s["first"]) / scales)

    def phi(means: jax.Array) -> Tree:
        natural = jnp.einsum("lij,lj->li", jnp.asarray(precisions, means.dtype), means)
        return {"shares": -0.5 * (means * natural).sum(axis=1), "first": natural}

    surrogate = LinearSurrogate(
        name="gaussian-means",
        init=init,
        statistic=statistic,
        minimize=minimize,
        losses=lambda means, x, y: negative_log(joint(means, x)),
        project=lambda s: s | {"shares": floored_simplex(s["shares"], least)},
        penalty=lambda means: penalty / 2 * (means**2).sum(),
        psi=lambda means: jnp.zeros((), means.dtype),
        phi=phi,
        predict=lambda means, x: posterior(joint(means, x)),
    )
    return precise(surrogate)
