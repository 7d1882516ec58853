"""FederatedTransport: exact for Gaussians, better than affine where affine is not enough, and scikit-learn's habits."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.utils.estimator_checks import check_estimator

from majorant.estimators import FederatedTransport
from majorant.estimators.transport import held_out, moments, sliced_distance


class WithReference(FederatedTransport):
    """A reference of its own, so that scikit-learn's checks, which know of none, can fit it."""

    def __init__(self, *, method: str = "gaussian") -> None:
        super().__init__(method=method)

    def fit(self, X, y=None):
        width = self._checked(X, reset=True, ensure_min_samples=2).shape[1]
        return super().fit(X, reference=np.random.default_rng(0).normal(size=(20 + width, width)))


def two_blobs(rng: np.random.Generator, count: int, gap: float) -> np.ndarray:
    side = rng.integers(0, 2, count)
    return np.stack([gap * (2 * side - 1), np.zeros(count)], axis=1) + 0.3 * rng.normal(size=(count, 2))


@pytest.fixture(scope="module")
def learnt():
    """One Gaussian blob, spread over clients by where its rows lie, onto two."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(400, 2)), two_blobs(rng, 400, 2.0) + 5.0
    groups = np.digitize(x[:, 0], [-0.5, 0.5])
    options = {"max_iter": 150, "hidden": (16, 16, 8), "batch_size": 128, "learning_rate": 1e-2, "random_state": 0}
    network = FederatedTransport(**options).fit(x, groups=groups, reference=y)
    return x, y, groups, network


def test_the_gaussian_map_is_exact_for_gaussians():
    """Whatever the groups: from exact moments the map is A x + b with A C_P A = C_Q, A symmetric and positive."""
    rng = np.random.default_rng(0)
    x, y = (
        rng.normal(size=(500, 3)) @ rng.normal(size=(3, 3)) + 1.0,
        rng.normal(size=(300, 3)) @ rng.normal(size=(3, 3)),
    )
    model = FederatedTransport(method="gaussian").fit(x, groups=np.arange(500) % 7, reference=y)
    moved = model.transform(x)
    np.testing.assert_allclose(moved.mean(axis=0), y.mean(axis=0), atol=1e-5)
    np.testing.assert_allclose(np.cov(moved.T, bias=True), np.cov(y.T, bias=True), rtol=1e-3, atol=1e-4)
    matrix = np.linalg.lstsq(x - x.mean(axis=0), moved - moved.mean(axis=0), rcond=None)[0]
    np.testing.assert_allclose(matrix, matrix.T, atol=1e-6)
    assert np.linalg.eigvalsh(matrix).min() > 0
    np.testing.assert_allclose(model.inverse_transform(moved), x, atol=1e-6)
    alone = FederatedTransport(method="gaussian").fit(x, reference=y)
    np.testing.assert_allclose(alone.transform(x), moved, rtol=1e-6, atol=1e-8)


def test_moments_do_not_depend_on_the_groups():
    x = np.random.default_rng(0).normal(size=(10, 2)) + 1e6
    mean, covariance = moments(x, np.array([0, 1, 4, 4, 10]))
    np.testing.assert_allclose(mean, x.mean(axis=0))
    np.testing.assert_allclose(covariance, np.cov(x.T, bias=True), rtol=1e-6)


def test_networks_do_what_affine_maps_cannot(learnt):
    x, y, groups, network = learnt
    affine = FederatedTransport(method="gaussian").fit(x, groups=groups, reference=y)
    assert network.score(x) > affine.score(x) / 2  # scores are negative: half the distance is gone
    assert network.bytes_up_ > 0
    assert network.n_iter_ == 150
    assert list(network.groups_) == [0, 1, 2]
    between = np.abs(network.transform(x)[:, 0] - 5.0) < 0.5
    assert between.mean() < (np.abs(affine.transform(x)[:, 0] - 5.0) < 0.5).mean()


def test_networks_are_compared_with_the_gaussian_map_on_rows_that_they_have_not_seen(learnt):
    """A tenth of each group is held out; the distances there are those of `score` with the other rows' reference."""
    x, y, groups, network = learnt
    mask, mask_y = held_out([int((groups == g).sum()) for g in range(3)], 0.1), held_out([400], 0.1)
    rows, unseen = x[np.argsort(groups, kind="stable")][mask], y[mask_y]
    affine = FederatedTransport(method="gaussian").fit(x, groups=groups, reference=y)
    assert affine.held_out_ is None
    found, variance = network.held_out_, network.reference_variance_
    assert found.rows == sum(int((groups == g).sum()) // 10 for g in range(3))
    np.testing.assert_allclose(found.network, sliced_distance(network.transform(rows), unseen) / variance, rtol=1e-5)
    np.testing.assert_allclose(found.gaussian, sliced_distance(affine.transform(rows), unseen) / variance, rtol=1e-5)
    assert found.network < found.gaussian
    assert "better" not in found.words


def test_networks_that_are_behind_the_gaussian_map_say_so(learnt, monkeypatch):
    """Networks that split a blob in two are no good where the reference is a blob, and have not seen what says so."""
    rng, given = np.random.default_rng(0), []
    x, y = rng.normal(size=(300, 2)), rng.normal(size=(300, 2)) + 3.0

    def learn(model, rows, owner, reference):
        given.append((rows, owner, reference))
        model.potentials_ = learnt[3].potentials_

    monkeypatch.setattr(FederatedTransport, "_learn", learn)
    model = FederatedTransport(hidden=(16, 16, 8))
    with pytest.warns(
        ConvergenceWarning, match=r"by the Gaussian map alone, which is better: take that, or more rounds"
    ):
        model.fit(x, groups=np.arange(300) % 3, reference=y)
    FederatedTransport(hidden=(16, 16, 8), validation_fraction=0.0).fit(x, reference=y)
    few = FederatedTransport(hidden=(16, 16, 8)).fit(x[:290], reference=y)  # 29 held-out rows tell nothing
    assert few.held_out_ is None
    assert [(len(rows), len(owner), len(public)) for rows, owner, public in given] == [
        (270, 270, 270),
        (300, 300, 300),
        (290, 290, 300),
    ]


def test_the_map_is_monotone_and_can_be_undone(learnt):
    x, _, _, network = learnt
    a, b = x[:200], x[200:]
    assert (((network.transform(a) - network.transform(b)) * (a - b)).sum(axis=1) > 0).all()
    back = network.inverse_transform(network.transform(x))
    assert np.mean((back - x) ** 2) < 0.1 * np.mean((network.transform(x) - x) ** 2)


def test_weights_that_are_not_convex_are_refused(learnt):
    network = clone(learnt[3])
    network.n_features_in_ = 2
    bad = [params | {"U1": -params["U1"] - 1} for params in learnt[3].potentials_]
    network.potentials_ = tuple(bad)
    with pytest.raises(ValueError, match="U1 of the dense convex network has 256 weights below 0"):
        network._check_potentials()


@pytest.mark.parametrize(
    ("options", "reference", "message"),
    [
        ({}, None, "give reference"),
        ({}, "barycenter", "reference must be rows or the word 'barycentre', got 'barycenter'"),
        ({}, np.zeros((9, 3)), "reference has 3 features and the clients' samples have 2"),
        ({}, np.zeros((2, 2)), "2 reference samples are too few"),
        ({}, np.full((9, 2), np.nan), "reference has NaN"),
        ({"cycle": -1.0}, np.zeros((9, 2)), "cycle == -1.0, must be >= 0"),
        ({"method": "magic"}, np.zeros((9, 2)), "method must be 'network' or 'gaussian'"),
        ({"loss": "printed"}, np.zeros((9, 2)), "loss must be one of max-min, cycle"),
        ({"cycle": np.nan}, np.zeros((9, 2)), "cycle must be a finite number, got nan"),
        ({"learning_rate": np.inf}, np.zeros((9, 2)), "learning_rate must be a finite number"),
        ({"participation": 0.0}, np.zeros((9, 2)), "participation == 0.0, must be > 0"),
        ({"max_iter": 0}, np.zeros((9, 2)), "max_iter == 0, must be >= 1"),
        ({"hidden": (4, 4)}, np.zeros((9, 2)), "hidden must be three widths"),
        ({"validation_fraction": 1.0}, np.zeros((9, 2)), "validation_fraction == 1.0, must be < 1"),
        ({"bits": 1}, np.zeros((9, 2)), "bits == 1, must be >= 2"),
    ],
)
def test_bad_input_is_refused_before_any_work(options, reference, message):
    with pytest.raises(ValueError, match=message):
        FederatedTransport(**options).fit(np.eye(4, 2), reference=reference)
    with pytest.raises(ValueError, match="NaN"):
        FederatedTransport().fit(np.full((4, 2), np.nan), reference=np.zeros((9, 2)))


def test_scikit_learns_own_checks():
    checks = check_estimator(WithReference(), on_skip=None)
    assert not [check["check_name"] for check in checks if check["status"] == "failed"]
    with pytest.raises(NotFittedError):
        FederatedTransport().transform(np.zeros((2, 2)))


def test_the_sliced_distance_is_a_distance():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(300, 2))
    assert sliced_distance(x, x) == 0
    np.testing.assert_allclose(sliced_distance(x, x + np.array([3.0, 4.0])), 25.0, rtol=0.2)
