"""Stochastic coordinate descent on w or β, by a shared coin: with control variates, acceleration, both or neither.

They minimise F(w, β) = (1/M) Σ_m f_m(w, β_m), f_m = (1/n_m) Σ_j f_{m,j}. Iteration k, for both blocks u = w and β::

    u_x = θ_1 u_z + θ_2 u_v + (1 − θ_1 − θ_2) u_y
    ζ = w with probability p_w, else β;  every client draws a sample j_m
    g_w   = 1[ζ = w]/p_w · (1/M) Σ_m (∇_w f_{m,j}(x) − ∇_w f_{m,j}(v)) + ∇_w F(v)
    g_β_m = 1[ζ = β]/(p_β M) · (∇_β f_{m,j}(x) − ∇_β f_{m,j}(v)) + (1/M) ∇_β f_m(v)
    u_y⁺ = u_x − η g_u,     u_z⁺ = ν u_z + (1 − ν) u_x − γ g_u
    v⁺ = (w_y, β_y), as they were before the iteration, with probability ρ: one coin for both blocks and all clients

==========  ==================  ==================  ================================================
method      control variates    acceleration        what remains of the iteration
==========  ==================  ==================  ================================================
ASVRCD-PFL  yes                 yes                 all of it; converges linearly
SVRCD-PFL   yes                 no                  u_x = u_y, no z; converges linearly
ASCD-PFL    no                  yes                 θ_2 = 0, no v; up to a noise level
SCD-PFL     no                  no                  u_y⁺ = u_y − η g_u; up to a noise level
==========  ==================  ==================  ================================================

Theorem 8 takes p_w = 𝓛^w/(𝓛^w + 𝓛^β), ρ = p_w/n, 𝓛 = 2 max(𝓛^w/p_w, 𝓛^β/p_β), η = 1/(4𝓛), θ_2 = 1/2 and::

    θ_1 = min{1/2, √(ημ max{1/2, θ_2/ρ})},     γ = 1/max{2μ, 4θ_1/η},     ν = 1 − γμ

A communication round ends with the first iteration that has ζ = w or refreshes v. Before it w moves without data, so
every client, and the server, replays the same map. The point v and ∇f_m(v) also stay with each client, which sends the
*change* of ∇_w f_m(v) at a refresh: so ∇_w F(v) is right even where a client missed one and has an older v.

As printed, Algorithm 3 has Y^{k+1} − Y^k in z (X^k is meant); Algorithm 5 leaves the block that is not drawn unset
(y ← x, z ← νz + (1 − ν)x are meant) and has a v that nothing reads; Algorithm 7 does not subtract the stochastic
gradient at v, which makes it biased by ∇F(v); ρ-coins are printed per block, and 𝓛 is defined in Lemma 15 only.

Reference: Hanzely, Zhao, Kolar, *Personalized federated learning: a unified framework and universal optimization
techniques*, TMLR 2023, Algorithms 3 to 7, Theorems 8 and 9.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from majorant.algorithms.two_blocks import (
    Blocks,
    Coins,
    Counts,
    coin_key,
    coins_of,
    combine,
    deployment,
    gradient,
    joining,
    no_counts,
    one_vote,
    repeat,
    repeat_with_samples,
    zeros,
)
from majorant.core import Algorithm, ClientData, Key, Server, Total, Tree, Upload, View, all_finite, select
from majorant.objectives.base import Objective
from majorant.solvers import Batch, as_hyper, whole


class Iterates(NamedTuple):
    """A block's y, which is the solution in the end, and its z, which carries the momentum (or nothing)."""

    y: Tree
    z: Tree


class Shared(NamedTuple):
    """What clients are sent; v and its gradient are nothing where the method has none."""

    w: Iterates
    v: Tree
    gradient: Tree  # ∇_w F(v)


class Client(NamedTuple):
    """What stays with a client."""

    beta: Iterates
    v: Blocks | tuple[()]
    gradient: Blocks | tuple[()]  # ∇f_m(v)
    id: jax.Array


class Message(NamedTuple):
    """What a client sends: its part of g_w (0 unless ζ = w), and the change of ∇_w f_m(v) (0 unless refreshed)."""

    step: Tree
    change: Tree


class State(NamedTuple):
    """What the server keeps to itself."""

    coins: jax.Array
    counts: Counts
    mean_size: jax.Array


def coordinate_descent(
    name: str,
    objective: Objective,
    hyper: dict[str, float],
    *,
    accelerated: bool,
    control_variates: bool,
    shared_samples: bool,
    joining_rate: float,
) -> Algorithm:
    """The method with its two switches; see `asvrcd_pfl`, `svrcd_pfl`, `ascd_pfl` and `scd_pfl`."""
    clients = objective.clients

    def init(key: Key) -> Server:
        w = objective.init(key)
        value = Shared(Iterates(w, w if accelerated else ()), (), ())
        if control_variates:
            value = value._replace(v=w if accelerated else (), gradient=zeros(w))
        state = State(coin_key(key), no_counts(int(control_variates)), jnp.ones((), jnp.result_type(float)))
        return Server(value, as_hyper(hyper), state)

    def draw(server: Server) -> Coins:
        rho = server.hyper["rho"] if control_variates else 0.0
        coins = coins_of(server, server.state.coins, server.hyper["p_w"], rho)
        return coins if control_variates else coins._replace(w_step=jnp.asarray(True), refresh=jnp.asarray(False))

    def broadcast(server: Server, key: Key) -> View:
        return View(server.value, server.hyper, server.round, server.rounds, draw(server))

    def between(hyper: dict[str, jax.Array], u: Iterates, v: Tree) -> Tree:
        if not accelerated:
            return u.y
        theta_1, theta_2 = hyper["theta_1"], hyper.get("theta_2", 0.0)
        point = combine((theta_1, u.z), (1 - theta_1 - theta_2, u.y))
        return combine((1, point), (theta_2, v)) if control_variates else point

    def move(hyper: dict[str, jax.Array], u: Iterates, x: Tree, g: Tree) -> Iterates:
        y = combine((1, x), (-hyper["lr"], g))
        if not accelerated:
            return Iterates(y, ())
        return Iterates(y, combine((hyper["nu"], u.z), (1 - hyper["nu"], x), (-hyper["gamma"], g)))

    def without_data(view_or_server: View | Server, w: Iterates) -> Iterates:
        """w's move in an iteration that draws β."""
        hyper, value = view_or_server.hyper, view_or_server.value
        g = value.gradient if control_variates else zeros(w.y)
        return move(hyper, w, between(hyper, w, value.v), g)

    def client_update(view: View, client: Client, data: ClientData, key: Key) -> tuple[Upload, Client]:
        hyper, coins = view.hyper, view.coins
        index_key = jax.random.wrap_key_data(coins.sample) if shared_samples else key
        beta_scale = 1 / ((1 - hyper["p_w"]) * clients)

        def point(at: Blocks) -> Blocks:
            v = client.v.beta if control_variates else ()  # type: ignore[union-attr]
            return Blocks(between(hyper, at.w, view.value.v), between(hyper, at.beta, v))

        def difference(block: int, x: Blocks, batch: Batch) -> Tree:
            """∇f_{m,j}(x) − ∇f_{m,j}(v) in one block, for the sample j of an iteration."""
            slope = jax.grad(objective.value, argnums=block)
            at_x = slope(*x, batch, data.id)
            return combine((1, at_x), (-1, slope(*client.v, batch, data.id))) if control_variates else at_x

        def move_beta(beta: Iterates, x: Blocks, scale: Any, batch: Batch) -> Iterates:
            g = combine((scale, difference(1, x, batch)))
            if control_variates:
                g = combine((1, g), (1 / clients, client.gradient.beta))  # type: ignore[union-attr]
            return move(hyper, beta, x.beta, g)

        def silent(batch: Batch, at: Blocks) -> Blocks:
            return Blocks(without_data(view, at.w), move_beta(at.beta, point(at), beta_scale, batch))

        start = Blocks(view.value.w, client.beta)
        before, last = repeat_with_samples(coins.silent, data, index_key, silent, start)
        x = point(before)
        step = select(coins.w_step, difference(0, x, last), zeros(x.w))
        beta = move_beta(before.beta, x, jnp.where(coins.w_step, 0, beta_scale), last)
        if not control_variates:
            return Upload(Message(step, ()), one_vote(data)), client._replace(beta=beta)
        fresh = Blocks(before.w.y, before.beta.y)
        v, slopes = jax.lax.cond(
            coins.refresh,
            lambda: (fresh, gradient(objective, fresh, whole(data), data.id)),
            lambda: (client.v, client.gradient),
        )
        change = combine((1, slopes.w), (-1, client.gradient.w))  # type: ignore[union-attr]
        return Upload(Message(step, change), one_vote(data)), Client(beta, v, slopes, client.id)

    def server_update(server: Server, total: Total) -> Server:
        hyper, value, coins = server.hyper, server.value, draw(server)
        w = repeat(coins.silent, lambda _, w: without_data(server, w), value.w)
        g = combine((1 / (hyper["p_w"] * clients * total.inclusion), total.value.step))
        evaluations = 1 + int(control_variates)
        counts = server.state.counts.add(
            iterations=coins.silent + 1,
            sample_w=evaluations * coins.w_step,
            sample_beta=evaluations * (coins.silent + ~coins.w_step),
            full_w=coins.refresh,
            full_beta=coins.refresh,
        )
        new = value
        if control_variates:
            g = combine((1, g), (1, value.gradient))
            new = value._replace(gradient=combine((1, value.gradient), (1 / clients, total.value.change)))
            if accelerated:
                new = new._replace(v=select(coins.refresh, w.y, value.v))
        new = new._replace(w=move(hyper, w, between(hyper, w, value.v), g))
        return server._replace(value=new, state=server.state._replace(counts=counts))

    def state_at(view: View, data: ClientData, beta: Tree) -> Client:
        client = Client(Iterates(beta, beta if accelerated else ()), (), (), data.id)
        if not control_variates:
            return client
        v = Blocks(view.value.w.y, beta)
        slopes = gradient(objective, v, whole(data), data.id)
        usable = all_finite(slopes) & (data.size > 0)  # a client that is never heard must not enter ∇_w F(v)
        return client._replace(v=v, gradient=select(usable, slopes, zeros(slopes)))

    def onboard(view: View, data: ClientData, key: Key) -> Client:
        return state_at(view, data, joining(objective, view.value.w.y, data, key, joining_rate))

    def setup_client(view: View, client: Client, data: ClientData, key: Key) -> Upload:
        slopes = client.gradient.w if control_variates else ()  # type: ignore[union-attr]
        return Upload((data.size.astype(jnp.result_type(float)), slopes), one_vote(data))

    def setup_server(server: Server, total: Total) -> Server:
        mean_size, _ = total.mean()
        if control_variates:
            slopes = combine((1 / clients, total.value[1]))
            server = server._replace(value=server.value._replace(gradient=slopes))
        return server._replace(state=server.state._replace(mean_size=mean_size))

    return Algorithm(
        name=name,
        init=init,
        broadcast=broadcast,
        init_client=lambda view, data, key: state_at(view, data, objective.init_personal(key)),
        client_update=client_update,
        origin=lambda view: Message(zeros(view.value.w.y), zeros(view.value.gradient)),
        server_update=server_update,
        onboard=onboard,
        setup_client=setup_client,
        setup_server=setup_server,
        needs_everyone=accelerated,
        sends_points=False,
        uneven_rounds=True,
        log=lambda server: server.state.counts.shown(server.state.mean_size),
        **deployment(objective, lambda view, client: Blocks(view.value.w.y, client.beta.y)),
    )
