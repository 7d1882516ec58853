"""LSGD-PFL: what it is in special cases, its step from theory, its average, and a part of the clients."""

from __future__ import annotations

import functools
import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import majorant as mj
import two_block_problem
import zoo
from compiling import quickly
from majorant.core import Terms, Uploads
from majorant.data.federated import FederatedData
from majorant.methods import lsgd
from majorant.methods._two_blocks import Blocks, gradient
from majorant.methods.lsgd import theoretical_rate
from majorant.objectives import mixture, multi_task, weight_sharing
from majorant.solvers import whole
from two_block_problem import Problem, gap, hyper_of, play


@pytest.fixture(autouse=True)
def double_precision():
    with jax.enable_x64(True):
        yield


@functools.cache
def problem() -> Problem:
    return two_block_problem.make("logistic")


def test_one_full_step_without_a_personal_block_is_gradient_descent():
    p = two_block_problem.make("logistic", sizes=(5, 7, 6), shared=3, personal=0)
    path = play(lsgd(p.objective, lr=0.7, tau=1, batch_size=None), p, 10)
    w, slope = np.ones(3), quickly(jax.grad(lambda w: two_block_problem.total(p, w, ())))
    for k in range(10):
        w = w - 0.7 * np.asarray(slope(w))
        np.testing.assert_allclose(path.w[k], w, rtol=1e-12)


def test_one_full_step_goes_down_the_gradient_of_both_blocks():
    """The personal step is η/M, as ∇_β F has the 1/M."""
    p = problem()
    path = play(lsgd(p.objective, lr=0.7, tau=1, batch_size=None), p, 1)
    start = np.ones(2), np.ones((p.clients, 2))
    slopes = quickly(jax.grad(lambda u: two_block_problem.total(p, *u)))(start)
    np.testing.assert_allclose(path.w[0], start[0] - 0.7 * slopes[0], rtol=1e-12)
    np.testing.assert_allclose(path.beta[0], start[1] - 0.7 * slopes[1], rtol=1e-12)


def test_the_step_of_the_theorem_converges_up_to_a_noise_level_that_shrinks_with_it():
    p = problem()
    algorithm = lsgd(p.objective, constants=p.constants)
    lr = float(hyper_of(algorithm, p)["lr"])
    c = p.constants
    assert lr == pytest.approx(
        min(1 / (4 * max(c.smooth_w, c.smooth_beta)), 1 / (8 * math.sqrt(3 * math.e) * 4 * c.smooth_w))
    )
    steeper = c._replace(smooth_w=4 * c.smooth_w)  # by chance, where a quarter of the clients stands for all
    assert float(theoretical_rate(c, 5, 0.25)) == pytest.approx(float(theoretical_rate(steeper, 5)))
    assert float(theoretical_rate(steeper, 5)) == pytest.approx(lr / 4)
    level = lambda lr: gap(p, play(algorithm, p, 3000, hyper={"lr": lr}))[1500:].mean()
    coarse, fine = level(lr), level(lr / 5)
    assert 1e-5 < fine < coarse / 2
    assert coarse < 0.1 * gap(p, play(algorithm, p, 3000, hyper={"lr": lr}))[0]


def test_the_running_average_is_the_weighted_mean():
    p, lr, mu, tau, rounds = problem(), 0.5, 0.1, 3, 12
    last = play(lsgd(p.objective, lr=lr, tau=tau), p, rounds)
    averaged = play(lsgd(p.objective, lr=lr, tau=tau, mu=mu, output="average"), p, rounds)
    weights = (1 - lr * mu) ** (-tau * np.arange(rounds + 1.0))
    for path, mean, start in ((last.w, averaged.w, np.ones(2)), (last.beta, averaged.beta, np.ones((p.clients, 2)))):
        points = np.concatenate([start[None], path])
        np.testing.assert_allclose(mean[-1], np.tensordot(weights / weights.sum(), points, 1), rtol=1e-12)


def test_weights_that_would_overflow_do_not():
    p = problem()
    path = play(lsgd(p.objective, lr=0.5, mu=1.9, output="average"), p, 500)  # weights up to 20^2500
    assert np.isfinite(path.w).all()
    assert np.isfinite(path.beta).all()


def test_a_part_of_the_clients_moves_the_server_on_average_as_all_of_them():
    p = problem()
    algorithm = lsgd(p.objective, lr=0.5)
    server = algorithm.server.init(jax.random.key(0))
    points = jnp.asarray(np.random.default_rng(0).normal(size=(p.clients, 2)))

    def step(who, share):
        uploads = Uploads(points[jnp.array(who)].sum(axis=0), jnp.asarray(float(len(who))))
        return algorithm.server.update(server._replace(terms=Terms(inclusion=share)), None, uploads).value

    everybody = step([0, 1, 2], 1.0)
    np.testing.assert_allclose(everybody, points.mean(axis=0), rtol=1e-12)
    pairs = [step(who, 2 / 3) for who in itertools.combinations(range(3), 2)]
    np.testing.assert_allclose(np.mean(pairs, axis=0), everybody, rtol=1e-12)
    alone = [step([m], 1 / 3) for m in range(3)]
    np.testing.assert_allclose(np.mean(alone, axis=0), everybody, rtol=1e-12)


def test_gossip_on_the_complete_graph_is_the_server():
    with jax.enable_x64(False):
        algorithm, data = zoo.algorithm("lsgd"), zoo.training()
        served = mj.simulate(algorithm, data, rounds=3, evaluation=mj.Evaluation(every=3))
        peers = mj.simulate(
            algorithm, data, rounds=3, evaluation=mj.Evaluation(every=3), exchange=mj.gossip(mj.topology.complete())
        )
    seen = ~data.unseen  # those that join later meet a few peers, not the server
    for name in ("train_loss", "train_score"):
        np.testing.assert_allclose(
            peers.scores[0].values[name][seen], served.scores[0].values[name][seen], rtol=1e-5, atol=1e-6
        )


def test_a_client_that_joins_fits_its_own_block():
    p = problem()
    algorithm = lsgd(p.objective, lr=1.0)
    view = algorithm.release(algorithm.server.init(jax.random.key(0)), jax.random.key(0))
    data = jax.tree.map(lambda a: a[1], p.data)
    slope = lambda beta: jnp.abs(gradient(p.objective, Blocks(view.value, beta), whole(data), data.slot).beta).max()
    joined = algorithm.join(view, data, jax.random.key(1))
    assert slope(joined.beta) < 0.1 * slope(jnp.ones(2))


@functools.cache
def digits() -> FederatedData:
    """Five clients with all ten digits: guessing is right once in ten times."""
    x, y = mj.data.load_digits()
    return mj.data.partitioned(x[:600], y[:600], "iid", clients=5, seed=0)


@pytest.mark.parametrize(
    ("make", "travels"),
    [
        (functools.partial(weight_sharing, personal=["1"]), 64 * 16 + 16),  # the last layer stays at home
        (multi_task, 64 * 16 + 16 + 16 * 10 + 10),
        (functools.partial(mixture, lambda_=1.0), 64 * 16 + 16 + 16 * 10 + 10),
    ],
    ids=["weight_sharing", "multi_task", "mixture"],
)
def test_neural_networks_train(make, travels):
    with jax.enable_x64(False):
        objective = make(digits(), model=mj.models.mlp(digits(), hidden=(16,)))
        algorithm = lsgd(objective, lr=1.0, tau=5, batch_size=16)
        run = mj.simulate(algorithm, digits(), rounds=60, evaluation=mj.Evaluation(every=30))
    half, end = run.history
    assert end["loss"] < half["loss"] / 2
    assert end["train_accuracy"]["mean"] > 0.9
    assert end["test_accuracy"]["mean"] > 0.7
    assert run.communication[0]["bytes_up"] == 60 * 5 * 4 * (travels + 2)  # with a weight, and the loss


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        *(({"lr": 0.1, "tau": tau}, "tau must be a positive whole number") for tau in (0, -1, 0.5, 2.5)),
        ({"lr": 0.0}, "lr must be"),
        ({"lr": 0.1, "batch_size": 0}, "batch_size must be"),
        ({}, "give lr: weight sharing has no constants"),
        ({"lr": 0.1, "mu": -1.0}, "mu must be"),
        ({"lr": 0.1, "output": "best"}, "output must be"),
    ],
)
def test_bad_input_is_refused(options, complaint):
    with pytest.raises(ValueError, match=complaint):
        lsgd(problem().objective, **options)


def test_unbounded_smoothness_asks_for_a_step():
    p = problem()
    with pytest.raises(ValueError, match="give lr"):
        lsgd(p.objective, constants=p.constants._replace(smooth_w=math.inf))
