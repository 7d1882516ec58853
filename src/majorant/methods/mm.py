"""Majorize-minimization where the samples lie in one place.

`mm` iterates θ_{t+1} = T(S̄(θ_t)), or the same sequence seen from the statistics, s_{t+1} = S̄(T(s_t)), with S̄ the mean
over all samples: EM, proximal gradient descent, alternating minimisation. With a partial first-order surrogate g of f
near (u_t, v_t), v_{t+1} = argmin_v g(u_t, v) and then u_{t+1} = argmin_u g(u, v_{t+1}). As f ≤ g, with equality where
g was made, f never increases.

`sa_ssmm` (stochastic approximation, stochastic surrogate MM) sees a few samples at a time, of a data set or a stream::

    Ŝ_{t+1} = Ŝ_t + γ_{t+1} (S_{t+1} − Ŝ_t),        S_{t+1} = the mean statistic of a batch at T(Ŝ_t)

online EM, online dictionary learning. (Section 2.3 of the paper prints a minus in front of γ; it is a plus.)

References: Dieuleveut, Fort, Hegazy, Wai, *Federated majorize-minimization: beyond parameter aggregation*, 2025,
equations (7) and (8), Algorithm 1; Marfoq et al., NeurIPS 2021, Algorithm 6; Mairal, *Optimization with first-order
surrogate functions*, ICML 2013.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from majorant.core import ClientData, Key, Tree, as_hyper, blockwise, masked_mean, select
from majorant.core.compilation import jit
from majorant.data.federated import FederatedData
from majorant.math.checks import check_range, check_whole
from majorant.math.steps import StepSize, averaging
from majorant.solvers import Batch, permutation, whole
from majorant.surrogates.inputs import samples_of
from majorant.surrogates.linear.record import LinearSurrogate, mean_statistic, statistic_and_loss
from majorant.surrogates.partial import Coefficients, PartialSurrogate, minimizer

Samples = Any  # an array (n, ...), a pair (x, y), one client's data, or federated data, whose samples are pooled
Found = tuple[Tree, Tree, jax.Array, jax.Array, jax.Array]


class Minimised(NamedTuple):
    """Where it ended: parameters, what describes the majorant that they minimise, and the objective's values."""

    params: Tree  # θ; (u, v) of a partial surrogate
    statistic: Tree  # or the coefficients of a partial surrogate
    values: np.ndarray  # the objective before the first iteration and after each one
    converged: bool


def mm(
    surrogate: LinearSurrogate | PartialSurrogate,
    data: Samples,
    *,
    iterations: int = 100,
    tolerance: float = 0.0,
    start: Tree | None = None,
    statistic: Tree | None = None,
    seed: int = 0,
) -> Minimised:
    """Majorize, minimise, repeat, until the objective falls by no more than ``tolerance`` (0: all iterations).

    Iteration (7) starts from parameters (``start``, by default the surrogate's own; u of a partial surrogate),
    iteration (8) from a ``statistic``, whose minimiser is where it begins. Where a partial surrogate has no exact
    minimiser in u, L-BFGS finds one.

    >>> import majorant as mj
    >>> data = mj.data.synthetic_mixture(clients=5, dimension=3, seed=0)
    >>> found = mm(mj.surrogates.proximal_gradient(mj.models.linear(data), rho=0.2), data, iterations=20)
    >>> bool((np.diff(found.values) <= 0).all())
    True
    """
    check_whole("iterations", iterations)
    check_range("tolerance", tolerance, least=0)
    if start is not None and statistic is not None:
        raise ValueError("give start (parameters) or statistic, not both")
    if isinstance(surrogate, PartialSurrogate):
        if statistic is not None:
            raise ValueError(f"the surrogate {surrogate.name} has no statistic: give start")
        return mm_partial(surrogate, pool(data), iterations, tolerance, start, jax.random.key(seed))
    pooled = checked(surrogate, pool(data))
    if statistic is not None:
        start = surrogate.minimize(surrogate.project(statistic))
    elif start is None:
        start = surrogate.init(jax.random.key(seed))
    return minimised(descend(surrogate, iterations, start, pooled, jnp.asarray(tolerance)))


def mm_partial(
    surrogate: PartialSurrogate, data: ClientData, most: int, tolerance: float, start: Tree | None, key: Key
) -> Minimised:
    """Majorize, minimise in v, minimise in u, repeat."""

    def minimise(coefficients: Coefficients, at: tuple[Tree, Tree]) -> tuple[Tree, Tree]:
        u, _ = at
        v = surrogate.minimize_v(coefficients, u, data)
        if surrogate.minimize_u is not None:
            return surrogate.minimize_u(coefficients, v, data), v
        return minimizer(lambda u: surrogate.value(coefficients, u, v, whole(data)), u), v

    value = lambda at: surrogate.objective(at[0], at[1], data)
    majorize = lambda at: (surrogate.majorize(at[0], at[1], data), value(at))
    first = (surrogate.init(key) if start is None else start, surrogate.init_v(data, key))
    return minimised(jit(lambda at: iterate(majorize, minimise, value, most, at, jnp.asarray(tolerance)))(first))


def minimised(found: Found) -> Minimised:
    """What is told of the iterations."""
    last, s, values, done, rests = found
    return Minimised(last, s, np.asarray(values)[: int(done) + 1], bool(rests))


@functools.partial(jit, static_argnums=(0, 1))
def descend(surrogate: LinearSurrogate, most: int, start: Tree, data: ClientData, tolerance: jax.Array) -> Found:
    """All iterations in one program."""
    majorize, value = lambda params: look(surrogate, params, data), lambda params: objective(surrogate, params, data)
    return iterate(majorize, lambda s, params: surrogate.minimize(s), value, most, start, tolerance)


def iterate(
    majorize: Callable, minimise: Callable, value: Callable, most: int, start: Tree, tolerance: jax.Array
) -> Found:
    """The iterations: parameters, statistic, values, how many iterations, and whether it has converged.

    ``majorize`` gives the objective at the parameters beside their statistic: one pass over the samples for both.
    """
    zero = jax.tree.map(lambda a: jnp.zeros(a.shape, a.dtype), jax.eval_shape(lambda: majorize(start)[0]))

    def unfinished(state: tuple) -> jax.Array:
        t, gain = state[3:]
        return (t < most) & ((t < 2) | (tolerance == 0) | (gain > tolerance))

    def step(state: tuple) -> tuple:
        params, _, values, t, _ = state
        s, here = majorize(params)
        gain = values[jnp.maximum(t - 1, 0)] - here
        return minimise(s, params), s, values.at[t].set(here), t + 1, gain

    state = (start, zero, jnp.zeros(most + 1), jnp.asarray(0), jnp.asarray(jnp.inf, jnp.result_type(float)))
    params, s, values, t, gain = jax.lax.while_loop(unfinished, step, state)
    values = values.at[t].set(value(params))
    return params, s, values, t, (tolerance > 0) & (t > 1) & (gain <= tolerance)


def look(surrogate: LinearSurrogate, params: Tree, data: ClientData) -> tuple[Tree, jax.Array]:
    """The statistic at some parameters, and the objective there."""
    statistic, loss = statistic_and_loss(surrogate, params, data)
    return surrogate.project(statistic), loss + surrogate.penalty(params)


def sa_ssmm(
    surrogate: LinearSurrogate,
    data: Samples | Iterable[np.ndarray],
    *,
    step: StepSize | None = None,
    iterations: int | None = None,
    batch_size: int = 1,
    start: Tree | None = None,
    seed: int = 0,
) -> Minimised:
    """Stochastic majorize-minimization: batches drawn from samples, or a stream of batches, in the order they come.

    A stream is an iterator, or a list, of arrays ``(n, ...)`` or pairs ``(x, y)``; it is read to its end, or for
    ``iterations`` batches, and its objective is not known: ``values`` is empty. ``step`` is `steps.averaging` by
    default. Samples of a data set are drawn without replacement within a batch, for ``iterations`` batches, by default
    as many as make one pass.

    >>> import majorant as mj
    >>> data = mj.data.synthetic_mixture(clients=5, dimension=3, seed=0)
    >>> surrogate = mj.surrogates.proximal_gradient(mj.models.linear(data), rho=0.2)
    >>> found = sa_ssmm(surrogate, data, step=mj.steps.constant(0.5), batch_size=32, iterations=50)
    >>> bool(found.values[-1] < found.values[0])
    True
    """
    step = averaging() if step is None else step
    check_whole("batch_size", batch_size)
    check_whole("iterations", iterations, optional=True)
    key = jax.random.key(seed)
    params = surrogate.init(key) if start is None else start
    if isinstance(data, Iterator | list):
        return follow(surrogate, iter(data), step, iterations, params)
    pooled = checked(surrogate, pool(data))
    size = int(pooled.size)
    batch = min(batch_size, size)
    count = -(-size // batch) if iterations is None else iterations
    last, s, values = approximate(surrogate, step, count, batch, params, pooled, key)
    return Minimised(last, s, np.asarray(values), False)


@functools.partial(jit, static_argnums=(0, 1, 2, 3))
def approximate(
    surrogate: LinearSurrogate, step: StepSize, count: int, batch: int, start: Tree, data: ClientData, key: Key
) -> tuple[Tree, Tree, jax.Array]:
    """Stochastic approximation on a data set, in one program; the objective is known at its two ends."""
    hyper = as_hyper(step.hyper)

    def iterate(at: tuple[Tree, Tree], t: jax.Array) -> tuple[tuple[Tree, Tree], None]:
        rows = permutation(jax.random.fold_in(key, t), data.size, data.y.shape[0])[:batch]
        seen = Batch(data.x[rows], data.y[rows], jnp.ones(batch), jnp.asarray(batch))
        return approach(surrogate, at, seen, step.at(hyper, t), t == 1), None

    shape = jax.eval_shape(lambda: mean_statistic(surrogate, start, data))
    zero = jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), shape)
    (params, statistic), _ = jax.lax.scan(iterate, (start, zero), jnp.arange(1, count + 1))
    return params, statistic, jnp.stack([objective(surrogate, p, data) for p in (start, params)])


@functools.partial(jit, static_argnums=0)
def approach(
    surrogate: LinearSurrogate, at: tuple[Tree, Tree], batch: Batch, gamma: jax.Array, first: jax.Array
) -> tuple[Tree, Tree]:
    """One step of stochastic approximation: the new parameters and statistic; the ``first`` one has none before it."""
    params, statistic = at
    seen = surrogate.statistic(params, batch)
    moved = jax.tree.map(lambda s, new: s + gamma.astype(s.dtype) * (new - s), statistic, seen)
    statistic = surrogate.project(select(first, seen, moved))
    return surrogate.minimize(statistic), statistic


def follow(surrogate: LinearSurrogate, stream: Iterator, step: StepSize, most: int | None, params: Tree) -> Minimised:
    """Stochastic approximation along a stream; batches of one shape share a program."""
    hyper, statistic = as_hyper(step.hyper), None
    for t, item in enumerate(stream, 1):
        seen = checked(surrogate, pool(item))
        batch = Batch(seen.x, seen.y, jnp.ones(seen.y.shape[0]), seen.size)
        if statistic is None:
            shape = jax.eval_shape(surrogate.statistic, params, batch)
            statistic = jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), shape)
        params, statistic = approach(surrogate, (params, statistic), batch, step.at(hyper, t), jnp.asarray(t == 1))
        if t == most:
            break
    if statistic is None:
        raise ValueError("the stream has ended before its first batch")
    return Minimised(params, statistic, np.zeros(0), False)


def objective(surrogate: LinearSurrogate, params: Tree, data: ClientData) -> jax.Array:
    """f + g, block by block where there are many samples."""
    losses = blockwise(lambda x, y: surrogate.losses(params, x, y), data.x, data.y)
    return masked_mean(losses, data) + surrogate.penalty(params)


def pool(data: Samples) -> ClientData:
    """All samples as those of one client, in the precision that is switched on; refused where they are not numbers."""
    samples = samples_of(data.take(~data.unseen) if isinstance(data, FederatedData) else data)
    x, y = (np.concatenate(parts) for parts in zip(*samples, strict=True))
    number = lambda a: jnp.asarray(a, jnp.result_type(float) if np.issubdtype(a.dtype, np.floating) else None)
    return ClientData(number(x), number(y), jnp.asarray(len(y)), jnp.asarray(0))


def checked(surrogate: LinearSurrogate, data: ClientData) -> ClientData:
    """The samples, unless the surrogate says that they cannot be of its model."""
    if surrogate.check is not None:
        surrogate.check(np.asarray(data.x), np.asarray(data.y))
    return data
