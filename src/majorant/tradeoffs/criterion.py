"""What a coordinator wants to be small: the record of a criterion."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from majorant.core import Tree


class Quadratic(NamedTuple):
    """(factor/2) ‖θ − center‖²; a center of None is 0."""

    factor: float
    center: Tree = None


class Criterion(NamedTuple):
    """A function of parameters that should be small; ``quadratic`` says so where it is a multiple of ‖θ − center‖²."""

    name: str
    value: Callable[[Tree], jax.Array]
    prox: Callable[[Tree, jax.Array | float], Tree] | None = None  # (s, ρ)
    smooth: bool = True
    quadratic: Quadratic | None = None
    convex: bool = False  # known to be, not merely not known to be otherwise
    decision_gap: Callable[[Tree], jax.Array] | None = None  # between groups, of rates of decisions: for reports


def check_shapes(what: str, tree: Tree, params: Tree) -> None:
    """Parameters of another model must have the shapes of these, leaf by leaf: others would broadcast unseen."""
    shapes = lambda tree: {jax.tree_util.keystr(path): jnp.shape(a) for path, a in jax.tree.leaves_with_path(tree)}
    there, here = shapes(tree), shapes(params)
    for name in [*here, *there]:
        if there.get(name) != here.get(name):
            found, wanted = (each.get(name, "not there") for each in (there, here))
            raise ValueError(f"{what} has other parameters than the trained model: {name} is {found}, not {wanted}")
