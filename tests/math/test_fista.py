"""Accelerated descent against SciPy's non-negative least squares, and its promises about rows and numbers of steps."""

import jax
import jax.numpy as jnp
import numpy as np
import scipy.optimize

from majorant.math.fista import begin, fista, onward

RNG = np.random.default_rng(0)
A, B = RNG.normal(size=(12, 5)) * [1, 1, 1, 0.1, 0.1], RNG.normal(size=(3, 12))
GRAM, RIGHT = jnp.asarray(A.T @ A, jnp.float32), jnp.asarray(B @ A, jnp.float32)
STEEP = float(np.linalg.eigvalsh(A.T @ A)[-1])


def step(right):
    return lambda h: jnp.maximum(h - (h @ GRAM - right) / STEEP, 0)


def moves(new, ahead):
    return jnp.abs(new - ahead).max() > 1e-7


def test_non_negative_least_squares_are_scipys():
    found = fista(step(RIGHT), jnp.zeros((3, 5)), steps=2000, moves=moves, axis=1, every=5)
    exact = np.stack([scipy.optimize.nnls(A, b)[0] for b in B])
    np.testing.assert_allclose(found, exact, atol=1e-4)


def test_rows_apart_are_each_as_if_alone():
    together = fista(step(RIGHT), jnp.zeros((3, 5)), steps=20, moves=lambda *_: jnp.asarray(True), axis=1)
    for row, right in zip(together, RIGHT, strict=True):
        alone = fista(step(right), jnp.zeros(5), steps=20, moves=lambda *_: jnp.asarray(True))
        np.testing.assert_allclose(row, alone, atol=1e-5)


def test_momentum_beats_plain_steps_on_an_ill_conditioned_problem():
    """After k steps f is at most 2 ‖x_0 − x*‖² / (k + 1)² above its minimum (Beck and Teboulle, Theorem 4.4)."""
    curvature, k = jnp.array([1.0, 1e-3]), 200
    f = lambda x: float((curvature * (x - 1) ** 2).sum() / 2)
    found = fista(lambda x: x - curvature * (x - 1), jnp.zeros(2), steps=k, moves=lambda *_: jnp.asarray(True))
    plain = 1e-3 * (1 - 1e-3) ** (2 * k) / 2
    assert f(found) < 4 / (k + 1) ** 2
    assert f(found) < plain / 100


def test_momentum_that_points_uphill_starts_anew():
    state = onward(begin(jnp.zeros(1)), jnp.ones(1))
    assert float(state.clock) > 1
    assert float(onward(state, jnp.full(1, 2.0)).ahead[0]) > 2
    back = onward(state._replace(ahead=jnp.full(1, 3.0)), jnp.full(1, 2.0))  # the step went back, the point forward
    assert (float(back.clock), float(back.ahead[0])) == (1.0, 2.0)


def test_it_ends_where_nothing_moves_or_after_its_steps():
    count = lambda steps, start: fista(lambda n: jnp.minimum(n + 1, 4.0), start, steps=steps, moves=moves)
    assert float(count(2, jnp.zeros(1))[0]) == 2
    assert float(jax.jit(count, static_argnums=0)(10**9, jnp.zeros(1))[0]) == 4
