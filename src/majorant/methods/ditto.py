"""Ditto: FedAvg, and beside it a personal model for every client that is held near the shared one.

The shared w is FedAvg's: w = Σ_t (n_t/n) w_t with w_t = LocalSolver(w, f_t). Client t also keeps v_t, and each round
takes local steps from it on

    f_t(v) + (μ/2) ‖v − w‖²,        w: the model it was sent                                    (Algorithm 1, line 6)

It sends w_t and deploys v_t. A client that joins later makes one such local update, from v = w.

Reference: Li, Hu, Beirami, Smith, *Ditto: fair and robust federated learning through personalization*, ICML 2021 (its λ
is μ here).
"""

from __future__ import annotations

from typing import NamedTuple

from majorant.core import Algorithm, ClientData, ClientSide, Deployment, Key, Tree, Upload, View
from majorant.math.checks import check_range
from majorant.methods.fedavg import shared_model
from majorant.methods.fedprox import pull_to_broadcast
from majorant.models.base import Model
from majorant.solvers import Solver, Task, local_sgd


class Client(NamedTuple):
    """What stays with a client: its own model, and the moments of both optimizers."""

    v: Tree
    v_moments: Tree
    w_moments: Tree


def ditto(model: Model, *, mu: float = 0.1, local: Solver | None = None) -> Algorithm:
    """Federated averaging with personal models; ``mu`` is the weight of the pull towards the shared one.

    >>> import majorant as mj
    >>> data = mj.data.synthetic_mixture(clients=10, dimension=5, seed=0)
    >>> run = mj.simulate(mj.ditto(mj.models.linear(data), mu=0.5), data, rounds=5, seed=0)
    >>> run.summary()["algorithm"]
    'ditto'
    """
    check_range("mu", mu, least=0)
    local = local or local_sgd()
    average = shared_model("ditto", model, local, hyper={"mu": mu})

    def start(view: View, data: ClientData, key: Key) -> Client:
        return Client(view.value, local.moments(view.value), local.moments(view.value))

    def train_own(view: View, client: Client, data: ClientData, key: Key) -> Client:
        pull = lambda v: pull_to_broadcast(v, view)
        v, moments, _ = local.solve(model, Task(view, data, key, penalty=pull), client.v, client.v_moments)
        return client._replace(v=v, v_moments=moments)

    def update(view: View, client: Client, data: ClientData, key: Key) -> tuple[Upload, Client]:
        upload, moments = average.client.update(view, client.w_moments, data, key)
        return upload, train_own(view, client, data, key)._replace(w_moments=moments)

    return Algorithm(
        name="ditto",
        server=average.server,
        client=ClientSide(update, start),
        deployment=Deployment(
            personalize=lambda view, client, data, key: client.v,
            predict=model.predict,
            join=lambda view, data, key: train_own(view, start(view, data, key), data, key),
            model=model,
        ),
    )
