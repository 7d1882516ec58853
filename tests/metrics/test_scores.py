"""Scores of one client and of all, against numbers by hand and scikit-learn's."""

import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.metrics import accuracy_score, log_loss, mean_squared_error

from majorant.core import ClientData
from majorant.metrics.scores import across_clients, bottom_decile, client_scores, sample_scores


def padded(y, rows=3):
    """Labels of a client, and rows of padding after them."""
    whole = np.concatenate([y, np.ones(rows, y.dtype)])
    return ClientData(jnp.zeros((len(whole), 1)), jnp.asarray(whole), jnp.int32(len(y)), jnp.int32(0))


def test_a_classifier_is_scored_on_real_samples_as_by_scikit_learn():
    rng = np.random.default_rng(0)
    y = rng.integers(3, size=20).astype(np.int32)
    probabilities = rng.dirichlet(np.ones(3), 23)
    loss, accuracy = client_scores(sample_scores(jnp.asarray(probabilities), padded(y).y, 3), padded(y), 3)
    assert float(loss) == pytest.approx(log_loss(y, probabilities[:20], labels=[0, 1, 2]), rel=1e-5)
    assert float(accuracy) == pytest.approx(accuracy_score(y, probabilities[:20].argmax(axis=1)))


def test_a_regression_has_half_the_squared_error_and_its_root():
    rng = np.random.default_rng(0)
    y, found = rng.normal(size=20).astype(np.float32), rng.normal(size=23).astype(np.float32)
    loss, error = client_scores(sample_scores(jnp.asarray(found), padded(y).y, 0), padded(y), 0)
    squared = mean_squared_error(y, found[:20])
    assert float(loss) == pytest.approx(squared / 2, rel=1e-5)
    assert float(error) == pytest.approx(np.sqrt(squared), rel=1e-5)


def test_clients_count_by_their_samples_and_those_without_do_not():
    found = across_clients(np.array([0.5, 1.0, 0.0]), np.array([1, 3, 0]), "accuracy")
    assert found == pytest.approx({"mean": 0.875, "bottom_decile": 0.5, "std": 0.25})
    errors = across_clients(np.array([1.0, 3.0, 9.0]), np.array([1, 3, 0]), "rmse")
    assert errors == pytest.approx({"mean": np.sqrt((1 + 3 * 9) / 4), "bottom_decile": 3.0, "std": 1.0})


@pytest.mark.parametrize(("clients", "place"), [(5, 0), (10, 0), (19, 0), (20, 1), (30, 2)])
def test_the_bottom_decile_is_the_tenth_worst_of_a_hundred(clients, place):
    scores = np.random.default_rng(0).permutation(clients).astype(float)
    assert bottom_decile(scores) == place
    assert bottom_decile(scores, larger_is_better=False) == clients - 1 - place
