"""LSGD-PFL: local stochastic gradient steps on the shared and the personal block at once; the shared one is averaged.

It minimises F(w, β) = (1/M) Σ_m f_m(w, β_m). In a round every client starts at the broadcast w and its own β_m, and
takes τ steps, each with one minibatch of B samples, drawn with replacement, for both blocks::

    w_m ← w_m − η ∇_w f_m(w_m, β_m; batch),     β_m ← β_m − (η/M) ∇_β f_m(w_m, β_m; batch)

It keeps β_m and sends w_m; the server averages, w = (1/M) Σ_m w_m. With a part of the clients, each taking part with
probability p, w moves by (1/(pM)) Σ (w_m − w): on average as it would with all of them.

As printed, Algorithm 1 has η and not η/M on β, with which Theorem 1's step diverges; ∇_β F has the 1/M. The theorem's
step should read η ≤ min{1/(4 max(L^w, L^β)), 1/(8√(3e)(τ − 1)L^w)}. Its weights (1 − ημ)^{−k−1} on the iterates
overflow: the weighted mean is kept as a running one, ū ← ū + (u − ū)/S with S ← 1 + (1 − ημ)^τ S, over the points at
communications, on the server for w and on the client for β.

Reference: Hanzely, Zhao, Kolar, *Personalized federated learning: a unified framework and universal optimization
techniques*, TMLR 2023, Algorithm 1 and Theorems 1 to 4.
"""

from __future__ import annotations

import math
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
    Tree,
    Upload,
    Uploads,
    View,
    as_hyper,
    view_of,
)
from majorant.math.checks import check_range, check_whole
from majorant.methods._two_blocks import (
    Blocks,
    Theory,
    combine,
    deployment,
    distance_from_optimum,
    joining,
    one_vote,
    unless_given,
)
from majorant.objectives.base import Constants, Objective
from majorant.solvers import Batch, minibatches, run_minibatches


class Average(NamedTuple):
    """A running weighted mean: weights grow geometrically, and S is their sum in units of the last one."""

    mean: Tree
    weight: jax.Array  # S

    def add(self, point: Tree, ratio: jax.Array) -> Average:
        """The mean with one more point, whose weight is 1/ratio times the last one's."""
        weight = 1 + ratio * self.weight
        return Average(jax.tree.map(lambda a, u: a + ((u - a) / weight).astype(a.dtype), self.mean, point), weight)


class Client(NamedTuple):
    """β, and the mean of its iterates where that is deployed."""

    beta: Tree
    average: Average | tuple[()]


class State(NamedTuple):
    """What the server keeps to itself."""

    average: Average | tuple[()]
    mean_size: jax.Array


def lsgd(
    objective: Objective,
    *,
    lr: float | None = None,
    tau: int = 5,
    batch_size: int | None = 1,
    mu: float | None = None,
    constants: Constants | None = None,
    output: str = "last",
) -> Algorithm:
    """Local SGD for personalized objectives, convex or not.

    ``lr`` is η, by default Theorem 1's from ``constants``, or from the clients' own, with L^w/q for L^w where a client
    is heard in a round with probability q; ``batch_size`` None takes all samples in every step.
    ``output`` "average" deploys the weighted mean of the iterates, which the theorem is about, with ``mu`` (by default
    that of the constants, or 0: equal weights) in its weights; "last" deploys the last ones. The history has the
    ``iterations``, and ``gradients_w`` and ``gradients_beta`` in samples per client that takes part.

    >>> import majorant as mj
    >>> data = mj.data.synthetic_mixture(clients=10, dimension=5, seed=0)
    >>> objective = mj.objectives.mixture(data, lambda_=0.1, l2=1e-2)
    >>> run = mj.simulate(mj.methods.lsgd(objective, tau=5, batch_size=4), data, rounds=3)
    >>> run.history[-1]["iterations"], run.history[-1]["gradients_w"]
    (15.0, 60.0)
    """
    check_whole("tau", tau)
    plan = minibatches(epochs=None, steps=tau, batch_size=batch_size)
    if output not in ("last", "average"):
        raise ValueError(f"output must be 'last' or 'average', got {output!r}")
    if lr is None:
        check_constants(objective, constants)
    else:
        check_range("lr", lr, above=0)
    known = constants is not None or (lr is None and objective.curvature is not None)
    if mu is None and not known:
        mu = 0.0
    if mu is not None:
        check_range("mu", mu, least=0)
    averaging, clients = output == "average", objective.clients
    hyper = unless_given(lr=lr) | (unless_given(mu=mu) if averaging else {})

    def numbers(constants: Constants, mean_size: jax.Array, terms: Terms) -> dict[str, Any]:
        return {"lr": theoretical_rate(constants, tau, terms.inclusion), "mu": constants.mu}

    theory = Theory(objective if lr is None else objective._replace(curvature=None), constants, numbers)
    one = lambda: jnp.ones((), jnp.result_type(float))

    def init(key: Key) -> Server:
        w = objective.init(key)
        return Server(w, as_hyper(hyper), State(Average(w, one()) if averaging else (), one()))

    def release(server: Server, key: Key) -> View:
        """The mean of the iterates is of use at deployment only: in a round w is sent."""
        return view_of(server, value=server.state.average.mean if averaging else None)

    def ratio(hyper: dict[str, jax.Array]) -> jax.Array:
        return jnp.maximum(1 - hyper["lr"] * hyper["mu"], 0) ** tau

    def update(view: View, client: Client, data: ClientData, key: Key) -> tuple[Upload, Client]:
        lr = view.hyper["lr"]

        def step(carry: tuple[Blocks, jax.Array], batch: Batch) -> tuple[Blocks, jax.Array]:
            (w, beta), losses = carry
            loss, slopes = jax.value_and_grad(objective.value, argnums=(0, 1))(w, beta, batch, data.slot)
            down = lambda rate, u, g: jax.tree.map(lambda u, g: u - (rate * g).astype(u.dtype), u, g)
            return Blocks(down(lr, w, slopes[0]), down(lr / clients, beta, slopes[1])), losses + loss

        start = Blocks(view.value, client.beta), jnp.zeros((), jnp.result_type(float))
        (w, beta), losses = run_minibatches(plan, step, start, data, key)
        client = client._replace(beta=beta)
        if averaging:
            client = client._replace(average=client.average.add(beta, ratio(view.hyper)))  # type: ignore[union-attr]
        return Upload(w, one_vote(data), {"loss": losses / tau}), client

    def step(server: Server, view: View, uploads: Uploads) -> Server:
        share = 1 / (server.terms.inclusion * clients)
        w = combine((1 - share * uploads.weight, server.value), (share, uploads.value))
        w = jax.tree.map(lambda new, old: new.astype(old.dtype), w, server.value)
        if averaging:
            average = server.state.average.add(w, ratio(server.hyper))
            server = server._replace(state=server.state._replace(average=average))
        return server._replace(value=w)

    def state_at(data: ClientData, beta: Tree) -> Client:
        return Client(beta, Average(beta, one()) if averaging else ())

    def deployed(view: View, client: Client) -> Blocks:
        return Blocks(view.value, client.average.mean if averaging else client.beta)  # type: ignore[union-attr]

    def join(view: View, data: ClientData, key: Key) -> Client:
        return state_at(data, joining(objective, view.value, data, key, view.hyper["lr"] / clients))

    def started(server: Server, answers: Answer) -> Server:
        server, mean_size = theory.fill(server, answers)
        return server._replace(state=server.state._replace(mean_size=mean_size))

    def log(server: Server) -> dict[str, jax.Array]:
        iterations = tau * jnp.asarray(server.round)
        drawn = iterations * (server.state.mean_size if batch_size is None else batch_size)
        return {"iterations": iterations, "gradients_w": drawn, "gradients_beta": drawn}

    return Algorithm(
        name="lsgd",
        server=ServerSide(init, step),
        client=ClientSide(update, lambda view, data, key: state_at(data, objective.init_personal(key))),
        deployment=deployment(objective, deployed, join, release),
        setup=Setup(
            ask=lambda view, client, data, key: theory.answer(data),
            start=started,
        ),
        diagnostics=distance_from_optimum(objective, deployed)._replace(log=log),
    )


def theoretical_rate(constants: Constants, tau: int, inclusion: Any = 1.0) -> Any:
    """The largest η of Theorem 1; the numbers may be traced.

    >>> float(theoretical_rate(Constants(0.1, 1.0, 2.0, 1.0, 2.0), tau=1))
    0.125
    """
    smooth_w = constants.smooth_w / inclusion
    drift = 8 * math.sqrt(3 * math.e) * (tau - 1) * smooth_w
    return 1 / jnp.maximum(4 * jnp.maximum(smooth_w, constants.smooth_beta), drift)


def check_constants(objective: Objective, constants: Constants | None) -> None:
    """Refuses constants that give no step size."""
    if constants is None and objective.curvature is None:
        raise ValueError(f"give lr: {objective.name} has no constants to have it from theory")
    steep = 1.0 if constants is None else max(constants.smooth_w, constants.smooth_beta)
    if not math.isfinite(steep) or steep <= 0:
        raise ValueError(f"the constants of smoothness give no step size ({steep}): give lr")
