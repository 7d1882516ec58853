"""Input-convex networks: convex whatever was learnt, the identity at the start, and refusals of what is not convex."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from majorant.models import dense_icnn, icnn

NETWORKS = {"dense": dense_icnn(3, hidden=(8, 7, 5)), "plain": icnn(3, hidden=(8, 6))}
every_network = pytest.mark.parametrize("name", NETWORKS)


def moved(network, seed: int = 1):
    """Parameters far from the start, projected: as after training."""
    start = network.init(jax.random.key(0))
    rng = np.random.default_rng(seed)
    return network.project({k: v + rng.normal(size=v.shape).astype(np.float32) for k, v in start.items()})


@every_network
def test_functions_are_convex_whatever_the_parameters(name):
    network, rng = NETWORKS[name], np.random.default_rng(0)
    params = moved(network)
    a, b = (jnp.asarray(3 * rng.normal(size=(500, 3)), jnp.float32) for _ in range(2))
    f = lambda x: network.apply(params, x)
    middle, ends = f((a + b) / 2), (f(a) + f(b)) / 2
    assert (middle <= ends + 1e-4 * jnp.abs(ends)).all()
    gap = ((network.gradient(params, a) - network.gradient(params, b)) * (a - b)).sum(axis=1)
    assert (gap >= -1e-3).all()  # the gradient is monotone


@every_network
def test_without_the_projection_they_are_not(name):
    network = NETWORKS[name]
    params = moved(network) | {"u": -jnp.ones_like(moved(network)["u"])}
    x = jnp.asarray(np.random.default_rng(0).normal(size=(200, 3)), jnp.float32)
    f = lambda x: network.apply(params, x)
    assert (f(jnp.zeros((1, 3))) > (f(x) + f(-x)) / 2).any()
    with pytest.raises(ValueError, match=r"u of the .* weights below 0, so that it is not convex"):
        network.check(params)


@every_network
def test_they_start_near_the_map_that_moves_nothing(name):
    network = NETWORKS[name]
    x = jnp.asarray(np.random.default_rng(0).normal(size=(300, 3)), jnp.float32)
    far = network.gradient(network.init(jax.random.key(0)), x) - x
    assert float((far**2).sum(axis=1).mean() / 3) < 1e-3


@every_network
def test_gradients_are_those_of_each_point_alone(name):
    network = NETWORKS[name]
    params, x = moved(network), jnp.asarray(np.random.default_rng(2).normal(size=(4, 3)), jnp.float32)
    alone = jax.vmap(jax.grad(lambda point: network.apply(params, point[None])[0]))(x)
    np.testing.assert_allclose(network.gradient(params, x), alone, rtol=2e-5, atol=1e-5)


def test_the_dense_network_is_the_formula():
    network, x = NETWORKS["dense"], np.random.default_rng(3).normal(size=(6, 3))
    p = {k: np.asarray(v, np.float64) for k, v in moved(network).items()}
    celu = lambda z: np.where(z > 0, z, np.expm1(np.minimum(z, 0)))
    q = [(x @ p[f"A{i}"]) ** 2 + x @ p[f"B{i}"] + p[f"c{i}"] for i in range(3)]
    z = celu(celu(q[0] @ p["U1"] + q[1]) @ p["U2"] + q[2])
    expected = z @ p["u"] + 1e-4 / 2 * (x**2).sum(axis=1)
    np.testing.assert_allclose(network.apply(moved(network), jnp.asarray(x, jnp.float32)), expected, rtol=1e-4)


def test_loaded_parameters_are_checked():
    network = NETWORKS["dense"]
    params = {k: np.asarray(v) for k, v in moved(network).items()}
    network.check(params)
    with pytest.raises(ValueError, match="has parameters"):
        network.check({k: v for k, v in params.items() if k != "u"})
    with pytest.raises(ValueError, match="A0 of the dense convex network has NaN"):
        network.check(params | {"A0": np.full_like(params["A0"], np.nan)})
    with pytest.raises(ValueError, match="the last at least the dimension 3"):
        dense_icnn(3, hidden=(8, 8, 2))
    with pytest.raises(ValueError, match="strong_convexity must be"):
        icnn(3, strong_convexity=-1)
