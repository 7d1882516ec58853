"""The reference solution, against scikit-learn, closed forms and other minimisers."""

import jax
import numpy as np
import pytest
import small_problems
from sklearn.linear_model import LogisticRegression, PoissonRegressor, Ridge
from sklearn.svm import LinearSVC

import majorant as mj
from majorant import models
from majorant.objectives import (
    apfl2,
    custom,
    fully_personal,
    global_value,
    losses,
    mixture,
    multi_task,
    reference,
    reference_solution,
    residual,
    suboptimality,
    traditional,
    weight_sharing,
)

L2 = 0.02
EQUAL = (20, 20, 20, 20)


def pooled(data):
    """The samples of all clients that train, with the constant feature, and their labels."""
    train = data.train.take(np.flatnonzero(~data.unseen))
    x = train.x.reshape(len(train.y), -1).astype(float)
    return np.hstack([x, np.ones((len(x), 1))]), train.y


def theirs(name, x, y):
    """The same minimiser by scikit-learn; with equal sizes F is the mean over all samples plus the L2 term."""
    n = len(y)
    strict = {"fit_intercept": False, "tol": 1e-12, "max_iter": 10_000}
    estimator = {
        "least_squares": Ridge(alpha=n * L2, fit_intercept=False),
        "logistic": LogisticRegression(C=1 / (n * L2), **strict),
        "softmax": LogisticRegression(C=1 / (n * L2), **strict),
        "poisson": PoissonRegressor(alpha=L2, **strict),
        "squared_hinge": LinearSVC(C=1 / (n * L2), dual=False, **strict),
    }[name]
    return np.atleast_2d(estimator.fit(x, y).coef_)


@pytest.mark.parametrize(
    ("name", "task", "classes"),
    [
        ("least_squares", "regression", 2),
        ("logistic", "classification", 2),
        ("softmax", "classification", 3),
        ("poisson", "counts", 2),
        ("squared_hinge", "classification", 2),
    ],
)
def test_traditional_is_what_scikit_learn_fits(name, task, classes):
    data = small_problems.problem(task, sizes=EQUAL, classes=classes)
    found = reference_solution(traditional(data, loss=name, l2=L2), data)
    assert found.gradient_norm <= 1e-10
    ours = np.vstack([found.w["weight"], found.w["bias"]]).T
    np.testing.assert_allclose(ours, theirs(name, *pooled(data)), atol=1e-5)


def test_shared_slopes_and_personal_intercepts():
    """Weight sharing with all but the bias shared: ridge regression with an indicator of each client."""
    data = small_problems.problem()
    ids, m = np.flatnonzero(~data.unseen), 3
    found = reference_solution(weight_sharing(data, personal=["bias"], l2=L2), data)
    matrix, right = np.zeros((3 + m, 3 + m)), np.zeros(3 + m)
    for place, client in enumerate(ids):
        x, y = data.train.client(client)
        design = np.hstack([x.astype(float), np.tile(np.eye(m)[place], (len(x), 1))])
        penalty = L2 * np.diag([1.0] * 3 + list(np.eye(m)[place]))
        matrix += (design.T @ design / len(x) + penalty) / m
        right += design.T @ y / len(x) / m
    expected = np.linalg.solve(matrix, right)
    np.testing.assert_allclose(m**-0.5 * found.w["weight"][:, 0], expected[:3], atol=1e-8)
    np.testing.assert_allclose(found.beta["bias"][:, 0], expected[3:], atol=1e-8)


@pytest.mark.parametrize("loss", ["huber", "squared_hinge", "poisson"])
def test_losses_without_smooth_curvature(loss):
    """Newton's method reaches the minimum also where the second derivative jumps or has no bound."""
    task = {"huber": "regression", "poisson": "counts"}.get(loss, "classification")
    data = small_problems.problem(task)
    assert reference_solution(mixture(data, loss=loss, lambda_=0.3, l2=1e-3), data).gradient_norm <= 1e-10


@pytest.fixture(scope="module")
def solved():
    """Data, an objective, and its solution by Newton's method with second derivatives."""
    data = small_problems.problem("classification")
    objective = multi_task(data, lambda_=0.3, l2=0.01)
    return data, objective, reference_solution(objective, data)


def test_conjugate_gradients_agree(solved, monkeypatch):
    data, objective, by_arrow = solved
    monkeypatch.setattr(reference, "LARGEST", 0)
    by_products = reference_solution(objective, data)
    assert by_products.gradient_norm <= 1e-10
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-7), by_arrow[:2], by_products[:2])


def test_free_directions():
    """Without a pull the shared part is arbitrary, and without L2 few samples leave directions free."""
    data = small_problems.problem(sizes=(2, 3, 3, 2))
    found = reference_solution(mixture(data, lambda_=0.0, l2=0.0), data)
    assert found.gradient_norm <= 1e-10
    assert abs(found.value) < 1e-12


def test_values():
    """F is the mean over clients that train of their mean losses; padding and unseen clients leave no trace."""
    data = small_problems.problem()
    objective = fully_personal(data, l2=0.0)
    beta = {"weight": np.ones((3, 3, 1)), "bias": np.arange(3.0)[:, None]}
    expected = []
    for place, client in enumerate((0, 2, 3)):
        x, y = data.train.client(client)
        expected.append(0.5 * np.mean((x.astype(float).sum(axis=1) + place - y) ** 2))
    np.testing.assert_allclose(global_value(objective, data, (), beta), np.mean(expected), rtol=1e-12)


def test_suboptimality(solved):
    data, objective, best = solved
    assert abs(suboptimality(objective, data, best.w, best.beta)) <= 1e-14
    moved = jax.tree.map(lambda leaf: leaf + 0.1, best.beta)
    assert suboptimality(objective, data, best.w, moved, reference=best) > 1e-4


def test_what_has_no_reference():
    data = small_problems.problem("classification")
    with pytest.raises(ValueError, match="not convex"):
        reference_solution(traditional(data, model=models.mlp(data, hidden=(4,))), data)
    separable = small_problems.problem("classification", sizes=(2, 2, 2, 2))
    with pytest.raises(ValueError, match="larger l2"):
        reference_solution(fully_personal(separable, l2=0.0), separable, tolerance=1e-15, steps=20)
    assert losses.poisson().curvature == np.inf


def test_custom_with_a_quadratic():
    """f_m = (w − id)²/2 + (β − w)²/2 has its minimum at the mean id."""
    data = small_problems.problem()
    objective = custom(
        data,
        lambda w, beta, batch, id: 0.5 * (w - id) ** 2 + 0.5 * (beta - w) ** 2,
        init=lambda key: np.zeros(()),
        init_personal=lambda key: np.zeros(()),
        predict=lambda model, x: x[:, 0],
        convex=True,
    )
    found = reference_solution(objective, data)
    np.testing.assert_allclose(found.w, np.mean([0, 2, 3]))
    np.testing.assert_allclose(found.beta, found.w)


@pytest.mark.parametrize("make", [lambda data: weight_sharing(data, personal=["bias"]), residual])
def test_an_objective_serves_in_both_precisions(make):
    """What JAX remembers of an objective's constants from single precision must not spoil double precision."""
    data = small_problems.problem("classification")
    objective = make(data)
    jax.eval_shape(objective.init, jax.random.key(0))
    jax.eval_shape(objective.init_personal, jax.random.key(0))
    model = lambda x: objective.predict(objective.deploy(*both(objective), 0), x)
    jax.eval_shape(model, data.train.x)
    assert reference_solution(objective, data).gradient_norm < 1e-10


def both(objective):
    """A start of both blocks."""
    return objective.init(jax.random.key(0)), objective.init_personal(jax.random.key(0))


def test_a_client_is_handed_its_own_slot():
    """Blends with shares of their own: at the minimum every client deploys its fully personal model, whatever α is."""
    data = mj.data.synthetic_mixture(clients=3, dimension=3, seed=0)
    objective = apfl2(data, alpha=[0.2, 0.5, 0.7], l2=L2)
    found = reference_solution(objective, data)
    alone = reference_solution(fully_personal(data, l2=L2), data)
    for m in range(3):
        with jax.enable_x64(True):
            beta, own = jax.tree.map(lambda leaf, m=m: leaf[m], (found.beta, alone.beta))
            deployed = objective.deploy(found.w, beta, np.asarray(m))
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-6), deployed, own)


def test_an_objective_of_your_own_is_convex_only_if_you_say_so():
    data = mj.data.synthetic_mixture(clients=3, dimension=3, seed=0)
    mine = custom(
        data,
        lambda w, beta, batch, slot: batch.mean(batch.y * (batch.x @ w)),
        init=lambda key: np.zeros(3),
        predict=lambda model, x: x @ model[0],
    )
    assert not mine.convex
    with pytest.raises(ValueError, match="not convex"):
        reference_solution(mine, data)
