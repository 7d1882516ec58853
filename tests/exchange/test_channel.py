"""Channels: no bias, the variance that stages state, the values they can send, their bits; algorithms that use them."""

from __future__ import annotations

import functools
import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import majorant as mj
import zoo
from majorant.exchange.channel import (
    chain,
    clip,
    error_feedback,
    identity,
    lossy,
    natural,
    quantized,
    random_k,
    sometimes,
    top_k,
)

UNBIASED = {
    "identity": identity(),
    "8 bits": quantized(8),
    "2 bits": quantized(2),
    "3 bits in blocks": quantized(3, block=7),
    "2 bits of the largest": quantized(2, norm="max"),
    "natural": natural(),
    "random": random_k(0.2),
    "sometimes": sometimes(0.4, quantized(8)),
    "chain": chain(random_k(0.5), quantized(4, block=4)),
}
DRAWS = 20_000


@functools.cache
def drawn(name: str) -> tuple[np.ndarray, np.ndarray]:
    """A vector with a zero and entries of very different sizes, and what arrives of it many times."""
    x = np.random.default_rng(0).normal(size=30) * np.logspace(-1, 1, 30)
    x[5] = 0.0
    keys = jax.random.split(jax.random.key(1), DRAWS)
    memory = UNBIASED[name].memory(len(x))
    arrive = jax.jit(jax.vmap(UNBIASED[name].apply, (0, None, None)))
    many = arrive(keys, jnp.asarray(x, jnp.float32), memory)
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
    coarse = np.asarray(quantized(4).apply(jax.random.key(0), jnp.asarray(x, jnp.float32)))
    steps = 7 * np.abs(coarse) / np.linalg.norm(x)
    np.testing.assert_allclose(steps, np.round(steps), atol=1e-4)
    powers = np.abs(drawn("natural")[1])
    assert (np.log2(powers[powers > 0]) % 1 == 0).all()
    assert (many[:, 5] == 0).all()


def test_the_largest_and_random_places_are_kept():
    x = jnp.array([0.1, -5.0, 2.0, 0.0, 3.0])
    assert top_k(0.4).apply(jax.random.key(0), x, top_k(0.4).memory(5)).tolist() == [0, -5, 0, 0, 3]
    kept = np.asarray(random_k(0.4).apply(jax.random.key(0), jnp.ones(5)))
    assert sorted(kept.tolist()) == [0, 0, 0, 2.5, 2.5]


def test_large_numbers_stay_finite():
    """Numbers whose squares are too large for single precision, and the largest ones."""
    large, largest = (jnp.array([size, -1e20, 1.0], jnp.float32) for size in (1e30, 3e38))
    for arrived in (quantized(8).apply(jax.random.key(0), large), natural().apply(jax.random.key(0), largest)):
        assert bool(jnp.isfinite(arrived).all())


def test_bits():
    assert natural().bits(10) == 90
    assert quantized(8, block=4).bits(10) == 80 + 3 * 32
    assert top_k(0.1).bits(1000) == 100 * (32 + 10)
    assert chain(random_k(0.1), quantized(4)).bits(1000) == 100 * 4 + 32 + 32  # levels, a seed, a norm
    assert chain(clip(1.0), natural()).bits(10) == 90
    with jax.enable_x64(True):
        assert identity().bits(10, jnp.float64) == 640


def test_what_is_sent_fits_its_bits():
    """A level of b bits has a sign and 2^(b − 1) − 1 sizes; places of top-k are smaller than the length."""
    x = jnp.asarray(np.random.default_rng(1).normal(size=50) * 100, jnp.float32)
    for bits in (2, 5, 8):
        message, _ = quantized(bits, block=7).encode(jax.random.key(0), x, ())
        assert int(jnp.abs(message.payload).max()) <= 2 ** (bits - 1) - 1
        assert message.side[0].shape == (8,)
    message, _ = top_k(0.1).encode(jax.random.key(0), x, top_k(0.1).memory(50))
    assert message.payload.shape == (5,)
    assert int(message.side[0].max()) < 50


def test_chains_state_what_their_stages_do():
    both = chain(random_k(0.5), quantized(4))
    assert both.omega(100) == pytest.approx((1 + random_k(0.5).omega(100)) * (1 + quantized(4).omega(50)) - 1)
    assert both.unbiased
    assert not both.linear
    assert chain(clip(1.0), identity()).linear
    assert chain(clip(1.0), clip(5.0)).bound(math.inf) == chain(clip(5.0), clip(1.0)).bound(math.inf) == 1.0
    assert not chain(clip(1.0), quantized(8)).unbiased
    assert chain(top_k(0.1), quantized(8)).remembers
    assert chain(lossy(0.5), lossy(0.2)).arrives == pytest.approx(0.4)


def test_clipping_shortens_long_vectors_alone():
    key, x = jax.random.key(0), jnp.array([3.0, -4.0])
    np.testing.assert_allclose(clip(1.0).apply(key, x), [0.6, -0.8], rtol=1e-6)
    np.testing.assert_array_equal(clip(6.0).apply(key, x), x)
    np.testing.assert_allclose(jnp.linalg.norm(clip(2.0).apply(key, jnp.array([1e30, 1e30]))), 2.0, rtol=1e-6)
    assert clip(1.0).apply(key, jnp.zeros(2)).tolist() == [0, 0]


def test_linear_stages_can_be_summed_before_they_are_decoded():
    """What `linear` promises: the decoded sum of payloads is the sum of what arrives."""
    stage, keys = chain(clip(1.0), identity()), jax.random.split(jax.random.key(0), 3)
    vectors = jnp.asarray(np.random.default_rng(0).normal(size=(3, 6)), jnp.float32)
    payloads = [stage.encode(key, x, stage.memory(6))[0] for key, x in zip(keys, vectors, strict=True)]
    total = payloads[0]._replace(payload=sum(p.payload for p in payloads))
    apart = sum(stage.apply(key, x, stage.memory(6)) for key, x in zip(keys, vectors, strict=True))
    np.testing.assert_allclose(stage.decode(total, 6), apart, rtol=1e-6)


def test_what_error_feedback_leaves_out_comes_later():
    """Sent and remembered parts always add up to all that was to be sent."""
    stage, x = top_k(0.2), jnp.asarray(np.random.default_rng(0).normal(size=10), jnp.float32)
    memory, arrived = stage.memory(10), jnp.zeros(10)
    for k in range(1, 8):
        message, memory = stage.encode(jax.random.key(k), x, memory)
        arrived = arrived + stage.decode(message, 10)
        np.testing.assert_allclose(arrived + memory[0], k * x, rtol=1e-5, atol=1e-5)


def test_a_lost_message_leaves_control_variates_and_error_memories_right():
    """V = Σ μ_i V_i after every round, whoever was heard; a memory changes only where a message arrived."""
    options = {"rounds": 6, "evaluation": mj.Evaluation(every=1, diagnostics=True)}
    half = mj.participation.bernoulli(0.7)
    lost = chain(quantized(8), lossy(0.4))
    run = mj.simulate(zoo.algorithm("fedmm"), zoo.training(), channel=lost, participation=half, **options)
    assert all(line["variates_apart"] < 1e-5 for line in run.history)
    assert float(run.server.terms.inclusion) == pytest.approx(0.7 * 0.6)
    seen = []
    record = lambda lines, snapshot: seen.append(snapshot())
    options = {
        "channel": chain(top_k(0.2), lossy(0.5)),
        "evaluation": mj.Evaluation(report=record, every=1),
        "rounds": 5,
    }
    mj.simulate(zoo.algorithm("fedavg"), zoo.training(), **options)
    same = lambda one, two: (one == two).reshape(*one.shape[:2], -1).all(axis=(0, 2))  # of each client
    kept = []
    for before, after in itertools.pairwise(seen):
        states = [jax.tree.leaves(snapshot.clients)[0] for snapshot in (before, after)]
        errors = [jax.tree.leaves(snapshot.memory)[0] for snapshot in (before, after)]
        np.testing.assert_array_equal(same(*states), same(*errors))
        kept.append(same(*errors))
    assert np.any(kept)
    assert not np.all(kept)


@pytest.fixture(scope="module")
def problem():
    data = mj.data.heterogeneous_logistic(clients=8, samples=60, dimension=10, sigma=0.3)
    return data, mj.fedavg(mj.models.linear(data), local=mj.local_sgd(0.3, batch_size=None))


def test_the_identity_changes_nothing_and_bytes_are_those_of_the_bits(problem):
    data, plain = problem
    runs = [mj.simulate(plain, data, rounds=5, channel=a) for a in (None, identity())]
    for one, two in zip(*(jax.tree.leaves(run.snapshot.server.value) for run in runs), strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-6)
    assert runs[0].communication == runs[1].communication
    packed = mj.simulate(plain, data, rounds=5, channel=quantized(4))
    beside = 8  # a weight and a loss for the log
    assert packed.communication[0]["bytes_up"] == 5 * 8 * (-(-(4 * 11 + 32) // 8) + beside)
    assert runs[0].communication[0]["bytes_up"] == 5 * 8 * (4 * 11 + beside)
    assert packed.communication[0]["bytes_down"] == runs[0].communication[0]["bytes_down"]


@pytest.mark.parametrize("channel", [quantized(3), top_k(0.1), chain(top_k(0.3), quantized(8))], ids=lambda c: c.name)
def test_compressed_training_still_comes_to_the_optimum(problem, channel):
    """Full batches, all clients: without compression it is gradient descent, and displacements vanish in the end."""
    data, plain = problem
    far = mj.simulate(plain, data, rounds=1, evaluation=mj.Evaluation(diagnostics=True)).history[-1]["gradient_squared"]
    run = mj.simulate(plain, data, channel=channel, rounds=600, evaluation=mj.Evaluation(diagnostics=True, every=600))
    assert run.history[-1]["gradient_squared"] < 0.01 * far
    assert run.model(0).predict_proba(data.test.client(0)[0]).shape == (200, 2)


def test_mixtures_and_gradients_are_compressed_too(problem):
    data, _ = problem
    em = mj.fedem(mj.models.linear(data), components=2)
    objective = mj.objectives.mixture(data, lambda_=1.0, l2=0.1)
    acd = mj.methods.acd(objective)
    for method, numbers, beside in ((em, 22, 8), (acd, 11, 4)):
        run = mj.simulate(method, data, rounds=3, channel=quantized(8))
        assert run.communication[0]["bytes_up"] == 3 * 8 * (numbers + 4 + beside)
        assert np.isfinite(run.history[-1]["train_loss"])


def test_what_cannot_work_is_refused(problem):
    data, plain = problem
    with pytest.raises(ValueError, match="more noise than there is signal"):
        mj.simulate(plain, data, rounds=1, channel=error_feedback(random_k(0.1)))
    with pytest.raises(ValueError, match="expected a channel"):
        mj.simulate(plain, data, rounds=1, channel="quantized:8")
    with pytest.raises(ValueError, match="made of stages"):
        chain(quantized(8), "lossy")
    with pytest.raises(ValueError, match="remembers"):
        sometimes(0.5, top_k(0.1))
    with pytest.raises(ValueError, match="put it first"):
        chain(random_k(0.5), top_k(0.5))
    assert chain(clip(1.0), top_k(0.5)).remembers
    with pytest.raises(ValueError, match="radius must be"):
        clip(0.0)
    with pytest.raises(ValueError, match="probability must be"):
        lossy(1.0)
    with pytest.raises(ValueError, match="bits must be"):
        quantized(1)
    with pytest.raises(ValueError, match="block must be"):
        quantized(8, block=0)
    with pytest.raises(ValueError, match="norm must be"):
        quantized(8, norm="l1")
    with pytest.raises(ValueError, match="share must be"):
        random_k(0.0)


def test_a_channel_hides_nothing_that_is_not_finite():
    """One coordinate in five travels: an upload with a NaN in another one is rejected all the same."""
    hole = lambda p: p + np.where(np.arange(p.size) == 0, np.nan, 0).reshape(p.shape)
    spoil = lambda params, x, y, weights: jax.tree.map(hole, params)
    algorithm = mj.fedavg(zoo.model(), local=mj.solvers.local_function(spoil))
    for stage in (random_k(0.2), natural()):
        with pytest.raises(RuntimeError, match="diverged"):
            mj.simulate(algorithm, zoo.training(), rounds=2, channel=stage, evaluation=mj.Evaluation(every=1))


def test_control_variates_of_solvers_do_not_add_up_a_channels_errors():
    """The server's ∇_w F(v) is the mean of what clients believe it has, whatever the channel did to it."""
    data = mj.data.heterogeneous_logistic(clients=4, samples=20, dimension=3)
    algorithm = mj.methods.svrcd(mj.objectives.mixture(data, lambda_=1.0, l2=0.1), rho=0.3)
    run = mj.simulate(algorithm, data, rounds=40, channel=quantized(4))
    believed = jax.tree.map(lambda v: v[0].mean(axis=0), run.snapshot.clients.believed)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5), believed, run.server.value.gradient)
    exact = jax.tree.map(lambda v: v[0].mean(axis=0), run.snapshot.clients.gradient.w)
    far = max(jax.tree.leaves(jax.tree.map(lambda a, b: float(np.abs(a - b).max()), believed, exact)))
    assert 0 < far < 0.1  # the errors of one message each, not of all so far
