"""What devices tell each other, where each holds some of a run's clients: sums, largest values, parts side by side.

A program runs on one device, or as many equal programs on a mesh of them (`majorant.engines.mesh`). What combines
clients takes the name of the mesh's axis over which they are dealt; None means that all clients are here, and that
there is nothing to combine.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from majorant.core.trees import Tree

CLIENTS = "clients"  # the axis of a mesh over which clients are dealt
Axis = str | None


def total(tree: Tree, axis: Axis) -> Tree:
    """The sum over all devices of each leaf; of booleans, whether one of them is True.

    >>> total(jnp.array([1.0, 2.0]), None)
    Array([1., 2.], dtype=float32)
    """

    def add(leaf: jax.Array) -> jax.Array:
        leaf = jnp.asarray(leaf)
        return jax.lax.pmax(leaf.astype(jnp.int32), axis) > 0 if leaf.dtype == bool else jax.lax.psum(leaf, axis)

    return tree if axis is None else jax.tree.map(add, tree)


def highest(tree: Tree, axis: Axis) -> Tree:
    """The largest over all devices of each number."""
    return tree if axis is None else jax.tree.map(lambda leaf: jax.lax.pmax(leaf, axis), tree)


def everywhere(flag: jax.Array, axis: Axis) -> jax.Array:
    """Whether it holds on all devices."""
    return flag if axis is None else ~total(~flag, axis)


def side_by_side(tree: Tree, axis: Axis) -> Tree:
    """The devices' parts, ``(rows, ...)`` each, one after the other: ``(devices × rows, ...)``."""
    return tree if axis is None else jax.tree.map(lambda leaf: jax.lax.all_gather(leaf, axis, tiled=True), tree)


def of_each(tree: Tree, axis: Axis) -> Tree:
    """The devices' values, with a first axis of devices."""
    if axis is None:
        return jax.tree.map(lambda leaf: leaf[None], tree)
    return jax.tree.map(lambda leaf: jax.lax.all_gather(leaf, axis), tree)


def place(axis: Axis) -> jax.Array | int:
    """Which of the devices this is."""
    return 0 if axis is None else jax.lax.axis_index(axis)
