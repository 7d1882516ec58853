"""A local solver that is your own Python function on NumPy arrays.

The function runs on the host, one client after the other, in the middle of a compiled round. It is given the client's
real rows only, and nothing of it is differentiated. What it returns may be far from optimal: how far, α says (see
`majorant.solvers.descent.inexactness`).
"""

from __future__ import annotations

import functools
import inspect
import threading
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from majorant.core import Tree
from majorant.models.base import Model
from majorant.solvers.minibatches import whole
from majorant.solvers.solver import BatchLoss, Solved, Task

ONE_AT_A_TIME = threading.Lock()  # a compiled program may call from several threads; users' functions need not know


class HostFunction(NamedTuple):
    """A solver whose work is done by a Python function on the host."""

    function: Callable[..., Tree]
    hyper: dict[str, float] = {}  # noqa: RUF012 - never mutated
    check: Callable[[Tree], None] | None = None  # complains of shapes of parameters that the function does not train

    def moments(self, params: Tree) -> Tree:
        """Nothing is kept between rounds."""
        return ()

    def solve(self, model: Model, task: Task, params: Tree, moments: Tree) -> Solved:
        """Calls the function with the client's samples; the loss given is that of the start."""
        if task.penalty is not None:
            raise ValueError(
                "this method adds a penalty to the local loss, which a Python function is not given: "
                "use local_sgd, local_lbfgs or local_newton"
            )
        data = task.data
        batch = whole(data, task.weights)
        loss = batch.mean(model.losses(params, data.x, data.y))
        shapes = jax.tree.map(lambda p: jax.ShapeDtypeStruct(p.shape, p.dtype), params)
        if self.check is not None:
            self.check(shapes)
        host = functools.partial(call, self.function)
        given = (params, data.x, data.y, batch.weight, data.size, jax.random.bits(task.key, dtype=jnp.uint32))
        found = jax.pure_callback(host, shapes, *given, vmap_method="sequential")
        return Solved(found, moments, loss.astype(jnp.result_type(float)))

    def minimize(self, objective: BatchLoss, task: Task, params: Tree, moments: Tree) -> Solved:
        """Refused: the function knows its own objective, not the method's."""
        raise ValueError(
            "this method has an objective of its own, which a Python function is not given: "
            "use local_sgd, local_lbfgs or local_newton"
        )


def local_function(function: Callable[..., Tree]) -> HostFunction:
    """Your own solver: ``function(params, x, y, weights) -> params`` on NumPy arrays.

    ``params`` is the model's tree of parameters; ``x``, ``y`` and ``weights`` have a row for each of the client's
    samples, and the loss to go down is ``Σ weight · loss / n``. A function with a parameter called ``seed`` is given a
    whole number that differs between clients and rounds. The result must have the shapes of ``params``; its types are
    cast. Numbers that are not finite are passed on: the client's update is then rejected and counted. The function must
    give the same for the same arguments, and must not call JAX, which is waiting for it.

    >>> import majorant as mj
    >>> data = mj.data.synthetic_mixture(clients=4, dimension=3, seed=0)
    >>> def shrink(params, x, y, weights):
    ...     return [{name: 0.5 * value for name, value in layer.items()} for layer in params]
    >>> run = mj.simulate(mj.fedavg(mj.models.linear(data), local=mj.solvers.local_function(shrink)), data, rounds=2)
    >>> run.summary()["rejected"]
    0
    """
    if not callable(function):
        raise TypeError(f"local_function takes a function (params, x, y, weights) -> params, not {function!r}")
    return HostFunction(function)


def call(function: Callable[..., Tree], params: Tree, *arrays: Any) -> Tree:
    """What happens on the host: padding off, the function, and a check of what it gives."""
    params = jax.tree.map(np.array, params)  # copies: a function may write into what it is given
    x, y, weights, size, seed = (np.asarray(a) for a in arrays)
    n = int(size)
    if n == 0:
        return params
    given = jax.tree.map(np.copy, params)
    extra = {"seed": int(seed)} if "seed" in inspect.signature(function).parameters else {}
    with ONE_AT_A_TIME:
        found = function(given, x[:n].copy(), y[:n].copy(), weights[:n].copy(), **extra)
    return checked(found, params, getattr(function, "__name__", "function"))


def checked(found: Tree, params: Tree, name: str) -> Tree:
    """The result with the types of ``params``, or an error that says where its shapes differ.

    >>> checked({"w": np.zeros(3)}, {"w": np.zeros(2, np.float32)}, "mine")
    Traceback (most recent call last):
    ValueError: the local solver 'mine' gives ['w'] of shape (3,), expected (2,)
    """
    got, wanted = (str(jax.tree.structure(tree)) for tree in (found, params))
    if got != wanted:
        raise ValueError(f"the local solver {name!r} gives a tree of another structure: {got}, expected {wanted}")

    def check(path: Any, want: np.ndarray, got: Any) -> np.ndarray:
        if np.shape(got) != want.shape:
            where = jax.tree_util.keystr(path) or "parameters"
            raise ValueError(f"the local solver {name!r} gives {where} of shape {np.shape(got)}, expected {want.shape}")
        return np.asarray(got, want.dtype)

    return jax.tree_util.tree_map_with_path(check, params, found)
