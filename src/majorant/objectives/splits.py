"""Parameters split in two: which of a model's parameters are shared, and which are each client's own.

Parameters go by their place in the tree, as in ``1.weight`` for the weight of a list's second layer; a name stands for
everything below it (``1``: the whole layer). In a linear model a whole number is a feature's column of the weight.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from majorant.core import Tree

SHOWN = 20  # names that a message lists


class Split(NamedTuple):
    """``shared`` and ``personal`` take the two parts out of a tree of parameters, ``merge`` puts them together."""

    shared: Callable[[Tree], Tree]
    personal: Callable[[Tree], Tree]
    merge: Callable[[Tree, Tree], Tree]


def split_by_name(
    params: Tree, shared: Sequence[int | str] | None = None, personal: Sequence[int | str] | None = None
) -> Split:
    """The split of a tree (of arrays, or of their shapes) into the named part and the rest.

    >>> layers = [{"weight": jnp.ones((2, 3))}, {"weight": jnp.ones((3, 1)), "bias": jnp.zeros(1)}]
    >>> split = split_by_name(layers, personal=["1.bias"])
    >>> sorted(split.shared(layers)), sorted(split.personal(layers))
    (['0.weight', '1.weight'], ['1.bias'])
    >>> split_by_name(layers, personal=["1.bais"])
    Traceback (most recent call last):
    ValueError: unknown parameter '1.bais': did you mean '1.bias'? Known: 0.weight, 1.bias, 1.weight
    """
    leaves, structure = jax.tree_util.tree_flatten_with_path(params)
    paths = [jax.tree_util.keystr(path, simple=True, separator=".") for path, _ in leaves]
    own = _own(paths, shared, personal)

    def part(params: Tree, mine: bool) -> Tree:
        return {p: leaf for p, leaf in zip(paths, jax.tree.leaves(params), strict=True) if own[p] is mine}

    def merge(w: Tree, beta: Tree) -> Tree:
        return jax.tree.unflatten(structure, [(beta if own[path] else w)[path] for path in paths])

    return Split(lambda params: part(params, False), lambda params: part(params, True), merge)


def split_by_column(
    features: int, shared: Sequence[int | str] | None = None, personal: Sequence[int | str] | None = None
) -> Split:
    """The split of a linear model's ``{"weight": (features, k), "bias": (k,)}``, by columns and "bias".

    >>> split = split_by_column(3, personal=[0, "bias"])
    >>> params = {"weight": jnp.arange(3.0)[:, None], "bias": jnp.ones(1)}
    >>> split.shared(params)["weight"].tolist(), split.personal(params)["weight"].tolist()
    ([[1.0], [2.0]], [[0.0]])
    """
    paths = [*(f"weight.{column}" for column in range(features)), "bias"]
    columns = [
        [f"weight.{n}" if str(n).isdigit() else n for n in names] if names is not None and not isinstance(names, str)
        else names
        for names in (shared, personal)
    ]  # fmt: skip
    own = _own(paths, *columns)
    mine = np.array([own[path] for path in paths[:-1]], bool)
    # int32: JAX remembers what it made of an int64 index in single precision, and fails on it in double
    rows = {part: np.flatnonzero(mine == part).astype(np.int32) for part in (False, True)}
    order = np.argsort(np.concatenate([rows[False], rows[True]])).astype(np.int32)

    def part(params: Tree, which: bool) -> Tree:
        found = {"weight": params["weight"][rows[which]]} if len(rows[which]) else {}
        return found | ({"bias": params["bias"]} if own["bias"] is which else {})

    def merge(w: Tree, beta: Tree) -> Tree:
        weights = [part["weight"] for part in (w, beta) if "weight" in part]
        return {"weight": jnp.concatenate(weights)[order], "bias": (beta if own["bias"] else w)["bias"]}

    return Split(lambda params: part(params, False), lambda params: part(params, True), merge)


def _own(
    paths: Sequence[str], shared: Sequence[int | str] | None, personal: Sequence[int | str] | None
) -> dict[str, bool]:
    """Which parameters are personal, after checking the names."""
    if (shared is None) == (personal is None):
        raise ValueError("name the parameters that are shared or those that are personal: one of the two, not both")
    given = personal if shared is None else shared
    names = [given] if isinstance(given, int | str) else list(given or ())
    named = dict.fromkeys(paths, False)
    for name in map(str, names):
        below = [path for path in paths if path == name or path.startswith(f"{name}.")]
        if not below:
            prefixes = {path.rsplit(".", up)[0] for path in paths for up in range(path.count(".") + 1)}
            close = difflib.get_close_matches(name, sorted(prefixes), n=1)
            hint = f": did you mean {close[0]!r}?" if close else "."
            more = ", ..." if len(paths) > SHOWN else ""
            raise ValueError(f"unknown parameter {name!r}{hint} Known: {', '.join(sorted(paths)[:SHOWN])}{more}")
        named.update(dict.fromkeys(below, True))
    kind = "shared" if personal is None else "personal"
    if not any(named.values()) or all(named.values()):
        which = "all" if any(named.values()) else "no"
        raise ValueError(
            f"{kind}={names!r} names {which} parameters: a split needs both shared and personal ones "
            "(use traditional or fully_personal for one of them)"
        )
    return named if shared is None else {path: not yes for path, yes in named.items()}
