"""The check finds what is wrong with a surrogate, names it and says where; the shipped ones pass."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import majorant as mj
import zoo
from majorant.core import masked_mean
from majorant.solvers import whole
from majorant.surrogates import Coefficients, em_surrogate, logistic_bound, proximal_surrogate, quadratic_surrogate
from majorant.surrogates.inputs import pad

check = functools.partial(mj.surrogates.check_surrogate, data=zoo.problem(), points=2, clients=1)


def model():
    return mj.models.linear(zoo.problem())


def em(**changes):
    return em_surrogate(model(), 2)._replace(**changes)


def curvature():
    """The smoothness of the first client's mean logistic loss: a quarter of the largest eigenvalue of X̃ᵀX̃/n."""
    x = zoo.problem().train.client(0)[0]
    x = np.concatenate([x, np.ones((len(x), 1))], axis=1)
    return np.linalg.eigvalsh(x.T @ x / len(x)).max() / 4


def quadratic(factor=1.0, **changes):
    return quadratic_surrogate(model(), smoothness=float(factor * curvature()))._replace(**changes)


@pytest.mark.parametrize(
    "make",
    [
        em,
        quadratic,
        lambda: logistic_bound(zoo.problem(), kind="jaakkola"),
        lambda: logistic_bound(zoo.problem(), kind="bohning"),
        lambda: proximal_surrogate(model(), lambda_=0.5),
    ],
    ids=["em", "quadratic", "jaakkola", "bohning", "proximal"],
)
def test_shipped_surrogates_pass(make):
    report = check(make()).raise_if_wrong()
    assert report.ok
    assert report.worst.violation < 1e-12  # far from the tolerance
    assert report.smoothness > 0
    assert "every condition holds" in str(report)


def above(s, added):
    """The surrogate with ``added(coefficients, u, v)`` on top of g, where the coefficients also hold u⁰."""
    inner = lambda c: Coefficients(c.sample, c.shared[0])
    return s._replace(
        majorize=lambda u, v, data: (lambda c: Coefficients(c.sample, (c.shared, u)))(s.majorize(u, v, data)),
        value=lambda c, u, v, batch: s.value(inner(c), u, v, batch) + added(c, u, v),
        minimize_u=None,
    )


def bias_gap(c, u, v):
    return (u[0]["bias"] - c.shared[1][0]["bias"]).sum()


PLANTED = {
    "majorization": [
        ("L too small by a tenth", lambda: quadratic(0.9)),
        ("L too small by half", lambda: quadratic(0.5)),
        ("g drops far away", lambda: above(quadratic(2), lambda c, u, v: -1e6 * (jnp.abs(bias_gap(c, u, v)) > 20))),
        ("envelope's g against the loss", lambda: against_loss(proximal_surrogate(model(), lambda_=0.5))),
    ],
    "tangency of the value": [("g shifted", lambda: above(quadratic(), lambda c, u, v: 1e-3))],
    "tangency of the gradient": [("g tilted", lambda: above(quadratic(), lambda c, u, v: 1e-3 * bias_gap(c, u, v)))],
    "v minimiser": [
        ("always uniform", lambda: em(minimize_v=lambda c, u, data: jnp.full(2, 0.5))),
        ("stays at v⁰'s mirror", lambda: em(minimize_v=lambda c, u, data: masked_mean(c.sample, data)[::-1])),
    ],
    "distance, v* of the same u": [
        ("KL in the other order", lambda: em(distance=lambda v, w: em().distance(w, v))),
        ("doubled", lambda: em(distance=lambda v, w: 2 * em().distance(v, w))),
    ],
    "distance, v* of u⁰ (152)": [("squared gap", lambda: em(distance=lambda v, w: ((v - w) ** 2).sum()))],
    "distance of v to itself is 0": [("lifted", lambda: em(distance=lambda v, w: 0.01 + em().distance(v, w)))],
    "distance of others is positive": [
        ("zero", lambda: em(distance=lambda v, w: 0.0 * v.sum())),
        ("negative", lambda: em(distance=lambda v, w: -em().distance(v, w))),
    ],
    "u minimiser": [
        ("half a step", lambda: quadratic(minimize_u=lambda c, v, data: half_step(c, v, data))),
        ("no step", lambda: quadratic(minimize_u=lambda c, v, data: c.shared)),
    ],
}


def against_loss(s):
    loss = lambda u, v, data: masked_mean(model().losses(u, data.x, data.y), data)
    return s._replace(objective=loss)


def half_step(c, v, data):
    return jax.tree.map(lambda a, b: (a + b) / 2, c.shared, quadratic().minimize_u(c, v, data))


cases = [(condition, name, make) for condition, planted in PLANTED.items() for name, make in planted]


@pytest.mark.parametrize(("condition", "make"), [(c, m) for c, _, m in cases], ids=[n for _, n, _ in cases])
def test_planted_faults_are_named(condition, make):
    report = check(make())
    assert not report.ok
    assert condition in [c.name for c in report.failed]
    with pytest.raises(ValueError, match=r"violates .* by .* at client 0, start \d") as raised:
        report.raise_if_wrong()
    assert condition in str(raised.value)
    assert "WRONG" in str(report)


def test_the_worst_point_can_be_looked_at():
    """The report's point shows the violation to anyone who evaluates f and g there."""
    s = quadratic(0.5)
    worst = check(s).worst
    assert worst.name == "majorization"
    x, y = zoo.problem().train.client(0)
    with jax.enable_x64(True):
        client = pad(x, y, len(y), 0)
        point = jax.tree.map(jnp.asarray, worst.point)
        c = s.majorize(point["u0"], point["v0"], client)
        g = s.value(c, point["u"], point["v"], whole(client))
        assert s.objective(point["u"], point["v"], client) > g


def test_curvature_of_the_gap_is_seen():
    """For a quadratic f, g − f has the Hessian L·I − H: its norm is known."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(20, 3))
    y = rng.normal(size=20)
    wide = np.concatenate([x, np.ones((20, 1))], axis=1)
    eigenvalues = np.linalg.eigvalsh(wide.T @ wide / 20)
    regression = mj.models.linear(mj.models.Spec((3,), classes=0))
    report = mj.surrogates.check_surrogate(quadratic_surrogate(regression, smoothness=4.0), (x, y), points=2)
    assert eigenvalues.max() < 4
    np.testing.assert_allclose(report.smoothness, 4 - eigenvalues.min(), rtol=3e-3)


def test_wrong_inputs_are_refused_before_any_compute():
    x, y = zoo.problem().train.client(0)
    with pytest.raises(ValueError, match="NaN or infinite"):
        mj.surrogates.check_surrogate(em(), (np.where(x > 0, x, np.nan), y))
    with pytest.raises(ValueError, match="there are no samples"):
        mj.surrogates.check_surrogate(em(), (x[:0], y[:0]))
    with pytest.raises(ValueError, match="labels y"):
        mj.surrogates.check_surrogate(em(), (x, y[:-1]))
    with pytest.raises(ValueError, match=r"minimize_v of the surrogate gives \(3,\); it must give \(2,\)"):
        check(em(minimize_v=lambda c, u, data: jnp.ones(3)))
    with pytest.raises(ValueError, match="a row for each of"):
        check(em(majorize=lambda u, v, data: Coefficients(sample=jnp.ones((2, 2)))))
    with pytest.raises(ValueError, match="must give Coefficients"):
        check(em(majorize=lambda u, v, data: v))
    with pytest.raises(ValueError, match="objective of the surrogate gives"):
        check(em(objective=lambda u, v, data: jnp.ones(2)))
    with pytest.raises(ValueError, match="value of the surrogate cannot be computed"):
        check(em(value=lambda c, u, v, batch: c.shared["missing"]))


def test_means_over_padding_are_caught():
    """jnp.mean instead of masked_mean, in f and g alike, on a single client."""
    wrong = quadratic()
    f = lambda u, v, data: wrong.objective(u, v, data) + 0.1 * jnp.mean(data.x**2)
    padded = wrong._replace(objective=f, value=lambda c, u, v, b: wrong.value(c, u, v, b) + 0.1 * jnp.mean(b.x**2))
    assert "padding is left out" in [condition.name for condition in check(padded).failed]


def test_a_personal_part_must_be_varied():
    with pytest.raises(ValueError, match="give random_v"):
        check(em(random_v=None))
