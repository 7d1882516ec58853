"""L2SGD+: the minimiser and the rate of its theory, unbiased steps, the paper's iterations, counts, bad input."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import flat_objectives
import two_block_problem
from compiling import quickly
from majorant.core import as_hyper, client_key, round_key
from majorant.exchange import federation, gossip, topology
from majorant.methods import l2sgd_plus as method
from majorant.methods.l2sgd_plus import base_constants, step_and_probability
from majorant.objectives import Constants, mixture, multi_task, traditional
from majorant.solvers import Batch
from two_block_problem import Path, Problem, distance, gap, hyper_of, play

LAMBDA, L2, ROUNDS = 0.4, 0.1, 600


@pytest.fixture(autouse=True)
def double_precision():
    with jax.enable_x64(True):
        yield


@functools.cache
def problem() -> Problem:
    data = flat_objectives.samples()
    return flat_objectives.flat_problem(mixture(data, lambda_=LAMBDA, l2=L2), data)


@functools.cache
def algorithm():
    return method(problem().objective, constants=problem().constants)


def theory() -> dict[str, float]:
    return {name: float(value) for name, value in hyper_of(algorithm(), problem()).items()}


def of_the_coordinate_methods() -> dict[str, float]:
    """p_w and η of ASVRCD-PFL, which the experiments of the unified framework give to L2SGD+ as well."""
    c = problem().constants
    return {
        "p_w": c.sample_smooth_w / (c.sample_smooth_w + c.sample_smooth_beta),
        "lr": 1 / (8 * (c.sample_smooth_w + c.sample_smooth_beta)),
    }


@functools.cache
def run(numbers=theory, seed: int = 0) -> Path:
    return play(algorithm(), problem(), ROUNDS, hyper=numbers(), seed=seed)


def estimates(state: tuple, samples: np.ndarray | None, hyper: dict[str, float]) -> np.ndarray:
    """g_m of all clients as printed in the paper: of an averaging step, or with a sample of each client."""
    x, table, psi = state
    p, m, sizes = hyper["p_w"], problem().clients, problem().sizes
    mean = table.sum(axis=1) / sizes[:, None]
    if samples is None:
        return LAMBDA / (m * p) * (x - x.mean(axis=0)) - (1 / p - 1) / m * psi + mean / m
    rows = np.arange(m), samples
    return (sample_gradients(x)[rows] - table[rows]) / (m * (1 - p)) + mean / m + psi / m


@jax.jit
def sample_gradients(x: jax.Array) -> jax.Array:
    """∇f'_{m,j}(x_m), (M, n, d)."""
    data, value = problem().data, problem().objective.penalty.value
    batch = lambda x_j, y_j: Batch(x_j[None], y_j[None], jnp.ones(1), jnp.asarray(1))
    of_sample = lambda x, x_j, y_j: jax.grad(value)(x, batch(x_j, y_j))
    return jax.vmap(jax.vmap(of_sample, in_axes=(None, 0, 0)))(x, data.x, data.y)


@pytest.mark.parametrize("numbers", [theory, of_the_coordinate_methods])
def test_linear_convergence_to_the_reference_solution(numbers):
    far = gap(problem(), run(numbers))
    assert distance(problem(), run(numbers))[-1] < 1e-8
    assert abs(far[-1]) < 1e-14
    usable = int(np.flatnonzero(far < 1e-13)[0])
    curve = np.log(far[:usable])
    assert curve[0] - curve[-1] > 20
    assert np.corrcoef(np.arange(usable), curve)[0, 1] < -0.98


def test_it_contracts_as_fast_as_the_theory_says():
    """E ‖x − x*‖² falls by 1 − αμ'/M an iteration."""
    p, rates = problem(), []
    for seed in range(3):
        path = run(seed=seed)
        squares = np.asarray(jnp.square(path.beta - p.best[1]).sum(axis=(1, 2)))
        iterations = np.asarray(path.server.state.counts.iterations)
        last = np.flatnonzero(squares > 1e-24)[-1]
        rates.append(np.log(squares[0] / squares[last]) / (iterations[last] - iterations[0]))
    mu, _ = base_constants(p.objective, p.objective.penalty, p.constants)
    assert mu == pytest.approx(L2)
    assert np.mean(rates) >= -np.log1p(-theory()["lr"] * mu / p.clients)


def test_steps_are_unbiased():
    """Over the coin and all samples, x moves by −α∇F on average, whatever the tables hold."""
    p, hyper = problem(), theory()
    rng = np.random.default_rng(0)
    x, psi = rng.normal(size=(2, p.clients, 3))
    real = np.arange(max(p.sizes)) < p.sizes[:, None]
    table = np.where(real[..., None], rng.normal(size=(*real.shape, 3)), 0)
    made, key = algorithm(), jax.random.key(0)

    @quickly
    def moved(x, table, psi, mean, steps, seed):
        """The clients after an averaging step with ``mean`` and some gradient steps."""
        server = made.server.init(key)._replace(hyper=as_hyper(hyper))
        view = made.server.broadcast(server, key)._replace(value=mean, shared=steps)
        fresh = jax.vmap(lambda data: made.client.init(view, data, key))(p.data)
        update = lambda client, data: made.client.update(view, client, data, jax.random.key(seed))[1]
        return jax.vmap(update)(fresh._replace(x=x, table=table, psi=psi), p.data)

    after = moved(x, table, psi, x.mean(axis=0), 0, 0)  # where gradient steps start from
    again = moved(after.x, table, after.psi, after.x.mean(axis=0), 0, 0)
    expected = hyper["p_w"] * np.asarray(after.x - again.x)
    draw = jax.jit(lambda seed, size: jax.random.randint(jax.random.fold_in(jax.random.key(seed), 0), (), 0, size))
    for m, size in enumerate(p.sizes):
        seeds = {int(draw(seed, size)): seed for seed in range(60)}
        assert len(seeds) == size
        for seed in seeds.values():
            one = moved(x, table, psi, x.mean(axis=0), 1, seed)
            expected[m] += (1 - hyper["p_w"]) / size * np.asarray(after.x[m] - one.x[m])
    spread = lambda x: two_block_problem.total(p, p.clients**0.5 * x.mean(axis=0), x)
    np.testing.assert_allclose(expected, hyper["lr"] * quickly(jax.grad(spread))(after.x), rtol=1e-9, atol=1e-12)


def test_rounds_are_the_iterations_of_the_paper():
    p, hyper, path = problem(), theory(), run()
    key = lambda k, m, i: jax.random.fold_in(client_key(round_key(jax.random.key(0), k), m), i)
    draw = jax.jit(lambda k, m, i, size: jax.random.randint(key(k, m, i), (), 0, size))
    x = np.zeros((p.clients, 3))
    table, psi = np.zeros((p.clients, max(p.sizes), 3)), np.zeros((p.clients, 3))
    before = 0
    for k in range(20):
        x, old = x - hyper["lr"] * estimates((x, table, psi), None, hyper), x
        psi = LAMBDA * (old - old.mean(axis=0))
        iterations = int(path.server.state.counts.iterations[k])
        for i in range(iterations - before - 1):
            samples = np.array([draw(k + 1, m, i, size) for m, size in enumerate(p.sizes)])
            x, old = x - hyper["lr"] * estimates((x, table, psi), samples, hyper), x
            table[np.arange(p.clients), samples] = sample_gradients(old)[np.arange(p.clients), samples]
        before = iterations
        np.testing.assert_allclose(path.beta[k], x, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(path.w[k], p.clients**0.5 * x.mean(axis=0), rtol=1e-9, atol=1e-12)


def test_counts():
    server = jax.tree.map(lambda a: a[-1], run().server)
    told = {name: float(value) for name, value in algorithm().diagnostics.log(server).items()}
    assert told["gradients_w"] == ROUNDS
    assert told["gradients_beta"] == told["iterations"] - ROUNDS
    assert told["iterations"] * theory()["p_w"] == pytest.approx(ROUNDS, rel=0.2)


@pytest.mark.parametrize("rescale", [True, False])
def test_constants_of_the_base_problem_are_found_again(rescale):
    data = flat_objectives.samples()
    objective = mixture(data, lambda_=LAMBDA, l2=L2, rescale=rescale)
    mu, smooth = base_constants(objective, objective.penalty, objective.constants(data))
    longest = np.square(np.hstack([data.train.x, np.ones((len(data.train.y), 1))])).sum(axis=1).max()
    np.testing.assert_allclose([mu, smooth], [L2, longest / 4 + L2], rtol=1e-6)
    guess = Constants(1.0, 1.0, 1.0, 1.0, 1.0)  # gives numbers too
    assert 0 < float(step_and_probability(objective, objective.penalty, guess, 5.0)["p_w"]) < 1


def test_bad_input():
    p, data = problem(), flat_objectives.samples()
    for other in (multi_task(data), traditional(data)):
        with pytest.raises(ValueError, match=f"minimises the mixture objective.* not {other.name}"):
            method(other, constants=p.constants)
    with pytest.raises(ValueError, match="needs lambda_ > 0"):
        method(mixture(data, lambda_=0.0), constants=p.constants)
    for wrong in (0.0, 1.0, -1.0, float("nan")):
        with pytest.raises(ValueError, match="p_w must be"):
            method(p.objective, constants=p.constants, p_w=wrong)
    with pytest.raises(ValueError, match="lr must be"):
        method(p.objective, constants=p.constants, lr=0.0)
    with pytest.raises(ValueError, match="finite constants"):
        method(p.objective, constants=p.constants._replace(sample_smooth_beta=float("inf")))
    with pytest.raises(ValueError, match="do not send points"):
        federation(algorithm(), training=np.arange(3), exchange=gossip(topology.ring()))
    with pytest.warns(UserWarning, match="LSGD-PFL still applies"):
        method(p.objective._replace(convex=False), constants=p.constants)


@pytest.mark.parametrize("size", [1.0, 40.0])
def test_steps_are_those_of_the_theorem(size):
    """p = (4λ + μ)/(4λ + μ + 4𝓛 + μn) and α = M min{(1 − p)/(4𝓛 + μn), p/(4λ + μ)}."""
    data = flat_objectives.samples()
    objective = mixture(data, lambda_=LAMBDA, l2=L2)
    constants = objective.constants(data)
    mu, smooth = base_constants(objective, objective.penalty, constants)
    steep, pull = 4 * smooth + mu * size, 4 * LAMBDA + mu
    p = pull / (pull + steep)
    found = step_and_probability(objective, objective.penalty, constants, size)
    assert float(found["p_w"]) == pytest.approx(float(p), rel=1e-5)
    assert float(found["lr"]) == pytest.approx(float(objective.clients * min((1 - p) / steep, p / pull)), rel=1e-5)
