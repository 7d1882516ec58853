"""The barycentre of Gaussian clients: the fixed point's equation, the least sum of distances, and a map onto it."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.linalg

from majorant.estimators import FederatedTransport
from majorant.estimators.barycentre import gaussian_barycentre

root = lambda matrix: np.real(scipy.linalg.sqrtm(matrix))


def apart(a: np.ndarray, b: np.ndarray) -> float:
    """W₂² between centred Gaussians, by SciPy."""
    return float(np.trace(a + b - 2 * root(root(a) @ b @ root(a))))


@pytest.fixture(scope="module")
def clients():
    """Three Gaussians in general position, of unequal weights."""
    rng = np.random.default_rng(0)
    factors = rng.normal(size=(3, 4, 4))
    return rng.normal(size=(3, 4)), factors @ factors.transpose(0, 2, 1) + 0.1 * np.eye(4), np.array([1.0, 2.0, 5.0])


def test_the_fixed_point_solves_its_equation_and_nothing_near_is_better(clients):
    means, covariances, weights = clients
    mu = weights / weights.sum()
    found = gaussian_barycentre(means, covariances, weights)
    half = root(found.covariance)
    right = sum(m * root(half @ c @ half) for m, c in zip(mu, covariances, strict=True))
    np.testing.assert_allclose(found.covariance, right, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(found.mean, mu @ means)
    total = lambda c: sum(m * apart(c, own) for m, own in zip(mu, covariances, strict=True))
    rng = np.random.default_rng(1)
    for scale in (0.01, 0.1):
        push = np.eye(4) + scale * rng.normal(size=(4, 4))
        assert total(push @ found.covariance @ push.T) > total(found.covariance)
    assert 1 < found.rounds < 100


def test_commuting_clients_have_the_mean_of_their_deviations():
    deviations = np.array([[1.0, 2.0], [3.0, 0.5]])
    found = gaussian_barycentre(np.zeros((2, 2)), np.stack([np.diag(s**2) for s in deviations]), np.array([3.0, 1.0]))
    np.testing.assert_allclose(found.covariance, np.diag((0.75 * deviations[0] + 0.25 * deviations[1]) ** 2), atol=1e-8)
    drawn = found.sample(40_000)
    np.testing.assert_allclose(np.cov(drawn.T), found.covariance, atol=0.1)


def test_a_map_onto_what_clients_have_in_common():
    """Clients that differ by their means alone: the barycentre has the covariance of each, not that of all together."""
    rng = np.random.default_rng(0)
    own = rng.normal(size=(200, 2)) @ np.array([[1.0, 0.5], [0.0, 0.4]])
    x = np.concatenate([own, own + np.array([10.0, 0.0])])
    model = FederatedTransport(method="gaussian").fit(x, groups=np.repeat([0, 1], 200), reference="barycentre")
    np.testing.assert_allclose(model.barycentre_.covariance, np.cov(own.T, bias=True), rtol=1e-4)
    np.testing.assert_allclose(model.barycentre_.mean, x.mean(axis=0))
    np.testing.assert_allclose(np.cov(model.transform(x).T, bias=True), np.cov(own.T, bias=True), rtol=0.1, atol=0.02)
    assert model.reference_.shape == (5000, 2)
