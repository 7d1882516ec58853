"""What the solvers of min F(w, β) = (1/M) Σ_m f_m(w, β_m) have in common.

The two blocks and gradients in them, the shared coins of a coordinate round, the count of gradient calls, how a client
joins after training, and how far a run is from a minimiser. Clients count equally, whatever their number of samples.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from majorant.core import (
    Answer,
    ClientData,
    Deployment,
    Diagnostics,
    Key,
    Server,
    Terms,
    Tree,
    View,
    all_finite,
    select,
    squared_norm,
)
from majorant.math.checks import check_range
from majorant.objectives.base import Constants, Objective
from majorant.solvers import Batch, whole
from majorant.solvers.minibatches import take, whole_in_a_loop

LONGEST = 1 << 24  # steps without communication, at most: a bound for coins that almost never end a round
DRAWN = 32  # samples that are drawn at once, for as many iterations: on a CPU one draw costs about as much as all
JOINING_STEPS = 100  # of gradient descent on its own β, for a client that did not take part in training


class Blocks(NamedTuple):
    """A point, or a gradient, of one client: the shared block and its own."""

    w: Tree
    beta: Tree


class Iterates(NamedTuple):
    """A block's y, which is the solution in the end, and its z, which carries the momentum (or nothing)."""

    y: Tree
    z: Tree


def combine(*terms: tuple[Any, Tree]) -> Tree:
    """Σ factor · tree.

    >>> combine((0.5, jnp.array([2.0])), (2.0, jnp.array([1.0])))
    Array([3.], dtype=float32)
    """
    factors, trees = zip(*terms, strict=True)
    return jax.tree.map(lambda *leaves: sum(f * leaf for f, leaf in zip(factors, leaves, strict=True)), *trees)


def zeros(tree: Tree) -> Tree:
    """A tree of zeros."""
    return jax.tree.map(jnp.zeros_like, tree)


def gradient(objective: Objective, at: Blocks, batch: Batch, slot: jax.Array | int) -> Blocks:
    """∇f_m over a batch, in both blocks."""
    return Blocks(*jax.grad(objective.value, argnums=(0, 1))(at.w, at.beta, batch, slot))


def draw_samples(data: ClientData, key: Key, block: jax.Array) -> Batch:
    """``DRAWN`` of a client's samples, each with the same probability, for as many iterations."""
    rows = jax.random.randint(jax.random.fold_in(key, block), (DRAWN,), 0, jnp.maximum(data.size, 1), jnp.int32)
    return take(data, rows, jnp.ones(data.y.shape[0], jnp.result_type(float)), jnp.asarray(DRAWN))


def one_sample(drawn: Batch, place: jax.Array) -> Batch:
    """The sample at a place of what was drawn, as a batch of its own."""
    one = lambda a: jax.lax.dynamic_slice_in_dim(a, place, 1)
    return Batch(jax.tree.map(one, drawn.x), one(drawn.y), jnp.ones(1, drawn.weight.dtype), jnp.asarray(1))


def one_vote(data: ClientData) -> jax.Array:
    """The weight of a client: 1, or 0 for one without samples."""
    return (data.size > 0).astype(jnp.result_type(float))


class Coins(NamedTuple):
    """The shared randomness of a coordinate round: ``silent`` β-steps, and then the iteration that communicates."""

    silent: jax.Array
    w_step: jax.Array  # whether that iteration moves along a gradient in w, or else in β
    refresh: jax.Array  # whether it refreshes the control variates
    sample: jax.Array  # data of the key of shared sample indices


def draw_coins(key: Key, p_w: jax.Array, rho: jax.Array | float) -> Coins:
    """The coins of a round, which the server draws and sends.

    An iteration is silent with probability q = (1 − p_w)(1 − ρ): a β-step without a refresh. So the number of silent
    ones is geometric, P(J = i) = q^i (1 − q), and the last iteration is drawn from the other three outcomes.
    """
    u = jax.random.uniform(key, (3,), jnp.result_type(float))
    q = (1 - p_w) * (1 - rho)
    silent = jnp.clip(jnp.floor(jnp.log1p(-u[0]) / jnp.log(q)), 0, LONGEST).astype(jnp.int32)
    w_step = u[1] * (1 - q) < p_w
    return Coins(silent, w_step, ~w_step | (u[2] < rho), jax.random.key_data(jax.random.fold_in(key, 0)))


def repeat(count: jax.Array, step: Callable[[jax.Array, Any], Any], start: Any) -> Any:
    """``step(i, state)`` for i = 0 … count − 1; the count need not be known when it is compiled."""
    body = lambda s: (s[0] + 1, step(s[0], s[1]))
    return jax.lax.while_loop(lambda s: s[0] < count, body, (jnp.zeros((), jnp.int32), start))[1]


def repeat_with_samples(
    count: jax.Array, data: ClientData, key: Key, step: Callable[[Batch, Any], Any], start: Any
) -> tuple[Any, Batch]:
    """``step(sample, state)`` for count iterations, and the sample of the iteration after them."""

    def block(number: jax.Array, carry: Any) -> Any:
        drawn = draw_samples(data, key, number)
        steps = jnp.minimum(count - number * DRAWN, DRAWN)
        return repeat(steps, lambda i, state: step(one_sample(drawn, i), state), carry[0]), drawn

    nothing = zeros(jax.eval_shape(draw_samples, data, key, 0))
    state, drawn = repeat(count // DRAWN + 1, block, (start, nothing))
    return state, one_sample(drawn, count % DRAWN)


class Counts(NamedTuple):
    """Iterations, and gradients that every client has computed: of single samples and of all of its samples."""

    iterations: jax.Array
    sample_w: jax.Array
    full_w: jax.Array
    sample_beta: jax.Array
    full_beta: jax.Array

    def add(self, **counts: Any) -> Counts:
        """The counts with some more."""
        more = {name: (getattr(self, name) + number).astype(jnp.int32) for name, number in counts.items()}
        return self._replace(**more)

    def shown(self, mean_size: jax.Array) -> dict[str, jax.Array]:
        """For the log, in gradients of single samples: a full gradient counts as the mean number of samples."""
        in_samples = lambda sample, full: sample.astype(mean_size.dtype) + full * mean_size
        return {
            "iterations": self.iterations,
            "gradients_w": in_samples(self.sample_w, self.full_w),
            "gradients_beta": in_samples(self.sample_beta, self.full_beta),
        }


def no_counts(full: int = 0) -> Counts:
    """Nothing counted yet but ``full`` gradients in both blocks."""
    zero, some = jnp.zeros((), jnp.int32), jnp.asarray(full, jnp.int32)
    return Counts(zero, zero, some, zero, some)


def step_for(steepness: jax.Array) -> jax.Array:
    """A step that goes down where a function is so steep at most: 0 where that is not known, and is said to be 0."""
    return jnp.where(steepness > 0, 1 / jnp.where(steepness > 0, steepness, 1), 0)


def joining(objective: Objective, w: Tree, data: ClientData, key: Key, rate: Any) -> Tree:
    """β for a client that did not take part in training: steps down f_m(w, ·), or the start where those fail."""
    start, samples = objective.init_personal(key), whole_in_a_loop(data)
    slope = lambda beta: jax.grad(objective.value, argnums=1)(w, beta, samples(), data.slot)
    step = lambda _, beta: jax.tree.map(lambda b, g: (b - rate * g).astype(b.dtype), beta, slope(beta))
    beta = jax.lax.fori_loop(0, JOINING_STEPS, step, start)
    return select(all_finite(beta), beta, start)


def distance_from_optimum(objective: Objective, at: Callable[[View, Tree], Blocks]) -> Diagnostics:
    """F and ‖∇F‖² at ``at(view, client)``; clients count equally."""

    def measure(view: View, client: Tree, data: ClientData, key: Key) -> dict[str, Tree]:
        point = at(view, client)
        slope = gradient(objective, point, whole(data), data.slot)
        value = objective.value(point.w, point.beta, whole(data), data.slot)
        return {"objective": value, "w": slope.w, "beta": squared_norm(slope.beta)}

    def conclude(server: Server, mean: dict[str, Tree]) -> dict[str, jax.Array]:
        squared = squared_norm(mean["w"]) + mean["beta"] / objective.clients
        return {"objective": mean["objective"], "gradient_squared": squared}

    return Diagnostics(measure=measure, conclude=conclude, weight=one_vote)


def deployment(
    objective: Objective,
    at: Callable[[View, Tree], Blocks],
    join: Callable[[View, ClientData, Key], Tree],
    release: Callable[[Server, Key], View] | None = None,
) -> Deployment:
    """Models at ``at(view, state)``, after a last step on the client's own samples where the objective has one."""

    def personalize(view: View, state: Tree, data: ClientData, key: Key) -> Tree:
        model = objective.deploy(*at(view, state), data.slot)
        return model if objective.adapt is None else objective.adapt(model, whole(data))

    return Deployment(personalize, objective.predict, join, release)


Numbers = Callable[[Constants, jax.Array, Terms], dict[str, Any]]  # of the constants, the mean size and the terms


class Theory(NamedTuple):
    """Hyperparameters that nobody gave, from the clients' constants: the set-up question of these solvers.

    They are NaN until the clients have answered. ``constants`` are given, or found as the largest numbers over clients.
    """

    objective: Objective
    constants: Constants | None
    numbers: Numbers

    def answer(self, data: ClientData, beside: Tree = ()) -> Answer:
        """A client's number of samples, its constants, and what a method asks for beside them."""
        size = data.size.astype(jnp.result_type(float))
        curvature = self.objective.curvature
        largest = () if self.constants is not None or curvature is None else curvature(data)
        return Answer((size, beside), one_vote(data), largest)

    def found(self, answers: Answer) -> Constants | None:
        """The constants, where there are any."""
        if self.constants is not None or self.objective.constants_of is None or self.objective.curvature is None:
            return self.constants
        return self.objective.constants_of(answers.largest)

    def fill(self, server: Server, answers: Answer) -> tuple[Server, jax.Array]:
        """The server with all its hyperparameters, and the mean number of samples."""
        mean_size, constants = answers.mean()[0], self.found(answers)
        values = {} if constants is None else self.numbers(constants, mean_size, server.terms)
        known = lambda name, v: jnp.where(jnp.isnan(v), jnp.asarray(values.get(name, jnp.nan), v.dtype), v)
        return server._replace(hyper={name: known(name, v) for name, v in server.hyper.items()}), mean_size

    def steepness(self, answers: Answer) -> jax.Array:
        """How steep f_m is in β at most: 1 over the step of a client that joins; 0 where that is not known."""
        constants = self.found(answers)
        steep = 0.0 if constants is None else self.objective.clients * constants.smooth_beta
        return jnp.asarray(steep, jnp.result_type(float))


def unless_given(**values: float | None) -> dict[str, float]:
    """Hyperparameters, NaN for those that theory is to find."""
    return {name: math.nan if value is None else value for name, value in values.items()}


def is_personal(objective: Objective) -> bool:
    """Whether the objective has a personal block; without a shared one it is no problem for these solvers."""
    leaves = lambda init: jax.tree.leaves(jax.eval_shape(init, jax.random.key(0)))
    if not leaves(objective.init):
        raise ValueError(f"{objective.name} shares nothing between clients: use local training")
    return bool(leaves(objective.init_personal))


def check_coordinate(method: str, objective: Objective, constants: Constants | None, *, strongly: bool) -> None:
    """Warns where the theory does not apply, and refuses constants that no step size can be made of."""
    if not objective.convex:
        warnings.warn(
            f"{method} is made for convex objectives and may diverge on {objective.name}, which is not; LSGD-PFL still"
            " applies",
            stacklevel=3,
        )
    if constants is None:
        if objective.curvature is None:
            raise ValueError(f"{method} takes its steps from constants, which {objective.name} has not: use LSGD-PFL")
        return
    for name, value in constants._asdict().items():
        if not (math.isfinite(value) and value >= 0):
            raise ValueError(f"{method} needs finite constants of smoothness, but {name} is {value}: use LSGD-PFL")
    if strongly and constants.mu <= 0:
        raise ValueError(
            f"{method} is accelerated and needs μ > 0, but the constants have mu={constants.mu}: add an L2 term to the"
            " objective, give a guess as constants._replace(mu=1e-4), or use SVRCD-PFL"
        )


def check_block_probability(p_w: float | None, personal: bool) -> float | None:
    """p_w, which is 1 where nothing is personal, and otherwise strictly between 0 and 1; None: theory finds it."""
    if p_w is None:
        return None if personal else 1.0
    if not personal and p_w == 1:
        return 1.0
    check_range("p_w", p_w, above=0, below=1)
    return float(p_w)
