"""What the authors of the multi-objective paper ran: a fresh Adam, starts of the agents' own, a smaller network."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.flatten_util import ravel_pytree
from majorant_reproductions.tradeoffs.released import RELEASED, network, released

import majorant as mj
from majorant.core import ClientData, View
from majorant.models.base import Spec

DATA = mj.data.synthetic_mixture(clients=3, dimension=3, seed=0)
MODEL = mj.models.linear(DATA)


def flat(params):
    return np.asarray(ravel_pytree(params)[0], float)


def client(index=0, most=12):
    x, y = (part[:most] for part in DATA.train.client(index))
    return ClientData(jnp.asarray(x), jnp.asarray(y), jnp.int32(len(y)), jnp.int32(index))


def view_of(algorithm, round=0):
    server = algorithm.server.init(jax.random.key(0))
    return View(server.value, server.hyper, round, 10)


def test_released_is_a_fresh_adam_with_weight_decay_from_a_start_of_ones_own():
    lam, ran = 0.87, RELEASED["iid"]
    algorithm = released(MODEL, "iid", weight=lam)
    data, key = client(), jax.random.key(3)
    assert algorithm.client.init(view_of(algorithm), data, key) == ()
    view, update = view_of(algorithm, round=4), jax.jit(algorithm.client.update)
    found = update(view, (), data, key)[0].value
    gradient = jax.grad(lambda p: (1 - lam) * MODEL.losses(p, data.x, data.y).mean())(view.value)
    optimizer = optax.chain(optax.add_decayed_weights(lam * ran.factor), optax.adam(ran.lr))
    updates, _ = optimizer.update(gradient, optimizer.init(view.value), view.value)  # one batch: one step
    np.testing.assert_allclose(flat(found), flat(optax.apply_updates(view.value, updates)), rtol=1e-5)
    at = lambda value: view_of(algorithm)._replace(value=value)
    first = lambda agent, value: flat(update(at(value), (), client(agent), jax.random.key(agent))[0].value)
    elsewhere = jax.tree.map(lambda a: jnp.full_like(a, 0.5), view.value)
    np.testing.assert_array_equal(first(0, view.value), first(0, elsewhere))
    assert np.abs(first(0, view.value) - first(1, view.value)).max() > 0.05


def test_another_criterion_takes_the_place_of_theirs():
    data, key = client(), jax.random.key(3)
    small, large = (released(MODEL, "iid", mj.criteria.squared_norm(c), weight=0.5) for c in (1e-2, 1e3))
    theirs = released(MODEL, "iid", weight=0.5)
    ends = [flat(made.client.update(view_of(made, 4), (), data, key)[0].value) for made in (small, theirs, large)]
    np.testing.assert_array_equal(ends[0], ends[1])
    assert np.abs(ends[2] - ends[1]).max() > 1e-3
    start = flat(view_of(large).value)
    assert (np.sign(ends[2] - start) == -np.sign(start)).all()  # Adam's first step: away from large parameters alone


def test_other_settings_are_refused():
    with pytest.raises(ValueError, match="two-digits"):
        released(MODEL, "mnist")


def test_the_networks_of_the_experiments_with_a_coordinator():
    count = lambda model: sum(leaf.size for leaf in jax.tree.leaves(jax.eval_shape(model.init, jax.random.key(0))))
    images = Spec((28, 28), 10)
    assert count(network(images)) == (25 * 8 + 8) + (25 * 8 * 16 + 16) + (49 * 16 * 64 + 64) + (64 * 10 + 10)
    assert count(network(images, "paper")) == count(mj.models.cnn(images))
    with pytest.raises(ValueError, match="'paper' or 'released'"):
        network(images, "table")
