"""The quadratic surrogate as a statistic: (proximal) gradient descent on any smooth loss.

With ρ ≤ 1/L, L the smoothness of f::

    S̄(z, τ) = τ − ρ ∇ℓ(z, τ),    ψ(θ) = ‖θ‖² / (2ρ),    φ(θ) = θ/ρ,    T(s) = prox of ρ g at s,    𝒮 = everything

MM with it is proximal gradient descent. Averages of statistics are gradient steps on the average loss *before* the
proximal operator: sparsity is not lost in the average, as it is when clients' sparse models are averaged.

A7 holds with B = I/ρ where g = 0, and then C⋆ = 0 and C⋆⋆ = 1/ρ; for g ≠ 0 the C⋆ = ρ⁻² of the paper's E.1 is wrong.

Reference: Dieuleveut et al., 2025, Example 1 and Appendices A.1, E.1.
"""

from __future__ import annotations

import jax
import optax

from majorant.core import Tree, squared_norm
from majorant.math.checks import check_range
from majorant.models.base import Model
from majorant.solvers import Batch
from majorant.surrogates.linear.record import LinearSurrogate
from majorant.surrogates.partial import without_statistics
from majorant.surrogates.regularizers import Regularizer, nothing


def proximal_gradient(model: Model, *, rho: float, regularizer: Regularizer | None = None) -> LinearSurrogate:
    """Gradient steps of length ``rho`` (at most 1/L) on a model's mean loss, and a regularizer's proximal operator.

    >>> import majorant as mj
    >>> data = mj.data.synthetic_mixture(clients=3, dimension=2, seed=0)
    >>> surrogate = proximal_gradient(mj.models.linear(data), rho=0.25)
    >>> mj.surrogates.check_surrogate(surrogate, data).ok
    True
    """
    check_range("rho", rho, above=0)
    g = nothing() if regularizer is None else regularizer
    model = without_statistics(model)

    def statistic(params: Tree, batch: Batch) -> Tree:
        loss = lambda params: batch.mean(model.losses(params, batch.x, batch.y))
        share = batch.shares.sum()
        return jax.tree.map(lambda a, d: share.astype(a.dtype) * a - rho * d, params, jax.grad(loss)(params))

    return LinearSurrogate(
        name="proximal-gradient" if regularizer else "gradient",
        init=model.init,
        statistic=statistic,
        minimize=lambda s: g.prox(s, rho),
        losses=model.losses,
        penalty=g.value,
        psi=lambda params: squared_norm(params) / (2 * rho),
        phi=lambda params: optax.tree.scale(1 / rho, params),
        metric=lambda s, direction: optax.tree.scale(1 / rho, direction),
        predict=model.predict,
    )
