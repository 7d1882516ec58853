"""The multi-objective paper's experiments: splits, scores, tables of made-up paths, fronts, and the theorem's bound."""

import jax
import numpy as np
import pytest
from majorant_reproductions.tradeoffs import chebyshev as fair
from majorant_reproductions.tradeoffs import images as t
from majorant_reproductions.tradeoffs import theory
from majorant_reproductions.tradeoffs.agents import PAIRS, Agents, Path, accuracy, agents, answers_of, macro_f1
from majorant_reproductions.tradeoffs.chebyshev import on_front, preferred
from majorant_reproductions.tradeoffs.collapse import Found, constant_answers, objectives, scores
from majorant_reproductions.tradeoffs.released import RELEASED
from scipy import stats
from scipy.optimize import minimize
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score, confusion_matrix, f1_score

import majorant as mj
from majorant.app.reproduce import Context, markdown
from majorant.models.base import Spec

RNG = np.random.default_rng(0)
IMAGES = np.arange(700).repeat(4).reshape(700, 2, 2, 1) % 251, RNG.integers(10, size=700).astype(np.int32)


@pytest.mark.parametrize("split", ["iid", "two-digits"])
def test_agents_have_their_sizes_and_share_no_image(split):
    x = np.arange(700, dtype=np.float32).reshape(700, 1)
    made = agents((x, IMAGES[1]), split, train=60, validation=20, published=600)
    assert made.data.train.sizes.tolist() == [60] * 5
    assert made.validation[0].shape == (5, 20, 1)
    used = np.concatenate([made.data.train.x.ravel(), made.validation[0].ravel()])
    assert len(set(used.tolist())) == 400
    assert used.max() < 600
    np.testing.assert_array_equal(made.test[0].ravel(), np.arange(600, 700))
    for i, pair in enumerate(PAIRS):
        own = set(made.data.train.client(i)[1].tolist()) | set(made.validation[1][i].tolist())
        assert own == (set(pair) if split == "two-digits" else set(range(10)))
    labels = IMAGES[1][made.data.train.x.ravel().astype(int)]
    np.testing.assert_array_equal(made.data.train.y, labels)


def test_agents_refuse_what_there_is_not():
    with pytest.raises(ValueError, match="ask for fewer"):
        agents(IMAGES, "two-digits", train=600, validation=20, published=600)
    with pytest.raises(ValueError, match="'iid' or 'two-digits'"):
        agents(IMAGES, "sorted", train=6, validation=2, published=600)


def test_scores_are_those_of_scikit_learn_also_where_labels_are_missing():
    for labels in (np.arange(10), np.array([2, 8]), np.array([4])):
        truth, said = RNG.choice(labels, 50), RNG.choice([2, 3, 8], 50)
        matrix = confusion_matrix(truth, said, labels=np.arange(10))
        assert accuracy(matrix) == pytest.approx(accuracy_score(truth, said))
        assert macro_f1(matrix) == pytest.approx(f1_score(truth, said, average="macro", zero_division=0))


def test_answers_are_counted_for_every_model_agent_and_class():
    made = agents((RNG.normal(size=(700, 3)), IMAGES[1]), "iid", train=10, validation=6, published=600)
    model = mj.models.softmax_regression(Spec((3,), 10))
    params = [model.init(jax.random.key(i)) for i in range(2)]
    validation, test = answers_of(model, made)(jax.tree.map(lambda *a: np.stack(a), *params))
    for i, own in enumerate(params):
        said = lambda x, own=own: np.asarray(model.predict(own, np.asarray(x, np.float32))).argmax(axis=1)
        np.testing.assert_array_equal(test[i], confusion_matrix(made.test[1], said(made.test[0]), labels=np.arange(10)))
        held = confusion_matrix(made.validation[1][3], said(made.validation[0][3]), labels=np.arange(10))
        np.testing.assert_array_equal(validation[i, 3], held)


def test_the_ways_to_run_an_experiment_are_those_of_the_errata():
    made = Agents(agents(IMAGES, "iid", train=6, validation=2, published=600).data, *[(np.zeros(1), np.zeros(1))] * 2)
    big = mj.data.FederatedData.from_arrays(np.zeros((20, 8, 8, 1), np.uint8), np.arange(20) % 10, np.zeros(20))
    for setting, ran in RELEASED.items():
        ways = {v.name: v for v in t.variants(setting)}
        assert ways["notebooks"].train == (9_600 if setting == "iid" else 8_000)
        for name, factor in {"Table 1's network": ran.factor, "text": t.PRINTED[setting]}.items():
            assert ways[name].options["criteria"].quadratic.factor == factor
        for way in ways.values():
            algorithm, model = t.build(way, made._replace(data=big))
            shapes = [k["weight"].shape[-1] for k in jax.eval_shape(model.init, jax.random.key(0))["convolutions"]]
            assert shapes == ([8, 16] if way.network == "released" else [32, 64])
            assert "lambda" in jax.eval_shape(algorithm.server.init, jax.random.key(0)).hyper


def made_up(right, seeds=3, rounds=(1, 10, 50)):
    """A path whose test accuracy at the end is ``right(λ, seed)``, in per mille."""
    wanted = np.array([[right(value, s) for s in range(seeds)] for value in t.LAMBDAS])
    confusion = np.zeros((len(rounds), *wanted.shape, 10, 10), int)
    confusion[..., 0, 0], confusion[..., 0, 1] = wanted, 1000 - wanted
    validation = np.repeat(confusion[:, :, :, None], 5, axis=3)
    return Path(np.array(rounds), validation, confusion, np.ones_like(wanted, float), np.zeros_like(wanted, float))


def test_tables_have_the_papers_numbers_beside_ours():
    path = made_up(lambda value, s: int(900 - 100 * value) + s)
    table = t.agents_table("here", "two-digits", "notebooks", path, t.LAMBDAS, "accuracy", True)
    assert table.columns[1:] == ["t = 1", "t = 10", "t = 50"]
    assert table.rows[0][3] == "0.8140 (0.7670)"
    test = t.lambda_table("here", "iid", {"notebooks": path}, t.LAMBDAS, True)
    assert test.rows[0][1] == "0.9837"
    assert test.rows[1][-1] == "0.8140 ± 0.0010"
    assert "| the paper: F1 | 0.9836 |" in markdown(test)
    assert "rejected" in markdown(t.lambda_table("", "iid", {"a": path._replace(rejected=path.norm)}, t.LAMBDAS, False))


def test_a_trend_is_a_t_test_over_seeds():
    real = made_up(lambda value, s: int(800 - 200 * value) + 5 * s * (value > 0.6))
    noise = made_up(lambda value, s: int(800 + 60 * np.sin(40 * value + 10 * s)), seeds=8)
    for path, significant in ((real, True), (noise, False)):
        values = accuracy(path.test[-1])
        found = t.trend(t.LAMBDAS, values)
        slopes = [stats.linregress(t.LAMBDAS, one).slope for one in values.T]
        assert found.slope == pytest.approx(np.mean(slopes))
        assert found.p == pytest.approx(stats.ttest_1samp(slopes, 0).pvalue)
        assert (found.p < 0.01) == significant
    assert np.isnan(t.trend(t.LAMBDAS, np.full((6, 4), 0.5)).p)
    theirs = stats.linregress(t.LAMBDAS, t.PAPER_LAMBDAS["two-digits"]["accuracy"])
    assert f"{theirs.slope:+.3f} ± {theirs.stderr:.3f}" in markdown(
        t.trends("here", "two-digits", {"notebooks": noise}, t.LAMBDAS, True)
    )


def test_the_sweep_runs_all_penalties_as_one(monkeypatch):
    seen = []

    def fake(context, images, setting, variant, lambdas):
        seen.extend([variant, lambdas])
        count = len(lambdas)
        path = made_up(lambda value, s: 500)
        take = lambda a, axis: np.repeat(a.take([0], axis=axis), count, axis=axis)
        return path._replace(test=take(path.test, 1), norm=take(path.norm, 0))

    monkeypatch.setattr(t, "trained", fake)
    table = t.sweep(Context(False, None, print), "MNIST")
    variant, lambdas = seen
    assert variant.options["criteria"].quadratic.factor == t.REFERENCE
    assert len(lambdas) == 17
    assert [row[0] for row in table.rows][-1] == "c = 0.1: ‖Θ‖"
    assert lambdas[-1] == pytest.approx(0.87)
    for c, value, lam in [(1e-4, 0.25, lambdas[1]), (1e-2, 0.87, lambdas[12])]:
        assert lam * t.REFERENCE / (1 - lam) == pytest.approx(value * c / (1 - value))


def test_the_point_of_constant_answers_is_the_least_f_without_weights():
    labels = np.repeat(np.arange(4), [10, 20, 30, 40])
    value, norm = constant_answers(labels, 0.9, 0.1)
    losses = lambda b: 0.1 * np.mean(np.log(np.exp(b).sum()) - b[labels]) + 0.045 * (b**2).sum()
    best = minimize(losses, np.zeros(4), tol=1e-10)
    assert value == pytest.approx(best.fun, abs=1e-7)
    assert norm == pytest.approx(np.linalg.norm(best.x), abs=1e-3)


def test_collapse_says_where_zero_is_not_the_minimiser():
    cold = Found(np.array([[0.3, 0.3], [0.1, 0.1]]), np.array([[0.1, 0.9], [0.1, 0.1]]), np.ones((2, 2)), ())
    warm = cold._replace(objective=np.array([[0.2, 0.25], [0.2, 0.2]]), accuracy=np.array([[0.9, 0.9], [0.1, 0.3]]))
    found, flat = {"cold": cold, "warm": warm}, [0.28, 0.05]
    first = objectives([0.9, 0.95], [0.29, 0.06], flat, found)
    assert [row[-1] for row in first.rows] == ["warm", "constant answers"]
    assert "found: 0.9." in first.notes[1]
    second = scores([0.9, 0.95], found, flat)
    assert second.rows[0][1].endswith("1 collapsed")
    assert second.notes[0] == "The largest λ at which some run trains: 0.9 (cold), 0.95 (warm)."
    assert second.notes[1].endswith(": 0.9.")


@pytest.fixture(scope="module")
def problem():
    with jax.enable_x64(True):
        yield theory.theorem_problem(samples=20)


def test_minimisers_are_those_of_scikit_learn(problem):
    lam, x = 0.5, problem.data.train.x
    with jax.enable_x64(True):
        found = problem.unravel(theory.minimisers(problem, [lam, 0.9])[0])
        with_one = np.concatenate([x, np.ones((len(x), 1))], axis=1)  # the penalty is on the bias as well
        fit = LogisticRegression(C=(1 - lam) / lam / len(x), fit_intercept=False, tol=1e-12, max_iter=10_000)
        fit.fit(with_one, problem.data.train.y)
    ours = np.concatenate([np.asarray(found[0]["weight"]).ravel(), np.asarray(found[0]["bias"])])
    np.testing.assert_allclose(ours, fit.coef_.ravel(), atol=1e-5)


@pytest.mark.parametrize("batch", [None, 4])
def test_the_theorem_holds_and_points_within_rounds_are_the_agents_own(problem, batch):
    with jax.enable_x64(True):
        best = theory.minimisers(problem, theory.THEOREM_LAMBDAS)
        found = theory.sides(problem, best, 2, batch, 8, 2)
    assert found.mismatch < 1e-12
    assert (found.left > 0).all()
    assert (found.left <= found.right).all()
    assert (found.left > 1e-3 * found.right).all()


def test_the_concave_front_is_pareto_optimal_and_preferences_balance():
    points = on_front(np.linspace(-1, 1, 50))
    assert mj.tradeoffs.nondominated(points).all()
    for w in (0.2, 0.7):
        first, second = on_front(preferred(w))
        assert w * first == pytest.approx((1 - w) * second)


def test_agents_with_labels_of_their_own_share_no_image(monkeypatch):
    drawn = RNG.integers(255, size=(3_000, 28, 28, 1)).astype(np.uint8), RNG.integers(10, size=3_000)
    monkeypatch.setitem(fair.LOADERS, "MNIST", lambda: drawn)
    data = fair.own_labels(40, seed=1)
    assert data.train.sizes.tolist() == data.test.sizes.tolist() == [40] * 10
    assert len(np.unique(np.concatenate([data.train.x, data.test.x]), axis=0)) == 800
    np.testing.assert_allclose(np.concatenate([data.train.x, data.test.x]).std(), 1, atol=0.05)
    common = [np.bincount(data.train.client(c)[1], minlength=10).max() for c in range(10)]
    assert np.mean(common) > 15  # of 40; with all labels alike about 8 would be the same
    model = mj.models.linear(data)
    for method in fair.fair_methods(model).values():
        known = jax.eval_shape(method.algorithm.server.init, jax.random.key(0)).hyper
        assert set(method.grid) <= set(known)
        assert method.grid["lr"] == fair.LEARNING_RATES
    params = [model.init(jax.random.key(i)) for i in range(2)]
    judged = fair.judge(model, data, jax.tree.map(lambda *a: np.stack(a), *params))
    x, y = data.test.client(7)
    assert judged.accuracy[1, 7] == pytest.approx((np.asarray(model.predict(params[1], x)).argmax(axis=1) == y).mean())
    x, y = data.train.client(3)
    assert judged.loss[0, 3] == pytest.approx(float(model.losses(params[0], x, y).mean()), rel=1e-5)
    assert fair.gap_of(model, data, params[0], np.eye(10)[3]) >= judged.loss[0].max() - judged.loss[0, 3]


def test_methods_choose_by_training_losses_and_are_compared_on_the_same_partitions():
    nan = float("nan")
    judged = fair.Judged(np.array([[0.1, 0.9], [0.6, 0.7], [nan, 0.1]]), np.array([[0.9, 0.5], [0.7, 0.6], [1.0, 1.0]]))
    settings = [{"hyper": {"lr": value}} for value in (0.1, 0.3, 1.0)]
    assert fair.outcome(judged, settings, lambda losses: losses.max(axis=1)) == (
        1,
        fair.Outcome(0.6, pytest.approx(0.65), 0.7, pytest.approx(0.65), "0.3"),
    )
    assert fair.outcome(judged, settings, lambda losses: losses.mean(axis=1))[0] == 0
    runs = {"FedAvg": (0.5, 0.6), "AFL, mean of rounds": (0.8, 0.7)}
    found = {name: [fair.Outcome(worst, 0.9, 0.4, 0.2, "1") for worst in each] for name, each in runs.items()}
    table = fair.fair_table(found, np.array([0.1, 0.3]), 5)
    assert table.rows[1][1:3] == ["0.7500 ± 0.0707", "+0.2000 ± 0.1000, 2 of 2"]
    assert "loss is below 0.2000" in table.notes[-1]
