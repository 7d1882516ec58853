"""Trade-offs: shortest combinations against SciPy, dominance against moocore, and fronts of models."""

from dataclasses import replace
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import moocore
import numpy as np
import pytest
from majorant_reproductions.tradeoffs.chebyshev import on_front, preferred, two_bumps
from scipy.optimize import minimize, nnls
from sklearn.metrics import f1_score

import majorant as mj
import zoo
from compiling import quickly
from majorant import tradeoffs
from majorant.core import Server
from majorant.tradeoffs import criteria, sweep
from majorant.tradeoffs.chebyshev import State
from majorant.tradeoffs.choice import held_out
from majorant.tradeoffs.dominance import front_of
from majorant.tradeoffs.front import DivergedWarning, Front, between
from majorant.tradeoffs.judge import WORST, Judge, Point, Setting
from majorant.tradeoffs.scaling import as_is, scaled_to_loss

DATA = zoo.training()
ALL = zoo.problem()  # with a client that does not train
MODEL = mj.models.linear(DATA)
ONE_STEP = mj.local_sgd(1.0, steps=1, batch_size=None)
TWO = [criteria.l1(), criteria.squared_norm()]


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
    weights = np.asarray(jax.jit(tradeoffs.min_norm)(jnp.asarray(gram, jnp.float32), *bounds))
    best = scipys_weights(gram, *bounds)
    np.testing.assert_allclose(weights, best, atol=1e-3)
    assert weights.sum() == pytest.approx(1, abs=1e-5)
    assert weights @ gram @ weights == pytest.approx(best @ gram @ best, rel=1e-4)
    if bounds == (0.0, 1.0):
        assert tradeoffs.certificate(gradients) == pytest.approx(np.sqrt(best @ gram @ best), rel=1e-4)


@pytest.mark.parametrize("apart", [0.0, 0.3])
def test_the_shortest_combination_of_gradients_of_very_different_lengths(apart):
    """Six orders between them, as between a loss and a stiff criterion; SciPy solves min ‖Gλ‖² + M² (1 − Σλ)²."""
    rng = np.random.default_rng(0)
    gradients = rng.normal(size=(12, 20)) * 10 ** rng.uniform(-3, 3, size=(12, 1)) + apart
    much = 1e3 * np.abs(gradients).max()
    exact = nnls(np.vstack([gradients.T, np.full(12, much)]), np.append(np.zeros(20), much), maxiter=10_000)[0]
    exact = np.linalg.norm(exact / exact.sum() @ gradients)
    assert tradeoffs.certificate(gradients) == pytest.approx(exact, rel=1e-3)
    weights = np.asarray(tradeoffs.min_norm(jnp.asarray(gradients @ gradients.T, jnp.float32)), float)
    assert weights.sum() == pytest.approx(1, abs=1e-5)
    assert np.linalg.norm(weights @ gradients) == pytest.approx(exact, rel=1e-2)


@pytest.mark.parametrize("scale", [1e-25, 1.0, 1e6, 1e25])
def test_a_certificate_of_any_scale(scale):
    assert tradeoffs.certificate(np.array([[0.1, 0.02], [-min(scale, 1e9), 0.0]])) < 0.0201
    both = np.array([[2.0, 0.0], [0.0, 1.0]], np.float32) * np.float32(scale)
    assert tradeoffs.certificate(both) == pytest.approx(scale * np.hypot(0.4, 0.8), rel=1e-5)
    assert tradeoffs.certificate(np.array([[scale, 0.0], [0.0, 0.0]])) == pytest.approx(0, abs=1e-12 * scale)


def test_the_certificate_is_zero_where_gradients_surround_zero():
    gradients = np.array([[1.0, 0.0], [-0.5, 1.0], [-0.5, -2.0]])
    assert tradeoffs.certificate({"a": gradients[:, :1], "b": gradients[:, 1:]}) < 1e-5
    weights, direction = tradeoffs.shortest(np.array([[2.0, 0.0], [0.0, 1.0]], np.float32))
    np.testing.assert_allclose(weights, [0.2, 0.8], atol=1e-5)
    np.testing.assert_allclose(direction, [0.4, 0.8], atol=1e-5)
    for bad in (np.zeros((0, 2)), 3.0, {"a": np.zeros((2, 1)), "b": np.zeros((3, 1))}):
        with pytest.raises(ValueError, match="gradients"):
            tradeoffs.certificate(bad)


@pytest.mark.parametrize("dimensions", [2, 3])
def test_dominance_and_hypervolume_are_those_of_moocore(dimensions):
    points = np.random.default_rng(dimensions).uniform(size=(40, dimensions)).round(1)  # with ties
    mask = tradeoffs.nondominated(points)
    np.testing.assert_array_equal(mask, moocore.is_nondominated(points, keep_weakly=True))
    reference = np.full(dimensions, 0.8)
    assert tradeoffs.hypervolume(points, reference) == pytest.approx(moocore.hypervolume(points, ref=reference))


def test_the_knee_and_the_spread():
    x = np.linspace(0, 1, 11)
    circle = np.stack([1 - np.sin(x * np.pi / 2), 1 - np.cos(x * np.pi / 2)], axis=1)
    assert tradeoffs.knee(circle * [10, 1]) == 5
    assert tradeoffs.knee(np.concatenate([circle, [[0.9, 0.9]]])) == 5
    agreeing = np.stack([1 - x, x, 3 * x], axis=1)  # the first point is the best for two of three
    assert tradeoffs.knee(agreeing) == 3  # (1 − x)² + 2 x² is least at 1/3
    assert tradeoffs.spread(circle) == pytest.approx(0, abs=1e-9)
    uneven = np.array([[0, 1], [0.25, 0.75], [1, 0]])  # distances 1 and 3: |d − 2| / 2 = 1/2
    assert tradeoffs.spread(uneven) == pytest.approx(0.5)
    assert tradeoffs.spread(np.repeat(uneven, 3, axis=0)) == pytest.approx(0.5)
    corners = np.eye(3) * [5.0, 1.0, 1.0]
    assert tradeoffs.spread(corners) == pytest.approx(0)
    nearest = np.sqrt([0.5, 0.5, 0.5, 1.5])  # of three criteria: each point's to the nearest other one
    expected = np.abs(nearest - nearest.mean()).mean() / nearest.mean()
    assert tradeoffs.spread(np.concatenate([corners, [[2.5, 0.5, 0.0]]])) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: tradeoffs.hypervolume([[1.0, 2.0]], [0.5, 3.0]), "nothing is dominated"),
        (lambda: tradeoffs.hypervolume([[1.0, 2.0]], [3.0]), "2 finite coordinates"),
        (lambda: tradeoffs.nondominated([1.0, 2.0]), "array"),
        (lambda: tradeoffs.knee([[np.nan, 1.0]]), "finite"),
        (lambda: tradeoffs.spread([[0.0, 1.0], [1.0, 0.0]]), "three different points"),
        (lambda: tradeoffs.spread([[np.nan, 1.0], [1.0, np.nan]]), "three different points"),
        (lambda: tradeoffs.hypervolume([[np.nan, 1.0]], [2.0, 2.0]), "finite coordinates"),
        (lambda: tradeoffs.hypervolume([[1.0, 2.0]], [np.nan, 3.0]), "2 finite coordinates"),
        (lambda: tradeoffs.hypervolume([[1.0, 2.0]], "large"), "2 finite coordinates"),
        (lambda: tradeoffs.hypervolume([[1.0, 2.0], [1.0]], [3.0, 3.0]), "as many for each point"),
        (lambda: tradeoffs.min_norm(jnp.ones((2, 3))), r"\(K, K\), got \(2, 3\)"),
        (lambda: tradeoffs.min_norm(jnp.eye(2), 0.0, 0.1), "sum to 1"),
        (lambda: tradeoffs.min_norm(jnp.eye(2), 0.9, 1.0), "sum to 1"),
        (lambda: tradeoffs.min_norm(jnp.eye(2), jnp.array([0.6, 0.0]), 0.5), "sum to 1"),
        (lambda: tradeoffs.duality_gap(lambda t: t**2, jnp.zeros(2), [1.0]), "each objective"),
        (lambda: mj.pareto_front(MODEL, DATA, criteria.l1(), weights=[0.0, 1.0]), "less than 1"),
        (lambda: mj.pareto_front(MODEL, DATA, criteria.l1(), weights=[-0.1, 0.5]), "at least 0"),
        (lambda: mj.pareto_front(MODEL, DATA, criteria.l1(), weights=[0.5, 0.5]), "two different"),
        (lambda: mj.pareto_front(MODEL, DATA, []), "no criteria"),
        (lambda: mj.pareto_front(MODEL, DATA, criteria.l1), r"as in l1\(\), got function"),
        (lambda: mj.pareto_front(DATA, MODEL, criteria.l1()), "in this order, got FederatedData and Model"),
        (lambda: mj.pareto_front(MODEL, DATA, criteria.criterion(lambda p: jnp.nan)), "is nan at the initial"),
        (lambda: mj.pareto_front(MODEL, DATA, criteria.l1(), refine=-1), "refine"),
        (lambda: mj.pareto_front(MODEL, DATA, criteria.l1(), scale="norm"), "scale must be one of loss, none"),
        (lambda: mj.pareto_front(MODEL, DATA, [criteria.l1()] * 2, criteria_weights=[0.5, 0.1]), "sum to 1"),
        (lambda: mj.pareto_front(MODEL, DATA, TWO, criteria_weights=[[0.5, 0.5], [1.0]]), "2 criteria but 1 weights"),
        (lambda: mj.pareto_front(MODEL, DATA, TWO, criteria_weights=[]), "is empty"),
        (lambda: mj.pareto_front(MODEL, DATA, TWO, criteria_weights=[[0.5, 0.5], 1.0]), "mixes numbers and vectors"),
        (lambda: mj.pareto_front(MODEL, DATA, TWO, ramp=1.0), "ramp .* less than 1"),
        (lambda: mj.pareto_front(MODEL, DATA, TWO, scalarization="maximum"), "one of weighted-sum, chebyshev"),
        (lambda: mj.pareto_front(MODEL, DATA, TWO, scalarization="chebyshev", ramp=1.0), "ramp .* less than 1"),
        (lambda: mj.pareto_front(MODEL, DATA, TWO, scalarization="chebyshev", agents="equal"), "agents is of weighted"),
        (lambda: mj.pareto_front(MODEL, DATA, TWO, scalarization="chebyshev", reference=50.0), "dominates nothing"),
    ],
)
def test_bad_input(make, words, monkeypatch):
    monkeypatch.setattr(sweep, "simulate", lambda *a, **k: pytest.fail("training began"))
    with pytest.raises(ValueError, match=words):
        make()


def test_a_front_of_models(monkeypatch):
    """Convex and trained to convergence: every point is stationary, none is dominated, and trade-offs are monotone.

    Refined points have the start, the rounds and the ramp of the others: one of them is a single run of its λ.
    """
    calls = []
    monkeypatch.setattr(sweep, "simulate", lambda *a, **k: calls.append(k) or mj.simulate(*a, **k))
    options = {"rounds": 120, "local": ONE_STEP, "ramp": 0.3, "scale": "none"}
    front = mj.pareto_front(MODEL, DATA, criteria.squared_norm(), weights=[0.9, 0.1, 0.3], refine=3, **options)
    assert len(front) == 6
    assert not front.dominated
    assert [len(call["hyper"]["lambda"]) for call in calls] == [3, 3]  # all at once, then those in between
    refined = calls[1]["hyper"]["lambda"][0]
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
    made = mj.tradeoffs.weighted_sum(MODEL, criteria.squared_norm(), weight=refined, local=ONE_STEP, ramp=0.3)
    run = mj.simulate(made, DATA, rounds=120, evaluation=mj.Evaluation(every=120))
    single = next(point for point in front if point.weight == refined)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-6), single.params, run.server.value)
    losses = run.scores[0].values["train_loss"][~DATA.unseen]
    assert single.loss == pytest.approx(losses.mean(), rel=1e-4)
    assert single.worst_loss == pytest.approx(losses.max(), rel=1e-4)
    assert front.hypervolume() == pytest.approx(
        moocore.hypervolume(front.values, ref=front.values.max(axis=0) + 0.1 * np.ptp(front.values, axis=0))
    )
    assert front.pick() is front.pick(knee=True) is front[tradeoffs.knee(front.values)]
    assert repr(front) == "Front(6 points, 0 dominated, criteria ['squared_norm'])"
    with pytest.raises(ValueError, match="samples must have shape"):
        front.predict(front[0], DATA.test.x[: DATA.test.x.shape[1], :1])  # as many numbers as one sample has


def test_the_start_of_a_scaled_front_is_no_point_where_nobody_asked_for_it():
    """λ = 0 is trained to learn the criteria's scale, whatever the weights."""
    front = mj.pareto_front(
        MODEL, DATA, criteria.squared_norm(), weights=[0.1, 0.3], rounds=10, local=ONE_STEP, ramp=0.0
    )
    assert sorted(point.weight for point in (*front.points, *front.dominated)) == [0.1, 0.3]


def test_several_weights_of_the_criteria_are_one_program_and_the_fronts_of_each(monkeypatch):
    """Few rounds, so that a wrong path would show; refinement is of each path by itself, in a second program.

    λ = 0 is trained once for all.
    """
    calls = []
    monkeypatch.setattr(sweep, "simulate", lambda *a, **k: calls.append(k) or mj.simulate(*a, **k))
    options = {"weights": [0, 0.05, 0.3], "rounds": 10, "refine": 2, "local": ONE_STEP, "scale": "none"}
    vectors = [(0.8, 0.2), (0.1, 0.9)]
    together = mj.pareto_front(MODEL, DATA, TWO, criteria_weights=vectors, **options)
    assert [len(call["seeds"]) for call in calls] == [5, 4]
    found = {(p.criteria_weights, p.weight): p for p in (*together.points, *together.dominated)}
    assert len(found) == 9
    for vector in vectors:
        alone = mj.pareto_front(MODEL, DATA, TWO, criteria_weights=vector, **options)
        assert len(alone) + len(alone.dominated) == 5
        for point in (*alone.points, *alone.dominated):
            other = found[(vector if point.weight else vectors[0], point.weight)]
            jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-6), point.params, other.params)
            assert point.values == pytest.approx(other.values, rel=1e-4)
            assert point.certificate == pytest.approx(other.certificate, abs=1e-5)


def test_preferences_reach_the_middle_of_a_concave_front_which_weighted_sums_do_not():
    model, data, other = two_bumps()
    local = mj.local_sgd(0.05, steps=1, batch_size=None)
    options = {"weights": [0.4, 0.6], "rounds": 500, "local": local, "scale": "none"}
    bent = mj.pareto_front(model, data, other, scalarization="chebyshev", **options)
    for point in bent:  # (1 − λ) f₁ = λ f₂, but for the smoothing
        np.testing.assert_allclose(point.values, on_front(preferred(1 - point.weight)), atol=0.03)
        assert point.certificate < 1e-4
        assert point.values[0] == point.worst_loss
    sums = mj.pareto_front(model, data, other, **options)
    assert len(bent) == 2
    for point in sums:
        assert min(point.values) < 0.05


def test_the_certificate_of_a_min_max_point_needs_every_agents_gradient():
    """Gradients of agents and criterion by hand, with agents whose samples fill blocks unevenly."""
    judge = Judge(MODEL, criteria.coordinate(criteria.squared_norm()), ALL, judged_by=WORST)
    params = MODEL.init(jax.random.key(3))
    agents = np.flatnonzero(~ALL.unseen)
    mean_loss = quickly(jax.value_and_grad(lambda p, x, y: MODEL.losses(p, x, y).mean()))
    losses, gradients = zip(*(mean_loss(params, *ALL.train.client(i)) for i in agents), strict=True)
    point = judge.point(Setting(0.5, (1.0,), np.ones(len(ALL.unseen) + 1)), params)
    stacked = jax.tree.map(lambda *rows: np.stack(rows), *gradients, params)
    assert point.certificate == pytest.approx(tradeoffs.certificate(stacked), rel=1e-4)
    assert point.worst_loss == pytest.approx(max(map(float, losses)), rel=1e-5)
    assert point.values == [point.worst_loss, point.criteria["squared_norm"]]


def test_the_certificate_at_a_kink_is_a_proximal_step_on_what_the_model_was_trained_for():
    """Losses by samples for λ = 0.3 and, by Chebyshev scalarization, pulls of 6 clients (one unseen) and of S."""
    params, agents, sizes = MODEL.init(jax.random.key(3)), np.flatnonzero(~ALL.unseen), ALL.train.sizes
    judge = Judge(MODEL, criteria.coordinate(criteria.l1(0.5), step="implicit"), ALL, "samples")
    pulls = np.array([0.4, 0.2, 0.0, 0.6, 0.1, 0.3, 0.8])
    by_samples = sizes[agents] / sizes[agents].sum()
    mean_loss = quickly(jax.value_and_grad(lambda p, x, y: MODEL.losses(p, x, y).mean()))
    losses, slopes = zip(*(mean_loss(params, *ALL.train.client(i)) for i in agents), strict=True)
    flat = lambda tree: np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(tree)])
    theta, slopes = flat(params), np.array([flat(slope) for slope in slopes])
    weighed = {None: (0.7 * by_samples, 0.3), "pulls": (pulls[agents] / pulls.sum(), pulls[-1] / pulls.sum())}
    for kind, (weights, force) in weighed.items():
        point = judge.point(Setting(0.3, (1.0,), pulls if kind else None), params)
        z = theta - weights @ slopes
        moved = np.sign(z) * np.maximum(np.abs(z) - 0.5 * force, 0)
        assert point.certificate == pytest.approx(np.linalg.norm(theta - moved), rel=1e-4)
        assert point.loss == pytest.approx(by_samples @ np.array(losses))


def small_front():
    values = [(0.0, 0.1, 4.0), (0.5, 0.4, 2.0), (0.75, 0.8, 1.0)]
    points = tuple(Point(w, a, 9.0, {"l1": b}, (1.0,), 0.5, 0.5, 0.0, b / 2, ()) for w, a, b in values)
    return Front(MODEL, points, ())


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


def test_what_is_deployed_and_held_out():
    """The mean of the iterates where it is asked for; and samples of clients that trained."""
    zeros = jnp.zeros((1, 7))
    state = State(zeros, zeros, zeros, zeros, 2 + zeros, jnp.array([[5.0]]))
    run = SimpleNamespace(snapshot=SimpleNamespace(server=Server(jnp.array([[3.0]]), {}, state)))
    for output, value in {"average": 5.0, "last": 3.0}.items():
        (setting,), params = sweep.ends(run, [Setting(0.5, (1.0,))], output)
        assert params == value
        np.testing.assert_array_equal(setting.pulls, np.full(7, 2.0))
    params = MODEL.init(jax.random.key(0))
    (held,) = held_out(MODEL, ALL, [small_front()[0]._replace(params=params)], part="test")
    x, y = (np.concatenate(each) for each in zip(*map(ALL.test.client, np.flatnonzero(~ALL.unseen)), strict=True))
    assert held.loss == pytest.approx(float(MODEL.losses(params, x, y).mean()), rel=1e-5)
    assert held.accuracy == pytest.approx(float((MODEL.predict(params, x).argmax(axis=1) == y).mean()))


def test_models_that_are_the_same_are_one_point_of_the_front():
    """As where every λ gives the zero model: a front of two points, whose spread is not known."""
    values = [[0.1, 4.0], [0.7, 0.0], [0.7, 0.0], [0.9, 0.0], [0.7, 0.0]]
    assert front_of(values).tolist() == [True, True, False, False, False]
    front = small_front()
    assert np.isfinite(front.spread())
    assert np.isnan(Front(MODEL, front.points[:2], ()).spread())


def test_scales_make_the_knee_of_a_convex_front_half_way():
    """On loss = (1 − s)², S = s²: of the chord from (S, loss) = (1, 0) to (0, 1) the slope is −1, so c = 1.

    In other units of S the same λ train the same model: (1 − λ) (1 − s)² + λ c k s² is least at s = 1 − λ.
    """
    point = lambda loss, value: small_front()[0]._replace(loss=loss, criteria={"l1": value})
    for unit in (1.0, 500.0):
        (scale,) = scaled_to_loss(point(1.0, 7.0), point(0.0, unit))
        assert scale * unit == pytest.approx(1.0)
        for weight in (0.2, 0.5, 0.8):
            used = as_is(Setting(weight, (1.0,)), (scale,)).weight
            least = (1 - used) / (1 - used + used * unit)
            assert least == pytest.approx(1 - weight)
    assert scaled_to_loss(point(1.0, 7.0), point(2.0, 3.0)) == (1.0,)  # the loss did not fall
    assert scaled_to_loss(point(1.0, 7.0), point(0.5, 0.0)) == (1.0,)  # the criterion is met
    assert scaled_to_loss(point(1.0, 7.0), point(np.nan, np.inf)) == (1.0,)
    assert as_is(Setting(0.0, (0.5, 0.5)), (3.0, 4.0)) == Setting(0.0, (0.5, 0.5))


def test_a_front_does_not_depend_on_the_units_of_a_criterion(monkeypatch):
    """Nor does λ = 0 train twice; with criteria as they are, the larger unit leaves nothing but zeros."""
    calls = []
    monkeypatch.setattr(sweep, "simulate", lambda *a, **k: calls.append(k) or mj.simulate(*a, **k))
    options = {"weights": [0.0, 0.1, 0.3], "rounds": 40, "local": ONE_STEP}
    one, other = (mj.pareto_front(MODEL, DATA, criteria.l1(unit), **options) for unit in (1.0, 200.0))
    assert [len(call["seeds"]) for call in calls] == [1, 2] * 2
    assert [p.weight for p in one] == [p.weight for p in other] == [0.0, 0.1, 0.3]
    assert one.scales[0] == pytest.approx(200 * other.scales[0], rel=1e-4)
    assert calls[3]["hyper"]["lambda"][0] < 0.01
    for a, b in zip(one, other, strict=True):
        jax.tree.map(lambda p, q: np.testing.assert_allclose(p, q, atol=1e-4), a.params, b.params)
        assert a.norm > 0


def test_new_weights_go_into_the_widest_gaps():
    """Normalised, the gaps are 0.79 and 0.66: the first, the second, then a half of the first."""
    points = small_front().points
    assert between(points, 3) == [0.125, 0.25, 0.625]
    middle = points[0]._replace(weight=0.25, loss=0.5)  # dominated: its λ is not run again
    assert between([points[0], middle, *points[1:]], 3) == [0.125, 0.375, 0.625]


def test_what_cannot_be_asked_for_is_said_before_training(monkeypatch):
    monkeypatch.setattr("majorant.tradeoffs.sweep.simulate", lambda *a, **k: pytest.fail("training began"))
    data = mj.data.synthetic_mixture(clients=3, dimension=3, seed=0)
    model, small = mj.models.linear(data), mj.criteria.squared_norm()
    nan = mj.criteria.criterion(lambda theta: jnp.nan * theta[0]["weight"].sum(), name="odd")
    for words, asked, options in [
        ("there are no criteria", None, {}),
        ("there are no criteria", [], {}),
        ("odd is nan", nan, {}),
        ("odd is nan", nan, {"scalarization": "chebyshev"}),
        ("must be a number, got 'long'", small, {"weights": [0.1, 0.5], "ramp": "long"}),
        ("finite number", small, {"weights": [0.1, float("nan")]}),
    ]:
        with pytest.raises(ValueError, match=words):
            mj.pareto_front(model, data, asked, **options)
    untrained = [50.0, -50.0, 50.0, 50.0]  # by agent, of which the second does not train; and the criterion
    away = replace(data, unseen=np.arange(3) == 1)
    with pytest.raises(ValueError, match="dominates nothing"):
        mj.pareto_front(model, away, small, scalarization="chebyshev", reference=untrained)
    with pytest.raises(ValueError, match="made for 4 clients, but the data has 3"):
        mj.simulate(mj.tradeoffs.chebyshev(model, clients=4), data, rounds=1)
    for clients in (float("nan"), 2.5, 0):
        with pytest.raises(ValueError, match="positive whole number"):
            mj.tradeoffs.chebyshev(model, clients=clients)


def test_models_that_diverged_are_named():
    data = mj.data.synthetic_mixture(clients=3, dimension=3, seed=0)
    stiff, local = mj.criteria.squared_norm(1000.0), mj.local_sgd(0.1, steps=1, batch_size=None)
    with pytest.warns(DivergedWarning, match=r"diverged for λ = 0\.5, 0\.8: lower"):
        front = mj.pareto_front(
            mj.models.linear(data),
            data,
            stiff,
            weights=[0.0, 0.5, 0.8],
            rounds=60,
            ramp=0.0,
            scale="none",
            local=local,
        )
    assert [point.weight for point in front.dominated] == [0.5, 0.8]
