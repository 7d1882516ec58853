"""Estimators that minimise surrogates: scikit-learn's checks and results, whatever the groups; online and in bits."""

import functools

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.cluster import KMeans
from sklearn.decomposition import MiniBatchDictionaryLearning, sparse_encode
from sklearn.mixture import GaussianMixture
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator

from majorant.estimators import (
    FederatedDictionaryLearning,
    FederatedGaussianMixture,
    FederatedKMeans,
    FederatedNMF,
)

ALL = [FederatedGaussianMixture(), FederatedKMeans(), FederatedDictionaryLearning(), FederatedNMF()]
close = functools.partial(np.testing.assert_allclose, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("estimator", ALL, ids=lambda e: type(e).__name__)
def test_scikit_learns_own_checks(estimator):
    checks = check_estimator(estimator, on_skip=None)
    assert {check["check_name"] for check in checks if check["status"] == "skipped"} <= {"check_array_api_input"}
    assert len(checks) > 40


@functools.cache
def blobs():
    """Three clusters, and groups that hold parts of one or two of them."""
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.normal(m, s, (60, 2)) for m, s in (((0, 0), 1.0), ((4, 1), 0.6), ((1, 5), 1.4))])
    groups = np.repeat(["a", "b", "c", "d", "e"], [30, 50, 25, 40, 35])
    order = rng.permutation(len(X))
    return X[order], groups[order]


@pytest.mark.parametrize("kind", ["full", "diag", "spherical"])
def test_gaussian_mixtures_are_those_of_scikit_learn_whatever_the_groups(kind):
    X, groups = blobs()
    theirs = GaussianMixture(3, covariance_type=kind, random_state=0, tol=1e-6).fit(X)
    ours = FederatedGaussianMixture(3, covariance_type=kind, random_state=0, tol=1e-6).fit(X)
    for name in ("weights_", "means_", "covariances_"):
        close(getattr(ours, name), getattr(theirs, name), rtol=1e-4, atol=1e-6)
    close(ours.lower_bound_, theirs.lower_bound_, rtol=1e-5)
    close(ours.predict_proba(X), theirs.predict_proba(X), atol=1e-4)
    close(ours.score_samples(X), theirs.score_samples(X), rtol=1e-4)
    close(ours.bic(X), theirs.bic(X), rtol=1e-5)
    start = {"means_init": X[:3], "weights_init": [0.2, 0.3, 0.5], "precisions_init": theirs.precisions_}
    fit = lambda groups: FederatedGaussianMixture(3, covariance_type=kind, max_iter=30, **start).fit(X, groups=groups)
    grouped = fit(groups)
    close(grouped.means_, fit(None).means_)
    own = grouped.predict_proba(X, groups)  # a fixed point of EM on each group's weights
    close(grouped.group_weights_[0], own[groups == "a"].mean(axis=0), atol=1e-3)
    assert grouped.score(X, groups=groups) > grouped.score(X)


def test_a_mixture_whose_start_is_given_asks_nobody_for_centres(monkeypatch):
    rows = np.random.default_rng(0).normal(size=(40, 2))
    start = {"weights_init": [0.5, 0.5], "means_init": [[-1.0, 0.0], [1.0, 0.0]], "precisions_init": [np.eye(2)] * 2}
    asked = []
    found = lambda samples, clusters, random: asked.append(clusters) or np.array([[-1.0, 0.0], [1.0, 0.0]])
    monkeypatch.setattr("majorant.estimators.gaussian_mixture.one_shot_centers", found)
    fit = lambda **given: FederatedGaussianMixture(2, max_iter=3, tol=0.0, **given).fit(rows, groups=np.arange(40) % 4)
    fit(**start)
    assert asked == []
    fit(**start | {"precisions_init": None})
    assert asked == [2]


@pytest.mark.parametrize(("offset", "scale"), [(1e4, 1.0), (0.0, 1e-4), (1e6, 1e3)])
def test_mixtures_do_not_depend_on_where_the_rows_are(offset, scale):
    X, _ = blobs()
    options = {"n_components": 3, "random_state": 0, "reg_covar": 0.0, "tol": 1e-7}
    plain = FederatedGaussianMixture(**options).fit(X)
    moved = FederatedGaussianMixture(**options).fit(offset + scale * X)
    close(moved.covariances_ / scale**2, plain.covariances_, rtol=1e-3)
    close((moved.means_ - offset) / scale, plain.means_, rtol=1e-3, atol=1e-4)
    theirs = GaussianMixture(**options).fit(offset + scale * X)
    assert moved.score(offset + scale * X) == pytest.approx(theirs.score(offset + scale * X), abs=1e-4)


def test_factors_do_not_depend_on_the_scale():
    rng = np.random.default_rng(0)
    X = rng.random((40, 2)) @ rng.random((2, 4))
    small, plain = (FederatedNMF(2, random_state=0).fit(s * X) for s in (1e-4, 1.0))
    close(small.components_ * 1e4, plain.components_, rtol=1e-4)
    close(np.multiply(small.error_, 1e8), plain.error_, rtol=1e-4)
    assert plain.reconstruction_err_ < 0.05


def test_k_means_is_lloyds_algorithm_whatever_the_groups():
    X, groups = blobs()
    start = X[:3]
    theirs = KMeans(3, init=start, n_init=1, tol=0).fit(X)
    for given in (None, groups):
        ours = FederatedKMeans(3, init=start, tol=0).fit(X, groups=given)
        close(ours.cluster_centers_, theirs.cluster_centers_, rtol=1e-5)
        np.testing.assert_array_equal(ours.labels_, theirs.labels_)
        assert ours.inertia_ == pytest.approx(theirs.inertia_)
    nearest = ((X[:, None] - start) ** 2).sum(axis=2).argmin(axis=1)
    once = FederatedKMeans(3, init=start, max_iter=1).fit(X, groups=groups)
    close(once.cluster_centers_, [X[nearest == k].mean(axis=0) for k in range(3)], rtol=1e-5)
    found = FederatedKMeans(3, random_state=0).fit(X, groups=groups)
    assert found.inertia_ == pytest.approx(KMeans(3, n_init=5, random_state=0).fit(X).inertia_, rel=1e-3)


def test_k_means_stops_at_the_same_iteration_whatever_the_unit():
    X, _ = blobs()
    plain, small = (FederatedKMeans(3, init=s * X[:3]).fit(s * X) for s in (1.0, 1e-3))
    assert plain.n_iter_ == small.n_iter_ > 2


def objective(X, components, alpha):
    codes = sparse_encode(X, components, algorithm="lasso_cd", alpha=alpha, max_iter=5000)
    return 0.5 * ((X - codes @ components) ** 2).sum(axis=1).mean() + alpha * np.abs(codes).sum(axis=1).mean()


def test_dictionaries_are_no_worse_than_those_of_scikit_learn():
    rng = np.random.default_rng(1)
    X = (rng.normal(size=(150, 6)) * (rng.random((150, 6)) < 0.4)) @ rng.normal(size=(6, 8))
    theirs = MiniBatchDictionaryLearning(6, alpha=0.3, batch_size=30, max_iter=100, random_state=0).fit(X)
    ours = FederatedDictionaryLearning(6, alpha=0.3, max_iter=300, random_state=0).fit(X, groups=np.arange(150) % 7)
    assert objective(X, ours.components_, 0.3) <= objective(X, theirs.components_, 0.3) * 1.001
    assert ours.error_[-1] == pytest.approx(objective(X, ours.components_, 0.3), rel=1e-5)
    assert (np.linalg.norm(ours.components_, axis=1) <= 1 + 1e-9).all()
    assert (np.diff(ours.error_) <= 1e-9).all()


def test_absent_groups_batches_and_bits_come_close():
    X, groups = blobs()
    exact = FederatedGaussianMixture(3, random_state=0).fit(X, groups=groups)
    noisy = clone(exact).set_params(participation=0.6, batch_size=15, bits=8, max_iter=150).fit(X, groups=groups)
    assert noisy.score(X) > exact.score(X) - 0.1
    assert noisy.n_iter_ == 150
    assert len(noisy.lower_bounds_) > 5


def test_the_first_step_is_the_shorter_the_fewer_groups_take_part():
    """γ_1 = β/√(β + 1) with β = p, the share of the groups that takes part."""
    X, groups = blobs()
    options = {"init": X[:3], "max_iter": 1, "random_state": 0, "participation": 0.4}
    own, same, longer = (
        FederatedKMeans(3, step_size=step, **options).fit(X, groups=groups).cluster_centers_
        for step in (None, 0.4 / np.sqrt(1.4), 1 / np.sqrt(2))
    )
    close(own, same, rtol=1e-5)
    assert np.abs(own - longer).max() > 0.1


def test_few_bits_are_enough_for_features_of_very_different_sizes():
    X, groups = blobs()
    X = X * [1e3, 1e-2]
    exact = FederatedGaussianMixture(3, covariance_type="diag", random_state=0).fit(X, groups=groups)
    noisy = clone(exact).set_params(participation=0.6, bits=8, max_iter=150).fit(X, groups=groups)
    assert noisy.score(X) > exact.score(X) - 0.05
    assert noisy.lower_bound_ == pytest.approx(noisy.score(X), rel=1e-6)


def test_rows_may_come_in_batches():
    X, groups = blobs()
    online = FederatedGaussianMixture(3, random_state=0)
    for start in range(0, len(X), 45):
        online.partial_fit(X[start : start + 45], groups=groups[start : start + 45])
    assert (online.n_iter_, online.n_rows_seen_, len(online.groups_)) == (4, 180, 5)
    assert online.score(X) > FederatedGaussianMixture(1).fit(X).score(X)
    before = dict(zip(online.groups_, online.group_weights_, strict=True))
    online.partial_fit(X[:45], groups=np.full(45, "new"))
    after = dict(zip(online.groups_, online.group_weights_, strict=True))
    assert after.pop("new").sum() == pytest.approx(1, abs=1e-5)
    assert {name: weights.tolist() for name, weights in after.items()} == {k: w.tolist() for k, w in before.items()}
    few = FederatedKMeans(1).fit(np.zeros((98, 1))).partial_fit(np.full((2, 1), 100.0))
    assert few.cluster_centers_[0, 0] == pytest.approx(2.0)  # batches count by their rows
    few.partial_fit(np.full((100, 1), 10.0))
    assert few.cluster_centers_[0, 0] == pytest.approx(6.0)  # and all that came before by theirs
    with pytest.raises(ValueError, match="n_clusters was 1"):
        few.set_params(n_clusters=2).partial_fit(np.ones((5, 1)))
    whole = FederatedKMeans(3, init=X[:3]).partial_fit(X)
    close(whole.cluster_centers_, FederatedKMeans(3, init=X[:3], max_iter=1).fit(X).cluster_centers_)


def test_pipelines_and_searches():
    X, _ = blobs()
    search = GridSearchCV(
        make_pipeline(StandardScaler(), FederatedGaussianMixture(random_state=0)),
        {"federatedgaussianmixture__n_components": [1, 3]},
        cv=2,
    ).fit(X)
    assert search.best_params_ == {"federatedgaussianmixture__n_components": 3}


def test_wrong_input_is_refused():
    X, groups = blobs()
    for message, estimator in {
        "as many rows": FederatedGaussianMixture(500),
        "n_clusters": FederatedKMeans(500),
        "n_components": FederatedDictionaryLearning(500),
        "covariance_type": FederatedGaussianMixture(covariance_type="tied"),
        "step_size": FederatedKMeans(2, step_size=1.5),
        "bits": FederatedKMeans(2, bits=1),
        "participation": FederatedKMeans(2, participation=0),
        "singular": FederatedGaussianMixture(2, precisions_init=np.zeros((2, 2, 2))),
        "init": FederatedKMeans(2, init=np.zeros((3, 2))),
        "sum to 1": FederatedGaussianMixture(2, weights_init=[3, 4]),
        "positive definite": FederatedGaussianMixture(1, precisions_init=[[[1.0, 2.0], [2.0, 1.0]]]),
    }.items():
        with pytest.raises(ValueError, match=message):
            estimator.fit(X, groups=groups)
    with pytest.raises(ValueError, match="Negative"):
        FederatedNMF(2).fit(X)
    with pytest.raises(ValueError, match="groups"):
        FederatedKMeans(2).fit(X, groups=groups[:5])
    with pytest.raises(ValueError, match="181 groups for 180 rows"):
        FederatedKMeans(2).fit(X, groups=np.append(groups, "f"))
    with pytest.raises(ValueError, match="singular"):  # equal rows, and nothing added to the variances
        FederatedGaussianMixture(1, reg_covar=0.0).fit(np.ones((10, 2)))
