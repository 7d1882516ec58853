"""Best-response surrogates: majorants that are described by the *parameters of a network* instead of a statistic.

The objective has two variables, ω, which depends on everybody's samples, and θ, which public data are enough for::

    W_i(ω, θ) = E_{P_i} ℓ(ω, θ; Z) + E_Q b(ω, θ; Y)                       client i's samples Z ~ P_i, public Y ~ Q
    𝒲_i(θ)   = min_ω W_i(ω, θ)

and ω_i(θ_t) = argmin_ω W_i(ω, θ_t), a client's best response, describes a majorant: U_{i,t}(θ) = W_i(ω_i(θ_t), θ)
touches 𝒲_i at θ_t, and lies above it everywhere. The parameters ω_i travel; the server aggregates them and moves θ,
down U or, in a game, down a loss r of its own (`response`). A transport map is the first instance
(`majorant.methods.transport`), a critic on the clients and a generator on the server another (docs).

An average of the ω_i describes no majorant of Σ μ_i 𝒲_i in general, as ω does not enter W linearly: the paper speaks of
"pseudo-MM". `check_best_response` tests what does hold, tangency and majorization on each client.

Reference: Dieuleveut, Fort, Hegazy, Wai, *Federated majorize-minimization: beyond parameter aggregation*, 2025,
Section 7.1.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from majorant.core import Key, Tree
from majorant.core.compilation import jit
from majorant.math.checks import check_range, check_whole
from majorant.solvers import Batch
from majorant.solvers.descent import lbfgs

Hyper = dict[str, Any]


class Pair(NamedTuple):
    """The two variables: the one that clients answer with, and the server's."""

    omega: Tree
    theta: Tree


class BestResponse(NamedTuple):
    """A problem min_ω Σ μ_i W_i(ω, θ) with a server-side θ, as a record of pure functions.

    ``losses(ω, θ, x, y) -> (n,)`` is ℓ of a client's samples, ``public(ω, θ, batch, hyper) -> (m,)`` b of a batch of
    public data that ``draw(key)`` gives. The server moves θ down the mean of ``response(ω, θ, batch, hyper) -> (m,)``:
    None is ``public``, plain minimisation over both; a game has another one, such as its negative. ``hyper`` are the
    problem's own hyperparameters. The projections keep ω and θ in their sets.
    """

    name: str
    init: Callable[[Key], Pair]
    losses: Callable[[Tree, Tree, jax.Array, jax.Array], jax.Array]
    draw: Callable[[Key], Any]
    public: Callable[[Tree, Tree, Any, Hyper], jax.Array]
    response: Callable[[Tree, Tree, Any, Hyper], jax.Array] | None = None
    project: Callable[[Tree], Tree] = lambda omega: omega
    project_theta: Callable[[Tree], Tree] = lambda theta: theta
    hyper: dict[str, float] = {}  # noqa: RUF012 - never mutated
    predict: Callable[[Pair, jax.Array], jax.Array] | None = None  # what the pair says of samples

    def objective(self, omega: Tree, theta: Tree, batch: Batch, public: Any, hyper: Hyper) -> jax.Array:
        """W on a client's batch and a batch of public data."""
        own = batch.mean(self.losses(omega, theta, batch.x, batch.y))
        return own + self.public(omega, theta, public, hyper).mean()

    def server_objective(self, omega: Tree, theta: Tree, public: Any, hyper: Hyper) -> jax.Array:
        """What θ goes down, on a batch of public data."""
        return (self.response or self.public)(omega, theta, public, hyper).mean()


class BestResponseReport(NamedTuple):
    """What `check_best_response` has found; the gaps are in units of the objective."""

    tangency: float  # |U(θ_t) − 𝒲(θ_t)|, with 𝒲 by a second solve from elsewhere
    least_gap: float  # the least U(θ) − 𝒲(θ) over the points that were tried
    largest_gap: float  # the largest, to see that points were tried that matter
    points: int

    def holds(self, tolerance: float = 1e-4) -> bool:
        """Whether tangency and majorization hold up to a tolerance."""
        return self.tangency <= tolerance and self.least_gap >= -tolerance


def check_best_response(
    problem: BestResponse,
    x: Any,
    y: Any = None,
    *,
    points: int = 8,
    scale: float = 0.5,
    steps: int = 200,
    seed: int = 0,
) -> BestResponseReport:
    """Tries tangency and majorization of one client's surrogate U_{i,t}, numerically.

    The best response is found by L-BFGS, from two starts where it must agree; θ is moved by random steps of ``scale``.
    Where ω enters W without convexity the two solves may end in different valleys: that is then what is reported.
    """
    check_whole("points", points)
    check_range("scale", scale, above=0)
    x = jnp.asarray(x, jnp.result_type(float))
    y = jnp.zeros(x.shape[0]) if y is None else jnp.asarray(y)
    batch = Batch(x, y, jnp.ones(x.shape[0]), jnp.asarray(x.shape[0]))
    keys = jax.random.split(jax.random.key(seed), 3)
    start, other = problem.init(keys[0]), problem.init(keys[1])
    public, hyper = problem.draw(keys[2]), dict(problem.hyper)

    def value(omega: Tree, theta: Tree) -> jax.Array:
        return problem.objective(problem.project(omega), theta, batch, public, hyper)

    @jit
    def answer(theta: Tree, begin: Tree) -> Tree:
        return lbfgs(lambda omega: value(omega, theta), begin, steps, 20, 1e-9)

    response = answer(start.theta, start.omega)
    again = answer(start.theta, other.omega)
    surrogate = jit(value)
    gaps = []
    for key in jax.random.split(jax.random.fold_in(keys[2], 1), points):
        noise = optax.tree.random_like(key, start.theta)
        theta = problem.project_theta(jax.tree.map(lambda t, e: t + scale * e, start.theta, noise))
        gaps.append(float(surrogate(response, theta) - surrogate(answer(theta, response), theta)))
    tangency = abs(float(surrogate(response, start.theta) - surrogate(again, start.theta)))
    return BestResponseReport(tangency, float(np.min(gaps)), float(np.max(gaps)), points)
