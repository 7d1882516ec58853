"""Agents and a coordinator: one model for everybody that weighs the agents' losses against the coordinator's criteria.

With agents' losses C_1 … C_M, criteria S_1 … S_N and λ in [0, 1), the weighted sum is

    F(Θ) = ((1 − λ)/M) Σ_i C_i(Θ) + λ Σ_j w_j S_j(Θ),          w_j = 1/N unless given.

Its minimisers are weakly Pareto optimal: no Θ makes all C_i and S_j smaller (and Pareto optimal, no Θ makes one smaller
and none larger, where the minimiser is unique). Round t: every agent starts at the broadcast Θ^{t−1} and takes steps on
its minibatches, and the server averages::

    explicit    Θ_i ← Θ_i − η ∇[(1 − λ) C_i + λ Σ_j w_j S_j](Θ_i)
    implicit    z_i ← Θ_i − η (1 − λ) ∇C_i(Θ_i),    Θ_i ← prox of ηλ Σ_j w_j S_j at z_i

The implicit step is exact for criteria with a proximal operator, kinks included; those without one stay in the
gradient. The last proximal operator of a round is the coordinator's: agents send z_i, and Θ^t = prox(mean_i z_i). For a
quadratic criterion it makes no difference; for ‖Θ‖₁ a mean of sparse points would not be sparse, and with one step a
round on all samples this way *is* proximal gradient descent on F, whatever the agents' data.

With a *ramp* r > 0 a run walks along the path of minimisers to its own λ: round t, of T and counted from 0, is on F
with λ_t in place of λ,

    λ_t = λ · min(1, (t/T) / r),          r at most (T − 1)/T,

so that every λ_t starts from the model of a smaller one, from λ_0 = 0 on, and the last (1 − r) T rounds are on F, one
at the least.
Where minimisers change continuously with λ, Θ follows them. That matters where F has bad local minima for large λ, as
Θ = 0 is for a network and S = ½ ‖Θ‖²: the gradient of its loss there is a product of layers, smaller than λΘ. A cold
run falls into it before it has learnt anything; a trained model need not. On convex problems all ends are the same.

As printed, Definition 2.1 describes an ideal point and not a Pareto optimal one, Algorithm 1 starts every round at Θ⁰
and sums the agents' models, and its step is on C_i + α Σ_j S_j with α = λ/((1 − λ)N), which is unbounded as λ → 1;
above is what is meant. The theorem's L should be L_C + α Σ_j L_{S_j}, and its Θ^T the minimiser.

Reference: Morales, Biccari, *A multi-objective optimization framework for decentralized learning with coordination
constraints*, Algorithm 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from majorant.core import (
    Algorithm,
    ClientData,
    ClientSide,
    Diagnostics,
    Key,
    Server,
    ServerSide,
    Traits,
    Tree,
    Upload,
    Uploads,
    View,
    as_hyper,
    replace_by_mean,
    squared_norm,
    view_of,
)
from majorant.math.checks import check_range
from majorant.methods._two_blocks import one_vote
from majorant.methods.fedavg import shared_model
from majorant.models.base import Model
from majorant.solvers import LocalSolver, Solver, Task, local_sgd
from majorant.solvers.schedules import Schedule, constant
from majorant.surrogates.partial import mean_loss
from majorant.tradeoffs.coordinator import Coordinator
from majorant.tradeoffs.criteria import coordinate
from majorant.tradeoffs.criterion import Criterion


def weighted_sum(
    model: Model,
    criteria: Criterion | Sequence[Criterion],
    *,
    weight: float = 0.5,
    weights: Sequence[float] | None = None,
    local: Solver | None = None,
    step: str = "explicit",
    ramp: float = 0.0,
    agents: str = "equal",
) -> Algorithm:
    """The weighted sum of agents' losses and a coordinator's criteria; ``weight`` is λ.

    λ is the hyperparameter "lambda": a grid of it is one program. ``weights`` are the criteria's w_j; where there are
    several they are hyperparameters too, by the criteria's names: "share_l1", "share_squared_norm". ``ramp`` is
    the share of the rounds over which λ rises from 0, in [0, 1); 0 is the paper's algorithm, and other values are the
    hyperparameter "ramp". ``agents`` "equal" counts every agent once, as (2.2) does, and "samples" by its samples. An
    implicit step needs ``local_sgd`` without momentum.

    >>> import majorant as mj
    >>> data = mj.data.synthetic_mixture(clients=5, dimension=4, seed=0)
    >>> algorithm = mj.tradeoffs.weighted_sum(mj.models.linear(data), mj.criteria.l1(), weight=0.3, step="implicit")
    >>> run = mj.simulate(algorithm, data, rounds=40, grid={"lambda": [0.0, 0.05, 0.6]})
    >>> [bool(lines[-1]["l1"] > 0) for lines in run.histories]
    [True, True, False]
    """
    check_weight({"lambda": weight, "ramp": ramp})
    if agents not in ("equal", "samples"):
        raise ValueError(f"agents must be 'equal' or 'samples', got {agents!r}")
    coordinator = coordinate(criteria, weights, step=step)
    coordinator.check(model)
    local = local or local_sgd()
    implicit = step == "implicit"
    if implicit and model.train_apply is not None:
        raise ValueError(
            f"{model.name} refreshes batch statistics while it trains, which an implicit step cannot keep apart: use "
            'step="explicit", or another normalisation than "averaged"'
        )
    stepping = proximal_solver(local, coordinator) if implicit else None
    solver = stepping or local
    hyper = local.hyper | {"lambda": weight} | ({"ramp": ramp} if ramp else {}) | coordinator.hyper
    vote = one_vote if agents == "equal" else lambda data: data.size.astype(jnp.result_type(float))

    def update(view: View, moments: Tree, data: ClientData, key: Key) -> tuple[Upload, Tree]:
        lam, start = weight_of_round(view), view.value
        view = view._replace(hyper=view.hyper | {"lambda": lam})
        shares = coordinator.shares_of(view.hyper)
        penalty = lambda theta: lam * coordinator.value(theta, shares, without_prox=implicit)
        agents_part = jnp.full(data.y.shape[0], 1 - lam)  # every sample's weight in the loss
        kept = start if implicit else moments
        needed = None if implicit and coordinator.all_have_prox else penalty
        solved = solver.solve(model, Task(view, data, key, agents_part, needed), start, kept)
        loss = solved.loss / jnp.maximum(1 - lam, 1e-12)
        if implicit:  # what it kept is z
            return Upload(solved.moments, vote(data), {"loss": loss}), moments
        return Upload(solved.params, vote(data), {"loss": loss}), solved.moments

    def finish(server: Server, view: View, uploads: Uploads) -> Server:
        assert stepping is not None
        rho = server.hyper["lr"] * stepping.schedule(view.progress) * weight_of_round(view)
        return server._replace(value=coordinator.prox(uploads.mean(), rho, coordinator.shares_of(server.hyper)))

    def check_hyper(hyper: dict[str, float]) -> None:
        check_weight(hyper)
        coordinator.check_shares(hyper)

    return shared_model("weighted-sum", model, local)._replace(
        server=ServerSide(
            init=lambda key: Server(model.init(key), as_hyper(hyper)), update=finish if implicit else replace_by_mean
        ),
        client=ClientSide(update, lambda view, data, key: () if implicit else local.moments(view.value)),
        traits=Traits(check_hyper=check_hyper),
        diagnostics=diagnostics_of(model, coordinator, vote),
    )


def check_weight(hyper: dict[str, float]) -> None:
    """λ, as rounded, must leave the agents a say, and its ramp must end before the rounds do."""
    if "lambda" in hyper:
        check_range("weight (λ)", float(np.asarray(hyper["lambda"], jnp.result_type(float))), least=0, below=1)
    if "ramp" in hyper:
        check_range("ramp (a share of the rounds)", hyper["ramp"], least=0, below=1)


def weight_of_round(view: View) -> jax.Array:
    """λ_t: the weight of this round, on its way along the ramp."""
    lam, ramp = view.hyper["lambda"], view.hyper.get("ramp")
    if ramp is None:
        return lam
    ramp = jnp.minimum(ramp, view._replace(round=jnp.asarray(view.rounds) - 1).progress)  # the last round is on λ
    risen = view.progress.astype(lam.dtype) / jnp.where(ramp > 0, ramp, 1)
    return jnp.where(ramp > 0, jnp.minimum(1, risen), 1) * lam


def proximal_solver(local: Solver, coordinator: Coordinator) -> LocalSolver:
    """Steps followed by the criteria's proximal operator; what it keeps is the last point before the operator, z."""
    if not isinstance(local, LocalSolver) or "lr" not in local.hyper or "momentum" in local.hyper:
        raise ValueError(
            "an implicit step needs to know how long a gradient step is: give local_sgd without momentum, "
            "or step='explicit'"
        )

    def step(
        hyper: dict[str, jax.Array], scale: jax.Array, params: Tree, gradients: Tree, z: Tree
    ) -> tuple[Tree, Tree]:
        z, _ = local.step(hyper, scale, params, gradients, ())
        return coordinator.prox(z, hyper["lr"] * scale * hyper["lambda"], coordinator.shares_of(hyper)), z

    return local._replace(step=step, init=lambda params: params, keep_moments=True)


def diagnostics_of(model: Model, coordinator: Coordinator, vote: Any) -> Diagnostics:
    """F, the agents' mean loss, every S_j, and how far Θ is from a stationary point of F.

    Where a criterion has a kink the gradient is that of the proximal step, (Θ − prox(Θ − η∇))/η with η = 1.
    """

    def measure(view: View, client: Tree, data: ClientData, key: Key) -> tuple[jax.Array, Tree]:
        return jax.value_and_grad(mean_loss, argnums=1)(model, view.value, data)

    def conclude(server: Server, mean: tuple[jax.Array, Tree]) -> dict[str, jax.Array]:
        theta, lam, (loss, gradient) = server.value, server.hyper["lambda"], mean
        shares = coordinator.shares_of(server.hyper)
        forward = jax.grad(lambda t: coordinator.value(t, shares, without_prox=not coordinator.smooth))(theta)
        slope = jax.tree.map(lambda c, s: (1 - lam) * c + lam * s, gradient, forward)
        if not coordinator.smooth:
            moved = coordinator.prox(jax.tree.map(jnp.subtract, theta, slope), lam, shares)
            slope = jax.tree.map(jnp.subtract, theta, moved)
        objective = (1 - lam) * loss + lam * coordinator.value(theta, shares)
        found = {"objective": objective, "agents_loss": loss, "gradient_squared": squared_norm(slope)}
        return found | coordinator.named(theta)

    log = lambda server: coordinator.named(server.value)
    return Diagnostics(log, measure, conclude, weight=vote)


def with_criteria(
    algorithm: Algorithm,
    criteria: Criterion | Sequence[Criterion],
    *,
    weight: float = 0.5,
    weights: Sequence[float] | None = None,
    rate: float | None = None,
    schedule: Schedule = constant(),  # noqa: B008 - a record of a pure function
) -> Algorithm:
    """Any method whose server holds parameters, with the criteria's proximal step on them after every round.

    With f what the method minimises, the server's value θ makes a step on f + (λ/(1 − λ)) Σ_j w_j S_j, which has the
    minimisers of (1 − λ) f + λ Σ_j w_j S_j: after the method's own update comes the proximal operator with step
    ρ = rate · λ/(1 − λ), and a gradient step of ρ for criteria without one. ``rate`` is how far a round goes along
    −∇f: by default the method's learning rate (times that of a plain server), right for one local step a round on all
    samples; for several, multiply. With momentum (of 0.9: ten times the learning rate) or a server's optimizer it must
    be given. Where the local solver has a ``schedule``, say the same one here: else the criteria win as it falls.
    What is personal (FedEM's mixture weights, the β of a personalized objective) stays as the method has it. FedEM's
    components are the first axis of one tree of parameters: a group lasso there drops whole components.

    >>> import majorant as mj
    >>> data = mj.data.synthetic_mixture(clients=5, dimension=4, seed=0)
    >>> plain = mj.fedem(mj.models.linear(data), components=2, local=mj.local_sgd(0.1, steps=1, batch_size=None))
    >>> run = mj.simulate(mj.tradeoffs.with_criteria(plain, mj.criteria.l1(0.1), weight=0.5), data, rounds=3)
    >>> sorted(run.server.hyper)
    ['lambda', 'lr']
    """
    check_weight({"lambda": weight})
    coordinator = coordinate(criteria, weights, step="implicit")
    fresh = jax.eval_shape(algorithm.server.init, jax.random.key(0))
    if not all(jnp.issubdtype(leaf.dtype, jnp.floating) for leaf in jax.tree.leaves(fresh.value)):
        raise ValueError(f"the server of {algorithm.name} holds more than parameters: criteria cannot be applied to it")
    try:
        jax.eval_shape(coordinator.values, fresh.value)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"the criteria do not fit the parameters that the server of {algorithm.name} holds (FedEM's components "
            f"lie along a first axis, but criteria about samples need one model): {error}"
        ) from None
    if "lambda" in fresh.hyper:
        raise ValueError(f"{algorithm.name} has a hyperparameter 'lambda' of its own")
    if rate is None and "lr" not in fresh.hyper:
        raise ValueError(
            f"{algorithm.name} has no learning rate lr: give rate, how far a round goes along the gradient"
        )
    adaptive = "server_lr" in fresh.hyper and jax.tree.leaves(fresh.state)
    if rate is None and ("momentum" in fresh.hyper or adaptive):
        why = "momentum" if "momentum" in fresh.hyper else "the server's optimizer"
        raise ValueError(
            f"with {why}, a round of {algorithm.name} does not go as far as its learning rate: give rate, how far it "
            "goes along the gradient"
        )
    if rate is not None:
        check_range("rate", rate, above=0)

    def init(key: Key) -> Server:
        server = algorithm.server.init(key)
        own = {"lambda": weight} | ({} if rate is None else {"criteria_rate": rate})
        return server._replace(hyper=server.hyper | as_hyper(own))

    def after(server: Server) -> Server:
        hyper, lam = server.hyper, server.hyper["lambda"]
        length = hyper["lr"] * hyper.get("server_lr", 1.0) if rate is None else hyper["criteria_rate"]
        progress = view_of(server).progress
        rho, value = length * schedule(progress) * lam / jnp.maximum(1 - lam, 1e-12), server.value
        if not coordinator.all_have_prox:
            slope = jax.grad(lambda v: coordinator.value(v, without_prox=True))(value)
            value = jax.tree.map(lambda v, g: (v - rho * g).astype(v.dtype), value, slope)
        return server._replace(value=coordinator.prox(value, rho))

    def check_hyper(hyper: dict[str, float]) -> None:
        check_weight(hyper)
        algorithm.traits.check_hyper(hyper)

    def log(server: Server) -> dict[str, jax.Array]:
        own = algorithm.diagnostics.log
        return (own(server) if own else {}) | coordinator.named(server.value)

    update = algorithm.server.update
    return algorithm._replace(
        name=f"{algorithm.name}, criteria",
        server=algorithm.server._replace(
            init=init, update=lambda server, view, uploads: after(update(server, view, uploads))
        ),
        traits=algorithm.traits._replace(check_hyper=check_hyper),
        diagnostics=algorithm.diagnostics._replace(log=log),
    )
