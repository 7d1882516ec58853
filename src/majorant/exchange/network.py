"""A network: a topology laid out on n nodes, and how fixed weights, failing links and turns are laid out.

`Network.draw(key, round)` gives the weights of a round as traced arrays. Rounds are counted from 1.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import scipy

from majorant.core import Key
from majorant.exchange.graphs import tidy
from majorant.exchange.mixing import Dense, Mixing, Table

DENSE_NODES = 2048  # a matrix of this size takes 16 MB
TABLE_PLACES = 20_000_000  # nodes × most neighbours of a node: 160 MB
SPARSE = 16  # a table is the faster form where a node has at most n / SPARSE neighbours


class Network(NamedTuple):
    """A topology on a number of nodes."""

    nodes: int
    draw: Callable[[Key, jax.Array | int], Mixing]  # traced: the key of a round and its number -> its weights
    symmetric: bool
    period: int  # the rounds over which the links join all nodes: τ in Assumption 8 of FedEM
    varying: bool  # whether the weights differ from round to round
    edges: np.ndarray  # (E, 2): the undirected links, for pictures; of the first `period` rounds where they vary
    random: bool = False  # whether the weights depend on the key
    exchangeable: bool = False  # whether all nodes are alike, and every pair may meet
    closed: bool = False  # whether there are never other links than `edges`


class Topology(NamedTuple):
    """A way to link any number of nodes. The same number gives the same network, as programs are remembered by it."""

    name: str
    build: Callable[[int], Network]


def topology(name: str, lay_out: Callable[[int], Network], *, link_failure: float = 0.0) -> Topology:
    """A topology from a function of the number of nodes, with links that may fail."""
    if not 0 <= link_failure < 1:
        raise ValueError(f"the probability that a link fails must be in [0, 1), got {link_failure}")

    @functools.cache
    def build(nodes: int) -> Network:
        if nodes < 1:
            raise ValueError(f"a network has at least one node, got {nodes}")
        network = lay_out(nodes)
        return failing(network, link_failure, name) if link_failure else network

    return Topology(name, build)


def failing(network: Network, probability: float, name: str) -> Network:
    """Each undirected link fails on its own in each round with a probability."""
    if not network.symmetric:
        raise ValueError(
            f"link_failure needs symmetric weights, and those of {name!r} are not: without one direction of an "
            "exchange the mean over the nodes would change"
        )
    # Keys of their own, so that failures inside a sequence and of the sequence are independent.
    draw = lambda key, round: network.draw(jax.random.fold_in(key, 1), round).fail(
        jax.random.fold_in(key, 2), probability
    )
    return network._replace(draw=draw, varying=True, random=True)


def fixed(weights: scipy.sparse.csr_array, name: str, symmetric: bool = True) -> Network:
    """The same weights in every round; a table for sparse graphs, a matrix for small dense ones."""
    nodes = weights.shape[0]
    links = scipy.sparse.coo_array(weights)
    links.eliminate_zeros()
    away = links.row != links.col
    i, j, value = links.row[away], links.col[away], links.data[away]
    degree = np.bincount(i, minlength=nodes)
    most = int(degree.max(initial=0))
    form = Dense if SPARSE * most > nodes and nodes <= DENSE_NODES else Table
    if form is Table and nodes * most > TABLE_PLACES:
        raise ValueError(
            f"{name!r} on {nodes} nodes is too large: a node has {most} neighbours, and nodes × neighbours may be at "
            f"most {TABLE_PLACES} above {DENSE_NODES} nodes. Take a sparse topology such as torus or exponential; "
            "a star or a complete graph of this size is what training with a server is for"
        )
    parts: tuple[np.ndarray, ...] = (weights.toarray(),) if form is Dense else neighbour_table(i, j, value, weights)
    dtypes = (float,) if form is Dense else (int, float, float)

    def draw(key: Key, round: jax.Array | int) -> Mixing:
        arrays = [jnp.asarray(part, jnp.result_type(dtype)) for part, dtype in zip(parts, dtypes, strict=True)]
        return form(*arrays)

    return Network(nodes, draw, symmetric, 1, False, tidy(np.stack([i, j], axis=1)), closed=True)


def neighbour_table(
    i: np.ndarray, j: np.ndarray, value: np.ndarray, weights: scipy.sparse.csr_array
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Index, weight and own weight from the links i → j and their values."""
    order = np.lexsort((j, i))
    i, j, value = i[order], j[order], value[order]
    degree = np.bincount(i, minlength=weights.shape[0])
    place = np.arange(len(i)) - np.repeat(np.cumsum(degree) - degree, degree)
    index = np.repeat(np.arange(len(degree))[:, None], max(1, degree.max(initial=0)), axis=1)
    weight = np.zeros(index.shape)
    index[i, place], weight[i, place] = j, value
    return index, weight, weights.diagonal()


def alternating(networks: Sequence[Network]) -> Network:
    """Round r uses the r-th network, in turns; each counts its own rounds."""
    turns, nodes = len(networks), networks[0].nodes
    example = [jax.eval_shape(network.draw, jax.random.key(0), 1) for network in networks]
    places = max(m.index.shape[1] if isinstance(m, Table) else nodes for m in example)
    as_tables = all(isinstance(m, Table) for m in example)
    if not as_tables and nodes > DENSE_NODES:
        raise ValueError(f"a sequence of dense topologies takes at most {DENSE_NODES} nodes, got {nodes}")

    def drawn(network: Network) -> Callable[[Key, jax.Array], Mixing]:
        def draw(key: Key, round: jax.Array) -> Mixing:
            mixing = network.draw(key, round)
            return mixing.widen(places) if as_tables and isinstance(mixing, Table) else mixing.dense()

        return draw

    branches = [drawn(network) for network in networks]

    def draw(key: Key, round: jax.Array | int) -> Mixing:
        past = jnp.asarray(round, jnp.int32) - 1
        return jax.lax.switch(past % turns, branches, key, past // turns + 1)

    return Network(
        nodes=nodes,
        draw=draw,
        symmetric=all(network.symmetric for network in networks),
        period=turns * math.lcm(*(network.period for network in networks)),
        varying=turns > 1 or networks[0].varying,
        edges=tidy(np.concatenate([network.edges for network in networks])),
        random=any(network.random for network in networks),
        exchangeable=all(network.exchangeable for network in networks),
        closed=all(network.closed for network in networks),
    )
