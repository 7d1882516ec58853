"""The proximal surrogate: pFedMe as surrogate optimization.

The objective is the Moreau envelope F of a client's loss f, not the loss itself::

    F(ω) = min_θ f(θ) + (λ/2) ‖θ − ω‖²,        ∇F(ω) = λ (ω − θ),  θ = prox(ω) the minimiser
    g(ω) = f(θ⁰) + (λ/2) ‖θ⁰ − ω‖²,            θ⁰ = prox(ω⁰)

g ≥ F because F is a minimum over θ and g takes one of them; they touch at ω⁰. The minimiser of g is θ⁰: a gradient step
of length 1/λ on F. What a client deploys is θ = prox(ω) for the final ω, not ω.

Appendix F.3 prints ∇f_t(ω) = λ(θ − ω), and calls g a surrogate of f_t near θ; the sign is the opposite, and g does not
majorize f_t: at ω = θ⁰ it equals f_t(θ⁰) with slope 0, while f_t has the slope λ(ω⁰ − θ⁰).

The minimiser θ must be unique: f convex, or λ larger than its most negative curvature.

References: Dinh, Tran, Nguyen, *Personalized federated learning with Moreau envelopes*, NeurIPS 2020; Marfoq et al.,
NeurIPS 2021, Appendix F.3.
"""

from __future__ import annotations

import jax
import optax

from majorant.core import ClientData, Tree, squared_norm
from majorant.math.checks import check_range
from majorant.models.base import Model
from majorant.solvers import Batch
from majorant.solvers.descent import newton
from majorant.surrogates.partial import (
    Coefficients,
    PartialSurrogate,
    mean_loss,
    minimizer,
    without_statistics,
)

FEW = 200  # parameters for which Newton's method is the faster one


def proximal_surrogate(model: Model, *, lambda_: float) -> PartialSurrogate:
    """The surrogate of the Moreau envelope with weight ``lambda_``; the run's hyperparameter is called "lambda".

    >>> import majorant as mj
    >>> data = mj.data.synthetic_mixture(clients=2, dimension=2, seed=0)
    >>> surrogate = mj.surrogates.proximal_surrogate(mj.models.linear(data), lambda_=0.5)
    >>> run = mj.simulate(mj.surrogate_optimization(surrogate), data, rounds=2)
    >>> run.summary()["algorithm"]
    'surrogate:proximal'
    """
    check_range("lambda_", lambda_, above=0)
    return build(without_statistics(model), lambda_)._replace(
        hyper={"lambda": lambda_}, rebuild=lambda hyper: build(model, hyper["lambda"])
    )


def build(model: Model, lambda_: float | jax.Array) -> PartialSurrogate:
    """The surrogate, with a number that may be traced."""

    def loss(theta: Tree, data: ClientData) -> jax.Array:
        return mean_loss(model, theta, data)

    def pull(theta: Tree, omega: Tree) -> jax.Array:
        return lambda_ / 2 * squared_norm(optax.tree.sub(theta, omega))

    def prox(omega: Tree, data: ClientData) -> Tree:
        omega = jax.lax.stop_gradient(omega)
        pulled = lambda theta: loss(theta, data) + pull(theta, omega)
        few = sum(leaf.size for leaf in jax.tree.leaves(omega)) <= FEW
        return newton(pulled, omega, steps=50) if few else minimizer(pulled, omega)

    def objective(omega: Tree, v: Tree, data: ClientData) -> jax.Array:
        theta = prox(omega, data)  # held constant: by the envelope theorem the gradient in ω is that of the pull
        return loss(theta, data) + pull(theta, omega)

    def value(coefficients: Coefficients, omega: Tree, v: Tree, batch: Batch) -> jax.Array:
        theta = coefficients.shared
        return batch.mean(model.losses(theta, batch.x, batch.y)) + pull(theta, omega)

    return PartialSurrogate(
        name="proximal",
        init=model.init,
        objective=objective,
        majorize=lambda omega, v, data: Coefficients(shared=prox(omega, data)),
        value=value,
        predict=lambda omega, theta, x: model.predict(theta, x),
        minimize_u=lambda coefficients, v, data: coefficients.shared,
        adapt=lambda omega, v, data: prox(omega, data),
    )
