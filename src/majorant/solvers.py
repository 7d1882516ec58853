"""Local solvers: what a client does with its own samples between two communications.

There is one loop over minibatches, `run_minibatches`, and every local method is a step function given to it. Samples
are drawn here and nowhere else: in epochs (a fresh permutation of the client's samples each time; the last batch may
be smaller) or in steps (uniform draws with replacement, as in Algorithm 2 of the FedEM paper). Gradients are divided
by the number of samples in the batch. What is drawn depends on the client's key and size, never on its padding.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import optax

from majorant.core import ClientData, Key, Tree, View, blocks
from majorant.models.base import Model
from majorant.schedules import Schedule, constant


class Batch(NamedTuple):
    """A minibatch: rows of a client's data. Rows past ``size`` repeat real samples and have weight 0."""

    x: Any  # (batch, ...), or a tree of such arrays
    y: jax.Array
    weight: jax.Array  # (batch,)
    size: jax.Array

    def mean(self, values: jax.Array) -> jax.Array:
        """Σ weight · value, divided by the number of samples in the batch."""
        return (self.weight * values).sum() / jnp.maximum(self.size, 1)


def whole(data: ClientData, weights: jax.Array | None = None) -> Batch:
    """All samples of a client as one batch."""
    weight = jnp.ones(data.y.shape[0], jnp.result_type(float)) if weights is None else weights
    return Batch(data.x, data.y, jnp.where(data.mask, weight, 0), data.size)


class Minibatches(NamedTuple):
    """How a client goes through its samples: ``epochs`` passes or ``steps`` draws; ``batch_size`` None: all at once."""

    epochs: int | None
    steps: int | None
    batch_size: int | None


def minibatches(*, epochs: int | None, steps: int | None, batch_size: int | None) -> Minibatches:
    """Checks the numbers: one epoch unless steps are given, positive counts."""
    if epochs is not None and steps is not None:
        raise ValueError(f"give epochs or steps, not both (got epochs={epochs}, steps={steps})")
    for name, value in {"epochs": epochs, "steps": steps, "batch_size": batch_size}.items():
        if value is not None and (value != int(value) or value < 1):
            raise ValueError(f"{name} must be a positive whole number, got {value}")
    return Minibatches(1 if epochs is None and steps is None else epochs, steps, batch_size)


MANY = 1 << 14


def permutation(key: Key, size: jax.Array, length: int) -> jax.Array:
    """A random order of ``0 … size − 1``, followed by padding.

    The random bits stand above the index bits in one word, because sorting single words is several times faster than
    sorting pairs; how many bits the index takes depends on ``size`` alone. Clients with more than `MANY` samples would
    have too few random bits left, and sort pairs.
    """
    index = jnp.arange(length, dtype=jnp.uint32)
    low = (jnp.uint32(1) << (32 - jax.lax.clz(jnp.asarray(size, jnp.uint32)))) - 1
    bits = jax.random.bits(key, (length,))
    word = (bits & ~low) | (index & low)
    last = jnp.uint32(0xFFFF_FFFF)
    order = jnp.sort(jnp.where(index < size, word, last)) & low
    if length > MANY:
        _, pairs = jax.lax.sort((jnp.where(index < size, bits, last), index), num_keys=2)
        order = jnp.where(size > MANY, pairs, order)
    return order.astype(jnp.int32)


def take(data: ClientData, rows: jax.Array, weights: jax.Array, count: jax.Array) -> Batch:
    """The batch of the given rows; positions past ``count`` keep their (real) rows but have weight 0."""
    real = jnp.arange(rows.shape[0]) < count
    get = lambda a: a.at[rows].get(mode="promise_in_bounds")
    return Batch(jax.tree.map(get, data.x), get(data.y), jnp.where(real, get(weights), 0), count)


def run_minibatches(
    plan: Minibatches,
    step: Callable[[Tree, Batch], Tree],
    carry: Tree,
    data: ClientData,
    key: Key,
    weights: jax.Array | None = None,
) -> Tree:
    """Folds ``step(carry, batch) -> carry`` over a client's minibatches; a client without samples takes no step.

    The number of steps follows the client's real size: among clients that run side by side the loop ends with the
    longest, and those that are done keep their state.
    """
    length = data.y.shape[0]
    if weights is None:
        double = any(leaf.dtype == jnp.float64 for leaf in jax.tree.leaves(data.x))
        weights = jnp.ones(length, jnp.float64 if double else jnp.float32)
    if length == 0:
        return carry
    if plan.batch_size is None:
        batch = whole(data, weights)
        count = jnp.where(data.size > 0, plan.epochs or plan.steps or 1, 0)
        return jax.lax.while_loop(lambda c: c[0] < count, lambda c: (c[0] + 1, step(c[1], batch)), (0, carry))[1]
    width = min(plan.batch_size, length)
    size = jnp.maximum(data.size, 1)

    if plan.steps is not None:

        def draw(state: tuple[jax.Array, Tree]) -> tuple[jax.Array, Tree]:
            j, carry = state
            rows = jax.random.randint(jax.random.fold_in(key, j), (width,), 0, size)
            return j + 1, step(carry, take(data, rows, weights, jnp.asarray(width)))

        count = jnp.where(data.size > 0, plan.steps, 0)
        return jax.lax.while_loop(lambda s: s[0] < count, draw, (jnp.asarray(0), carry))[1]

    per_epoch = (data.size + width - 1) // width

    def epoch(carry: Tree, key: Key) -> Tree:
        order = permutation(key, data.size, length)

        def next_batch(state: tuple[jax.Array, Tree]) -> tuple[jax.Array, Tree]:
            j, carry = state
            position = j * width + jnp.arange(width)
            rows = order.at[position % size].get(mode="promise_in_bounds")
            return j + 1, step(carry, take(data, rows, weights, jnp.minimum(data.size - j * width, width)))

        return jax.lax.while_loop(lambda s: s[0] < per_epoch, next_batch, (jnp.asarray(0), carry))[1]

    if plan.epochs == 1:
        return epoch(carry, key)
    return jax.lax.fori_loop(0, plan.epochs, lambda e, c: epoch(c, jax.random.fold_in(key, e)), carry)


class Solved(NamedTuple):
    """What a local solver gives: parameters, the moments to keep, and the mean loss of the minibatches on its way."""

    params: Tree
    moments: Tree
    loss: jax.Array


class Solver(Protocol):
    """What most methods ask of a local solver; the ones of `majorant.black_box` give this and no more."""

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


class LocalSolver(NamedTuple):
    """A local optimizer with its plan: ``step(hyper, scale, params, gradients, moments) -> (params, moments)``."""

    hyper: dict[str, float]
    init: Callable[[Tree], Tree]
    step: Callable[[dict[str, jax.Array], jax.Array, Tree, Tree, Tree], tuple[Tree, Tree]]
    plan: Minibatches
    schedule: Schedule
    keep_moments: bool  # whether moments stay with the client from round to round, or start anew

    def moments(self, params: Tree) -> Tree:
        """What a client keeps between rounds: its first moments, or nothing."""
        return self.init(params) if self.keep_moments else ()

    def step_on(
        self,
        model: Model,
        view: View,
        params: Tree,
        moments: Tree,
        batch: Batch,
        penalty: Callable[[Tree], jax.Array] | None = None,
    ) -> Solved:
        """One step on one minibatch: its mean weighted loss, plus ``penalty(params)``."""

        def objective(params: Tree, batch: Batch) -> tuple[jax.Array, tuple[jax.Array, Tree]]:
            outputs, refreshed = (model.apply(params, batch.x), params)
            if model.train_apply is not None:
                outputs, refreshed = model.train_apply(params, batch.x)
            loss = batch.mean(model.loss.per_sample(outputs, batch.y))
            return loss, (loss, refreshed)

        gradient = jax.grad(objective, has_aux=True)
        if model.at_once is None or batch.x.shape[0] <= model.at_once:
            gradients, (loss, refreshed) = gradient(params, batch)
        else:
            (gradients, loss), refreshed = sum_over_blocks(gradient, params, batch, model.at_once), params
        if penalty:
            gradients = jax.tree.map(jnp.add, gradients, jax.grad(penalty)(params))
        stepped, moments = self.step(view.hyper, self.schedule(view.progress), params, gradients, moments)
        statistics = statistic_leaves(model, params, batch.x)
        if statistics is not None:
            stepped = jax.tree.map(lambda keep, new, old: new if keep else old, statistics, refreshed, stepped)
        return Solved(stepped, moments, loss)

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
    ) -> Solved:
        """Trains ``params`` on a client's (weighted) samples; ``penalty(params)`` is added to each minibatch's loss."""

        step = lambda params, moments, batch: self.step_on(model, view, params, moments, batch, penalty)
        return self.follow(step, params, moments, data, key, weights)

    def minimize(
        self,
        objective: Callable[[Tree, Batch], jax.Array],
        view: View,
        params: Tree,
        moments: Tree,
        data: ClientData,
        key: Key,
    ) -> Solved:
        """Goes down any ``objective(params, batch)``; ``data.x`` may be a tree of arrays with a row for each sample."""

        def step(params: Tree, moments: Tree, batch: Batch) -> Solved:
            loss, gradients = jax.value_and_grad(objective)(params, batch)
            return Solved(*self.step(view.hyper, self.schedule(view.progress), params, gradients, moments), loss)

        return self.follow(step, params, moments, data, key)

    def follow(
        self,
        step: Callable[[Tree, Tree, Batch], Solved],
        params: Tree,
        moments: Tree,
        data: ClientData,
        key: Key,
        weights: jax.Array | None = None,
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
        solved, _ = run_minibatches(self.plan, next_step, (start, jnp.zeros_like(data.size)), data, key, weights)
        return solved if self.keep_moments else solved._replace(moments=())


def needs_steps(local: Solver, method: str) -> LocalSolver:
    """The solver, or an error for one that cannot be stopped after each minibatch."""
    if not isinstance(local, LocalSolver):
        raise ValueError(
            f"{method} looks at its models after every local step, so its local solver must be local_sgd or "
            f"local_optax, not a {type(local).__name__} that solves in one piece"
        )
    return local


def sum_over_blocks(gradient: Callable, params: Tree, batch: Batch, at_once: int) -> tuple[Tree, jax.Array]:
    """The gradient and the loss of a batch that goes through the model a few samples at a time."""

    def add(total: tuple[Tree, jax.Array], block: tuple[jax.Array, ...]) -> tuple[tuple[Tree, jax.Array], None]:
        x, y, weight = block
        gradients, (loss, _) = gradient(params, Batch(x, y, weight, batch.size))
        return jax.tree.map(jnp.add, total, (gradients, loss)), None

    weight = blocks(batch.weight, at_once, padding="constant")  # what fills the last block does not count
    start = jax.tree.map(jnp.zeros_like, params), jnp.zeros((), batch.weight.dtype)
    return jax.lax.scan(add, start, (*blocks((batch.x, batch.y), at_once), weight))[0]


def statistic_leaves(model: Model, params: Tree, x: jax.Array) -> Any:
    """Which leaves of ``params`` the model refreshes itself while it trains (True), rather than by gradient steps."""
    if model.train_apply is None:
        return None
    jaxpr = jax.make_jaxpr(lambda p, x: model.train_apply(p, x)[1])(params, x[:1]).jaxpr  # type: ignore[misc]
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
) -> LocalSolver:
    """Stochastic gradient descent on the client's own samples.

    With gradient g, momentum μ and weight decay δ: ``m ← μ m + g + δ θ`` and ``θ ← θ − lr · schedule · m``.
    ``keep_moments`` keeps m on the client between rounds (the FedEM paper's released code does); it never travels.
    A μ or δ of 0 is left out of the program, and is then no hyperparameter of the run.

    >>> local_sgd(0.1, epochs=1, batch_size=128).plan
    Minibatches(epochs=1, steps=None, batch_size=128)
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
        return jax.tree.map(lambda p, d: p - hyper["lr"] * scale * d, params, direction), moments

    return LocalSolver(
        hyper={"lr": lr} | {k: v for k, v in {"momentum": momentum, "weight_decay": weight_decay}.items() if v},
        init=lambda params: jax.tree.map(jnp.zeros_like, params) if momentum else (),
        step=step,
        plan=minibatches(epochs=epochs, steps=steps, batch_size=batch_size),
        schedule=schedule,
        keep_moments=keep_moments,
    )


def local_optax(
    optimizer: optax.GradientTransformation,
    *,
    epochs: int | None = None,
    steps: int | None = None,
    batch_size: int | None = 128,
    schedule: Schedule = constant(),  # noqa: B008
    keep_moments: bool = True,
) -> LocalSolver:
    """Any optax optimizer on the client's own samples; its updates are multiplied by ``schedule`` and ``lr_scale``.

    >>> solver = local_optax(optax.adam(1e-3), steps=10, batch_size=32)
    >>> solver.hyper
    {'lr_scale': 1.0}
    """

    def step(hyper: dict, scale: jax.Array, params: Tree, gradients: Tree, moments: Tree) -> tuple[Tree, Tree]:
        updates, moments = optimizer.update(gradients, moments, params)
        scaled = jax.tree.map(lambda u: hyper["lr_scale"] * scale * u, updates)
        return optax.apply_updates(params, scaled), moments

    return LocalSolver(
        hyper={"lr_scale": 1.0},
        init=optimizer.init,
        step=step,
        plan=minibatches(epochs=epochs, steps=steps, batch_size=batch_size),
        schedule=schedule,
        keep_moments=keep_moments,
    )


def check_range(
    name: str, value: float, *, least: float | None = None, above: float | None = None, below: float | None = None
) -> None:
    """Raises a ValueError that names a hyperparameter outside its range.

    >>> check_range("lr", -1, above=0)
    Traceback (most recent call last):
    ValueError: lr must be a finite number greater than 0, got -1
    """
    bounds = {"at least": least, "greater than": above, "less than": below}
    wanted = " and ".join(f"{word} {bound}" for word, bound in bounds.items() if bound is not None)
    fine = (
        abs(value) < float("inf")
        and (least is None or value >= least)
        and (above is None or value > above)
        and (below is None or value < below)
    )
    if not fine:
        raise ValueError(f"{name} must be a finite number {wanted}, got {value}")


def as_hyper(values: dict[str, float]) -> dict[str, jax.Array]:
    """Hyperparameters as array leaves of the server's state."""
    return {name: jnp.asarray(value, jnp.result_type(float)) for name, value in values.items()}
