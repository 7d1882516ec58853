"""Compressors: no bias, the variance they state, the values they can send; and algorithms with compressed uploads."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import majorant as mj
from majorant.exchange.compressors import identity, natural, quantized, random_k, sometimes, top_k

UNBIASED = {
    "identity": identity(),
    "8 bits": quantized(8),
    "2 bits": quantized(2),
    "3 bits in blocks": quantized(3, block=7),
    "2 bits of the largest": quantized(2, norm="max"),
    "natural": natural(),
    "random": random_k(0.2),
    "sometimes": sometimes(0.4, quantized(8)),
}
DRAWS = 20_000


@functools.cache
def drawn(name: str) -> tuple[np.ndarray, np.ndarray]:
    """A vector with a zero and entries of very different sizes, and what arrives of it many times."""
    x = np.random.default_rng(0).normal(size=30) * np.logspace(-1, 1, 30)
    x[5] = 0.0
    keys = jax.random.split(jax.random.key(1), DRAWS)
    many = jax.jit(jax.vmap(UNBIASED[name].compress, (0, None)))(keys, jnp.asarray(x, jnp.float32))
    return x, np.asarray(many, np.float64)


@pytest.mark.parametrize("name", UNBIASED)
def test_there_is_no_bias_and_no_more_variance_than_stated(name):
    x, many = drawn(name)
    error = many - x
    tolerance = 5 * error.std(axis=0) / DRAWS**0.5 + 1e-6 * np.abs(x)
    assert (np.abs(error.mean(axis=0)) <= tolerance).all()
    squared = np.square(error).sum(axis=1)
    stated = UNBIASED[name].omega(len(x)) * np.square(x).sum()
    assert squared.mean() <= stated + 4 * squared.std() / DRAWS**0.5 + 1e-9
    assert name == "identity" or squared.mean() > 0


def test_a_coordinate_has_as_many_values_as_its_bits_allow():
    x, many = drawn("2 bits")
    levels = np.unique(np.round(np.abs(many) / np.linalg.norm(x), 5))
    assert levels.tolist() == [0, 1]
    coarse = np.asarray(quantized(4).compress(jax.random.key(0), jnp.asarray(x, jnp.float32)))
    steps = 7 * np.abs(coarse) / np.linalg.norm(x)
    np.testing.assert_allclose(steps, np.round(steps), atol=1e-4)
    powers = np.abs(drawn("natural")[1])
    assert (np.log2(powers[powers > 0]) % 1 == 0).all()
    assert (many[:, 5] == 0).all()


def test_the_largest_and_random_places_are_kept():
    x = jnp.array([0.1, -5.0, 2.0, 0.0, 3.0])
    assert top_k(0.4).compress(jax.random.key(0), x).tolist() == [0, -5, 0, 0, 3]
    kept = np.asarray(random_k(0.4).compress(jax.random.key(0), jnp.ones(5)))
    assert sorted(kept.tolist()) == [0, 0, 0, 2.5, 2.5]


def test_large_numbers_stay_finite():
    """Numbers whose squares are too large for single precision, and the largest ones."""
    large, largest = (jnp.array([size, -1e20, 1.0], jnp.float32) for size in (1e30, 3e38))
    for arrived in (quantized(8).compress(jax.random.key(0), large), natural().compress(jax.random.key(0), largest)):
        assert bool(jnp.isfinite(arrived).all())


def test_bits():
    assert natural().bits(10) == 90
    assert quantized(8, block=4).bits(10) == 80 + 3 * 32
    assert top_k(0.1).bits(1000) == 100 * (32 + 10)


@pytest.fixture(scope="module")
def problem():
    data = mj.data.heterogeneous_logistic(clients=8, samples=60, dimension=10, sigma=0.3)
    return data, mj.fedavg(mj.models.linear(data), local=mj.local_sgd(0.3, batch_size=None))


def test_the_identity_changes_nothing_and_bytes_are_those_of_the_bits(problem):
    data, plain = problem
    runs = [mj.simulate(a, data, rounds=5) for a in (plain, mj.compressed(plain, identity()))]
    for one, two in zip(*(jax.tree.leaves(run.snapshot.server.value) for run in runs), strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-6)
    assert runs[0].communication == runs[1].communication
    packed = mj.simulate(mj.compressed(plain, quantized(4)), data, rounds=5)
    assert packed.communication[0]["bytes_up"] == 5 * 8 * -(-(4 * 11 + 32) // 8)
    assert packed.communication[0]["bytes_down"] == runs[0].communication[0]["bytes_down"]


@pytest.mark.parametrize("compressor", [quantized(3), top_k(0.1)], ids=lambda c: c.name)
def test_compressed_training_still_comes_to_the_optimum(problem, compressor):
    """Full batches, all clients: without compression it is gradient descent, and displacements vanish in the end."""
    data, plain = problem
    far = mj.simulate(plain, data, rounds=1, diagnostics=True).history[-1]["gradient_squared"]
    run = mj.simulate(mj.compressed(plain, compressor), data, rounds=600, diagnostics=True, evaluate_every=600)
    assert run.history[-1]["gradient_squared"] < 0.01 * far
    assert run.model(0).predict_proba(data.test.client(0)[0]).shape == (200, 2)


def test_mixtures_and_gradients_are_compressed_too(problem):
    data, _ = problem
    em = mj.fedem(mj.models.linear(data), components=2)
    objective = mj.objectives.mixture(data, lambda_=1.0, l2=0.1)
    acd = mj.methods.acd(objective, constants=objective.constants(data))
    for method, numbers in ((em, 22), (acd, 11)):
        run = mj.simulate(mj.compressed(method, quantized(8)), data, rounds=3)
        assert run.communication[0]["bytes_up"] == 3 * 8 * (numbers + 4)
        assert np.isfinite(run.history[-1]["train_loss"])


def test_what_cannot_work_is_refused(problem):
    with pytest.raises(ValueError, match="biased"):
        mj.compressed(problem[1], top_k(0.1), error_feedback=False)
    with pytest.raises(ValueError, match="bits must be"):
        quantized(1)
    with pytest.raises(ValueError, match="block must be"):
        quantized(8, block=0)
    with pytest.raises(ValueError, match="norm must be"):
        quantized(8, norm="l1")
    with pytest.raises(ValueError, match="share must be"):
        random_k(0.0)
