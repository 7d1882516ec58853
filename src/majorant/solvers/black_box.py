"""Local solvers that are not minibatch SGD: each goes down the whole local objective as far as it can.

The objective is that of a client's weighted samples, with whatever a method adds to it::

    g(θ) = (1/n_t) Σ_i weight_i · l(θ; s_ti) + penalty(θ) + (l2/2) ‖θ‖²

`BlackBox` builds g, and ``descend(g, θ, hyper) -> θ`` is all that distinguishes one solver from another. A client
without samples keeps its parameters. Where g is not finite at the start the result is NaN, as it would be with SGD, so
that the client's update is rejected and counted.

How good a local solution is, `majorant.solvers.descent.inexactness` measures.

Reference: Marfoq et al., NeurIPS 2021, App. H.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from majorant.core import Tree, select, squared_norm
from majorant.math.checks import check_range, check_whole
from majorant.models.base import Model
from majorant.models.losses import squared
from majorant.solvers.descent import Objective, lbfgs, least_squares, newton
from majorant.solvers.minibatches import whole
from majorant.solvers.solver import BatchLoss, Solved, Task


class BlackBox(NamedTuple):
    """A solver of the whole local objective: ``descend(objective, params, hyper) -> params``."""

    hyper: dict[str, float]
    descend: Callable[[Objective, Tree, dict[str, jax.Array]], Tree]
    check: Callable[[Model | None], None] = lambda model: None  # refuses what it cannot solve (None: no model)

    def moments(self, params: Tree) -> Tree:
        """Nothing is kept between rounds."""
        return ()

    def solve(self, model: Model, task: Task, params: Tree, moments: Tree) -> Solved:
        """Goes down the model's loss on all samples of the client; the loss given is that of the start."""
        if model.train_apply is not None:
            raise ValueError(
                f"{model.name} refreshes batch statistics while it trains, which only steps on minibatches do: "
                'use local_sgd or local_optax, or another normalisation than "averaged"'
            )
        self.check(model)
        return self._go_down(lambda params, batch: batch.mean(model.losses(params, batch.x, batch.y)), task, params)

    def minimize(self, objective: BatchLoss, task: Task, params: Tree, moments: Tree) -> Solved:
        """Goes down any ``objective(params, batch)`` over all samples of the client."""
        self.check(None)
        return self._go_down(objective, task, params)

    def _go_down(self, objective: BatchLoss, task: Task, params: Tree) -> Solved:
        hyper, batch = task.view.hyper, whole(task.data, task.weights)

        def total(params: Tree) -> jax.Array:
            value = objective(params, batch)
            value = value + task.penalty(params) if task.penalty else value
            return value + hyper["l2"] / 2 * squared_norm(params) if "l2" in self.hyper else value

        found = optax.tree.cast_like(self.descend(total, params, hyper), params)
        spoilt = optax.tree.full_like(params, jnp.nan)
        found = select(task.data.size > 0, select(jnp.isfinite(total(params)), found, spoilt), params)
        return Solved(found, (), objective(params, batch).astype(jnp.result_type(float)))


def local_lbfgs(steps: int = 20, *, memory: int = 10, l2: float = 0.0, tolerance: float = 1e-6) -> BlackBox:
    """L-BFGS with a line search on all of a client's samples, for smooth models of any size.

    It takes at most ``steps`` steps and ends where the gradient's norm is below ``tolerance``; ``memory`` is the number
    of past gradients that it remembers. An ``l2`` of 0 is left out of the program.

    >>> local_lbfgs(steps=50, l2=1e-3).hyper
    {'l2': 0.001}
    """
    check_whole("steps", steps)
    check_whole("memory", memory)
    check_range("l2", l2, least=0)
    check_range("tolerance", tolerance, least=0)
    descend = lambda objective, params, hyper: lbfgs(objective, params, steps, memory, tolerance)
    return BlackBox({"l2": l2} if l2 else {}, descend)


def local_newton(steps: int = 5, *, l2: float = 1e-6) -> BlackBox:
    """Damped Newton steps on all of a client's samples, for models of at most 2,000 parameters.

    For logistic and softmax regression this is iteratively reweighted least squares. A step that would increase the
    objective is shortened in Levenberg's way, so that the objective never increases, beyond rounding.

    >>> local_newton(steps=3).hyper
    {'l2': 1e-06}
    """
    check_whole("steps", steps)
    check_range("l2", l2, least=0)
    return BlackBox({"l2": l2} if l2 else {}, lambda objective, params, hyper: newton(objective, params, steps))


def local_least_squares(*, l2: float = 0.0) -> BlackBox:
    """Weighted least squares in closed form: for outputs linear in the parameters and the squared loss.

    A penalty that is quadratic, such as FedProx's, is solved exactly too. Where samples leave directions undetermined,
    the parameters do not move along them.

    >>> local_least_squares().hyper
    {}
    """
    check_range("l2", l2, least=0)

    def check(model: Model | None) -> None:
        if model is None or model.loss is not squared or not linear_in_params(model):
            what = "another objective" if model is None else f"{model.name} with the {model.loss.name} loss"
            raise ValueError(
                "local_least_squares needs the squared loss and outputs that are linear in the parameters, "
                f"not {what}: use local_newton or local_lbfgs"
            )

    return BlackBox({"l2": l2} if l2 else {}, lambda objective, params, hyper: least_squares(objective, params), check)


def linear_in_params(model: Model) -> bool:
    """Whether outputs are a linear function of the parameters plus a constant, tried on random numbers."""
    with jax.ensure_compile_time_eval():
        keys = jax.random.split(jax.random.key(0), 3)
        x = jax.random.normal(keys[0], (5, *model.spec.features))
        p, q = (optax.tree.random_like(key, model.init(key)) for key in keys[1:])
        at = lambda a, b: model.apply(jax.tree.map(lambda p, q: a * p + b * q, p, q), x)
        return bool(jnp.allclose(at(1, 1) + at(0, 0), at(1, 0) + at(0, 1), rtol=1e-3, atol=1e-3))
