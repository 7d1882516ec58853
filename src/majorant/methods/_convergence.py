"""How far a method is from a stationary point, in the quantities that the FedEM paper's theorems bound.

For FedEM's f(Θ, Π), with π_t⁺ the weights after one E-step and M-step at the current point (Theorems 3.2 and H.1)::

    gradient_squared = ‖∇_Θ f(Θ, Π)‖²
    v_gain           = f(Θ, Π) − f(Θ, Π⁺)
    v_distance       = Σ_t (n_t/n) KL(π_t⁺ ‖ π_t)

and for one shared model f(θ) = Σ_t (n_t/n) f_t(θ) the first alone. Personal models that a penalty draws to a shared one
report what they minimise together. A probe measures how exactly a client solves its
local problem: the α of Assumption 9, from the round that it would play next.
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp

from majorant.core import ClientData, Diagnostics, Key, Server, Tree, View, masked_mean, squared_norm
from majorant.models.base import Model
from majorant.solvers.descent import inexactness
from majorant.surrogates.partial import mean_loss, sample_losses


def of_shared_model(model: Model, update: Callable, penalty: Callable[[Tree, View], jax.Array] | None) -> Diagnostics:
    """For methods that minimise the clients' mean loss over one model."""

    def measure(view: View, client: Tree, data: ClientData, key: Key) -> dict[str, Tree]:
        objective, gradient = jax.value_and_grad(mean_loss, argnums=1)(model, view.value, data)
        return {"objective": objective, "gradient": gradient}

    def probe(view: View, client: Tree, data: ClientData, key: Key) -> dict[str, jax.Array]:
        added = (lambda theta: penalty(theta, view)) if penalty else lambda theta: 0
        found = update(view, client, data, key)[0].value
        return {"alpha": inexactness(lambda theta: mean_loss(model, theta, data) + added(theta), view.value, found)}

    return Diagnostics(None, measure, conclude, probe)


def of_personal_models(
    model: Model, penalty: Callable[[Tree, View], jax.Array], weight: Callable[[ClientData], jax.Array]
) -> Diagnostics:
    """For methods whose clients minimise f_t(θ_t) + penalty(θ_t, view): the mean of that, with ``client.theta``."""

    def measure(view: View, client: Tree, data: ClientData, key: Key) -> dict[str, Tree]:
        return {"objective": mean_loss(model, client.theta, data) + penalty(client.theta, view)}

    return Diagnostics(measure=measure, weight=weight)


def of_mixture(model: Model, e_step: Callable, update: Callable, of: Callable, weights: Callable) -> Diagnostics:
    """For FedEM: ``e_step(theta, pi, data)`` gives responsibilities (M, n) and negative log-likelihoods (n,).

    ``of(value)`` is the components of a view's value, ``weights(view, pi)`` a client's weights on those that are left.
    """

    def likelihood(theta: Tree, pi: jax.Array, data: ClientData) -> tuple[jax.Array, jax.Array]:
        q, losses = e_step(theta, pi, data)
        return masked_mean(losses, data), q

    def measure(view: View, client: Tree, data: ClientData, key: Key) -> dict[str, Tree]:
        theta, pi = of(view.value), weights(view, client.pi)
        (objective, q), gradient = jax.value_and_grad(likelihood, has_aux=True)(theta, pi, data)
        after = jnp.where(data.size > 0, masked_mean(q.T, data), pi)
        return {
            "objective": objective,
            "gradient": gradient,
            "v_gain": objective - likelihood(theta, after, data)[0],
            "v_distance": jax.scipy.special.kl_div(after, pi).sum(),
        }

    def probe(view: View, client: Tree, data: ClientData, key: Key) -> dict[str, jax.Array]:
        theta = of(view.value)
        q, _ = e_step(theta, weights(view, client.pi), data)

        def surrogate(theta: Tree) -> jax.Array:
            losses = jax.vmap(lambda theta_m: sample_losses(model, theta_m, data))(theta)  # (M, n)
            return masked_mean((q * losses).sum(axis=0), data)

        found = of(update(view, client, data, key)[0].value)
        return {"alpha": inexactness(surrogate, theta, found)}

    return Diagnostics(None, measure, conclude, probe)


def conclude(server: Server, mean: dict[str, Tree]) -> dict[str, jax.Array]:
    """The squared norm of the mean gradient; the other numbers are means already."""
    rest = {name: value for name, value in mean.items() if name != "gradient"}
    return {"gradient_squared": squared_norm(mean["gradient"])} | rest
