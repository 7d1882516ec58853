"""Clustered FL: FedAvg that splits its clients in two wherever a cluster has converged but its clients have not.

Client t of cluster c starts at the cluster's model θ_c, trains on its own samples and sends θ_t. With the updates
Δ_t = θ_t − θ_c, a cluster of more than two clients is split when

    ‖mean_{t in c} Δ_t‖ < ε₁   and   max_{t in c} ‖Δ_t‖ > ε₂          (an unweighted mean)

into the two groups that complete-linkage clustering finds in the cosine distances 1 − ⟨Δ_s, Δ_t⟩ / ‖Δ_s‖‖Δ_t‖. Then
every cluster averages: θ_c = Σ_{t in c} n_t θ_t / Σ_{t in c} n_t. Every client must take part in every round.

The code that the FedEM authors released numbers members within their cluster after the first split, and so mixes up the
clients; here they keep their ids. It also takes max ‖Δ_t‖ for the largest single coordinate of all updates; here it is
the largest norm. The papers do not say how a client that did not take part in training finds its cluster: here it is
sent all models, and takes the one with the lowest loss on its own samples.

Reference: Sattler, Müller, Samek, *Clustered federated learning: model-agnostic distributed multitask optimization
under privacy constraints*, IEEE TNNLS 2020.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jax.ops import segment_max, segment_min, segment_sum

from majorant.core import (
    Algorithm,
    ClientData,
    Deployment,
    Diagnostics,
    Key,
    Server,
    ServerSide,
    Traits,
    Tree,
    Uploads,
    View,
    as_hyper,
    beside,
    masked_mean,
    select,
)
from majorant.math.checks import check_range, check_whole
from majorant.methods.fedavg import shared_model
from majorant.models.base import Model
from majorant.solvers import Solver, local_sgd


class Clusters(NamedTuple):
    """The server's value: cluster c has the model in row c; rows that no client belongs to are not in use."""

    theta: Tree  # (clients, ...)
    label: jax.Array  # (clients,) the cluster of each client


class Newcomer(NamedTuple):
    """The state of a client that joined after training: the model that it has chosen."""

    theta: Tree


def clustered(
    model: Model,
    *,
    clients: int,
    local: Solver | None = None,
    tolerance_mean: float = 0.4,
    tolerance_max: float = 1.6,
) -> Algorithm:
    """Clustered federated learning over ``clients`` clients (all of the data's, unseen ones included).

    ``tolerance_mean`` and ``tolerance_max`` are ε₁ and ε₂.

    >>> import majorant as mj
    >>> data = mj.data.synthetic_mixture(clients=10, dimension=5, seed=0)
    >>> run = mj.simulate(mj.clustered(mj.models.linear(data), clients=10), data, rounds=5, seed=0)
    >>> run.server.value.label.shape
    (10,)
    """
    check_whole("clients", clients)
    check_range("tolerance_mean", tolerance_mean, least=0)
    check_range("tolerance_max", tolerance_max, least=0)
    local = local or local_sgd()
    hyper = local.hyper | {"tolerance_mean": tolerance_mean, "tolerance_max": tolerance_max}

    def init(key: Key) -> Server:
        theta = jax.tree.map(lambda v: jnp.broadcast_to(v, (clients, *v.shape)), model.init(key))
        return Server(Clusters(theta, jnp.zeros(clients, jnp.int32)), as_hyper(hyper))

    def address(view: View, slot: jax.Array) -> View:
        return view._replace(value=jax.tree.map(lambda v: v[view.value.label[slot]], view.value.theta))

    def update(server: Server, view: View, uploads: Uploads) -> Server:
        old, member = server.value, uploads.weight > 0
        flatten = jax.vmap(lambda new, c: ravel_pytree(jax.tree.map(lambda n, v: n - v[c], new, old.theta))[0])
        moved = jnp.where(member[:, None], flatten(uploads.value, old.label), 0)  # (clients, parameters)
        norm = jnp.linalg.norm(moved, axis=1)
        count = segment_sum(member.astype(norm.dtype), old.label, clients)
        mean = segment_sum(moved, old.label, clients) / jnp.maximum(count, 1)[:, None]
        ripe = jnp.linalg.norm(mean, axis=1) < server.hyper["tolerance_mean"]
        uneasy = segment_max(norm, old.label, clients) > server.hyper["tolerance_max"]
        splits = ripe & uneasy & (count > 2)

        def split() -> jax.Array:
            direction = moved / jnp.maximum(norm, jnp.finfo(norm.dtype).tiny)[:, None]
            return bipartition(1 - direction @ direction.T, old.label, member, splits)

        label = jax.lax.cond(splits.any(), split, lambda: old.label)
        weight = segment_sum(uploads.weight, label, clients)

        def average(sent: jax.Array, before: jax.Array) -> jax.Array:
            spread = lambda w: beside(w, sent).astype(sent.dtype)
            total = segment_sum(spread(uploads.weight) * sent, label, clients)
            return jnp.where(spread(weight) > 0, total / jnp.maximum(spread(weight), 1), before)

        theta = jax.tree.map(average, uploads.value, old.theta)
        return server._replace(value=Clusters(theta, label))

    def join(view: View, data: ClientData, key: Key) -> Newcomer:
        model_of = lambda c: jax.tree.map(lambda v: v[c], view.value.theta)
        loss_of = lambda c: masked_mean(model.losses(model_of(c), data.x, data.y), data)

        def compare(c: jax.Array, best: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
            loss = loss_of(c)
            return select(loss < best[0], (loss, c), best)

        start = (loss_of(jnp.asarray(0)), jnp.asarray(0))
        return Newcomer(model_of(jax.lax.fori_loop(0, view.value.label.max() + 1, compare, start)[1]))

    def personalize(view: View, client: Tree, data: ClientData, key: Key) -> Tree:
        return client.theta if isinstance(client, Newcomer) else view.value

    return shared_model("clustered", model, local)._replace(
        server=ServerSide(init, update, address=address),
        deployment=Deployment(personalize, model.predict, join, model=model),
        traits=Traits(needs_everyone=True, reads="each"),
        diagnostics=Diagnostics(),  # a mean gradient over the models of different clusters means nothing
    )


class Groups(NamedTuple):
    """Agglomerative clustering underway: groups are known by their first member, their head."""

    distance: jax.Array  # (clients, clients) between the groups of two heads
    head: jax.Array  # (clients,) of each client's group
    alive: jax.Array  # (clients,) whether a client is the head of a group that may merge
    left: jax.Array  # (clients,) groups left in each cluster


def bipartition(distance: jax.Array, label: jax.Array, member: jax.Array, splits: jax.Array) -> jax.Array:
    """New labels, after each cluster with ``splits`` is cut in two by complete-linkage agglomerative clustering.

    Members start as groups of one; the two nearest groups of a cluster merge (their distance to a third group is the
    larger of theirs) until two are left. One keeps the cluster's label, the other takes the next free one. All
    clusters are worked on in one loop: groups of different clusters never merge.
    """
    n = label.shape[0]
    index = jnp.arange(n)
    moving = member & splits[label]
    left = segment_sum(moving.astype(jnp.int32), label, n)

    def unfinished(state: Groups) -> jax.Array:
        return (state.left > 2).any()

    def merge(state: Groups) -> Groups:
        distance, head, alive, left = state
        open_ = alive & (left[label] > 2)
        pair = open_[:, None] & open_[None, :] & (label[:, None] == label[None, :]) & (index[:, None] < index[None, :])
        i, j = jnp.divmod(jnp.argmin(jnp.where(pair, distance, jnp.inf)), n)
        joined = jnp.maximum(distance[i], distance[j])
        distance = distance.at[i].set(joined).at[:, i].set(joined)
        return Groups(distance, jnp.where(head == j, i, head), alive.at[j].set(False), left.at[label[i]].add(-1))

    head = jax.lax.while_loop(unfinished, merge, Groups(distance, index, moving, left)).head
    first = segment_min(jnp.where(moving, head, n), label, n)  # the group of each cluster's first member
    fresh = label.max() + jnp.cumsum(splits.astype(label.dtype))
    return jnp.where(moving & (head != first[label]), fresh[label], label).astype(label.dtype)
