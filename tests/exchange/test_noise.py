"""Noise and adaptive clipping: what travels is bounded, sums are those of what was clipped, draws are independent."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import majorant as mj
import zoo
from majorant.exchange import adaptive_clip, chain, gaussian
from majorant.exchange.federation import federation

KEY = jax.random.key(0)


@pytest.mark.parametrize("radius", [0.1, 3.0])
def test_what_adaptive_clipping_sends_is_as_long_as_its_bound_at_most(radius):
    """Of displacements shorter, longer and just as long as the radius: half of s for the answer, beside length 1."""
    stage = adaptive_clip(start=radius, count=1.5)
    for length in (0.0, 0.5, 1 - 1e-6, 1.0, 1.5, 1e9):
        x = jnp.full(16, radius * length / 4)
        payload = np.asarray(stage.encode(KEY, x, ())[0].payload, np.float64)
        assert np.linalg.norm(payload) <= stage.bound(np.inf) * (1 + 1e-6)
        assert np.linalg.norm(payload[:-1]) == pytest.approx(min(length, 1.0), abs=1e-5)
        assert abs(payload[-1]) == pytest.approx(0.75)
        if length != 1.0:
            assert payload[-1] == pytest.approx(0.75 if length < 1 else -0.75)


def test_the_radius_goes_to_the_quantile_and_sums_are_those_of_what_was_clipped():
    x = np.random.default_rng(0).normal(size=(500, 4)).astype(np.float32)
    lengths = np.linalg.norm(x, axis=1)
    whole = adaptive_clip(0.8, start=30.0, rate=0.5)
    radius, weight = whole.server.news(), jnp.float32(len(x))
    for _ in range(60):
        told = whole.informed(radius)
        sent = jax.vmap(lambda row, told=told: told.encode(KEY, row, ())[0].payload)(x)
        total, after = whole.server.collect(KEY, sent.sum(axis=0), radius, weight)
        clipped = x * np.minimum(1, float(radius) / lengths)[:, None]
        np.testing.assert_allclose(total, clipped.sum(axis=0), rtol=1e-3, atol=1e-3)
        radius = after
    assert float(radius) == pytest.approx(np.quantile(lengths, 0.8), rel=0.02)


@pytest.mark.filterwarnings("ignore:δ = ")
def test_a_noisy_sum_is_divided_by_those_who_take_part_and_whose_messages_arrive():
    channel = chain(mj.channel.lossy(0.25), mj.channel.clip(1.0), gaussian(1.0))
    half = mj.participation.bernoulli(0.5)
    found = federation(mj.fedavg(zoo.model()), training=np.arange(8), participation=half, channel=channel)
    assert found.expected == pytest.approx(8 * 0.5 * 0.75)


@pytest.mark.filterwarnings("ignore:δ = ")
def test_noise_is_another_one_in_every_round_and_of_every_client():
    """Clients that hardly move: what the server does in a round is the noise."""
    data, algorithm = zoo.training(), mj.fedavg(zoo.model(), local=mj.local_sgd(1e-9))
    flat = lambda server: np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(server.value)])
    for stage in (gaussian(1.0), gaussian(1.0, at="client")):
        seen = []
        record = lambda _, snapshot, seen=seen: seen.append(snapshot())
        start = lambda fresh, seen=seen: seen.append(fresh) or fresh
        options = {"rounds": 60, "evaluation": mj.Evaluation(every=1, report=record), "resume": start}
        mj.simulate(algorithm, data, channel=chain(mj.channel.clip(1.0), stage), **options)
        steps = np.diff([flat(snapshot.server) for snapshot in seen], axis=0)  # (60, numbers)
        clients = data.clients
        expected = 1 / clients if stage.server is not None else 1 / np.sqrt(clients)  # of a mean of equal clients
        assert steps.std() == pytest.approx(expected, rel=0.25)
        assert abs(np.corrcoef(steps[:-1].ravel(), steps[1:].ravel())[0, 1]) < 0.3
