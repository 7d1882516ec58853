"""Clients with few classes: sizes, classes, samples used once, and the normalisation against scikit-learn's."""

import importlib

import numpy as np
import pytest
from sklearn.preprocessing import StandardScaler, normalize

from majorant.data.federated import FederatedData
from majorant.data.few_classes import few_classes, standardised, unit_norm

RNG = np.random.default_rng(0)
X, Y = RNG.normal(3, 2, (900, 5)), np.arange(900) % 6


@pytest.mark.parametrize("k", [2, 5])
def test_every_client_has_k_classes_and_its_own_samples(k):
    data = few_classes(X, Y, k=k, clients=8, samples=40, test_samples=50)
    assert data.train.sizes.tolist() == [40] * 8
    assert data.test.sizes.tolist() == [50] * 8
    for client in range(8):
        train, test = set(data.train.client(client)[1]), set(data.test.client(client)[1])
        assert len(train) == k
        assert test == train
    together = np.concatenate([data.train.x, data.test.x])
    assert len(np.unique(together, axis=0)) == 8 * 90
    np.testing.assert_allclose(np.linalg.norm(together, axis=1), 1, rtol=1e-5)
    assert set(np.concatenate([data.train.y, data.test.y])) == set(range(6))


def test_normalisation_is_that_of_scikit_learn_fitted_on_training_samples():
    raw = FederatedData.from_arrays(X.astype(np.float32), Y, np.arange(900) % 3, split=(0.5, 0.2, 0.3))
    found = unit_norm(standardised(raw))
    scaler = StandardScaler().fit(raw.train.x)
    for part in ("train", "validation", "test"):
        expected = normalize(scaler.transform(getattr(raw, part).x))
        np.testing.assert_allclose(getattr(found, part).x, expected, atol=1e-5)
        np.testing.assert_array_equal(getattr(found, part).y, getattr(raw, part).y)


def test_columns_without_variation_become_zero_and_samples_of_zeros_stay():
    x = np.zeros((8, 2), np.float32)
    x[:, 1] = 7
    raw = FederatedData.from_arrays(x, np.arange(8) % 2, np.zeros(8, int), split=(0.5, 0.0, 0.5))
    raw.test.x[0, 0] = 5  # a value that no training sample has
    found = unit_norm(standardised(raw))
    assert (found.train.x == 0).all()
    assert (found.test.x == 0).all()


def test_a_seed_gives_the_same_data_again():
    first, again, other = (few_classes(X, Y, k=2, clients=5, samples=9, test_samples=9, seed=s) for s in (1, 1, 2))
    np.testing.assert_array_equal(first.train.x, again.train.x)
    assert (first.train.x != other.train.x).any()


def test_clients_take_random_samples_of_those_that_they_hold(monkeypatch):
    """Whose samples are whose is the same for both seeds here; 18 of 180 are taken."""
    module = importlib.import_module("majorant.data.few_classes")
    monkeypatch.setattr(module, "classes_per_client", lambda y, *given: np.arange(len(y)) % 5)
    kept = lambda part: set(np.round(part.x[:, 0] / part.x[:, 1], 3).tolist())  # what normalisation leaves as it is
    plain = np.column_stack([np.arange(900.0), np.ones((900, 1))])
    monkeypatch.setattr(module, "standardised", lambda data: data)
    one, other = (few_classes(plain, Y, k=6, clients=5, samples=9, test_samples=9, seed=s) for s in (1, 2))
    assert len(kept(one.train) & kept(other.train)) < 20  # of 45


@pytest.mark.parametrize(
    ("options", "complaint"),
    [({"samples": 200}, "needs 210 samples"), ({"samples": 0}, "samples must be"), ({"k": 7}, "choose k")],
)
def test_impossible_settings_are_refused(options, complaint):
    with pytest.raises(ValueError, match=complaint):
        few_classes(X, Y, **({"k": 2, "clients": 5, "samples": 9, "test_samples": 10} | options))
