"""Quadratic bounds on the logistic loss: two-class logistic regression by a sequence of linear systems.

u = (w, b), z_i = wᵀx_i + b, and l(z; y) = log(1 + exp(−z)) for label 1, log(1 + exp z) for label 0::

    f(u) = (1/n_t) Σ_i l(z_i; y_i) + (l2/2) ‖w‖²
    g(u) = (1/n_t) Σ_i [ l(z⁰_i) + l'(z⁰_i) (z_i − z⁰_i) + (a_i/2) (z_i − z⁰_i)² ] + (l2/2) ‖w‖²

The two bounds differ in the curvature a_i of a sample's parabola:

    "bohning"    a_i = 1/4                            the largest that l has
    "jaakkola"   a_i = tanh(ξ_i/2) / (2ξ_i), ξ_i = |z⁰_i|    at most 1/4, and 1/4 at ξ = 0

Jaakkola's is the tangent in z² of the part of l that is concave in z², hence touches at −z⁰ as well; it is the tightest
parabola. The minimiser solves (X̃ᵀ A X̃ / n_t + l2 I_w) (u − u⁰) = −∇f(u⁰), where X̃ has a last column of ones for b.

Averaging clients' minimisers is not minimising the average of their bounds, unless the matrices are equal: between
different clients surrogate optimization with exact solves has a bias, as FedAvg with long local training has.

References: Böhning, Lindsay, *Monotonicity of quadratic-approximation algorithms*, AISM 1988; Jaakkola, Jordan,
*Bayesian parameter estimation via variational methods*, Statistics and Computing 2000.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from majorant.core import ClientData, Tree, squared_norm
from majorant.math.checks import check_range
from majorant.models.base import HasSpec, Model, Spec, as_float, spec_of
from majorant.models.builtin import linear
from majorant.solvers import Batch
from majorant.surrogates.partial import Coefficients, PartialSurrogate, mean_loss


def logistic_bound(problem: HasSpec | Spec, *, kind: str = "jaakkola", l2: float = 1e-3) -> PartialSurrogate:
    """A bound on two-class logistic regression, ``kind`` "jaakkola" or "bohning"; u is `models.linear`'s parameters.

    >>> import majorant as mj
    >>> data = mj.data.synthetic_mixture(clients=3, dimension=2, seed=0)
    >>> mj.surrogates.check_surrogate(mj.surrogates.logistic_bound(data), data).ok
    True
    """
    if kind not in CURVATURES:
        raise ValueError(f"kind must be one of {', '.join(CURVATURES)}, got {kind!r}")
    if spec_of(problem).classes != 2:
        raise ValueError(f"logistic bounds are for two classes; this problem has {spec_of(problem).classes}")
    check_range("l2", l2, above=0)
    model = linear(problem)
    return build(model, kind, l2)._replace(hyper={"l2": l2}, rebuild=lambda hyper: build(model, kind, hyper["l2"]))


def jaakkola(z: jax.Array) -> jax.Array:
    """tanh(|z|/2) / (2|z|), which tends to 1/4 at 0."""
    small = jnp.abs(z) < 1e-3  # where the next term of the series, z⁴/480, is rounding error
    safe = jnp.where(small, 1, z)
    return jnp.where(small, 0.25 - z**2 / 48, jnp.tanh(safe / 2) / (2 * safe))


CURVATURES = {"jaakkola": jaakkola, "bohning": lambda z: jnp.full_like(z, 0.25)}


def build(model: Model, kind: str, l2: float | jax.Array) -> PartialSurrogate:
    """The surrogate, with a number that may be traced."""

    def ridge(u: Tree) -> jax.Array:
        return l2 / 2 * squared_norm(u[0]["weight"])

    def objective(u: Tree, v: Tree, data: ClientData) -> jax.Array:
        return mean_loss(model, u, data) + ridge(u)

    def majorize(u: Tree, v: Tree, data: ClientData) -> Coefficients:
        z = model.apply(u, data.x)[:, 0]
        height = model.losses(u, data.x, data.y)
        slope = jax.nn.sigmoid(z) - (data.y > 0)
        return Coefficients((z, height, slope, CURVATURES[kind](z)), shared=u)

    def value(coefficients: Coefficients, u: Tree, v: Tree, batch: Batch) -> jax.Array:
        z, height, slope, curvature = coefficients.sample
        gap = model.apply(u, batch.x)[:, 0] - z
        return batch.mean(height + slope * gap + curvature / 2 * gap**2) + ridge(u)

    def minimize_u(coefficients: Coefficients, v: Tree, data: ClientData) -> Tree:
        (_, _, slope, curvature), u = coefficients
        w, b = u[0]["weight"][:, 0], u[0]["bias"]
        x = jnp.concatenate([as_float(data.x).reshape(len(data.y), -1), jnp.ones((len(data.y), 1), w.dtype)], axis=1)
        x = jnp.where(data.mask[:, None], x, 0)
        n = jnp.maximum(data.size, 1)
        penalty = l2 * jnp.ones_like(jnp.append(w, b)).at[-1].set(0)
        gradient = slope @ x / n + penalty * jnp.append(w, b)
        hessian = (x.T * curvature) @ x / n + jnp.diag(penalty)
        step = jnp.linalg.solve(hessian, -gradient)
        return [{"weight": (w + step[:-1])[:, None], "bias": b + step[-1:]}]

    return PartialSurrogate(
        name=kind,
        init=model.init,
        objective=objective,
        majorize=majorize,
        value=value,
        predict=lambda u, v, x: model.predict(u, x),
        minimize_u=minimize_u,
    )
