"""Trees of other libraries' own classes as plain dictionaries of arrays by name: what is sent, stored and exported."""

from __future__ import annotations

from typing import Any

import jax


def named_leaves(tree: Any) -> dict[str, Any]:
    """The arrays of a tree by their places in it.

    >>> named_leaves({"layers": [{"weight": 1.0}, {"weight": 2.0}]})
    {'layers.0.weight': 1.0, 'layers.1.weight': 2.0}
    """
    return {_name(path): leaf for path, leaf in jax.tree_util.tree_flatten_with_path(tree)[0]}


def with_leaves(like: Any, leaves: dict[str, Any]) -> Any:
    """The tree with other arrays at its places.

    >>> with_leaves({"layers": [1.0, 2.0]}, {"layers.0": 3.0, "layers.1": 4.0})
    {'layers': [3.0, 4.0]}
    """
    paths, structure = jax.tree_util.tree_flatten_with_path(like)
    return jax.tree.unflatten(structure, [leaves[_name(path)] for path, _ in paths])


def _name(path: Any) -> str:
    keys = [next(getattr(key, at) for at in ("key", "idx", "name") if hasattr(key, at)) for key in path]
    return ".".join(map(str, keys))
