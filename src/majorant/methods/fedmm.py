"""FedMM: majorize-minimization in surrogate space, for clients of any heterogeneity, absent ones and few bits.

The objective is Σ_i μ_i f_i + g, μ_i = n_i/n, with a linearly parameterized surrogate (`surrogates.linear`): statistics
S̄, the minimiser T of the surrogate that a statistic describes, and the convex set 𝒮 they live in. The server holds Ŝ,
every client a control variate V_i that never leaves it, and the server V = Σ μ_i V_i. Round t + 1::

    the server sends       Ŝ_t and θ_t = T(Ŝ_t)
    active clients         S_i = the mean statistic of a batch at θ_t
                           Δ_i = S_i − Ŝ_t − V_i,  sent as Q(Δ_i)                   Q: a compressor, or nothing
                           V_i ← V_i + (α/p) Q(Δ_i)                                 p: how often a client takes part
    the server             H = V + (1/p) Σ_active μ_i Q(Δ_i)
                           Ŝ_{t+1} = the point of 𝒮 closest to Ŝ_t + γ_{t+1} H
                           V ← V + (α/p) Σ_active μ_i Q(Δ_i)

With all clients, no compression and γ = 1 this is the centralized MM algorithm, step by step and for every split of the
data. In a set-up round, clients send S̄_i(θ_0), whose mean is Ŝ_0 (unless ``start`` is given), and their sizes.

Averaging *parameters* is what the paper warns about: θ_{t+1} = Σ μ_i T(S̄_i(θ_t)) does not minimise a majorant of the
objective, and T is not linear. `parameter_averaging` mirrors FedMM in everything but that.

Reference: Dieuleveut, Fort, Hegazy, Wai, *Federated majorize-minimization: beyond parameter aggregation*, 2025,
Algorithms 2 and 4, Section 6 and Theorem 1.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from majorant.core import (
    Algorithm,
    Answer,
    ClientData,
    ClientSide,
    Deployment,
    Diagnostics,
    Key,
    Lens,
    Server,
    ServerSide,
    Setup,
    Traits,
    Tree,
    Upload,
    Uploads,
    View,
    as_hyper,
    select,
    squared_norm,
)
from majorant.core.compilation import jit
from majorant.data.federated import FederatedData
from majorant.math.checks import check_range, check_whole
from majorant.math.projections import in_metric
from majorant.math.steps import StepSize, constant
from majorant.models.base import Spec
from majorant.solvers import Batch, permutation, whole
from majorant.surrogates.linear.record import LinearSurrogate, in_parameter_space, mean_statistic, statistic_and_loss


class Point(NamedTuple):
    """What the server sends: a statistic, and the minimiser of the surrogate that it describes."""

    statistic: Tree  # Ŝ
    params: Tree  # T(Ŝ)


class State(NamedTuple):
    """What the server keeps to itself."""

    variate: Tree  # V
    samples: jax.Array  # of all clients
    before: Point  # that of the round before


def fedmm(
    surrogate: LinearSurrogate,
    data: FederatedData | Spec,
    *,
    step: StepSize | float | None = None,
    batch_size: int | None = None,
    alpha: float | None = None,
    variates: str = "zero",
    start: Tree | None = None,
    projection: str = "euclidean",
) -> Algorithm:
    """Federated majorize-minimization of a linearly parameterized surrogate.

    ``data`` tells the shape of samples. ``step`` is γ_t (see `majorant.steps`, or a number; default 1, right for all
    clients and all their samples; smaller steps are for batches, absent clients and compression). ``batch_size`` None
    takes all samples of a client. ``alpha`` is the step of the control variates, 0 for none; None is the theorem's
    1 / (1 + ω_p) with ω_p = ω + (1 + ω)(1 − p)/p, where the channel has ω (and 0 where it makes up for what it leaves
    out: two remedies would add up). V_i starts at "zero", or at "local", h_i(Ŝ_0), which needs
    ``start``, an Ŝ_0 that is known beforehand (`initial_statistic`). The ``projection`` onto 𝒮 is "euclidean" or, where
    the surrogate has a metric, in its geometry ("metric").

    The history has ``surrogate_step`` 𝓔^s and ``parameter_step`` 𝓔^p, and with diagnostics the ``objective``, the
    ``mean_field`` ‖h(Ŝ)‖, and ``variates_apart``, ‖V − Σ μ_i V_i‖, which is 0 up to rounding.

    >>> import majorant as mj
    >>> data = mj.data.synthetic_mixture(clients=5, dimension=3, seed=0)
    >>> surrogate = mj.surrogates.proximal_gradient(mj.models.linear(data), rho=0.2)
    >>> run = mj.simulate(mj.fedmm(surrogate, data), data, rounds=4, evaluation=mj.Evaluation(diagnostics=True))
    >>> run.history[-1]["objective"] < run.history[0]["objective"], run.history[-1]["variates_apart"] < 1e-6
    (True, True)
    """
    step = step if isinstance(step, StepSize) else constant(1.0 if step is None else step)
    if alpha is not None:
        check_range("alpha", alpha, least=0, most=1)
    check_whole("batch_size", batch_size, optional=True)
    if variates not in ("zero", "local"):
        raise ValueError(f"variates must be 'zero' or 'local', got {variates!r}")
    if variates == "local" and start is None:
        raise ValueError("variates='local' is h_i(Ŝ_0): give start, as in start=initial_statistic(surrogate, data)")
    if projection not in ("euclidean", "metric"):
        raise ValueError(f"projection must be 'euclidean' or 'metric', got {projection!r}")
    if projection == "metric" and surrogate.metric is None:
        raise ValueError(f"the {surrogate.name} surrogate has no metric: use projection='euclidean'")
    shapes = statistic_shapes(surrogate, data)
    if surrogate.check is not None and isinstance(data, FederatedData):
        surrogate.check(data.train.x, data.train.y)
    if start is not None:
        check_start(surrogate, start, shapes)
    zeros = lambda: jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), shapes)
    hyper = step.hyper | ({} if alpha is None else {"alpha": alpha})

    def init(key: Key) -> Server:
        if start is None:
            point = Point(zeros(), surrogate.init(key))
        else:
            given = surrogate.project(jax.tree.map(lambda a, s: jnp.asarray(a, s.dtype), start, shapes))
            point = Point(given, surrogate.minimize(given))
        number = jnp.ones((), jnp.result_type(float))
        return Server(point, as_hyper(hyper), State(zeros(), number, point))

    def variate_step(at: Server | View) -> jax.Array:
        """α."""
        p, omega = at.terms.inclusion, at.terms.omega
        if alpha is not None:
            return at.hyper["alpha"]
        return jnp.where(jnp.asarray(at.terms.remembers) > 0, 0, 1 / (1 + omega + (1 + omega) * (1 - p) / p))

    def own_variate(view: View, data: ClientData, key: Key) -> Tree:
        """V_i at the start."""
        if variates == "zero":
            return zeros()
        own = mean_statistic(surrogate, view.value.params, data)
        drift = jax.tree.map(jnp.subtract, own, view.value.statistic)
        return select(data.size > 0, drift, zeros())

    def ask(view: View, variate: Tree, data: ClientData, key: Key) -> Answer:
        value = variate if start is not None else mean_statistic(surrogate, view.value.params, data)
        return Answer(value, data.size.astype(jnp.result_type(float)))

    def started(server: Server, answers: Answer) -> Server:
        state = server.state._replace(samples=jnp.maximum(answers.weight, 1))
        if start is not None:
            return server._replace(state=state._replace(variate=answers.mean()))
        first = surrogate.project(answers.mean())
        point = Point(first, surrogate.minimize(first))
        return server._replace(value=point, state=state._replace(before=point))

    def update(view: View, variate: Tree, data: ClientData, key: Key) -> tuple[Upload, Tree]:
        own = oracle(surrogate, view.value.params, data, batch_size, key)
        drift = jax.tree.map(lambda s, at, v: s - at - v, own, view.value.statistic, variate)
        return Upload(select(data.size > 0, drift, zeros()), data.size.astype(jnp.result_type(float))), variate

    def delivered(view: View, variate: Tree, upload: Upload) -> Tree:
        rate = variate_step(view) / view.terms.inclusion
        return jax.tree.map(lambda v, arrived: v + rate.astype(v.dtype) * arrived, variate, upload.value)

    def server_update(server: Server, view: View, uploads: Uploads) -> Server:
        state, here = server.state, server.value
        gamma = step_size(server, 1)
        scaled = lambda tree, factor: jax.tree.map(lambda a: a * factor.astype(a.dtype), tree)
        heard = scaled(uploads.value, 1 / (server.terms.inclusion * state.samples))
        field = jax.tree.map(jnp.add, state.variate, heard)  # H
        half = jax.tree.map(jnp.add, here.statistic, scaled(field, gamma))
        statistic = onto(half, here.statistic)
        variate = jax.tree.map(jnp.add, state.variate, scaled(heard, variate_step(server)))
        new = Point(statistic, surrogate.minimize(statistic))
        return server._replace(value=new, state=state._replace(variate=variate, before=here))

    def step_size(server: Server, ahead: int) -> jax.Array:
        """γ of the last round, or of one ahead of it."""
        return step.at(server.hyper, jnp.maximum(jnp.asarray(server.round) + ahead, 1))

    def log(server: Server) -> dict[str, jax.Array]:
        moved = lambda a, b: squared_norm(jax.tree.map(jnp.subtract, a, b)) / step_size(server, 0) ** 2
        here, before = server.value, server.state.before
        return {
            "surrogate_step": moved(here.statistic, before.statistic),
            "parameter_step": moved(here.params, before.params),
        }

    def onto(half: Tree, before: Tree) -> Tree:
        """The projection onto 𝒮."""
        if projection == "euclidean" or surrogate.metric is None:
            return surrogate.project(half)
        metric = surrogate.metric
        return in_metric(surrogate.project, lambda direction: metric(before, direction), half)

    def losses(model: Tree, x: jax.Array, y: jax.Array) -> jax.Array:
        return surrogate.losses(model, x, y) + surrogate.penalty(model)

    def measure(view: View, variate: Tree, data: ClientData, key: Key) -> dict[str, Tree]:
        statistic, loss = statistic_and_loss(surrogate, view.value.params, data)
        return {"statistic": statistic, "variate": variate, "loss": loss}

    def conclude(server: Server, mean: dict[str, Tree]) -> dict[str, jax.Array]:
        apart = lambda a, b: jnp.sqrt(squared_norm(jax.tree.map(jnp.subtract, a, b)))
        return {
            "objective": mean["loss"] + surrogate.penalty(server.value.params),
            "mean_field": apart(mean["statistic"], server.value.statistic),
            "variates_apart": apart(mean["variate"], server.state.variate),
        }

    def check_hyper(values: dict[str, float]) -> None:
        step.check(values)
        if "alpha" in values:
            check_range("alpha", values["alpha"], least=0, most=1)

    def predict(model: Tree, x: jax.Array) -> jax.Array:
        if surrogate.predict is None:
            raise ValueError(f"the {surrogate.name} surrogate does not say how to predict")
        return surrogate.predict(model, x)

    def agree(server: Server, held: tuple[Tree, Tree]) -> Server:
        statistic, variate = held
        return server._replace(
            value=server.value._replace(statistic=statistic), state=server.state._replace(variate=variate)
        )

    def check_channel(name: str, unbiased: bool, omega: float, remembers: bool) -> None:
        """Refuses channels about which the theory has nothing to say."""
        if not unbiased and not remembers and alpha != 0:
            raise ValueError(
                f"{name} is biased, and FedMM's guarantees need E Q(x) = x: use an unbiased stage such as quantized or "
                "random_k, or one with error feedback. With clipping and noise, which hide clients, give alpha=0: "
                "control variates would add up the noise of all rounds"
            )
        if not remembers and not math.isfinite(omega) and alpha is None:
            raise ValueError(
                f"ω of {name} is not known, so that α = 1/(1 + ω_p) is not, either: state its omega, or give alpha"
            )

    return Algorithm(
        name=f"fedmm:{surrogate.name}",
        server=ServerSide(
            init,
            server_update,
            consensus=Lens(lambda server: (server.value.statistic, server.state.variate), agree),
        ),
        client=ClientSide(
            update=update,
            init=own_variate,
            delivered=delivered,
            origin=lambda view: jax.tree.map(jnp.zeros_like, view.value.statistic),
        ),
        deployment=Deployment(
            personalize=lambda view, variate, data, key: view.value.params,
            predict=predict,
            join=lambda view, data, key: zeros(),
            losses=losses,
        ),
        setup=Setup(ask, started),
        traits=Traits(points=False, moves_alone=True, check_hyper=check_hyper, check_channel=check_channel),
        diagnostics=Diagnostics(log, measure, conclude),
    )


def parameter_averaging(surrogate: LinearSurrogate, data: FederatedData | Spec, **options: Any) -> Algorithm:
    """The naive counterpart of FedMM: clients minimise their own surrogates, and their *parameters* are averaged.

    It mirrors FedMM in all else (steps, batches, control variates, channels), and takes its options.
    """
    algorithm = fedmm(in_parameter_space(surrogate), data, **options)
    return algorithm._replace(name=f"parameter-averaging:{surrogate.name}")


def oracle(surrogate: LinearSurrogate, params: Tree, data: ClientData, batch_size: int | None, key: Key) -> Tree:
    """The mean statistic of a client's samples, or of some of them drawn without replacement."""
    length = data.y.shape[0]
    if batch_size is None or batch_size >= length:
        return mean_statistic(surrogate, params, data)
    rows = permutation(key, data.size, length)[:batch_size]
    count = jnp.minimum(batch_size, data.size)
    weight = (jnp.arange(batch_size) < count).astype(jnp.result_type(float))
    return surrogate.statistic(params, Batch(data.x[rows], data.y[rows], weight, count))


def initial_statistic(
    surrogate: LinearSurrogate, data: FederatedData, *, params: Tree | None = None, seed: int = 0
) -> Tree:
    """Σ μ_i S̄_i at given parameters, or where the surrogate starts: what a set-up round of all clients would give."""
    x, y = data.train.take(~data.unseen)[:2]
    dtype = jnp.result_type(float)
    number = lambda a: jnp.asarray(a, dtype if jnp.issubdtype(a.dtype, jnp.floating) else None)
    pooled = ClientData(number(x), number(y), jnp.asarray(len(y)), jnp.asarray(0))
    start = surrogate.init(jax.random.key(seed)) if params is None else params
    return surrogate.project(jit(lambda p, d: mean_statistic(surrogate, p, d))(start, pooled))


def statistic_shapes(surrogate: LinearSurrogate, data: FederatedData | Spec) -> Tree:
    """The shapes of a statistic, from those of a sample."""
    spec = data if isinstance(data, Spec) else data.spec
    x = jnp.zeros((1, *spec.features), jnp.result_type(float))
    y = jnp.zeros(1, jnp.int32 if spec.classes else jnp.result_type(float))
    one = ClientData(x, y, jnp.asarray(1), jnp.asarray(0))
    try:
        params = jax.eval_shape(surrogate.init, jax.random.key(0))
        return jax.eval_shape(lambda params: surrogate.statistic(params, whole(one)), params)
    except Exception as error:
        raise ValueError(
            f"the {surrogate.name} surrogate does not fit samples of shape {spec.features}: {error}"
        ) from error


def check_start(surrogate: LinearSurrogate, start: Tree, shapes: Tree) -> None:
    """A start must be a finite statistic of the surrogate."""
    given, wanted = jax.tree.map(jnp.shape, start), jax.tree.map(lambda s: s.shape, shapes)
    if given != wanted:
        raise ValueError(f"start must be a statistic of the {surrogate.name} surrogate, {wanted}; got {given}")
    if not all(jnp.isfinite(leaf).all() for leaf in jax.tree.leaves(start)):
        raise ValueError("start has NaN or infinite numbers")
