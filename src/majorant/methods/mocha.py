"""MOCHA: a linear model for every client, tied together by a learned matrix of relations between clients.

With samples x (a constant feature 1 gives the bias), signs y = ±1 and m clients, it minimises over W = (w_1 … w_m), and
alternately over the relations Ω (m×m, positive semidefinite, trace 1)::

    P(W) = Σ_t (1/n_t) Σ_i max(0, 1 − y_i ⟨w_t, x_i⟩) + (λ/2) tr(W Ω⁻¹ Wᵀ)

The dual has one variable a_i in [0, 1] per sample. With v_t = (1/n_t) Σ_i a_i y_i x_i and V = (v_1 … v_m)::

    D(a) = Σ_t (1/n_t) Σ_i a_i − (1/2λ) tr(V Ω Vᵀ),     W = V Ω / λ,     P(W) ≥ D(a), with equality at the optimum

Clients work in parallel on a separable minorant of D: tr(ΔV Ω ΔVᵀ) ≤ Σ_t ρ_t ‖Δv_t‖² with ρ_t = Σ_s |Ω_ts|. Client t,
with u = w_t + (ρ_t/λ) Δv_t, goes through its samples in random order (SDCA)::

    a_i ← clip(a_i + λ n_t (1 − y_i ⟨u, x_i⟩) / (ρ_t ‖x_i‖²), 0, 1)

and sends Δv_t; so D never decreases. Every few rounds Ω ← (WᵀW)^{1/2} / tr (WᵀW)^{1/2}, plus a small ridge, and W again
is V Ω / λ. Above two classes there is one such problem for each class against the rest, with one Ω for all.

Dual variables stay with their client, but **MOCHA keeps every client's model at the server by definition**: the server
computes W from V, and sends client t its own w_t (and the number ρ_t). Scores are margins; the probabilities that
`predict` gives are their sigmoid or softmax and are not calibrated.

References: Smith, Chiang, Sanjabi, Talwalkar, *Federated multi-task learning*, NeurIPS 2017 (the normalisation is that
of its released code); Zhang, Yeung, *A convex formulation for learning task relationships*, UAI 2010.
"""

from __future__ import annotations

import math
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
    Traits,
    Upload,
    Uploads,
    View,
    as_hyper,
    masked_mean,
)
from majorant.math.checks import check_range, check_whole
from majorant.models.base import HasSpec, Spec, as_float, spec_of
from majorant.solvers import Batch, minibatches, run_minibatches

RIDGE = 1e-3  # the share of I/m in Ω: keeps it invertible


class Task(NamedTuple):
    """What a client is sent: its model (k columns: one, or one per class) and its ρ; for the server, of all clients."""

    w: jax.Array  # (d + 1, k)
    rho: jax.Array


class Relations(NamedTuple):
    """What the server keeps to itself."""

    v: jax.Array  # (clients, d + 1, k)
    omega: jax.Array  # (clients, clients)


class Newcomer(NamedTuple):
    """The state of a client that joined after training."""

    w: jax.Array


def mocha(
    problem: HasSpec | Spec, *, clients: int, lambda_: float = 0.01, epochs: int = 1, omega_every: int | None = 10
) -> Algorithm:
    """MOCHA for the data (or anything with its shape) of ``clients`` clients.

    ``epochs`` passes of SDCA a round; Ω is learned every ``omega_every`` rounds (None: it stays I/m, so that clients
    learn alone). ``lambda_`` is the hyperparameter "lambda". A client that did not take part in training deploys the
    mean of the trained models: the paper leaves this open.

    >>> import majorant as mj
    >>> data = mj.data.synthetic_mixture(clients=10, dimension=5, seed=0)
    >>> run = mj.simulate(mj.mocha(data, clients=data.clients, lambda_=0.1), data, rounds=5, seed=0)
    >>> run.summary()["algorithm"]
    'mocha'
    """
    spec = spec_of(problem)
    if spec.classes < 2:
        raise ValueError("MOCHA is a method for classification (hinge loss); this problem is a regression")
    check_whole("clients", clients)
    check_whole("omega_every", omega_every, optional=True)
    check_range("lambda_", lambda_, above=0)
    plan = minibatches(epochs=epochs, steps=None, batch_size=1)
    shape = (math.prod(spec.features) + 1, 1 if spec.classes == 2 else spec.classes)

    def init(key: Key) -> Server:
        zeros, omega = jnp.zeros((clients, *shape)), jnp.eye(clients) / clients
        return Server(Task(zeros, omega.sum(axis=1)), as_hyper({"lambda": lambda_}), Relations(zeros, omega))

    def address(view: View, slot: jax.Array) -> View:
        return view._replace(value=Task(view.value.w[slot], view.value.rho[slot]))

    def start(view: View, data: ClientData, key: Key) -> jax.Array:
        return jnp.zeros((*data.y.shape, shape[1]), view.value.w.dtype)  # a: (n, k)

    def update(view: View, a: jax.Array, data: ClientData, key: Key) -> tuple[Upload, jax.Array]:
        (w, rho), n, x = view.value, jnp.maximum(data.size, 1), with_bias(data.x)
        y = signs(data.y, shape[1])  # (n, k)
        loss = masked_mean(jnp.maximum(0, 1 - y * (x @ w)).mean(axis=1), data)

        def sdca(carry: tuple[jax.Array, jax.Array], batch: Batch) -> tuple[jax.Array, jax.Array]:
            a, dv = carry
            i, x_i = batch.y[0], batch.x[0]  # the batch is one sample, and its "label" is its number
            u = w + rho / view.hyper["lambda"] * dv
            curvature = rho / view.hyper["lambda"] * (x_i @ x_i)
            moved = jnp.clip(a[i] + n * (1 - y[i] * (x_i @ u)) / curvature, 0, 1)
            return a.at[i].set(moved), dv + x_i[:, None] * ((moved - a[i]) * y[i] / n)

        numbered = data._replace(x=x, y=jnp.arange(data.y.shape[0]))
        a, dv = run_minibatches(plan, sdca, (a, jnp.zeros_like(w)), numbered, key)
        return Upload(dv, data.size.astype(loss.dtype), {"loss": loss}), a

    def relate(server: Server, view: View, uploads: Uploads) -> Server:
        v, omega = server.state.v + uploads.value, server.state.omega
        w = jnp.tensordot(omega, v, axes=1) / server.hyper["lambda"]
        if omega_every is not None:
            due = (server.round + 1) % omega_every == 0
            omega = jax.lax.cond(due, lambda: relations(w.reshape(clients, -1)), lambda: omega)
            w = jnp.tensordot(omega, v, axes=1) / server.hyper["lambda"]
        return server._replace(value=Task(w, jnp.abs(omega).sum(axis=1)), state=Relations(v, omega))

    def join(view: View, data: ClientData, key: Key) -> Newcomer:
        trained = jnp.any(view.value.w != 0, axis=(1, 2)).sum()
        return Newcomer(view.value.w.sum(axis=0) / jnp.maximum(trained, 1))

    def predict(w: jax.Array, x: jax.Array) -> jax.Array:
        scores = with_bias(x) @ w
        return jax.nn.softmax(scores if shape[1] > 1 else jnp.pad(scores, ((0, 0), (1, 0))), axis=1)

    return Algorithm(
        name="mocha",
        server=ServerSide(init, relate, address=address),
        client=ClientSide(update, start, origin=lambda view: jnp.zeros_like(view.value.w)),
        deployment=Deployment(
            personalize=lambda view, a, data, key: a.w if isinstance(a, Newcomer) else view.value.w,
            predict=predict,
            join=join,
        ),
        traits=Traits(points=False, reads="each"),
    )


def with_bias(x: jax.Array) -> jax.Array:
    """Samples as rows, with a constant feature 1 at the end."""
    x = as_float(x).reshape(x.shape[0], -1)
    return jnp.concatenate([x, jnp.ones_like(x[:, :1])], axis=1)


def signs(y: jax.Array, columns: int) -> jax.Array:
    """Labels as ±1, ``(n, k)``: class 1 against class 0, or each class against the rest."""
    positive = y[:, None] == (jnp.arange(columns) if columns > 1 else jnp.ones(1, y.dtype))
    return jnp.where(positive, 1.0, -1.0)


def relations(w: jax.Array) -> jax.Array:
    """Ω = (WᵀW)^{1/2} / tr (WᵀW)^{1/2}, the minimiser of tr(W Ω⁻¹ Wᵀ) at trace 1, with a ridge; clients are rows."""
    m = w.shape[0]
    vectors, root, _ = jnp.linalg.svd(w, full_matrices=False)  # of w, not of w wᵀ: squaring would cost half the digits
    share = jnp.where(root.sum() > 0, root / jnp.maximum(root.sum(), jnp.finfo(w.dtype).tiny), 1 / len(root))
    return (1 - RIDGE) * (vectors * share) @ vectors.T + RIDGE * jnp.eye(m) / m
