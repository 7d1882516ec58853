"""FedMM for best-response surrogates: clients answer with parameters of a network, the server aggregates and solves.

The problem is min_ω Σ_i μ_i W_i(ω, θ), μ_i = n_i/n, with a variable θ on the server that public data are enough for
(`surrogates.BestResponse`). A client holds a control variate V_i that never leaves it, and the server V = Σ μ_i V_i.
Round t + 1::

    the server sends       ω_t and θ_t
    active clients         ω_i ≈ argmin_ω W_i(ω, θ_t), by a local solver from ω_t     one gradient step is enough
                           Δ_i = ω_i − ω_t − V_i,  sent as Q(Δ_i)                     Q: a compressor, or nothing
                           V_i ← V_i + (α/p) Q(Δ_i)                                   p: how often a client takes part
    the server             H = V + (1/p) Σ_active μ_i Q(Δ_i)
                           ω_{t+1} = the point closest to ω_t + step(H)               an optax optimizer on −H
                           V ← V + (α/p) Σ_active μ_i Q(Δ_i)
                           θ_{t+1} by a few steps of another one on public data, from θ_t

With the plain step γH this is Algorithm 3 of the paper. It prints exact solves in lines 6 and 16, and a plain step; for
transport maps what works is one gradient step on the clients, Adam on the server's H and ten steps on θ. Adam on the
*clients* is worse: their moments pull towards their own optima.

`gradient_play` is the baseline that first-order federated methods amount to: clients move ω and θ together, and both
are averaged. With one local step and Adam at the server it is FedAdam, with several and none it is FedAvg.

References: Dieuleveut, Fort, Hegazy, Wai, *Federated majorize-minimization: beyond parameter aggregation*, 2025,
Algorithm 3; Reddi et al., *Adaptive federated optimization*, ICLR 2021 (FedAdam).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

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
    squared_norm,
    view_of,
)
from majorant.math.checks import check_range, check_whole
from majorant.solvers import Batch, Solver, Task, local_sgd
from majorant.solvers.schedules import Schedule, constant
from majorant.surrogates.best_response import BestResponse, Pair

ADAM = optax.adam(1e-3)


class Client(NamedTuple):
    """What stays with a client: V_i, and its solver's moments."""

    variate: Tree
    moments: Tree


class State(NamedTuple):
    """What the server keeps to itself."""

    variate: Tree  # V
    samples: jax.Array  # of all clients
    moments: Tree  # of the optimizer of ω
    inner: Tree  # of the optimizer of θ
    field: jax.Array  # ‖H‖ of the last round


def best_response(
    problem: BestResponse,
    *,
    local: Solver | None = None,
    server: optax.GradientTransformation = ADAM,
    inner: optax.GradientTransformation = ADAM,
    inner_steps: int = 10,
    alpha: float = 0.0,
    schedule: Schedule = constant(),  # noqa: B008 - a record of a pure function
) -> Algorithm:
    """Federated majorize-minimization where the surrogate is a network's parameters.

    ``local`` is a client's solver of its best response (default: one gradient step on a batch of 1024, whose rate Adam
    at the server does not see), ``server`` moves ω along H, and ``inner`` takes ``inner_steps`` steps on θ. Their
    updates are multiplied by ``schedule`` and by the hyperparameters ``server_scale`` and ``inner_scale``. ``alpha`` is
    the step of the control variates: useful where some clients are absent (0.1 there), 0 for none. A client draws one
    batch of public data a round.
    """
    check_whole("inner_steps", inner_steps, least=0)
    check_range("alpha", alpha, least=0, most=1)
    local = local or local_sgd(0.01, steps=1, batch_size=1024)
    hyper = problem.hyper | local.hyper | {"server_scale": 1.0, "inner_scale": 1.0, "alpha": alpha}
    zeros = lambda omega: jax.tree.map(jnp.zeros_like, omega)

    def init(key: Key) -> Server:
        pair = problem.init(key)
        number = jnp.zeros((), jnp.result_type(float))
        state = State(zeros(pair.omega), number + 1, server.init(pair.omega), inner.init(pair.theta), number)
        return Server(pair, as_hyper(hyper), state)

    def start(view: View, data: ClientData, key: Key) -> Client:
        return Client(zeros(view.value.omega), local.moments(view.value.omega))

    def update(view: View, client: Client, data: ClientData, key: Key) -> tuple[Upload, Client]:
        omega, theta = view.value
        public = problem.draw(jax.random.fold_in(key, 1))

        def objective(omega: Tree, batch: Batch) -> jax.Array:
            return problem.objective(omega, theta, batch, public, view.hyper)

        found, moments, loss = local.minimize(objective, Task(view, data, key), omega, client.moments)
        drift = jax.tree.map(lambda own, at, v: own - at - v, found, omega, client.variate)
        drift = jax.tree.map(lambda d: jnp.where(data.size > 0, d, 0), drift)
        upload = Upload(drift, data.size.astype(jnp.result_type(float)), {"loss": loss})
        return upload, client._replace(moments=moments)

    def delivered(view: View, client: Client, upload: Upload) -> Client:
        rate = view.hyper["alpha"] / view.terms.inclusion
        moved = jax.tree.map(lambda v, arrived: v + rate.astype(v.dtype) * arrived, client.variate, upload.value)
        return client._replace(variate=moved)

    def server_update(at: Server, view: View, uploads: Uploads) -> Server:
        state, (omega, theta) = at.state, at.value
        scale = schedule(view.progress)
        scaled = lambda tree, factor: jax.tree.map(lambda a: a * jnp.asarray(factor, a.dtype), tree)
        heard = scaled(uploads.value, 1 / (at.terms.inclusion * state.samples))
        field = jax.tree.map(jnp.add, state.variate, heard)  # H
        step, moments = server.update(scaled(field, -1), state.moments, omega)
        omega = problem.project(optax.apply_updates(omega, scaled(step, scale * at.hyper["server_scale"])))
        key = jax.random.wrap_key_data(view.shared)

        def down(j: jax.Array, carry: tuple[Tree, Tree]) -> tuple[Tree, Tree]:
            theta, kept = carry
            public = problem.draw(jax.random.fold_in(key, j))
            slope = jax.grad(lambda t: problem.server_objective(omega, t, public, at.hyper))(theta)
            step, kept = inner.update(slope, kept, theta)
            return problem.project_theta(
                optax.apply_updates(theta, scaled(step, scale * at.hyper["inner_scale"]))
            ), kept

        theta, kept = jax.lax.fori_loop(0, inner_steps, down, (theta, state.inner))
        variate = jax.tree.map(jnp.add, state.variate, scaled(heard, at.hyper["alpha"]))
        norm = jnp.sqrt(squared_norm(field)).astype(state.field.dtype)
        return at._replace(value=Pair(omega, theta), state=State(variate, state.samples, moments, kept, norm))

    def agree(at: Server, held: tuple[Tree, Tree]) -> Server:
        pair, variate = held  # with θ: nodes go down their own, which would stay as far apart as their ω were
        return at._replace(value=pair, state=at.state._replace(variate=variate))

    def measure(view: View, client: Client, data: ClientData, key: Key) -> Tree:
        return client.variate

    def conclude(at: Server, mean: Tree) -> dict[str, jax.Array]:
        apart = jax.tree.map(jnp.subtract, mean, at.state.variate)
        return {"variates_apart": jnp.sqrt(squared_norm(apart))}

    return Algorithm(
        name=f"best-response:{problem.name}",
        server=ServerSide(
            init,
            server_update,
            broadcast=lambda at, key: view_of(at, shared=jax.random.key_data(key)),  # the coins of public batches
            consensus=Lens(lambda at: (at.value, at.state.variate), agree),
        ),
        client=ClientSide(update, start, delivered, origin=lambda view: zeros(view.value.omega)),
        deployment=deployment(problem),
        setup=Setup(
            ask=lambda view, client, data, key: Answer((), data.size.astype(jnp.result_type(float))),
            start=lambda at, answers: at._replace(state=at.state._replace(samples=jnp.maximum(answers.weight, 1))),
        ),
        traits=Traits(points=False, moves_alone=True, check_hyper=check_hyper),
        diagnostics=Diagnostics(lambda at: {"mean_field": at.state.field}, measure, conclude),
    )


def gradient_play(
    problem: BestResponse,
    *,
    local: Solver | None = None,
    server: optax.GradientTransformation = ADAM,
    schedule: Schedule = constant(),  # noqa: B008
) -> Algorithm:
    """Both variables move on the clients, each down its own loss, and both are averaged: FedAdam or FedAvg on a game.

    ``server`` takes minus the mean displacement as its gradient: `optax.adam` makes it FedAdam, `optax.sgd(1.0)` is
    FedAvg.
    """
    local = local or local_sgd(0.01, steps=1, batch_size=1024)
    hyper = problem.hyper | local.hyper | {"server_scale": 1.0}

    def init(key: Key) -> Server:
        pair = problem.init(key)
        return Server(pair, as_hyper(hyper), server.init(pair))

    def update(view: View, moments: Tree, data: ClientData, key: Key) -> tuple[Upload, Tree]:
        public = problem.draw(jax.random.fold_in(key, 1))
        still = jax.lax.stop_gradient

        def both(pair: Pair, batch: Batch) -> jax.Array:
            """A number whose gradient has each player's own slope: the other's variable stands still."""
            own = problem.objective(pair.omega, still(pair.theta), batch, public, view.hyper)
            return own + problem.server_objective(still(pair.omega), pair.theta, public, view.hyper)

        pair, moments, loss = local.minimize(both, Task(view, data, key), view.value, moments)
        return Upload(pair, data.size.astype(jnp.result_type(float)), {"loss": loss}), moments

    def server_update(at: Server, view: View, uploads: Uploads) -> Server:
        gap = jax.tree.map(jnp.subtract, at.value, uploads.mean())
        step, moments = server.update(gap, at.state, at.value)
        scale = schedule(view.progress) * at.hyper["server_scale"]
        pair = optax.apply_updates(at.value, jax.tree.map(lambda s: s * jnp.asarray(scale, s.dtype), step))
        return at._replace(value=Pair(problem.project(pair.omega), problem.project_theta(pair.theta)), state=moments)

    return Algorithm(
        name=f"gradient-play:{problem.name}",
        server=ServerSide(init, server_update),
        client=ClientSide(update, lambda view, data, key: local.moments(view.value)),
        deployment=deployment(problem),
        traits=Traits(check_hyper=check_hyper),
    )


def deployment(problem: BestResponse) -> Deployment:
    """Everybody uses the server's pair; a client's score is its W_i, with one batch of public data for all."""

    def losses(pair: Pair, x: jax.Array, y: jax.Array) -> jax.Array:
        public = problem.public(pair.omega, pair.theta, problem.draw(jax.random.key(0)), as_hyper(problem.hyper))
        return problem.losses(pair.omega, pair.theta, x, y) + public.mean()

    def predict(pair: Pair, x: jax.Array) -> jax.Array:
        if problem.predict is None:
            raise ValueError(f"the {problem.name} problem does not say how to predict")
        return problem.predict(pair, x)

    return Deployment(lambda view, client, data, key: view.value, predict, losses=losses)


def check_hyper(values: dict[str, float]) -> None:
    """Refuses hyperparameters outside their ranges."""
    bounds: dict[str, Callable[[float], Any]] = {
        "alpha": lambda v: check_range("alpha", v, least=0, most=1),
        "server_scale": lambda v: check_range("server_scale", v, least=0),
        "inner_scale": lambda v: check_range("inner_scale", v, least=0),
        "cycle": lambda v: check_range("cycle", v, least=0),
    }
    for name, check in bounds.items():
        if name in values:
            check(values[name])
