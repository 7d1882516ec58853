"""The coordinator's criteria: values by hand, proximal operators against SciPy, bad input."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import minimize

import majorant as mj
from majorant.models.base import Spec
from majorant.tradeoffs import criteria

MODEL = mj.models.linear(Spec((2,), classes=2))
RNG = np.random.default_rng(0)
X = RNG.normal(size=(12, 2)).astype(np.float32)
Y = np.arange(12) % 2
GROUP = np.repeat(["a", "b", "c"], 4)
PARAMS = [{"weight": jnp.array([[0.7], [-1.2]]), "bias": jnp.array([0.3])}]


WIDER = [{"weight": jnp.zeros((2, 4)), "bias": jnp.zeros(4)}]
FLAT = criteria.criterion(lambda p: p[0]["bias"].sum(), prox=lambda s, rho: s[0])
NUMPYS = criteria.criterion(lambda p: np.abs(np.asarray(p[0]["bias"])).sum())
NOWHERE = criteria.criterion(lambda p: jnp.log(-1 - p[0]["bias"].sum() ** 2))


def probabilities():
    return 1 / (1 + np.exp(-(X @ np.array([0.7, -1.2]) + 0.3)))


def mean_square_of_differences(rates):
    return np.mean([(rates[0] - rates[1]) ** 2, (rates[0] - rates[2]) ** 2, (rates[1] - rates[2]) ** 2])


def test_gaps_and_losses_by_hand():
    p = probabilities()
    gap = mean_square_of_differences([p[g == GROUP].mean() for g in "abc"])
    np.testing.assert_allclose(criteria.demographic_parity(MODEL, X, GROUP).value(PARAMS), gap, rtol=1e-5)
    within = [mean_square_of_differences([p[(g == GROUP) & (y == Y)].mean() for g in "abc"]) for y in (0, 1)]
    odds = criteria.equalized_odds(MODEL, X, Y, GROUP)
    np.testing.assert_allclose(odds.value(PARAMS), np.mean(within), rtol=1e-5)
    loss = -np.log(np.where(Y == 1, p, 1 - p)).mean()
    np.testing.assert_allclose(criteria.public_loss(MODEL, X, Y).value(PARAMS), loss, rtol=1e-5)
    flat = [{"weight": jnp.zeros((2, 1)), "bias": jnp.array([0.3])}]
    assert criteria.demographic_parity(MODEL, X, GROUP).value(flat) < 1e-12
    thrice = criteria.equalized_odds(MODEL, X, Y, GROUP, factor=3.0)
    np.testing.assert_allclose(thrice.value(PARAMS), 3 * np.mean(within), rtol=1e-5)


@pytest.mark.parametrize("label", [0, 1])
def test_gaps_of_decisions_by_hand(label):
    said = (probabilities() > 0.5) == label
    rates = [said[g == GROUP].mean() for g in "abc"]
    gaps = [np.ptp([said[(g == GROUP) & (y == Y)].mean() for g in "abc"]) for y in (0, 1)]
    assert np.ptp(rates) > 0
    assert gaps[0] != gaps[1]
    both = [criteria.demographic_parity(MODEL, X, GROUP, label=label, factor=5.0)]
    both += [criteria.squared_norm(), criteria.equalized_odds(MODEL, X, Y, GROUP, label=label)]
    found = criteria.coordinate(both).decision_gaps(PARAMS)
    assert {name: pytest.approx(float(gap)) for name, gap in found.items()} == {
        "demographic_parity": np.ptp(rates),
        "equalized_odds": max(gaps),
    }


@pytest.mark.parametrize("kinked", [criteria.l1(0.8), criteria.group_lasso(0.9)], ids=lambda c: c.name)
def test_the_proximal_operator_of_a_sum_with_quadratics_is_exact(kinked):
    s, center, rho = np.array([1.5, -0.1, 0.4]), np.array([-0.5, 0.2, 1.0]), 0.7
    parts = [criteria.distance(jnp.asarray(center), 0.6), kinked, criteria.squared_norm(1.3)]
    both = criteria.coordinate(parts, [0.5, 0.3, 0.2], step="implicit")
    found = np.asarray(both.prox(jnp.asarray(s), rho))

    def objective(theta):
        kink = 0.8 * np.abs(theta).sum() if kinked.name == "l1" else 0.9 * np.linalg.norm(theta)
        value = 0.5 * 0.3 * ((theta - center) ** 2).sum() + 0.3 * kink + 0.2 * 0.65 * theta @ theta
        return rho * value + ((theta - s) ** 2).sum() / 2

    best = minimize(objective, s, method="Nelder-Mead", options={"xatol": 1e-8, "fatol": 1e-13, "maxiter": 5000})
    np.testing.assert_allclose(found, best.x, atol=1e-4)
    np.testing.assert_allclose(
        parts[0].prox(jnp.asarray(s), rho), (s + rho * 0.6 * center) / (1 + rho * 0.6), rtol=1e-6
    )


def test_labels_and_groups_of_other_types_are_taken():
    plain = criteria.public_loss(MODEL, X, Y).value(PARAMS)
    for labels in (Y.astype(float), Y.astype(bool)):
        assert criteria.public_loss(MODEL, X, labels).value(PARAMS) == plain
    named = criteria.demographic_parity(MODEL, X, GROUP.astype(object)).value(PARAMS)
    assert named == criteria.demographic_parity(MODEL, X, GROUP).value(PARAMS)
    assert criteria.criterion(lambda p: 1.5).value(PARAMS).dtype == jnp.float32
    criteria.coordinate([criteria.public_loss(MODEL, X, Y), criteria.l1()], step="implicit").check(MODEL)


def test_names_and_weights():
    assert [criteria.criterion(jnp.sum, convex=convex).convex for convex in (True, False)] == [True, False]
    both = criteria.coordinate([criteria.squared_norm(), criteria.squared_norm(4.0)])
    assert both.names == ("squared_norm_1", "squared_norm_2")
    assert both.shares == (0.5, 0.5)
    np.testing.assert_allclose(both.value(jnp.array([2.0])), 0.5 * 2 + 0.5 * 8)
    np.testing.assert_allclose(both.value(jnp.array([2.0]), [1.0, 0.0]), 2)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: criteria.squared_norm(-1.0), "greater than 0"),
        (lambda: criteria.criterion(3.0), "function of the parameters"),
        (lambda: criteria.criterion(jnp.sum, smooth=False), "proximal operator"),
        (lambda: criteria.coordinate([]), "no criteria"),
        (lambda: criteria.coordinate([jnp.sum]), "majorant.tradeoffs.criteria"),
        (lambda: criteria.coordinate([criteria.squared_norm()] * 2, [0.5, 0.6]), "sum to 1"),
        (lambda: criteria.coordinate([criteria.squared_norm()] * 2, [0.5, 0.4]), "sum to 1"),
        (lambda: criteria.coordinate([criteria.squared_norm()] * 2, [1.5, -0.5]), "at least 0"),
        (lambda: criteria.coordinate([criteria.l1(), criteria.group_lasso()], step="implicit"), "takes one such"),
        (lambda: criteria.public_loss(MODEL, X, Y[:3]), "as many rows"),
        (lambda: criteria.demographic_parity(MODEL, X, np.zeros(12)), "at least two"),
        (lambda: criteria.demographic_parity(MODEL, X, GROUP, label=2), "2 classes"),
        (lambda: criteria.equalized_odds(MODEL, X, Y, np.where(Y == 1, "a", GROUP)), "no public sample"),
        (lambda: criteria.distance(jnp.zeros(3)).value(PARAMS), "other parameters"),
        (lambda: criteria.distance(WIDER).value(PARAMS), r"\[0\]\['bias'\] is \(4,\), not \(1,\)"),
        (lambda: criteria.distance(WIDER).prox(PARAMS, 1.0), "other parameters"),
        (lambda: criteria.coordinate(criteria.distance(WIDER)).prox(PARAMS, 1.0), "other parameters"),
        (lambda: criteria.distance([jnp.array([jnp.nan])]), "all of them finite"),
        (lambda: criteria.distance(None), "needs parameters"),
        (lambda: criteria.criterion(lambda p: p[0]["weight"], name="mine").value(PARAMS), r"mine must give one number"),
        (lambda: criteria.criterion(lambda p: p[0]["bias"]).value(PARAMS), r"an array \(1,\): take a sum"),
        (lambda: criteria.criterion(lambda p: p).value(PARAMS), "got a list"),
        (lambda: criteria.criterion(lambda p: p["bias"]).value(PARAMS), "fails on the model's parameters"),
        (lambda: jax.eval_shape(NUMPYS.value, PARAMS), "written with jax.numpy"),
        (lambda: criteria.coordinate(FLAT, step="implicit").prox(PARAMS, 1.0), "proximal operator of own gives"),
        (lambda: criteria.coordinate(NOWHERE).check(MODEL), "own is nan at the initial parameters of linear"),
        (lambda: criteria.coordinate([criteria.l1()], 1.0), "one for each criterion"),
        (lambda: criteria.coordinate([criteria.l1()], ["a"]), "one for each criterion"),
        (lambda: criteria.coordinate([criteria.squared_norm()] * 2, [np.nan, 0.5]), "sum to 1"),
        (lambda: criteria.coordinate(criteria.l1()._replace(prox=None)), "has no proximal operator"),
        (lambda: criteria.public_loss(MODEL, X[:, :1], Y), r"of shape \(2,\), got \(1,\)"),
        (lambda: criteria.public_loss(MODEL, X * np.nan, Y), "x that are missing"),
        (lambda: criteria.public_loss(MODEL, X, Y + 1), "2 classes, counted from 0, got 2"),
        (lambda: criteria.public_loss(MODEL, X, Y + 0.5), "got 0.5"),
        (lambda: criteria.public_loss(MODEL, X, np.where(Y, "yes", "no")), "y that are missing"),
        (lambda: criteria.public_loss(MODEL, X, Y[:, None]), "one value of y"),
        (lambda: criteria.public_loss(mj.models.linear(Spec((2,), 0)), X, np.full(12, np.inf)), "infinite"),
        (lambda: criteria.demographic_parity(MODEL, X[:, :1], GROUP), "of shape"),
        (lambda: criteria.demographic_parity(MODEL, X, np.where(Y, np.nan, 1.0)), "groups in group"),
        (lambda: criteria.demographic_parity(MODEL, X, GROUP, label=0.5), "counted from 0, got 0.5"),
        (lambda: criteria.demographic_parity(mj.models.linear(Spec((2,), 0)), X, GROUP), "is a regression"),
        (lambda: criteria.equalized_odds(MODEL, X, Y - 1, GROUP), "got -1"),
    ],
)
def test_bad_input(make, words):
    with pytest.raises(ValueError, match=words):
        make()
