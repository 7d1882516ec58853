"""Surrogates on data as they come: means far from 0, features on other scales, large counts, samples of no model."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, special

from majorant.core import ClientData
from majorant.solvers import whole
from majorant.surrogates import (
    gaussian_mixture,
    huber_regression,
    matrix_factorization,
    mixture_parameters,
    multinomial_mixture,
    poisson,
    regression_mixture,
)
from majorant.surrogates.linear.gaussian_mixture import moments
from majorant.surrogates.linear.gaussian_shapes import SHAPES

RNG = np.random.default_rng(0)


def batch_of(x, y=None):
    y = np.zeros(len(x)) if y is None else y
    return whole(ClientData(jnp.asarray(x), jnp.asarray(y), jnp.asarray(len(y)), jnp.asarray(0)))


@pytest.mark.parametrize("shape", list(SHAPES))
def test_moments_far_from_zero_are_not_projected(shape):
    """One feature is far from 0 and one constant: variances of 0 are inside too, to rounding."""
    groups = np.eye(3)[np.arange(300) % 3]
    x = RNG.normal(size=(300, 3)) * [1, 0, 1] + [1, 0, 0] * (50 * groups @ [[-1], [0], [1]]) + [0, 30, 0]
    project = jax.jit(lambda r, x: (s := moments(SHAPES[shape], r, x), SHAPES[shape].project(s, 0.0)))
    jax.tree.map(np.testing.assert_array_equal, *project(np.float32(groups / 300), np.float32(x)))
    with jax.enable_x64(True):
        jax.tree.map(np.testing.assert_array_equal, *project(groups / 300, x + 1e4))


def test_covariances_far_from_zero():
    x = RNG.normal(size=(300, 3)) + 1e4
    start = {"weights": [1.0], "means": [[1e4] * 3], "covariances": [np.eye(3)]}
    surrogate = gaussian_mixture(3, 1, reg_covar=0, margin=1e-20, start=start)
    with jax.enable_x64(True):
        step = jax.jit(lambda theta, batch: surrogate.minimize(surrogate.project(surrogate.statistic(theta, batch))))
        theta = step(surrogate.init(jax.random.key(0)), batch_of(x))
    np.testing.assert_allclose(theta["covariances"][0], np.cov(x.T, bias=True), atol=1e-6)


FEATURES = RNG.normal(size=(400, 2))
NOISE = 0.1 * RNG.normal(size=400)


def steps(surrogate, x, y, count=8):
    """MM in single precision: the parameters in the end, and the objective on the way."""
    batch = batch_of(np.float32(x), np.float32(y))

    @jax.jit
    def step(theta, _):
        after = surrogate.minimize(surrogate.project(surrogate.statistic(theta, batch)))
        return after, surrogate.objective(after, batch)

    theta, values = jax.lax.scan(step, surrogate.init(jax.random.key(0)), length=count)
    return theta, np.asarray(values)


@pytest.mark.parametrize("make", [huber_regression, lambda d, **where: regression_mixture(d, 1, **where)])
@pytest.mark.parametrize(
    ("scale", "center", "target_center"),
    [((1e4, 1.0), 0.0, 0.0), ((1.0, 1.0), 100.0, 1e4)],
    ids=["a large feature", "far from 0"],
)
def test_regressions_on_unscaled_data_in_single_precision(make, scale, center, target_center):
    x = FEATURES * scale + center
    y = (x - center) @ [1e-4, 2.0] + target_center + 3 + NOISE
    where = {"center": center, "target_center": target_center}
    surrogate = make(2, **where)
    theta, values = steps(surrogate, x, y)
    w = np.append(theta["weights"], theta["bias"]) if "bias" in theta else theta["coefficients"][0]
    wanted = np.linalg.lstsq(np.column_stack([x - center, np.ones(400)]), y - target_center)[0]
    np.testing.assert_allclose(np.asarray(w) * [*scale, 1], wanted * [*scale, 1], atol=2e-3)
    assert np.diff(values).max() < 1e-5
    np.testing.assert_allclose(surrogate.predict(theta, jnp.asarray(x, jnp.float32)), y, atol=0.5)
    if "variances" in theta:
        np.testing.assert_allclose(theta["variances"], [0.01], rtol=0.2)


@pytest.mark.parametrize("surrogate", [huber_regression(3), regression_mixture(3, 1)], ids=["huber", "mixture"])
def test_collinear_features_on_several_scales(surrogate):
    x = np.column_stack([1e4 * FEATURES[:, 0], 1e4 * FEATURES[:, 0], FEATURES[:, 1]])
    y = FEATURES.sum(axis=1) + 3 + NOISE
    theta, values = steps(surrogate, x, y)
    assert np.diff(values).max() < 1e-5
    np.testing.assert_allclose(surrogate.predict(theta, jnp.asarray(x, jnp.float32)), y, atol=0.5)


@pytest.mark.parametrize("covariance", list(SHAPES))
def test_a_start_has_the_precision_of_the_samples(covariance):
    x = RNG.normal(size=(50, 2)) + 1e6
    found = mixture_parameters(x, np.ones((50, 1)), covariance=covariance, reg_covar=0.5)
    matrix = np.cov(x.T, bias=True)
    wanted = {"full": matrix, "diagonal": np.diag(matrix), "spherical": np.trace(matrix) / 2}[covariance]
    np.testing.assert_allclose(found["covariances"][0], wanted + 0.5 * (np.eye(2) if covariance == "full" else 1), 1e-8)
    np.testing.assert_allclose(found["means"][0], x.mean(axis=0), rtol=1e-14)
    assert all(a.dtype == np.float64 for a in found.values())
    single = mixture_parameters(np.float32(x), np.ones((50, 1)), covariance=covariance)
    assert all(a.dtype == np.float32 for a in single.values())


def test_a_start_of_equal_samples_is_positive_definite():
    r = np.eye(2)[[0, 0, 1]]
    start = mixture_parameters([[0.0, 0.0], [1.0, 1.0], [2.0, 0.0]], r, reg_covar=0)
    assert (np.linalg.eigvalsh(start["covariances"]) > 0).all()


@pytest.mark.parametrize(
    ("surrogate", "x", "message"),
    [
        (poisson(), [[1.0], [-1.0]], "1 of 2 are not, such as -1"),
        (poisson(mean=2.0), [0.5, 2.0], "whole numbers"),
        (poisson(), [[1.0, 2.0]], "one count per sample"),
        (multinomial_mixture(2, 2), [[1.0, 2.5]], "such as 2.5"),
        (multinomial_mixture(2, 2), [[1.0, np.nan]], "whole numbers"),
        (matrix_factorization(1, 1, code_l2=0.1, l2=0.1), [[[1.0], [0.5]]], "1 or 0"),
        (matrix_factorization(1, 1, code_l2=0.1, l2=0.1), [[[np.nan], [0.0]]], "NaN"),
        (matrix_factorization(1, 1, code_l2=0.1, l2=0.1), [[1.0]], "with_missing"),
    ],
)
def test_samples_of_no_model_are_refused(surrogate, x, message):
    with pytest.raises(ValueError, match=message):
        surrogate.check(np.array(x), np.zeros(len(x)))


def test_samples_of_the_model_are_not_refused():
    poisson().check(np.array([[0], [700]]), np.zeros(2))
    poisson().check(np.array([0.0, 3.0], np.float32), np.zeros(2))
    multinomial_mixture(2, 2).check(np.array([[1.0, 0.0]]), np.zeros(1))
    matrix_factorization(1, 1, code_l2=0.1, l2=0.1).check(np.array([[[2.5], [1.0]], [[0.0], [0.0]]]), np.zeros(2))
    assert gaussian_mixture(2, 2).check is None


@pytest.mark.parametrize(("deviation", "quadrature"), [(0.3, 32), (1.0, 32), (2.0, 64)])
def test_poisson_integrals_of_large_counts(deviation, quadrature):
    """The loss and E[e^h | Z] by SciPy's quadrature, cut around the mode so that it is seen."""
    surrogate, counts = poisson(deviation=deviation, quadrature=quadrature), np.array([0.0, 5.0, 90.0, 700.0, 1000.0])
    with jax.enable_x64(True):
        values = jax.jit(lambda theta, x: (surrogate.losses(theta, x, x), surrogate.predict(theta, x)))
        found = {theta: jax.tree.map(np.asarray, values(jnp.asarray(theta), counts)) for theta in (-1.0, 0.5, 4.5)}
    for theta, (losses, means) in found.items():
        for z, loss, mean in zip(counts, losses, means, strict=True):
            height = lambda h, z=z, theta=theta: (
                z * (theta + h) - np.exp(theta + h) - (h / deviation) ** 2 / 2 - special.gammaln(z + 1)
            )
            grid = np.linspace(-12 * deviation, 12, 20001)
            mode, top = grid[height(grid).argmax()], height(grid).max()
            near = {"a": mode - 10 * deviation, "b": mode + 10 * deviation, "points": [mode - 0.1, mode, mode + 0.1]}
            options = near | {"epsabs": 1e-12, "limit": 500}
            mass = integrate.quad(lambda h, g=height, t=top: np.exp(g(h) - t), **options)[0]
            above = integrate.quad(lambda h, g=height, t=top: np.exp(h + g(h) - t), **options)[0]
            exact = -top - np.log(mass) + np.log(2 * np.pi * deviation**2) / 2
            np.testing.assert_allclose(loss, exact, atol=1e-6)
            np.testing.assert_allclose(mean, np.exp(theta) * above / mass, rtol=1e-6)


def test_poisson_stays_finite_in_single_precision():
    surrogate, counts = poisson(deviation=20.0), jnp.array([0.0, 1.0, 1e6])
    values = jax.jit(jax.value_and_grad(lambda theta: surrogate.losses(theta, counts, counts).sum()))
    for theta in (-30.0, 0.0, 30.0):
        value, slope = values(jnp.float32(theta))
        assert np.isfinite(value)
        assert np.isfinite(slope)
