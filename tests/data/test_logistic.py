"""The heterogeneous logistic regressions follow their description."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from majorant.data import heterogeneous_logistic


def test_coefficients_and_features_are_where_they_should_be():
    data = heterogeneous_logistic(sigma=0.3, clients=200, samples=5, seed=1)
    spread = data.truth["beta"] - data.truth["w"]
    assert ((data.truth["w"] >= 0.49) & (data.truth["w"] <= 0.51)).all()
    assert np.ptp(spread, axis=1).max() <= 0.02
    assert spread.mean(axis=1).std() == pytest.approx(0.3, rel=0.2)
    assert 0.2 <= data.train.x.min() < data.train.x.max() <= 0.5
    assert set(data.train.sizes) == {5}


def test_shared_coefficients_are_everybodys():
    data = heterogeneous_logistic(sigma=10, shared=10, clients=40, samples=5)
    assert data.truth["w"].shape == (10,)
    assert data.truth["beta"].shape == (40, 5)
    assert 0 <= data.train.x.min() < data.train.x.max() <= 0.1


def test_labels_follow_the_logistic_model_with_its_sign():
    data = heterogeneous_logistic(sigma=3, clients=1, samples=200_000, dimension=2, seed=3)
    found = LogisticRegression(C=1e9, fit_intercept=False).fit(*data.train.client(0)).coef_[0]
    np.testing.assert_allclose(found, data.truth["beta"][0], atol=0.15)


def test_a_seed_gives_the_same_data_again():
    first, again, other = (heterogeneous_logistic(samples=4, seed=seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first.train.x, again.train.x)
    assert (first.train.x != other.train.x).any()


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"sigma": -1}, "standard deviation"),
        ({"shared": 15}, "less than the dimension"),
        ({"clients": 0}, "clients must be"),
        ({"test_samples": 0}, "test_samples"),
    ],
)
def test_impossible_settings_are_refused(options, complaint):
    with pytest.raises(ValueError, match=complaint):
        heterogeneous_logistic(**options)
