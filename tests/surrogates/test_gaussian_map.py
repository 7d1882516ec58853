"""The map between Gaussians: MM-1 and MM-2, the Gaussian of all clients after one round, and moments carried over."""

import jax
import numpy as np
import pytest
from scipy import stats

import majorant as mj
from majorant.surrogates import gaussian_map

RNG = np.random.default_rng(0)
X = RNG.normal(size=(30, 2)) @ [[1.0, 0.4], [0.0, 2.0]] + [3.0, -1.0]
MEAN, COVARIANCE = np.array([1.0, 2.0]), np.array([[2.0, 0.7], [0.7, 1.0]])


def test_promises():
    """All but one: the projection keeps the mean, and there are closer points with another."""
    with jax.enable_x64(True):
        report = mj.surrogates.check_surrogate(gaussian_map(MEAN, COVARIANCE, ridge=0.2), X, points=2)
    assert [condition.name for condition in report.failed] == ["projection: closest point"]


def test_one_round_is_the_gaussian_of_all_clients_and_the_map_carries_its_moments():
    with jax.enable_x64(True):
        surrogate = gaussian_map(MEAN, COVARIANCE, ridge=1e-9)
        data = mj.FederatedData.unlabelled(X, clients=np.repeat(np.arange(3), (5, 10, 15)))
        run = mj.simulate(mj.fedmm(surrogate, data), data, rounds=1)
        found = {name: np.asarray(value) for name, value in run.model(0).model.items()}
        moved = run.model(0).predict(X)
        losses = surrogate.losses(found, X, np.zeros(30))
    covariance = np.cov(X.T, bias=True)
    np.testing.assert_allclose(found["mean"], X.mean(axis=0), rtol=1e-6)
    np.testing.assert_allclose(found["covariance"], covariance, rtol=1e-6)
    np.testing.assert_allclose(moved.mean(axis=0), MEAN, rtol=1e-6)
    np.testing.assert_allclose(np.cov(moved.T, bias=True), COVARIANCE, rtol=1e-5)
    density = stats.multivariate_normal(X.mean(axis=0), covariance).logpdf(X)
    np.testing.assert_allclose(losses, -density - np.log(2 * np.pi), rtol=1e-6)  # without the constant


@pytest.mark.parametrize(
    ("mean", "covariance", "words"),
    [
        (MEAN, np.eye(3), r"must agree, got \(2,\) and \(3, 3\)"),
        (MEAN, [[1.0, np.nan], [0.0, 1.0]], "NaN or infinite"),
        ([np.inf, 0.0], np.eye(2), "NaN or infinite"),
    ],
)
def test_bad_references_are_refused(mean, covariance, words):
    with pytest.raises(ValueError, match=words):
        gaussian_map(mean, covariance)
