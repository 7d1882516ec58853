"""Surrogates on data as they come: means far from 0, features on other scales, large counts, samples of no model."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from majorant.core import ClientData
from majorant.solvers import whole
from majorant.surrogates import gaussian_mixture
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
