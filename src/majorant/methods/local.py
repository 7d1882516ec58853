"""Local: every client trains a model of its own on its own samples, and nothing travels.

Client t minimises f_t(θ_t) = (1/n_t) Σ_i l(θ_t; s_ti) by one local solve a round. It is the baseline that federated
learning has to beat: no communication, no help. All clients start at the same point, which they draw from the seed that
they share; it is FedAvg's first model.
"""

from __future__ import annotations

from typing import NamedTuple

import jax

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
    View,
    as_hyper,
    view_of,
)
from majorant.models.base import Model
from majorant.solvers import Solver, Task, local_sgd


class Client(NamedTuple):
    """Everything stays with the client: its model and its optimizer's moments."""

    theta: Tree
    moments: Tree


def local(model: Model, *, local: Solver | None = None) -> Algorithm:
    """Local training alone.

    A client that joins later trains for as many rounds as the others have, on its own samples.

    >>> import majorant as mj
    >>> data = mj.data.synthetic_mixture(clients=10, dimension=5, seed=0)
    >>> run = mj.simulate(mj.local(mj.models.linear(data)), data, rounds=5, seed=0)
    >>> run.summary()["communication"]["bytes_up"]
    0
    """
    solver = local or local_sgd()

    def start(view: View, data: ClientData, key: Key) -> Client:
        theta = model.init(jax.random.wrap_key_data(view.shared))
        return Client(theta, solver.moments(theta))

    def update(view: View, client: Client, data: ClientData, key: Key) -> tuple[Upload, Client]:
        theta, moments, loss = solver.solve(model, Task(view, data, key), client.theta, client.moments)
        return Upload((), data.size.astype(loss.dtype), {"loss": loss}), Client(theta, moments)

    def join(view: View, data: ClientData, key: Key) -> Client:
        def one_round(k: jax.Array, client: Client) -> Client:
            return update(view._replace(round=k), client, data, jax.random.fold_in(key, k))[1]

        return jax.lax.fori_loop(0, view.round, one_round, start(view, data, key))

    return Algorithm(
        name="local",
        server=ServerSide(
            init=lambda key: Server((), as_hyper(solver.hyper), jax.random.key_data(key)),
            broadcast=lambda server, key: view_of(server, shared=server.state),  # the seed of everybody's first model
        ),
        client=ClientSide(update, start),
        deployment=Deployment(lambda view, client, data, key: client.theta, model.predict, join, model=model),
        traits=Traits(points=False),
    )
