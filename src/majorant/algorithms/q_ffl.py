"""q-FFL: a fair model, by an objective in which agents with larger losses count more.

It minimises Σ_t (n_t/n) F_t(θ)^{q+1} / (q + 1), by q-FedAvg. Client t trains from the broadcast θ to θ_t, and with
L = 1/η sends::

    Δ_t = F_t^q · L (θ − θ_t),        h_t = q F_t^{q−1} ‖L (θ − θ_t)‖² + L F_t^q,        F_t = F_t(θ)

and the server takes θ ← θ − Σ_t n_t Δ_t / Σ_t n_t h_t. With q = 0 it is FedAvg; a large q nears the worst agent's loss.
The paper draws clients in proportion to n_t and sums without weights; here the sums have the weights. Powers F_t^q that
are beyond numbers (10^±38 in single precision) cannot be sent: such an agent is rejected, or does not move the model.

Reference: Li, Sanjabi, Beirami, Smith, *Fair resource allocation in federated learning*, ICLR 2020, Algorithm 2.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from majorant.algorithms.fed_avg import shared_model
from majorant.core import (
    Algorithm,
    ClientData,
    Diagnosis,
    Key,
    Server,
    Total,
    Tree,
    Upload,
    View,
    masked_mean,
    squared_norm,
)
from majorant.models.base import Model
from majorant.solvers import Solver, as_hyper, check_range, local_sgd
from majorant.surrogates.partial import sample_losses

LEAST_LOSS = 1e-10  # powers of the loss stay finite


class Sent(NamedTuple):
    """What a client uploads."""

    delta: Tree
    h: jax.Array


def q_ffl(model: Model, *, q: float = 1.0, local: Solver | None = None, lipschitz: float | None = None) -> Algorithm:
    """q-fair federated learning; ``lipschitz`` is L, by default 1 over the local learning rate.

    >>> import majorant as mj
    >>> data = mj.data.synthetic_mixture(clients=5, dimension=4, seed=0)
    >>> run = mj.simulate(mj.q_ffl(mj.models.linear(data), q=1.0), data, rounds=3, grid={"q": [0.0, 1.0, 5.0]})
    >>> len(run)
    3
    """
    check_hyper({"q": q} | ({} if lipschitz is None else {"lipschitz": lipschitz}))
    local = local or local_sgd()
    if lipschitz is None and "lr" not in local.hyper:
        raise ValueError("give lipschitz, about 1 over the local learning rate: this local solver does not tell it")
    hyper = local.hyper | {"q": q} | ({} if lipschitz is None else {"lipschitz": lipschitz})

    def client_update(view: View, moments: Tree, data: ClientData, key: Key) -> tuple[Upload, Tree]:
        theta, q = view.value, view.hyper["q"]
        steep = 1 / view.hyper["lr"] if lipschitz is None else view.hyper["lipschitz"]
        loss = jnp.maximum(masked_mean(sample_losses(model, theta, data), data), LEAST_LOSS)
        solved = local.solve(model, view, theta, moments, data, key)
        pseudo = jax.tree.map(lambda old, new: steep * (old - new), theta, solved.params)
        h = q * loss ** (q - 1) * squared_norm(pseudo) + steep * loss**q
        sent = Sent(jax.tree.map(lambda p: (loss**q * p).astype(p.dtype), pseudo), h)
        return Upload(sent, data.size.astype(h.dtype), {"loss": loss}), solved.moments

    def server_update(server: Server, total: Total) -> Server:
        delta, h = total.value
        step = lambda v, d: v - (d / jnp.where(h > 0, h, 1)).astype(v.dtype)
        return server._replace(value=jax.tree.map(step, server.value, delta))

    def measure(view: View, client: Tree, data: ClientData, key: Key) -> dict[str, Tree]:
        def objective(theta: Tree) -> jax.Array:
            loss = masked_mean(sample_losses(model, theta, data), data)
            return jnp.maximum(loss, LEAST_LOSS) ** (view.hyper["q"] + 1) / (view.hyper["q"] + 1)

        value, gradient = jax.value_and_grad(objective)(view.value)
        return {"objective": value, "gradient": gradient}

    def conclude(server: Server, mean: dict[str, Tree]) -> dict[str, jax.Array]:
        return {"objective": mean["objective"], "gradient_squared": squared_norm(mean["gradient"])}

    nothing = lambda view: Sent(jax.tree.map(jnp.zeros_like, view.value), jnp.zeros((), jnp.result_type(float)))
    return shared_model("q-ffl", model, local)._replace(
        init=lambda key: Server(model.init(key), as_hyper(hyper)),
        client_update=client_update,
        origin=nothing,
        server_update=server_update,
        diagnosis=Diagnosis(measure, conclude),
        sends_points=False,
        check_hyper=check_hyper,
    )


def check_hyper(hyper: dict[str, float]) -> None:
    """q may be 0, L not."""
    if "q" in hyper:
        check_range("q", hyper["q"], least=0)
    if "lipschitz" in hyper:
        check_range("lipschitz", hyper["lipschitz"], above=0)
