"""What a local solver is: what a client does with its own samples between two communications."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

import jax
import jax.numpy as jnp

from majorant.core import ClientData, Key, Tree, View
from majorant.models.base import Model
from majorant.solvers.minibatches import Batch


class Solved(NamedTuple):
    """What a local solver gives: parameters, the moments to keep, and the mean loss of the minibatches on its way."""

    params: Tree
    moments: Tree
    loss: jax.Array


class Solver(Protocol):
    """What most methods ask of a local solver; the ones of `majorant.solvers.black_box` give this and no more."""

    @property
    def hyper(self) -> dict[str, float]: ...

    def moments(self, params: Tree) -> Tree: ...

    def solve(
        self,
        model: Model,
        view: View,
        params: Tree,
        moments: Tree,
        data: ClientData,
        key: Key,
        *,
        weights: jax.Array | None = None,
        penalty: Callable[[Tree], jax.Array] | None = None,
    ) -> Solved: ...

    def minimize(
        self,
        objective: Callable[[Tree, Batch], jax.Array],
        view: View,
        params: Tree,
        moments: Tree,
        data: ClientData,
        key: Key,
    ) -> Solved: ...


def check_range(
    name: str,
    value: float,
    *,
    least: float | None = None,
    above: float | None = None,
    below: float | None = None,
    most: float | None = None,
) -> None:
    """Raises a ValueError that names a hyperparameter outside its range.

    >>> check_range("lr", -1, above=0)
    Traceback (most recent call last):
    ValueError: lr must be a finite number greater than 0, got -1
    """
    if value is None or isinstance(value, str) or jnp.ndim(value) > 0:
        raise ValueError(f"{name} must be a number, got {value!r}")
    bounds = {"at least": least, "greater than": above, "less than": below, "at most": most}
    wanted = " and".join(f" {word} {bound}" for word, bound in bounds.items() if bound is not None)
    fine = (
        abs(value) < float("inf")
        and (least is None or value >= least)
        and (above is None or value > above)
        and (most is None or value <= most)
        and (below is None or value < below)
    )
    if not fine:
        raise ValueError(f"{name} must be a finite number{wanted}, got {value}")


def as_hyper(values: dict[str, float]) -> dict[str, jax.Array]:
    """Hyperparameters as array leaves of the server's state."""
    return {name: jnp.asarray(value, jnp.result_type(float)) for name, value in values.items()}
