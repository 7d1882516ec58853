"""What a local solver is: what a client does with its own samples between two communications."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

import jax

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
