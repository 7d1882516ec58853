"""Mixing: one gossip round's weights, and the step that every node takes with them.

    x_i ← w_ii x_i + Σ_j w_ij x_j        j runs over the neighbours of i that can be reached in this round

A link that fails, or that leads to an absent node, carries nothing: its weight goes to the node's own value. Rows of W
therefore always sum to 1, and where W is symmetric it stays so: the mean over the nodes does not change.

There are two forms with the same methods. `Dense` is the matrix W. `Table` lists the neighbours of each node, which is
what a sparse graph needs: its cost grows with the links and nothing of size n × n is made.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from majorant.core import Key, Tree

UNROLLED = 8  # up to so many neighbours are written out one by one; more are a loop


class Dense(NamedTuple):
    """The weights as a matrix: ``weights[i, j]`` is what node i gives to the value of node j.

    >>> mean = Dense(jnp.full((2, 2), 0.5))
    >>> mean.mix(jnp.array([1.0, 3.0]), jnp.array([True, True]))
    Array([2., 2.], dtype=float32)
    >>> mean.mix(jnp.array([1.0, 3.0]), jnp.array([True, False]))
    Array([1., 3.], dtype=float32)
    """

    weights: jax.Array  # (n, n)

    def keep(self, links: jax.Array) -> Dense:
        """Only the links ``(n, n)`` that are True; the weight of the others goes to the nodes' own."""
        own = jnp.eye(self.weights.shape[0], dtype=bool)
        kept = jnp.where(links | own, self.weights, 0)
        return Dense(kept + jnp.diag((self.weights - kept).sum(axis=1)))

    def among(self, present: jax.Array) -> Dense:
        """Only the links between nodes that are present."""
        return self.keep(present[:, None] & present[None, :])

    def fail(self, key: Key, probability: float) -> Dense:
        """Every link fails with a probability, in both directions at once."""
        nodes = jnp.arange(self.weights.shape[0])
        rows, columns = jnp.broadcast_arrays(nodes[:, None], nodes[None, :])
        return self.keep(survives(key, rows, columns, probability))

    def mix(self, tree: Tree, present: jax.Array, reach: Any = None) -> Tree:
        """Every present node's new value; an absent one keeps its value to the last bit.

        ``reach`` (`places.Reach`) is for nodes that are dealt over devices: the tree has the values of those here.
        """
        weights = self.among(present).weights

        def mixed(x: jax.Array) -> jax.Array:  # (n, values)
            if reach is None:
                return jnp.matmul(weights.astype(x.dtype), x, precision="highest")
            everybody = reach.fetch(x)[reach.find(jnp.arange(weights.shape[0]))]
            return jnp.matmul(weights[reach.nodes].astype(x.dtype), everybody, precision="highest")

        return over_leaves(mixed, tree, present if reach is None else present[reach.nodes])

    def messages(self, present: jax.Array) -> jax.Array:
        """How many models were sent: the links, each direction on its own, that have a weight in this round."""
        weights = self.among(present).weights
        return jnp.sum(weights != 0, dtype=jnp.int32) - jnp.sum(jnp.diag(weights) != 0, dtype=jnp.int32)

    def dense(self) -> Dense:
        """The weights as a matrix."""
        return self


class Table(NamedTuple):
    """The weights as a list of neighbours for every node; a place without a neighbour has weight 0.

    >>> pair = Table(index=jnp.array([[1], [0]]), weight=jnp.array([[0.5], [0.5]]), own=jnp.array([0.5, 0.5]))
    >>> pair.mix(jnp.array([1.0, 3.0]), jnp.array([True, True]))
    Array([2., 2.], dtype=float32)
    >>> int(pair.messages(jnp.array([True, True])))
    2
    """

    index: jax.Array  # type: ignore[assignment]  # (n, k): the neighbours
    weight: jax.Array  # (n, k)
    own: jax.Array  # (n,)

    def keep(self, links: jax.Array) -> Table:
        """Only the links ``(n, k)`` that are True; the weight of the others goes to the nodes' own."""
        kept = jnp.where(links, self.weight, 0)
        return Table(self.index, kept, self.own + (self.weight - kept).sum(axis=1))

    def among(self, present: jax.Array) -> Table:
        """Only the links between nodes that are present."""
        return self.keep(present[:, None] & present[self.index])

    def fail(self, key: Key, probability: float) -> Table:
        """Every link fails with a probability, in both directions at once."""
        rows = jnp.broadcast_to(jnp.arange(self.own.shape[0])[:, None], self.index.shape)
        return self.keep(survives(key, rows, self.index, probability))

    def mix(self, tree: Tree, present: jax.Array, reach: Any = None) -> Tree:
        """Every present node's new value; an absent one keeps its value to the last bit.

        ``reach`` (`places.Reach`) is for nodes that are dealt over devices: the tree has the values of those here.
        """
        places = self.index.shape[1]
        own = slice(None) if reach is None else reach.nodes
        index, weight, here = self.index[own], self.weight[own], present[own]

        def mixed(x: jax.Array) -> jax.Array:  # (n, values)
            known = x if reach is None else reach.fetch(x)

            # x_i + Σ_j w_ij (x_j − x_i) needs no own weights, whose sum XLA would compute anew for every number.
            def add(k: int | jax.Array, out: jax.Array) -> jax.Array:
                there = index[:, k]
                part = jnp.where(here & present[there], weight[:, k], 0).astype(x.dtype)
                where = there if reach is None else reach.find(there)
                return out + part[:, None] * (known.at[where].get(mode="promise_in_bounds") - x)

            out = x
            if places > UNROLLED:
                return jax.lax.fori_loop(0, places, add, out)
            for k in range(places):
                out = add(k, out)
            return out

        return over_leaves(mixed, tree, here)

    def messages(self, present: jax.Array) -> jax.Array:
        """How many models were sent: the links, each direction on its own, that have a weight in this round."""
        return jnp.sum(self.among(present).weight != 0, dtype=jnp.int32)

    def widen(self, places: int) -> Table:
        """The same weights with room for ``places`` neighbours; a node fills up with itself at weight 0."""
        n, k = self.index.shape
        itself = jnp.broadcast_to(jnp.arange(n, dtype=self.index.dtype)[:, None], (n, places - k))
        none = jnp.zeros((n, places - k), self.weight.dtype)
        return Table(jnp.hstack([self.index, itself]), jnp.hstack([self.weight, none]), self.own)

    def dense(self) -> Dense:
        """The weights as a matrix."""
        rows = jnp.arange(self.own.shape[0])[:, None]
        return Dense(jnp.diag(self.own).at[rows, self.index].add(self.weight))


Mixing = Dense | Table


def survives(key: Key, i: jax.Array, j: jax.Array, probability: float) -> jax.Array:
    """Whether each link (i, j) works in this round: one coin for a pair of nodes, whatever the layout of the links."""

    def coin(i: jax.Array, j: jax.Array) -> jax.Array:
        pair = jax.random.fold_in(jax.random.fold_in(key, jnp.minimum(i, j)), jnp.maximum(i, j))
        return jax.random.bernoulli(pair, 1 - probability)

    return jax.vmap(coin)(i.ravel(), j.ravel()).reshape(i.shape)


def over_leaves(mixed: Callable[[jax.Array], jax.Array], tree: Tree, present: jax.Array) -> Tree:
    """Applies a step on ``(n, values)`` to every leaf ``(n, ...)``; dtypes stay, and absent nodes keep their values."""

    def step(leaf: jax.Array) -> jax.Array:
        leaf = jnp.asarray(leaf)
        if not jnp.issubdtype(leaf.dtype, jnp.inexact):
            raise TypeError(f"only real and complex numbers can be mixed, got an array of {leaf.dtype}")
        flat = leaf.reshape(leaf.shape[0], -1)
        new = mixed(flat.astype(jnp.promote_types(leaf.dtype, jnp.float32))).astype(leaf.dtype)
        return jnp.where(present[:, None], new, flat).reshape(leaf.shape)

    return jax.tree.map(step, tree)
