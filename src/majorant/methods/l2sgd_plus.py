"""L2SGD+: local SGD without loops, for personal models that are drawn to their mean.

It minimises what the objective `mixture` is when w is its best value, s w = x̄, with the β_m called x_m::

    F(x) = (1/M) Σ_m f'_m(x_m) + (λ/2M) Σ_m ‖x_m − x̄‖²,     f'_m = (1/n_m) Σ_j f'_{m,j},     x̄ = (1/M) Σ_m x_m

Every client keeps J_m, the last gradient of each of its samples (0 at the start; J̄_m is their mean), and
Ψ_m, the last gradient of its penalty (0 at the start). In an iteration, by a shared coin, all clients take a
gradient step (probability 1 − p), each with a sample j of its own, or all take an averaging step (probability p)::

    g_m = (1/M) [(∇f'_{m,j}(x_m) − J_{m,j}) / (1 − p) + J̄_m + Ψ_m],      then J_{m,j} ← ∇f'_{m,j}(x_m)
    g_m = (1/M) [(λ (x_m − x̄) − Ψ_m) / p + Ψ_m + J̄_m],                   then Ψ_m ← λ (x_m − x̄)
    x_m ← x_m − α g_m

(J and Ψ take the gradients at the x_m from which the step was made). g is an unbiased estimate of ∇F whose variance
vanishes at the minimiser, so that x converges linearly. By the paper's theory, with f'_{m,j} 𝓛'-smooth and
μ'-strongly convex and n the mean of the n_m::

    α = M min{(1 − p)/(4𝓛' + μ'n), p/(4λ + μ')},     p = (4λ + μ')/(4λ + 4𝓛' + (n + 1)μ')

which makes both terms of the minimum equal. As g has the 1/M, α is on the scale of η in ASVRCD-PFL, where the paper on
the unified framework takes both numbers from: p = 𝓛^w/(𝓛^w + 𝓛^β) and α = 1/(8 max(𝓛^w/p, 𝓛^β/(1 − p))).

A communication round is an averaging step and the gradient steps until the next one: their number is geometric and
drawn by the server. A client is sent x̄ and sends x_m. The table J_m takes n_m times the memory of a model, and stays.

Reference: Hanzely, Richtárik, *Federated learning of a mixture of global and local models*, 2020, Algorithm 2.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from majorant.core import (
    Algorithm,
    Answer,
    ClientData,
    ClientSide,
    Key,
    Server,
    ServerSide,
    Setup,
    Terms,
    Traits,
    Tree,
    Upload,
    Uploads,
    View,
    as_hyper,
    view_of,
)
from majorant.math.checks import check_range
from majorant.methods._two_blocks import (
    DRAWN,
    Blocks,
    Counts,
    Theory,
    check_coordinate,
    combine,
    deployment,
    distance_from_optimum,
    draw_coins,
    joining,
    no_counts,
    one_vote,
    repeat,
    step_for,
    unless_given,
    zeros,
)
from majorant.objectives.base import Constants, Objective, Penalty
from majorant.objectives.blocks import scaled
from majorant.solvers import Batch


class Client(NamedTuple):
    """What stays with a client."""

    x: Tree  # its model
    table: Tree  # J_m, (n, ...): rows of padding are never drawn and stay 0
    psi: Tree  # Ψ_m


class State(NamedTuple):
    """What the server keeps to itself."""

    counts: Counts
    steepness: jax.Array  # of f_m in β, for clients that join


def l2sgd_plus(
    objective: Objective,
    *,
    constants: Constants | None = None,
    p_w: float | None = None,
    lr: float | None = None,
) -> Algorithm:
    """Steps along single samples' gradients and towards the mean, with control variates; only for `mixture`.

    ``p_w`` is p, the probability of an averaging step, and ``lr`` is α; by default they come from ``constants`` (or
    from the clients' own) and the clients' mean number of samples. All clients start at the same point, and are needed
    in every round. The history has the ``iterations``, ``gradients_beta``, the gradients of single samples
    that a client has computed, and ``gradients_w``, those of its penalty: one for each averaging step.

    >>> import majorant as mj
    >>> data = mj.data.synthetic_mixture(clients=10, dimension=5, seed=0)
    >>> objective = mj.objectives.mixture(data, lambda_=0.1, l2=1e-2)
    >>> run = mj.simulate(mj.methods.l2sgd_plus(objective), data, rounds=3)
    >>> run.history[-1]["gradients_w"]
    3.0
    """
    penalty = penalty_of(objective)
    check_coordinate("L2SGD+", objective, constants, strongly=False)
    clients, lambda_ = objective.clients, penalty.lambda_
    if p_w is not None:
        check_range("p_w", p_w, above=0, below=1)
    if lr is not None:
        check_range("lr", lr, above=0)

    def numbers(constants: Constants, mean_size: jax.Array, terms: Terms) -> dict[str, Any]:
        return step_and_probability(objective, penalty, constants, mean_size, p_w, lr)

    theory = Theory(objective, constants, numbers)

    def init(key: Key) -> Server:
        state = State(no_counts(), jnp.zeros((), jnp.result_type(float)))
        return Server(objective.init_personal(key), as_hyper(unless_given(p_w=p_w, lr=lr)), state)

    def broadcast(server: Server, key: Key) -> View:
        """With the number of gradient steps after the averaging step, for all."""
        return view_of(server, shared=draw_coins(key, server.hyper["p_w"], 0.0).silent)

    def update(view: View, client: Client, data: ClientData, key: Key) -> tuple[Upload, Client]:
        alpha, p = view.hyper["lr"] / clients, view.hyper["p_w"]
        size = jnp.maximum(data.size, 1)
        mean = jax.tree.map(lambda rows: rows.sum(axis=0) / size, client.table)  # J̄_m

        pull = jax.tree.map(lambda x, mean: lambda_ * (x - mean), client.x, view.value)
        g = combine((1 / p, pull), (1 - 1 / p, client.psi), (1, mean))
        client = client._replace(x=combine((1, client.x), (-alpha, g)), psi=pull)

        def gradient_step(row: jax.Array, state: tuple[Tree, Tree, Tree]) -> tuple[Tree, Tree, Tree]:
            x, table, mean = state
            x_j, y_j = jax.tree.map(lambda rows: rows[row][None], (data.x, data.y))
            fresh = jax.grad(penalty.value)(x, Batch(x_j, y_j, one_vote(data)[None], jnp.asarray(1)))
            change = jax.tree.map(lambda new, rows: new - rows[row], fresh, table)
            g = combine((1 / (1 - p), change), (1, mean), (1, client.psi))
            # Adding the change leaves the table in its place; XLA would copy all of it to write the new row.
            table = jax.tree.map(lambda rows, change: rows.at[row].add(change), table, change)
            return combine((1, x), (-alpha, g)), table, combine((1, mean), (1 / size, change))

        row_of = lambda i: jax.random.randint(jax.random.fold_in(key, i), (), 0, size)

        def several(number: jax.Array, state: tuple[Tree, Tree, Tree]) -> tuple[Tree, Tree, Tree]:
            rows = jax.vmap(row_of)(number * DRAWN + jnp.arange(DRAWN))
            steps = jnp.minimum(view.shared - number * DRAWN, DRAWN)
            return repeat(steps, lambda i, state: gradient_step(rows[i], state), state)

        x, table, _ = repeat((view.shared + DRAWN - 1) // DRAWN, several, (client.x, client.table, mean))
        return Upload(x, one_vote(data)), client._replace(x=x, table=table)

    def average(server: Server, view: View, uploads: Uploads) -> Server:
        counts = server.state.counts.add(iterations=view.shared + 1, sample_w=1, sample_beta=view.shared)
        return server._replace(value=uploads.mean(), state=server.state._replace(counts=counts))

    def state_at(x: Tree, data: ClientData) -> Client:
        table = jax.tree.map(lambda leaf: jnp.zeros((data.y.shape[0], *leaf.shape), leaf.dtype), x)
        return Client(x, table, zeros(x))

    def shared(view: View) -> Tree:
        return scaled(view.value, 1 / penalty.scale)  # w, for which s w = x̄

    def join(view: View, data: ClientData, key: Key) -> Client:
        return state_at(joining(objective, shared(view), data, key, step_for(view.shared)), data)

    def started(server: Server, answers: Answer) -> Server:
        server, _ = theory.fill(server, answers)
        return server._replace(state=server.state._replace(steepness=theory.steepness(answers)))

    at = lambda view, client: Blocks(shared(view), client.x)
    release = lambda server, key: view_of(server, shared=server.state.steepness)
    return Algorithm(
        name="l2sgd+",
        server=ServerSide(init, average, broadcast),
        client=ClientSide(update, lambda view, data, key: state_at(view.value, data)),
        deployment=deployment(objective, at, join, release),
        setup=Setup(lambda view, client, data, key: theory.answer(data), started),
        traits=Traits(
            needs_everyone=True,
            points=False,  # a mean over neighbours is not the x̄ of the objective
            uneven_rounds=True,
        ),
        diagnostics=distance_from_optimum(objective, at)._replace(
            log=lambda server: server.state.counts.shown(jnp.ones((), jnp.result_type(float)))
        ),
    )


def penalty_of(objective: Objective) -> Penalty:
    """The penalty that the method is made for; other objectives have none."""
    if objective.penalty is None:
        raise ValueError(
            f"L2SGD+ minimises the mixture objective, personal models near their mean, and not {objective.name}: "
            "use mixture, or another solver"
        )
    if objective.penalty.lambda_ == 0:
        raise ValueError("L2SGD+ needs lambda_ > 0: without it nothing is shared, use local training")
    return objective.penalty


def step_and_probability(
    objective: Objective,
    penalty: Penalty,
    constants: Constants,
    mean_size: Any,
    p_w: float | None = None,
    lr: float | None = None,
) -> dict[str, Any]:
    """p and α as given, or by theory; the numbers may be traced."""
    mu, smooth = base_constants(objective, penalty, constants)
    steep, pull = 4 * smooth + mu * mean_size, 4 * penalty.lambda_ + mu
    share: Any = pull / (pull + steep) if p_w is None else p_w
    flat = jnp.where(steep > 0, (1 - share) / jnp.where(steep > 0, steep, 1), jnp.inf)
    rate = objective.clients * jnp.minimum(flat, share / pull) if lr is None else lr
    return {"p_w": share, "lr": rate}


def base_constants(objective: Objective, penalty: Penalty, constants: Constants) -> tuple[Any, Any]:
    """μ' and 𝓛' from the constants of the objective, M 𝓛^β = 𝓛' + λ and, with r² = s² M, M μ = m::

        m = λ_min [[r² λ, −r λ], [−r λ, μ' + λ]],     so that     μ' = m + λ m / (r² λ − m)

    where r² λ > m. Constants for which it is not are a guess, of which m is all that can be used.
    """
    lambda_, m = penalty.lambda_, objective.clients * jnp.asarray(constants.mu)
    room = objective.clients * penalty.scale**2 * lambda_ - m
    mu = jnp.where(room > 0, m + lambda_ * m / jnp.where(room > 0, room, 1), m)
    return mu, jnp.maximum(objective.clients * constants.sample_smooth_beta - lambda_, 0.0)
