"""DP-SGD: one sample moves a step by no more than its share of the clipping radius; what it cannot hide is refused."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

import majorant as mj
from majorant.core import ClientData, View, as_hyper
from majorant.core.compilation import jit
from majorant.exchange import accounting
from majorant.metrics.audit import two_worlds
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


def test_a_gradient_is_clipped_as_a_whole():
    """Rows that all pull one way and, with other labels, the other: 2C apart in all parts of the model together."""
    x, key = np.full((ROWS, 3), 3.0, np.float32), jax.random.key(1)
    one, two = (flat(moved(x, np.full(ROWS, label, np.int32), jnp.int32(ROWS), key)) for label in (0, 1))
    assert np.linalg.norm(one - two) == pytest.approx(2 * 0.5, rel=1e-4)


@pytest.mark.parametrize("bad", [np.nan, np.inf, 3e38])
def test_a_sample_whose_gradient_is_not_finite_counts_as_none(bad):
    """It would make the whole upload one that is rejected, and everybody would see that."""
    (x, y), key = samples(), jax.random.key(1)
    x[2] = 0
    without = flat(moved(x, y, jnp.int32(ROWS), key))
    x[2] = (bad, -bad, bad)
    found = flat(moved(x, y, jnp.int32(ROWS), key))
    assert np.isfinite(found).all()
    assert np.linalg.norm(found - without) <= 0.5 / ROWS * (1 + 1e-5)


def test_the_noise_of_a_step_has_the_size_that_is_accounted_for():
    x, y = samples()
    steps = jax.vmap(lambda key: moved(x, y, jnp.int32(ROWS), key))(jax.random.split(jax.random.key(0), 4000))
    spread = np.concatenate([np.asarray(leaf).reshape(4000, -1) for leaf in jax.tree.leaves(steps)], axis=1).std(axis=0)
    np.testing.assert_allclose(spread, 0.7 * 0.5 / ROWS, rtol=0.06)  # every sample is drawn here: q = 1


def test_a_penalty_is_public_and_neither_clipped_nor_drawn():
    """With all samples in every step and nearly no noise: gradient steps on the mean loss and the penalty."""
    x, y = samples()
    solver = local_private_sgd(0.5, noise=1e-7, clip=10.0, batch_size=ROWS, steps=4)
    start = jax.tree.map(jnp.zeros_like, MODEL.init(jax.random.key(0)))
    penalty = lambda theta: 30 * sum((leaf - 1).sum() for leaf in jax.tree.leaves(theta))  # a slope far above the clip
    view = View(start, as_hyper(solver.hyper), 0, 1)
    data = ClientData(x, y, jnp.int32(ROWS), jnp.int32(0), jnp.int32(0))
    found = jit(lambda: solver.solve(MODEL, Task(view, data, jax.random.key(1), penalty=penalty), start, ()).params)()
    slope, theta = jit(jax.grad(lambda theta: MODEL.losses(theta, x, y).mean() + penalty(theta))), start
    for _ in range(4):
        theta = jax.tree.map(lambda t, g: t - 0.5 * g, theta, slope(theta))
    np.testing.assert_allclose(flat(found), flat(theta), rtol=1e-4)


def drawn_steps(count=4000, size=ROWS, **changes):
    """Many rounds from the same point, with other keys: ``(count, numbers)``, bias first."""
    solver = local_private_sgd(1.0, **({"noise": 0.7, "clip": 0.5, "batch_size": ROWS} | changes))
    start = jax.tree.map(jnp.zeros_like, MODEL.init(jax.random.key(0)))
    view, (x, y) = View(start, as_hyper(solver.hyper), 0, 1), samples()
    data = ClientData(x, y, jnp.int32(size), jnp.int32(0), jnp.int32(0))
    one = lambda key: ravel_pytree(solver.solve(MODEL, Task(view, data, key), start, ()).params)[0]
    return np.asarray(jit(jax.vmap(one))(jax.random.split(jax.random.key(5), count)))


def test_a_sample_of_the_rows_gives_the_gradient_of_all_on_average():
    """Each is drawn with probability q, and the sum is divided by q n: by what is expected, not by who came."""
    half, whole = drawn_steps(batch_size=ROWS // 2), drawn_steps()
    expected = whole.mean(axis=0)
    assert np.linalg.norm(expected) > 0.05
    np.testing.assert_allclose(half.mean(axis=0), expected, atol=0.02)
    loud = drawn_steps(batch_size=ROWS // 2, noise=1000.0)
    np.testing.assert_allclose(loud.std(axis=0), 1000 * 0.5 / (ROWS / 2), rtol=0.06)


def test_noise_is_another_one_in_every_step_and_every_part_of_a_model():
    twice = drawn_steps(noise=1000.0, steps=2) / (1000 * 0.5 / ROWS)
    np.testing.assert_allclose(twice.std(axis=0), np.sqrt(2), rtol=0.06)
    apart = np.corrcoef(twice.T) - np.eye(twice.shape[1])
    assert np.abs(apart).max() < 0.1


def test_padding_is_not_drawn():
    (x, y), key = samples(), jax.random.key(2)
    few = flat(moved(x, y, jnp.int32(5), key))
    x[5:] = 100.0
    np.testing.assert_array_equal(flat(moved(x, y, jnp.int32(5), key)), few)


VICTIM = np.array([[1e6, 0.0, 0.0]], np.float32)


@jit
def attacked(multiplier, clip, batch_size, x, keys):
    """How far the weights go in a step along the first feature, which only the first of the samples has."""
    start = jax.tree.map(jnp.zeros_like, MODEL.init(jax.random.key(0)))
    view = View(start, as_hyper(SOLVER.hyper), 0, 1)
    data = ClientData(x, jnp.zeros(ROWS, jnp.int32), jnp.int32(ROWS), jnp.int32(0), jnp.int32(0))
    solver = SOLVER._replace(noise=SOLVER.noise._replace(multiplier=multiplier, batch_size=batch_size), clip=clip)
    step = lambda key: solver.solve(MODEL, Task(view, data, key), start, ()).params
    direction = ravel_pytree(jax.grad(lambda p: MODEL.losses(p, VICTIM, data.y[:1])[0])(start))[0]
    return jax.vmap(lambda key: -ravel_pytree(step(key))[0] @ direction)(keys)


def test_an_attack_on_a_step_finds_no_more_than_the_accountant_says_and_more_for_broken_steps():
    """A sample whose gradient is a million times too long, drawn with probability ½, or not there."""
    keys, delta = [jax.random.split(jax.random.key(seed), 20_000) for seed in (0, 1)], 0.01
    absent = np.zeros((ROWS, 3), np.float32)
    there = np.concatenate([VICTIM, absent[1:]])

    def found(multiplier=1.0, clip=1.0, batch_size=ROWS / 2):
        worlds = [attacked(multiplier, clip, batch_size, x, keys[i]) for i, x in enumerate((there, absent))]
        return two_worlds(*(np.asarray(scores, np.float64) for scores in worlds), delta=delta)

    claimed = accounting.epsilon(accounting.Event(1.0, "poisson", 0.5), 1, delta, "pld")
    assert 0.5 * claimed < found() < claimed
    assert found(multiplier=0.4) > 1.2 * claimed  # noise too small
    assert found(multiplier=1e-6, clip=1e6) > 1.2 * claimed  # the same noise, and no clipping
    assert found(batch_size=ROWS) > 1.2 * claimed  # everybody is drawn


def test_weights_and_objectives_through_which_samples_change_each_other_are_refused():
    data = mj.data.synthetic_mixture(clients=3, dimension=3, seed=0)
    with pytest.raises(ValueError, match="DP-SGD hides none"):
        mj.simulate(mj.fedem(MODEL, components=2, local=SOLVER), data, rounds=1)
    with pytest.raises(ValueError, match="needs the loss of single samples"):
        SOLVER.minimize(lambda params, batch: 0.0, None, (), ())
    for wrong in ({"noise": 0.0}, {"clip": 0.0}, {"batch_size": 0}, {"steps": 0}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            local_private_sgd(**({"noise": 1.0, "clip": 1.0} | wrong))
