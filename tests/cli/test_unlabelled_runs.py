"""Mixtures, clusters and factorizations on tables without labels: scores on held-out rows are scikit-learn's."""

from __future__ import annotations

import json

import jax
import numpy as np
import pytest
from sklearn.cluster import KMeans
from sklearn.decomposition import PCA, SparseCoder
from sklearn.mixture import GaussianMixture

import majorant as mj
from commands import invoke, read, refused
from made_tables import lines
from majorant.app.unlabelled import gaussian_mixture, k_means
from majorant.data import from_table

CENTERS = np.array([[0.0, 0.0, 5.0], [6.0, 0.0, 0.0], [0.0, 7.0, 1.0]])
FLAGS = ["--client-column", "site", "--precision", "double", "--rounds", "30", "--evaluate-every", "30"]


@pytest.fixture(scope="module")
def points(tmp_path_factory):
    """Three groups of rows, which four sites have in different shares."""
    rng = np.random.default_rng(0)
    rows = []
    for site in range(4):
        for _ in range(40):
            row = CENTERS[rng.choice(3, p=np.roll([0.6, 0.3, 0.1], site))] + rng.normal(size=3)
            rows.append(f"s{site}," + ",".join(f"{value:.4f}" for value in row))
    return lines(tmp_path_factory.mktemp("points") / "points.csv", "site,a,b,c", rows)


def trained(points, folder, method: str):
    """A run, its held-out rows, all training rows, and the model that everybody gets."""
    invoke("run", method, "--data", points, *FLAGS, "--out", folder)
    data, _ = from_table(points, client_column="site")
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["metric"] == "objective"
    model = mj.load_model(folder)
    return summary, data.test.x.astype(float), data.train.x.astype(float), model


def test_a_gaussian_mixture_has_the_log_likelihood_of_scikit_learns(points, tmp_path):
    summary, test, train, model = trained(points, tmp_path / "run", "gaussian-mixture:components=3")
    params = {name: np.asarray(value) for name, value in model.model.items()}
    other = GaussianMixture(3, means_init=params["means"]).fit(train)
    assert -summary["test_objective"]["mean"] == pytest.approx(other.score(test), abs=2e-3)
    other.weights_, other.means_ = params["weights"], params["means"]
    other.precisions_cholesky_ = np.array([np.linalg.cholesky(np.linalg.inv(c)) for c in params["covariances"]])
    assert -summary["test_objective"]["mean"] == pytest.approx(other.score(test), abs=1e-5)
    assert model.score(test) == pytest.approx(other.score(test), abs=1e-5)

    new = tmp_path / "new.csv"
    new.write_text("a,b,c\n6,0,0\n0,7,1\n6.1,0.1,0\n")
    invoke("predict", tmp_path / "run", "--data", new, "--out", tmp_path / "p.csv")
    shares = np.array([[float(value) for value in row.values()] for row in read(tmp_path / "p.csv")])
    assert shares.sum(axis=1) == pytest.approx(1)
    assert shares[0].argmax() == shares[2].argmax() != shares[1].argmax()
    new.write_text("site,a,b,c\ns9,6,0,0\ns9,0,7,1\n")
    said = json.loads(invoke("personalize", tmp_path / "run", "--data", new, "--json"))
    assert said["out_of_sample"] is None
    assert "objective" in said["fit"]


def test_k_means_has_the_inertia_of_scikit_learns(points, tmp_path):
    summary, test, train, model = trained(points, tmp_path / "run", "k-means:clusters=3")
    other = KMeans(3, n_init=10, random_state=0).fit(train)
    penalty = 1e-6 * float((np.asarray(model.model) ** 2).sum())
    assert summary["test_objective"]["mean"] - penalty == pytest.approx(-other.score(test) / 2 / len(test), abs=1e-4)


def test_a_dictionary_has_the_cost_of_scikit_learns_codes(points, tmp_path):
    summary, test, _, model = trained(points, tmp_path / "run", "dictionary:atoms=2,sparsity=0.3,l2=0.01")
    atoms = np.asarray(model.model, float)  # (p, K)
    coder = SparseCoder(atoms.T, transform_algorithm="lasso_cd", transform_alpha=0.3, transform_max_iter=5000)
    codes = coder.transform(test)
    cost = 0.5 * ((test - codes @ atoms.T) ** 2).sum(axis=1) + 0.3 * np.abs(codes).sum(axis=1)
    assert summary["test_objective"]["mean"] == pytest.approx(cost.mean() + 0.01 * (atoms**2).sum(), abs=1e-4)


def test_a_mixture_starts_from_the_rows_that_are_nearest_to_each_centre():
    """Centres on a line, at very different distances from the origin."""
    rows = np.repeat([[0.0], [5.0], [10.0]], 40, axis=0) + 0.5 * np.random.default_rng(0).normal(size=(120, 1))
    data = mj.FederatedData.unlabelled(rows, np.arange(120) % 4)
    start = gaussian_mixture(data, components=3).server.init(jax.random.key(0)).value.params
    assert np.sort(np.ravel(start["means"])) == pytest.approx([0, 5, 10], abs=0.3)
    assert np.ravel(start["covariances"]) == pytest.approx(0.25, abs=0.15)


def test_clusters_start_as_the_seed_says():
    data = mj.FederatedData.unlabelled(np.random.default_rng(0).uniform(size=(40, 2)), np.arange(40) % 4)
    start = lambda seed: k_means(data, clusters=3, seed=seed).server.init(jax.random.key(0)).value.params
    first, again, other = (np.asarray(start(seed)) for seed in (0, 0, 1))
    np.testing.assert_array_equal(first, again)
    assert not np.allclose(np.sort(first, axis=0), np.sort(other, axis=0))


def test_factors_span_what_principal_components_span(points, tmp_path):
    """Small penalties and columns of mean 0: the best plane for the training rows, by PCA. Codes are ridge's."""
    method = "factorization:rank=2,code_l2=0.01,l2=1e-4"
    summary, test, train, model = trained(points, tmp_path / "run", method)
    factors = np.asarray(model.model, float)  # (p, K)
    codes = np.linalg.solve(factors.T @ factors + 0.01 * np.eye(2), factors.T @ test.T).T
    cost = 0.5 * ((test - codes @ factors.T) ** 2).sum(axis=1) + 0.005 * (codes**2).sum(axis=1)
    assert summary["test_objective"]["mean"] == pytest.approx(cost.mean() + 1e-4 * (factors**2).sum(), abs=1e-6)
    found, _ = np.linalg.qr(factors)
    best = PCA(2).fit(train - train.mean(axis=0)).components_.T
    assert np.linalg.svd(found.T @ best)[1].min() > 0.98


def test_numbers_of_clusters_are_compared(points, tmp_path):
    few, many = "k-means:clusters=1", "k-means:clusters=3"
    text = invoke("compare", few, many, "--data", points, *FLAGS, "--out", tmp_path / "c")
    assert "test objective" in text
    one, three = (
        json.loads((tmp_path / "c" / name / "summary.json").read_text())["test_objective"]["mean"]
        for name in ("k-means-clusters-1", "k-means-clusters-3")
    )
    assert three < one / 2


def test_labels_are_asked_of_methods_that_need_them(points, tmp_path):
    flags = ["--data", points, "--client-column", "site"]
    assert "give --label-column" in refused("run", "fedem", *flags)
    assert "k-means learn without labels, fedem with" in refused("compare", "k-means", "fedem", *flags)
    mixed = refused("compare", "k-means:clusters=2", "gaussian-mixture", "k-means", *flags)
    assert "k-means and gaussian-mixture minimise different objectives" in mixed
    assert "it has no column 'sit'" in refused("run", "k-means", "--data", points, "--client-column", "sit")
