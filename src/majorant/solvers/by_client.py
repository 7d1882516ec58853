"""Different local solvers on different clients, in one federation.

An assignment from client ids says which solver a client uses. Clients that run side by side go through all solvers, of
which one counts; for the others they have no samples, so that a Python function is called for its own clients alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from majorant.core import Tree
from majorant.math.checks import check_whole
from majorant.models.base import Model
from majorant.solvers.solver import BatchLoss, Solved, Solver, Task


class ByClient(NamedTuple):
    """Several solvers, and which client uses which."""

    solvers: tuple[Solver, ...]
    names: tuple[dict[str, str], ...]  # for each solver: the names of its hyperparameters in the run
    table: tuple[int, ...]  # by client id; ids past its end use solver 0

    @property
    def hyper(self) -> dict[str, float]:
        """The hyperparameters of all solvers; those of solver i > 0 have ``_i`` after their names."""
        pairs = zip(self.solvers, self.names, strict=True)
        return {names[name]: value for solver, names in pairs for name, value in solver.hyper.items()}

    def moments(self, params: Tree) -> Tree:
        """The moments of each solver; a client changes those of its own."""
        return tuple(solver.moments(params) for solver in self.solvers)

    def solve(self, model: Model, task: Task, params: Tree, moments: Tree) -> Solved:
        """Solves with the client's own solver."""
        return self._choose(lambda solver, *at: solver.solve(model, *at), task, params, moments)

    def minimize(self, objective: BatchLoss, task: Task, params: Tree, moments: Tree) -> Solved:
        """Goes down any objective with the client's own solver."""
        return self._choose(lambda solver, *at: solver.minimize(objective, *at), task, params, moments)

    def _choose(self, solve: Callable[..., Solved], task: Task, params: Tree, moments: Tree) -> Solved:
        view, data = task.view, task.data
        table = jnp.asarray(self.table, jnp.int32)
        known = (data.slot >= 0) & (data.slot < len(self.table))
        mine = jnp.where(known, table[jnp.where(known, data.slot, 0)], 0)

        def branch(i: int) -> Callable[[Tree], Solved]:
            own = view._replace(hyper=view.hyper | {name: view.hyper[at] for name, at in self.names[i].items()})
            seen = data._replace(size=jnp.where(mine == i, data.size, 0))

            def run(moments: Tree) -> Solved:
                found = solve(self.solvers[i], task._replace(view=own, data=seen), params, moments[i])
                return found._replace(moments=(*moments[:i], found.moments, *moments[i + 1 :]))

            return run

        return jax.lax.switch(mine, [branch(i) for i in range(len(self.solvers))], moments)


def local_by_client(solvers: Sequence[Solver], assignment: Mapping[int, int] | Sequence[int] | np.ndarray) -> ByClient:
    """Client ``id`` uses ``solvers[assignment[id]]``; clients that the assignment does not name use the first.

    ``assignment`` is an array with a place for each client id, or a dictionary. Solver 0 keeps the names of its
    hyperparameters, those of the others get their number: ``lr``, ``lr_1``, ``lr_2``.

    >>> import majorant as mj
    >>> several = [mj.local_sgd(0.1), mj.local_sgd(0.5), mj.solvers.local_newton()]
    >>> mj.solvers.local_by_client(several, {3: 1, 4: 2}).hyper
    {'lr': 0.1, 'lr_1': 0.5, 'l2_2': 1e-06}
    """
    solvers = tuple(solvers)
    if not solvers:
        raise ValueError("local_by_client needs at least one solver")
    return ByClient(solvers, _distinct_names(solvers), _table(assignment, len(solvers)))


def _distinct_names(solvers: tuple[Solver, ...]) -> tuple[dict[str, str], ...]:
    taken: set[str] = set()
    found: list[dict[str, str]] = []
    for i, solver in enumerate(solvers):
        found.append({})
        for name in solver.hyper:
            new = f"{name}_{i}" if i else name
            while new in taken:  # solvers that are themselves several
                new += f"_{i}"
            taken.add(new)
            found[-1][name] = new
    return tuple(found)


def _table(assignment: Any, count: int) -> tuple[int, ...]:
    given = dict(assignment.items()) if isinstance(assignment, Mapping) else dict(enumerate(np.asarray(assignment)))
    for id, index in given.items():
        check_whole("a client's id in the assignment", id, least=0)
        check_whole(f"the solver of client {id}", index, least=0, most=count - 1)
    table = [0] * (1 + max((int(id) for id in given), default=0))
    for id, index in given.items():
        table[int(id)] = int(index)
    return tuple(table)
