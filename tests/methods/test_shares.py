"""What FedEM does with the shares of its components: averages by responsibilities, and components that are dropped."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import majorant as mj
import zoo
from compiling import quickly
from majorant.core import ClientData, Server, Uploads
from majorant.methods._shares import Components, check_average, moved_by_own, own_weights, remaining

DATA = zoo.training()
MODEL = mj.models.linear(DATA)


def one_client() -> ClientData:
    """The first client's samples."""
    n = int(DATA.train.sizes[0])
    return ClientData(jnp.asarray(DATA.train.x[:n]), jnp.asarray(DATA.train.y[:n]), jnp.int32(n), jnp.int32(0))


def test_clients_of_one_component_each_take_it_to_their_own_mean():
    rng = np.random.default_rng(0)
    sizes, owner = np.array([3.0, 1.0, 4.0, 2.0]), np.array([0, 0, 1, 1])
    theta = rng.normal(size=(2, 5))
    own = rng.normal(size=(4, 5))
    sent = np.where((owner[:, None] == np.arange(2))[..., None], own[:, None], theta)  # others leave it as it is
    mean, share = np.average(sent, axis=0, weights=sizes), np.bincount(owner, sizes) / sizes.sum()
    moved = moved_by_own(MODEL, jnp.asarray(theta), jnp.asarray(mean), jnp.asarray(share))
    for m in range(2):
        members = owner == m
        np.testing.assert_allclose(moved[m], np.average(own[members], axis=0, weights=sizes[members]), rtol=1e-5)


def test_statistics_are_averaged_as_they_are():
    model = MODEL._replace(statistics="statistics")
    old = {"statistics": jnp.ones((2, 3)), "weights": jnp.ones((2, 3))}
    new = {"statistics": jnp.full((2, 3), 2.0), "weights": jnp.full((2, 3), 2.0)}
    moved = moved_by_own(model, old, new, jnp.array([0.5, 0.25]))
    np.testing.assert_allclose(moved["statistics"], 2)
    np.testing.assert_allclose(moved["weights"], [[3] * 3, [5] * 3])


def test_what_was_dropped_stays_dropped_and_one_component_is_always_left():
    before = jnp.array([0.5, 0.5, 0.0])
    np.testing.assert_allclose(remaining(jnp.array([0.5, 0.2, 0.3]), before, 0.1), [5 / 7, 2 / 7, 0], rtol=1e-6)
    np.testing.assert_allclose(remaining(jnp.array([0.02, 0.01, 0.97]), before, 0.1), [1, 0, 0], rtol=1e-6)


def test_a_client_whose_components_are_all_gone_takes_the_shares():
    np.testing.assert_allclose(own_weights(jnp.array([0.0, 0.0, 1.0]), jnp.array([0.25, 0.75, 0.0])), [0.25, 0.75, 0])


def test_a_dropped_component_gets_no_weight_and_is_not_trained():
    algorithm = mj.fedem(MODEL, components=3, prune=0.2, local=zoo.solver())
    key = jax.random.key(0)
    one = one_client()

    @quickly
    def followed(key):
        server = algorithm.server.init(key)
        server = algorithm.server.update(server, None, untouched(server, [0.5, 0.45, 0.05]))
        view = algorithm.server.broadcast(server, key)
        state = algorithm.client.init(view, one, key)
        models = algorithm.deployment.personalize(view, state, one, key), algorithm.join(view, one, key)
        return server, view, algorithm.client.update(view, state, one, key), [model.pi for model in models]

    server, view, (upload, after), weights = followed(key)
    np.testing.assert_allclose(server.value.share, [0.5 / 0.95, 0.45 / 0.95, 0], rtol=1e-5)
    assert after.pi[2] == 0
    np.testing.assert_array_equal(upload.value.share, after.pi)  # those of this round
    assert not np.allclose(after.pi, weights[0])
    assert [pi[2] for pi in weights] == [0, 0]
    moved = jax.tree.map(
        lambda new, old: np.abs(np.asarray(new) - old).reshape(3, -1).max(axis=1), upload.value.theta, view.value.theta
    )
    largest = np.max(jax.tree.leaves(moved), axis=0)
    assert largest[2] == 0 < largest[:2].min()
    assert float(algorithm.diagnostics.log(server)["components"]) == 2


def test_components_move_by_their_share_of_all_samples_and_what_is_dropped_never_comes_back():
    algorithm = mj.fedem(MODEL, components=3, average="responsibilities", prune=0.2, local=zoo.solver())
    server = algorithm.server.init(jax.random.key(0))
    one_further = lambda server: jax.tree.map(lambda leaf: leaf + 1, server.value.theta)
    sent = lambda server, share: Uploads(Components(one_further(server), jnp.asarray(share)), jnp.ones(()))
    once = algorithm.server.update(server, None, sent(server, [0.5, 0.45, 0.05]))
    for m, share in ((0, 0.5), (1, 0.45)):
        moved = jax.tree.map(lambda new, old, m=m: new[m] - old[m], once.value.theta, server.value.theta)
        assert all(np.allclose(leaf, 1 / share, rtol=1e-5) for leaf in jax.tree.leaves(moved))
    twice = algorithm.server.update(once, None, sent(once, [0.4, 0.3, 0.3]))
    np.testing.assert_allclose(twice.value.share, [4 / 7, 3 / 7, 0], rtol=1e-6)


def untouched(server: Server, share) -> Uploads:
    """The sum of uploads that leave the components as they are and have these shares."""
    return Uploads(Components(server.value.theta, jnp.asarray(share)), jnp.ones(()))


def test_random_starts_differ_between_clients_and_are_weights():
    algorithm = mj.fedem(MODEL, components=3, start="random")
    view = algorithm.server.broadcast(algorithm.server.init(jax.random.key(0)), jax.random.key(0))
    one = one_client()
    pis = [algorithm.client.init(view, one, jax.random.key(i)).pi for i in range(2)]
    np.testing.assert_allclose([pi.sum() for pi in pis], 1, rtol=1e-5)
    assert not np.allclose(pis[0], pis[1])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"prune": 0.4}, "prune"),
        ({"prune": 0.0}, "prune"),
        ({"average": "mean"}, "'samples' or 'responsibilities'"),
        ({"start": "kmeans"}, "'uniform' or 'random'"),
        ({"prune": 0.1, "absent": "hold"}, "leave out prune and average"),
    ],
)
def test_options_that_make_no_sense_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        mj.fedem(MODEL, components=3, **options)


def test_peers_are_refused_and_so_are_statistics_that_nobody_named():
    algorithm = mj.fedem(MODEL, components=3, prune=0.1)
    with pytest.raises(ValueError, match="points"):
        mj.simulate(algorithm, DATA, rounds=1, exchange=mj.gossip(mj.topology.ring()))
    unnamed = MODEL._replace(train_apply=lambda params, x, draw: (MODEL.apply(params, x), params))
    with pytest.raises(ValueError, match="refreshes itself"):
        mj.fedem(unnamed, average="responsibilities")


def test_responsibilities_average_no_statistics_that_nobody_has_named():
    refreshing = MODEL._replace(train_apply=lambda params, x, draw: (MODEL.apply(params, x), params))
    with pytest.raises(ValueError, match="must know which parameters"):
        check_average("responsibilities", refreshing._replace(statistics=None))
    check_average("responsibilities", refreshing._replace(statistics="statistics"))
    check_average("samples", refreshing._replace(statistics=None))
