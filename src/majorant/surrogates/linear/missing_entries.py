"""Matrix factorization where entries are missing, such as ratings: a row's entry is there or it is not.

With m_j = 1 where entry j of a row z was observed, else 0, factors θ (p, K) with rows θ_j, and h = h(z, m, θ) exact::

    ℓ(z, θ) = min_h ½ Σ_j m_j (z_j − θ_jᵀh)² + (λ/2) ‖h‖²,        g(θ) = η ‖θ‖²

The sum over entries is divided by nothing: rows with more entries count for more. Two majorants, with h taken at τ:

*per item*: ℓ at fixed h. Every item has a least-squares problem of its own::

    S̄ = (m_j h hᵀ, m_j z_j h)_j,    φ(θ) = (−½ θ_jθ_jᵀ, θ_j)_j,    T(s): (s₁ⱼ + 2ηI) θ_j = s₂ⱼ

*imputation*: complete the row with what τ predicts, ẑ = m z + (1 − m) τh. Then ½ ‖ẑ − θh‖² is ½ Σ m_j (z_j − θ_jᵀh)²
plus ½ Σ (1 − m_j) (τ_jᵀh − θ_jᵀh)² ≥ 0, which vanishes at τ: a looser majorant, described by a single K × K matrix::

    S̄ = (h hᵀ, ẑ hᵀ),    φ(θ) = (−½ θᵀθ, θ),    T(s): θ (s₁ + 2ηI) = s₂

Both touch ℓ(z, ·) at τ with the same slope, so that MM has the same fixed points. Per item it needs fewer steps, and
sends p (K + 1) K / 2 numbers where imputation sends K (K + 1) / 2, besides p K in both.

Reference: Dieuleveut et al., 2025, Section 4 (matrix factorization); the paper does not say how it treats missing
ratings. Imputation is that of Hastie, Mazumder, Lee and Zadeh, 2015 (softImpute-ALS).
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from majorant.core import Key
from majorant.core.compilation import jit
from majorant.math.checks import check_range, check_whole
from majorant.math.linear_systems import with_ridge
from majorant.math.projections import positive_semidefinite
from majorant.math.quadratic import EXACT
from majorant.math.symmetric import pack, unpack
from majorant.solvers import Batch
from majorant.surrogates.linear.dictionary import gram_and_cross
from majorant.surrogates.linear.record import LinearSurrogate
from majorant.surrogates.linear.validation import check_entries

KINDS = ("per-item", "imputation")


def matrix_factorization(
    features: int, rank: int, *, code_l2: float, l2: float, kind: str = "per-item"
) -> LinearSurrogate:
    """Factors of rows with missing entries; λ = ``code_l2``, η = ``l2``. ``predict`` gives complete rows (n, p).

    Samples have shape (2, p): the values and which were observed, as `majorant.data.with_missing` makes them.

    >>> import numpy as np
    >>> import majorant as mj
    >>> ratings = mj.data.with_missing(np.array([[5, np.nan, 1], [4, 2, np.nan], [np.nan, 2, 1], [5, 3, 1]]))
    >>> surrogate = matrix_factorization(3, 1, code_l2=0.1, l2=0.1)
    >>> surrogate.predict(jnp.array([[2.0], [1.0], [0.5]]), ratings[:1]).round()
    Array([[5., 2., 1.]], dtype=float32)
    """
    check_whole("features", features)
    check_whole("rank", rank)
    check_range("code_l2", code_l2, above=0)
    check_range("l2", l2, above=0)
    if kind not in KINDS:
        raise ValueError(f"kind must be one of {', '.join(map(repr, KINDS))}, got {kind!r}")
    times = lambda a, b: jnp.matmul(a, b, precision=EXACT)
    outer = lambda a: pack(a[..., :, None] * a[..., None, :])

    @jit
    def codes(params: jax.Array, z: jax.Array, seen: jax.Array) -> jax.Array:
        params = jax.lax.stop_gradient(params)
        gram = unpack(times(seen, outer(params)))  # (n, K, K)
        right = times(seen * z, params)
        return jnp.linalg.solve(with_ridge(gram, code_l2), right[..., None])[..., 0]

    def losses(params: jax.Array, x: jax.Array, y: jax.Array) -> jax.Array:
        z, seen = entries(x, features, params.dtype)
        h = codes(params, z, seen)
        return (seen * (z - times(h, params.T)) ** 2).sum(axis=1) / 2 + code_l2 / 2 * (h**2).sum(axis=1)

    def statistic(params: jax.Array, batch: Batch) -> dict[str, jax.Array]:
        z, seen = entries(batch.x, features, params.dtype)
        h = codes(params, z, seen)
        if kind == "imputation":
            return gram_and_cross(seen * z + (1 - seen) * times(h, params.T), h, batch.shares)
        share = batch.shares.astype(h.dtype)[:, None]
        return {"gram": times(seen.T, share * outer(h)), "cross": times((seen * z).T, share * h)}

    def minimize(s: dict[str, jax.Array]) -> jax.Array:
        gram = with_ridge(unpack(s["gram"]), 2 * l2)
        if kind == "imputation":
            return jnp.linalg.solve(gram, s["cross"].T).T
        return jnp.linalg.solve(gram, s["cross"][..., None])[..., 0]

    def phi(params: jax.Array) -> dict[str, jax.Array]:
        gram = pack(times(params.T, params)) if kind == "imputation" else outer(params)
        return {"gram": -gram / 2, "cross": params}

    def init(key: Key) -> jax.Array:
        return jax.random.normal(key, (features, rank)) / rank**0.5

    def predict(params: jax.Array, x: jax.Array) -> jax.Array:
        return times(codes(params, *entries(x, features, params.dtype)), params.T)

    return LinearSurrogate(
        name=f"matrix-factorization, {kind}",
        init=init,
        statistic=statistic,
        minimize=minimize,
        losses=losses,
        project=lambda s: s | {"gram": positive_semidefinite(s["gram"])},
        penalty=lambda params: l2 * (params**2).sum(),
        psi=lambda params: jnp.zeros((), params.dtype),
        phi=phi,
        predict=predict,
        check=lambda x, y: check_entries(x, features),
    )


def entries(x: jax.Array, features: int, dtype: jnp.dtype) -> tuple[jax.Array, jax.Array]:
    """The values and the mask of samples (n, 2, p)."""
    if x.shape[1:] != (2, features):
        raise ValueError(
            f"samples have shape {x.shape[1:]}, the surrogate needs (2, {features}): values and which were observed;"
            " majorant.data.with_missing makes them from a matrix"
        )
    return x[:, 0].astype(dtype), x[:, 1].astype(dtype)
