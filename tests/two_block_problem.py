"""A small problem with a shared and a personal block, solved by SciPy, and rounds in double precision.

Client m has samples (a, b, y) and f_{m,j}(w, β) = loss(⟨a, w⟩/√M + ⟨b, β⟩, y) + (l2/2)(‖w‖²/M + ‖β‖²).
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import scipy.linalg
import scipy.optimize

from compiling import quickly
from majorant.core import Algorithm, ClientData, Server
from majorant.engines import rounds as pure
from majorant.engines import set_up
from majorant.engines.messages import message_shapes
from majorant.engines.tally import empty_tally
from majorant.exchange.federation import Federation
from majorant.exchange.participation import Participation, bernoulli, full
from majorant.objectives.base import Constants, Objective
from majorant.solvers import whole

LOSSES = {
    "squares": (lambda z, y: (z - y) ** 2 / 2, 1.0),
    "logistic": (lambda z, y: jnp.logaddexp(0, jnp.where(y > 0, -z, z)), 0.25),
}


class Problem(NamedTuple):
    objective: Objective
    constants: Constants
    data: ClientData  # (M, n, ...)
    sizes: np.ndarray
    best: tuple[np.ndarray, np.ndarray] = (np.zeros(0), np.zeros(0))  # (w*, β*)

    @property
    def clients(self) -> int:
        return self.objective.clients


def make(
    loss: str = "logistic", sizes: tuple[int, ...] = (5, 7, 6), shared: int = 2, personal: int = 2, l2: float = 0.1
) -> Problem:
    """Gaussian features, padded to the longest client, in the precision that is switched on."""
    rng = np.random.default_rng(0)
    clients, longest = len(sizes), max(sizes)
    x = rng.normal(size=(clients, longest, shared + personal))
    y = (x.sum(axis=2) + rng.normal(size=(clients, longest)) > 0).astype(float)
    ids = jnp.arange(clients)
    data = ClientData(jnp.asarray(x), jnp.asarray(y), jnp.asarray(sizes), ids, ids)
    per_sample, curvature = LOSSES[loss]

    def value(w, beta, batch, slot):
        z = batch.x[:, :shared] @ w / clients**0.5
        z = z + batch.x[:, shared:] @ beta if personal else z
        own = jnp.sum(beta**2) if personal else 0.0
        return batch.mean(per_sample(z, batch.y)) + l2 / 2 * ((w**2).sum() / clients + own)

    real = np.arange(longest)[None, :] < np.asarray(sizes)[:, None]
    form = curvature * np.einsum("mni,mnj,mn->mij", x, x, real / np.asarray(sizes)[:, None])
    a, b = form[:, :shared, :shared], form[:, shared:, shared:]
    largest = lambda part: np.where(real, curvature * (part**2).sum(axis=2), 0).max(axis=1)
    hessian = scipy.linalg.block_diag(a.mean(axis=0) / clients, *(b / clients))
    for m in range(clients if personal else 0):
        place = shared + m * personal + np.arange(personal)
        hessian[:shared, place] = form[m, :shared, shared:] / clients**1.5
        hessian[place, :shared] = hessian[:shared, place].T
    least = scipy.linalg.eigvalsh(hessian)[0] if loss == "squares" else 0.0
    block = lambda part: np.linalg.eigvalsh(part)[..., -1].max() if part.size else 0.0
    constants = Constants(
        mu=float(max(least, 0) + l2 / clients),
        smooth_w=float(block(a.mean(axis=0)) + l2) / clients,
        smooth_beta=float(block(b) + l2) / clients if personal else 0.0,
        sample_smooth_w=float(largest(x[:, :, :shared]).mean() + l2) / clients,
        sample_smooth_beta=float(largest(x[:, :, shared:]).max() + l2) / clients if personal else 0.0,
    )
    objective = Objective(
        name="weight sharing",
        clients=clients,
        init=lambda key: jnp.ones(shared),
        init_personal=lambda key: jnp.ones(personal) if personal else (),
        value=value,
        deploy=lambda w, beta, slot: (w, beta),
        predict=lambda model, x: x[:, :shared] @ model[0] + x[:, shared:] @ model[1],
        constants=lambda data: constants,
    )
    problem = Problem(objective, constants, data, np.asarray(sizes))
    return problem._replace(best=minimiser(problem))


def total(problem: Problem, w: jax.Array, beta: Any) -> jax.Array:
    """F(w, β)."""
    return total_of(problem.objective, problem.data, w, beta)


def total_of(objective: Objective, data: ClientData, w: jax.Array, beta: Any) -> jax.Array:
    """The mean of the clients' values."""
    return jax.vmap(lambda beta, data: objective.value(w, beta, whole(data), data.slot))(beta, data).mean()


def minimiser(problem: Problem) -> tuple[np.ndarray, np.ndarray]:
    """(w*, β*) by SciPy, in double precision."""
    d = problem.objective.init(jax.random.key(0)).size
    split = lambda u: (u[:d], u[d:].reshape(problem.clients, -1))
    f = lambda u: total(problem, *split(u))
    own = sum(leaf.size for leaf in jax.tree.leaves(problem.objective.init_personal(jax.random.key(0))))
    start = np.zeros(d + problem.clients * own)
    found = scipy.optimize.root(jax.jit(jax.grad(f)), start, jac=jax.jit(jax.hessian(f)), tol=1e-14)
    return split(found.x)


class Path(NamedTuple):
    """A run, round by round: what is deployed, and the server."""

    w: jax.Array  # (rounds, …)
    beta: Any  # (rounds, M, …)
    server: Server


def play(
    algorithm: Algorithm,
    problem: Problem,
    rounds: int,
    *,
    seed: int = 0,
    hyper: dict[str, float] | None = None,
    inclusion: float = 1.0,
) -> Path:
    """Rounds of the engines' own pure functions; clients take part on their own with the given probability."""
    given = {name: np.asarray(value) for name, value in (hyper or {}).items()}  # typed alike: one program for all
    return _play(algorithm, rounds, problem.data, jax.random.key(seed), given, inclusion)


def taking_part(inclusion: float) -> Participation:
    """Clients take part on their own; the same object for the same probability, as programs are remembered by it."""
    return full() if inclusion == 1 else bernoulli(inclusion)


@partial(quickly, static_argnums=(0, 1, 5))
def _play(algorithm: Algorithm, rounds: int, data: ClientData, key: jax.Array, hyper: dict, inclusion: float) -> Path:
    count = data.id.shape[0]
    together = Federation(algorithm, taking_part(inclusion))
    server, clients = start(together, data, key, hyper, rounds)
    tally = empty_tally(message_shapes(together, jax.tree.map(lambda a: a[0], data)))

    def step(state, _):
        server, clients = state
        view, round_key = pure.begin_round(together, server, key)
        active = jax.random.bernoulli(jax.random.fold_in(round_key, 99), inclusion, (count,))
        sums, clients, _ = pure.chunk_pass(together, view, round_key, clients, data, active)
        server, _ = pure.end_round(together, server, view, round_key, sums, None, tally)
        seen = algorithm.release(server, key)
        deploy = lambda state, data: algorithm.deploy(seen, state, data, key)
        w, beta = jax.vmap(deploy)(clients.state, data)
        return (server, clients), Path(w[0], beta, server)

    return jax.lax.scan(step, (server, clients), None, rounds)[1]


def start(together: Federation, data: ClientData, key: jax.Array, hyper: dict, rounds: int = 1):
    """Server and clients after the set-up question."""
    count = data.id.shape[0]
    server = set_up.start_server(together, count, key, hyper, jnp.asarray(rounds))
    clients, answers = set_up.start_clients(together, server, key, data, jnp.ones(count, bool), count)
    return set_up.finish_start(together, server, [answers], [data.slot], count), clients


def hyper_of(algorithm: Algorithm, problem: Problem, inclusion: float = 1.0) -> dict[str, jax.Array]:
    """The hyperparameters that theory finds for the problem."""
    return _hyper_of(algorithm, inclusion, problem.data)


@partial(quickly, static_argnums=(0, 1))
def _hyper_of(algorithm: Algorithm, inclusion: float, data: ClientData) -> dict[str, jax.Array]:
    return start(Federation(algorithm, taking_part(inclusion)), data, jax.random.key(0), {})[0].hyper


def gap(problem: Problem, path: Path) -> np.ndarray:
    """F − F* after each round."""
    return np.asarray(_gap(problem.objective, problem.data, problem.best, path.w, path.beta))


@partial(quickly, static_argnums=0)
def _gap(objective: Objective, data: ClientData, best: tuple, w: jax.Array, beta: Any) -> jax.Array:
    value = lambda w, beta: total_of(objective, data, w, beta)
    return jax.vmap(value)(w, beta) - value(*best)


def distance(problem: Problem, path: Path) -> np.ndarray:
    """The largest difference to the minimiser in any number, after each round."""
    w, beta = problem.best
    far = np.abs(np.asarray(path.w) - w).max(axis=1)
    own = np.abs(np.asarray(path.beta) - beta).max(axis=(1, 2)) if beta.size else 0.0
    return np.maximum(far, own)
