"""Topologies: who exchanges models with whom in gossip learning, and with which weights.

The same arguments give the same object, because compiled programs are remembered by it. ``weights`` are "metropolis",
which every node can compute from its own degree and its neighbours', or "fastest" (`majorant[graphs]`), which mixes the
soonest on the given links. With ``link_failure`` every link fails in each round with that probability.

>>> network = one_peer_exponential().build(4)
>>> network.draw(jax.random.key(0), 1).dense().weights[0]
Array([0.5, 0.5, 0. , 0. ], dtype=float32)
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, get_args

import jax
import jax.numpy as jnp
import numpy as np
import scipy

from majorant._syntax import format_name, format_value
from majorant.core import Key
from majorant.core.compilation import jit
from majorant.exchange import graphs
from majorant.exchange.analysis import as_matrix, check_weights
from majorant.exchange.fastest_mixing import fastest_mixing_weights
from majorant.exchange.mixing import Dense, Mixing, Table
from majorant.exchange.network import DENSE_NODES, Network, Topology, alternating, fixed, topology

__all__ = ["Network", "Topology", "complete", "erdos_renyi", "exponential", "from_edges", "from_matrix",
           "matching", "one_peer_exponential", "read_edges", "ring", "sequence", "star", "torus"]  # fmt: skip

Weights = Literal["metropolis", "fastest"]
GRAPH_STREAM = 0xFFFF_FFFF  # nodes are counted from 0 and never get this far


@functools.cache
def ring(*, weights: Weights = "metropolis", link_failure: float = 0.0) -> Topology:
    """A circle: every node exchanges with the one before and the one after it.

    >>> ring().build(4).edges.tolist()
    [[0, 1], [0, 3], [1, 2], [2, 3]]
    """
    return _graph("ring", graphs.ring_links, weights, link_failure)


@functools.cache
def torus(*, weights: Weights = "metropolis", link_failure: float = 0.0) -> Topology:
    """A grid whose opposite borders meet, as square as possible: four neighbours each.

    >>> torus().build(6).edges.tolist()  # 2 × 3: where a side is 2, both neighbours are one
    [[0, 1], [0, 2], [0, 3], [1, 2], [1, 4], [2, 5], [3, 4], [3, 5], [4, 5]]
    """
    return _graph("torus", graphs.torus_links, weights, link_failure)


@functools.cache
def star(*, weights: Weights = "metropolis", link_failure: float = 0.0) -> Topology:
    """Node 0 in the middle, linked to all others.

    >>> star().build(4).edges.tolist()
    [[0, 1], [0, 2], [0, 3]]
    """
    return _graph("star", graphs.star_links, weights, link_failure)


@functools.cache
def exponential(*, weights: Weights = "metropolis", link_failure: float = 0.0) -> Topology:
    """Nodes in a circle, linked to those 1, 2, 4, 8, ... places away on both sides.

    >>> len(exponential().build(16).edges)  # of 120 pairs
    56
    """
    return _graph("exponential", graphs.exponential_links, weights, link_failure)


@functools.cache
def complete(*, link_failure: float = 0.0) -> Topology:
    """Everybody with everybody, all weights 1/n: a round is the plain mean, as with a server.

    >>> len(complete().build(4).edges)
    6
    """

    def lay_out(nodes: int) -> Network:
        if nodes > DENSE_NODES:
            raise ValueError(f"a complete graph takes at most {DENSE_NODES} nodes, got {nodes}: training with a server "
                             "gives the same mean")  # fmt: skip
        return fixed(scipy.sparse.csr_array(np.full((nodes, nodes), 1 / nodes)), "complete")

    return topology(_name("complete", link_failure=link_failure), lay_out, link_failure=link_failure)


@functools.cache
def erdos_renyi(
    p: float, *, seed: int = 0, varying: bool = False, weights: Weights = "metropolis", link_failure: float = 0.0
) -> Topology:
    """Every link exists with probability p: drawn once from ``seed``, or in every round anew if ``varying``.

    A graph that is drawn once must be connected. One that varies need not be in any single round.

    >>> erdos_renyi(0.5, varying=True).name
    'erdos-renyi:0.5,varying=true'
    """
    if not 0 < p <= 1:
        raise ValueError(f"the probability of a link must be in (0, 1], got {p}")
    if varying and weights != "metropolis":
        raise ValueError(f"a graph that varies has metropolis weights, as {weights!r} ones need a solver in each round")
    name = _name("erdos-renyi", p, seed=seed, varying=varying, weights=weights, link_failure=link_failure)

    def links(nodes: int) -> np.ndarray:
        found = graphs.erdos_renyi_links(nodes, p, seed)
        if not graphs.connected(found, nodes):
            raise ValueError(
                f"the Erdős–Rényi graph with p = {p}, {nodes} nodes and seed {seed} is not connected; graphs of this "
                f"size usually are for p well above log(n)/n = {math.log(nodes) / nodes:.3g}: take a larger p, another "
                "seed, or varying=true"
            )
        return found

    def lay_out(nodes: int) -> Network:
        if nodes > DENSE_NODES:
            raise ValueError(f"an Erdős–Rényi graph that varies takes at most {DENSE_NODES} nodes, got {nodes}")

        above = np.triu(np.ones((nodes, nodes), bool), 1)

        def draw(key: Key, round: jax.Array | int) -> Mixing:
            coins = jax.random.bernoulli(jax.random.fold_in(key, jnp.uint32(GRAPH_STREAM)), p, (nodes, nodes))
            upper = coins & above  # `jnp.triu` would compile the places for themselves
            linked = upper | upper.T
            degree = linked.sum(axis=1)
            away = jnp.where(linked, 1 / (1 + jnp.maximum(degree[:, None], degree[None, :])), 0)
            return Dense(away + jnp.diag(1 - away.sum(axis=1)))

        return _random(nodes, draw)

    if varying:
        return topology(name, lay_out, link_failure=link_failure)
    return _graph(name, links, weights, link_failure, named=True)


@functools.cache
def one_peer_exponential(*, link_failure: float = 0.0) -> Topology:
    """Every node averages with one other, which is 1, 2, 4, ... places further on in a circle, in turns.

    Weights are not symmetric: a node receives from one and sends to another. For n = 2^k nodes all of them have the
    exact mean after k rounds.
    """
    if link_failure:
        raise ValueError("link_failure needs symmetric weights, and those of 'one-peer-exponential' are not: without "
                         "one direction of an exchange the mean over the nodes would change")  # fmt: skip

    def lay_out(nodes: int) -> Network:
        period, share = graphs.doublings(nodes), 0.5 if nodes > 1 else 0.0

        def draw(key: Key, round: jax.Array | int) -> Mixing:
            jump = jnp.left_shift(1, (jnp.asarray(round, jnp.int32) - 1) % period)
            half = jnp.full(nodes, share, jnp.result_type(float))
            return Table(((jnp.arange(nodes) + jump) % nodes)[:, None], half[:, None], 1 - half)

        return Network(nodes, draw, False, period, period > 1, graphs.exponential_links(nodes), closed=True)

    return topology("one-peer-exponential", lay_out)


@functools.cache
def matching(*, link_failure: float = 0.0) -> Topology:
    """Random pairs average with each other, new ones in each round; an odd number leaves one node alone.

    >>> matching().name
    'matching'
    """

    def lay_out(nodes: int) -> Network:
        pairs = nodes // 2

        def draw(key: Key, round: jax.Array | int) -> Mixing:
            order = jax.random.permutation(jax.random.fold_in(key, jnp.uint32(GRAPH_STREAM)), nodes)
            first, second = order[:pairs], order[pairs : 2 * pairs]
            partner = jnp.arange(nodes).at[first].set(second).at[second].set(first)
            share = jnp.where(partner == jnp.arange(nodes), 0.0, 0.5).astype(jnp.result_type(float))
            return Table(partner[:, None], share[:, None], 1 - share)

        return _random(nodes, draw)

    return topology(_name("matching", link_failure=link_failure), lay_out, link_failure=link_failure)


def from_edges(
    edges: Any, nodes: int | None = None, *, weights: Weights = "metropolis", link_failure: float = 0.0
) -> Topology:
    """Your own links: pairs of node numbers from 0, each link once or in both directions.

    ``nodes`` fixes their number; without it, any number that covers the links will do.

    >>> from_edges([(0, 1), (1, 2)]).build(3).edges.tolist()
    [[0, 1], [1, 2]]
    """
    links = graphs.checked_links(edges)
    return _from_edges("", links.tobytes(), nodes, weights, link_failure)


def read_edges(
    path: str, nodes: int | None = None, *, weights: Weights = "metropolis", link_failure: float = 0.0
) -> Topology:
    """Your own links, from a CSV file of two columns of node numbers."""
    return _from_edges(str(Path(path)), graphs.read_links(path).tobytes(), nodes, weights, link_failure)


@functools.cache
def _from_edges(path: str, links: bytes, nodes: int | None, weights: Weights, link_failure: float) -> Topology:
    def found(count: int) -> np.ndarray:
        if nodes is not None and count != nodes:
            raise ValueError(f"the links were given for {nodes} nodes, not for {count}")
        given = graphs.within(np.frombuffer(links, np.int64).reshape(-1, 2), count)
        if not graphs.connected(given, count):
            raise ValueError(f"the links do not connect all {count} nodes: {graphs.unreached(given, count)}")
        return given

    if nodes is not None:
        found(nodes)  # mistakes are told at once
    bare = (path,) if path else ()
    name = _name("edges" if path else "from-edges", *bare, nodes=nodes, weights=weights, link_failure=link_failure)
    return _graph(name, found, weights, link_failure, named=True)


def from_matrix(matrix: Any, *, link_failure: float = 0.0) -> Topology:
    """Your own weights: a matrix, or a SciPy sparse one, that is non-negative with rows and columns summing to 1.

    >>> from_matrix([[0.5, 0.5], [0.5, 0.5]]).build(2).symmetric
    True
    """
    stored = scipy.sparse.issparse(matrix)
    given = scipy.sparse.csr_array(matrix if stored else np.atleast_2d(np.asarray(matrix, float)))
    given.sum_duplicates()
    given.eliminate_zeros()
    check_weights(given, "the matrix")
    key = tuple(np.ascontiguousarray(part).tobytes() for part in (given.indptr, given.indices, given.data))
    return _from_matrix(*key, given.indices.dtype.str, link_failure)


@functools.cache
def _from_matrix(indptr: bytes, indices: bytes, data: bytes, integer: str, link_failure: float) -> Topology:
    parts = [np.frombuffer(part, dtype) for part, dtype in ((data, float), (indices, integer), (indptr, integer))]
    size = len(parts[2]) - 1
    weights = scipy.sparse.csr_array(tuple(parts), shape=(size, size))
    symmetric = abs(weights - weights.T).max() <= 1e-6

    def lay_out(nodes: int) -> Network:
        if nodes != size:
            raise ValueError(f"the matrix has weights for {size} nodes, not for {nodes}")
        return fixed(weights, "from-matrix", bool(symmetric))

    made = topology(_name("from-matrix", link_failure=link_failure), lay_out, link_failure=link_failure)
    made.build(size)  # mistakes are told at once
    return made


@functools.cache
def sequence(*topologies: Topology, link_failure: float = 0.0) -> Topology:
    """Topologies that take turns: round 1 uses the first, round 2 the second, and so on in a circle.

    >>> sequence(ring(), erdos_renyi(0.5)).name
    'sequence:ring+erdos-renyi:0.5'
    """
    if not topologies:
        raise ValueError("a sequence needs at least one topology")
    name = "sequence:" + "+".join(format_value(each.name) for each in topologies)
    name += f",link_failure={format_value(link_failure)}" if link_failure else ""
    lay_out = lambda nodes: alternating([each.build(nodes) for each in topologies])
    return topology(name, lay_out, link_failure=link_failure)


def _graph(
    name: str, links: Callable[[int], np.ndarray], weights: str, link_failure: float, named: bool = False
) -> Topology:
    if weights not in get_args(Weights):
        raise ValueError(f"weights are 'metropolis' or 'fastest', got {weights!r}")
    name = name if named else _name(name, weights=weights, link_failure=link_failure)

    def lay_out(nodes: int) -> Network:
        found = links(nodes)
        if weights == "fastest":
            return fixed(scipy.sparse.csr_array(fastest_mixing_weights(found, nodes)), name)
        return fixed(graphs.weight_matrix(found, graphs.metropolis(found, nodes), nodes), name)

    return topology(name, lay_out, link_failure=link_failure)


def _random(nodes: int, draw: Callable[[Key, jax.Array | int], Mixing]) -> Network:
    with jax.ensure_compile_time_eval():
        sample = as_matrix(jit(draw)(jax.random.key(0), 1))
    return Network(nodes, draw, True, 1, True, graphs.tidy(np.stack(sample.nonzero(), axis=1)), True, True)


def _name(name: str, *bare: Any, **options: Any) -> str:
    usual = {"seed": 0, "varying": False, "weights": "metropolis", "link_failure": 0.0, "nodes": None}
    changed = {key: value for key, value in options.items() if value != usual[key]}
    return format_name(name, dict(enumerate(bare)) | changed)
