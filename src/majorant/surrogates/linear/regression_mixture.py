"""Mixtures of linear regressions by EM: y = β_kᵀ x + noise of variance v_k, with a hidden k.

::

    ℓ((x, y), θ) = −log Σ_k π_k N(y; β_kᵀ x, v_k),    v_k ≥ least_variance
    g(θ) = Σ_k (ρ / 2 v_k) ‖β_k‖²
    S̄((x, y), τ) = (r_k, r_k (x, y)(x, y)ᵀ)_k,  r_k = P(k | x, y, τ)
    ψ(θ) = 0,  φ(θ) = (log π_k − ½ log v_k, −(β_k, −1)(β_k, −1)ᵀ / 2 v_k)_k
    T(s):  π_k ∝ s_k,  β_k = (E r x xᵀ + ρ I)⁻¹ E r y x,  v_k = (E r (y − β_kᵀ x)² + ρ ‖β_k‖²) / s_k, at least the bound
    𝒮: s ≥ ε, the moment matrices of (x, y) at least ε I (0 in place of ε where there is a ridge)

The ridge is measured in units of the noise, as a normal prior N(0, v_k / (n ρ)) has it: T has a closed form. The bound
on the variances is a constraint on θ, and T is its exact minimiser. Without it the likelihood has no upper bound.
"""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp

from majorant.core import Key, Tree
from majorant.math.checks import check_range, check_whole
from majorant.math.linear_systems import solve_normal, squared_errors
from majorant.math.projections import positive_semidefinite
from majorant.math.symmetric import pack, unpack
from majorant.solvers import Batch
from majorant.surrogates.linear.latent import (
    as_tree,
    check_start,
    given,
    given_weights,
    located,
    negative_log,
    posterior,
    precise,
    samples,
)
from majorant.surrogates.linear.record import LinearSurrogate


def regression_mixture(
    features: int,
    components: int,
    *,
    ridge: float = 0.0,
    least_variance: float = 1e-6,
    intercept: bool = True,
    margin: float = 1e-9,
    center: Any = 0.0,
    target_center: float = 0.0,
    start: dict[str, Any] | None = None,
) -> LinearSurrogate:
    """A mixture of regressions of ``y`` on samples ``(n, features)``.

    Parameters are ``weights`` (K,), ``coefficients`` (K, p) and ``variances`` (K,); with an ``intercept`` a 1 follows
    every sample's features, and p is ``features + 1``. ``ridge`` is ρ, ``margin`` ε. Without a ``start`` weights are
    equal, variances 1, and coefficients drawn from N(0, I). ``predict`` gives the mean of y.

    Samples are taken around ``center``, (features,) or a number, and y around ``target_center``: x and y above are what
    is left, and an intercept is the mean of y − target_center at the center. In single precision both should be near
    the samples' means, where those are large compared to the deviations: T subtracts squares.

    >>> surrogate = regression_mixture(2, 3)
    >>> {name: a.shape for name, a in surrogate.init(jax.random.key(0)).items()}
    {'weights': (3,), 'coefficients': (3, 3), 'variances': (3,)}
    """
    check_whole("features", features)
    check_whole("components", components)
    check_range("ridge", ridge, least=0)
    check_range("least_variance", least_variance, above=0)
    check_range("margin", margin, above=0, below=1 / components)
    check_range("target_center", target_center)
    around = located("center", center, features)
    size = features + intercept
    first = None
    if start is not None:
        check_start(start, ("weights", "coefficients", "variances"))
        first = {
            "weights": given_weights("weights of the start", start["weights"], components),
            "coefficients": given("coefficients of the start", start["coefficients"], (components, size)),
            "variances": given("variances of the start", start["variances"], (components,)),
        }
        if not (first["variances"] >= least_variance).all():
            raise ValueError(
                f"variances of the start must be at least {least_variance:g}, got {first['variances'].min():g}"
            )
    least = 0.0 if ridge else margin

    def init(key: Key) -> Tree:
        if first is not None:
            return as_tree(first)
        dtype = jnp.result_type(float)
        return {
            "weights": jnp.full(components, 1 / components, dtype),
            "coefficients": jax.random.normal(key, (components, size), dtype),
            "variances": jnp.maximum(jnp.ones(components, dtype), least_variance),
        }

    def inputs(x: jax.Array, dtype: Any) -> jax.Array:
        plain = samples(x, features, dtype) - jnp.asarray(around, dtype)
        return jnp.concatenate([plain, jnp.ones((plain.shape[0], 1), dtype)], axis=1) if intercept else plain

    def joint(params: Tree, x: jax.Array, y: jax.Array) -> jax.Array:
        dtype = params["weights"].dtype
        residuals = (y.astype(dtype) - target_center)[:, None] - inputs(x, dtype) @ params["coefficients"].T
        spread = residuals**2 / params["variances"] + jnp.log(2 * math.pi * params["variances"])
        return jnp.log(params["weights"]) - spread / 2

    def predict(params: Tree, x: jax.Array) -> jax.Array:
        lines = inputs(x, params["weights"].dtype) @ params["coefficients"].T
        return lines @ params["weights"] + target_center

    def statistic(params: Tree, batch: Batch) -> Tree:
        dtype = params["weights"].dtype
        r = posterior(joint(params, batch.x, batch.y)) * batch.shares.astype(dtype)[:, None]
        pairs = jnp.concatenate([inputs(batch.x, dtype), (batch.y.astype(dtype) - target_center)[:, None]], axis=1)
        weighted = (r[:, :, None] * pairs[:, None, :]).reshape(pairs.shape[0], -1)
        matrices = (weighted.T @ pairs).reshape(components, size + 1, size + 1)
        return {"shares": r.sum(axis=0), "moments": pack(matrices)}

    def minimize(s: Tree) -> Tree:
        matrices = unpack(s["moments"])
        beta = solve_normal(matrices[:, :-1, :-1], matrices[:, :-1, -1], ridge, intercept=intercept)
        left = squared_errors(matrices, beta, ridge, intercept=intercept)
        shares = jnp.maximum(s["shares"], margin)
        return {
            "weights": shares / shares.sum(),
            "coefficients": beta,
            "variances": jnp.maximum(left / shares, least_variance),
        }

    def phi(params: Tree) -> Tree:
        ends = jnp.concatenate([params["coefficients"], -jnp.ones((components, 1), params["weights"].dtype)], axis=1)
        outer = ends[:, :, None] * ends[:, None, :]
        level = jnp.log(params["weights"]) - jnp.log(params["variances"]) / 2
        return {"shares": level, "moments": -pack(outer) / (2 * params["variances"][:, None])}

    def penalty(params: Tree) -> jax.Array:
        return (ridge / 2 * (params["coefficients"] ** 2).sum(axis=1) / params["variances"]).sum()

    surrogate = LinearSurrogate(
        name="regression-mixture",
        init=init,
        statistic=statistic,
        minimize=minimize,
        losses=lambda params, x, y: negative_log(joint(params, x, y)),
        project=lambda s: {
            "shares": jnp.maximum(s["shares"], margin),
            "moments": positive_semidefinite(s["moments"], least),
        },
        penalty=penalty,
        psi=lambda params: jnp.zeros((), params["weights"].dtype),
        phi=phi,
        predict=predict,
    )
    return precise(surrogate)
