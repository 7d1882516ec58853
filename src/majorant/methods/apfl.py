"""APFL: every client deploys a mixture of its own model and the shared one, in parameter space.

Client t keeps v_t and a share α_t, and predicts with v̄_t = α_t v_t + (1 − α_t) w. Round k, from w_t = w^{k−1}, for each
of its minibatches::

    w_t ← w_t − lr ∇f_t(w_t; batch)                      its part of FedAvg
    v_t ← v_t − lr α_t ∇f_t(v̄_t; batch)                  that is ∇_v f_t(α v + (1 − α) w)
    α_t ← α_t − lr_α ⟨v_t − w_t, ∇f_t(v̄_t; batch)⟩       where α is adaptive, then clipped to [0, 1]

all three at the same point. It sends w_t, and the server averages: w = Σ_t (n_t/n) w_t. Here "− lr ∇" stands for a step
of any local solver. With α = 0 the deployed model is FedAvg's, with α = 1 it is that of local training.

A client that did not take part in training makes one such local update, from v = w (the paper leaves this open).

Reference: Deng, Kamani, Mahdavi, *Adaptive personalized federated learning*, 2020, Algorithm 1 and eq. (10).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

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
    View,
    as_hyper,
    masked_mean,
)
from majorant.math.checks import check_range
from majorant.models.base import Draw, Model
from majorant.solvers import Batch, LocalSolver, Task, local_sgd, needs_steps, run_minibatches, statistic_leaves


class Client(NamedTuple):
    """What stays with a client: its own model, its share, and the moments of both optimizers."""

    v: Tree
    alpha: jax.Array
    v_moments: Tree
    w_moments: Tree


def apfl(
    model: Model,
    *,
    alpha: float = 0.5,
    adaptive: bool = False,
    alpha_lr: float = 0.1,
    local: LocalSolver | None = None,
) -> Algorithm:
    """Adaptive personalized federated learning.

    ``alpha`` is the share of a client's own model (``adaptive``: at the start, then learned with rate ``alpha_lr``).

    >>> import majorant as mj
    >>> data = mj.data.synthetic_mixture(clients=10, dimension=5, seed=0)
    >>> run = mj.simulate(mj.apfl(mj.models.linear(data), alpha=0.5), data, rounds=5, seed=0)
    >>> run.summary()["algorithm"]
    'apfl'
    """
    if not 0 <= alpha <= 1:
        raise ValueError(f"alpha must be in [0, 1], got {alpha}")
    check_range("alpha_lr", alpha_lr, above=0)
    local = needs_steps(local or local_sgd(), "apfl")
    rates = {"alpha": alpha} | ({"alpha_lr": alpha_lr} if adaptive else {})

    def mix(alpha: jax.Array, v: Tree, w: Tree, x: jax.Array) -> Tree:
        """v̄. Running statistics do not mix: those in v are v̄'s own, which passes of v̄ refresh."""
        mixed = jax.tree.map(lambda v, w: alpha * v + (1 - alpha) * w, v, w)
        statistics = statistic_leaves(model, v, x)
        if statistics is None:
            return mixed
        own = lambda keep, v, mixed: (
            jnp.where(alpha > 0, v, mixed) if keep else mixed
        )  # with α = 0 it is the shared model
        return jax.tree.map(own, statistics, v, mixed)

    def start(view: View, data: ClientData, key: Key) -> Client:
        w = view.value
        return Client(w, view.hyper["alpha"], local.moments(w), local.moments(w))

    def update(view: View, client: Client, data: ClientData, key: Key) -> tuple[Upload, Client]:
        deployed = mix(client.alpha, client.v, view.value, data.x)
        loss, task = masked_mean(model.losses(deployed, data.x, data.y), data), Task(view, data, key)

        def step(carry: tuple[Tree, Client], batch: Batch) -> tuple[Tree, Client]:
            w, (v, alpha, v_moments, w_moments) = carry
            mixed = model_at(model, lambda v: mix(alpha, v, w, batch.x))
            next_v, v_moments, _ = local.step_on(mixed, task, v, v_moments, batch)
            if adaptive:
                slope = jax.grad(lambda a: batch.mean(model.losses(mix(a, v, w, batch.x), batch.x, batch.y)))(alpha)
                alpha = jnp.clip(alpha - view.hyper["alpha_lr"] * slope, 0, 1)
            w, w_moments, _ = local.step_on(model, task, w, w_moments, batch)
            return w, Client(next_v, alpha, v_moments, w_moments)

        moments = local.init(view.value)  # of the first step, where they are not kept
        begun = client if local.keep_moments else client._replace(v_moments=moments, w_moments=moments)
        w, client = run_minibatches(local.plan.suiting(model), step, (view.value, begun), data, key)
        kept = client if local.keep_moments else client._replace(v_moments=(), w_moments=())
        return Upload(w, data.size.astype(loss.dtype), {"loss": loss}), kept

    return Algorithm(
        name="apfl",
        server=ServerSide(lambda key: Server(model.init(key), as_hyper(local.hyper | rates))),
        client=ClientSide(update, start),
        deployment=Deployment(
            personalize=lambda view, client, data, key: mix(client.alpha, client.v, view.value, data.x),
            predict=model.predict,
            join=lambda view, data, key: update(view, start(view, data, key), data, key)[1],
            model=model,
        ),
    )


def model_at(model: Model, point: Callable[[Tree], Tree]) -> Model:
    """The model as a function of other parameters, which ``point`` maps to its own; statistics stay among those."""

    def train_apply(params: Tree, x: jax.Array, *draw: Draw) -> tuple[jax.Array, Tree]:
        outputs, refreshed = model.train_apply(point(params), x, *draw)  # type: ignore[misc]
        statistics = statistic_leaves(model, params, x)
        if statistics is None:
            return outputs, params
        return outputs, jax.tree.map(lambda keep, new, old: new if keep else old, statistics, refreshed, params)

    at = model._replace(apply=lambda params, x: model.apply(point(params), x))
    return at if model.train_apply is None else at._replace(train_apply=train_apply)
