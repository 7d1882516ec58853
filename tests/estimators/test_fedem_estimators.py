"""FedEM as scikit-learn estimators: scikit-learn's own checks, the simulator's numbers, groups, and new clients."""

import functools
import pickle

import numpy as np
import pytest
import sklearn
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LinearRegression, LogisticRegression, Ridge
from sklearn.model_selection import GridSearchCV, GroupKFold, KFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator

import majorant as mj
import zoo
from majorant.engines import programs
from majorant.estimators import FedEMClassifier, FedEMRegressor, mixture_training
from majorant.estimators.base import encode_groups
from majorant.estimators.target_scale import possible_gain, residual_scale
from majorant.solvers.smoothness import stable_step

CLIENTS, ROWS = 12, 60
KINDS = np.array([[2.0, -1.0, 0.5], [-2.0, 1.0, 0.5]])  # what is true of one kind is nearly the opposite of the other


FEW_ROUNDS = pytest.mark.filterwarnings("ignore:FedEMRegressor has not converged")


@FEW_ROUNDS
@pytest.mark.parametrize("estimator", [FedEMClassifier(), FedEMRegressor()], ids=lambda e: type(e).__name__)
def test_scikit_learns_own_checks(estimator):
    checks = check_estimator(estimator, on_skip=None)
    assert {check["check_name"] for check in checks if check["status"] == "skipped"} <= {"check_array_api_input"}
    assert len(checks) > 40


@functools.cache
def problem(outcome="label"):
    """Rows of two kinds of clients, mixed: X, y, names of the clients, for training and for testing."""
    rng = np.random.default_rng(0)
    owner = rng.permutation(np.repeat(np.arange(CLIENTS), 2 * ROWS))
    X = rng.normal(size=(len(owner), 3))
    kind = (rng.random(len(owner)) < np.where(owner % 2 == 0, 0.9, 0.1)).astype(int)
    score = (X * KINDS[kind]).sum(axis=1)
    y = np.where(score > 0, "yes", "no") if outcome == "label" else 3 * score + rng.normal(size=len(owner))
    names = np.array([f"clinic {t:02}" for t in range(CLIENTS)])[owner]
    half = np.arange(len(owner)) < CLIENTS * ROWS
    return (X[half], y[half], names[half]), (X[~half], y[~half], names[~half])


@functools.cache
def fitted():
    return FedEMClassifier(2, max_iter=40, random_state=3).fit(*problem()[0])


def test_padded_programs_give_the_simulators_numbers():
    """Where a part of the clients takes part, too, which is drawn among the real ones. None of our code is in `run`."""
    X, y, names = problem()[0]
    estimator = FedEMClassifier(2, max_iter=5, participation=0.5, random_state=7).fit(X, y, names)
    codes = (y == "yes").astype(np.int32)
    data = zoo.federated([(X[names == t].astype(np.float32), codes[names == t]) for t in np.unique(names)])
    local = mj.local_sgd(estimator.learning_rate_, epochs=1, batch_size=32)
    algorithm = mj.fedem(mj.models.linear(data), components=2, local=local)
    run = mj.simulate(algorithm, data, rounds=5, seed=7, participation=mj.participation.uniform(0.5))
    (layer,) = run.server.value
    close = functools.partial(np.testing.assert_allclose, rtol=1e-3, atol=1e-4)
    close(estimator.component_coef_, np.swapaxes(layer["weight"], 1, 2))
    close(estimator.component_intercept_, layer["bias"])
    close(estimator.mixture_weights_, run.snapshot.clients.pi[0])
    assert [line["round"] for line in estimator.history_] == [line["round"] for line in run.history]
    close([line["loss"] for line in estimator.history_], [line["loss"] for line in run.history])
    X, y, names = problem()[1]
    new = names == "clinic 03"
    expected = run.personalize((X[new], (y[new] == "yes").astype(int))).mixture_weights
    close(estimator.personalize(X[new], y[new]).mixture_weights_[0], expected, atol=1e-3)


@FEW_ROUNDS
def test_without_groups_a_mixture_is_trained_centrally():
    """With all rows in one batch, a round is an E-step, the new weights, and a gradient step on each component."""
    X, y, _ = problem("value")[0]
    options = {"batch_size": None, "noise": 1.0, "random_state": 1}
    first, second = (FedEMRegressor(2, max_iter=k, **options).fit(X, y) for k in (1, 2))
    w, b, (pi,) = first.component_coef_[:, 0], first.component_intercept_[:, 0], first.mixture_weights_
    gap = X @ w.T + b - y[:, None]  # (n, M)
    joint = pi * np.exp(-0.5 * gap**2 + 0.5 * (gap**2).min(axis=1, keepdims=True))
    q = joint / joint.sum(axis=1, keepdims=True)
    lr = first.learning_rate_
    np.testing.assert_allclose(second.mixture_weights_[0], q.mean(axis=0), atol=1e-4)
    np.testing.assert_allclose(second.component_coef_[:, 0], w - lr * (q * gap).T @ X / len(y), atol=1e-4)
    np.testing.assert_allclose(second.component_intercept_[:, 0], b - lr * (q * gap).mean(axis=0), atol=1e-4)
    assert second.groups_.tolist() == [0]
    np.testing.assert_array_equal(second.predict(X), second.predict(X, groups=np.zeros(len(X))))


@FEW_ROUNDS
def test_large_data_goes_through_the_simulator(monkeypatch):
    """With the same result; what counts as large is made small here."""
    X, y, names = problem("value")[0]
    estimator = FedEMRegressor(2, max_iter=4, local_epochs=2, random_state=1)
    small = clone(estimator).fit(X, y, groups=names)
    monkeypatch.setattr(mixture_training, "SMALL", 0)
    large = clone(estimator).fit(X, y, groups=names)
    for name in ("component_coef_", "component_intercept_", "mixture_weights_"):
        np.testing.assert_allclose(getattr(small, name), getattr(large, name), rtol=1e-3, atol=1e-4)
    assert [line["round"] for line in small.history_] == [line["round"] for line in large.history_]


def test_similar_data_shares_compiled_programs(monkeypatch):
    """Fewer rows, fewer clients, more features: nothing is compiled anew."""
    X, y, names = problem()[0]
    fitted()
    largest = max(np.unique(names), key=lambda name: (names == name).sum())
    some = (names == largest) | (names > "clinic 03")
    monkeypatch.setattr(programs, "compiled", lambda lowered: pytest.fail("compiles"))
    again = clone(fitted()).fit(np.tile(X[some], 3), y[some], groups=names[some])
    assert len(again.groups_) < CLIENTS
    assert again.component_coef_.shape == (2, 1, 9)


def test_groups_help():
    """The classifier of each client is nearly as good as the truth; one for all cannot be much better than a coin."""
    (X, y, _), (X_test, y_test, names_test) = problem()
    shared = LogisticRegression(solver="newton-cholesky").fit(X, y).score(X_test, y_test)
    own = fitted().score(X_test, y_test, groups=names_test)
    assert shared < 0.65
    assert own > shared + 0.2
    even = np.array([int(name[-2:]) % 2 == 0 for name in fitted().groups_])
    assert abs(fitted().mixture_weights_[even].mean(axis=0) - fitted().mixture_weights_[~even].mean(axis=0)).min() > 0.5


def test_regression_with_groups():
    (X, y, names), (X_test, y_test, names_test) = problem("value")
    estimator = FedEMRegressor(2, random_state=0).fit(X, y, groups=names)
    assert estimator.score(X_test, y_test, groups=names_test) > estimator.score(X_test, y_test) + 0.3
    found = estimator.component_coef_[:, 0] / 3
    found = found[np.argsort(-found[:, 0])]
    np.testing.assert_allclose(found, KINDS, atol=0.2)


def test_targets_may_have_any_unit():
    """One component is scikit-learn's linear regression, in the units of y; without scaling R² was negative.

    Several components in another unit of y are the same components in that unit.
    """
    (X, y, names), _ = problem("value")
    y = 4000 + 500 * (X @ [2.0, -1.0, 0.5]) + 20 * y
    truth = LinearRegression().fit(X, y)
    one = FedEMRegressor(1, batch_size=None, random_state=0).fit(X, y)
    assert one.score(X, y) == pytest.approx(truth.score(X, y), abs=1e-4)
    np.testing.assert_allclose(one.component_coef_[0, 0], truth.coef_, rtol=0.01)
    np.testing.assert_allclose(one.predict(X), Ridge(1e-3).fit(X, y).predict(X), atol=0.01 * y.std())
    small, large = (FedEMRegressor(2, max_iter=30, random_state=0).fit(X, k * y, names) for k in (1, 1000))
    np.testing.assert_allclose(large.predict(X, names), 1000 * small.predict(X, names), rtol=1e-3)
    np.testing.assert_allclose(large.mixture_weights_, small.mixture_weights_, atol=1e-2)
    np.testing.assert_allclose(
        large.personalize(X[:40], 1000 * y[:40]).mixture_weights_,
        small.personalize(X[:40], y[:40]).mixture_weights_,
        atol=0.05,
    )
    assert large.noise_ == pytest.approx(1000 * small.noise_)


def test_fits_that_have_not_converged_are_told():
    X = problem("value")[0][0]
    skewed = X * [1.0, 1.0, 1000.0]  # the step suits the third feature, and the others hardly move
    with pytest.warns(ConvergenceWarning, match="has not converged after 20 rounds: .* variance. Standardise"):
        FedEMRegressor(1, max_iter=20, random_state=0).fit(skewed, X @ [2.0, -1.0, 0.5])


def test_unknown_groups_use_the_average_of_the_weights():
    X, _, names = problem()[1]
    model = fitted()
    sizes = np.unique(problem()[0][2], return_counts=True)[1]
    average = sizes @ model.mixture_weights_ / sizes.sum()
    score = X @ model.component_coef_[:, 0].T + model.component_intercept_[:, 0]
    expected = (1 / (1 + np.exp(-score))) @ average
    np.testing.assert_allclose(model.predict_proba(X)[:, 1], expected)
    mixed = np.where(np.arange(len(X)) % 2, names, "elsewhere")
    np.testing.assert_allclose(model.predict_proba(X, groups=mixed)[::2, 1], expected[::2])
    np.testing.assert_allclose(model.predict_proba(X, groups=mixed)[1::2], model.predict_proba(X, groups=names)[1::2])


def test_new_clients():
    X, y, names = problem()[1]
    new = names == "clinic 05"
    model = clone(fitted()).fit(*problem()[0])
    before = model.mixture_weights_.copy()
    own = model.personalize(X[new], y[new])
    np.testing.assert_array_equal(model.mixture_weights_, before)
    np.testing.assert_allclose(own.mixture_weights_[0], model.mixture_weights_[5], atol=0.2)
    assert model.add_group("clinic 99", X[new], y[new]) is model
    assert model.groups_[-1] == "clinic 99"
    np.testing.assert_array_equal(model.predict_proba(X, groups=["clinic 99"] * len(X)), own.predict_proba(X))
    model.add_group("clinic 00", X[new], y[new])
    np.testing.assert_array_equal(model.mixture_weights_[0], own.mixture_weights_[0])
    assert len(model.groups_) == len(model.mixture_weights_) == CLIENTS + 1
    with pytest.raises(ValueError, match=r"'maybe'.* were not in the training data"):
        model.personalize(X[:2], ["maybe", "no"])
    with pytest.raises(ValueError, match="missing"):
        model.add_group(None, X[new], y[new])


def test_three_classes():
    """Probabilities are a mixture of softmax regressions; new weights maximise the likelihood of labels of any kind."""
    X, _, names = problem()[0]
    y = np.array([10, 20, 30])[np.argmax(X * np.where(names > "clinic 05", 1, -1)[:, None], axis=1)]
    model = FedEMClassifier(2, max_iter=30, random_state=0).fit(X, y, groups=names)
    assert model.score(X, y, groups=names) > 0.9
    assert model.learning_rate_ == fitted().learning_rate_ / 2  # softmax may be twice as steep as the logistic loss
    some = np.flatnonzero((names == "clinic 00") | (names == "clinic 11"))
    raised = np.exp(np.einsum("nd,mkd->nmk", X[some], model.component_coef_) + model.component_intercept_)
    probabilities = raised / raised.sum(axis=-1, keepdims=True)
    own = model.personalize(X[some], y[some])
    pi = own.mixture_weights_[0]
    np.testing.assert_allclose(own.predict_proba(X[some]), np.einsum("m,nmk->nk", pi, probabilities), atol=1e-12)
    likely = probabilities[np.arange(len(some)), :, y[some] // 10 - 1]
    assert (pi > 0.2).all()
    np.testing.assert_allclose((likely / (likely @ pi)[:, None]).mean(axis=0), 1, atol=1e-3)


def test_the_noise_of_targets_is_that_of_small_clients_too():
    """Six rows for three coefficients: half of the squares are left, and half of the degrees of freedom."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(3000, 2))
    y = 7 + x @ [3.0, -1.0] + 2.0 * rng.normal(size=3000)
    assert residual_scale(x, y, np.arange(3000) // 6) == pytest.approx(2.0, rel=0.05)


def test_a_missing_date_is_no_group():
    pandas = pytest.importorskip("pandas")
    for missing in (pandas.NaT, pandas.NA, None, float("nan"), np.nan):
        with pytest.raises(ValueError, match="groups has 1 missing values, the first in row 1"):
            encode_groups(np.array(["a", missing], object), 2)


def test_what_a_refit_could_gain_is_what_weighted_least_squares_gain():
    rng = np.random.default_rng(0)
    x, residuals, q = rng.normal(size=(40, 3)), rng.normal(size=(2, 40)) + 1, rng.dirichlet([0.3, 0.3], 40)
    fits = [LinearRegression().fit(x, r, sample_weight=own).predict(x) for r, own in zip(residuals, q.T, strict=True)]
    left = (q * np.square(residuals - np.stack(fits)).T).sum(axis=1).mean()
    assert possible_gain(x, residuals, q) == pytest.approx((q * residuals.T**2).sum(axis=1).mean() - left)


@FEW_ROUNDS
def test_the_automatic_step_follows_the_scale():
    X, y, names = problem()[0]
    order = np.argsort(names, kind="stable")
    sizes = np.unique(names, return_counts=True)[1]
    samples = mj.data.Ragged(X[order], y[order], np.concatenate([[0], np.cumsum(sizes)]))
    rows = np.split(np.column_stack([samples.x, np.ones(len(y))]), samples.offsets[1:-1])
    steepest = max(np.linalg.eigvalsh(part.T @ part / len(part))[-1] for part in rows)
    np.testing.assert_allclose(stable_step(samples, 0.5, None), 2 / steepest, rtol=0.05)
    assert stable_step(samples, 0.5, 8) < stable_step(samples, 0.5, None)
    pixels = np.random.default_rng(0).integers(0, 256, samples.x.shape).astype(np.uint8)
    as_fed = samples._replace(x=pixels / 255)  # models divide bytes by 255
    assert stable_step(samples._replace(x=pixels), 0.5, None) == pytest.approx(stable_step(as_fed, 0.5, None))
    wide = FedEMRegressor(1, max_iter=5, random_state=0).fit(1e4 * X, X[:, 0])
    assert np.isfinite(wide.component_coef_).all()


def test_pipeline_and_grid_search_with_groups():
    X, y, names = problem()[0]
    with sklearn.config_context(enable_metadata_routing=True):
        model = FedEMClassifier(max_iter=30, random_state=0)
        model = model.set_fit_request(groups=True).set_score_request(groups=True).set_predict_request(groups=True)
        pipeline = make_pipeline(StandardScaler(), model)
        search = GridSearchCV(pipeline, {"fedemclassifier__n_components": [1, 2]}, cv=KFold(2))
        search.fit(100 * X + 7, y, groups=names)
        assert search.best_params_ == {"fedemclassifier__n_components": 2}
        assert search.best_estimator_[-1].groups_.tolist() == np.unique(names).tolist()
        assert (search.best_estimator_.predict(100 * X + 7, groups=names) == y).mean() > 0.75


def test_splitting_by_groups_needs_no_routing():
    """Groups then go to the splitter alone, and the estimator sees one client."""
    X, y, names = problem()[0]
    search = GridSearchCV(FedEMClassifier(max_iter=5, random_state=0), {"n_components": [2]}, cv=GroupKFold(2))
    search.fit(X, y, groups=names)
    assert search.best_estimator_.groups_.tolist() == [0]


def test_a_fitted_estimator_is_plain_arrays():
    again = pickle.loads(pickle.dumps(fitted()))
    X, _, names = problem()[1]
    np.testing.assert_array_equal(again.predict(X, groups=names), fitted().predict(X, groups=names))
    arrays = {name for name, value in vars(fitted()).items() if name.endswith("_") and isinstance(value, np.ndarray)}
    assert arrays >= {"classes_", "groups_", "mixture_weights_", "average_weights_", "component_coef_"}


def test_groups_may_be_anything_hashable():
    """Ids of several types, or tuples, name the same clients as numbers would."""
    numbers = np.array([2, 0, 1, 0, 2])
    for names in (["a", "b", "c"], [(1, "x"), (1, "y"), (2, "x")], [1, "b", (3, "c")], [0.5, 1.5, 2.5]):
        groups = [names[k] for k in numbers]
        found, owner = encode_groups(groups, 5)
        assert [found.tolist()[k] for k in owner] == groups
        assert len(found) == 3
    with pytest.raises(ValueError, match="not hashable"):
        encode_groups([[1], [2]], 2)


def test_random_states():
    X, y, _ = problem()[0]
    fit = lambda state: FedEMClassifier(2, max_iter=5, random_state=state).fit(X, y).component_coef_
    np.testing.assert_array_equal(fit(5), fit(5))
    np.testing.assert_array_equal(fit(np.random.RandomState(5)), fit(np.random.RandomState(5)))
    assert np.abs(fit(5) - fit(6)).max() > 1e-3
    assert np.abs(fit(None) - fit(None)).max() > 1e-3


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        (["a", "b"], "2 groups for 6 rows"),
        ([1.0, 2.0, float("nan")] * 2, "2 missing values, the first in row 2"),
        (["a", None, "b"] * 2, "2 missing values, the first in row 1"),
        (np.zeros((6, 2)), r"one dimension, got one of shape \(6, 2\)"),
        ("client", "one entry for each row"),
    ],
)
def test_bad_groups_are_refused(groups, message):
    X, y = np.eye(6), np.arange(6) % 2
    with pytest.raises(ValueError, match=message):
        FedEMClassifier().fit(X, y, groups=groups)
    with pytest.raises(ValueError, match=message):
        fitted().predict(np.zeros((6, 3)), groups=groups)


@pytest.mark.parametrize(
    "options",
    [
        {"n_components": 0},
        {"max_iter": 0},
        {"local_epochs": 0},
        {"batch_size": 0},
        {"participation": 0.0},
        {"learning_rate": -1.0},
        {"learning_rate": "fast"},
    ],
)
def test_bad_parameters_are_refused(options):
    with pytest.raises(ValueError, match=next(iter(options))):
        FedEMClassifier(**options).fit(np.eye(4), [0, 1, 0, 1])


def test_divergence_is_explained():
    X, y, _ = problem("value")[0]
    with pytest.raises(RuntimeError, match="Lower learning_rate"):
        FedEMRegressor(2, max_iter=100, learning_rate=1e6).fit(X, y)


@pytest.mark.parametrize("classes", [2, 3])
def test_a_classifier_that_has_not_converged_warns(classes):
    """Years or weights far from 0 make descent slow: the score is then that of a coin, and somebody must say so."""
    rng = np.random.default_rng(0)
    rows, groups = rng.normal(size=(300, 3)), np.arange(300) % 5
    labels = np.digitize(rows[:, 0] + 0.3 * rng.normal(size=300), [0.0] if classes == 2 else [-0.5, 0.5])
    with pytest.warns(ConvergenceWarning, match=r"FedEMClassifier has not converged after 100 rounds.*Standardise"):
        far = FedEMClassifier(random_state=0).fit(rows + 2000, labels, groups)
    near = FedEMClassifier(random_state=0).fit(rows, labels, groups)  # warnings are errors here
    assert far.score(rows + 2000, labels, groups=groups) < near.score(rows, labels, groups=groups) - 0.2
