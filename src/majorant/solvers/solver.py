"""What a local solver is: what a client does with its own samples between two communications."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

import jax

from majorant.core import ClientData, Key, Tree, View
from majorant.models.base import Model
from majorant.solvers.minibatches import Batch

BatchLoss = Callable[[Tree, Batch], jax.Array]  # (params, batch) -> a number, a mean over the batch


class Task(NamedTuple):
    """What surrounds a client's parameters in a round: what it was sent, its samples, its key, and what it goes down.

    That is the mean loss of samples with ``weights`` (n,), by default 1, plus ``penalty(params)``.
    """

    view: View
    data: ClientData
    key: Key
    weights: jax.Array | None = None
    penalty: Callable[[Tree], jax.Array] | None = None


class Solved(NamedTuple):
    """What a local solver gives: parameters, the moments to keep, and the mean loss of the minibatches on its way."""

    params: Tree
    moments: Tree
    loss: jax.Array


class Solver(Protocol):
    """What most methods ask of a local solver: to go down a model's loss, or any other, from some parameters.

    The solvers of `majorant.solvers.black_box` give this and no more.
    """

    @property
    def hyper(self) -> dict[str, float]: ...

    def moments(self, params: Tree) -> Tree: ...

    def solve(self, model: Model, task: Task, params: Tree, moments: Tree) -> Solved: ...

    def minimize(self, objective: BatchLoss, task: Task, params: Tree, moments: Tree) -> Solved: ...
