"""FedMGDA+: a step down for every agent, along the shortest convex combination of their normalised updates.

Client t trains from the broadcast θ to θ_t and sends it. With u_t = (θ − θ_t)/‖θ − θ_t‖ over those that took part, the
server solves::

    λ* = argmin ‖Σ_t λ_t u_t‖²    over λ ≥ 0, Σ_t λ_t = 1, |λ_t − λ⁰_t| ≤ ε,       θ ← θ − η Σ_t λ*_t u_t

λ⁰ is equal for all that took part. With ε = 1 the box is no bound: ⟨d, u_t⟩ ≥ ‖d‖² ≥ 0 for every one of them, so that
with small local steps no agent's loss goes up; with ε = 0 it is an average. Without normalisation ("FedMGDA") long
updates count more, and with ε = 0 and η = 1 it is federated averaging with equal votes.

Reference: Hu, Shaloudegi, Zhang, Yu, *Federated learning meets multi-objective optimization*, IEEE TNSE 2022
(arXiv 2020).
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree

from majorant.core import Algorithm, ClientData, Key, Server, ServerSide, Traits, Tree, Upload, Uploads, View, as_hyper
from majorant.math.checks import check_range
from majorant.math.min_norm import min_norm
from majorant.methods._two_blocks import one_vote
from majorant.methods.fedavg import shared_model
from majorant.models.base import Model, check_no_running_statistics
from majorant.solvers import Solver, local_sgd


def fedmgda_plus(
    model: Model,
    *,
    local: Solver | None = None,
    server_lr: float | None = None,
    epsilon: float = 1.0,
    normalize: bool = True,
) -> Algorithm:
    """Federated multiple-gradient descent; ``server_lr`` is η, by default 0.1 for normalised updates and 1 for others.

    >>> import majorant as mj
    >>> data = mj.data.synthetic_mixture(clients=5, dimension=4, seed=0)
    >>> run = mj.simulate(mj.methods.fedmgda_plus(mj.models.linear(data)), data, rounds=3)
    >>> bool(run.history[-1]["common_direction"] <= 1)
    True
    """
    rate = server_lr if server_lr is not None else 0.1 if normalize else 1.0
    check_hyper({"epsilon": epsilon, "server_lr": rate})
    check_no_running_statistics(model, "fedmgda+")
    local = local or local_sgd()
    hyper = local.hyper | {"server_lr": rate, "epsilon": epsilon}
    plain = shared_model("fedmgda+" if normalize else "fedmgda", model, local)

    def vote(view: View, moments: Tree, data: ClientData, key: Key) -> tuple[Upload, Tree]:
        upload, moments = plain.client.update(view, moments, data, key)
        return upload._replace(weight=one_vote(data)), moments

    def update(server: Server, view: View, uploads: Uploads) -> Server:
        here = uploads.weight > 0
        flatten = lambda theta: ravel_pytree(jax.tree.map(jnp.subtract, server.value, theta))[0]
        updates = jnp.where(here[:, None], jax.vmap(flatten)(uploads.value), 0)  # (clients, parameters)
        if normalize:
            updates = updates / jnp.maximum(jnp.linalg.norm(updates, axis=1, keepdims=True), 1e-12)
        equal = here / jnp.maximum(here.sum(), 1)
        room = server.hyper["epsilon"]
        weights = min_norm(
            updates @ updates.T,
            jnp.where(here, jnp.maximum(equal - room, 0), 0),
            jnp.where(here, jnp.minimum(equal + room, 1), 0),
        )
        direction = weights @ updates
        unravel = ravel_pytree(server.value)[1]
        step = lambda v, d: v - server.hyper["server_lr"] * d
        value = jax.tree.map(step, server.value, unravel(direction))
        return server._replace(value=value, state=jnp.linalg.norm(direction))

    zero = lambda: jnp.zeros((), jnp.result_type(float))
    log = lambda server: {"common_direction": server.state}  # its norm: 0 where nothing is better for all
    return plain._replace(
        server=ServerSide(lambda key: Server(model.init(key), as_hyper(hyper), zero()), update),
        client=plain.client._replace(update=vote),
        traits=Traits(reads="each", check_hyper=check_hyper),
        diagnostics=plain.diagnostics._replace(log=log),
    )


def check_hyper(hyper: dict[str, float]) -> None:
    """Weights differ from equal ones by at most 1, and the server steps forward."""
    if "epsilon" in hyper:
        check_range("epsilon", hyper["epsilon"], least=0, most=1)
    if "server_lr" in hyper:
        check_range("server_lr", hyper["server_lr"], above=0)
