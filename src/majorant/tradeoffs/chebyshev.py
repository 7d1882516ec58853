"""Federated Chebyshev scalarization: the largest of weighted gaps to a reference point is made small.

With H = (C_1 … C_M, S_1 … S_N), agents' losses and a coordinator's criteria, preferences w_k > 0 and a reference s::

    min_Θ max_k w_k (H_k(Θ) − s_k)  =  min_Θ max_{ρ in the simplex} Σ_k ρ_k w_k (H_k(Θ) − s_k)

A minimiser is weakly Pareto optimal, and with s below a Pareto optimal point in everything some w reaches it, also
where the front is not convex, which no weighted sum does. (As printed, (4.1) has no w: then s alone moves the point.)
The server keeps ρ. In a round every agent trains its loss from the broadcast Θ, to Θ_i, and sends it with one number,
C_i(Θ)::

    log ρ_k ← β log ρ_k + γ w_k (H_k(Θ) − s_k)                      mirror ascent, β = 1 (multiplicative weights)
    Θ       ← Θ + Σ_i ρ_i w_i (Θ_i − Θ)                             then the criteria's proximal or gradient step

With one local step on all samples that is descent on Σ_k ρ_k w_k H_k with the agents' rate. On convex problems the
*means* of Θ and ρ over the rounds converge (``output="average"``); `tradeoffs.duality_gap` says how far they are.
β < 1 forgets: ρ then is a softmax of recent gaps, and Θ descends a smooth maximum with temperature (1 − β)/γ, which
also converges where the problem is not convex. An agent that is absent counts with the loss it last reported (before
round 1 all report once), and those that are there count M/m-fold, m of M agents being there: on average that is
everybody's step. It is cut to the weight that all agents together have, so that it stays stable; by that cut the means
come near the solution and not quite to it.

One number moves the point along the front: λ in [0, 1) multiplies the agents' preferences by 2(1 − λ) and criterion j's
by 2λ N v_j, with shares v that sum to 1 (1/N each unless given), so that λ = ½ leaves all as they are. What has
preference 0 then (all criteria for λ = 0) is out of play. λ may rise along a *ramp*, as in `weighted_sum`.

Agnostic federated learning is the case without criteria, with s = 0 and w = 1 (its authors take projected steps on ρ).

References: Morales, Biccari, *A multi-objective optimization framework for decentralized learning with coordination
constraints*, (4.1); Mohri, Sivek, Suresh, *Agnostic federated learning*, ICML 2019.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from majorant.core import (
    Algorithm,
    Answer,
    ClientData,
    ClientSide,
    Deployment,
    Diagnostics,
    Key,
    Server,
    ServerSide,
    Setup,
    Traits,
    Tree,
    Upload,
    Uploads,
    View,
    as_hyper,
    view_of,
)
from majorant.math.checks import check_range, check_whole
from majorant.methods._two_blocks import one_vote
from majorant.methods.fedavg import shared_model
from majorant.models.base import Model
from majorant.solvers import LocalSolver, Solver, Task, local_sgd
from majorant.surrogates.partial import mean_loss
from majorant.tradeoffs.coordinator import Coordinator
from majorant.tradeoffs.criteria import coordinate
from majorant.tradeoffs.criterion import Criterion
from majorant.tradeoffs.weighted_sum import check_weight, weight_of_round


class Sent(NamedTuple):
    """What an agent uploads: its model, and its loss at the broadcast one."""

    theta: Tree
    loss: jax.Array


class State(NamedTuple):
    """What the server keeps to itself; K = clients + criteria."""

    score: jax.Array  # (K,) log ρ, up to a constant
    losses: jax.Array  # (clients,) as last reported
    member: jax.Array  # (clients,) whether an agent trains and has samples
    rho: jax.Array  # (K,) the mean of ρ over the rounds
    pull: jax.Array  # (K,) ρ_k w_k in the last step; its mean over the rounds where the mean of Θ is deployed
    average: Tree  # the mean of Θ over the rounds


def chebyshev(
    model: Model,
    criteria: Criterion | Sequence[Criterion] = (),
    *,
    clients: int,
    reference: float | Sequence[float] = 0.0,
    preferences: float | Sequence[float] = 1.0,
    weight: float = 0.5,
    weights: Sequence[float] | None = None,
    ramp: float = 0.0,
    local: Solver | None = None,
    mirror_rate: float = 0.1,
    memory: float = 1.0,
    criteria_lr: float | None = None,
    output: str = "last",
) -> Algorithm:
    """The smallest worst gap over ``clients`` agents (all of the data's, unseen ones included) and criteria.

    ``reference`` s and ``preferences`` w are numbers, or one for each agent and then each criterion. ``weight`` is λ
    and ``weights`` are the criteria's shares v: hyperparameters "lambda" and, of several criteria, "share_l1" and the
    like, so that a front is one program; ``ramp`` is the share of the rounds over which λ rises from 0. ``mirror_rate``
    is γ and ``memory`` β. ``criteria_lr`` is how far the coordinator steps in a round: by default the agents' learning
    rate (the hyperparameter "lr") times their number of local steps, where that is known; the local solver's schedule
    multiplies both. ``output`` "average" deploys the mean of the iterates, with a ramp of those after it.
    Gaps should be positive: where a model is better than s in everything, a larger preference makes a gap *smaller*,
    and moves the point the wrong way.

    >>> import majorant as mj
    >>> data = mj.data.synthetic_mixture(clients=5, dimension=4, seed=0)
    >>> run = mj.simulate(mj.tradeoffs.chebyshev(mj.models.linear(data), clients=5), data, rounds=5)
    >>> run.server.state.rho.shape
    (5,)
    """
    check_whole("clients", clients)
    check_range("mirror_rate", mirror_rate, above=0)
    check_memory({"memory": memory})
    if output not in ("last", "average"):
        raise ValueError(f"output must be 'last' or 'average', got {output!r}")
    local = local or local_sgd()
    given = isinstance(criteria, Criterion) or len(criteria) > 0
    coordinator = coordinate(criteria, weights, step="implicit") if given else Coordinator((), ())
    coordinator.check(model)
    check_weight({"lambda": weight, "ramp": ramp})
    if not given and (weight != 0.5 or weights is not None or ramp):
        raise ValueError("weight, weights and ramp are of criteria, and there are none")
    count = clients + len(coordinator.criteria)
    s, w = per_objective("reference", reference, count), per_objective("preferences", preferences, count)
    if not (w > 0).all():
        raise ValueError(f"preferences must be greater than 0, got {preferences}")
    hyper = local.hyper | {"mirror_rate": mirror_rate, "memory": memory}
    if given:
        hyper |= {"lambda": weight} | ({"ramp": ramp} if ramp else {}) | coordinator.hyper
        steps = steps_of_a_round(local) if criteria_lr is None else 1
        if criteria_lr is not None:
            check_range("criteria_lr", criteria_lr, above=0)
            hyper["criteria_lr"] = criteria_lr
    averaging, zero = output == "average", lambda *shape: jnp.zeros(shape, jnp.result_type(float))
    loss_of = lambda theta, data: mean_loss(model, theta, data).astype(jnp.result_type(float))

    def init(key: Key) -> Server:
        theta = model.init(key)
        state = State(zero(count), zero(clients), jnp.ones(clients, bool), zero(count), zero(count), theta)
        return Server(theta, as_hyper(hyper), state)

    def ask(view: View, moments: Tree, data: ClientData, key: Key) -> Answer:
        return Answer(loss_of(view.value, data), one_vote(data))

    def started(server: Server, answers: Answer) -> Server:
        check_slots(answers.weight)
        return server._replace(state=server.state._replace(losses=answers.value, member=answers.weight > 0))

    def check_slots(weight: jax.Array) -> None:
        if weight.shape[0] != clients:
            there = weight.shape[0]
            raise ValueError(
                f"the method is made for {clients} clients, but the data has {there}: give clients={there}"
            )

    def train(view: View, moments: Tree, data: ClientData, key: Key) -> tuple[Upload, Tree]:
        loss = loss_of(view.value, data)
        solved = local.solve(model, Task(view, data, key), view.value, moments)
        return Upload(Sent(solved.params, loss), one_vote(data), {"loss": loss}), solved.moments

    def preferred(hyper: dict[str, jax.Array]) -> jax.Array:
        """The preferences with λ in them."""
        if not given:
            return w
        lam, shares = hyper["lambda"], jnp.stack([jnp.asarray(share) for share in coordinator.shares_of(hyper)])
        return w * jnp.concatenate([jnp.full(clients, 2 * (1 - lam)), 2 * lam * len(shares) * shares])

    def in_play(server: Server) -> jax.Array:
        return jnp.concatenate([server.state.member, preferred(server.hyper)[clients:] > 0])

    def probabilities(server: Server) -> jax.Array:
        return jax.nn.softmax(jnp.where(in_play(server), server.state.score, -jnp.inf))

    def gaps(server: Server, losses: jax.Array, theta: Tree) -> jax.Array:
        values = coordinator.values(theta) if given else zero(0)
        return preferred(server.hyper) * (jnp.concatenate([losses, values]) - s)

    def update(before: Server, view: View, uploads: Uploads) -> Server:
        check_slots(uploads.weight)
        server = before
        if given:
            server = before._replace(hyper=before.hyper | {"lambda": weight_of_round(view)})
        state, here = server.state, uploads.weight > 0
        losses = jnp.where(here, uploads.value.loss, state.losses)
        score = server.hyper["memory"] * state.score + server.hyper["mirror_rate"] * gaps(server, losses, server.value)
        alive = in_play(server)
        score = jnp.where(alive, score - jnp.where(alive, score, -jnp.inf).max(), 0)
        rho = probabilities(server._replace(state=state._replace(score=score)))
        force = preferred(server.hyper) * rho
        pulls = jnp.where(here, force[:clients], 0) * state.member.sum() / jnp.maximum(here.sum(), 1)
        pulls = pulls * jnp.minimum(1, force[:clients].sum() / jnp.maximum(pulls.sum(), 1e-30))
        moved = lambda old, new: old + jnp.tensordot(pulls.astype(old.dtype), new - old, axes=1)
        theta = jax.tree.map(moved, server.value, uploads.value.theta)
        if given:
            theta = coordinators_step(server, theta, force[clients:])
        t = jnp.maximum(server.round + 1 - rounds_of_the_ramp(server), 1)
        mean = lambda old, new: old + ((new - old) / t).astype(old.dtype)
        means = jax.tree.map(mean, (state.rho, state.pull, state.average), (rho, force, server.value))
        pull = means[1] if averaging else force
        return before._replace(value=theta, state=State(score, losses, state.member, means[0], pull, means[2]))

    def coordinators_step(server: Server, theta: Tree, force: jax.Array) -> Tree:
        rate = server.hyper["lr"] * steps if criteria_lr is None else server.hyper["criteria_lr"]
        if isinstance(local, LocalSolver):
            rate = rate * local.schedule(view_of(server).progress)
        if not coordinator.all_have_prox:
            slope = jax.grad(lambda at: coordinator.value(at, force, without_prox=True))(server.value)
            theta = jax.tree.map(lambda v, g: (v - rate * g).astype(v.dtype), theta, slope)
        return coordinator.prox(theta, rate, force)

    def release(server: Server, key: Key) -> View:
        """The mean of the iterates is of use at deployment only: in a round Θ is sent."""
        return view_of(server, value=server.state.average if averaging else None)

    def log(server: Server) -> dict[str, jax.Array]:
        found = coordinator.named(server.value) if given else {}
        return found | {"largest_rho": probabilities(server).max()}

    def measure(view: View, client: Tree, data: ClientData, key: Key) -> tuple[jax.Array, jax.Array]:
        own_place = lambda value: zero(clients).at[data.slot].set(value)
        return own_place(loss_of(view.value, data)), own_place(jnp.ones(()))

    def conclude(server: Server, mean: tuple[jax.Array, jax.Array]) -> dict[str, jax.Array]:
        """What is averaged has every agent's loss in a place of its own: its share in the mean comes with it."""
        member, (parts, shares) = server.state.member, mean
        losses = jnp.where(member, parts / jnp.where(shares > 0, shares, 1), 0)
        each = gaps(server, losses, server.state.average if averaging else server.value)
        return {
            "objective": jnp.where(in_play(server), each, -jnp.inf).max(),
            "agents_loss": losses.sum() / jnp.maximum(member.sum(), 1),
            "worst_agent_loss": jnp.where(member, losses, -jnp.inf).max(),
        }

    def check_hyper(hyper: dict[str, float]) -> None:
        check_memory(hyper)
        check_weight(hyper)
        if given:
            coordinator.check_shares(hyper)

    return shared_model("chebyshev", model, local)._replace(
        server=ServerSide(init, update),
        client=ClientSide(
            update=train,
            init=lambda view, data, key: local.moments(view.value),
            origin=lambda view: Sent(view.value, jnp.zeros((), jnp.result_type(float))),
        ),
        deployment=Deployment(lambda view, moments, data, key: view.value, model.predict, release=release, model=model),
        setup=Setup(ask, started),
        traits=Traits(points=False, reads="each", check_hyper=check_hyper),
        diagnostics=Diagnostics(log, measure, conclude, weight=one_vote),
    )


def check_memory(hyper: dict[str, float]) -> None:
    """ρ may forget, but not grow."""
    if "memory" in hyper:
        check_range("memory", hyper["memory"], least=0, most=1)


def per_objective(name: str, value: float | Sequence[float], count: int) -> jax.Array:
    """A number for every agent and every criterion."""
    found = np.asarray(value, float)
    if found.ndim > 1 or (found.ndim == 1 and len(found) != count):
        raise ValueError(
            f"{name} must be a number, or {count} numbers: one for each agent, then one for each criterion; "
            f"got {found.size}"
        )
    if not np.isfinite(found).all():
        raise ValueError(f"{name} must be finite, got {value}")
    return jnp.broadcast_to(jnp.asarray(found, jnp.result_type(float)), (count,))


def rounds_of_the_ramp(server: Server) -> jax.Array:
    """How many rounds, from the first on, are on a smaller λ than the run's own."""
    return jnp.minimum(jnp.ceil(server.hyper.get("ramp", jnp.zeros(())) * server.rounds), server.rounds - 1)


def steps_of_a_round(local: Solver) -> int:
    """The number of local steps of the learning rate's length, where it is the same for every agent."""
    plan = getattr(local, "plan", None)
    steps = None if plan is None else plan.epochs if plan.steps is None and plan.batch_size is None else plan.steps
    plain = isinstance(local, LocalSolver) and "lr" in local.hyper and "momentum" not in local.hyper
    if not plain or steps is None:
        raise ValueError(
            "give criteria_lr, how far the coordinator steps in a round: it is known only where agents take a fixed "
            "number of local_sgd steps without momentum (steps=..., or batch_size=None)"
        )
    return steps
