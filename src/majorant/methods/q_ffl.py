"""q-FFL: a fair model, by an objective in which agents with larger losses count more.

It minimises Σ_t (n_t/n) F_t(θ)^{q+1} / (q + 1), by q-FedAvg. Client t trains from the broadcast θ to θ_t, and with
L = 1/η sends::

    Δ_t = F_t^q · L (θ − θ_t),        h_t = q F_t^{q−1} ‖L (θ − θ_t)‖² + L F_t^q,        F_t = F_t(θ)

and the server takes θ ← θ − Σ_t n_t Δ_t / Σ_t n_t h_t. With q = 0 it is FedAvg; a large q nears the worst agent's loss.
The paper draws clients in proportion to n_t and sums without weights; here the sums have the weights.

The step is the same for losses in any unit, but powers of them are soon beyond single precision. So clients are sent
one number more, the mean loss ℓ of the last round (of a set-up before round 1), and send (F_t/ℓ)^q in place of F_t^q.

Reference: Li, Sanjabi, Beirami, Smith, *Fair resource allocation in federated learning*, ICLR 2020, Algorithm 2.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from majorant.core import (
    Algorithm,
    Answer,
    ClientData,
    ClientSide,
    Diagnostics,
    Key,
    Server,
    ServerSide,
    Setup,
    Traits,
    Tree,
    Upload,
    Uploads,
    View,
    as_hyper,
    squared_norm,
    view_of,
)
from majorant.math.checks import check_range
from majorant.methods._convergence import conclude
from majorant.methods.fedavg import shared_model
from majorant.models.base import Model, check_no_running_statistics
from majorant.solvers import Solver, Task, local_sgd
from majorant.surrogates.partial import mean_loss

LEAST_LOSS = 1e-30  # divided by
LARGEST_POWER = 30.0  # of 10, of (F_t/ℓ)^q: such a client outweighs all others anyway


class Sent(NamedTuple):
    """What a client uploads, in units of ℓ^q, and its loss for the next ℓ."""

    delta: Tree
    h: jax.Array
    loss: jax.Array


def q_ffl(model: Model, *, q: float = 1.0, local: Solver | None = None, lipschitz: float | None = None) -> Algorithm:
    """q-fair federated learning; ``lipschitz`` is L, by default 1 over the local learning rate.

    >>> import majorant as mj
    >>> data = mj.data.synthetic_mixture(clients=5, dimension=4, seed=0)
    >>> run = mj.simulate(mj.methods.q_ffl(mj.models.linear(data), q=1.0), data, rounds=3, grid={"q": [0.0, 1.0, 5.0]})
    >>> len(run)
    3
    """
    check_hyper({"q": q} | ({} if lipschitz is None else {"lipschitz": lipschitz}))
    check_no_running_statistics(model, "q-ffl")
    local = local or local_sgd()
    if lipschitz is None and "lr" not in local.hyper:
        raise ValueError("give lipschitz, about 1 over the local learning rate: this local solver does not tell it")
    hyper = local.hyper | {"q": q} | ({} if lipschitz is None else {"lipschitz": lipschitz})

    def loss_of(theta: Tree, data: ClientData) -> jax.Array:
        return mean_loss(model, theta, data).astype(jnp.result_type(float))

    def ask(view: View, moments: Tree, data: ClientData, key: Key) -> Answer:
        return Answer(loss_of(view.value, data), data.size.astype(jnp.result_type(float)))

    def train(view: View, moments: Tree, data: ClientData, key: Key) -> tuple[Upload, Tree]:
        theta, q, unit = view.value, view.hyper["q"], view.shared
        steep = 1 / view.hyper["lr"] if lipschitz is None else view.hyper["lipschitz"]
        loss = jnp.maximum(loss_of(theta, data), LEAST_LOSS)
        power = jnp.minimum(loss / unit, 10 ** (LARGEST_POWER / jnp.maximum(q, 1))) ** q
        solved = local.solve(model, Task(view, data, key), theta, moments)
        pseudo = jax.tree.map(lambda old, new: steep * (old - new), theta, solved.params)
        h = power * (q / loss * squared_norm(pseudo) + steep)
        sent = Sent(jax.tree.map(lambda p: (power * p).astype(p.dtype), pseudo), h, loss)
        return Upload(sent, data.size.astype(h.dtype), {"loss": loss}), solved.moments

    def next_unit(old: jax.Array, weight: jax.Array, loss: jax.Array) -> jax.Array:
        mean = loss / jnp.where(weight > 0, weight, 1)
        return jnp.where((weight > 0) & jnp.isfinite(mean), jnp.maximum(mean, LEAST_LOSS), old)

    def update(server: Server, view: View, uploads: Uploads) -> Server:
        delta, h, loss = uploads.value
        step = lambda v, d: v - (d / jnp.where(h > 0, h, 1)).astype(v.dtype)
        value = jax.tree.map(step, server.value, delta)
        return server._replace(value=value, state=next_unit(server.state, uploads.weight, loss))

    def measure(view: View, client: Tree, data: ClientData, key: Key) -> dict[str, Tree]:
        def objective(theta: Tree) -> jax.Array:
            loss = mean_loss(model, theta, data)
            return loss ** (view.hyper["q"] + 1) / (view.hyper["q"] + 1)

        value, gradient = jax.value_and_grad(objective)(view.value)
        return {"objective": value, "gradient": gradient}

    zero = lambda: jnp.zeros((), jnp.result_type(float))
    started = lambda server, all: server._replace(state=next_unit(server.state, all.weight, all.value))
    return shared_model("q-ffl", model, local)._replace(
        server=ServerSide(
            init=lambda key: Server(model.init(key), as_hyper(hyper), 1 + zero()),
            update=update,
            broadcast=lambda server, key: view_of(server, shared=server.state),
        ),
        client=ClientSide(
            update=train,
            init=lambda view, data, key: local.moments(view.value),
            origin=lambda view: Sent(jax.tree.map(jnp.zeros_like, view.value), zero(), zero()),
        ),
        setup=Setup(ask, started),
        traits=Traits(points=False, check_hyper=check_hyper),
        diagnostics=Diagnostics(measure=measure, conclude=conclude),
    )


def check_hyper(hyper: dict[str, float]) -> None:
    """q may be 0, L not."""
    if "q" in hyper:
        check_range("q", hyper["q"], least=0)
    if "lipschitz" in hyper:
        check_range("lipschitz", hyper["lipschitz"], above=0)
