"""Input-convex networks: convex whatever was learnt, the identity at the start, and refusals of what is not convex."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import numpy as np
import pytest

from majorant.models import dense_icnn, icnn
from majorant.models.convex import Potential

NETWORKS = {
    "dense": dense_icnn(3, hidden=(8, 7, 5), strong_convexity=0.1),
    "plain": icnn(3, hidden=(8, 6), strong_convexity=0.1),
}
POINTS = np.random.default_rng(0).normal(size=(200, 3)).astype(np.float32)  # one shape for all: few programs


class Ready(NamedTuple):
    """A network, its parameters at the start and far from it (projected, as after training), and compiled functions."""

    network: Potential
    start: dict[str, jax.Array]
    moved: dict[str, jax.Array]
    apply: Callable
    gradient: Callable


@functools.cache
def ready_for(name: str) -> Ready:
    network = NETWORKS[name]
    start = jax.jit(network.init)(jax.random.key(0))
    rng = np.random.default_rng(1)
    far = {k: np.asarray(v) + rng.normal(size=v.shape).astype(np.float32) for k, v in start.items()}
    return Ready(network, start, network.project(far), jax.jit(network.apply), jax.jit(network.gradient))


@pytest.fixture(params=NETWORKS)
def ready(request):
    return ready_for(request.param)


def test_functions_are_convex_whatever_the_parameters(ready):
    a, b = 3 * POINTS, 3 * POINTS[::-1]
    f = lambda x: np.asarray(ready.apply(ready.moved, x))
    middle, ends = f((a + b) / 2), (f(a) + f(b)) / 2
    assert (middle <= ends + 1e-4 * np.abs(ends)).all()
    there, other = (np.asarray(ready.gradient(ready.moved, x)) for x in (a, b))
    assert (((there - other) * (a - b)).sum(axis=1) >= -1e-3).all()  # the gradient is monotone


def test_without_the_projection_they_are_not(ready):
    params = ready.moved | {"u": -np.ones_like(ready.moved["u"])}
    f = lambda x: np.asarray(ready.apply(params, x))
    assert (f(0 * POINTS) > (f(POINTS) + f(-POINTS)) / 2).any()
    with pytest.raises(ValueError, match=r"u of the .* weights below 0, so that it is not convex"):
        ready.network.check(params)


def test_they_start_near_the_map_that_moves_nothing(ready):
    far = np.asarray(ready.gradient(ready.start, POINTS)) - POINTS
    assert (far**2).sum(axis=1).mean() / 3 < 1e-3


def test_gradients_are_those_of_each_point_alone(ready):
    alone = jax.jit(jax.vmap(jax.grad(lambda point: ready.network.apply(ready.moved, point[None])[0])))(POINTS[:4])
    np.testing.assert_allclose(np.asarray(ready.gradient(ready.moved, POINTS))[:4], alone, rtol=2e-5, atol=1e-5)


def test_maps_can_be_followed_along_a_direction(ready):
    """The Jacobian of the map times a direction, by one forward pass over the gradient: a Hessian, so at least 0."""
    toward = POINTS[::-1]
    along = jax.jit(lambda x, v: jax.jvp(lambda x: ready.network.gradient(ready.moved, x), (x,), (v,))[1])
    turned = np.asarray(along(POINTS, toward), np.float64)
    assert ((turned * toward).sum(axis=1) >= -1e-3).all()
    other = np.asarray(along(POINTS, POINTS), np.float64)
    np.testing.assert_allclose((turned * POINTS).sum(axis=1), (other * toward).sum(axis=1), rtol=1e-3, atol=1e-2)


def test_the_dense_network_is_the_formula():
    ready, x = ready_for("dense"), POINTS.astype(np.float64)
    p = {k: np.asarray(v, np.float64) for k, v in ready.moved.items()}
    celu = lambda z: np.where(z > 0, z, np.expm1(np.minimum(z, 0)))
    q = [(x @ p[f"A{i}"]) ** 2 + x @ p[f"B{i}"] + p[f"c{i}"] for i in range(3)]
    z = celu(celu(q[0] @ p["U1"] + q[1]) @ p["U2"] + q[2])
    expected = z @ p["u"] + 0.1 / 2 * (x**2).sum(axis=1)
    np.testing.assert_allclose(ready.apply(ready.moved, POINTS), expected, rtol=1e-4)


def test_loaded_parameters_are_checked():
    network = NETWORKS["dense"]
    params = {k: np.asarray(v) for k, v in ready_for("dense").moved.items()}
    network.check(params)
    with pytest.raises(ValueError, match="has parameters"):
        network.check({k: v for k, v in params.items() if k != "u"})
    with pytest.raises(ValueError, match="A0 of the dense convex network has NaN"):
        network.check(params | {"A0": np.full_like(params["A0"], np.nan)})
    with pytest.raises(ValueError, match="the last at least the dimension 3"):
        dense_icnn(3, hidden=(8, 8, 2))
    with pytest.raises(ValueError, match="strong_convexity must be"):
        icnn(3, strong_convexity=-1)
