"""Dictionary learning as a variational surrogate: atoms θ (p, K) of which a few make up every sample.

    ℓ(z, θ) = min_h ½ ‖z − θ h‖² + λ ‖h‖₁ + (κ/2) ‖h‖²,        g(θ) = η ‖θ‖², or a constraint on the atoms, or both

With h = h(z, τ) the minimiser at τ, the same expression in θ lies above ℓ(z, ·) and touches it at τ. Without its
constants it is −⟨S̄, φ⟩ with::

    S̄(z, τ) = (h hᵀ, z hᵀ),    ψ = 0,    φ(θ) = (−½ θᵀθ, θ),    𝒮 = (positive semidefinite matrices) × R^{p×K}
    T(s):  θ (s₁ + 2ηI) = s₂,  or the minimiser of ½ tr(θ (s₁ + 2ηI) θᵀ) − ⟨s₂, θ⟩ over the constraint

MM with unit-norm atoms and one sample at a time is online dictionary learning (Mairal, Bach, Ponce, Sapiro, 2010).

Reference: Dieuleveut et al., 2025, Section 2.3, eq. (14)–(18), and (28). The squared loss there has the factor ½ in
(28) and not in (15)–(17); with it, φ is half of (15)'s and 2η stands in T. The matrix B(s) of A7 is singular (E.3), so
there is no metric: projections are Euclidean.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from majorant.core import Key
from majorant.math.checks import check_range, check_whole
from majorant.math.linear_systems import with_ridge
from majorant.math.projections import positive_semidefinite
from majorant.math.quadratic import EXACT, columns_in, solve_quadratic
from majorant.math.symmetric import pack, unpack
from majorant.solvers import Batch
from majorant.surrogates.linear.lasso import lasso_codes
from majorant.surrogates.linear.record import LinearSurrogate
from majorant.surrogates.regularizers import constraint as infinite_outside

CONSTRAINTS = (None, "unit-ball")


def dictionary_learning(
    features: int,
    atoms: int,
    *,
    sparsity: float,
    l2: float = 0.0,
    constraint: str | None = None,
    code_l2: float = 0.0,
    positive_codes: bool = False,
    positive_dictionary: bool = False,
    floor: float = 0.0,
    tolerance: float | None = None,
    iterations: int = 5000,
) -> LinearSurrogate:
    """Sparse codes (λ = ``sparsity``, κ = ``code_l2``) on atoms with g = ``l2`` · ‖θ‖², in the unit ball, or both.

    ``constraint="unit-ball"`` asks for ‖θ_k‖ ≤ 1; an atom that no sample uses is 0 then. ``positive_codes`` and
    ``positive_dictionary`` ask for h ≥ 0 and θ ≥ 0. Without a constraint ``l2`` must be positive, for T to be unique;
    in the unit ball, T is unique where the Gram matrix is regular or ``l2`` positive. Samples of several axes are
    taken as vectors. ``predict`` gives codes.

    ``floor`` > 0 projects onto Gram matrices with no eigenvalue below it: 𝒮 is then too small for statistics of codes
    that span fewer than K directions. ``tolerance`` and ``iterations`` are those of `lasso_codes` and of T where it has
    no formula.

    >>> surrogate = dictionary_learning(2, 1, sparsity=0.1, constraint="unit-ball")
    >>> surrogate.minimize({"gram": jnp.array([2.0]), "cross": jnp.array([[3.0], [4.0]])}).round(3)
    Array([[0.6],
           [0.8]], dtype=float32)
    """
    check_whole("features", features)
    check_whole("atoms", atoms)
    for name, value in {"sparsity": sparsity, "l2": l2, "code_l2": code_l2, "floor": floor}.items():
        check_range(name, value, least=0)
    if constraint not in CONSTRAINTS:
        raise ValueError(f"constraint must be None or 'unit-ball', got {constraint!r}")
    if constraint is None and l2 == 0:
        raise ValueError("without a constraint the dictionary needs l2 > 0: else it grows while the codes shrink to 0")
    ball, iterative = constraint == "unit-ball", constraint is not None or positive_dictionary
    inside = columns_in(ball=ball, positive=positive_dictionary)
    onto = lambda params, rho: inside(params, jnp.ones(()), jnp.ones((), params.dtype))
    outside = infinite_outside(onto)

    def init(key: Key) -> jax.Array:
        drawn = jax.random.normal(key, (features, atoms))
        drawn = jnp.abs(drawn) if positive_dictionary else drawn
        return drawn / jnp.linalg.norm(drawn, axis=0)

    def codes(params: jax.Array, x: jax.Array) -> jax.Array:
        return lasso_codes(
            params, x, sparsity, l2=code_l2, positive=positive_codes, tolerance=tolerance, iterations=iterations
        )

    def minimize(s: dict[str, jax.Array]) -> jax.Array:
        gram = unpack(s["gram"])
        if not iterative:
            return jnp.linalg.solve(with_ridge(gram, 2 * l2), s["cross"].T).T
        gram = gram + 2 * l2 * jnp.eye(atoms, dtype=gram.dtype)
        return solve_quadratic(
            gram, s["cross"], inside, rows_apart=not ball, tolerance=tolerance, iterations=iterations
        )

    def losses(params: jax.Array, x: jax.Array, y: jax.Array) -> jax.Array:
        x = as_vectors(x, features, params.dtype)
        h = codes(params, x)
        penalty = sparsity * jnp.abs(h).sum(axis=1) + code_l2 / 2 * (h**2).sum(axis=1)
        return ((x - jnp.matmul(h, params.T, precision=EXACT)) ** 2).sum(axis=1) / 2 + penalty

    def statistic(params: jax.Array, batch: Batch) -> dict[str, jax.Array]:
        x = as_vectors(batch.x, features, params.dtype)
        return gram_and_cross(x, codes(params, x), batch.shares)

    def penalty(params: jax.Array) -> jax.Array:
        return l2 * (params**2).sum() + (outside(params) if iterative else 0)

    return LinearSurrogate(
        name="dictionary",
        init=init,
        statistic=statistic,
        minimize=minimize,
        losses=losses,
        project=lambda s: s | {"gram": positive_semidefinite(s["gram"], floor)},
        penalty=penalty,
        psi=lambda params: jnp.zeros((), params.dtype),
        phi=lambda params: {"gram": -pack(jnp.matmul(params.T, params, precision=EXACT)) / 2, "cross": params},
        predict=lambda params, x: codes(params, as_vectors(x, features, params.dtype)),
    )


def as_vectors(x: jax.Array, features: int, dtype: jnp.dtype) -> jax.Array:
    """Samples as rows of the given type; refused where they have another number of features."""
    flat = x.reshape(x.shape[0], -1)
    if flat.shape[1] != features:
        raise ValueError(f"samples of shape {x.shape[1:]} have {flat.shape[1]} features, the surrogate has {features}")
    return flat.astype(dtype)


def gram_and_cross(x: jax.Array, codes: jax.Array, shares: jax.Array) -> dict[str, jax.Array]:
    """The weighted sums of h hᵀ, packed, and of z hᵀ."""
    weighted = codes * shares.astype(codes.dtype)[:, None]
    product = lambda a, b: jnp.matmul(a.T, b, precision=EXACT)
    return {"gram": pack(product(weighted, codes)), "cross": product(x, weighted)}
