"""Attacks on a whole round: what they show of ε is below the accountant's for this code, above it for broken code."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import majorant as mj
from majorant.core import Algorithm, ClientData, ClientSide, Deployment, Server, ServerSide, Upload
from majorant.core.compilation import jit
from majorant.engines import rounds, set_up, turns
from majorant.engines.client_part import Held
from majorant.engines.messages import message_shapes
from majorant.engines.tally import empty_tally
from majorant.exchange import adaptive_clip, chain, federation, gaussian, skellam
from majorant.exchange.secure_sum import secure_sum
from majorant.metrics.audit import one_run, two_worlds

DRAWS, CLIENTS, DELTA = 20_000, 4, 0.01
VICTIM = 0  # its displacement is a million times longer than what is allowed
ALONE = Algorithm(
    "sender",
    ServerSide(lambda key: Server(jnp.zeros(2), {})),
    ClientSide(lambda view, state, data, key: (Upload(view.value + data.x[0], data.size.astype(float)), ())),
    Deployment(lambda view, state, data, key: view.value, lambda model, x: x[:, 0]),
)


def together(channel, participation=None):
    return federation(ALONE, training=np.arange(CLIENTS), channel=channel, participation=participation)


def released(found, sent, keys, there=True):
    """What a round releases, from what clients would send ``(clients, d)``; and what clients are told in the next."""
    return one_round(found)(keys, sent, there)


@functools.cache
def one_round(found):
    """One program for both worlds of an attack, with and without the victim."""

    def one(key, sent, there):
        clients, length = sent.shape
        places = jnp.arange(clients)
        sizes = 1 + 9 * (places == VICTIM)  # it has more samples than the others: its weight must not be larger
        data = ClientData(sent[:, None], jnp.zeros((clients, 1)), sizes, places, places)
        server = set_up.start_server(found, clients, key, {}, jnp.int32(1))
        view, own = rounds.begin_round(found, server, key)
        active = turns.who_takes_part(found, server, key, clients) & ((places != VICTIM) | there)
        held = Held((), jax.tree.map(lambda a: jnp.stack([a] * clients), found.channel.memory(length)))
        sums, _, _ = rounds.chunk_pass(found, view, own, held, data, active)
        tally = empty_tally(message_shapes(found, jax.tree.map(lambda a: a[0], data)))
        after = rounds.end_round(found, server, view, own, sums, None, tally)[0]
        return found.expected * after.value, after.channel

    return jit(jax.vmap(one, in_axes=(0, None, None)))


def attacked(found, read=lambda value, news: value[:, 0]):
    """What the attack shows of ε: the victim goes to the right as far as it can, and all others stay where they are."""
    sent = np.zeros((CLIENTS, 2), np.float32)
    worlds = []
    for seed, there in enumerate((True, False)):
        sent[VICTIM] = (1e6, 0.0)
        keys = jax.random.split(jax.random.key(seed), DRAWS)
        worlds.append(np.asarray(read(*released(found, jnp.asarray(sent), keys, there)), np.float64))
    return two_worlds(*worlds, delta=DELTA)


RIGHT = chain(mj.channel.clip(1.0), gaussian(1.0))
CLAIMED = together(RIGHT).guarantee._replace(delta=DELTA).epsilon(1)


def test_an_attack_on_a_round_finds_no_more_than_the_accountant_says_and_nearly_as_much():
    found = attacked(together(RIGHT))
    assert 0.75 * CLAIMED < found < CLAIMED


def test_an_attack_on_a_poisson_sample_of_clients_finds_less():
    half = together(RIGHT, mj.participation.bernoulli(0.5))
    claimed = half.guarantee._replace(delta=DELTA).epsilon(1)
    assert 0.5 * claimed < attacked(half) < claimed < CLAIMED


def test_noise_at_the_client_hides_it_from_the_server_too():
    found = together(chain(mj.channel.clip(1.0), gaussian(1.0, at="client")))
    one_message = attacked(
        found._replace(expected=1.0)
    )  # all others send noise as well, which hides the victim further
    assert one_message < CLAIMED < found.guarantee._replace(delta=DELTA).epsilon(1)  # two messages can be 2C apart


def told_apart(found, clients=CLIENTS):
    """What the attack shows of ε where the victim goes to the right, or to the left in its place."""
    found, worlds = found._replace(expected=1.0), []
    for seed, way in enumerate((1e6, -1e6)):
        sent = np.zeros((clients, 2), np.float32)
        sent[VICTIM] = (way, 0.0)
        value, _ = released(found, jnp.asarray(sent), jax.random.split(jax.random.key(seed), DRAWS))
        worlds.append(np.asarray(value[:, 0], np.float64))
    return two_worlds(*worlds, delta=DELTA)


def test_noise_that_clients_draw_together_hides_one_of_them_in_the_sum():
    """As many as a sum needs draw their parts; with a quarter of each part the attack finds more than is claimed."""
    channel = lambda noise: chain(mj.channel.clip(1.0), skellam(noise), secure_sum(1.0, bits=8, threshold=CLIENTS))
    found = together(channel(2.0))
    claimed = found.guarantee._replace(delta=DELTA).epsilon(1)
    assert 0.6 * claimed < told_apart(found) < claimed
    assert told_apart(found._replace(channel=together(channel(1.0)).channel)) > 1.2 * claimed


def test_noise_at_a_client_hides_which_of_two_messages_it_sent():
    found = federation(ALONE, training=np.arange(1), channel=chain(mj.channel.clip(1.0), gaussian(2.0, at="client")))
    claimed = found.guarantee._replace(delta=DELTA).epsilon(1)
    assert claimed == pytest.approx(CLAIMED)  # 2C apart, with twice the noise
    assert 0.75 * claimed < told_apart(found, 1) < claimed
    little = chain(mj.channel.clip(1.0), gaussian(1.0, at="client"))
    assert told_apart(found._replace(channel=little), 1) > 1.2 * claimed


def forgotten(radius):
    """Clipping that does nothing but says that it does."""
    return mj.channel.identity()._replace(name="clip", bound=lambda norm: radius)


def after_noise():
    """The sum is noised first, and each client's message not clipped: the sum is."""
    collect = lambda key, total, news, weight: (
        mj.channel.clip(1.0).apply(key, RIGHT.server.collect(key, total, news, weight)[0]),
        news,
    )
    whole = chain(forgotten(1.0), gaussian(1.0))
    return whole._replace(server=whole.server._replace(collect=collect))


def one_entry_without():
    """Noise on all entries but the first."""
    collect = lambda key, total, news, weight: (
        RIGHT.server.collect(key, total, news, weight)[0].at[0].set(total[0]),
        news,
    )
    return RIGHT._replace(server=RIGHT.server._replace(collect=collect))


WRONG = {
    "noise too small": lambda: together(RIGHT)._replace(channel=chain(mj.channel.clip(1.0), gaussian(0.5))),
    "clipping forgotten": lambda: together(RIGHT)._replace(channel=chain(forgotten(1.0), gaussian(1.0))),
    "clipping after noise": lambda: together(RIGHT)._replace(channel=after_noise()),
    "an entry left out of the noise": lambda: together(RIGHT)._replace(channel=one_entry_without()),
}


@pytest.mark.parametrize("bug", WRONG)
def test_an_attack_finds_more_than_broken_code_claims(bug):
    assert attacked(WRONG[bug]()) > 1.2 * CLAIMED


def test_an_attack_finds_that_everybody_takes_part_where_a_sample_is_claimed():
    claimed = together(RIGHT, mj.participation.bernoulli(0.1)).guarantee._replace(delta=DELTA).epsilon(1)
    turns = together(RIGHT)._replace(expected=0.1 * CLIENTS)
    assert attacked(turns) > 1.5 * claimed


def test_the_count_of_adaptive_clipping_is_a_message_and_is_covered():
    channel = chain(adaptive_clip(0.5, count=2.0), gaussian(1.0))
    radius = lambda value, news: news[0]  # a victim that is longer than the radius makes it grow
    claimed = together(channel).guarantee._replace(delta=DELTA).epsilon(1)
    assert attacked(together(channel), radius) < claimed == pytest.approx(CLAIMED)

    def collect(key, total, news, weight):
        noisy, _ = channel.server.collect(key, total, news, weight)
        return noisy, (channel_without.server.collect(key, total, news[0], weight)[1], news[1])

    channel_without = adaptive_clip(0.5, count=2.0)
    broken = channel._replace(server=channel.server._replace(collect=collect))
    assert attacked(together(channel)._replace(channel=broken), radius) > 1.5 * claimed


def test_one_run_with_many_victims_finds_no_more_than_the_accountant_says_and_more_for_little_noise():
    victims, rng = 400, np.random.default_rng(0)
    sender = ALONE._replace(server=ServerSide(lambda key: Server(jnp.zeros(victims), {})))
    there = rng.random(victims) < 0.5

    def bound(channel):
        found = federation(sender, training=np.arange(victims), channel=RIGHT)._replace(channel=channel)
        sent = jnp.asarray(np.diag(1e6 * there), jnp.float32)
        value = np.asarray(released(found, sent, jax.random.split(jax.random.key(0), 1))[0][0])
        certain = np.argsort(-np.abs(value - 0.5))[:60]
        return one_run(int(((value > 0.5) == there)[certain].sum()), 60, victims, delta=1e-5)

    claimed = federation(sender, training=np.arange(victims), channel=RIGHT).guarantee._replace(delta=1e-5).epsilon(1)
    assert bound(RIGHT) < claimed
    assert 0 < bound(RIGHT) < bound(chain(mj.channel.clip(1.0), gaussian(0.3)))
