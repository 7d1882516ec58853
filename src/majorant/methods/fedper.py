"""FedPer: some parameters are shared, the others are each client's own; all are trained together on the client.

With shared parameters w (by default all layers but the last, the *base*) and personal ones β_t (the *head*), the
objective is that of `majorant.objectives.weight_sharing`::

    min over w, β_1, …, β_T of  Σ_t (n_t/n) f_t([w, β_t])

Round k: client t trains both from (w^{k−1}, β_t) on its own samples, keeps β_t, and sends w_t; w^k = Σ_t (n_t/n) w_t.
All clients' heads begin as the server's first one, which is sent once, as a seed. A client that joins later starts
there, too, and makes one local update of its head with the base as it is.

Reference: Arivazhagan, Aggarwal, Singh, Choudhary, *Federated learning with personalization layers*, 2019, Algorithm 1.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
    Tree,
    Upload,
    View,
    as_hyper,
    view_of,
)
from majorant.models.base import Draw, Model, as_they_are, by_place, last_layer, layer_of
from majorant.objectives.splits import SHOWN, Split, split_by_name
from majorant.solvers import Solver, Task, local_sgd, statistic_leaves


class Client(NamedTuple):
    """What stays with a client: its own parameters and its optimizer's moments."""

    beta: Tree
    moments: Tree


Train = Callable[[Task, Tree, Client], tuple[Tree, Client, jax.Array]]  # (task, w, client) -> w_t, client, loss


def fedper(model: Model, *, personal: Sequence[str] = (), local: Solver | None = None) -> Algorithm:
    """Federated averaging of some layers; the ``personal`` ones stay with their clients.

    ``personal`` names parameters by their places in the model's tree, as `objectives.weight_sharing` does: "1" is the
    second layer of a list, "1.bias" its bias. By default it is the last layer: of a list the last one; of a dictionary,
    whose order says nothing, the only one that maps to the outputs. Where several could be it, you have to name it.

    >>> import majorant as mj
    >>> data = mj.data.synthetic_mixture(clients=10, dimension=5, seed=0)
    >>> run = mj.simulate(mj.methods.fedper(mj.models.mlp(data, hidden=(4,))), data, rounds=5, seed=0)
    >>> sorted(run.server.value)
    ['0.bias', '0.weight']
    """
    local = local or local_sgd()
    split = split_model(model, personal, "fedper")

    def train(task: Task, w: Tree, client: Client) -> tuple[Tree, Client, jax.Array]:
        params, moments, loss = local.solve(model, task, split.merge(w, client.beta), client.moments)
        return split.shared(params), Client(split.personal(params), moments), loss

    return partly_personal("fedper", model, split, local, train, lambda w, beta: local.moments(split.merge(w, beta)))


def split_model(model: Model, personal: Sequence[str], method: str) -> Split:
    """The model's parameters in a shared part and the named personal one, by default the last layer."""
    shapes = jax.eval_shape(model.init, jax.random.key(0))
    layer = last_layer(model)
    names = [name for name, _ in by_place(shapes)]
    if not personal and len(set(map(layer_of, names))) == 1:
        raise ValueError(
            f"{method} keeps the last layer personal, and {model.name} has one layer only: take a model with several "
            f"(mlp), or name what is personal, as in personal={names[-1]}"
        )
    if not personal and not layer:
        raise ValueError(
            f"{method} keeps the last layer personal, and the parameters of {model.name} do not say which that is: "
            f"name it by personal=. They are {', '.join(names[:SHOWN])}{', …' if len(names) > SHOWN else ''}"
        )
    try:
        return split_by_name(shapes, personal=[*personal] or [layer or ""])
    except ValueError as error:
        if model.layers is as_they_are:
            raise
        raise ValueError(
            f"{error}; {model.name} has its other layers in one vector: by_layers=true names them"
        ) from None


def of_part(model: Model, merge: Callable[[Tree], Tree], part: Callable[[Tree], Tree]) -> Model:
    """The model as a function of a ``part`` of its parameters, which ``merge`` makes whole; its statistics go along."""

    def train_apply(params: Tree, x: jax.Array, *draw: Draw) -> tuple[jax.Array, Tree]:
        whole = merge(params)
        outputs, refreshed = model.train_apply(whole, x, *draw)  # type: ignore[misc]
        statistics = statistic_leaves(model, whole, x)
        if statistics is None:
            return outputs, params
        choose = lambda keep, new, old: new if keep else old
        return outputs, jax.tree.map(choose, part(statistics), part(refreshed), params)

    at = model._replace(apply=lambda params, x: model.apply(merge(params), x), statistics=None)
    return at if model.train_apply is None else at._replace(train_apply=train_apply)


def partly_personal(
    name: str, model: Model, split: Split, local: Solver, train: Train, moments: Callable[[Tree, Tree], Tree]
) -> Algorithm:
    """An algorithm whose server averages the shared part, and whose clients ``train`` both."""

    def first(key_data: jax.Array) -> Tree:
        return split.personal(model.init(jax.random.wrap_key_data(key_data)))

    def start(view: View, data: ClientData, key: Key) -> Client:
        beta = first(view.shared)
        return Client(beta, moments(view.value, beta))

    def update(view: View, client: Client, data: ClientData, key: Key) -> tuple[Upload, Client]:
        w, client, loss = train(Task(view, data, key), view.value, client)
        return Upload(w, data.size.astype(loss.dtype), {"loss": loss}), client

    def join(view: View, data: ClientData, key: Key) -> Client:
        client = start(view, data, key)
        head = of_part(model, lambda beta: split.merge(view.value, beta), split.personal)
        beta = local.solve(head, Task(view, data, key), client.beta, local.moments(client.beta)).params
        return client._replace(beta=beta)

    def init(key: Key) -> Server:
        return Server(split.shared(model.init(key)), as_hyper(local.hyper), jax.random.key_data(key))

    return Algorithm(
        name=name,
        server=ServerSide(init, broadcast=lambda server, key: view_of(server, shared=server.state)),
        client=ClientSide(update, start),
        deployment=Deployment(
            personalize=lambda view, client, data, key: split.merge(view.value, client.beta),
            predict=model.predict,
            join=join,
            model=model,
        ),
    )
