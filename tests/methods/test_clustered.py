"""Clustered FL: its bipartition against scikit-learn, and clusters that come apart and then learn alone."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.cluster import AgglomerativeClustering

import majorant as mj
import zoo
from compiling import quickly
from majorant.core import Uploads
from majorant.methods.clustered import bipartition

CLIENTS = 8
SIDE = np.array([0, 1, 0, 0, 1, 1, 0, 1])  # the two populations
UNSEEN = 3
SOLVER = mj.local_sgd(0.5, steps=5, batch_size=None)


def opposite_clients():
    """Two populations of clients with opposite labels; client 3 joins after training."""
    rng, direction = np.random.default_rng(5), np.array([1.0, -1.0, 0.5])
    return zoo.federated([zoo.sample(rng, 40 + t, direction * (1 - 2 * SIDE[t])) for t in range(CLIENTS)], (UNSEEN,))


def groups(labels):
    """A partition as sets of members, whatever their names."""
    return {frozenset(np.flatnonzero(labels == label).tolist()) for label in np.unique(labels)}


def cosine_distances(n, seed=0):
    update = np.random.default_rng(seed).normal(size=(n, 5))
    unit = update / np.linalg.norm(update, axis=1, keepdims=True)
    return (1 - unit @ unit.T).astype(np.float32)


def in_two(distance):
    """scikit-learn's answer."""
    return AgglomerativeClustering(n_clusters=2, metric="precomputed", linkage="complete").fit_predict(distance)


cut = quickly(bipartition)


@pytest.mark.parametrize("n", [3, 4, 7, 20])
def test_the_bipartition_is_complete_linkage(n):
    for seed in range(5):
        distance = cosine_distances(n, seed)
        found = np.asarray(cut(distance, np.zeros(n, int), np.ones(n, bool), np.arange(n) == 0))
        assert groups(found) == groups(in_two(distance))
        assert found[0] == 0
        assert set(found.tolist()) == {0, 1}


def test_several_clusters_split_at_once_and_the_others_stay():
    n = 18
    label = np.random.default_rng(0).permutation(np.repeat([0, 1, 2], 6))
    member = np.ones(n, bool)
    member[[np.flatnonzero(label == 0)[2], np.flatnonzero(label == 1)[0]]] = False  # absent: they stay where they are
    distance = cosine_distances(n)
    found = np.asarray(cut(distance, label, member, np.isin(np.arange(n), [0, 2])))
    assert set(found.tolist()) == {0, 1, 2, 3, 4}
    assert (found[label == 1] == 1).all()
    assert (found[~member] == label[~member]).all()
    for cluster in (0, 2):
        rows = np.flatnonzero((label == cluster) & member)
        assert groups(found[rows]) == groups(in_two(distance[np.ix_(rows, rows)]))
        assert cluster in found[rows]


@pytest.fixture(scope="module")
def split_run():
    data = opposite_clients()
    algorithm = mj.clustered(
        mj.models.linear(data), clients=CLIENTS, local=SOLVER, tolerance_mean=0.3, tolerance_max=0.4
    )
    return data, mj.simulate(algorithm, data, rounds=12, evaluation=mj.Evaluation(every=1))


def test_opposite_populations_come_apart(split_run):
    _, run = split_run
    seen = np.arange(CLIENTS) != UNSEEN
    assert groups(run.server.value.label[seen]) == groups(SIDE[seen])
    assert run.history[0]["train_accuracy"]["mean"] < 0.75 < 0.9 < run.history[-1]["train_accuracy"]["mean"]


def test_each_population_then_learns_alone(split_run):
    """Every cluster's next round is FedAvg's on that cluster's clients."""
    data, run = split_run
    model, server = run.algorithm, jax.tree.map(jnp.asarray, run.server)
    more = mj.simulate(model, data, rounds=13, resume=lambda fresh: run.snapshot)
    for side in (0, 1):
        members = np.flatnonzero((side == SIDE) & (np.arange(CLIENTS) != UNSEEN))
        cluster = int(server.value.label[members[0]])
        theta = jax.tree.map(lambda a, cluster=cluster: a[cluster], server.value.theta)
        from_there = lambda fresh, theta=theta: fresh._replace(
            server=fresh.server._replace(value=jax.tree.map(lambda a: np.asarray(a)[None], theta))
        )
        alone = mj.simulate(
            mj.fedavg(mj.models.linear(data), local=SOLVER), data.take(members), rounds=1, resume=from_there
        )
        jax.tree.map(
            lambda a, b, cluster=cluster: np.testing.assert_allclose(a[cluster], b, rtol=1e-5, atol=1e-5),
            more.server.value.theta,
            alone.server.value,
        )


def test_a_newcomer_takes_the_model_that_fits_its_samples_best(split_run):
    data, run = split_run
    x, y = data.train.client(UNSEEN)
    assert run.scores[0].values["train_score"][UNSEEN] > 0.9
    assert (run.personalize((x, 1 - y)).predict(x) == 1 - y).mean() > 0.9


def test_a_client_is_sent_its_own_clusters_model_only(split_run):
    _, run = split_run
    server = jax.tree.map(jnp.asarray, run.server)
    view = run.algorithm.server.broadcast(server, jax.random.key(0))
    for client in range(CLIENTS):
        own = run.algorithm.server.address(view, jnp.int32(client)).value
        expected = jax.tree.map(lambda a, client=client: a[server.value.label[client]], server.value.theta)
        jax.tree.map(np.testing.assert_array_equal, own, expected)


@pytest.mark.parametrize("tolerances", [{"tolerance_mean": 0.0}, {"tolerance_max": 1e6}])
def test_without_a_split_it_is_fedavg(tolerances):
    data = opposite_clients()
    model = mj.models.linear(data)
    clustered = mj.simulate(mj.clustered(model, clients=CLIENTS, local=SOLVER, **tolerances), data, rounds=4)
    average = mj.simulate(mj.fedavg(model, local=SOLVER), data, rounds=4)
    assert (clustered.server.value.label == 0).all()
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a[0], b, rtol=1e-5, atol=1e-6),
        clustered.server.value.theta,
        average.server.value,
    )


def one_round(steps, weights):
    """The server's value after clients have gone these steps from a common model, whose numbers are all 0."""
    algorithm = mj.clustered(
        mj.models.linear(mj.models.Spec((2,), 2), start="zeros"),
        clients=len(steps),
        tolerance_mean=1.0,
        tolerance_max=0.5,
    )

    def update(key):
        server = algorithm.server.init(key)
        each = lambda leaf: leaf + jnp.asarray(steps).reshape(-1, *(1,) * (leaf.ndim - 1))
        return algorithm.server.update(server, None, Uploads(jax.tree.map(each, server.value.theta), weights))

    return quickly(update)(jax.random.key(0)).value


def test_a_split_cluster_averages_within_its_new_parts():
    value = one_round([1.0, 2.0, -1.5], jnp.array([1.0, 3.0, 4.0]))
    assert groups(np.asarray(value.label)) == {frozenset({0, 1}), frozenset({2})}
    means = jax.tree.leaves(jax.tree.map(lambda leaf: leaf[value.label[jnp.array([0, 2])]], value.theta))
    assert all(np.allclose(leaf.reshape(2, -1).T, [(1 + 3 * 2) / 4, -1.5]) for leaf in means)


def test_a_pair_is_never_split():
    value = one_round([1.0, -1.0], jnp.array([3.0, 1.0]))
    assert value.label.tolist() == [0, 0]
    assert all(np.allclose(leaf[0], 0.5) for leaf in jax.tree.leaves(value.theta))


def test_partial_participation_is_refused():
    data = opposite_clients()
    algorithm = mj.clustered(mj.models.linear(data), clients=CLIENTS)
    with pytest.raises(ValueError, match="must see every client in every round"):
        mj.simulate(algorithm, data, rounds=1, participation=mj.participation.uniform(0.5))
