"""The quadratic surrogate: surrogate optimization with it is gradient descent on the average objective."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import majorant as mj
import zoo
from majorant.surrogates import quadratic_surrogate


def descend(model, u, x, y, rate, steps):
    gradient = jax.jit(jax.grad(lambda u: model.losses(u, x, y).mean()))
    for _ in range(steps):
        u = jax.tree.map(lambda a, g: a - rate * g, u, gradient(u))
    return u


def assert_close(tree, other):
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-6), tree, other)


def test_rounds_are_gradient_steps():
    data = zoo.training()
    model, starts = mj.models.linear(data), []
    algorithm = mj.surrogate_optimization(quadratic_surrogate(model, smoothness=2.5))
    run = mj.simulate(algorithm, data, rounds=7, resume=lambda fresh: starts.append(fresh) or fresh)
    seen = data.train.take(np.flatnonzero(~data.unseen))
    start = jax.tree.map(lambda a: jnp.asarray(a[0]), starts[0].server.value)
    assert_close(run.server.value, descend(model, start, seen.x, seen.y, 1 / 2.5, 7))


def test_curvature_is_a_hyperparameter_of_the_run():
    data = zoo.training()
    algorithm = mj.surrogate_optimization(quadratic_surrogate(mj.models.linear(data), smoothness=2.5))
    other = mj.surrogate_optimization(quadratic_surrogate(mj.models.linear(data), smoothness=5.0))
    changed = mj.simulate(algorithm, data, rounds=3, hyper={"smoothness": 5.0})
    assert_close(changed.server.value, mj.simulate(other, data, rounds=3).server.value)


def test_gradient_steps_on_the_surrogate_reach_its_minimiser():
    """One step of length 1/L on g from u⁰ is the exact minimiser."""
    data = zoo.training()
    surrogate = quadratic_surrogate(mj.models.linear(data), smoothness=4.0)
    exact = mj.simulate(mj.surrogate_optimization(surrogate), data, rounds=3)
    local = mj.local_sgd(0.25, epochs=1, batch_size=None)
    stepped = mj.simulate(mj.surrogate_optimization(surrogate, local=local), data, rounds=3)
    assert_close(exact.server.value, stepped.server.value)


def test_descent_is_monotone():
    data = zoo.training()
    found = mj.methods.mm(quadratic_surrogate(mj.models.linear(data), smoothness=2.0), data, iterations=50)
    assert (np.diff(found.values) <= 1e-7).all()


def test_wrong_arguments():
    with pytest.raises(ValueError, match="smoothness"):
        quadratic_surrogate(mj.models.linear(zoo.training()), smoothness=0.0)
