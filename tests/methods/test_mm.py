"""Majorize-minimization where the samples lie in one place, with two blocks of parameters."""

import jax.numpy as jnp
import numpy as np
import pytest

import majorant as mj
from majorant.surrogates import PartialSurrogate
from majorant.surrogates.partial import Coefficients


def test_two_blocks_are_minimised_in_turn():
    """f(u, v) = mean (y − u)² / 2 + (u − v)² / 2 + v² / 2: first v = u / 2, then u = (ȳ + v) / 2 with that v."""
    objective = lambda u, v, data: (jnp.mean((data.y - u) ** 2) + (u - v) ** 2 + v**2) / 2
    surrogate = PartialSurrogate(
        name="two squares",
        init=lambda key: jnp.zeros(()),
        init_v=lambda data, key: jnp.asarray(7.0),
        objective=objective,
        majorize=lambda u, v, data: Coefficients(),
        value=lambda coefficients, u, v, batch: batch.mean((batch.y - u) ** 2 / 2) + (u - v) ** 2 / 2 + v**2 / 2,
        predict=lambda u, v, x: x,
        minimize_v=lambda coefficients, u, data: u / 2,
        minimize_u=lambda coefficients, v, data: (jnp.mean(data.y) + v) / 2,
    )
    x, y, u, values = np.zeros((4, 1), np.float32), np.float32([1, 2, 3, 6]), 4.0, []
    for t in range(1, 4):
        v = u / 2
        u = (y.mean() + v) / 2
        found = mj.methods.mm(surrogate, (x, y), iterations=t, start=jnp.asarray(4.0))
        assert [float(a) for a in found.params] == pytest.approx([u, v])
        values.append((((y - u) ** 2).mean() + (u - v) ** 2 + v**2) / 2)
    np.testing.assert_allclose(found.values[1:], values, rtol=1e-6)
