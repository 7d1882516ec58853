"""Mixtures of multinomials by EM: counts (of words, say) from K distributions over V outcomes.

::

    ℓ(x, θ) = −log Σ_k π_k (Σ_v x_v)! Π_v p_kv^{x_v} / x_v!
    g(θ) = −α Σ_k log π_k − β Σ_kv log p_kv
    S̄(x, τ) = (r_k, r_k x)_k,  r_k = P(k | x, τ)
    ψ(θ) = 0,  φ(θ) = (log π_k, log p_k)_k
    T(s):  π_k ∝ s⁰_k + α,  p_kv ∝ s¹_kv + β
    𝒮: s⁰ ≥ ε and s¹ ≥ ε, with 0 in place of ε where α or β is positive

g is the negative logarithm of Dirichlet densities. As it is added to the *mean* loss, α and β are the pseudo-counts of
smoothing divided by the number of samples of all clients: Laplace's rule is β = 1/n.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln

from majorant.core import Key, Tree
from majorant.math.checks import check_range, check_whole
from majorant.solvers import Batch
from majorant.surrogates.linear.latent import (
    as_tree,
    check_start,
    given,
    given_weights,
    negative_log,
    posterior,
    precise,
    samples,
)
from majorant.surrogates.linear.record import LinearSurrogate
from majorant.surrogates.linear.validation import check_counts


def multinomial_mixture(
    outcomes: int,
    components: int,
    *,
    smoothing: float = 1e-3,
    weight_smoothing: float = 0.0,
    margin: float = 1e-9,
    start: dict[str, Any] | None = None,
) -> LinearSurrogate:
    """A mixture on counts ``(n, outcomes)``; parameters are ``weights`` (K,) and ``probabilities`` (K, V).

    ``smoothing`` is β, ``weight_smoothing`` α, ``margin`` ε. Without a ``start`` weights are equal and probabilities
    drawn from around the uniform ones.

    >>> surrogate = multinomial_mixture(2, 1, smoothing=0.5)
    >>> surrogate.minimize({"shares": jnp.array([1.0]), "counts": jnp.array([[0.0, 1.0]])})["probabilities"]
    Array([[0.25, 0.75]], dtype=float32)
    """
    check_whole("outcomes", outcomes, least=2)
    check_whole("components", components)
    check_range("smoothing", smoothing, least=0)
    check_range("weight_smoothing", weight_smoothing, least=0)
    check_range("margin", margin, above=0, below=1 / components)
    first = None
    if start is not None:
        check_start(start, ("weights", "probabilities"))
        rows = given("probabilities of the start", start["probabilities"], (components, outcomes))
        first = {
            "weights": given_weights("weights of the start", start["weights"], components),
            "probabilities": np.stack([given_weights("every row of the probabilities", p, outcomes) for p in rows]),
        }
    least_share = 0.0 if weight_smoothing else margin
    least_count = 0.0 if smoothing else margin

    def init(key: Key) -> Tree:
        if first is not None:
            return as_tree(first)
        dtype = jnp.result_type(float)
        near = jax.random.uniform(key, (components, outcomes), dtype, 0.5, 1.5)
        return {
            "weights": jnp.full(components, 1 / components, dtype),
            "probabilities": near / near.sum(axis=1, keepdims=True),
        }

    def joint(params: Tree, x: jax.Array) -> jax.Array:
        counts = samples(x, outcomes, params["weights"].dtype)
        return jnp.log(params["weights"]) + counts @ jnp.log(params["probabilities"]).T

    def losses(params: Tree, x: jax.Array, y: jax.Array) -> jax.Array:
        counts = samples(x, outcomes, params["weights"].dtype)
        ways = gammaln(counts.sum(axis=1) + 1) - gammaln(counts + 1).sum(axis=1)
        return negative_log(joint(params, x)) - ways

    def statistic(params: Tree, batch: Batch) -> Tree:
        dtype = params["weights"].dtype
        r = posterior(joint(params, batch.x)) * batch.shares.astype(dtype)[:, None]
        return {"shares": r.sum(axis=0), "counts": r.T @ batch.x.astype(dtype)}

    def minimize(s: Tree) -> Tree:
        shares, counts = s["shares"] + weight_smoothing, s["counts"] + smoothing
        return {"weights": shares / shares.sum(), "probabilities": counts / counts.sum(axis=1, keepdims=True)}

    def penalty(params: Tree) -> jax.Array:
        logs = jax.tree.map(lambda a: jnp.log(a).sum(), params)
        return -weight_smoothing * logs["weights"] - smoothing * logs["probabilities"]

    surrogate = LinearSurrogate(
        name="multinomial-mixture",
        init=init,
        statistic=statistic,
        minimize=minimize,
        losses=losses,
        project=lambda s: {
            "shares": jnp.maximum(s["shares"], least_share),
            "counts": jnp.maximum(s["counts"], least_count),
        },
        penalty=penalty,
        psi=lambda params: jnp.zeros((), params["weights"].dtype),
        phi=lambda params: {"shares": jnp.log(params["weights"]), "counts": jnp.log(params["probabilities"])},
        predict=lambda params, x: posterior(joint(params, x)),
        check=lambda x, y: check_counts(x),
    )
    return precise(surrogate)
