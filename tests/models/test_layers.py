"""Layers: pooling agrees with reduce_window, and weights start where they are said to."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from compiling import quickly
from majorant.models import conv_init, dense, dense_init, max_pool, relu


def reference(x):
    return lax.reduce_window(x, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")


@quickly
def both_with_gradients(x, cotangent):
    """Of ours and of the reference, the result and its pullback of the cotangent."""
    found = []
    for pool in (max_pool, reference):
        value, pull = jax.vjp(pool, x)
        found.append((value, pull(cotangent)[0]))
    return found


@pytest.mark.parametrize("shape", [(3, 8, 6, 2), (2, 7, 5, 3), (1, 2, 2, 1), (2, 9, 4, 1)])
@pytest.mark.parametrize("ties", [False, True])
def test_max_pool_is_reduce_window_with_its_gradient(shape, ties):
    rng = np.random.default_rng(0)
    x = rng.normal(size=shape).astype(np.float32)
    cotangent = rng.normal(size=jax.eval_shape(reference, x).shape).astype(np.float32)
    (actual, gradient), (expected, its_gradient) = both_with_gradients(np.sign(x) if ties else x, cotangent)
    np.testing.assert_array_equal(actual, expected)
    np.testing.assert_array_equal(gradient, its_gradient)


def test_max_pool_under_vmap_and_scan():
    x = np.random.default_rng(0).normal(size=(4, 3, 6, 6, 2)).astype(np.float32)
    gradient = jax.grad(lambda x: jnp.square(max_pool(x)).sum())
    single = quickly(gradient)
    expected = np.stack([single(part) for part in x])
    for together in quickly(lambda x: (jax.vmap(gradient)(x), lax.map(gradient, x)))(x):
        np.testing.assert_array_equal(together, expected)


@pytest.mark.parametrize("position", [(0, 0), (0, 1), (1, 0), (1, 1)])
def test_max_pool_does_not_hide_a_nan(position):
    x = jnp.zeros((1, 2, 2, 1)).at[0, position[0], position[1], 0].set(jnp.nan)
    assert jnp.isnan(max_pool(x)).all()


@pytest.mark.parametrize(
    ("layer", "fan_in"),
    [(dense_init(jax.random.key(0), 400, 300), 400), (conv_init(jax.random.key(0), 3, 16, 64), 144)],
)
def test_weights_start_uniform_within_the_bound(layer, fan_in):
    bound = fan_in**-0.5
    assert layer["bias"].shape == layer["weight"].shape[-1:]
    for values in layer.values():
        assert abs(values).max() <= bound
    assert jnp.std(layer["weight"]) == pytest.approx(bound / 3**0.5, rel=0.05)
    assert jnp.mean(layer["weight"]) == pytest.approx(0, abs=0.05 * bound)


def test_weights_and_biases_are_drawn_apart():
    layer = dense_init(jax.random.key(0), 1, 50)
    assert not np.isin(layer["bias"], layer["weight"]).any()


def test_dense_and_relu():
    layer = dense_init(jax.random.key(0), 3, 2)
    x = jax.random.normal(jax.random.key(1), (5, 3))
    expected = np.asarray(x) @ np.asarray(layer["weight"]) + np.asarray(layer["bias"])
    np.testing.assert_allclose(dense(layer, x), expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(relu(x), np.maximum(x, 0))
    assert jax.grad(relu)(0.0) == 0
