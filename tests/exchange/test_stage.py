"""Sending through a channel: every client, round and stage has random numbers of its own."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import majorant as mj
import zoo
from majorant.exchange import adaptive_clip, chain, gaussian
from majorant.exchange._stage import Encoded, Stage
from majorant.exchange.channel import random_k


def test_clients_with_the_same_displacement_keep_other_places():
    rng = np.random.default_rng(0)
    twins = zoo.federated([zoo.sample(rng, 12, np.ones(30))] * 6)
    algorithm = mj.fedavg(mj.models.linear(twins), local=mj.local_sgd(0.5, steps=1, batch_size=None))
    seen = []
    record = lambda _, snapshot: seen.append(snapshot())
    start = lambda fresh: seen.append(fresh) or fresh
    options = {
        "channel": random_k(0.1),
        "rounds": 2,
        "evaluation": mj.Evaluation(every=1, report=record),
        "resume": start,
    }
    mj.simulate(algorithm, twins, **options)
    first, second, third = (snapshot.server.value[0]["weight"].ravel() for snapshot in seen)
    by_more_than_rounding = lambda a, b: np.flatnonzero(abs(a - b) > 1e-5)  # a mean of equal numbers may round
    moved = [set(by_more_than_rounding(a, b).tolist()) for a, b in ((first, second), (second, third))]
    assert min(map(len, moved)) > 3  # 3 of 31 numbers are kept by each client
    assert moved[0] != moved[1]


def test_the_stages_of_a_chain_draw_from_keys_of_their_own():
    noise = Stage(
        "noise",
        lambda key, x, memory: (Encoded(x + jax.random.normal(key, x.shape)), ()),
        lambda message, length: message.payload,
        lambda length: 1.0,
    )
    again = noise._replace(name="again")
    arrived = chain(noise, again).apply(jax.random.key(0), jnp.zeros(1000), ((), ()))
    assert 1.2 < float(jnp.std(arrived)) < 1.6  # √2, and 2 where both add the same


def test_the_server_takes_the_last_stage_of_a_chain_off_first():
    """Noise is added to what clients send, their answers to the radius included, before it is scaled back."""
    channel = chain(adaptive_clip(start=4.0), gaussian(1.5))
    total, (radius, _) = channel.server.collect(
        jax.random.key(0), jnp.zeros(2001), channel.server.news(), jnp.asarray(100.0)
    )
    assert total.shape == (2000,)
    assert float(jnp.std(total)) == pytest.approx(4 * channel.noise.multiplier * channel.noise.bound, rel=0.05)
    assert float(radius) != 4.0  # half of the clients would be shorter, without noise
