"""Descent on smooth functions, and the share of it that was not made."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import majorant as mj
from compiling import quickly
from majorant.solvers.descent import inexactness, lbfgs, newton


def test_newton_never_increases_the_objective_where_plain_newton_does():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 3)).astype(np.float32)
    y = (x[:, 0] + rng.normal(size=60) > 0).astype(np.int32)  # no line separates them
    model = mj.models.linear(mj.models.Spec((3,), 2))
    near = model.init(jax.random.key(3))
    far = jax.tree.map(lambda p: 6.0 * jnp.sign(p), near)
    objective = lambda params: model.losses(params, x, y).mean()
    flat, unravel = jax.flatten_util.ravel_pytree(far)
    g = jax.jit(lambda flat: objective(unravel(flat)))
    plain = quickly(lambda flat: flat - jnp.linalg.solve(jax.hessian(g)(flat), jax.grad(g)(flat)))(flat)
    assert g(plain) > g(flat)
    after = quickly(lambda steps: objective(newton(objective, far, steps)))
    values = [float(after(k)) for k in range(12)]
    assert (np.diff(values) <= 1e-6).all()
    assert values[1] < values[0]
    np.testing.assert_allclose(values[-1], quickly(lambda: objective(newton(objective, near, 50)))(), atol=1e-6)


def test_alpha_at_its_limits():
    bowl = lambda x: ((x - 1) ** 2).sum() + 3
    at = lambda *x: jnp.array(x)
    assert inexactness(bowl, at(1.0), at(1.0)) == 0  # nothing was to be done
    assert inexactness(bowl, at(3.0), at(3.0)) == 1
    assert inexactness(bowl, at(3.0), at(1.0)) == 0
    assert inexactness(bowl, at(2.0), at(3.0)) == pytest.approx(4, rel=1e-5)
    assert 1e5 < inexactness(bowl, at(1.0), at(3.0)) < np.inf
    assert inexactness(lambda x: 0.0 * x.sum(), at(1.0), at(3.0)) == 0
    wide = jnp.full(1500, 2.0)  # L-BFGS instead of Newton
    assert inexactness(lambda x: (x**4).sum(), wide, wide / 2) == pytest.approx(1 / 16, rel=1e-3)


def test_what_a_failed_line_search_has_found_is_not_taken():
    """The slope leads onto a wall: every step along it, however short, is upwards, so that none is made."""
    wall = lambda x: (jnp.where(x > 0, 10.0, 0.0) - x).sum()
    np.testing.assert_array_equal(lbfgs(wall, jnp.zeros(2), 3, 5, 0.0), np.zeros(2))
