"""pFedMe: every client has a model of its own, held near the shared one by the Moreau envelope of its loss.

The objective is min_w Σ_t p_t F_t(w) with F_t(w) = min_θ f_t(θ) + (μ/2) ‖θ − w‖², whose gradient is μ (w − θ_t(w)); the
minimiser θ_t(w) is client t's model. Two ways to descend:

"released", what the FedEM authors ran: a client keeps θ_t from round to round, trains it on f_t(θ) + (μ/2) ‖θ − w‖²,
and sends it; w = Σ_t (n_t/n) θ_t.

"paper", Algorithm 1 of pFedMe: a client copies w_t = w, and for each of its minibatches

    θ   ← a few gradient steps on f_t(θ; batch) + (μ/2) ‖θ − w_t‖²          (from the θ it has)
    w_t ← w_t − η μ (w_t − θ)

It sends w_t and deploys θ; w ← (1 − β) w + β · mean_t w_t, an unweighted mean over the clients that have samples.

Diagnostics report Σ_t p_t (f_t(θ_t) + (μ/2) ‖θ_t − w‖²) with the θ_t as they are: p_t is n_t/n where it is "released",
and equal in "paper". There, λ = μ makes it the objective `mixture` without an L2 term, at s w and β_t = θ_t.

A client that did not take part in training makes one local update from w (the second option in FedEM's App. J.3).

References: Dinh, Tran, Nguyen, *Personalized federated learning with Moreau envelopes*, NeurIPS 2020 (its λ is μ here);
Marfoq et al., NeurIPS 2021, App. F.3 (where λ(θ − ω) should read λ(ω − θ)).
"""

from __future__ import annotations

from typing import NamedTuple

import jax

from majorant.core import (
    Algorithm,
    ClientData,
    ClientSide,
    Deployment,
    Key,
    Server,
    ServerSide,
    Tree,
    Upload,
    Uploads,
    View,
    as_hyper,
    masked_mean,
    replace_by_mean,
)
from majorant.math.checks import check_range, check_whole
from majorant.methods import _convergence as convergence
from majorant.methods._two_blocks import one_vote
from majorant.methods.fedprox import pull_to_broadcast
from majorant.models.base import Model
from majorant.solvers import Batch, Solver, Task, local_sgd, needs_steps, run_minibatches


class Client(NamedTuple):
    """What stays with a client: its own model and its optimizer's moments."""

    theta: Tree
    moments: Tree


def pfedme(
    model: Model,
    *,
    mu: float = 1.0,
    local: Solver | None = None,
    variant: str = "released",
    inner_steps: int = 5,
    outer_lr: float = 0.1,
    beta: float = 1.0,
) -> Algorithm:
    """Personalized federated learning with Moreau envelopes.

    ``mu`` is the weight of the envelope. ``variant`` "paper" takes ``inner_steps`` steps of ``local`` on every
    minibatch; η is ``outer_lr``, and ``beta`` is the server's step.

    >>> import majorant as mj
    >>> data = mj.data.synthetic_mixture(clients=10, dimension=5, seed=0)
    >>> run = mj.simulate(mj.pfedme(mj.models.linear(data), mu=0.1), data, rounds=5, seed=0)
    >>> run.summary()["algorithm"]
    'pfedme'
    """
    if variant not in ("released", "paper"):
        raise ValueError(f"variant must be 'released' or 'paper', got {variant!r}")
    check_whole("inner_steps", inner_steps)
    check_range("mu", mu, least=0)
    check_range("outer_lr", outer_lr, above=0)
    check_range("beta", beta, above=0)
    local = local or local_sgd()
    if variant == "paper":
        stepping = needs_steps(local, 'pfedme with variant="paper"')
    outer = {"outer_lr": outer_lr, "beta": beta} if variant == "paper" else {}

    def init(key: Key) -> Server:
        return Server(model.init(key), as_hyper(local.hyper | {"mu": mu} | outer))

    def start(view: View, data: ClientData, key: Key) -> Client:
        return Client(view.value, local.moments(view.value))

    def released(view: View, client: Client, data: ClientData, key: Key) -> tuple[Upload, Client]:
        theta, moments = client
        pull = lambda theta: pull_to_broadcast(theta, view)
        theta, moments, loss = local.solve(model, Task(view, data, key, penalty=pull), theta, moments)
        return Upload(theta, data.size.astype(loss.dtype), {"loss": loss}), Client(theta, moments)

    def paper(view: View, client: Client, data: ClientData, key: Key) -> tuple[Upload, Client]:
        loss = masked_mean(model.losses(client.theta, data.x, data.y), data)
        rate = view.hyper["outer_lr"] * view.hyper["mu"]

        def step(carry: tuple[Tree, Tree, Tree], batch: Batch) -> tuple[Tree, Tree, Tree]:
            w, theta, moments = carry
            pull = lambda theta: pull_to_broadcast(theta, view._replace(value=w))
            inner = lambda _, at: stepping.step_on(model, Task(view, data, key, penalty=pull), at[0], at[1], batch)[:2]
            theta, moments = jax.lax.fori_loop(0, inner_steps, inner, (theta, moments))
            return jax.tree.map(lambda w, t: w - rate * (w - t), w, theta), theta, moments

        moments = client.moments if stepping.keep_moments else stepping.init(client.theta)
        first = (view.value, client.theta, moments)
        w, theta, moments = run_minibatches(stepping.plan.suiting(model), step, first, data, key)
        upload = Upload(w, one_vote(data).astype(loss.dtype), {"loss": loss})
        return upload, Client(theta, moments if stepping.keep_moments else ())

    def step_towards(server: Server, view: View, uploads: Uploads) -> Server:
        move = lambda w, mean: w + server.hyper["beta"] * (mean - w)
        return server._replace(value=jax.tree.map(move, server.value, uploads.mean()))

    update = released if variant == "released" else paper
    weight = (lambda data: data.size) if variant == "released" else one_vote

    return Algorithm(
        name="pfedme",
        server=ServerSide(init, replace_by_mean if variant == "released" else step_towards),
        client=ClientSide(update, start),
        deployment=Deployment(
            personalize=lambda view, client, data, key: client.theta,
            predict=model.predict,
            join=lambda view, data, key: update(view, start(view, data, key), data, key)[1],
            model=model,
        ),
        diagnostics=convergence.of_personal_models(model, pull_to_broadcast, weight),
    )
