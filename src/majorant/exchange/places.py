"""Nodes of a network on several devices: who is where, and how a device gets the values of its nodes' neighbours.

Every device holds the same number of rows, of which those past its own nodes are fillers. In a round a node needs the
values of its neighbours only. Where the links are known beforehand and few lead from one device to another, devices
send each other just these rows, one permutation for every distance between devices (on a ring in contiguous pieces: one
row to each side). Otherwise all rows are gathered.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from majorant.core import Tree, collectives, weighted_sum
from majorant.core.collectives import CLIENTS, Axis
from majorant.exchange.network import Network

LARGEST_TABLE = 1 << 24  # devices × nodes up to which every device knows the place of every node


class Reach(NamedTuple):
    """What a device's rows can see of all nodes."""

    nodes: jax.Array  # (rows,) the nodes that are here (of fillers: node 0)
    fetch: Callable[[jax.Array], jax.Array]  # the rows here, (rows, values) -> those that may be needed
    find: Callable[[jax.Array], jax.Array]  # nodes -> where they are among these


class Places:
    """Where the nodes of a network are: node i on device ``homes[i]``; None: all on one."""

    def __init__(self, nodes: int, homes: np.ndarray | None = None, devices: int = 1) -> None:
        self.axis: Axis = None if homes is None else CLIENTS
        homes = np.zeros(nodes, np.int64) if homes is None else homes
        self.homes, self.count, self.devices = homes, nodes, devices
        order = np.argsort(homes, kind="stable")
        each = np.bincount(homes, minlength=self.devices)
        self.rows = int(each.max())
        self.row = np.empty(nodes, np.int64)  # of every node, on its device
        self.row[order] = np.arange(nodes) - np.repeat(np.cumsum(each) - each, each)
        self.flat = homes * self.rows + self.row  # of every node, among the rows of all devices
        self.table = np.full((self.devices, self.rows), -1)  # the node in every row
        self.table[homes, self.row] = np.arange(nodes)

    def here(self, table: np.ndarray) -> jax.Array:
        """This device's row of a table with one for every device."""
        return jnp.asarray(table)[collectives.place(self.axis)]

    @property
    def nodes(self) -> jax.Array:
        """The nodes here, node 0 in place of fillers."""
        return self.here(np.maximum(self.table, 0))

    @property
    def real(self) -> jax.Array:
        """Which of the rows here are nodes."""
        return self.here(self.table >= 0)

    def everybody(self, tree: Tree) -> Tree:
        """The values of all nodes, in their order, from the rows of all devices."""
        if self.axis is None:
            return tree
        return jax.tree.map(lambda a: a[self.flat], collectives.side_by_side(tree, self.axis))

    def mean(self, tree: Tree) -> Tree:
        """The mean over all nodes."""
        if self.axis is None:
            return jax.tree.map(lambda a: a.mean(axis=0), tree)
        weigh = lambda a: weighted_sum(self.real, a) / self.count
        return collectives.total(jax.tree.map(weigh, tree), self.axis)

    def into_rows(self, leaf: np.ndarray, axis: int = 1) -> np.ndarray:
        """An array with an axis of nodes as one of all devices' rows; fillers are copies of node 0."""
        return np.take(np.asarray(leaf), np.maximum(self.table, 0).ravel(), axis)

    def into_nodes(self, leaf: np.ndarray, axis: int = 1) -> np.ndarray:
        """The other way round."""
        return np.take(np.asarray(leaf), self.flat, axis)


def reach(places: Places, found: Crossing | None) -> Reach | None:
    """What this device's nodes see of the others, by the rows that cross or by all; None where all nodes are here."""
    if places.axis is None:
        return None
    if found is None:
        gather = lambda x: collectives.side_by_side(x, places.axis)
        return Reach(places.nodes, gather, lambda nodes: jnp.asarray(places.flat)[nodes])

    def fetch(x: jax.Array) -> jax.Array:
        parts = [x]
        for distance, rows in found.sent:
            pairs = [(k, (k - distance) % places.devices) for k in range(places.devices)]
            parts.append(jax.lax.ppermute(x[places.here(rows)], CLIENTS, pairs))
        return jnp.concatenate(parts)

    where = places.here(found.where)
    return Reach(places.nodes, fetch, lambda nodes: where[nodes])


class Crossing(NamedTuple):
    """The rows that cross from device to device."""

    sent: list[tuple[int, np.ndarray]]  # a distance d, and (devices, rows): what each sends to the one d before it
    where: np.ndarray  # (devices, nodes): where each device finds a node among its own rows and those it is sent

    @property
    def rows(self) -> int:
        """How many rows a device is sent."""
        return sum(rows.shape[1] for _, rows in self.sent)


def crossing(places: Places, network: Network) -> Crossing | None:
    """Which rows must cross; None where links are not known beforehand, or so many rows cross that all may as well."""
    if places.axis is None or not network.closed or places.devices * places.count > LARGEST_TABLE:
        return None
    i, j = np.concatenate([network.edges, network.edges[:, ::-1]]).T
    to, whose = places.homes[i], places.homes[j]
    where = np.zeros((places.devices, places.count), np.int32)
    where[places.homes, np.arange(places.count)] = places.row
    sent, offset = [], places.rows
    for distance in range(1, places.devices):
        wanted = [np.unique(j[(to == (k - distance) % places.devices) & (whose == k)]) for k in range(places.devices)]
        most = max(map(len, wanted))
        if most == 0:
            continue
        rows = np.zeros((places.devices, most), np.int32)
        for k, nodes in enumerate(wanted):
            rows[k, : len(nodes)] = places.row[nodes]
            where[(k - distance) % places.devices, nodes] = offset + np.arange(len(nodes))
        sent.append((distance, rows))
        offset += most
    found = Crossing(sent, where)
    return found if 2 * found.rows <= (places.devices - 1) * places.rows else None
