"""DP-SGD: a local solver whose steps hide every single sample of a client.

Step j, on a client with n samples: each sample is drawn on its own with probability q = min(1, B/n), and

    g = ( Σ_{i drawn} clip_C(∇l(θ; s_i)) + N(0, z² C² I) ) / (q n),        θ ← θ − lr · schedule · g

``clip_C`` shortens each sample's gradient to length C, so that the sum moves by at most C when a sample comes or goes:
a Gaussian mechanism on a Poisson sample, once for every step. The client draws the noise itself: what it sends is
protected from the server, too. Momentum, weight decay and a penalty are added after the noise, from what is known.

All n per-sample gradients are computed in every step, and those that were not drawn count nothing: a Poisson sample has
no largest size, and one that is cut off is no Poisson sample.

Methods whose samples have weights that depend on each other (FedEM's responsibilities) are refused: a sample would then
change the gradients of others, and the sum by more than C.

Reference: Abadi et al., *Deep learning with differential privacy*, CCS 2016.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from majorant.core import SampleNoise, Tree, all_finite, beside
from majorant.math.checks import check_range, check_whole
from majorant.models.base import Model
from majorant.solvers.gradient import shortened
from majorant.solvers.schedules import Schedule, constant
from majorant.solvers.solver import BatchLoss, Solved, Task


class PrivateSGD(NamedTuple):
    """DP-SGD with its plan."""

    hyper: dict[str, float]
    noise: SampleNoise
    clip: float
    schedule: Schedule
    has_momentum: bool
    has_decay: bool

    def moments(self, params: Tree) -> Tree:
        """What a client keeps between rounds: made of noisy gradients alone."""
        return optax.tree.zeros_like(params) if self.has_momentum else ()

    def solve(self, model: Model, task: Task, params: Tree, moments: Tree) -> Solved:
        """Trains ``params`` on a client's samples."""
        if task.weights is not None:
            raise ValueError(
                "this method gives samples weights that depend on all of them (responsibilities), so that one sample "
                "changes the gradients of others and DP-SGD hides none: use fedavg or fedprox with it, or protect "
                "whole clients by a channel with noise"
            )
        if model.train_apply is not None:
            raise ValueError(
                f"{model.name} draws from, or keeps statistics of, whole batches while it trains: a sample's gradient "
                "then depends on others, and DP-SGD hides none. Use another normalisation"
            )
        hyper, data = task.view.hyper, task.data
        n = jnp.maximum(data.size, 1).astype(jnp.result_type(float))
        q = jnp.minimum(1, self.noise.batch_size / n)
        loss = lambda theta, x, y: model.losses(theta, x[None], y[None])[0]

        def noisy_gradient(theta: Tree, key: jax.Array) -> tuple[Tree, jax.Array]:
            drawn = jax.random.bernoulli(jax.random.fold_in(key, 0), q, data.y.shape) & data.mask
            losses, each = jax.vmap(jax.value_and_grad(loss), (None, 0, 0))(theta, data.x, data.y)
            sound = jax.vmap(all_finite)(each)  # a sample whose gradient is not finite counts as one that is not there
            each = jax.vmap(lambda g: shortened(g, jnp.asarray(self.clip)))(each)
            keys = jax.tree.unflatten(
                jax.tree.structure(theta),
                list(jax.random.split(jax.random.fold_in(key, 1), len(jax.tree.leaves(theta)))),
            )

            def total(one: jax.Array, key: jax.Array) -> jax.Array:
                kept = jnp.where(beside(drawn & sound, one), one, 0).sum(axis=0)
                noise = self.noise.multiplier * self.clip * jax.random.normal(key, kept.shape, kept.dtype)
                return (kept + noise) / (q * n).astype(kept.dtype)

            return jax.tree.map(total, each, keys), jnp.where(data.mask, losses, 0).sum() / n

        def step(j: jax.Array, carry: Solved) -> Solved:
            theta, moments, mean = carry
            g, loss = noisy_gradient(theta, jax.random.fold_in(task.key, j))
            if task.penalty:
                g = optax.tree.add(g, jax.grad(task.penalty)(theta))
            if self.has_decay:
                g = jax.tree.map(lambda g, p: g + hyper["weight_decay"] * p, g, theta)
            if self.has_momentum:
                g = moments = jax.tree.map(lambda m, d: hyper["momentum"] * m + d, moments, g)
            scale = hyper["lr"] * self.schedule(task.view.progress)
            return Solved(jax.tree.map(lambda p, d: p - scale * d, theta, g), moments, mean + (loss - mean) / (j + 1))

        steps = jnp.where(data.size > 0, self.noise.steps, 0)
        start = Solved(params, moments, jnp.zeros((), jnp.result_type(float)))
        return jax.lax.fori_loop(0, steps, step, start)

    def minimize(self, objective: BatchLoss, task: Task, params: Tree, moments: Tree) -> Solved:
        """Refused: of another objective it is not known how one sample enters it."""
        raise ValueError(
            "this method has an objective of its own, and DP-SGD needs the loss of single samples: use fedavg or "
            "fedprox with it"
        )


def local_private_sgd(
    lr: float = 0.1,
    *,
    noise: float,
    clip: float,
    batch_size: int = 32,
    steps: int = 1,
    momentum: float = 0.0,
    weight_decay: float = 0.0,
    schedule: Schedule = constant(),  # noqa: B008 - a record of a pure function
) -> PrivateSGD:
    """Stochastic gradient descent that hides single samples: ``noise`` is z, ``clip`` is C, ``batch_size`` is B.

    >>> import majorant as mj
    >>> data = mj.data.synthetic_mixture(clients=4, dimension=3, seed=0)
    >>> private = mj.solvers.local_private_sgd(0.1, noise=2.0, clip=1.0, batch_size=8, steps=2)
    >>> run = mj.simulate(mj.fedavg(mj.models.linear(data), local=private), data, rounds=2)
    >>> run.summary()["privacy"]["unit"]
    'sample'
    """
    check_range("lr", lr, above=0)
    check_range("noise", noise, above=0)
    check_range("clip", clip, above=0)
    check_whole("batch_size", batch_size)
    check_whole("steps", steps)
    check_range("momentum", momentum, least=0, below=1)
    check_range("weight_decay", weight_decay, least=0)
    hyper = {"lr": lr} | {k: v for k, v in {"momentum": momentum, "weight_decay": weight_decay}.items() if v}
    plan = SampleNoise(float(noise), float(clip), batch_size, steps)
    return PrivateSGD(hyper, plan, float(clip), schedule, bool(momentum), bool(weight_decay))
