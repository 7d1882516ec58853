"""The quadratic surrogate: a parabola that touches a smooth loss from above; its lowest point is a gradient step.

    g(u) = f(u⁰) + ⟨∇f(u⁰), u − u⁰⟩ + (L/2) ‖u − u⁰‖²,        argmin g = u⁰ − ∇f(u⁰) / L

It majorizes f when L is at least the smoothness of f, and has no personal part. All clients have the same L, so the
mean of their minimisers is the minimiser of the mean: surrogate optimization with it is gradient descent on f.

Reference: Mairal, *Optimization with first-order surrogate functions*, ICML 2013, Section 2.
"""

from __future__ import annotations

import jax
import optax

from majorant.core import ClientData, Tree, squared_norm
from majorant.math.checks import check_range
from majorant.models.base import Model
from majorant.solvers import Batch
from majorant.surrogates.partial import Coefficients, PartialSurrogate, mean_loss, without_statistics


def quadratic_surrogate(model: Model, *, smoothness: float) -> PartialSurrogate:
    """A parabola of curvature ``smoothness`` on every client's mean loss.

    >>> import majorant as mj
    >>> data = mj.data.synthetic_mixture(clients=3, dimension=2, seed=0)
    >>> surrogate = mj.surrogates.quadratic_surrogate(mj.models.linear(data), smoothness=4.0)
    >>> mj.surrogates.check_surrogate(surrogate, data).ok
    True
    """
    check_range("smoothness", smoothness, above=0)
    return build(without_statistics(model), smoothness)._replace(
        hyper={"smoothness": smoothness}, rebuild=lambda hyper: build(model, hyper["smoothness"])
    )


def build(model: Model, smoothness: float | jax.Array) -> PartialSurrogate:
    """The surrogate, with a number that may be traced."""

    def objective(u: Tree, v: Tree, data: ClientData) -> jax.Array:
        return mean_loss(model, u, data)

    def value(coefficients: Coefficients, u: Tree, v: Tree, batch: Batch) -> jax.Array:
        origin = coefficients.shared
        gap = optax.tree.sub(u, origin)
        loss = lambda params: batch.mean(model.losses(params, batch.x, batch.y))
        height, rise = jax.jvp(loss, (origin,), (gap,))
        return height + rise + smoothness / 2 * squared_norm(gap)

    def minimize_u(coefficients: Coefficients, v: Tree, data: ClientData) -> Tree:
        origin = coefficients.shared
        gradient = jax.grad(objective)(origin, v, data)
        return jax.tree.map(lambda u, g: u - g / smoothness, origin, gradient)

    return PartialSurrogate(
        name="quadratic",
        init=model.init,
        objective=objective,
        majorize=lambda u, v, data: Coefficients(shared=u),
        value=value,
        predict=lambda u, v, x: model.predict(u, x),
        minimize_u=minimize_u,
    )
