"""Graphs: which nodes are linked, as arrays of undirected links ``(E, 2)`` in NumPy, and Metropolis weights on them."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import scipy


def tidy(links: Any) -> np.ndarray:
    """Links ``(E, 2)``, each once, the smaller node first, in order; loops are left out.

    >>> tidy([(2, 1), (1, 2), (0, 1), (3, 3)]).tolist()
    [[0, 1], [1, 2]]
    """
    links = np.sort(np.asarray(links, np.int64).reshape(-1, 2), axis=1)
    low, high = links[links[:, 0] != links[:, 1]].T
    size = int(high.max(initial=0)) + 1
    first = int(low.min(initial=0))  # below 0 where a user's links are wrong
    code = np.unique((low - first) * (size - first) + high - first)
    return np.stack(np.divmod(code, size - first), axis=1) + first


def shifts(nodes: int, distances: Iterable[int]) -> np.ndarray:
    """Nodes in a circle, linked to those at given distances."""
    i = np.arange(nodes)
    return tidy(np.concatenate([np.stack([i, (i + d) % nodes], axis=1) for d in distances]))


def ring_links(nodes: int) -> np.ndarray:
    """A circle."""
    return shifts(nodes, [1])


def exponential_links(nodes: int) -> np.ndarray:
    """Links to the nodes 1, 2, 4, 8, ... further on in a circle."""
    return shifts(nodes, [2**j for j in range(doublings(nodes))])


def doublings(nodes: int) -> int:
    """The rounds in which a message that doubles its reach gets everywhere: log2 n, rounded up, at least 1.

    >>> [doublings(n) for n in (1, 2, 3, 4, 5, 8)]
    [1, 1, 2, 2, 3, 3]
    """
    return max(1, (nodes - 1).bit_length())


def torus_shape(nodes: int) -> tuple[int, int]:
    """Rows and columns of a torus, as square as the number of nodes allows.

    >>> torus_shape(12), torus_shape(100)
    ((3, 4), (10, 10))
    """
    rows = next(r for r in range(math.isqrt(nodes), 0, -1) if nodes % r == 0)
    if rows == 1:
        raise ValueError(
            f"a torus needs a number of nodes that is rows × columns, both at least 2, and {nodes} has no such "
            "factors: take another number of nodes, or a ring"
        )
    return rows, nodes // rows


def torus_links(nodes: int) -> np.ndarray:
    """A grid whose opposite borders meet."""
    place = np.arange(nodes).reshape(torus_shape(nodes))
    right, below = np.roll(place, -1, axis=1), np.roll(place, -1, axis=0)
    return tidy(np.concatenate([np.stack([place, right], -1), np.stack([place, below], -1)]))


def star_links(nodes: int) -> np.ndarray:
    """Node 0 in the middle, linked to all others."""
    return tidy([(0, i) for i in range(1, nodes)])


def erdos_renyi_links(nodes: int, p: float, seed: int) -> np.ndarray:
    """Every link is drawn with probability p; node by node, so that memory is bounded by the links."""
    generator = np.random.default_rng(seed)
    after = [i + 1 + np.flatnonzero(generator.random(nodes - 1 - i) < p) for i in range(nodes)]
    return np.stack([np.repeat(np.arange(nodes), [len(a) for a in after]), np.concatenate(after)], axis=1)


def connected(links: np.ndarray, nodes: int) -> bool:
    """Whether every node can be reached from every other."""
    adjacency = scipy.sparse.coo_array((np.ones(len(links)), (links[:, 0], links[:, 1])), shape=(nodes, nodes))
    return bool(scipy.sparse.csgraph.connected_components(adjacency, directed=False)[0] == 1)


def unreached(links: np.ndarray, nodes: int) -> str:
    """Which nodes cannot be reached from node 0, for messages."""
    adjacency = scipy.sparse.coo_array((np.ones(len(links)), (links[:, 0], links[:, 1])), shape=(nodes, nodes))
    return parts(scipy.sparse.csgraph.connected_components(adjacency, directed=False)[1])


def parts(label: np.ndarray) -> str:
    """In how many parts the nodes lie, given the part of each, and which are cut off from node 0.

    >>> parts(np.array([0, 0, 1, 1]))
    'they lie in 2 parts, and from node 0 there is no way to and from nodes 2, 3'
    """
    away = np.flatnonzero(label != label[0])
    return f"they lie in {label.max() + 1} parts, and from node 0 there is no way to and from nodes {some(away)}"


def metropolis(links: np.ndarray, nodes: int) -> np.ndarray:
    """The Metropolis weight of each link: 1 / (1 + the larger degree of its two nodes).

    >>> metropolis(np.array([[0, 1], [1, 2]]), 3).round(3).tolist()
    [0.333, 0.333]
    """
    degree = np.bincount(links.ravel(), minlength=nodes)
    return 1 / (1 + degree[links].max(axis=1, initial=0))


def weight_matrix(links: np.ndarray, weight: np.ndarray, nodes: int) -> scipy.sparse.csr_array:
    """The symmetric W with these weights on the links; a node's own weight is what is left of 1."""
    i, j = links.T
    total = np.bincount(i, weight, nodes) + np.bincount(j, weight, nodes)
    rows, columns = np.concatenate([i, j, np.arange(nodes)]), np.concatenate([j, i, np.arange(nodes)])
    values = np.concatenate([weight, weight, np.maximum(1 - total, 0)])  # 1 - total may be -1e-16
    return scipy.sparse.csr_array(scipy.sparse.coo_array((values, (rows, columns)), shape=(nodes, nodes)))


def checked_links(links: Any) -> np.ndarray:
    """A user's pairs of node numbers, each link once."""
    try:
        pairs = np.asarray(links)
        if pairs.size == 0:
            return np.zeros((0, 2), np.int64)
        whole = np.asarray(pairs, np.int64)
        right = pairs.ndim == 2 and pairs.shape[1] == 2 and bool((whole == pairs).all())
    except (TypeError, ValueError, OverflowError):
        right = False
    if not right:
        raise ValueError("links are pairs of node numbers, such as [(0, 1), (1, 2)]")
    loops = np.unique(whole[whole[:, 0] == whole[:, 1], 0])
    if len(loops):
        raise ValueError(f"nodes are not linked to themselves, as {some(loops)} here: own weights need no link")
    return tidy(whole)


def within(links: np.ndarray, nodes: int) -> np.ndarray:
    """The links, all of whose nodes must exist."""
    unknown = np.unique(links[(links < 0) | (links >= nodes)])
    if len(unknown):
        raise ValueError(f"the links name nodes that do not exist: {some(unknown)}; nodes go from 0 to {nodes - 1}")
    return links


def some(values: np.ndarray, most: int = 5) -> str:
    """The first few values, for messages.

    >>> some(np.arange(7))
    '0, 1, 2, 3, 4 and 2 more'
    """
    rest = len(values) - most
    return ", ".join(str(v) for v in values[:most].tolist()) + (f" and {rest} more" if rest > 0 else "")


def read_links(path: str | Path) -> np.ndarray:
    """The links in a CSV file of two columns of node numbers; a first line of names is skipped, as are empty lines."""
    links: list[tuple[int, int]] = []
    try:
        with open(path, newline="", encoding="utf-8-sig") as file:
            rows = [(line, [cell.strip() for cell in row]) for line, row in enumerate(csv.reader(file), 1)]
    except (UnicodeDecodeError, csv.Error) as error:
        raise ValueError(f"{path} is not a readable CSV file: {error}") from None
    filled = [(line, row) for line, row in rows if any(row)]
    if not filled:
        raise ValueError(f"{path} is empty: expected two columns of node numbers")
    for place, (line, row) in enumerate(filled):
        try:
            first, second = map(int, row)
        except ValueError:
            if place == 0 and len(row) == 2 and not any(any(c.isdigit() for c in cell) for cell in row):
                continue
            raise ValueError(f"{path}, line {line}: expected two node numbers, got {','.join(row)!r}") from None
        links.append((first, second))
    try:
        return checked_links(links)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
