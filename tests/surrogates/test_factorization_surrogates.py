"""Factorizations as surrogates: MM-1 and MM-2, and the answers of scikit-learn and SciPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize
import sklearn.cluster
import sklearn.decomposition

import majorant as mj
from compiling import quickly
from majorant.core import ClientData
from majorant.data import with_missing
from majorant.solvers import Batch, whole
from majorant.surrogates import (
    dictionary_learning,
    gaussian_map,
    huber_regression,
    k_means,
    lasso_codes,
    matrix_factorization,
    nonnegative_factorization,
)

RNG = np.random.default_rng(0)
X = RNG.normal(size=(12, 5))
TABLE = with_missing(np.where(RNG.random((12, 5)) < 0.4, np.nan, X))
TARGETS = X @ [1.0, -2.0, 0.0, 1.0, 0.5] + 0.5 + RNG.standard_t(1, 12)
FACTORIZATION = {"code_l2": 0.1, "l2": 0.1}


@pytest.fixture(autouse=True)
def double_precision():
    with jax.enable_x64(True):
        yield


def batch(x, y=None):
    y = np.zeros(len(x)) if y is None else y
    return whole(ClientData(jnp.asarray(x, float), jnp.asarray(y, float), jnp.asarray(len(x)), jnp.asarray(0)))


def random_statistic(size, features, seed=0):
    rng = np.random.default_rng(seed)
    codes = rng.normal(size=(20, size))
    return codes.T @ codes / 20, rng.normal(size=(features, size))


@pytest.mark.parametrize(
    ("surrogate", "data"),
    [
        (dictionary_learning(5, 3, sparsity=0.1, l2=0.2), X),
        (
            dictionary_learning(
                5, 3, sparsity=0.1, constraint="unit-ball", positive_codes=True, positive_dictionary=True
            ),
            np.abs(X),
        ),
        (matrix_factorization(5, 2, **FACTORIZATION), TABLE),
        (matrix_factorization(5, 2, **FACTORIZATION, kind="imputation"), TABLE),
        (k_means(5, 3), X),
        (huber_regression(5), (X, TARGETS)),
    ],
    ids=["dictionary", "unit ball, positive", "per item", "imputation", "k-means", "huber"],
)
def test_promises(surrogate, data):
    with jax.enable_x64(False):
        print(mj.surrogates.check_surrogate(surrogate, data, points=2).raise_if_wrong())


@pytest.mark.parametrize("positive", [False, True])
def test_lasso_codes_are_scikit_learns(positive):
    rng = np.random.default_rng(1)
    dictionary, x = rng.normal(size=(10, 6)), rng.normal(size=(12, 10))
    dictionary[:, 4] = dictionary[:, 3] + 0.05 * rng.normal(size=10)  # two similar atoms
    dictionary[:, 5] = 0  # and one that is nothing
    codes = lasso_codes(jnp.asarray(dictionary), jnp.asarray(x), 0.3, positive=positive)
    lasso = sklearn.linear_model.Lasso(0.3 / 10, fit_intercept=False, positive=positive, tol=1e-14, max_iter=100_000)
    np.testing.assert_allclose(codes, lasso.fit(dictionary, x.T).coef_, atol=1e-6)
    assert 12 < (np.asarray(codes) == 0).sum() < codes.size  # the last atom's, and others


def test_lasso_in_single_precision_and_side_by_side():
    rng = np.random.default_rng(2)
    dictionary = rng.normal(size=(8, 5))
    x = rng.normal(size=(3, 4, 8)) * np.array([1e-3, 1.0, 1e3])[:, None, None]  # clients of different sizes
    weights = np.array([1e-3, 1.0, 1e3])
    alone = [lasso_codes(jnp.asarray(dictionary), jnp.asarray(a), w) for a, w in zip(x, weights, strict=True)]
    single = jnp.asarray(dictionary, jnp.float32), jnp.asarray(x, jnp.float32), jnp.asarray(weights, jnp.float32)
    found = jax.vmap(lasso_codes, in_axes=(None, 0, 0))(*single)
    assert found.dtype == jnp.float32
    for one, other in zip(found, alone, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-3 * np.abs(other).max())


def test_the_dictionary_minimises():
    gram, cross = random_statistic(3, 4)
    height = lambda flat: quadratic(flat.reshape(4, 3), gram, cross) + 0.2 * (flat**2).sum()
    best = scipy.optimize.minimize(height, np.zeros(12), tol=1e-12).x.reshape(4, 3)
    surrogate = dictionary_learning(4, 3, sparsity=0.1, l2=0.2)
    np.testing.assert_allclose(jax.jit(surrogate.minimize)(statistic(gram, cross)), best, atol=1e-5)
    np.testing.assert_allclose(best @ (gram + 0.4 * np.eye(3)), cross, atol=1e-5)  # the errata's equation for (28)


def quadratic(theta, gram, cross):
    return np.trace(theta @ gram @ theta.T) / 2 - (cross * theta).sum()


def statistic(gram, cross):
    rows, columns = np.triu_indices(len(gram))
    packed = gram[rows, columns] * np.where(rows == columns, 1, np.sqrt(2))
    return {"gram": jnp.asarray(packed), "cross": jnp.asarray(cross)}


def test_atoms_in_the_unit_ball_are_those_of_projected_gradient_and_of_blocks():
    gram, cross = random_statistic(3, 4)
    gram[2], gram[:, 2], cross[:, 2] = 0, 0, 0  # an atom that nobody uses
    cross[:, 1] *= 0.1  # and one inside of the ball
    surrogate = dictionary_learning(4, 3, sparsity=0.1, constraint="unit-ball")
    found = np.asarray(jax.jit(surrogate.minimize)(statistic(gram, cross)))
    by_gradient, by_blocks = np.zeros((4, 3)), np.zeros((4, 3))
    into = lambda theta: theta / np.maximum(np.linalg.norm(theta, axis=0), 1)
    for _ in range(2000):
        by_gradient = into(by_gradient - (by_gradient @ gram - cross) / np.linalg.norm(gram, 2))
        for k in range(2):  # Mairal et al. 2010, Algorithm 2
            by_blocks[:, k] += (cross[:, k] - by_blocks @ gram[:, k]) / gram[k, k]
            by_blocks[:, k] /= max(np.linalg.norm(by_blocks[:, k]), 1)
    np.testing.assert_allclose(found, by_gradient, atol=1e-8)
    np.testing.assert_allclose(found, by_blocks, atol=1e-8)
    lengths = np.linalg.norm(found, axis=0)
    assert (lengths > 0.999).tolist() == [True, False, False]
    assert (lengths == 0).tolist() == [False, False, True]


def descend(surrogate, params, samples, steps):
    step = lambda params, _: (surrogate.minimize(surrogate.statistic(params, samples)), None)
    return jax.jit(lambda p: jax.lax.scan(step, p, None, length=steps)[0])(params)


def test_nonnegative_parts():
    gram, cross = random_statistic(3, 4, seed=3)
    surrogate = nonnegative_factorization(4, 3, l2=0.05, code_l2=1e-2)
    root = np.linalg.cholesky(gram + 0.1 * np.eye(3))
    rows = [scipy.optimize.nnls(root.T, np.linalg.solve(root, row))[0] for row in cross]
    found = jax.jit(surrogate.minimize)(statistic(gram, cross))
    np.testing.assert_allclose(found, rows, atol=1e-8)
    assert (np.asarray(rows) == 0).any()


def test_nonnegative_factorization_is_no_worse_than_scikit_learns():
    x = np.abs(X) @ np.abs(RNG.normal(size=(5, 4)))
    n, l2 = len(x), 0.01
    surrogate = nonnegative_factorization(4, 2, l2=l2, code_l2=2 * l2)
    theta = np.abs(RNG.normal(size=(4, 2)))
    start = np.asarray(surrogate.predict(jnp.asarray(theta), jnp.asarray(x)))
    # scikit-learn: ½ ‖X − HW‖² + alpha_W p/2 ‖H‖² + alpha_H n/2 ‖W‖², where ours, times n, has κ/2 ‖H‖² and n η ‖θ‖²
    model = sklearn.decomposition.NMF(
        2, init="custom", alpha_W=2 * l2 / 4, alpha_H=2 * l2, l1_ratio=0.0, tol=1e-8, max_iter=5000
    )
    h = model.fit_transform(x, W=start.copy(), H=theta.T.copy())
    w = model.components_
    theirs = (((x - h @ w) ** 2).sum() / 2 + l2 * (h**2).sum()) / n + l2 * (w**2).sum()
    ours = surrogate.objective(descend(surrogate, jnp.asarray(theta), batch(x), 500), batch(x))
    assert ours <= theirs + 1e-6


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_a_step_of_k_means_is_lloyds():
    start = X[:3]
    surrogate = k_means(5, 3, l2=1e-12, start=start)
    one = sklearn.cluster.KMeans(3, init=start, n_init=1, max_iter=1, algorithm="lloyd").fit(X)
    params = surrogate.init(jax.random.key(0))
    stepped = descend(surrogate, params, batch(X), 1)
    np.testing.assert_allclose(stepped, one.cluster_centers_, atol=1e-9)
    np.testing.assert_array_equal(surrogate.predict(stepped, X), one.predict(X))


def test_an_empty_cluster_goes_to_the_prior():
    surrogate = k_means(5, 3, prior=np.full(5, 7.0), start=[X[0], X[1], np.full(5, 100.0)])
    stepped = descend(surrogate, surrogate.init(jax.random.key(0)), batch(X), 1)
    np.testing.assert_allclose(stepped[2], 7)


def test_both_majorants_of_missing_entries_rest_at_the_same_point():
    per_item, imputation = (matrix_factorization(5, 2, **FACTORIZATION, kind=k) for k in ("per-item", "imputation"))
    samples = batch(TABLE)
    params = descend(per_item, per_item.init(jax.random.key(1)).astype(float), samples, 2000)
    np.testing.assert_allclose(descend(imputation, params, samples, 1), params, atol=1e-7)
    assert np.abs(np.asarray(params)).max() > 0.1


@pytest.mark.parametrize("scale", [0.0, 1e-6, 1e6])
def test_projected_garbage_in_single_precision_has_a_finite_minimiser(scale):
    """The ridge is far below the rounding errors of large statistics."""
    surrogate = matrix_factorization(100, 4, code_l2=1.0, l2=1e-6)
    rng = np.random.default_rng(0)
    garbage = {"gram": rng.normal(size=(100, 10)) * scale, "cross": rng.normal(size=(100, 4)) * scale}
    garbage = {name: jnp.asarray(a, jnp.float32) for name, a in garbage.items()}
    assert np.isfinite(jax.jit(lambda s: surrogate.minimize(surrogate.project(s)))(garbage)).all()


def test_rows_without_entries_say_nothing():
    surrogate = matrix_factorization(5, 2, **FACTORIZATION)
    empty = batch(with_missing(np.full((3, 5), np.nan)))
    statistic = jax.jit(surrogate.statistic)(jnp.ones((5, 2)), empty)
    assert all((np.asarray(a) == 0).all() for a in jax.tree.leaves(statistic))


@pytest.mark.parametrize("intercept", [True, False])
def test_huber_regression_is_scipys(intercept):
    delta, l2 = 0.5, 0.01
    design = np.c_[X, np.ones(len(X))] if intercept else X

    def objective(theta):
        loss = delta**2 * scipy.special.huber(1.0, (TARGETS - design @ theta) / delta)
        return loss.mean() + l2 * (theta[:5] ** 2).sum()

    best = scipy.optimize.minimize(objective, np.zeros(design.shape[1]), tol=1e-12).x
    surrogate = huber_regression(5, delta=delta, l2=l2, intercept=intercept)
    found = descend(surrogate, surrogate.init(jax.random.key(0)), batch(X, TARGETS), 2000)
    flat = np.append(found["weights"], found["bias"]) if intercept else found["weights"]
    np.testing.assert_allclose(flat, best, atol=1e-4)


@pytest.mark.parametrize("surrogate", [huber_regression(5, l2=0.1), gaussian_map(np.zeros(5), np.eye(5), ridge=0.1)])
def test_what_a_penalty_says_is_what_is_minimised(surrogate):
    """The gradient of the penalised surrogate is 0 at its minimiser, with a penalty that is not too small to see."""

    @quickly
    def slope(start):
        s = surrogate.statistic(start, batch(X, TARGETS))
        product = lambda params: sum(
            jax.tree.leaves(jax.tree.map(lambda a, b: (a * b).sum(), s, surrogate.phi(params)))
        )
        penalised = lambda params: surrogate.psi(params) - product(params) + surrogate.penalty(params)
        return jax.grad(penalised)(surrogate.minimize(s))

    for part in jax.tree.leaves(slope(surrogate.init(jax.random.key(0)))):
        np.testing.assert_allclose(part + part.T, 0, atol=1e-9)  # of symmetric matrices one half is read


def test_shares_weigh_rows():
    """Rows of weight 0 are not there, and a weight of 2 is a row twice."""
    surrogate = dictionary_learning(5, 3, sparsity=0.1, l2=0.2)
    mean = jax.jit(lambda rows: jax.tree.leaves(surrogate.statistic(jnp.asarray(X[:3].T), rows)))
    weighted = Batch(jnp.asarray(X[:3]), jnp.zeros(3), jnp.array([2.0, 0.0, 1.0]), jnp.asarray(3))
    repeated = weighted._replace(x=jnp.asarray(X[[0, 0, 2]]), weight=jnp.ones(3))
    for a, b in zip(mean(weighted), mean(repeated), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-10)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: dictionary_learning(5, 0, sparsity=0.1, l2=0.1), "atoms must be"),
        (lambda: dictionary_learning(5, 2, sparsity=-0.1, l2=0.1), "sparsity must be"),
        (lambda: dictionary_learning(5, 2, sparsity=0.1), "needs l2 > 0"),
        (lambda: dictionary_learning(5, 2, sparsity=0.1, constraint="sphere"), "unit-ball"),
        (lambda: nonnegative_factorization(5, 2, code_l2=0.0), "code_l2 must be"),
        (lambda: matrix_factorization(5, 2, code_l2=0.1, l2=0.1, kind="column"), "per-item"),
        (lambda: matrix_factorization(5, 2, code_l2=0.0, l2=0.1), "code_l2 must be"),
        (lambda: k_means(5, 2, start=[[0.0]]), r"shape \(2, 5\)"),
        (lambda: k_means(5, 2, l2=0.0), "l2 must be"),
        (lambda: huber_regression(5, delta=0.0), "delta must be"),
        (lambda: k_means(4, 2).predict(jnp.zeros((2, 4)), jnp.asarray(X)), "5 features, the surrogate has 4"),
        (lambda: matrix_factorization(5, 2, **FACTORIZATION).predict(jnp.zeros((5, 2)), X), "with_missing"),
    ],
)
def test_bad_input_is_refused(make, words):
    with pytest.raises(ValueError, match=words):
        make()


def test_what_stands_at_a_missing_entry_does_not_matter():
    surrogate, params = matrix_factorization(5, 2, **FACTORIZATION), jnp.asarray(RNG.normal(size=(5, 2)))
    other = np.array(TABLE)
    other[:, 0] = np.where(TABLE[:, 1] > 0, TABLE[:, 0], 1e3)
    assert (other != TABLE).any()
    np.testing.assert_array_equal(surrogate.predict(params, other), surrogate.predict(params, TABLE))
