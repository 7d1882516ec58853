"""Clients as rectangular arrays: the samples of each are its own, however many are stacked, and in whatever pieces."""

import jax.numpy as jnp
import numpy as np

import majorant as mj
from majorant.data.federated import FederatedData, Ragged, offsets_of
from majorant.engines import memory, population


def test_samples_are_stacked_in_pieces_as_at_once(monkeypatch):
    monkeypatch.setattr(population, "STACKED_AT_ONCE", 3)
    sizes = np.array([2, 0, 3, 1, 4, 2, 1])
    x = np.arange(sizes.sum() * 2, dtype=np.float32).reshape(-1, 2) + 1
    ragged = Ragged(x, np.arange(sizes.sum()) + 1, offsets_of(sizes))
    clients = np.array([4, 0, -1, 6, 1, 2, 3])
    stacked = population.stack(ragged, clients, 5)
    for row, client in enumerate(clients):
        own, labels = ragged.client(client) if client >= 0 else (x[:0], ragged.y[:0])
        np.testing.assert_array_equal(stacked.x[row, : len(own)], own)
        np.testing.assert_array_equal(stacked.y[row, : len(own)], labels)
        behind = np.repeat(own[-1:], 5 - len(own), axis=0) if len(own) else np.zeros((5, 2))
        np.testing.assert_array_equal(stacked.x[row, len(own) :], behind)  # padding repeats a client's last sample
        assert stacked.size[row] == len(own)


def test_a_model_that_cannot_take_zeros_sees_none():
    """Clients of unequal sizes are padded: a model that divides by the length of a sample trains all the same."""
    rng, owner = np.random.default_rng(0), np.repeat(np.arange(3), (20, 10, 5))
    samples = rng.normal(size=(35, 2)).astype(np.float32), rng.integers(2, size=35)
    data = FederatedData.from_arrays(*samples, owner, split=(0.8, 0, 0.2))
    assert len(set(data.train.sizes.tolist())) > 1
    linear = mj.models.linear(data)
    by_length = lambda params, x: linear.apply(params, x / jnp.linalg.norm(x, axis=1, keepdims=True))
    for batch_size in (2, 64, None):
        local = mj.local_sgd(0.1, batch_size=batch_size)
        run = mj.simulate(mj.fedavg(linear._replace(apply=by_length), local=local), data, rounds=1)
        assert run.history[-1]["rejected"] == 0
        assert np.isfinite(run.history[-1]["train_loss"])


def test_many_seeds_side_by_side_take_fewer_clients_at_once():
    """Each gathers minibatches of its own, and all should stay in the cache; a few seeds change nothing."""
    at_once = [memory.chunk_size(1 << 40, seeds) for seeds in (1, 5, 8, 64)]
    assert at_once == [memory.CACHE_BYTES // share for share in (1, 1, 2, 16)]


def test_chunks_in_lanes_hold_as_many_models_as_fit_and_lanes_as_many_as_make_steps():
    data = mj.data.synthetic_mixture(clients=8, dimension=2, seed=0)
    build = lambda **limits: population.build_buckets(data, np.arange(8), chunk_bytes=1 << 30, most=2, **limits)
    laid = lambda buckets: [(bucket.chunk, bucket.lanes, len(bucket.real)) for bucket in buckets]
    assert laid(build(saturating=1)) == [(8, 2, 8)]
    assert laid(build(saturating=1, most_held=4)) == [(4, 2, 8)]
    assert laid(build(saturating=1, most_held=2)) == [(2, None, 8)]  # nobody waits for a lane
    assert laid(build(saturating=8, most_held=4)) == laid(build()) == [(2, None, 8)]  # few clients: no lanes


def test_who_waits_for_a_lane_costs_no_work():
    owner = np.repeat(np.arange(4), (4, 1, 1, 2))
    data = FederatedData.from_arrays(np.eye(8), np.arange(8.0), owner, split=(1, 0, 0))
    bucket = population.Bucket(np.array([1, 2, 3, 0]), length=4, validation_length=0, test_length=1, chunk=4)
    assert population.padding(data, [bucket]) == {"memory": 0.5, "work": 0.5}
    assert population.padding(data, [bucket._replace(lanes=2)]) == {"memory": 0.5, "work": 0.0}
    assert population.padding(data, [bucket._replace(lanes=3)])["work"] == 1 - 8 / 12  # the longest client's steps
