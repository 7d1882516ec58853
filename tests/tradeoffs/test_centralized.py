"""Centralized solutions of weighted sums against scikit-learn and conditions of optimality, and points against them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

import majorant as mj
import zoo
from compiling import quickly
from majorant.tradeoffs import agreement, criteria, solve_centrally

RNG = np.random.default_rng(0)


def agents(classes, sizes=(30, 50, 20), dimension=3):
    """Agents of different sizes, the last of whom never trains."""
    rows = []
    for size in (*sizes, 40):
        x = RNG.normal(size=(size, dimension)).astype(np.float32)
        scores = x @ RNG.normal(size=(dimension, classes)) + RNG.gumbel(size=(size, classes))
        rows.append((x, scores.argmax(axis=1)))
    return zoo.federated(rows, classes=classes, unseen=[len(sizes)])


DATA = agents(3)
MODEL = mj.models.linear(DATA)
ZERO = [{"bias": np.zeros(3), "weight": np.zeros((3, 3))}]


def pooled(data=DATA, by="equal"):
    """All samples of agents that train, with their weights in the mean loss."""
    each = [data.train.client(c) for c in range(data.clients) if not data.unseen[c]]
    x, y = (np.concatenate([one[k] for one in each]) for k in (0, 1))
    sizes = np.array([len(one[1]) for one in each])
    weight = np.repeat(1 / sizes / len(sizes), sizes) if by == "equal" else np.full(len(y), 1 / len(y))
    return np.concatenate([x, np.ones((len(x), 1))], axis=1).astype(float), y, weight


def slope_and_loss(params, by="equal"):
    """Of the agents' mean loss, by hand: the gradient (weights and bias below one another) and the value."""
    x, y, weight = pooled(by=by)
    theta = np.concatenate([params[0]["weight"], params[0]["bias"][None]])
    z = x @ theta
    p = np.exp(z - z.max(axis=1, keepdims=True))
    p /= p.sum(axis=1, keepdims=True)
    loss = -(weight * np.log(p[np.arange(len(y)), y])).sum()
    return x.T @ (weight[:, None] * (p - np.eye(3)[y])), loss, theta


@pytest.mark.parametrize("by", ["equal", "samples"])
def test_small_parameters_are_scikit_learns_ridge(by):
    """(1 − λ) C + λ/2 ‖Θ‖² is scikit-learn's with the bias as one more feature and 1/C = λ/(1 − λ)."""
    x, y, weight = pooled(by=by)
    lam = 0.2
    theirs = LogisticRegression(C=(1 - lam) / lam, fit_intercept=False, tol=1e-10, max_iter=5000)
    theirs.fit(x, y, sample_weight=weight)
    small = criteria.coordinate(criteria.squared_norm())
    (found,) = solve_centrally(MODEL, DATA, small, [lam], agents=by)
    slope, loss, theta = slope_and_loss(found.params, by)
    np.testing.assert_allclose(theta, theirs.coef_.T, atol=1e-6)
    assert found.loss == pytest.approx(loss, rel=1e-12)
    assert found.criteria == {"squared_norm": pytest.approx((theta**2).sum() / 2, rel=1e-12)}
    assert found.objective == pytest.approx((1 - lam) * loss + lam * (theta**2).sum() / 2, rel=1e-12)
    assert found.residual == pytest.approx(np.linalg.norm((1 - lam) * slope + lam * theta), abs=1e-12)
    assert found.residual < 1e-7


def test_sparse_parameters_are_scikit_learns_elastic_net_in_any_order_of_weights():
    """Criteria's weights (0.7, 0.3): 1/C = λ/(1 − λ), of which the L1 norm has 0.7."""
    x, y, weight = pooled()
    both = criteria.coordinate([criteria.l1(), criteria.squared_norm()], step="implicit")
    lambdas, shares = [0.02, 0.0, 0.1], [[0.7, 0.3], [0.7, 0.3], [1.0, 0.0]]
    found = solve_centrally(MODEL, DATA, both, lambdas, criteria_weights=shares)
    assert [one.weight for one in found] == lambdas
    theirs = LogisticRegression(
        C=0.98 / 0.02, l1_ratio=0.7, solver="saga", fit_intercept=False, tol=1e-9, max_iter=100_000, random_state=0
    )
    theirs.fit(x, y, sample_weight=weight)
    np.testing.assert_allclose(slope_and_loss(found[0].params)[2], theirs.coef_.T, atol=1e-4)
    slope, _, theta = slope_and_loss(found[2].params)  # 0.9 ∇C is −0.1 sign(Θ), and at most 0.1 where Θ is 0
    zero = theta == 0
    assert 0 < zero.sum() < theta.size
    np.testing.assert_allclose(0.9 * slope[~zero], -0.1 * np.sign(theta[~zero]), atol=1e-7)
    assert np.abs(0.9 * slope[zero]).max() <= 0.1
    assert np.abs(slope_and_loss(found[1].params)[0]).max() < 1e-6  # λ = 0: the kink counts for nothing
    assert max(one.residual for one in found) < 1e-6


def test_rows_that_vanish_together_and_a_criterion_without_proximal_operator():
    """Where a row is not 0, (1 − λ) ∇C + λ w ∇(public loss) is −λ w row/‖row‖."""
    x, y = DATA.test.x[:20], DATA.test.y[:20]
    asked = criteria.coordinate([criteria.group_lasso(), criteria.public_loss(MODEL, x, y)], step="implicit")
    (found,) = solve_centrally(MODEL, DATA, asked, [0.2])
    with jax.enable_x64(True):
        public = quickly(jax.grad(lambda p: MODEL.losses(p, jnp.asarray(x, float), y).mean()))(found.params)
    slope, _, theta = slope_and_loss(found.params)
    total = 0.8 * slope + 0.1 * np.concatenate([public[0]["weight"], public[0]["bias"][None]])
    length = np.linalg.norm(theta, axis=1, keepdims=True)
    there = length[:, 0] > 0
    assert there.any()
    np.testing.assert_allclose(total[there], -0.1 * theta[there] / length[there], atol=1e-6)
    assert (np.linalg.norm(total[~there], axis=1) <= 0.1 + 1e-9).all()


def test_how_far_points_are():
    small = criteria.coordinate(criteria.squared_norm(2.0))
    lambdas = [0.1, 0.5]
    truth = solve_centrally(MODEL, DATA, small, lambdas)
    points = [
        jax.tree.map(lambda a: np.asarray(a, np.float32), truth[0].params),
        ZERO,
    ]
    exact, away = agreement(MODEL, DATA, small, lambdas, points)
    assert exact.relative
    assert abs(exact.gap) < 1e-9
    assert exact.distance < 1e-5
    assert (away.loss, away.criteria) == (pytest.approx(np.log(3)), {"squared_norm": 0.0})
    assert away.gap == pytest.approx(0.5 * np.log(3) / truth[1].objective - 1)
    extent = np.abs(np.subtract(truth[0].values, truth[1].values))
    assert away.distance == pytest.approx(np.linalg.norm((np.array(away.values) - truth[1].values) / extent))
    assert away.truth.objective == truth[1].objective


def test_where_the_least_value_is_near_zero_the_difference_is_told():
    """Classes that a plane separates: no minimiser, and F* of about 0."""
    x = np.concatenate([RNG.normal(size=(20, 2)) + 9, RNG.normal(size=(20, 2)) - 9]).astype(np.float32)
    data = zoo.federated([(x, np.repeat([0, 1], 20))] * 2, classes=2)
    model = mj.models.linear(data)
    zero = [{"bias": np.zeros(1), "weight": np.zeros((2, 1))}]
    (found,) = agreement(model, data, criteria.coordinate(criteria.squared_norm()), [0.0], [zero])
    assert not found.relative
    assert found.gap == pytest.approx(np.log(2), abs=1e-5)


def test_what_is_known_to_be_convex():
    assert mj.models.linear(DATA, start="zeros").convex
    assert mj.models.softmax_regression(DATA).convex
    assert not mj.models.mlp(DATA).convex
    assert criteria.public_loss(MODEL, DATA.test.x, DATA.test.y).convex
    assert not criteria.public_loss(mj.models.mlp(DATA), DATA.test.x, DATA.test.y).convex


SMALL = criteria.coordinate(criteria.squared_norm())
FAR = criteria.criterion(lambda p: -jnp.log(p[0]["bias"].sum() - 1), name="barrier", convex=True)
BARRIER = criteria.coordinate([FAR, criteria.l1()], step="implicit")
GAP = criteria.coordinate(criteria.demographic_parity(MODEL, DATA.test.x, np.arange(len(DATA.test.y)) % 2))


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: solve_centrally(mj.models.mlp(DATA), DATA, SMALL, [0.1]), "mlp is not known to be convex"),
        (lambda: solve_centrally(MODEL, DATA, GAP, [0.1]), "demographic_parity is not known to be convex"),
        (lambda: solve_centrally(MODEL, DATA, SMALL, [1.0]), "less than 1"),
        (lambda: solve_centrally(MODEL, DATA, SMALL, [float("nan")]), "finite"),
        (lambda: solve_centrally(MODEL, DATA, BARRIER, [0.1]), "the barrier is nan at Θ = 0"),
        (lambda: solve_centrally(MODEL, DATA, SMALL, []), "at least one"),
        (lambda: solve_centrally(MODEL, DATA, SMALL, [0.1], agents="all"), "'equal' or 'samples'"),
        (lambda: solve_centrally(MODEL, DATA, SMALL, [0.1], criteria_weights=[[0.5]]), "sum to 1"),
        (lambda: solve_centrally(MODEL, DATA, SMALL, [0.1], criteria_weights=[[1.0], [1.0]]), "2 rows"),
        (lambda: agreement(MODEL, DATA, SMALL, [0.1, 0.2], [ZERO]), "1 points"),
        (lambda: agreement(MODEL, DATA, SMALL, [0.1], [[{"bias": np.zeros(3)}]]), "other parameters"),
        (lambda: agreement(MODEL, DATA, SMALL, [0.1], [jax.tree.map(lambda a: a[:2], ZERO)]), "other parameters"),
    ],
)
def test_bad_input(make, words):
    with pytest.raises(ValueError, match=words):
        make()
