"""Huber regression as a variational surrogate: least squares in which outliers weigh less.

    ℓ((x, y), θ) = r²/2 where |r| ≤ δ, else δ |r| − δ²/2        with r = y − θᵀx,        g(θ) = η ‖θ‖²
                 = min over 0 < h ≤ 1 of  ½ h r² + ½ δ² (1/h − 1),        at h = δ / max(|r|, δ)

At the h of τ the bracket is a majorant, quadratic in θ::

    S̄ = (h x xᵀ, h y x),    ψ = 0,    φ(θ) = (−½ θθᵀ, θ),    T(s): (s₁ + 2ηI) θ = s₂,    𝒮 = (PSD matrices) × R^d

MM with it is iteratively reweighted least squares.

Reference: Mairal, *Incremental majorization-minimization optimization with application to large-scale machine
learning*, 2015, Section 2.3.4; Dieuleveut et al., 2025, Section 2.3.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from majorant.core import Key, Tree
from majorant.math.checks import check_range, check_whole
from majorant.math.linear_systems import solve_normal
from majorant.math.projections import positive_semidefinite
from majorant.math.quadratic import EXACT
from majorant.math.symmetric import pack, unpack
from majorant.solvers import Batch
from majorant.surrogates.linear.dictionary import as_vectors
from majorant.surrogates.linear.latent import located
from majorant.surrogates.linear.record import LinearSurrogate

INTERCEPT_L2 = 1e-8  # T exists for every statistic; of no consequence for the intercept


def huber_regression(
    features: int,
    *,
    delta: float = 1.35,
    l2: float = 1e-4,
    intercept: bool = True,
    center: Any = 0.0,
    target_center: float = 0.0,
) -> LinearSurrogate:
    """A linear model for targets with outliers; errors above ``delta`` count in proportion, not squared.

    Parameters are ``{"weights": (d,), "bias": ()}``, without the bias where ``intercept`` is False. The penalty
    ``l2`` · ‖w‖² leaves the intercept out, but for a factor of 10⁻⁸. ``predict`` gives targets.

    Samples are taken around ``center``, (d,) or a number, and targets around ``target_center``: predictions are
    target_center + wᵀ(x − center) + bias. In single precision both should be near the samples' means, where those are
    large compared to the deviations from them.

    >>> surrogate = huber_regression(1, delta=1.0, intercept=False)
    >>> surrogate.losses({"weights": jnp.array([2.0])}, jnp.array([[1.0], [1.0]]), jnp.array([1.5, 5.0]))
    Array([0.125, 2.5  ], dtype=float32)
    """
    check_whole("features", features)
    check_range("delta", delta, above=0)
    check_range("l2", l2, above=0)
    check_range("target_center", target_center)
    around = located("center", center, features)
    ridge = np.array([l2] * features + [INTERCEPT_L2] * intercept)

    def design(x: jax.Array, dtype: jnp.dtype) -> jax.Array:
        x = as_vectors(x, features, dtype) - jnp.asarray(around, dtype)
        return jnp.concatenate([x, jnp.ones((x.shape[0], 1), dtype)], axis=1) if intercept else x

    def joined(params: Tree) -> jax.Array:
        return jnp.append(params["weights"], params["bias"]) if intercept else params["weights"]

    def parted(theta: jax.Array) -> Tree:
        return {"weights": theta[:features]} | ({"bias": theta[features]} if intercept else {})

    def init(key: Key) -> Tree:
        return parted(jnp.zeros(features + intercept))

    def centred(params: Tree, x: jax.Array) -> jax.Array:
        return jnp.matmul(design(x, params["weights"].dtype), joined(params), precision=EXACT)

    def losses(params: Tree, x: jax.Array, y: jax.Array) -> jax.Array:
        size = jnp.abs(y - target_center - centred(params, x))
        inner = jnp.minimum(size, delta)
        return inner**2 / 2 + delta * (size - inner)

    def statistic(params: Tree, batch: Batch) -> dict[str, jax.Array]:
        rows = design(batch.x, params["weights"].dtype)
        y = batch.y.astype(rows.dtype) - target_center
        size = jnp.abs(y - centred(params, batch.x))
        weighted = rows * (batch.shares.astype(rows.dtype) * delta / jnp.maximum(size, delta))[:, None]
        return {
            "gram": pack(jnp.matmul(weighted.T, rows, precision=EXACT)),
            "cross": jnp.matmul(weighted.T, y, precision=EXACT),
        }

    def minimize(s: dict[str, jax.Array]) -> Tree:
        gram = unpack(s["gram"])
        return parted(solve_normal(gram, s["cross"], (2 * ridge).astype(gram.dtype), intercept=intercept))

    def phi(params: Tree) -> dict[str, jax.Array]:
        theta = joined(params)
        return {"gram": -pack(jnp.outer(theta, theta)) / 2, "cross": theta}

    return LinearSurrogate(
        name="huber",
        init=init,
        statistic=statistic,
        minimize=minimize,
        losses=losses,
        project=lambda s: s | {"gram": positive_semidefinite(s["gram"])},
        penalty=lambda params: (ridge.astype(params["weights"].dtype) * joined(params) ** 2).sum(),
        psi=lambda params: jnp.zeros(()),
        phi=phi,
        predict=lambda params, x: centred(params, x) + target_center,
    )
