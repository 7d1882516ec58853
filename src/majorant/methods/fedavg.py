"""FedAvg: one model for everybody, the average of models trained on each client, with an optimizer at the server.

Round k: every client starts at the broadcast θ^{k−1} and trains on its own samples; the server takes the mean
θ̄ = Σ_t (n_t/n) θ_t and steps along the pseudo-gradient Δ = θ^{k−1} − θ̄. With the plain optimizer and rate 1 the step
is θ^k = θ̄.

References: McMahan et al., *Communication-efficient learning of deep networks from decentralized data*, AISTATS 2017;
Reddi et al., *Adaptive federated optimization*, ICLR 2021 (server momentum, Adam, Yogi).
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import optax

from majorant.core import (
    Algorithm,
    Answer,
    ClientData,
    ClientSide,
    Deployment,
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
)
from majorant.math.checks import check_range
from majorant.methods import _convergence as convergence
from majorant.methods._adaptive import fedadam, fedyogi
from majorant.models.base import Model
from majorant.solvers import Solver, Task, local_sgd

SERVER_OPTIMIZERS: dict[str, Callable[[], optax.GradientTransformation]] = {
    "plain": optax.identity,
    "momentum": lambda: optax.trace(0.9),
    "adam": fedadam,
    "yogi": fedyogi,
    "adam-corrected": lambda: optax.scale_by_adam(b1=0.9, b2=0.99, eps=1e-3),
    "yogi-corrected": lambda: optax.scale_by_yogi(b1=0.9, b2=0.99, eps=1e-3),
}

COUNT_SAMPLES = Setup(  # of all clients, before round 1: the server's state
    ask=lambda view, state, data, key: Answer((), data.size.astype(jnp.result_type(float))),
    start=lambda server, answers: server._replace(state=answers.weight),
)


def fedavg(
    model: Model,
    *,
    local: Solver | None = None,
    server: str = "plain",
    server_lr: float | None = None,
    absent: str = "excluded",
) -> Algorithm:
    """Federated averaging.

    ``server`` is "plain", "momentum", "adam" or "yogi", with rate ``server_lr`` (1 for plain and momentum, 0.01 for
    the adaptive ones). "adam" and "yogi" are FedAdam and FedYogi as Reddi et al. print them; "adam-corrected" and
    "yogi-corrected" are optax's forms with bias correction. The run's summary says which was used. Running statistics
    of a network's normalisation are averaged whatever the server does with weights. ``absent``: see `fedem`.

    >>> import majorant as mj
    >>> data = mj.data.synthetic_mixture(clients=10, dimension=5, seed=0)
    >>> run = mj.simulate(mj.fedavg(mj.models.linear(data), server="adam"), data, rounds=5, seed=0)
    >>> run.summary()["algorithm"]
    'fedavg:server=adam'
    """
    if server not in SERVER_OPTIMIZERS:
        raise ValueError(f"server must be one of {', '.join(SERVER_OPTIMIZERS)}, got {server!r}")
    optimizer = SERVER_OPTIMIZERS[server]()
    rate = server_lr if server_lr is not None else (1.0 if server in ("plain", "momentum") else 0.01)
    check_range("server_lr", rate, above=0)
    if absent != "excluded" and server != "plain":
        raise ValueError(f"absent={absent!r} is defined for the plain server optimizer only, not for {server!r}")
    local = local or local_sgd()

    def init(key: Key) -> Server:
        theta = model.init(key)
        return Server(theta, as_hyper(local.hyper | {"server_lr": rate}), optimizer.init(theta))

    def update(state: Server, view: View, uploads: Uploads) -> Server:
        mean = uploads.mean()
        gap = jax.tree.map(jnp.subtract, state.value, mean)
        direction, moments = optimizer.update(gap, state.state, state.value)
        value = jax.tree.map(lambda v, d: v - state.hyper["server_lr"] * d, state.value, direction)
        if model.refreshed and server != "plain":  # running statistics are no point to step from
            value = {**value, model.refreshed: mean[model.refreshed]}
        return state._replace(value=value, state=moments)

    plain = shared_model("fedavg" if server == "plain" else f"fedavg:server={server}", model, local)
    if absent != "excluded":
        return counting_absent(plain, absent)
    return plain._replace(server=ServerSide(init, update), traits=hidden_samples(local))


def hidden_samples(local: Solver) -> Traits:
    """What is known of a method whose uploads depend on samples through its local solver alone."""
    keeps = jax.tree.leaves(local.moments(jnp.zeros(1)))
    return Traits(sample_noise=getattr(local, "noise", None), stateless=not keeps)


def shared_model(
    name: str,
    model: Model,
    local: Solver,
    penalty: Callable[[Tree, View], jax.Array] | None = None,
    hyper: dict[str, float] | None = None,
) -> Algorithm:
    """One model for everybody: clients train it, with ``penalty(θ, view)`` added to their loss, and send it back."""

    def update(view: View, moments: Tree, data: ClientData, key: Key) -> tuple[Upload, Tree]:
        added = (lambda theta: penalty(theta, view)) if penalty else None
        theta, moments, loss = local.solve(model, Task(view, data, key, penalty=added), view.value, moments)
        return Upload(theta, data.size.astype(loss.dtype), {"loss": loss}), moments

    return Algorithm(
        name=name,
        server=ServerSide(lambda key: Server(model.init(key), as_hyper(local.hyper | (hyper or {})))),
        client=ClientSide(update, lambda view, data, key: local.moments(view.value)),
        deployment=Deployment(lambda view, moments, data, key: view.value, model.predict, model=model),
        diagnostics=convergence.of_shared_model(model, update, penalty),
    )


def counting_absent(algorithm: Algorithm, rule: str) -> Algorithm:
    """The algorithm, with a rule for what an average does with clients that did not take part.

    "excluded": θ = Σ_{t in round} n_t θ_t / Σ_{t in round} n_t. "hold": the others count with the old model, so that
    θ moves by the round's share of all samples; the total number of samples is summed once, before round 1.
    """
    if rule == "excluded":
        return algorithm
    if rule != "hold":
        raise ValueError(f"absent must be 'excluded' or 'hold', got {rule!r}")

    def update(server: Server, view: View, uploads: Uploads) -> Server:
        share = uploads.weight / jnp.maximum(server.state, 1)
        moved = jax.tree.map(lambda v, mean: v + share * (mean - v), server.value, uploads.mean())
        return server._replace(value=moved)

    def init(key: Key) -> Server:
        return algorithm.server.init(key)._replace(state=jnp.zeros((), jnp.result_type(float)))

    return algorithm._replace(server=algorithm.server._replace(init=init, update=update), setup=COUNT_SAMPLES)
