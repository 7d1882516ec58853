"""ACD-PFL: accelerated descent that moves the shared block w or the personal block β, by a shared coin.

It minimises F(w, β) = (1/M) Σ_m f_m(w, β_m) with full local gradients. Iteration k, for both blocks u = w and u = β::

    u_x = (1 − θ) u_y + θ u_z
    block w is drawn with probability p_w, else β; for the one that is drawn, with g = ∇_u F(w_x, β_x),
    u_y ← u_x − g / L^u                          for the other one  u_y ← u_x
    u_z ← (u_z + ην u_x − η c_u g) / (1 + ην)    for the other one  u_z ← (u_z + ην u_x) / (1 + ην)

where ∇_{β_m} F = (1/M) ∇_β f_m and c_u = min_i(p_i²/L^i) / p_u. Theorem 7, with p_u = √L^u / (√L^w + √L^β), has
c_u = 1 / (√L^u (√L^w + √L^β)) and contracts by 1 − θ an iteration, with η = 1/θ and::

    ν = μ / (√L^w + √L^β)²,     θ = (√(ν² + 4ν) − ν) / 2

A communication round is J β-steps and one w-step. J is geometric and drawn for all; in β-steps w moves without data,
so every client, and the server, replays the same map from the (w_y, w_z) of the view. A client sends ∇_w f_m(w_x, β_x).

As printed, Algorithm 2 moves w when ξ = 0 (it has ξ = 1 with probability p_w), takes ∇_β f_m without 1/M, with which it
diverges, and leaves y unset in the block that is not drawn. Other p_w are covered by c_u and ν = μ min_i p_i²/L^i.

Reference: Hanzely, Zhao, Kolar, *Personalized federated learning: a unified framework and universal optimization
techniques*, TMLR 2023, Algorithm 2 and Theorem 7.
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
    Blocks,
    Counts,
    Iterates,
    Theory,
    check_block_probability,
    check_coordinate,
    combine,
    deployment,
    distance_from_optimum,
    draw_coins,
    gradient,
    is_personal,
    joining,
    no_counts,
    one_vote,
    repeat,
    unless_given,
    zeros,
)
from majorant.objectives.base import Constants, Objective
from majorant.solvers import whole
from majorant.solvers.minibatches import whole_in_a_loop


class State(NamedTuple):
    """What the server keeps to itself."""

    counts: Counts
    mean_size: jax.Array


def acd(
    objective: Objective,
    *,
    constants: Constants | None = None,
    p_w: float | None = None,
    nu: float | None = None,
    theta: float | None = None,
    eta: float | None = None,
) -> Algorithm:
    """Accelerated coordinate descent for personalized objectives; needs every client in every round.

    All numbers come from ``constants``, or from the clients' own, by Theorem 7 unless they are given; they, and L^w and
    L^β as ``smooth_w`` and ``smooth_beta``, are hyperparameters of the run. The history has the ``iterations`` and, in
    gradients of single samples per client, ``gradients_w`` and ``gradients_beta``: a full gradient counts as the mean
    number of samples.

    >>> import majorant as mj
    >>> data = mj.data.synthetic_mixture(clients=10, dimension=5, seed=0)
    >>> objective = mj.objectives.mixture(data, lambda_=0.1, l2=1e-2)
    >>> run = mj.simulate(mj.methods.acd(objective), data, rounds=3)
    >>> run.history[-1]["iterations"] >= 3
    True
    """
    check_coordinate("ACD-PFL", objective, constants, strongly=True)
    clients, personal = objective.clients, is_personal(objective)
    p_w = check_block_probability(p_w, personal)
    for name, value, bound in (("nu", nu, {}), ("theta", theta, {"below": 1}), ("eta", eta, {})):
        if value is not None:
            check_range(name, value, above=0, **bound)
    hyper = unless_given(p_w=p_w, nu=nu, theta=theta, eta=eta, smooth_w=None, smooth_beta=None)

    def numbers(constants: Constants, mean_size: jax.Array, terms: Terms) -> dict[str, Any]:
        steep_w, steep_beta = jnp.asarray(constants.smooth_w), jnp.asarray(constants.smooth_beta if personal else 0.0)
        share = jnp.sqrt(steep_w) / (jnp.sqrt(steep_w) + jnp.sqrt(steep_beta)) if p_w is None else jnp.asarray(p_w)
        convexity = jnp.where(jnp.asarray(constants.mu) > 0, constants.mu, jnp.nan)  # without it, no acceleration
        pull = convexity * flattest(share, steep_w, steep_beta) if nu is None else jnp.asarray(nu)
        root = (jnp.sqrt(pull**2 + 4 * pull) - pull) / 2 if theta is None else theta
        found = {"p_w": share, "nu": pull, "theta": root, "eta": 1 / root if eta is None else eta}
        return found | {"smooth_w": constants.smooth_w, "smooth_beta": constants.smooth_beta}

    theory = Theory(objective, constants, numbers)

    def init(key: Key) -> Server:
        w = objective.init(key)
        return Server(Iterates(w, w), as_hyper(hyper), State(no_counts(), jnp.ones((), jnp.result_type(float))))

    def broadcast(server: Server, key: Key) -> View:
        """With J, the number of β-steps before the w-step, for all."""
        return view_of(server, shared=draw_coins(key, server.hyper["p_w"], 0.0).silent)

    def between(hyper: dict[str, jax.Array], u: Iterates) -> Tree:
        return combine((1 - hyper["theta"], u.y), (hyper["theta"], u.z))

    def stay(hyper: dict[str, jax.Array], u: Iterates, x: Tree) -> Iterates:
        """The move of the block that is not drawn."""
        pull = hyper["eta"] * hyper["nu"]
        return Iterates(x, combine((1 / (1 + pull), u.z), (pull / (1 + pull), x)))

    def descend(hyper: dict[str, jax.Array], u: Iterates, x: Tree, g: Tree, block: str) -> Iterates:
        """The move of the block that is drawn, along ∇_u F."""
        p = hyper["p_w"] if block == "smooth_w" else 1 - hyper["p_w"]
        c = flattest(hyper["p_w"], hyper["smooth_w"], hyper["smooth_beta"]) / p if personal else 1 / hyper[block]
        stayed, eta = stay(hyper, u, x), hyper["eta"]
        z = combine((1, stayed.z), (-eta * c / (1 + eta * hyper["nu"]), g))
        return Iterates(combine((1, x), (-1 / hyper[block], g)), z)

    def update(view: View, beta: Iterates, data: ClientData, key: Key) -> tuple[Upload, Iterates]:
        hyper, samples = view.hyper, whole_in_a_loop(data)

        def beta_step(_: jax.Array, at: Blocks) -> Blocks:
            x = Blocks(between(hyper, at.w), between(hyper, at.beta))
            slope = jax.grad(objective.value, argnums=1)(x.w, x.beta, samples(), data.slot)
            g = jax.tree.map(lambda s: s / clients, slope)
            return Blocks(stay(hyper, at.w, x.w), descend(hyper, at.beta, x.beta, g, "smooth_beta"))

        w, beta = repeat(view.shared, beta_step, Blocks(view.value, beta))
        x = Blocks(between(hyper, w), between(hyper, beta))
        slope = gradient(objective, x, whole(data), data.slot).w
        return Upload(slope, one_vote(data)), stay(hyper, beta, x.beta)

    def server_update(server: Server, view: View, uploads: Uploads) -> Server:
        hyper, silent = server.hyper, view.shared
        w = repeat(silent, lambda _, w: stay(hyper, w, between(hyper, w)), server.value)
        g = jax.tree.map(lambda s: s / clients, uploads.value)
        counts = server.state.counts.add(iterations=silent + 1, full_w=1, full_beta=silent)
        w = descend(hyper, w, between(hyper, w), g, "smooth_w")
        return server._replace(value=w, state=server.state._replace(counts=counts))

    def start(view: View, data: ClientData, key: Key) -> Iterates:
        beta = objective.init_personal(key)
        return Iterates(beta, beta)

    def join(view: View, data: ClientData, key: Key) -> Iterates:
        beta = joining(objective, view.value.y, data, key, 1 / (clients * view.hyper["smooth_beta"]))
        return Iterates(beta, beta)

    def started(server: Server, answers: Answer) -> Server:
        server, mean_size = theory.fill(server, answers)
        return server._replace(state=server.state._replace(mean_size=mean_size))

    at = lambda view, beta: Blocks(view.value.y, beta.y)
    return Algorithm(
        name="acd",
        server=ServerSide(init, server_update, broadcast),
        client=ClientSide(update, start, origin=lambda view: zeros(view.value.y)),
        deployment=deployment(objective, at, join),
        setup=Setup(lambda view, beta, data, key: theory.answer(data), started),
        traits=Traits(needs_everyone=True, points=False, uneven_rounds=True),
        diagnostics=distance_from_optimum(objective, at)._replace(
            log=lambda server: server.state.counts.shown(server.state.mean_size)
        ),
    )


def flattest(p_w: jax.Array, steep_w: jax.Array, steep_beta: jax.Array) -> jax.Array:
    """min_i p_i²/L^i over the two blocks; one that is not steep at all is no limit."""
    ratio = lambda p, steep: jnp.where(steep > 0, p**2 / jnp.where(steep > 0, steep, 1), jnp.inf)
    return jnp.minimum(ratio(p_w, steep_w), ratio(1 - p_w, steep_beta))
