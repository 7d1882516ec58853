"""Gossip: a federated algorithm without a server, on a network of peers.

Every node holds a replica of what the server would hold. In round k node t trains from its own point and averages what
its neighbours reached, with the weights W of the round's links (Algorithm 5 of the FedEM paper)::

    u_t^{k−1/2} = u_t^{k−1} + (T · n_t / n) · (LocalSolver(u_t^{k−1}) − u_t^{k−1})
    u_t^k       = Σ_s w_ts u_s^{k−1/2}

As printed, Algorithm 4 scales every local step by n_t/n, and the average divides by T once more. Scaling the whole
displacement by T · n_t / n makes W = 11ᵀ/T equal to the client-server algorithm, for any local solver. The mean size
n / T is agreed on once, before the first round.

What is mixed must be *points*: mixing gradients would lead every node to the minimiser of its own objective. A node
that is away in a round neither trains nor talks, and its neighbours keep the weight of its links for themselves; so a
`Participation` is also a model of nodes that leave and come back.

Reference: Marfoq, Neglia, Bellet, Kameni, Vidal, *Federated Multi-Task Learning under a Mixture of Distributions*,
NeurIPS 2021, Algorithms 4 and 5, Appendix E.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from majorant.core import (
    Algorithm,
    ClientData,
    Diagnosis,
    Key,
    Server,
    Stack,
    Total,
    Tree,
    Upload,
    View,
    select,
    squared_norm,
)
from majorant.data.federated import FederatedData
from majorant.exchange.analysis import Properties, inspect, validate
from majorant.exchange.topology import Network, Topology

LINKS_STREAM = 0x6055
LEAST = 1e-30  # the weight in the log of a node without samples


class Nodes(NamedTuple):
    """What the nodes hold beside their points."""

    state: Tree  # (nodes, ...) of each replica of the server
    mean_weight: jax.Array  # n / T, in the units of the algorithm's upload weights
    links: jax.Array  # the data of the key that links are drawn from


class Shared(NamedTuple):
    """What a node knows in a round beside its own point, as the ``coins`` of its view."""

    coins: Tree
    mean_weight: jax.Array


class Peers(NamedTuple):
    """Who gossips: the network, and the ids of the clients that are its nodes."""

    network: Network
    ids: np.ndarray


class Joined(NamedTuple):
    """A client that came after training: the mean of its contacts' points, and its own state."""

    value: Tree
    client: Tree


def gossip(
    algorithm: Algorithm,
    topology: Topology,
    data: FederatedData | int,
    *,
    scaling: str = "sizes",
    start: str = "same",
    contacts: int = 3,
) -> Algorithm:
    """The decentralized form of an algorithm, on the clients of ``data`` that train (or on that many nodes).

    ``scaling`` "sizes" multiplies displacements by T · n_t / n; "none" leaves them as they are, as the paper's released
    code does (every node then counts the same). ``start`` "same" starts all nodes at one random point (they share a
    seed), "own" each at its own: a mixture's components then have different meanings on different nodes at first. A
    client that joins later starts from the mean of the models of ``contacts`` nodes drawn at random.

    >>> import majorant as mj
    >>> data = mj.data.synthetic_mixture(clients=10, dimension=5, seed=0)
    >>> peers = mj.gossip(mj.fedem(mj.models.linear(data), components=2), mj.topology.ring(), data)
    >>> run = mj.simulate(peers, data, rounds=5, seed=0)
    >>> run.summary()["algorithm"], run.history[-1]["consensus_distance"] > 0
    ('d-fedem', True)
    """
    refuse(algorithm)
    if not isinstance(topology, Topology):
        raise ValueError(f"expected a topology, such as mj.topology.ring(), got {topology!r}")
    if not isinstance(data, FederatedData) and (isinstance(data, bool) or not isinstance(data, int) or data < 1):
        raise ValueError(f"expected the data, or how many nodes there are, got {data!r}")
    if scaling not in ("sizes", "none"):
        raise ValueError(f"scaling must be 'sizes' or 'none', got {scaling!r}")
    if start not in ("same", "own"):
        raise ValueError(f"start must be 'same' or 'own', got {start!r}")
    if not isinstance(contacts, int) or contacts < 1:
        raise ValueError(f"contacts must be a positive whole number, got {contacts}")
    ids = np.flatnonzero(~data.unseen) if isinstance(data, FederatedData) else np.arange(int(data))
    count = len(ids)
    network = topology.build(count)
    validate(network)
    place = jnp.zeros(int(ids.max()) + 1, jnp.int32).at[ids].set(np.arange(count, dtype=np.int32))

    def init(key: Key) -> Server:
        one = algorithm.init(key)
        value, state = jax.tree.map(lambda a: jnp.broadcast_to(a, (count, *a.shape)), (one.value, one.state))
        if start == "own":
            each = jax.vmap(algorithm.init)(jax.random.split(key, count))
            value, state = each.value, each.state
        links = jax.random.key_data(jax.random.fold_in(key, LINKS_STREAM))
        return Server(value, one.hyper, Nodes(state, jnp.ones((), jnp.result_type(float)), links))

    def broadcast(server: Server, key: Key) -> View:
        return View(server.value, server.hyper, server.round, server.rounds, (server.state, jax.random.key_data(key)))

    def seen_at(view: View, value: Tree, state: Tree) -> View:
        """What a node at a point with a server state would see of the algorithm."""
        server = Server(value, view.hyper, state, view.round, view.rounds)
        return algorithm.broadcast(server, jax.random.wrap_key_data(view.coins[1]))

    def address(view: View, id: jax.Array) -> View:
        node = place[id]
        own = seen_at(view, row(view.value, node), row(view.coins[0].state, node))
        return own._replace(coins=Shared(own.coins, view.coins[0].mean_weight))

    def plain(view: View) -> View:
        return view._replace(coins=view.coins.coins)

    def client_update(view: View, client: Tree, data: ClientData, key: Key) -> tuple[Upload, Tree]:
        upload, client = algorithm.client_update(plain(view), client, data, key)
        client, origin = algorithm.sent(client, upload), algorithm.origin(plain(view))
        if str(jax.tree.structure(origin)) != str(jax.tree.structure(upload.value)):
            raise ValueError(
                f"{algorithm.name} cannot gossip: what it sends is not a point like the one it starts from"
            )
        factor = upload.weight / view.coins.mean_weight if scaling == "sizes" else jnp.ones_like(upload.weight)
        value = jax.tree.map(lambda o, v: (o + factor * (v - o)).astype(v.dtype), origin, upload.value)
        return Upload(value, jnp.maximum(factor, LEAST), upload.info), client  # a node without samples talks, too

    def setup_client(view: View, client: Tree, data: ClientData, key: Key) -> Upload:
        weight = algorithm.client_update(plain(view), client, data, key)[0].weight
        own = algorithm.setup_client(plain(view), client, data, key) if algorithm.setup_client else Upload((), weight)
        summed = jax.tree.map(lambda v: own.weight * v, own.value)
        return Upload((summed, own.weight, weight), jnp.ones_like(weight))

    def setup_server(server: Server, total: Total) -> Server:
        summed, own_weight, weight = total.value
        mean = weight / jnp.maximum(total.weight, 1)
        nodes = server.state._replace(mean_weight=jnp.where(mean > 0, mean, 1).astype(server.state.mean_weight.dtype))
        server = server._replace(state=nodes)
        if algorithm.setup_server is None:
            return server
        return replicas(server, lambda one: algorithm.setup_server(one, Total(summed, own_weight)))

    def aggregate(server: Server, stack: Stack) -> Total:
        sent_one = stack.weight[ids] > 0
        # Where links are one-sided, everybody must take part to keep the mean: a rejected upload is a step not made.
        present = sent_one if network.symmetric else jnp.ones_like(sent_one)
        keep = lambda sent, old: jnp.where(sent_one.reshape((-1,) + (1,) * (old.ndim - 1)), sent[ids], old)
        number = server.round + 1
        mixing = network.draw(jax.random.fold_in(jax.random.wrap_key_data(server.state.links), number), number)
        mixed = mixing.mix(jax.tree.map(keep, stack.value, server.value), present)
        return Total((mixed, present), present.sum(), messages=mixing.messages(present))

    def server_update(server: Server, total: Total) -> Server:
        mixed, present = total.value
        weight = count * server.state.mean_weight  # as if every node had been averaged: what a full round sums up to

        def update(one: Server, mean: Tree, present: jax.Array) -> Server:
            summed = jax.tree.map(lambda m: m * weight.astype(m.dtype), mean)
            return select(present, algorithm.server_update(one, Total(summed, weight)), one)

        return replicas(server, update, mixed, present)

    def replicas(server: Server, update: Any, *others: Tree) -> Server:
        """Applies a server's step on every node."""

        def one(value: Tree, state: Tree, *others: Tree) -> tuple[Tree, Tree]:
            new = update(Server(value, server.hyper, state, server.round, server.rounds), *others)
            return new.value, new.state

        value, state = jax.vmap(one)(server.value, server.state.state, *others)
        return server._replace(value=value, state=server.state._replace(state=state))

    def onboard(view: View, data: ClientData, key: Key) -> Joined:
        reached = jax.random.permutation(jax.random.fold_in(key, LINKS_STREAM), count)[:contacts]
        value = mean_of(jax.tree.map(lambda v: v[reached], view.value))
        own = seen_at(view, value, row(view.coins[0].state, reached[0]))
        return Joined(value, (algorithm.onboard or algorithm.init_client)(own, data, key))

    def own_view(view: View, client: Tree) -> tuple[View, Tree]:
        """The view and the private state by which a client, joined later or not, uses the algorithm."""
        if isinstance(client, Joined):
            return seen_at(view, client.value, row(view.coins[0].state, 0)), client.client
        return plain(view), client

    def personalize(view: View, client: Tree) -> Tree:
        return algorithm.personalize(*own_view(view, client))

    def adapt(view: View, client: Tree, data: ClientData, key: Key) -> Tree:
        adapted = algorithm.adapt(*own_view(view, client), data, key)  # type: ignore[misc]
        return client._replace(client=adapted) if isinstance(client, Joined) else adapted

    def consensus(server: Server) -> dict[str, jax.Array]:
        centre = mean_of(server.value)
        return {"consensus_distance": squared_norm(jax.tree.map(jnp.subtract, server.value, centre)) / count}

    return algorithm._replace(
        name=f"d-{algorithm.name}",
        init=init,
        broadcast=broadcast,
        address=address,
        init_client=lambda view, data, key: algorithm.init_client(plain(view), data, key),
        client_update=client_update,
        sent=lambda client, upload: client,
        origin=lambda view: algorithm.origin(plain(view)),
        aggregate=aggregate,
        server_update=server_update,
        onboard=onboard,
        personalize=personalize,
        adapt=adapt if algorithm.adapt else None,
        setup_client=setup_client,
        setup_server=setup_server,
        needs_everyone=algorithm.needs_everyone or not network.symmetric,
        diagnosis=at_the_mean(algorithm, seen_at, scaling),
        log=consensus,
        network=lambda: Peers(network, ids),
    )


def refuse(algorithm: Algorithm) -> None:
    """Only points that are averaged linearly can gossip; the others are told why not."""
    reason = None
    if algorithm.network is not None:
        reason = "it gossips already"
    elif algorithm.aggregate is not None:
        reason = "its server must see every client's upload side by side"
    elif not algorithm.sends_points:
        reason = "its clients do not send points: nothing that they send can be averaged with the neighbours'"
    if reason:
        raise ValueError(f"{algorithm.name} cannot run without a server: {reason}")


def at_the_mean(algorithm: Algorithm, seen_at: Any, scaling: str) -> Diagnosis | None:
    """The algorithm's own diagnosis, at the mean of all nodes' points and with each client's own state.

    Without scaling by sizes another objective is minimised, in which every node counts the same: that one is measured.
    """
    own = algorithm.diagnosis
    if own is None:
        return None

    def measure(view: View, client: Tree, data: ClientData, key: Key) -> Tree:
        return own.measure(seen_at(view, mean_of(view.value), row(view.coins[0].state, 0)), client, data, key)

    def conclude(server: Server, mean: Tree) -> dict[str, jax.Array]:
        return own.conclude(server._replace(value=mean_of(server.value), state=row(server.state.state, 0)), mean)

    probe = own.probe
    if probe is not None:
        probe = lambda view, client, data, key: own.probe(view._replace(coins=view.coins.coins), client, data, key)  # type: ignore[misc]
    weight = own.weight if scaling == "sizes" else lambda data: (data.size > 0).astype(jnp.result_type(float))
    return Diagnosis(measure, conclude, probe, weight)


def facts(algorithm: Algorithm) -> Properties:
    """What the network of a gossiping algorithm is like; worked out once."""
    if algorithm.network is None:
        raise ValueError(f"{algorithm.name} has no network: it runs with a server")
    return _facts(algorithm.network)


@functools.lru_cache(maxsize=16)
def _facts(network: Callable[[], Any]) -> Properties:
    return inspect(network().network)


def row(tree: Tree, index: Any) -> Tree:
    """One node's part of a stacked tree."""
    return jax.tree.map(lambda a: a[index], tree)


def mean_of(tree: Tree) -> Tree:
    """The mean over nodes of a stacked tree."""
    return jax.tree.map(lambda a: a.mean(axis=0), tree)
