"""Dropout draws from the run, round, client and minibatch alone: padding, chunks and resuming change nothing."""

import jax
import numpy as np
import pytest

import majorant as mj
from majorant.data.federated import FederatedData
from majorant.solvers import Batch

ROUNDS = 2


@pytest.fixture(scope="module")
def problem():
    rng = np.random.default_rng(0)
    x, y = rng.integers(0, 256, (44, 6, 6, 1)).astype(np.uint8), np.arange(44) % 3
    data = FederatedData.from_arrays(x, y, np.repeat([0, 1, 2], [8, 14, 22]), split=(0.8, 0.0, 0.2))
    model = mj.models.augmented(mj.models.cnn(data, channels=(2,), hidden=8, dropout=0.5), crop=1)
    return data, mj.fedavg(model, local=mj.local_sgd(0.1, batch_size=4, clip=1.0))


def trained(problem, **options):
    data, algorithm = problem
    return mj.simulate(algorithm, data, rounds=ROUNDS, evaluation=mj.Evaluation(every=1), **options)


@pytest.fixture(scope="module")
def usual(problem):
    return trained(problem)


def close(a, b, tolerance=0.0):
    jax.tree.map(lambda v, w: np.testing.assert_allclose(v, w, atol=tolerance), a.snapshot.server, b.snapshot.server)


def test_padding_and_chunks_change_nothing(problem, usual):
    close(usual, trained(problem, resources=mj.Resources(clients="vmap", extra_padding=5)), 2e-6)


def test_resuming_changes_nothing(problem, usual):
    data, algorithm = problem
    taken = []
    mj.simulate(
        algorithm,
        data,
        rounds=ROUNDS,
        evaluation=mj.Evaluation(every=1, until="round >= 1", report=lambda _, snapshot: taken.append(snapshot())),
    )
    close(usual, trained(problem, resume=taken[0]))


def test_dropout_is_drawn_at_all(problem, usual):
    data, _ = problem
    still = mj.fedavg(mj.models.cnn(data, channels=(2,), hidden=8), local=mj.local_sgd(0.1, batch_size=4, clip=1.0))
    other = mj.simulate(still, data, rounds=ROUNDS, evaluation=mj.Evaluation(every=1))
    assert usual.history[-1]["loss"] != other.history[-1]["loss"]


def test_every_minibatch_has_a_key_of_its_own():
    key, rows = jax.random.key(0), np.zeros(4)
    draws = [Batch(rows, rows, rows, np.int32(3), key, number).draw() for number in (0, 1, 0)]
    first, second, again = (jax.random.key_data(draw.key).tolist() for draw in draws)
    assert first == again != second
    assert draws[0].real.tolist() == [True, True, True, False]
    drawn_rows = [jax.random.key_data(jax.random.fold_in(key, j)).tolist() for j in range(4)]
    assert first not in drawn_rows
