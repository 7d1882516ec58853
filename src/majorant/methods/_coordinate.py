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
every client replays the same map, and the server jumps to its end: the steps are linear in (u_y, u_z, u_v, g), with the
same numbers for all coordinates. The point v and ∇f_m(v) also stay with each client, which sends the *change* of
∇_w f_m(v) at a refresh: so ∇_w F(v) is right even where a client missed one and has an older v.

**A part of the clients.** A client takes part in a round with probability q. In g_w the sum over m is over those who
are present and divided by q. What becomes of the others' β_m is a choice. They "rest"; or they "replay", when they are
back, the steps they missed, which had g_β_m = (1/M) ∇_β f_m(v), known to them, and have 1/q on the stochastic part of
g_β_m while they are there. The second is the paper's estimator with one more coin. But a client is present or absent
for a whole round: over many iterations without communication it goes far along an old gradient, and resting is better.

**A start without control variates.** ASVRCD-PFL may begin as ASCD-PFL, which is faster until gradient noise stops it,
and take the control variates in when w no longer gets away from where it began (`stalling`). It then starts anew from
where it is: v = z = y.

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

from majorant.core import (
    Algorithm,
    Answer,
    ClientData,
    ClientSide,
    Key,
    Server,
    ServerSide,
    Setup,
    Traits,
    Tree,
    Upload,
    Uploads,
    View,
    all_finite,
    as_hyper,
    select,
    view_of,
)
from majorant.methods._coordinate_steps import Form
from majorant.methods._stalling import Watch, begin_watch, watch
from majorant.methods._two_blocks import (
    Blocks,
    Coins,
    Counts,
    Iterates,
    Theory,
    combine,
    deployment,
    distance_from_optimum,
    draw_coins,
    gradient,
    joining,
    no_counts,
    one_vote,
    repeat_with_samples,
    step_for,
    zeros,
)
from majorant.solvers import Batch, whole


class Shared(NamedTuple):
    """What clients are sent; v and its gradient are nothing where the method has none."""

    w: Iterates
    v: Tree
    gradient: Tree  # ∇_w F(v)


class Call(NamedTuple):
    """What a round begins with, besides the shared point."""

    coins: Coins
    begun: jax.Array  # iterations before it
    phase: jax.Array  # WARMING_UP, SWITCHING or REDUCED
    steepness: Tree = ()  # of f_m in β, for clients that join


class Client(NamedTuple):
    """What stays with a client."""

    beta: Iterates
    v: Blocks | tuple[()]
    gradient: Blocks | tuple[()]  # ∇f_m(v)
    believed: Tree  # ∇_w f_m(v) as the server has it: what was delivered of it
    reduced: jax.Array  # whether it has a v
    done: jax.Array  # iterations that its β has seen


class Message(NamedTuple):
    """What a client sends: its part of g_w (0 unless ζ = w), and the change of ∇_w f_m(v) (0 unless refreshed)."""

    step: Tree
    change: Tree


class State(NamedTuple):
    """What the server keeps to itself."""

    counts: Counts
    mean_size: jax.Array
    steepness: jax.Array  # of f_m in β: 1 over the step of a client that joins
    phase: jax.Array
    fresh: jax.Array  # whether clients do not have the present ∇_w F(v) yet
    watch: Watch | tuple[()]


WARMING_UP, SWITCHING, REDUCED = 0, 1, 2  # without control variates; the round that takes them in; with them


def coordinate_descent(name: str, theory: Theory, hyper: dict[str, float], form: Form) -> Algorithm:
    """The methods of one iteration; see `asvrcd`, `svrcd`, `ascd` and `scd`."""
    objective, clients = theory.objective, theory.objective.clients
    accelerated, control_variates, warm_up, replays, shared_samples = form
    between, move, jump = form.between, form.move, form.jump

    def init(key: Key) -> Server:
        w = objective.init(key)
        value = Shared(Iterates(w, w if accelerated else ()), (), ())
        if control_variates:
            value = value._replace(v=w if accelerated else (), gradient=zeros(w))
        state = State(
            counts=no_counts(int(control_variates and not warm_up)),
            mean_size=jnp.ones((), jnp.result_type(float)),
            steepness=jnp.zeros((), jnp.result_type(float)),
            phase=jnp.asarray(WARMING_UP if warm_up else REDUCED, jnp.int32),
            fresh=jnp.asarray(control_variates and not warm_up),
            watch=begin_watch(w) if warm_up else (),
        )
        return Server(value, as_hyper(hyper), state)

    def draw(server: Server, key: Key) -> Coins:
        rho = server.hyper["rho"] if control_variates else 0.0
        phase = server.state.phase
        coins = draw_coins(key, server.hyper["p_w"], jnp.where(phase == REDUCED, rho, 0.0))
        if not control_variates:
            return coins._replace(w_step=jnp.asarray(True), refresh=jnp.asarray(False))
        if not warm_up:
            return coins
        now = phase == SWITCHING
        return coins._replace(
            silent=jnp.where(now, 0, coins.silent),
            w_step=jnp.where(phase == WARMING_UP, True, coins.w_step & ~now),
            refresh=jnp.where(phase == WARMING_UP, False, coins.refresh | now),
        )

    def broadcast(server: Server, key: Key) -> View:
        """Those who are always there have v, and ∇_w F(v) unless it is new: these parts do not travel then."""
        call = Call(draw(server, key), server.state.counts.iterations, server.state.phase)
        absences = jnp.asarray(server.terms.inclusion) < 1
        parts: Any = (True, absences, absences | server.state.fresh)
        return view_of(server, shared=call, travels=Shared(*parts))

    def release(server: Server, key: Key) -> View:
        view = broadcast(server, key)
        return view._replace(shared=view.shared._replace(steepness=server.state.steepness))

    def up_to_date(call: Call, hyper: dict[str, jax.Array], client: Client) -> Client:
        """A client as it is after the steps it missed."""
        if not replays:
            return client._replace(done=call.begun)
        g = combine((1 / clients, client.gradient.beta))  # type: ignore[union-attr]
        missed = call.begun - client.done
        beta = jump(hyper, missed, client.beta, client.v.beta, g, client.reduced)  # type: ignore[union-attr]
        return client._replace(beta=select(missed > 0, beta, client.beta), done=call.begun)

    def update(view: View, client: Client, data: ClientData, key: Key) -> tuple[Upload, Client]:
        hyper, coins, phase = view.hyper, view.shared.coins, view.shared.phase
        client = up_to_date(view.shared, hyper, client)
        index_key = jax.random.wrap_key_data(coins.sample) if shared_samples else key
        beta_scale = 1 / ((1 - hyper["p_w"]) * clients)
        if replays:
            beta_scale = beta_scale / view.terms.inclusion
        own_v = client.v.beta if control_variates else ()  # type: ignore[union-attr]

        def point(at: Blocks) -> Blocks:
            w = between(hyper, at.w, view.value.v, phase == REDUCED)
            return Blocks(w, between(hyper, at.beta, own_v, client.reduced))

        def difference(block: int, x: Blocks, batch: Batch) -> Tree:
            """∇f_{m,j}(x) − ∇f_{m,j}(v) in one block, for the sample j of an iteration."""
            slope = jax.grad(objective.value, argnums=block)
            at_x = slope(*x, batch, data.slot)
            if not control_variates:
                return at_x
            return combine((1, at_x), (-1 * client.reduced, slope(*client.v, batch, data.slot)))

        def move_beta(beta: Iterates, x: Blocks, scale: Any, batch: Batch) -> Iterates:
            g = combine((scale, difference(1, x, batch)))
            if control_variates:
                g = combine((1, g), (1 / clients, client.gradient.beta))  # type: ignore[union-attr]
            return move(hyper, beta, x.beta, g)

        def silent(batch: Batch, at: Blocks) -> Blocks:
            x = point(at)
            w = move(hyper, at.w, x.w, view.value.gradient if control_variates else zeros(x.w))
            return Blocks(w, move_beta(at.beta, x, beta_scale, batch))

        start = Blocks(view.value.w, client.beta)
        before, last = repeat_with_samples(coins.silent, data, index_key, silent, start)
        x = point(before)
        step = select(coins.w_step, difference(0, x, last), zeros(x.w))
        beta = move_beta(before.beta, x, jnp.where(coins.w_step, 0, beta_scale), last)
        client = client._replace(beta=beta, done=client.done + coins.silent + 1)
        if not control_variates:
            return Upload(Message(step, ()), one_vote(data), travels=Message(coins.w_step, ())), client
        fresh = Blocks(before.w.y, before.beta.y)
        v, slopes = jax.lax.cond(
            coins.refresh,
            lambda: (fresh, gradient(objective, fresh, whole(data), data.slot)),
            lambda: (client.v, client.gradient),
        )
        if warm_up:
            anew = coins.refresh & ~client.reduced
            beta = select(anew, Iterates(fresh.beta, fresh.beta), beta)
        change = select(coins.refresh, combine((1, slopes.w), (-1, client.believed)), zeros(slopes.w))
        client = client._replace(beta=beta, v=v, gradient=slopes, reduced=client.reduced | coins.refresh)
        sent = Message(coins.w_step, coins.refresh)  # what the coins ask for
        return Upload(Message(step, change), one_vote(data), travels=sent), client

    def delivered(view: View, client: Client, upload: Upload) -> Client:
        """A channel's errors in ∇_w F(v) do not add up: a client knows what the server believes, and sends the rest."""
        if not control_variates:
            return client
        return client._replace(believed=combine((1, client.believed), (1, upload.value.change)))

    def server_update(server: Server, view: View, uploads: Uploads) -> Server:
        hyper, value, state, coins = server.hyper, server.value, server.state, view.shared.coins
        reduced = state.phase == REDUCED
        w = jump(hyper, coins.silent, value.w, value.v, value.gradient, reduced)
        w = select(coins.silent > 0, w, value.w)
        g = combine((1 / (hyper["p_w"] * clients * server.terms.inclusion), uploads.value.step))
        evaluations = 1 + (reduced if control_variates else 0)
        counts = state.counts.add(
            iterations=coins.silent + 1,
            sample_w=evaluations * coins.w_step,
            sample_beta=evaluations * (coins.silent + ~coins.w_step),
            full_w=coins.refresh,
            full_beta=coins.refresh,
        )
        new = value
        if control_variates:
            g = combine((1, g), (1, value.gradient))
            new = value._replace(gradient=combine((1, value.gradient), (1 / clients, uploads.value.change)))
            if accelerated:
                new = new._replace(v=select(coins.refresh, w.y, value.v))
        new = new._replace(w=move(hyper, w, between(hyper, w, value.v, reduced), g))
        state = state._replace(counts=counts, fresh=coins.refresh)
        if warm_up:
            switching = state.phase == SWITCHING
            new = new._replace(w=select(switching, Iterates(w.y, w.y), new.w))
            seen, stalled = watch(state.watch, new.w.y, counts.iterations, state.mean_size)
            following = jnp.where(switching, REDUCED, jnp.where(stalled & ~reduced, SWITCHING, state.phase))
            state = state._replace(watch=seen, phase=following.astype(jnp.int32))
        return server._replace(value=new, state=state)

    def state_at(view: View, data: ClientData, beta: Tree) -> Client:
        begun = view.shared.begun
        client = Client(Iterates(beta, beta if accelerated else ()), (), (), (), jnp.asarray(True), begun)
        if not control_variates:
            return client
        v = Blocks(view.value.w.y, beta)
        if warm_up:
            return client._replace(v=v, gradient=zeros(v), believed=zeros(v.w), reduced=jnp.asarray(False))
        slopes = gradient(objective, v, whole(data), data.slot)
        usable = all_finite(slopes) & (data.size > 0)  # a client that is never heard must not enter ∇_w F(v)
        slopes = select(usable, slopes, zeros(slopes))
        return client._replace(v=v, gradient=slopes, believed=slopes.w)

    def join(view: View, data: ClientData, key: Key) -> Client:
        return state_at(view, data, joining(objective, view.value.w.y, data, key, step_for(view.shared.steepness)))

    def ask(view: View, client: Client, data: ClientData, key: Key) -> Answer:
        return theory.answer(data, client.gradient.w if control_variates else ())  # type: ignore[union-attr]

    def started(server: Server, answers: Answer) -> Server:
        server, mean_size = theory.fill(server, answers)
        known = server.state._replace(mean_size=mean_size, steepness=theory.steepness(answers))
        if not control_variates:
            return server._replace(state=known)
        slopes = combine((1, server.value.gradient), (1 / clients, answers.value[1]))
        return server._replace(value=server.value._replace(gradient=slopes), state=known)

    at = lambda view, client: Blocks(view.value.w.y, client.beta.y)
    return Algorithm(
        name=name,
        server=ServerSide(init, server_update, broadcast),
        client=ClientSide(
            update=update,
            init=lambda view, data, key: state_at(view, data, objective.init_personal(key)),
            delivered=delivered,
            origin=lambda view: Message(zeros(view.value.w.y), zeros(view.value.gradient)),
        ),
        deployment=deployment(objective, at, join, release),
        setup=Setup(ask, started),
        traits=Traits(
            needs_everyone=accelerated and not control_variates,
            points=False,
            equal_sizes=shared_samples,
            uneven_rounds=True,
        ),
        diagnostics=distance_from_optimum(objective, at)._replace(
            log=lambda server: server.state.counts.shown(server.state.mean_size)
        ),
    )
