"""Surrogates on data as they come: means far from 0, features on other scales, large counts, samples of no model."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from majorant.core import ClientData
from majorant.solvers import whole
from majorant.surrogates import gaussian_mixture, matrix_factorization, mixture_parameters, multinomial_mixture, poisson
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
