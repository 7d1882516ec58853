"""All solvers that converge find the reference solution of every convex objective (L2SGD+: see its own tests).

Compiling a solver takes seconds and running it milliseconds. So there is one problem for all objectives with both
blocks: vectors long enough for each, of which an objective takes what it needs, and a client's id that says, beside the
client, which objective is meant. What differs between them otherwise are hyperparameters, which are data.
"""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import flat_objectives
from majorant.methods import acd, asvrcd, lsgd, svrcd
from majorant.objectives import (
    Constants,
    apfl2,
    custom,
    mixture,
    multi_task,
    residual,
    traditional,
    weight_sharing,
)
from two_block_problem import Problem, distance, hyper_of, play

L2, LONGEST, APART = 0.3, 3, 100  # numbers in a block at most; ids of one objective and the next
DATA = flat_objectives.samples()
CLIENTS = 3


def line(w, beta, batch, id):
    """Least squares with shared slopes and an intercept for each client."""
    shared = w * CLIENTS**-0.5
    error = batch.x @ shared + beta - batch.y
    return batch.mean(jnp.square(error)) / 2 + L2 / 2 * ((shared**2).sum() + beta**2)


def line_constants(data) -> Constants:
    steep = float(np.square(data.train.x.astype(float)).sum(axis=1).max()) + L2
    return Constants(L2 / CLIENTS, steep / CLIENTS, (1 + L2) / CLIENTS, steep / CLIENTS, (1 + L2) / CLIENTS)


OBJECTIVES = {
    "multi_task": multi_task(DATA, lambda_=0.5, relaxation=2.0, l2=L2),
    "mixture": mixture(DATA, lambda_=0.5, l2=L2),
    "apfl2": apfl2(DATA, alpha=[0.3, 0.4, 0.2], l2=L2),
    "weight_sharing": weight_sharing(DATA, personal=[0], l2=L2),
    "residual": residual(DATA, shared=[0], personal=[0, 1], l2=L2),
    "custom": custom(
        DATA,
        line,
        init=lambda key: jnp.zeros(2),
        init_personal=lambda key: jnp.zeros(()),
        predict=lambda model, x: x @ model[0] + model[1],
        constants=line_constants,
        convex=True,
    ),
}
SOLVERS = {
    "lsgd": lambda p: lsgd(
        p.objective, lr=1 / max(p.constants.smooth_w, p.constants.smooth_beta), tau=1, batch_size=None
    ),
    "acd": lambda p: acd(p.objective, constants=p.constants),
    "asvrcd": lambda p: asvrcd(p.objective, constants=p.constants),
    "svrcd": lambda p: svrcd(p.objective, constants=p.constants),
}
ROUNDS = {"lsgd": 400, "acd": 100, "asvrcd": 2000, "svrcd": 5000}


@pytest.fixture(autouse=True)
def double_precision():
    with jax.enable_x64(True):
        yield


@functools.cache
def problem(name: str) -> Problem:
    """One objective over vectors of its own length."""
    return flat_objectives.flat_problem(OBJECTIVES[name], DATA)


@functools.cache
def joint_problem() -> Problem:
    """All of them: id // APART is the place of the objective."""
    parts = [problem(name) for name in OBJECTIVES]

    def branch(part: Problem):
        shared, personal = part.best[0].size, part.best[1].shape[1]
        return jax.jit(lambda w, beta, batch, id: part.objective.value(w[:shared], beta[:personal], batch, id % APART))

    branches = [branch(part) for part in parts]
    start = lambda key: jnp.zeros(LONGEST)
    objective = parts[0].objective._replace(
        init=start,
        init_personal=start,
        value=lambda w, beta, batch, slot: jax.lax.switch(slot // APART, branches, w, beta, batch, slot),
    )
    return parts[0]._replace(objective=objective)


@functools.cache
def joint_solver(solver: str):
    return SOLVERS[solver](joint_problem())


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("name", OBJECTIVES)
def test_every_solver_finds_the_reference_solution(name, solver):
    mine, place = problem(name), list(OBJECTIVES).index(name)
    data = mine.data._replace(slot=mine.data.slot + APART * place)
    hyper = hyper_of(SOLVERS[solver](mine), mine)
    path = play(joint_solver(solver), joint_problem()._replace(data=data), ROUNDS[solver], hyper=hyper)
    (w, beta), (best_w, best_beta) = (path.w[-1], path.beta[-1]), mine.best
    np.testing.assert_allclose(w, np.pad(best_w, (0, LONGEST - best_w.size)), rtol=0, atol=1e-8)
    np.testing.assert_allclose(beta, np.pad(best_beta, ((0, 0), (0, LONGEST - best_beta.shape[1]))), rtol=0, atol=1e-8)


@pytest.mark.parametrize("solver", ["acd", "asvrcd"])
def test_solvers_find_the_traditional_model(solver):
    """Without a personal block."""
    p = flat_objectives.flat_problem(traditional(DATA, l2=L2), DATA)
    assert distance(p, play(SOLVERS[solver](p), p, ROUNDS[solver]))[-1] < 1e-8
