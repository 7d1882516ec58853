"""Clients as rectangular arrays: the samples of each are its own, however many are stacked, and in whatever pieces."""

import numpy as np

from majorant.data.federated import Ragged, offsets_of
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
        assert not stacked.x[row, len(own) :].any()
        assert stacked.size[row] == len(own)


def test_many_seeds_side_by_side_take_fewer_clients_at_once():
    """Each gathers minibatches of its own, and all should stay in the cache; a few seeds change nothing."""
    at_once = [memory.chunk_size(1 << 40, seeds) for seeds in (1, 5, 8, 64)]
    assert at_once == [memory.CACHE_BYTES // share for share in (1, 1, 2, 16)]
