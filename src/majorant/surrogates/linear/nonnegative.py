"""Non-negative matrix factorization: parts θ ≥ 0 that add up, with weights h ≥ 0, to every sample.

    ℓ(z, θ) = min_{h ≥ 0} ½ ‖z − θ h‖² + λ Σ_k h_k + (κ/2) ‖h‖²,        g(θ) = η ‖θ‖² and θ ≥ 0

κ > 0 makes the weights unique, η > 0 the parts; both may be small. Statistics, ψ and φ are those of `dictionary`; T is
a non-negative least-squares problem for each feature.

Reference: Dieuleveut et al., 2025, Sections 2.3 and 4; Lee and Seung, 1999.
"""

from __future__ import annotations

from majorant.math.checks import check_range
from majorant.surrogates.linear.dictionary import dictionary_learning
from majorant.surrogates.linear.record import LinearSurrogate


def nonnegative_factorization(
    features: int,
    atoms: int,
    *,
    l2: float = 1e-3,
    code_l2: float = 1e-3,
    sparsity: float = 0.0,
    tolerance: float | None = None,
    iterations: int = 5000,
) -> LinearSurrogate:
    """Factors without negative numbers; η = ``l2``, κ = ``code_l2``, λ = ``sparsity``. ``predict`` gives weights.

    >>> import jax
    >>> surrogate = nonnegative_factorization(5, 2)
    >>> bool((surrogate.init(jax.random.key(0)) >= 0).all())
    True
    """
    check_range("code_l2", code_l2, above=0)
    check_range("l2", l2, above=0)
    surrogate = dictionary_learning(
        features,
        atoms,
        sparsity=sparsity,
        l2=l2,
        code_l2=code_l2,
        positive_codes=True,
        positive_dictionary=True,
        tolerance=tolerance,
        iterations=iterations,
    )
    return surrogate._replace(name="nonnegative")
