"""Trade-offs: shortest combinations against SciPy, dominance against moocore, and fronts of models."""

import jax
import jax.numpy as jnp
import moocore
import numpy as np
import pytest
from scipy.optimize import minimize
from sklearn.metrics import f1_score

import majorant as mj
import zoo
from majorant import criteria, pareto
from majorant.core import Server
from majorant.engines.simulator import Snapshot
from majorant.pareto import front as front_module
from majorant.pareto.front import Front, Point, between_neighbours

DATA = zoo.problem()
MODEL = mj.models.linear(DATA)
ONE_STEP = mj.local_sgd(1.0, steps=1, batch_size=None)


def scipys_weights(gram, lower, upper):
    count = len(gram)
    return minimize(
        lambda w: w @ gram @ w,
        np.full(count, 1 / count),
        jac=lambda w: 2 * gram @ w,
        bounds=[(lower, upper)] * count,
        constraints={"type": "eq", "fun": lambda w: w.sum() - 1, "jac": lambda w: np.ones(count)},
        method="SLSQP",
        options={"ftol": 1e-15, "maxiter": 1000},
    ).x


@pytest.mark.parametrize("bounds", [(0.0, 1.0), (0.1, 0.3)])
def test_the_shortest_combination_is_scipys(bounds):
    """Gradients on one side of a plane: the combination is not 0."""
    rng = np.random.default_rng(1)
    gradients = rng.normal(size=(6, 8)) * rng.uniform(0.2, 3, size=(6, 1)) + 0.5
    gram = gradients @ gradients.T
    weights = np.asarray(jax.jit(pareto.min_norm)(jnp.asarray(gram, jnp.float32), *bounds))
    best = scipys_weights(gram, *bounds)
    np.testing.assert_allclose(weights, best, atol=1e-3)
    assert weights.sum() == pytest.approx(1, abs=1e-5)
    assert weights @ gram @ weights == pytest.approx(best @ gram @ best, rel=1e-4)
    if bounds == (0.0, 1.0):
        assert pareto.certificate(gradients) == pytest.approx(np.sqrt(best @ gram @ best), rel=1e-4)


def test_the_certificate_is_zero_where_gradients_surround_zero():
    gradients = np.array([[1.0, 0.0], [-0.5, 1.0], [-0.5, -2.0]])
    assert pareto.certificate({"a": gradients[:, :1], "b": gradients[:, 1:]}) < 1e-5
    weights, direction = pareto.shortest(np.array([[2.0, 0.0], [0.0, 1.0]], np.float32))
    np.testing.assert_allclose(weights, [0.2, 0.8], atol=1e-5)
    np.testing.assert_allclose(direction, [0.4, 0.8], atol=1e-5)
    for bad in (np.zeros((0, 2)), 3.0, {"a": np.zeros((2, 1)), "b": np.zeros((3, 1))}):
        with pytest.raises(ValueError, match="gradients"):
            pareto.certificate(bad)


@pytest.mark.parametrize("dimensions", [2, 3])
def test_dominance_and_hypervolume_are_those_of_moocore(dimensions):
    points = np.random.default_rng(dimensions).uniform(size=(40, dimensions)).round(1)  # with ties
    mask = pareto.nondominated(points)
    np.testing.assert_array_equal(mask, moocore.is_nondominated(points, keep_weakly=True))
    reference = np.full(dimensions, 0.8)
    assert pareto.hypervolume(points, reference) == pytest.approx(moocore.hypervolume(points, ref=reference))


def test_the_knee_and_the_spread():
    x = np.linspace(0, 1, 11)
    circle = np.stack([1 - np.sin(x * np.pi / 2), 1 - np.cos(x * np.pi / 2)], axis=1)
    assert pareto.knee(circle * [10, 1]) == 5
    assert pareto.knee(np.concatenate([circle, [[0.9, 0.9]]])) == 5
    assert pareto.spread(circle) == pytest.approx(0, abs=1e-9)
    uneven = np.array([[0, 1], [0.25, 0.75], [1, 0]])  # distances 1 and 3: |d − 2| / 2 = 1/2
    assert pareto.spread(uneven) == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: pareto.hypervolume([[1.0, 2.0]], [0.5, 3.0]), "nothing is dominated"),
        (lambda: pareto.hypervolume([[1.0, 2.0]], [3.0]), "2 finite coordinates"),
        (lambda: pareto.nondominated([1.0, 2.0]), "array"),
        (lambda: pareto.knee([[np.nan, 1.0]]), "finite"),
        (lambda: pareto.spread([[0.0, 1.0], [1.0, 0.0]]), "three points"),
        (lambda: pareto.spread([[np.nan, 1.0], [1.0, np.nan]]), "three points"),
        (lambda: pareto.hypervolume([[np.nan, 1.0]], [2.0, 2.0]), "finite coordinates"),
        (lambda: pareto.hypervolume([[1.0, 2.0]], [np.nan, 3.0]), "2 finite coordinates"),
        (lambda: pareto.hypervolume([[1.0, 2.0]], "large"), "2 finite coordinates"),
        (lambda: pareto.hypervolume([[1.0, 2.0], [1.0]], [3.0, 3.0]), "as many for each point"),
        (lambda: pareto.min_norm(jnp.ones((2, 3))), r"\(K, K\), got \(2, 3\)"),
        (lambda: pareto.min_norm(jnp.eye(2), 0.0, 0.1), "sum to 1"),
        (lambda: pareto.min_norm(jnp.eye(2), 0.9, 1.0), "sum to 1"),
        (lambda: pareto.min_norm(jnp.eye(2), jnp.array([0.6, 0.0]), 0.5), "sum to 1"),
        (lambda: pareto.duality_gap(lambda t: t**2, jnp.zeros(2), [1.0]), "each objective"),
        (lambda: mj.pareto_front(MODEL, DATA, criteria.l1(), weights=[0.0, 1.0]), "less than 1"),
        (lambda: mj.pareto_front(MODEL, DATA, criteria.l1(), weights=[-0.1, 0.5]), "at least 0"),
        (lambda: mj.pareto_front(MODEL, DATA, criteria.l1(), weights=[0.5, 0.5]), "two different"),
        (lambda: mj.pareto_front(MODEL, DATA, []), "no criteria"),
        (lambda: mj.pareto_front(MODEL, DATA, criteria.l1(), refine=-1), "refine"),
        (lambda: mj.pareto_front(MODEL, DATA, [criteria.l1()] * 2, criteria_weights=[0.5, 0.1]), "sum to 1"),
    ],
)
def test_bad_input(make, words):
    with pytest.raises(ValueError, match=words):
        make()


def test_a_front_of_models(monkeypatch):
    """Convex and trained to convergence: every point is stationary, none is dominated, and trade-offs are monotone."""
    calls = []
    monkeypatch.setattr(front_module, "simulate", lambda *a, **k: calls.append(k) or mj.simulate(*a, **k))
    options = {"rounds": 120, "local": ONE_STEP}
    front = mj.pareto_front(MODEL, DATA, criteria.squared_norm(), weights=[0.9, 0.1, 0.3], refine=3, **options)
    assert len(front) == 6
    assert not front.dominated
    assert [len(call["grid"]["lambda"]) for call in calls] == [3, 3]  # all at once, then those in between
    fresh = Snapshot(Server((), {}), (), {})
    warm = calls[1]["resume"](fresh).server.value
    lower = max(w for w in (0.1, 0.3) if w < calls[1]["grid"]["lambda"][2])
    start = next(point for point in front if point.weight == lower)
    jax.tree.map(lambda a, b: np.testing.assert_array_equal(a[2], b), warm, start.params)
    loss, norm = front.values.T
    assert (np.diff(loss) > 0).all()
    assert (np.diff(norm) < 0).all()
    assert {0.1, 0.3, 0.9} < {point.weight for point in front}
    assert max(point.certificate for point in front) < 1e-3
    for point in front:
        assert point.criteria["squared_norm"] == pytest.approx(point.norm**2 / 2, rel=1e-4)
        said = np.asarray(front.predict(point, DATA.test.x)).argmax(axis=1)
        assert point.accuracy == pytest.approx((said == DATA.test.y).mean())
        assert point.macro_f1 == pytest.approx(f1_score(DATA.test.y, said, average="macro"))
    run = mj.simulate(
        mj.weighted_sum(MODEL, criteria.squared_norm(), weight=0.3, local=ONE_STEP),
        DATA,
        rounds=120,
        evaluate_every=120,
    )
    single = next(point for point in front if point.weight == 0.3)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-6), single.params, run.server.value)
    losses = run.scores[0].values["train_loss"][~DATA.unseen]
    assert single.loss == pytest.approx(losses.mean(), rel=1e-4)
    assert front.hypervolume() == pytest.approx(
        moocore.hypervolume(front.values, ref=front.values.max(axis=0) + 0.1 * np.ptp(front.values, axis=0))
    )
    assert front.pick() is front.pick(knee=True) is front[pareto.knee(front.values)]


def small_front():
    values = [(0.0, 0.1, 4.0), (0.5, 0.4, 2.0), (0.75, 0.8, 1.0)]
    return Front(MODEL, tuple(Point(w, a, {"l1": b}, 0.5, 0.5, 0.0, b / 2, ()) for w, a, b in values), ())


def test_picking_within_bounds():
    front = small_front()
    assert front.pick(max_norm=1.2).weight == 0.5
    assert front.pick(limits={"l1": 1.5}).weight == 0.75
    assert front.pick(limits={"l1": 5.0}).weight == 0.0
    for options, words in [
        ({"max_norm": 0.1}, "least values"),
        ({"limits": {"l2": 1.0}}, "no criterion 'l2'"),
        ({"knee": True, "max_norm": 1.0}, "not both"),
        ({"knee": False}, "say which"),
    ]:
        with pytest.raises(ValueError, match=words):
            front.pick(**options)


def test_new_weights_go_into_the_widest_gaps():
    """Normalised, the gaps are 0.79 and 0.66: the first, the second, then a half of the first."""
    new, start = between_neighbours(small_front().points, 3)
    assert new == [0.125, 0.25, 0.625]
    assert [point.weight for point in start] == [0.0, 0.0, 0.5]
