"""Gossip: no server, a network of peers, each of whom runs the server's step on what its neighbours sent.

Every node holds what the server would hold. In round k node t trains from its own point and averages what its
neighbours reached, with the weights W of the round's links (Algorithm 5 of the FedEM paper)::

    u_t^{k−1/2} = u_t^{k−1} + (T · n_t / n) · (LocalSolver(u_t^{k−1}) − u_t^{k−1})
    u_t^k       = server.update on Σ_s w_ts u_s^{k−1/2}

As printed, Algorithm 4 scales every local step by n_t/n, and the average divides by T once more. Scaling the whole
displacement by T · n_t / n makes W = 11ᵀ/T equal to the client-server algorithm, for any local solver. The mean size
n / T is agreed on once, before the first round.

What is mixed must be *points*: mixing gradients would lead every node to the minimiser of its own objective. A method
whose uploads are displacements in a linear space (FedMM's statistics) says what its nodes average beside them
(`ServerSide.consensus`): nodes send both, and step from the averages. A node that is away in a round neither trains nor
talks, and its neighbours keep the weight of its links for themselves; so a `Participation` is also a model of nodes
that leave and come back.

Reference: Marfoq, Neglia, Bellet, Kameni, Vidal, *Federated Multi-Task Learning under a Mixture of Distributions*,
NeurIPS 2021, Algorithms 4 and 5, Appendix E.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from majorant.core import (
    Algorithm,
    Answer,
    ClientData,
    Diagnostics,
    Key,
    Server,
    Tree,
    Uploads,
    View,
    beside,
    collectives,
    select,
    squared_norm,
)
from majorant.core.collectives import Axis
from majorant.core.trees import stack_rows
from majorant.exchange._combine import Combine
from majorant.exchange.analysis import Properties, inspect, validate
from majorant.exchange.clipped_links import clip_links
from majorant.exchange.network import Network, Topology
from majorant.exchange.places import Crossing, Places, crossing, reach
from majorant.math.checks import check_whole

JOINING_STREAM = 0x6055
STACKED = View(0, None, None, None, 0, None, None)  # type: ignore[arg-type]  # what differs between nodes' views


class Gossip(NamedTuple):
    """A network of peers, for any number of them."""

    topology: Topology
    scaling: str = "sizes"
    start: str = "same"
    contacts: int = 3
    combine: Combine | None = None

    @property
    def name(self) -> str:
        """For messages."""
        return f"gossip on {self.topology.name}"

    def title(self, algorithm: str) -> str:
        """What the algorithm is called with this exchange."""
        return f"d-{algorithm}" if self.combine is None else f"d-{algorithm}, {self.combine.name}"

    def bind(self, algorithm: Algorithm, training: np.ndarray) -> Peers:
        """The exchange among the clients in these slots; refuses an algorithm whose uploads cannot be mixed."""
        reason = None
        if algorithm.traits.reads != "sum":
            reason = "its server must see every client's upload side by side"
        elif not algorithm.traits.points and algorithm.server.consensus is None:
            reason = "its clients do not send points: nothing that they send can be averaged with the neighbours'"
        if reason:
            raise ValueError(f"{algorithm.name} cannot run without a server: {reason}")
        return bound(self, np.asarray(training, np.int64).tobytes())


@functools.cache
def gossip(
    topology: Topology,
    *,
    scaling: str = "sizes",
    start: str = "same",
    contacts: int = 3,
    combine: Combine | None = None,
) -> Gossip:
    """Peers on a network instead of a server.

    ``scaling`` "sizes" multiplies displacements by T · n_t / n; "none" leaves them as they are, as the paper's released
    code does (every node then counts the same). ``start`` "same" starts all nodes at one random point (they share a
    seed), "own" each at its own: a mixture's components then have different meanings on different nodes at first. A
    client that joins later starts from the mean of the models of ``contacts`` nodes drawn at random. ``combine`` is for
    hostile peers: `robust.self_centered_clip`, in place of the plain averages.

    >>> import majorant as mj
    >>> data = mj.data.synthetic_mixture(clients=10, dimension=5, seed=0)
    >>> algorithm = mj.fedem(mj.models.linear(data), components=2)
    >>> run = mj.simulate(algorithm, data, rounds=5, exchange=mj.gossip(mj.topology.ring()))
    >>> run.summary()["algorithm"], run.history[-1]["consensus_distance"] > 0
    ('d-fedem', True)
    """
    if not isinstance(topology, Topology):
        raise ValueError(f"expected a topology, such as mj.topology.ring(), got {topology!r}")
    if scaling not in ("sizes", "none"):
        raise ValueError(f"scaling must be 'sizes' or 'none', got {scaling!r}")
    if start not in ("same", "own"):
        raise ValueError(f"start must be 'same' or 'own', got {start!r}")
    check_whole("contacts", contacts)
    if combine is not None and not combine.peers:
        raise ValueError(
            f"{combine.name} is a server's rule, which needs all uploads in one place: peers have self-centered-clip"
        )
    return Gossip(topology, scaling, start, contacts, combine)


@functools.lru_cache(maxsize=64)
def bound(spec: Gossip, slots: bytes, homes: bytes | None = None, devices: int = 1) -> Peers:
    """The same object for the same clients, because compiled programs are remembered by it."""
    dealt = None if homes is None else np.frombuffer(homes, np.int64)
    return Peers(spec, np.frombuffer(slots, np.int64), dealt, devices)


class Peers:
    """Clients that gossip: node i is the client in slot ``slots[i]``, and holds a server's value and state.

    On several devices node i is on device ``homes[i]``, with its client (`places`). Values with an axis of nodes have
    one of the rows of this device then.
    """

    def __init__(self, spec: Gossip, slots: np.ndarray, homes: np.ndarray | None = None, devices: int = 1) -> None:
        self.spec, self.slots, self.count = spec, slots, len(slots)
        self.places = Places(self.count, homes, devices)
        self.name, self.title = spec.name, spec.title
        self.network: Network = spec.topology.build(self.count)
        validate(self.network)
        self.node = np.zeros(int(slots.max()) + 1, np.int32)  # the row of a slot's node
        self.node[slots] = self.places.row

    @functools.cached_property
    def facts(self) -> Properties:
        """What the network is like."""
        return inspect(self.network)

    @functools.cached_property
    def crossing(self) -> Crossing | None:
        """The rows that devices send each other in a round, where these are few."""
        return crossing(self.places, self.network)

    def dealt(self, homes: np.ndarray, devices: int) -> Peers:
        """The same peers on several devices."""
        return bound(self.spec, self.slots.tobytes(), np.asarray(homes, np.int64).tobytes(), devices)

    @property
    def whole(self) -> Peers:
        """The same peers on one device."""
        return self if self.places.axis is None else bound(self.spec, self.slots.tobytes())

    def stacks(self, algorithm: Algorithm) -> bool:
        """Uploads are mixed side by side."""
        return True

    def stacked(self, parts: Any, slots: Any, clients: int, axis: Axis) -> Any:
        """What clients sent, in the rows of their nodes (fillers, with slot −1, are dropped): of those here or, where
        nodes are not dealt over the devices, of all."""
        rows = [jnp.where(slot < 0, -1, jnp.asarray(self.node)[slot]) for slot in slots]
        here = stack_rows(parts, rows, self.places.rows)
        return here if self.places.axis is not None else collectives.total(here, axis)

    def everywhere(self, flag: jax.Array) -> jax.Array:
        """Whether something holds for the nodes of all devices."""
        return collectives.everywhere(flag, self.places.axis)

    def start(self, algorithm: Algorithm, key: Key) -> Server:
        """What the nodes hold before round 1: values and states have an axis of nodes."""
        one = algorithm.server.init(key)
        rows = self.places.rows
        value, state = jax.tree.map(lambda a: jnp.broadcast_to(a, (rows, *jnp.shape(a))), (one.value, one.state))
        if self.spec.start == "own":
            each = jax.vmap(algorithm.server.init)(jax.random.split(key, self.count)[self.places.nodes])
            value, state = each.value, each.state
        return one._replace(value=value, state=state)

    def each(self, function: Any, server: Server, *others: Tree) -> Any:
        """A function of every node's server."""
        at = lambda value, state, *others: function(server._replace(value=value, state=state), *others)
        return jax.vmap(at)(server.value, server.state, *others)

    def ask(self, algorithm: Algorithm, view: View, state: Tree, data: ClientData, key: Key) -> Answer:
        """A node's answer to the method's question, and the weight that its uploads will have."""
        weight = algorithm.client.update(view, state, data, key)[0].weight
        own = algorithm.setup.ask(view, state, data, key) if algorithm.setup else Answer((), weight)
        summed = jax.tree.map(lambda v: own.weight.astype(v.dtype) * v, own.value)
        return Answer((summed, own.weight, weight), jnp.ones_like(weight), own.largest)

    def answered(self, algorithm: Algorithm, server: Server, answers: Answer | None) -> Server:
        """Every node with all answers, and with the mean weight."""
        assert answers is not None
        summed, own_weight, weight = answers.value
        mean = weight / jnp.maximum(answers.weight, 1)
        mean = jnp.where(mean > 0, mean, 1).astype(jnp.result_type(server.terms.mean_weight))
        server = server._replace(terms=server.terms._replace(mean_weight=mean))
        if algorithm.setup is None:
            return server
        own = Answer(summed, own_weight, answers.largest)
        new = self.each(lambda one: algorithm.setup.start(one, own), server)
        return server._replace(value=new.value, state=new.state, hyper=row(new.hyper, 0))  # all know the same answers

    def broadcast(self, algorithm: Algorithm, server: Server, key: Key) -> View:
        """The views of all nodes: what each one's replica of the server would send."""
        return self.views(algorithm.server.broadcast, server, key)

    def release(self, algorithm: Algorithm, server: Server, key: Key) -> View:
        """The views of all nodes for deployment."""
        return self.views(algorithm.release, server, key)

    def views(self, broadcast: Any, server: Server, key: Key) -> View:
        """Views with an axis of nodes in the value and in what is shared."""
        at = lambda value, state: broadcast(server._replace(value=value, state=state), key)
        return jax.vmap(at, out_axes=STACKED)(server.value, server.state)

    def seen(self, algorithm: Algorithm, view: View, slot: Any) -> View:
        """A node's own view."""
        node = jnp.asarray(self.node)[slot]
        return view._replace(value=row(view.value, node), shared=row(view.shared, node))

    def everybody(self, view: View) -> View:
        """The views of the nodes of all devices."""
        return view._replace(value=self.places.everybody(view.value), shared=self.places.everybody(view.shared))

    def newcomer(self, algorithm: Algorithm, view: View, key: Key) -> View:
        """The mean of the points of some contacts."""
        reached = jax.random.permutation(jax.random.fold_in(key, JOINING_STREAM), self.count)[: self.spec.contacts]
        value = mean_of(jax.tree.map(lambda v: v[reached], view.value))
        return view._replace(value=value, shared=row(view.shared, reached[0]))

    def finish(
        self,
        algorithm: Algorithm,
        server: Server,
        view: View,
        uploads: Uploads,
        heard: jax.Array,
        barren: jax.Array,
        key: Key,
    ) -> tuple[Server, jax.Array]:
        """Every node's step on what it received, and how many messages there were."""
        weights, sent_one = uploads.weight, heard  # a node without samples talks, too
        # Where links are one-sided, everybody must take part to keep the mean: a rejected upload is a step not made.
        present = sent_one if self.network.symmetric else self.places.real
        mean_weight = server.terms.mean_weight
        factor = weights / mean_weight if self.spec.scaling == "sizes" else jnp.ones_like(weights)
        origin = jax.vmap(algorithm.client.origin, in_axes=(STACKED,))(view)
        own = uploads.value
        if str(jax.tree.structure(origin)) != str(jax.tree.structure(own)):
            raise ValueError(
                f"{algorithm.name} cannot gossip: what it sends is not a point like the one it starts from"
            )
        reached = jax.tree.map(
            lambda o, v: jnp.where(beside(sent_one, v), (o + beside(factor, v) * (v - o)).astype(v.dtype), o),
            origin,
            own,
        )
        number = server.round + 1
        mixing = self.network.draw(key, number)
        lens = algorithm.server.consensus
        held = () if lens is None else self.each(lens.get, server)
        combine, there = self.spec.combine, self.places.everybody(present)
        used = mixing if combine is None else clip_links(mixing, (reached, held), there, combine.radius)
        mixed, agreed = used.mix((reached, held), there, reach(self.places, self.crossing))
        total = self.count * mean_weight  # as if every node had been averaged: what a full round sums up to

        def update(one: Server, view: View, mean: Tree, agreed: Tree, present: jax.Array) -> tuple[Tree, Tree]:
            here = one if lens is None else lens.put(one, agreed)
            summed = jax.tree.map(lambda m: m * total.astype(m.dtype), mean)
            new = algorithm.server.update(here, view, Uploads(summed, total))
            return select(present, (new.value, new.state), (one.value, one.state))

        at = lambda value, state, *others: update(server._replace(value=value, state=state), *others)
        axes = (0, 0, STACKED, 0, 0, 0)
        value, state = jax.vmap(at, in_axes=axes)(server.value, server.state, view, mixed, agreed, present)
        return server._replace(value=value, state=state), mixing.messages(there)

    def diagnostics(self, algorithm: Algorithm) -> Diagnostics:
        """The algorithm's own, at the mean of all nodes' points and with each client's own state.

        Without scaling by sizes another objective is minimised, in which every node counts the same: that one is
        measured. The log says how far nodes are from agreement.
        """
        own, count, places = algorithm.diagnostics, self.count, self.places

        def consensus(server: Server) -> dict[str, jax.Array]:
            value = server.value if algorithm.traits.points else self.each(algorithm.server.consensus.get, server)  # type: ignore[union-attr]
            off = jax.tree.map(jnp.subtract, value, places.mean(value))
            off = jax.tree.map(lambda a: jnp.where(beside(places.real, a), a, 0), off)
            return {"consensus_distance": collectives.total(squared_norm(off), places.axis) / count}

        if own.measure is None:
            return Diagnostics(log=consensus)
        floats = lambda a: places.mean(a) if jnp.issubdtype(a.dtype, jnp.inexact) else a[0]
        centre = lambda server: server._replace(
            value=places.mean(server.value), state=jax.tree.map(floats, server.state)
        )
        equal = lambda data: (data.size > 0).astype(jnp.result_type(float))
        return own._replace(
            log=consensus,
            measure=lambda view, state, data, key: own.measure(  # type: ignore[misc]
                view._replace(value=places.mean(view.value), shared=row(view.shared, 0)), state, data, key
            ),
            conclude=lambda server, mean: own.conclude(centre(server), mean),
            weight=own.weight if self.spec.scaling == "sizes" else equal,
        )


def row(tree: Tree, index: Any) -> Tree:
    """One node's part of a stacked tree."""
    return jax.tree.map(lambda a: a[index], tree)


def mean_of(tree: Tree) -> Tree:
    """The mean over nodes of a stacked tree."""
    return jax.tree.map(lambda a: a.mean(axis=0), tree)
