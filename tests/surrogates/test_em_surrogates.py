"""The EM surrogates: their promises, and what they compute beside scikit-learn, SciPy and formulas."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, optimize, stats
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LinearRegression, Ridge
from sklearn.mixture import GaussianMixture

import majorant as mj
from compiling import quickly
from majorant.core import ClientData
from majorant.solvers import Batch, whole
from majorant.surrogates import (
    MixturePrior,
    gaussian_means,
    gaussian_mixture,
    mixture_parameters,
    multinomial_mixture,
    poisson,
    poisson_constants,
    regression_mixture,
)
from majorant.surrogates.linear.gaussian_mixture import moments
from majorant.surrogates.linear.gaussian_shapes import SHAPES
from majorant.surrogates.linear.validation import check_counts

RNG = np.random.default_rng(0)
X = np.concatenate([RNG.normal(size=(12, 2)), RNG.normal(size=(8, 2)) * [1, 2] + [4, 1]])
Y = np.where(np.arange(20) < 10, X[:, 0], 1 - X[:, 0]) + 0.3 * RNG.normal(size=20)
COUNTS = RNG.poisson(2.0, (20, 3))
COVARIANCES = np.array([[[1.0, 0.0], [0.0, 1.0]], [[2.0, 0.5], [0.5, 1.0]]])
SKLEARN = {"full": "full", "diagonal": "diag", "spherical": "spherical"}


def prior(**options):
    return MixturePrior(20, 2.0, location=1.0, strength=1.0, degrees=4.0, scale=0.5)._replace(**options)


def batch_of(x, y=None):
    y = np.zeros(len(x)) if y is None else y
    return whole(ClientData(jnp.asarray(x), jnp.asarray(y), jnp.asarray(len(y)), jnp.asarray(0)))


@pytest.mark.parametrize(
    ("surrogate", "data"),
    [
        (poisson(deviation=0.5), COUNTS[:, :1].astype(float)),
        (poisson(deviation=0.5, mean=float(COUNTS[:, 0].mean())), COUNTS[:, 0].astype(float)),
        (gaussian_means([0.3, 0.7], COVARIANCES, penalty=0.1), X),
        (gaussian_mixture(2, 2, reg_covar=0, prior=prior(), center=0.5), X),
        (multinomial_mixture(3, 2, weight_smoothing=0.01), COUNTS),
        (regression_mixture(2, 2, ridge=0.1), (X, Y)),
    ],
    ids=["poisson", "poisson, mean", "means", "full", "multinomial", "regression"],
)
def test_promises(surrogate, data):
    mj.surrogates.check_surrogate(surrogate, data, points=2).raise_if_wrong()


@pytest.mark.parametrize("covariance", list(SHAPES))
def test_iterations_are_those_of_scikit_learn(covariance):
    shape = SHAPES[covariance]
    with jax.enable_x64(True):
        covariances = np.asarray(shape.identity(3, 2))
        start = {"weights": [0.2, 0.3, 0.5], "means": [[0.0, 0.0], [3.0, 1.0], [1.0, 4.0]], "covariances": covariances}
        surrogate = gaussian_mixture(2, 3, covariance=SKLEARN[covariance], reg_covar=1e-3, start=start)
        batch = batch_of(X)
        step = jax.jit(lambda theta: surrogate.minimize(surrogate.project(surrogate.statistic(theta, batch))))
        theta = surrogate.init(jax.random.key(0))
        for _ in range(6):
            theta = step(theta)
        loss, shares = jax.jit(lambda theta: (surrogate.objective(theta, batch), surrogate.predict(theta, X)))(theta)
    model = GaussianMixture(
        3,
        covariance_type=SKLEARN[covariance],
        reg_covar=1e-3,
        max_iter=6,
        tol=0,
        weights_init=start["weights"],
        means_init=start["means"],
        precisions_init=covariances,  # the identity
        init_params="random_from_data",
    )
    with pytest.warns(ConvergenceWarning):
        model.fit(X)
    np.testing.assert_allclose(theta["weights"], model.weights_, rtol=1e-8)
    np.testing.assert_allclose(theta["means"], model.means_, rtol=1e-8)
    np.testing.assert_allclose(theta["covariances"], model.covariances_, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(loss, -model.score(X), rtol=1e-8)
    np.testing.assert_allclose(shares, model.predict_proba(X), atol=1e-8)


def test_products_are_in_full_precision():
    """Else accelerators round the factors, and T subtracts squares of what is left."""
    surrogate = gaussian_mixture(2, 2)
    theta = surrogate.init(jax.random.key(0))
    program = str(jax.make_jaxpr(surrogate.statistic)(theta, batch_of(X.astype(np.float32))))
    assert program.count("dot_general") == program.count("Precision.HIGHEST,") > 2


def test_a_start_from_clusters():
    r = np.eye(2)[(np.arange(20) >= 12).astype(int)]
    theta = mixture_parameters(X, r, reg_covar=0.5)
    np.testing.assert_allclose(theta["weights"], [0.6, 0.4], rtol=1e-6)
    np.testing.assert_allclose(theta["means"], [X[:12].mean(axis=0), X[12:].mean(axis=0)], rtol=1e-5)
    np.testing.assert_allclose(theta["covariances"][1], np.cov(X[12:].T, bias=True) + 0.5 * np.eye(2), rtol=1e-5)
    with pytest.raises(ValueError, match="sum to 1"):
        mixture_parameters(X, 2 * r)


@pytest.mark.parametrize("covariance", list(SHAPES))
def test_the_penalty_is_the_log_density_per_sample(covariance):
    """At two points: their difference is that of SciPy's densities; and T is where the gradient vanishes."""
    features = 2
    points = {
        "full": [np.array([[1.0, 0.2], [0.2, 2.0]]), np.array([[0.5, -0.1], [-0.1, 0.7]])],
        "diagonal": [np.array([1.0, 2.0]), np.array([0.5, 0.7])],
        "spherical": [np.array(1.5), np.array(0.6)],
    }[covariance]
    given = prior(location=np.array([1.0, -1.0]), scale=0.8, degrees=3.0)
    mean = np.array([0.3, 0.4])

    def log_density(c):
        gamma = {"full": c, "diagonal": np.diag(c) if c.ndim else c, "spherical": c * np.eye(2)}[covariance]
        normal = stats.multivariate_normal(given.location, gamma / given.strength).logpdf(mean)
        if covariance == "full":
            return normal + stats.invwishart(3.0, 0.8 * np.eye(2)).logpdf(c)
        return normal + stats.invgamma(1.5, scale=0.4).logpdf(c).sum()  # inverse-Wishart of one number

    with jax.enable_x64(True):
        surrogate = gaussian_mixture(features, 1, covariance=covariance, reg_covar=0, prior=given, center=0.7)

        @jax.jit
        def rise_and_slope(low, high, batch):
            low, high = ({"weights": jnp.ones(1), "means": mean[None], "covariances": c[None]} for c in (low, high))
            s = surrogate.statistic(low, batch)
            slope = jax.grad(lambda theta: surrogate.height(s, theta))(surrogate.minimize(s))
            return surrogate.penalty(high) - surrogate.penalty(low), slope

        rise, slope = rise_and_slope(points[0], points[1], batch_of(X))
    np.testing.assert_allclose(rise, (log_density(points[0]) - log_density(points[1])) / given.samples, rtol=1e-9)
    for name in ("means", "covariances"):
        np.testing.assert_allclose(slope[name], 0, atol=1e-9)


def wild_moments(shape, features, scale, dtype):
    size = {"full": (features * (features + 1) // 2,), "diagonal": (features,), "spherical": ()}[shape]
    draw = lambda *dims: jnp.asarray(scale * RNG.normal(size=(40, *dims)), dtype)
    return {"shares": draw(), "first": draw(features), "second": draw(*size)}


def flat(s):
    return np.concatenate(
        [np.asarray(a, np.float64).reshape(len(s["shares"]), -1) for _, a in sorted(s.items())], axis=1
    )


@pytest.mark.parametrize("shape", list(SHAPES))
def test_projections_give_the_closest_moments(shape):
    """⟨w − Π(w), z − Π(w)⟩ ≤ 0 for z in the set, and moments of samples stay where they are."""
    with jax.enable_x64(True):
        project = jax.jit(lambda s: SHAPES[shape].project(s, 1e-3))
        wild = wild_moments(shape, 2, 1.0, jnp.float64)
        closest = project(wild)
        again = project(closest)
        r = RNG.dirichlet(np.ones(40), 20) / 20
        real = jax.jit(lambda r, x: moments(SHAPES[shape], r, x))(r, X)
        jax.tree.map(np.testing.assert_array_equal, project(real), real)
    w, p = flat(wild), flat(closest)
    assert np.einsum("ki,kji->kj", w - p, p[None] - p[:, None]).max() < 1e-9
    assert (np.abs(w - p).max(axis=1) > 1e-3).sum() > 20
    np.testing.assert_allclose(flat(again), p, atol=1e-12)


def test_projections_of_all_shapes_agree_in_one_dimension():
    with jax.enable_x64(True):
        wild = wild_moments("diagonal", 1, 1.0, jnp.float64)
        full, diagonal = (jax.jit(SHAPES[name].project)(wild, 1e-3) for name in ("full", "diagonal"))
        spherical = jax.jit(SHAPES["spherical"].project)(wild | {"second": wild["second"][:, 0]}, 1e-3)
        np.testing.assert_allclose(flat(diagonal), flat(full), atol=1e-12)
        np.testing.assert_allclose(flat(spherical), flat(full), atol=1e-12)


@pytest.mark.parametrize(("shape", "reg_covar"), [("full", 0), ("full", 1e-6), ("diagonal", 1e-6), ("spherical", 0)])
def test_wild_statistics_in_single_precision_never_give_nan(shape, reg_covar):
    surrogate = gaussian_mixture(2, 40, covariance=shape, reg_covar=reg_covar)
    x = jnp.asarray(X, jnp.float32)

    @jax.jit
    def parameters_and_losses(s):
        theta = surrogate.minimize(surrogate.project(s))
        return theta, surrogate.losses(theta, x, x[:, 0])

    for scale in (0.0, 1e-12, 1.0, 1e4):
        theta, losses = parameters_and_losses(wild_moments(shape, 2, scale, jnp.float32))
        assert all(np.isfinite(a).all() for a in theta.values())
        assert (np.asarray(theta["weights"]) > 0).all()
        assert np.isfinite(losses).all()


def test_a_starved_component_stays_finite():
    start = {"weights": [0.5, 0.5], "means": [[0.0, 0.0], [1e4, 1e4]], "covariances": np.stack([np.eye(2)] * 2)}
    surrogate = gaussian_mixture(2, 2, start=start)
    theta, batch = surrogate.init(jax.random.key(0)), batch_of(X.astype(np.float32))
    step = jax.jit(lambda theta: surrogate.minimize(surrogate.project(surrogate.statistic(theta, batch))))
    for _ in range(2):
        theta = step(theta)
    assert all(np.isfinite(a).all() for a in theta.values())
    np.testing.assert_allclose(theta["means"][0], X.mean(axis=0), rtol=1e-4)


def test_poisson_posterior_is_the_integral():
    """E[exp h | Z] and the likelihood, by SciPy's quadrature; Proposition 1 (11) for the gradient."""
    theta, deviation, z = 0.4, 0.8, 3
    density = lambda h: stats.norm.pdf(h, scale=deviation) * stats.poisson.pmf(z, np.exp(theta + h))
    whole_mass, above = (
        integrate.quad(lambda h, k=k: np.exp(k * h) * density(h), -9, 9, epsabs=1e-13)[0] for k in (0, 1)
    )
    with jax.enable_x64(True):
        surrogate = poisson(deviation=deviation, quadrature=60, penalty=0.2)
        s = {"count": jnp.asarray(1.5), "effect": jnp.asarray(-0.7)}

        @jax.jit
        def values(theta, batch):
            slope = jax.grad(surrogate.objective)(theta, batch)
            return surrogate.statistic(theta, batch), surrogate.losses(theta, batch.x, batch.y), slope

        found, loss, _ = values(jnp.asarray(theta), batch_of(np.full((20, 1), z)))
        at = surrogate.minimize(s)
        there, _, slope = values(at, batch_of(COUNTS[:, :1]))
    np.testing.assert_allclose(found["effect"], -above / whole_mass, rtol=1e-7)
    np.testing.assert_allclose(loss, -np.log(whole_mass), rtol=1e-8)
    field = {name: float(there[name]) - float(s[name]) for name in s}
    np.testing.assert_allclose(-(field["count"] + np.exp(float(at)) * field["effect"]), slope, rtol=1e-10)


def test_constants_of_a7():
    mean, penalty, bound = 1.7, 0.4, 3.0
    c = poisson_constants(mean=mean, penalty=penalty, bound=bound)
    surrogate = poisson(mean=mean, penalty=penalty, bound=bound)
    s, other = RNG.uniform(-bound, 0, (2, 500))
    s[:2] = 0.0, -bound
    step = other - s
    with jax.enable_x64(True):
        b = np.asarray(surrogate.metric(s, np.ones(500)))
        change = np.asarray(surrogate.phi(surrogate.minimize(other)) - surrogate.phi(surrogate.minimize(s)))
    assert c.v_min * (1 - 1e-9) <= b.min() <= 1.01 * c.v_min
    assert 0.99 * c.v_max <= b.max() <= c.v_max * (1 + 1e-9)
    assert (np.abs(change - b * step) <= c.c_star * step**2 + 1e-12).all()
    assert (np.abs(change * step) <= c.c_star_star * step**2 + 1e-12).all()


def test_one_component_is_the_plain_estimate():
    topics = multinomial_mixture(3, 1, smoothing=1 / 20)
    fit = lambda s, batch: s.minimize(s.project(s.statistic(s.init(jax.random.key(0)), batch)))

    @jax.jit
    def fits(pairs, counts):
        words = fit(topics, counts)
        return (
            fit(regression_mixture(2, 1), pairs),
            fit(regression_mixture(2, 1, ridge=0.3, intercept=False), pairs),
            fit(gaussian_means([1.0], COVARIANCES[1:], penalty=0.2), pairs),
            words,
            topics.losses(words, counts.x, counts.y),
        )

    with jax.enable_x64(True):
        plain, ridge, means, words, losses = jax.tree.map(np.asarray, fits(batch_of(X, Y), batch_of(COUNTS)))
    model = LinearRegression().fit(X, Y)
    np.testing.assert_allclose(plain["coefficients"][0], [*model.coef_, model.intercept_], rtol=1e-8)
    np.testing.assert_allclose(plain["variances"], np.mean((Y - model.predict(X)) ** 2), rtol=1e-8)
    model = Ridge(alpha=0.3 * len(X), fit_intercept=False).fit(X, Y)
    np.testing.assert_allclose(ridge["coefficients"][0], model.coef_, rtol=1e-8)
    np.testing.assert_allclose((np.eye(2) + 0.2 * COVARIANCES[1]) @ means[0], X.mean(axis=0), rtol=1e-10)
    smoothed = (COUNTS.sum(axis=0) + 1) / (COUNTS.sum() + 3)
    np.testing.assert_allclose(words["probabilities"][0], smoothed, rtol=1e-10)
    np.testing.assert_allclose(losses, -stats.multinomial.logpmf(COUNTS, COUNTS.sum(axis=1), smoothed), rtol=1e-8)


def test_a_start_is_where_a_mixture_begins():
    rows = {"weights": [0.3, 0.7], "probabilities": [[0.2, 0.3, 0.5], [0.6, 0.3, 0.1]]}
    lines = {"weights": [0.3, 0.7], "coefficients": [[1.0, 2, 3], [4, 5, 6]], "variances": [0.5, 2.0]}
    for make, start in ((multinomial_mixture, rows), (regression_mixture, lines)):
        found = make(3 if start is rows else 2, 2, start=start).init(jax.random.key(0))
        assert found.keys() == start.keys()
        for name, values in start.items():
            np.testing.assert_allclose(found[name], values, rtol=1e-6)
    for wrong, words in (
        (lambda: multinomial_mixture(3, 2, start=rows | {"weights": [0.3, 0.3]}), "sum to 1"),
        (lambda: multinomial_mixture(2, 2, start=rows), r"shape \(2, 2\)"),
        (lambda: regression_mixture(3, 2, start=lines), r"shape \(2, 4\)"),
        (lambda: regression_mixture(2, 2, start=lines | {"variances": [0.5, 0.0]}), "variances of the start"),
    ):
        with pytest.raises(ValueError, match=words):
            wrong()


START = {"weights": [0.5, 0.5], "means": np.zeros((2, 2)), "covariances": COVARIANCES}


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: gaussian_mixture(2, 0), "components must be a positive whole number"),
        (lambda: gaussian_mixture(2, 2, covariance="tied"), "covariance must be"),
        (lambda: gaussian_mixture(2, 2, reg_covar=-1), "reg_covar"),
        (lambda: gaussian_mixture(2, 2, start=START | {"weights": [0.5, 0.6]}), "sum to 1"),
        (lambda: gaussian_mixture(2, 2, start=START | {"covariances": np.ones((2, 2, 2))}), "positive definite"),
        (lambda: gaussian_mixture(2, 2, start=START | {"means": np.zeros((3, 2))}), r"shape \(2, 2\)"),
        (lambda: gaussian_mixture(2, 2, start={"means": START["means"]}), "entries weights, means, covariances"),
        (lambda: gaussian_mixture(2, 2, covariance="spherical", start=START | {"covariances": [1, 0]}), "positive"),
        (lambda: gaussian_mixture(2, 2, prior=MixturePrior(10, strength=1.0)), "needs degrees"),
        (lambda: gaussian_mixture(2, 2, prior=MixturePrior(10, 0.5)), "concentration"),
        (lambda: gaussian_mixture(2, 2, prior=MixturePrior(10, degrees=3.0)), "positive definite"),
        (lambda: gaussian_means([0.5, 0.5], np.ones((2, 2, 2))), "positive definite"),
        (lambda: gaussian_means([0.9, 0.5], COVARIANCES), "sum to 1"),
        (lambda: gaussian_means([0.5, 0.5], COVARIANCES, margin=0.0), "margin must be above 0"),
        (lambda: gaussian_means([1.0], np.eye(2)), "components, features, features"),
        (lambda: poisson(nodes=[0.0, 1.0]), "both, or neither"),
        (lambda: poisson(nodes=[0.0, 1.0], weights=[0.5, 0.7]), "sum to 1"),
        (lambda: poisson(bound=2.0), "give mean too"),
        (lambda: poisson(mean=0.0), "mean must be"),
        (lambda: poisson(mean=1.0, penalty=0.0), "known mean"),
        (lambda: multinomial_mixture(3, 2, smoothing=-1), "smoothing"),
        (lambda: multinomial_mixture(1, 2), "outcomes"),
        (lambda: regression_mixture(2, 2, least_variance=0), "least_variance"),
        (lambda: check_counts([[0.5, 1.0]]), "whole numbers"),
        (lambda: mj.surrogates.check_surrogate(gaussian_mixture(3, 2), X), r"samples \(n, 3\), got \(23, 2\)"),
        (lambda: mj.surrogates.check_surrogate(poisson(), X), "one count per sample"),
    ],
)
def test_wrong_input_is_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize("kind", ["full", "diagonal", "spherical"])
def test_real_statistics_far_from_zero_are_left_alone_in_single_precision(kind):
    """Three clusters far apart: the least eigenvalue of their moments is below the rounding errors of the largest."""
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.normal(m, 1.0, (40, 2)) for m in (-50, 0, 50)]).astype(np.float32)
    surrogate = mj.surrogates.gaussian_mixture(
        2,
        3,
        covariance=kind,
        start=mj.surrogates.mixture_parameters(x, np.eye(3)[np.repeat(range(3), 40)], covariance=kind),
    )
    params = surrogate.init(jax.random.key(0))
    batch = Batch(x, np.zeros(120, np.float32), np.ones(120, np.float32), np.int32(120))
    s = quickly(surrogate.statistic)(params, batch)
    jax.tree.map(np.testing.assert_array_equal, quickly(surrogate.project)(s), s)
    again = quickly(surrogate.minimize)(s)
    np.testing.assert_allclose(again["covariances"], params["covariances"], rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("count", [0, 5, 90, 700])
def test_poisson_losses_are_right_for_large_counts(count):
    theta, sigma = 1.3, 0.9
    mode = optimize.brentq(lambda h: count - np.exp(theta + h) - h / sigma**2, -20, 20)
    log_f = lambda h: stats.poisson.logpmf(count, np.exp(theta + h)) + stats.norm.logpdf(h, scale=sigma)
    around = {"limit": 200, "points": [mode - 1, mode, mode + 1], "epsabs": 0, "epsrel": 1e-11}
    peak = log_f(mode)
    total = integrate.quad(lambda h: np.exp(log_f(h) - peak), mode - 8, mode + 8, **around)[0]
    mean = integrate.quad(lambda h: np.exp(h + log_f(h) - peak), mode - 8, mode + 8, **around)[0] / total
    with jax.enable_x64(True):
        surrogate, one = poisson(deviation=sigma), np.ones(1)
        batch = Batch(np.full((1, 1), float(count)), 0 * one, one, np.int64(1))
        found, s = quickly(lambda t, b: (surrogate.losses(t, b.x, b.y), surrogate.statistic(t, b)))(theta, batch)
    assert float(found[0]) == pytest.approx(-np.log(total) - peak, rel=1e-7, abs=1e-7)
    assert -float(s["effect"]) == pytest.approx(mean, rel=1e-6)


def test_iterations_of_regressions_rest_where_the_penalised_likelihood_does():
    """The ridge counts in units of each component's noise, which is not 1 here."""
    surrogate = regression_mixture(2, 1, ridge=0.3)
    with jax.enable_x64(True):
        x, y = jnp.asarray(X, float), 5 * jnp.asarray(Y, float)
        params = mj.methods.mm(surrogate, (np.asarray(x), np.asarray(y)), iterations=3).params
        slope = jax.grad(lambda params: surrogate.losses(params, x, y).mean() + surrogate.penalty(params))(params)
    assert abs(float(params["variances"][0]) - 1) > 0.5
    np.testing.assert_allclose(slope["coefficients"], 0, atol=1e-9)
    np.testing.assert_allclose(slope["variances"], 0, atol=1e-9)


def test_regressions_on_features_of_very_different_scales():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(200, 2)) * [1e4, 1.0]
    y = 1e-3 * x[:, 0] + 2 * x[:, 1] + 3 + 0.01 * rng.normal(size=200)
    batch = Batch(*(a.astype(np.float32) for a in (x, y, np.ones(200))), np.int32(200))
    fit = lambda s: quickly(lambda b: s.minimize(s.project(s.statistic(s.init(jax.random.key(0)), b))))(batch)
    params = fit(regression_mixture(2, 1))
    np.testing.assert_allclose(params["coefficients"][0], [1e-3, 2, 3], rtol=2e-2)
    params = fit(mj.surrogates.huber_regression(2, delta=100.0, l2=1e-9))
    np.testing.assert_allclose([*params["weights"], params["bias"]], [1e-3, 2, 3], rtol=2e-2)


def test_what_is_no_count_is_refused():
    for surrogate, x in ((poisson(), [[1.0], [-2.0]]), (multinomial_mixture(2, 2), [[1.0, 0.5], [2.0, 1.0]])):
        with pytest.raises(ValueError, match="whole numbers"):
            mj.methods.mm(surrogate, np.array(x), iterations=1)
        with pytest.raises(ValueError, match="whole numbers"):
            mj.fedmm(surrogate, mj.FederatedData.unlabelled(np.array(x), np.array([0, 1])))


def test_a_prior_on_the_weights_adds_to_every_component():
    """Dirichlet(α) over n samples adds (α − 1)/n to each share; weights then sum to 1."""
    surrogate = gaussian_mixture(2, 2, reg_covar=0, prior=prior(concentration=5.0))
    statistic = quickly(lambda key: surrogate.statistic(surrogate.init(key), batch_of(X)))(jax.random.key(0))
    shares = np.asarray(statistic["shares"]) + (5 - 1) / 20
    np.testing.assert_allclose(quickly(surrogate.minimize)(statistic)["weights"], shares / shares.sum(), rtol=1e-5)
