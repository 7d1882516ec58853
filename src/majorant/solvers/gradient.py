"""Local solvers that take gradient steps on minibatches: SGD, and any optax optimizer.

Every step function goes through the one loop over minibatches. Gradients are divided by the number of samples in the
batch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from majorant.core import Tree, blocks, tree_norm
from majorant.math.checks import check_range
from majorant.models.base import Draw, Model
from majorant.solvers.minibatches import Batch, Minibatches, minibatches, run_minibatches
from majorant.solvers.schedules import Schedule, constant
from majorant.solvers.solver import BatchLoss, Solved, Solver, Task


class LocalSolver(NamedTuple):
    """A local optimizer with its plan: ``step(hyper, scale, params, gradients, moments) -> (params, moments)``."""

    hyper: dict[str, float]
    init: Callable[[Tree], Tree]
    step: Callable[[dict[str, jax.Array], jax.Array, Tree, Tree, Tree], tuple[Tree, Tree]]
    plan: Minibatches
    schedule: Schedule
    keep_moments: bool  # whether moments stay with the client from round to round, or start anew
    clips: bool = False  # whether gradients are shortened to at most the length that hyper["clip"] says

    def moments(self, params: Tree) -> Tree:
        """What a client keeps between rounds: its first moments, or nothing."""
        return self.init(params) if self.keep_moments else ()

    def step_on(self, model: Model, task: Task, params: Tree, moments: Tree, batch: Batch) -> Solved:
        """One step on one minibatch: its mean weighted loss, plus the task's penalty."""

        def objective(params: Tree, batch: Batch) -> tuple[jax.Array, tuple[jax.Array, Tree]]:
            if model.train_apply is None:
                outputs, refreshed = model.apply(params, batch.x), params
            else:
                outputs, refreshed = model.train_apply(params, batch.x, batch.draw())
            loss = batch.mean(model.loss.per_sample(outputs, batch.y))
            return loss, (loss, refreshed)

        gradient = jax.grad(objective, has_aux=True)
        if model.at_once is None or batch.x.shape[0] <= model.at_once:
            gradients, (loss, refreshed) = gradient(params, batch)
        else:
            (gradients, loss), refreshed = sum_over_blocks(gradient, params, batch, model.at_once), params
        stepped, moments = self._descend(task, params, gradients, moments)
        statistics = statistic_leaves(model, params, batch.x)
        if statistics is not None:
            stepped = jax.tree.map(lambda keep, new, old: new if keep else old, statistics, refreshed, stepped)
        return Solved(stepped, moments, loss)

    def _descend(self, task: Task, params: Tree, gradients: Tree, moments: Tree) -> tuple[Tree, Tree]:
        if task.penalty:
            gradients = optax.tree.add(gradients, jax.grad(task.penalty)(params))
        if self.clips:
            gradients = shortened(gradients, task.view.hyper["clip"])
        return self.step(task.view.hyper, self.schedule(task.view.progress), params, gradients, moments)

    def solve(self, model: Model, task: Task, params: Tree, moments: Tree) -> Solved:
        """Trains ``params`` on a client's (weighted) samples; the penalty is added to each minibatch's loss."""
        plan = self.plan.suiting(model)
        return self._follow(plan, lambda *at: self.step_on(model, task, *at), task, params, moments)

    def minimize(self, objective: BatchLoss, task: Task, params: Tree, moments: Tree) -> Solved:
        """Goes down any ``objective(params, batch)``; samples may be a tree of arrays with a row for each."""

        def step(params: Tree, moments: Tree, batch: Batch) -> Solved:
            loss, gradients = jax.value_and_grad(objective)(params, batch)
            return Solved(*self._descend(task, params, gradients, moments), loss)

        return self._follow(self.plan, step, task, params, moments)

    def _follow(
        self,
        plan: Minibatches,
        step: Callable[[Tree, Tree, Batch], Solved],
        task: Task,
        params: Tree,
        moments: Tree,
    ) -> Solved:
        """Steps over the client's minibatches; the moments start anew unless they are kept."""

        def next_step(carry: tuple[Solved, jax.Array], batch: Batch) -> tuple[Solved, jax.Array]:
            (params, moments, mean), seen = carry
            params, moments, loss = step(params, moments, batch)
            seen = seen + batch.size
            return Solved(params, moments, mean + (loss - mean) * batch.size / jnp.maximum(seen, 1)), seen

        start = Solved(
            params, moments if self.keep_moments else self.init(params), jnp.zeros((), jnp.result_type(float))
        )
        first = (start, jnp.zeros_like(task.data.size))
        solved, _ = run_minibatches(plan, next_step, first, task.data, task.key, task.weights)
        return solved if self.keep_moments else solved._replace(moments=())


def needs_steps(local: Solver, method: str) -> LocalSolver:
    """The solver, or an error for one that cannot be stopped after each minibatch."""
    if not isinstance(local, LocalSolver):
        raise ValueError(
            f"{method} looks at its models after every local step, so its local solver must be local_sgd or "
            f"local_optax, not a {type(local).__name__} that solves in one piece"
        )
    return local


def shortened(gradients: Tree, most: jax.Array) -> Tree:
    """Gradients as they are or, where their norm over all leaves is above ``most``, with that norm.

    >>> shorter = shortened({"w": jnp.array([3.0, 0.0]), "b": jnp.array(4.0)}, jnp.array(1.0))
    >>> [round(float(value), 3) for value in (*shorter["w"], shorter["b"])]
    [0.6, 0.0, 0.8]
    """
    norm = tree_norm(gradients)
    scale = jnp.where(norm > most, most / jnp.where(norm > 0, norm, 1), 1)
    return jax.tree.map(lambda g: scale.astype(g.dtype) * g, gradients)


def clipping(clip: float | None) -> dict[str, float]:
    """The hyperparameter of clipping, where there is any."""
    if clip is None:
        return {}
    check_range("clip", clip, above=0)
    return {"clip": clip}


def sum_over_blocks(gradient: Callable, params: Tree, batch: Batch, at_once: int) -> tuple[Tree, jax.Array]:
    """The gradient and the loss of a batch that goes through the model a few samples at a time."""

    def add(total: tuple[Tree, jax.Array], block: tuple[jax.Array, ...]) -> tuple[tuple[Tree, jax.Array], None]:
        x, y, weight = block
        gradients, (loss, _) = gradient(params, Batch(x, y, weight, batch.size))
        return optax.tree.add(total, (gradients, loss)), None

    weight = blocks(batch.weight, at_once, padding="constant")  # what fills the last block does not count
    start = optax.tree.zeros_like(params), jnp.zeros((), batch.weight.dtype)
    return jax.lax.scan(add, start, (*blocks((batch.x, batch.y), at_once), weight))[0]


def statistic_leaves(model: Model, params: Tree, x: jax.Array) -> Any:
    """Which leaves of ``params`` the model refreshes itself while it trains (True), rather than by gradient steps."""
    if model.train_apply is None or model.statistics == "":
        return None
    if model.statistics is not None:
        whole = lambda name, part: jax.tree.map(lambda _: name == model.statistics, part)
        return {name: whole(name, part) for name, part in params.items()}
    draw = Draw(jax.random.key(0), jnp.ones(1))
    jaxpr = jax.make_jaxpr(lambda p, x: model.train_apply(p, x, draw)[1])(params, x[:1]).jaxpr  # type: ignore[misc]
    leaves, structure = jax.tree.flatten(params)
    refreshed = [out is not given for out, given in zip(jaxpr.outvars, jaxpr.invars[: len(leaves)], strict=True)]
    return jax.tree.unflatten(structure, refreshed)


def local_sgd(
    lr: float = 0.1,
    *,
    epochs: int | None = None,
    steps: int | None = None,
    batch_size: int | None = 128,
    momentum: float = 0.0,
    weight_decay: float = 0.0,
    schedule: Schedule = constant(),  # noqa: B008 - a record of a pure function
    keep_moments: bool = True,
    clip: float | None = None,
    drop_last: bool | None = None,
) -> LocalSolver:
    """Stochastic gradient descent on the client's own samples.

    With gradient g, momentum μ and weight decay δ: ``m ← μ m + g + δ θ`` and ``θ ← θ − lr · schedule · m``.
    ``keep_moments`` keeps m on the client between rounds (the FedEM paper's released code does); it is never sent.
    ``clip`` shortens every minibatch's gradient g, over all parameters, to at most that norm.
    ``drop_last`` leaves out an epoch's last minibatch where it is smaller than the others; None does so for models that
    normalise by the batch, whose statistics of a few samples would ruin the model (a client with fewer samples than a
    batch takes them all).
    A μ or δ of 0 is left out of the program, and is then not a hyperparameter of the run.

    >>> local_sgd(0.1, epochs=1, batch_size=128).plan
    Minibatches(epochs=1, steps=None, batch_size=128, drop_last=None, in_any_order=False)
    """
    check_range("lr", lr, above=0)
    check_range("momentum", momentum, least=0, below=1)
    check_range("weight_decay", weight_decay, least=0)

    def step(hyper: dict, scale: jax.Array, params: Tree, gradients: Tree, moments: Tree) -> tuple[Tree, Tree]:
        direction = gradients
        if weight_decay:
            direction = jax.tree.map(lambda g, p: g + hyper["weight_decay"] * p, gradients, params)
        if momentum:
            direction = moments = jax.tree.map(lambda m, d: hyper["momentum"] * m + d, moments, direction)
        rate = hyper["lr"] * scale
        return jax.tree.map(lambda p, d: p - rate * d, params, direction), moments

    return LocalSolver(
        hyper={"lr": lr}
        | {k: v for k, v in {"momentum": momentum, "weight_decay": weight_decay}.items() if v}
        | clipping(clip),
        init=lambda params: optax.tree.zeros_like(params) if momentum else (),
        step=step,
        plan=minibatches(epochs=epochs, steps=steps, batch_size=batch_size, drop_last=drop_last),
        schedule=schedule,
        keep_moments=keep_moments,
        clips=clip is not None,
    )


def local_optax(
    optimizer: optax.GradientTransformation,
    *,
    epochs: int | None = None,
    steps: int | None = None,
    batch_size: int | None = 128,
    schedule: Schedule = constant(),  # noqa: B008
    keep_moments: bool = True,
    clip: float | None = None,
    drop_last: bool | None = None,
) -> LocalSolver:
    """Any optax optimizer on the client's own samples; its updates are multiplied by ``schedule`` and ``lr_scale``.

    ``clip``, ``drop_last``: see `local_sgd`.

    >>> solver = local_optax(optax.adam(1e-3), steps=10, batch_size=32)
    >>> solver.hyper
    {'lr_scale': 1.0}
    """

    def step(hyper: dict, scale: jax.Array, params: Tree, gradients: Tree, moments: Tree) -> tuple[Tree, Tree]:
        updates, moments = optimizer.update(gradients, moments, params)
        rate = hyper["lr_scale"] * scale
        scaled = jax.tree.map(lambda u: rate * u, updates)
        return optax.apply_updates(params, scaled), moments

    return LocalSolver(
        hyper={"lr_scale": 1.0} | clipping(clip),
        init=optimizer.init,
        step=step,
        plan=minibatches(epochs=epochs, steps=steps, batch_size=batch_size, drop_last=drop_last),
        schedule=schedule,
        keep_moments=keep_moments,
        clips=clip is not None,
    )
