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

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp

from majorant.core import Algorithm, ClientData, Key, Server, Total, Tree, Upload, View, as_hyper
from majorant.math.checks import check_range
from majorant.methods._two_blocks import (
    Blocks,
    Coins,
    Counts,
    check_block_probability,
    check_coordinate,
    coin_key,
    coins_of,
    combine,
    deployment,
    gradient,
    is_personal,
    joining,
    no_counts,
    one_vote,
    repeat,
    zeros,
)
from majorant.objectives.base import Constants, Objective
from majorant.solvers import whole


class Iterates(NamedTuple):
    """A block's y, which is the solution in the end, and its z, which carries the momentum."""

    y: Tree
    z: Tree


class Client(NamedTuple):
    """What stays with a client."""

    beta: Iterates
    id: jax.Array


class State(NamedTuple):
    """What the server keeps to itself."""

    coins: jax.Array
    counts: Counts
    mean_size: jax.Array


def acd(
    objective: Objective,
    *,
    constants: Constants,
    p_w: float | None = None,
    nu: float | None = None,
    theta: float | None = None,
    eta: float | None = None,
) -> Algorithm:
    """Accelerated coordinate descent for personalized objectives; needs every client in every round.

    All numbers come from ``constants`` by Theorem 7 unless they are given; they, and L^w and L^β as ``smooth_w`` and
    ``smooth_beta``, are hyperparameters of the run. The history has the ``iterations`` and, in gradients of single
    samples per client, ``gradients_w`` and ``gradients_beta``: a full gradient counts as the mean number of samples.

    >>> import majorant as mj
    >>> from majorant.objectives import mixture
    >>> data = mj.data.synthetic_mixture(clients=10, dimension=5, seed=0)
    >>> objective = mixture(data, lambda_=0.1, l2=1e-2)
    >>> algorithm = acd(objective, constants=objective.constants(data))
    >>> run = mj.simulate(algorithm, data, rounds=3)
    >>> run.history[-1]["iterations"] >= 3
    True
    """
    check_coordinate("ACD-PFL", objective, constants, strongly=True)
    clients, personal = objective.clients, is_personal(objective)
    roots = math.sqrt(constants.smooth_w), math.sqrt(constants.smooth_beta) if personal else 0.0
    p_w = check_block_probability(roots[0] / sum(roots) if p_w is None else p_w, personal)
    if nu is None:
        flat = (p**2 / root**2 for p, root in zip((p_w, 1 - p_w), roots, strict=True) if root)
        nu = constants.mu * min(flat)
    check_range("nu", nu, above=0)
    theta = (math.sqrt(nu**2 + 4 * nu) - nu) / 2 if theta is None else theta
    check_range("theta", theta, above=0, below=1)
    eta = 1 / theta if eta is None else eta
    check_range("eta", eta, above=0)
    hyper = {"p_w": p_w, "nu": nu, "theta": theta, "eta": eta}
    hyper |= {"smooth_w": constants.smooth_w, "smooth_beta": constants.smooth_beta}

    def init(key: Key) -> Server:
        w = objective.init(key)
        state = State(coin_key(key), no_counts(), jnp.ones((), jnp.result_type(float)))
        return Server(Iterates(w, w), as_hyper(hyper), state)

    def draw(server: Server) -> Coins:
        return coins_of(server, server.state.coins, server.hyper["p_w"], 0.0)

    def broadcast(server: Server, key: Key) -> View:
        return View(server.value, server.hyper, server.round, server.rounds, draw(server).silent)

    def between(hyper: dict[str, jax.Array], u: Iterates) -> Tree:
        return combine((1 - hyper["theta"], u.y), (hyper["theta"], u.z))

    def stay(hyper: dict[str, jax.Array], u: Iterates, x: Tree) -> Iterates:
        """The move of the block that is not drawn."""
        pull = hyper["eta"] * hyper["nu"]
        return Iterates(x, combine((1 / (1 + pull), u.z), (pull / (1 + pull), x)))

    def descend(hyper: dict[str, jax.Array], u: Iterates, x: Tree, g: Tree, block: str) -> Iterates:
        """The move of the block that is drawn, along ∇_u F."""
        p = {"smooth_w": hyper["p_w"], "smooth_beta": 1 - hyper["p_w"]}
        flat = [jnp.where(hyper[name] > 0, p[name] ** 2 / hyper[name], jnp.inf) for name in p]
        c = jnp.minimum(*flat) / p[block] if personal else flat[0]
        stayed, eta = stay(hyper, u, x), hyper["eta"]
        z = combine((1, stayed.z), (-eta * c / (1 + eta * hyper["nu"]), g))
        return Iterates(combine((1, x), (-1 / hyper[block], g)), z)

    def client_update(view: View, client: Client, data: ClientData, key: Key) -> tuple[Upload, Client]:
        hyper = view.hyper

        def beta_step(_: jax.Array, at: Blocks) -> Blocks:
            x = Blocks(between(hyper, at.w), between(hyper, at.beta))
            slope = jax.grad(objective.value, argnums=1)(x.w, x.beta, whole(data), data.id)
            g = jax.tree.map(lambda s: s / clients, slope)
            return Blocks(stay(hyper, at.w, x.w), descend(hyper, at.beta, x.beta, g, "smooth_beta"))

        w, beta = repeat(view.coins, beta_step, Blocks(view.value, client.beta))
        x = Blocks(between(hyper, w), between(hyper, beta))
        slope = gradient(objective, x, whole(data), data.id).w
        return Upload(slope, one_vote(data)), client._replace(beta=stay(hyper, beta, x.beta))

    def server_update(server: Server, total: Total) -> Server:
        hyper, silent = server.hyper, draw(server).silent
        w = repeat(silent, lambda _, w: stay(hyper, w, between(hyper, w)), server.value)
        g = jax.tree.map(lambda s: s / clients, total.value)
        counts = server.state.counts.add(iterations=silent + 1, full_w=1, full_beta=silent)
        w = descend(hyper, w, between(hyper, w), g, "smooth_w")
        return server._replace(value=w, state=server.state._replace(counts=counts))

    def init_client(view: View, data: ClientData, key: Key) -> Client:
        beta = objective.init_personal(key)
        return Client(Iterates(beta, beta), data.id)

    def onboard(view: View, data: ClientData, key: Key) -> Client:
        beta = joining(objective, view.value.y, data, key, 1 / (clients * view.hyper["smooth_beta"]))
        return Client(Iterates(beta, beta), data.id)

    def setup_server(server: Server, total: Total) -> Server:
        return server._replace(state=server.state._replace(mean_size=total.mean()))

    return Algorithm(
        name="acd",
        init=init,
        broadcast=broadcast,
        init_client=init_client,
        client_update=client_update,
        origin=lambda view: zeros(view.value.y),
        server_update=server_update,
        onboard=onboard,
        setup_client=lambda view, client, data, key: Upload(data.size.astype(jnp.result_type(float)), one_vote(data)),
        setup_server=setup_server,
        needs_everyone=True,
        sends_points=False,
        uneven_rounds=True,
        log=lambda server: server.state.counts.shown(server.state.mean_size),
        **deployment(objective, lambda view, client: Blocks(view.value.y, client.beta.y)),
    )
