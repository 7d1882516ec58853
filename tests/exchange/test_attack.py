"""Attacks: what hostile clients send, that the honest ones' uploads stay as they are, and what is said of a run."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import majorant as mj
import zoo
from majorant.core import SERVER_STREAM, Upload, Uploads, View, round_key, stream_key
from majorant.engines import forging
from majorant.engines.poisoning import poisoned
from majorant.exchange import attack, robust
from majorant.exchange.attack import Seen
from majorant.exchange.federation import federation
from majorant.exchange.participation import Participation
from majorant.exchange.star import star

KEY = jax.random.key(1)
N = 8
X = np.random.default_rng(0).normal(size=(N, 6)).astype(np.float32)
HEARD = np.arange(N) != 3
HOSTILE = np.isin(np.arange(N), (0, 5))
SEEN = Seen({"w": jnp.asarray(X)}, jnp.asarray(HEARD & ~HOSTILE), jnp.asarray(HEARD & HOSTILE))
HONEST = X[HEARD & ~HOSTILE]


def sent(kind):
    """What a hostile client sends in place of its own displacement."""
    return np.asarray(kind.forge(KEY, SEEN)["w"])[0]


def test_attacks_send_what_they_say():
    np.testing.assert_allclose(sent(attack.sign_flip(0.2, scale=2.0)), -2 * X[0], rtol=1e-6)
    np.testing.assert_allclose(sent(attack.scaling(0.2)), 10 * X[0], rtol=1e-6)
    np.testing.assert_allclose(sent(attack.inner_product(0.2, scale=0.5)), -0.5 * HONEST.mean(axis=0), rtol=1e-5)
    assert np.isnan(sent(attack.not_a_number(0.2))).all()
    np.testing.assert_array_equal(sent(attack.huge(0.2)), np.where(X[0] > 0, -1e15, 1e15).astype(np.float32))
    # so that the mean of all seven becomes the hostile model, where two send the same: 7/2 of it each
    np.testing.assert_allclose(sent(attack.model_replacement(0.2)), 3.5 * X[0], rtol=1e-6)
    noisy = np.asarray(attack.noise(0.2, scale=3.0).forge(KEY, SEEN)["w"])
    length = np.linalg.norm(noisy - X, axis=1) / np.linalg.norm(X, axis=1)
    assert 1.5 < length.mean() < 5  # three times the displacement's, on average
    twice = attack.noise(0.2).forge(KEY, SEEN._replace(moved={"v": jnp.asarray(X), "w": jnp.asarray(X)}))
    assert (np.asarray(twice["v"]) != np.asarray(twice["w"])).all()  # each array has noise of its own


def test_a_little_is_enough_hides_among_the_honest():
    """z by SciPy: with 7 heard, 2 hostile need 4 − 2 = 2 of 5 honest clients further out."""
    z = stats.norm.ppf((5 - 2) / 5)
    expected = HONEST.mean(axis=0) - z * HONEST.std(axis=0)
    np.testing.assert_allclose(sent(attack.alie(0.2)), expected, rtol=1e-4)
    np.testing.assert_allclose(sent(attack.alie(0.2, z=1.0)), HONEST.mean(axis=0) - HONEST.std(axis=0), rtol=1e-4)
    both = np.asarray(attack.alie(0.2).forge(KEY, SEEN)["w"])
    np.testing.assert_array_equal(both[0], both[5])


def test_hostile_clients_are_drawn_by_the_attack_alone():
    among = lambda seed: attack.sign_flip(0.3, seed=seed).among(np.arange(10, 30)).slots
    assert among(0) == among(0)
    assert len(among(0)) == 6
    assert len({among(seed) for seed in range(5)}) > 1
    assert set(among(0)) <= set(range(10, 30))
    assert len(attack.sign_flip(0.01).among(np.arange(20)).slots) == 1


def test_labels_are_turned_around_for_hostile_clients_alone():
    data = zoo.training()
    hostile = attack.label_flip(0.4).among(np.arange(data.clients))
    turned = poisoned(hostile, data)
    for t in range(data.clients):
        x, y = data.train.client(t)
        same, other = turned.train.client(t)
        np.testing.assert_array_equal(x, same)
        np.testing.assert_array_equal(other, 1 - y if t in hostile.slots else y)
    assert poisoned(attack.sign_flip(0.4).among(np.arange(5)), data) is data


def test_targets_are_mirrored_at_the_mean_of_their_own_client():
    data = zoo.federated(
        [(np.ones((2, 1)), np.array([1.0, 3.0])), (np.ones((2, 1)), np.array([10.0, 30.0]))], classes=0
    )
    hostile = attack.label_flip(0.5).among(np.arange(2))
    mirrored = poisoned(hostile, data).train
    (slot,) = hostile.slots
    np.testing.assert_allclose(mirrored.client(slot)[1], data.train.client(slot)[1][::-1], rtol=1e-6)
    np.testing.assert_array_equal(mirrored.client(1 - slot)[1], data.train.client(1 - slot)[1])


DATA = zoo.federated([zoo.sample(np.random.default_rng(t), 10, np.array([1.0, -1.0, 0.5])) for t in range(6)])
FEDAVG = mj.fedavg(mj.models.linear(DATA), local=mj.local_sgd(0.5, steps=1, batch_size=None))


@pytest.fixture(scope="module")
def runs():
    """FedAvg of one exact step, under some attacks: two programs for each."""
    options = {"rounds": 3}
    kinds = {
        "none": {},
        "nan": {"attack": attack.not_a_number(0.34)},
        "huge": {"attack": attack.huge(0.34)},
        "huge, median": {"attack": attack.huge(0.34), "exchange": star(robust.median())},
        "stale": {"attack": attack.stale(0.34, delay=2)},
    }
    return {name: mj.simulate(FEDAVG, DATA, **options, **more) for name, more in kinds.items()}


def test_nan_is_rejected_by_the_server_and_the_rest_is_averaged(runs):
    """A run in which hostile clients send NaN is the run of the honest ones alone."""
    run = runs["nan"]
    hostile = run.federation.hostile.slots
    keep = [t for t in range(6) if t not in hostile]
    alone = mj.simulate(FEDAVG, zoo.federated([DATA.train.client(t) for t in keep]), rounds=3)
    for one, two in zip(jax.tree.leaves(run.server.value), jax.tree.leaves(alone.server.value), strict=True):
        np.testing.assert_allclose(one, two, atol=1e-5)
    assert run.history[-1]["loss"] == pytest.approx(alone.history[-1]["loss"], rel=1e-5)
    assert run.summary()["rejected"] == 3 * len(hostile) == 6


def test_hostile_clients_that_are_away_are_not_rejected():
    uploads = Uploads({"w": jnp.asarray(X)}, jnp.where(HEARD, 1.0, 0.0))
    kind = attack.not_a_number(0.4)
    here = federation(mj.fedavg(mj.models.linear(DATA)), training=np.arange(N), attack=kind, exchange=star())
    away = ~here.hostile.mask(N)
    view = View({"w": jnp.zeros(X.shape[1])}, {}, 0, 1)
    _, heard, refused = forging.forged(here, view, KEY, uploads, jnp.asarray(away), here.hostile)
    assert int(refused) == 0
    assert heard.tolist() == away.tolist()


def test_huge_numbers_pass_the_mean_and_not_the_median(runs):
    size = lambda run: max(float(np.abs(leaf).max()) for leaf in jax.tree.leaves(run.server.value))
    assert size(runs["huge"]) > 1e12
    assert size(runs["huge, median"]) < 2 * size(runs["none"])


def test_scores_are_those_of_honest_clients_and_the_summary_says_who_is_not(runs):
    run = runs["huge, median"]
    names, hostile = run.summary()["attack"]["hostile"], run.federation.hostile
    assert names == [DATA.names[slot] for slot in hostile.slots]
    assert run.summary()["attack"]["scores_of"] == "honest clients"
    assert run.clients["hostile"].tolist() == hostile.mask(6).astype(int).tolist()
    own = run.clients["test_accuracy"][~hostile.mask(6)]
    np.testing.assert_allclose(run.summary()["test_accuracy"]["mean"], own.mean(), atol=1e-6)  # clients of equal size
    assert run.summary()["algorithm"] == "fedavg, median, under huge:0.34"
    assert "under attack" in str(run.summary())
    assert "attack" not in runs["none"].summary()


def test_stragglers_send_what_they_had_some_rounds_ago(runs):
    """In the first two rounds that is the starting point: the mean moves by the honest share of the step only."""
    late = mj.simulate(FEDAVG, DATA, rounds=1, attack=attack.stale(0.34, delay=2))
    key = stream_key(round_key(jax.random.key(0), 0), SERVER_STREAM)
    start = jax.tree.leaves(FEDAVG.server.init(key).value)
    assert not np.allclose(
        jax.tree.leaves(runs["stale"].server.value)[0], jax.tree.leaves(runs["none"].server.value)[0]
    )
    hostile = late.federation.hostile.mask(6)
    honest = zoo.federated([DATA.train.client(t) for t in np.flatnonzero(~hostile)])
    alone = mj.simulate(FEDAVG, honest, rounds=1)
    for s, a, b in zip(start, *(jax.tree.leaves(run.server.value) for run in (late, alone)), strict=True):
        np.testing.assert_allclose(a - s, (b - s) * (1 - hostile.mean()), atol=1e-5)


def test_a_straggler_sends_the_oldest_of_the_uploads_that_it_still_has_to_send():
    late, own = jnp.arange(3.0)[:, None], Upload(jnp.array([9.0]), jnp.float32(1))
    hostile = attack.stale(0.34, delay=3).among(np.arange(6))
    sent, kept = forging.delayed(hostile, own, late, jnp.int32(hostile.slots[0]))
    assert sent.value.tolist() == [0.0]
    assert kept.ravel().tolist() == [1.0, 2.0, 9.0]
    honest = min(set(range(6)) - set(hostile.slots))
    assert forging.delayed(hostile, own, late, jnp.int32(honest))[0].value.tolist() == [9.0]


@pytest.mark.parametrize("rule", ["median", "gossip"])
def test_a_rejected_upload_is_one_of_somebody_who_is_away(rule):
    """Not one of somebody who did not move, nor who stands at zero: neither for a rule, nor for peers.

    For a rule who is away is not there at all; a peer that is away keeps its place.
    """
    kind = attack.not_a_number(0.34)
    exchange = star(robust.median()) if rule == "median" else mj.gossip(mj.topology.ring())
    run = mj.simulate(FEDAVG, DATA, rounds=2, attack=kind, exchange=exchange)
    hostile = run.federation.hostile.mask(6)
    rest = Participation("rest", lambda key, round, n: jnp.asarray(~hostile), lambda n: 1.0)
    runs = [run, mj.simulate(FEDAVG, DATA, rounds=2, participation=rest, exchange=exchange)]
    if rule == "median":
        alone = zoo.federated([DATA.train.client(t) for t in np.flatnonzero(~hostile)])
        runs.append(mj.simulate(FEDAVG, alone, rounds=2, exchange=exchange))
    first, *others = ([np.asarray(leaf) for leaf in jax.tree.leaves(found.server.value)] for found in runs)
    for other in others:
        for one, two in zip(first, other, strict=True):
            np.testing.assert_allclose(one, two, atol=1e-5)


def test_hostile_peers_are_found_by_their_slots_where_some_clients_are_unseen():
    unseen = np.array([True, False, False, True, False, False])
    data = replace(DATA, unseen=unseen)
    run = mj.simulate(FEDAVG, data, rounds=1, attack=attack.huge(0.25), exchange=mj.gossip(mj.topology.ring()))
    (slot,) = run.federation.hostile.slots
    assert not unseen[slot]
    training = np.flatnonzero(~unseen)
    row = training.tolist().index(slot)
    size = np.abs(np.asarray(jax.tree.leaves(run.server.value)[0]).reshape(4, -1)).max(axis=1)
    opposite = (row + 2) % 4  # on a ring of four, the only node that does not hear it
    assert size[opposite] < 1e3
    assert (np.delete(size, opposite) > 1e9).all()


def test_what_a_rule_does_not_bear_is_warned_of_or_refused():
    among = {"training": np.arange(10), "exchange": star(robust.trimmed_mean(0.2))}
    third = mj.participation.uniform(0.3)
    with pytest.warns(UserWarning, match="bears 0 hostile clients among 3, and sign-flip:0.4 has 1"):
        federation(FEDAVG, attack=attack.sign_flip(0.4), participation=third, **among)
    with pytest.warns(UserWarning, match="trimmed-mean:0.2 bears 2 hostile clients among 10, and sign-flip:0.3 has 3"):
        federation(FEDAVG, attack=attack.sign_flip(0.3), **among)
    with pytest.raises(ValueError, match="bears 2 hostile clients"):
        federation(FEDAVG, attack=attack.sign_flip(0.3, strict=True), **among)
    federation(FEDAVG, attack=attack.sign_flip(0.2), **among)  # warnings are errors here
    with pytest.raises(ValueError, match="under a secure sum"):
        federation(FEDAVG, training=np.arange(10), attack=attack.alie(), channel=mj.channel.secure_sum(1.0))
    with pytest.raises(ValueError, match="all of 2 clients would be hostile"):
        federation(FEDAVG, training=np.arange(2), attack=attack.sign_flip(0.5)._replace(share=1.0))
    for share in (0.0, 1.0, -0.1):
        with pytest.raises(ValueError, match=r"must be in \(0, 1\)"):
            attack.sign_flip(share)
