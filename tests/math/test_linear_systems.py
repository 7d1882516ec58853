"""Normal equations: errors from moments are those of the samples."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from majorant.math.linear_systems import solve_normal, squared_errors


@pytest.mark.parametrize("ridge", [0.0, 0.7])
def test_errors_of_a_fit_with_an_intercept_are_those_of_its_samples(ridge):
    """The ridge holds the intercept too."""
    rng = np.random.default_rng(0)
    x, y = np.c_[rng.normal(size=(30, 2)) + 3, np.ones(30)], rng.normal(size=30) + 5
    together = np.c_[x, y]
    moments = together.T @ together / 30
    w = np.linalg.solve(moments[:3, :3] + ridge * np.eye(3), moments[:3, 3])
    with jax.enable_x64(True):
        found = solve_normal(jnp.asarray(moments[:3, :3]), jnp.asarray(moments[:3, 3]), ridge, intercept=True)
        np.testing.assert_allclose(found, w, rtol=1e-9)
        errors = squared_errors(jnp.asarray(moments), found, ridge, intercept=True)
    assert float(errors) == pytest.approx(((y - x @ w) ** 2).mean() + ridge * w @ w, rel=1e-9)
