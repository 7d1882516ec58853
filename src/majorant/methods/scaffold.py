"""SCAFFOLD: FedAvg whose clients correct their steps by how their own gradients differ from everybody's.

Client t keeps a control variate c_t, an estimate of ∇f_t, and the server c, an estimate of Σ_t (n_t/n) ∇f_t. Round k,
on client t, from the broadcast x and c::

    y_t ← y_t − lr (∇f_t(y_t; batch) − c_t + c)          for each minibatch, from y_t = x                          (3)
    c_t⁺ = ∇f_t(x)                                       control "gradient": option I                              (4)
         = c_t − c + (x − y_t) / (K lr)                  control "steps": option II, K the number of steps

It sends y_t and c_t⁺ − c_t. With means over the clients S that were heard, of share |S|/N of all samples::

    x ← x + server_lr · mean (y_t − x),       c ← c + (|S|/N) · mean (c_t⁺ − c_t)                                  (5)

Clients count by their samples here, once each in the paper. The correction is a linear term in what the local solver
goes down, so any solver will do; option II needs plain SGD, whose steps are what it divides by. With c = c_t = 0, as
in the first round, it is FedAvg. Twice as much travels as for FedAvg.

Reference: Karimireddy, Kale, Mohri, Reddi, Stich, Suresh, *SCAFFOLD: stochastic controlled averaging for federated
learning*, ICML 2020, Algorithm 1.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from majorant.core import (
    Algorithm,
    ClientData,
    ClientSide,
    Deployment,
    Key,
    Server,
    ServerSide,
    Traits,
    Tree,
    Upload,
    Uploads,
    View,
    as_hyper,
)
from majorant.math.checks import check_range
from majorant.methods.fedavg import COUNT_SAMPLES
from majorant.models.base import Model
from majorant.solvers import LocalSolver, Minibatches, Solver, Task, local_sgd
from majorant.solvers.minibatches import batches_of_an_epoch
from majorant.surrogates.partial import mean_loss

CONTROLS = ("gradient", "steps")


class Sent(NamedTuple):
    """What travels: down the model and the server's control variate, up a client's model and its own one's change."""

    theta: Tree
    control: Tree


class Client(NamedTuple):
    """What stays with a client: its control variate and its optimizer's moments."""

    control: Tree
    moments: Tree


def scaffold(
    model: Model, *, control: str = "gradient", server_lr: float = 1.0, local: Solver | None = None
) -> Algorithm:
    """Stochastic controlled averaging.

    ``control`` says how a client renews its control variate: by the gradient of all its samples at the broadcast model
    (option I, one more pass over them), or from its local "steps" (option II), which must be those of plain SGD.

    >>> import majorant as mj
    >>> data = mj.data.synthetic_mixture(clients=10, dimension=5, seed=0)
    >>> run = mj.simulate(mj.methods.scaffold(mj.models.linear(data)), data, rounds=5, seed=0)
    >>> run.summary()["algorithm"]
    'scaffold'
    """
    local = local or local_sgd()
    check_range("server_lr", server_lr, above=0)
    if control not in CONTROLS:
        raise ValueError(f"control must be one of {', '.join(CONTROLS)}, got {control!r}")
    if control == "steps" and not (isinstance(local, LocalSolver) and local.hyper.keys() == {"lr"}):
        raise ValueError(
            'control="steps" needs plain SGD, without momentum and weight decay: or take control="gradient"'
        )
    zeros = lambda tree: jax.tree.map(jnp.zeros_like, tree)

    def renewed(view: View, client: Client, data: ClientData, y: Tree) -> Tree:
        if control == "gradient":
            return jax.grad(mean_loss, argnums=1)(model, view.value.theta, data)
        assert isinstance(local, LocalSolver)
        length = (
            view.hyper["lr"]
            * local.schedule(view.progress)
            * jnp.maximum(steps_made(local.plan.suiting(model), data), 1)
        )
        step = lambda c_t, c, x, y: c_t - c + (x - y) / length
        return jax.tree.map(step, client.control, view.value.control, view.value.theta, y)

    def update(view: View, client: Client, data: ClientData, key: Key) -> tuple[Upload, Client]:
        x, c = view.value
        shift = jax.tree.map(jnp.subtract, c, client.control)
        term = lambda y: optax.tree.vdot(y, shift)
        y, moments, loss = local.solve(model, Task(view, data, key, penalty=term), x, client.moments)
        change = jax.tree.map(jnp.subtract, renewed(view, client, data, y), client.control)
        change = jax.tree.map(lambda d: jnp.where(data.size > 0, d, 0), change)
        return Upload(Sent(y, change), data.size.astype(loss.dtype), {"loss": loss}), client._replace(moments=moments)

    def delivered(view: View, client: Client, upload: Upload) -> Client:
        return client._replace(control=jax.tree.map(jnp.add, client.control, upload.value.control))

    def init(key: Key) -> Server:
        theta = model.init(key)
        hyper = as_hyper(local.hyper | {"server_lr": server_lr})
        return Server(Sent(theta, zeros(theta)), hyper, jnp.zeros((), jnp.result_type(float)))

    def average(server: Server, view: View, uploads: Uploads) -> Server:
        (x, c), (y, change) = server.value, uploads.mean()
        share = uploads.weight / jnp.maximum(server.state, 1)
        theta = jax.tree.map(lambda x, y: x + server.hyper["server_lr"] * (y - x), x, y)
        return server._replace(value=Sent(theta, jax.tree.map(lambda c, d: c + share * d, c, change)))

    return Algorithm(
        name="scaffold",
        server=ServerSide(init, average),
        client=ClientSide(
            update,
            init=lambda view, data, key: Client(zeros(view.value.theta), local.moments(view.value.theta)),
            delivered=delivered,
            origin=lambda view: Sent(view.value.theta, zeros(view.value.control)),
        ),
        deployment=Deployment(lambda view, client, data, key: view.value.theta, model.predict, model=model),
        setup=COUNT_SAMPLES,  # N, which the server keeps
        traits=Traits(points=False),
    )


def steps_made(plan: Minibatches, data: ClientData) -> jax.Array:
    """K: the minibatches that a client goes through in a round."""
    if plan.batch_size is None or plan.steps is not None:
        return jnp.asarray(plan.steps or plan.epochs or 1, jnp.result_type(float))
    return ((plan.epochs or 1) * batches_of_an_epoch(plan, data)).astype(jnp.result_type(float))
