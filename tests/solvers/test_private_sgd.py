"""DP-SGD: one sample moves a step by no more than its share of the clipping radius; what it cannot hide is refused."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import majorant as mj
from majorant.core import ClientData, View, as_hyper
from majorant.core.compilation import jit
from majorant.models.base import Spec
from majorant.solvers import Task, local_private_sgd

ROWS = 8
MODEL = mj.models.linear(Spec((3,), classes=2))
SOLVER = local_private_sgd(1.0, noise=0.7, clip=0.5, batch_size=ROWS)


@jit
def moved(x, y, size, key):
    """How far one step goes, with the samples that are drawn from the key."""
    start = jax.tree.map(jnp.zeros_like, MODEL.init(jax.random.key(0)))
    view = View(start, as_hyper(SOLVER.hyper), 0, 1)
    data = ClientData(x, y, size, jnp.int32(0), jnp.int32(0))
    return SOLVER.solve(MODEL, Task(view, data, key), start, ()).params


def flat(tree):
    return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(tree)])


def samples():
    rng = np.random.default_rng(0)
    return rng.normal(size=(ROWS, 3)).astype(np.float32), rng.integers(0, 2, ROWS).astype(np.int32)


def test_one_sample_moves_a_step_by_its_clipped_gradient_at_most():
    (x, y), key = samples(), jax.random.key(1)
    without = flat(moved(x, y, jnp.int32(ROWS), key))
    for row in (np.full(3, 1e6), -x[2], np.zeros(3)):
        other = x.copy()
        other[2] = row
        changed = np.linalg.norm(flat(moved(other, y, jnp.int32(ROWS), key)) - without)
        assert changed <= 2 * 0.5 / ROWS * (1 + 1e-5)
    huge = np.full((ROWS, 3), 1e6, np.float32) * np.sign(x[:, :1])
    assert np.linalg.norm(flat(moved(huge, y, jnp.int32(ROWS), key)) - without) <= 2 * 0.5 * (1 + 1e-5)


def test_the_noise_of_a_step_has_the_size_that_is_accounted_for():
    x, y = samples()
    steps = jax.vmap(lambda key: moved(x, y, jnp.int32(ROWS), key))(jax.random.split(jax.random.key(0), 4000))
    spread = np.concatenate([np.asarray(leaf).reshape(4000, -1) for leaf in jax.tree.leaves(steps)], axis=1).std(axis=0)
    np.testing.assert_allclose(spread, 0.7 * 0.5 / ROWS, rtol=0.06)  # every sample is drawn here: q = 1


def test_weights_and_objectives_through_which_samples_change_each_other_are_refused():
    data = mj.data.synthetic_mixture(clients=3, dimension=3, seed=0)
    with pytest.raises(ValueError, match="DP-SGD hides none"):
        mj.simulate(mj.fedem(MODEL, components=2, local=SOLVER), data, rounds=1)
    with pytest.raises(ValueError, match="needs the loss of single samples"):
        SOLVER.minimize(lambda params, batch: 0.0, None, (), ())
    for wrong in ({"noise": 0.0}, {"clip": 0.0}, {"batch_size": 0}, {"steps": 0}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            local_private_sgd(**({"noise": 1.0, "clip": 1.0} | wrong))
