"""The one minibatch loop, the local optimizers, and their schedules."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import majorant as mj
from compiling import quickly
from majorant.core import ClientData, View, as_hyper
from majorant.solvers import Minibatches, Task, minibatches, permutation, run_minibatches
from majorant.solvers.schedules import cosine


def client(n, *, padded=0, d=2, seed=0):
    rng = np.random.default_rng(seed)
    x = np.zeros((n + padded, d), np.float32)
    x[:n] = rng.normal(size=(n, d))
    y = np.zeros(n + padded, np.int32)
    y[:n] = rng.integers(2, size=n)
    return ClientData(jnp.asarray(x), jnp.asarray(y), jnp.int32(n), jnp.int32(0))


def visits(plan, data, key):
    """How often each sample is used, and the batches' counts in order."""
    numbered = data._replace(y=jnp.arange(data.y.shape[0]))

    def step(carry, batch):
        seen, counts, j = carry
        return seen.at[batch.y].add(batch.weight), counts.at[j].set(jnp.asarray(batch.size, jnp.int32)), j + 1

    start = (jnp.zeros(data.y.shape[0]), jnp.zeros(30, jnp.int32), jnp.asarray(0))
    seen, counts, steps = quickly(lambda data, key: run_minibatches(plan, step, start, data, key))(numbered, key)
    return np.asarray(seen), np.asarray(counts)[: int(steps)].tolist()


@pytest.mark.parametrize("epochs", [1, 3])
@pytest.mark.parametrize(("n", "batch_size"), [(10, 4), (8, 4), (3, 4), (1, 4), (10, 1), (10, None)])
def test_an_epoch_uses_every_sample_exactly_once(n, batch_size, epochs):
    plan = minibatches(epochs=epochs, steps=None, batch_size=batch_size)
    seen, counts = visits(plan, client(n, padded=3), jax.random.key(n))
    assert seen.tolist() == [epochs] * n + [0] * 3
    width = batch_size or n
    assert counts == ([width] * (n // width) + [n % width] * (n % width > 0)) * epochs


@pytest.mark.parametrize("epochs", [1, 2])
@pytest.mark.parametrize(("n", "counts"), [(6, [6]), (3, [3]), (0, [])])
def test_samples_that_fit_into_a_batch_stay_in_order_where_order_does_not_matter(n, counts, epochs):
    plan = Minibatches(epochs, None, 8, in_any_order=True)
    data = client(n, padded=6 - n)
    seen, found = visits(plan, data, jax.random.key(n))
    assert found == counts * epochs
    assert seen.tolist() == [epochs] * n + [0] * (6 - n)
    step = lambda carry, batch: batch.x
    for one, in_order in ((plan, True), (plan._replace(in_any_order=False), False)):
        x = quickly(lambda key, one=one: run_minibatches(one, step, jnp.zeros_like(data.x), data, key))(
            jax.random.key(3)
        )
        assert np.array_equal(x, data.x) == (in_order or n == 0)


@pytest.mark.parametrize(("n", "counts"), [(10, [4, 4]), (8, [4, 4]), (4, [4]), (3, [3])])
def test_the_remainder_of_an_epoch_is_dropped_but_never_all_samples(n, counts):
    plan = Minibatches(1, None, 4, drop_last=True)
    seen, found = visits(plan, client(n, padded=3), jax.random.key(n))
    assert found == counts
    assert seen.sum() == sum(counts)


def test_a_model_that_normalises_by_the_batch_drops_remainders_unless_told_otherwise():
    model = mj.models.linear(mj.models.Spec((2,), 2))
    by_batch = model._replace(normalises_by_batch=True)
    plan = lambda model, drop_last=None: mj.local_sgd(0.1, drop_last=drop_last).plan.suiting(model).drop_last
    assert [plan(model), plan(by_batch), plan(by_batch, False), plan(model, True)] == [False, True, False, True]


def test_the_order_of_a_batch_matters_to_models_that_draw_for_each_row():
    model = mj.models.linear(mj.models.Spec((2,), 2))
    drawing = model._replace(train_apply=lambda params, x, draw: (model.apply(params, x), params))
    plan = mj.local_sgd(0.1).plan
    assert [plan.suiting(one).in_any_order for one in (model, drawing)] == [True, False]


def test_steps_draw_full_batches_of_real_samples_with_replacement():
    seen, counts = visits(Minibatches(None, 25, 4), client(7, padded=5), jax.random.key(0))
    assert counts == [4] * 25
    assert seen[:7].sum() == 100
    assert (seen[:7] > 0).all()
    assert (seen[7:] == 0).all()


@pytest.mark.parametrize("plan", [Minibatches(4, None, 1), Minibatches(None, 40, 1)], ids=["epochs", "steps"])
def test_every_epoch_and_every_step_draws_anew(plan):
    numbered = client(10)._replace(y=jnp.arange(10))
    step = lambda carry, batch: (carry[0].at[carry[1]].set(batch.y[0]), carry[1] + 1)
    start = (jnp.zeros(40, jnp.int32), jnp.asarray(0))
    order, _ = quickly(lambda key: run_minibatches(plan, step, start, numbered, key))(jax.random.key(0))
    assert len({tuple(part) for part in np.asarray(order).reshape(4, 10).tolist()}) == 4


def test_a_client_without_samples_takes_no_step():
    for plan in (Minibatches(2, None, 4), Minibatches(None, 5, 4), Minibatches(2, None, None)):
        seen, counts = visits(plan, client(0, padded=6), jax.random.key(0))
        assert counts == []
        assert (seen == 0).all()


def test_permutations_are_uniform():
    """χ² over all 24 orders of 4 samples (23 degrees of freedom: above 49.7 once in a thousand)."""
    draws = 2400
    drawn = quickly(jax.vmap(lambda key: permutation(key, jnp.int32(4), 6)))
    orders = drawn(jax.random.split(jax.random.key(0), draws))
    assert (np.sort(np.asarray(orders)[:, :4], axis=1) == np.arange(4)).all()
    _, counts = np.unique(np.asarray(orders)[:, :4], axis=0, return_counts=True)
    assert len(counts) == 24
    assert ((counts - draws / 24) ** 2 / (draws / 24)).sum() < 49.7


def test_what_is_drawn_does_not_depend_on_padding():
    key, drawn = jax.random.key(3), quickly(permutation, static_argnums=2)
    for size in (1, 7, 8, 9):
        orders = [np.asarray(drawn(key, jnp.int32(size), length))[:size] for length in (size, size + 1, 40)]
        np.testing.assert_array_equal(orders[0], orders[1])
        np.testing.assert_array_equal(orders[0], orders[2])


def solved(solver, data, *, rounds=1, round=0, planned=1, weights=None, penalty=None):
    """A logistic model from zero after ``rounds`` local solves, as a weight vector (bias last)."""
    model = mj.models.linear(mj.models.Spec((data.x.shape[1],), classes=2))
    params = jax.tree.map(lambda a: np.zeros(a.shape, a.dtype), jax.eval_shape(model.init, jax.random.key(0)))
    moments = jax.tree.map(np.asarray, solver.moments(params))

    @quickly
    def solve(params, moments, k, weights):
        view = View((), as_hyper(solver.hyper), round + k, planned)
        return solver.solve(model, Task(view, data, jax.random.key(k), weights, penalty), params, moments)

    for k in range(rounds):
        params, moments, _ = solve(params, moments, k, weights)
    return vector(params)


def vector(params):
    (layer,) = params
    return np.concatenate([np.asarray(layer["weight"])[:, 0], np.asarray(layer["bias"])])


def gradient(theta, data, weights=None):
    """Σ_i weight_i ∇loss_i / n, in double precision."""
    n = int(data.size)
    x = np.c_[np.asarray(data.x, np.float64)[:n], np.ones(n)]
    error = 1 / (1 + np.exp(-x @ theta)) - np.asarray(data.y)[:n]
    return x.T @ (error * (1 if weights is None else np.asarray(weights)[:n])) / n


def test_gradients_are_divided_by_the_batch_size_not_by_the_weights():
    data, weights = client(6, padded=2), jnp.linspace(0.1, 0.8, 8)
    expected = -0.5 * gradient(np.zeros(3), data, weights)
    for batch_size in (None, 6, 64):
        found = solved(mj.local_sgd(0.5, batch_size=batch_size), data, weights=weights)
        np.testing.assert_allclose(found, expected, rtol=1e-5)
    second = expected - 0.5 * gradient(expected, data, weights)
    found = solved(mj.local_sgd(0.5, epochs=2, batch_size=None), data, weights=weights)  # weighted in both passes
    np.testing.assert_allclose(found, second, rtol=1e-5)


def test_a_smaller_last_batch_is_divided_by_its_own_size():
    """With one sample twice in the data, a batch of 2 and then one of 1, every step has that sample's gradient."""
    one = client(1)
    data = ClientData(jnp.tile(one.x, (3, 1)), jnp.tile(one.y, 3), jnp.int32(3), one.id)
    theta = np.zeros(3)
    for _ in range(2):
        theta = theta - 0.5 * gradient(theta, one)
    np.testing.assert_allclose(solved(mj.local_sgd(0.5, batch_size=2), data), theta, rtol=1e-5)


@pytest.mark.parametrize("keep", [True, False])
def test_momentum_and_weight_decay_follow_their_recursion(keep):
    data = client(8)
    solver = mj.local_sgd(0.3, epochs=2, batch_size=None, momentum=0.9, weight_decay=0.05, keep_moments=keep)
    theta, m = np.zeros(3), np.zeros(3)
    for _ in range(3):
        m = m if keep else np.zeros(3)
        for _ in range(2):
            m = 0.9 * m + gradient(theta, data) + 0.05 * theta
            theta = theta - 0.3 * m
    np.testing.assert_allclose(solved(solver, data, rounds=3), theta, rtol=1e-4)


@pytest.mark.parametrize("keep", [True, False])
def test_moments_that_start_anew_are_not_given_back(keep):
    """A client would keep them, and write them to disk."""
    solver, data = mj.local_sgd(0.3, batch_size=None, momentum=0.9, keep_moments=keep), client(8)
    model = mj.models.linear(mj.models.Spec((2,), classes=2))
    params = model.init(jax.random.key(0))
    task = Task(View((), as_hyper(solver.hyper), 0, 1), data, jax.random.key(0))
    found = jax.eval_shape(lambda: solver.solve(model, task, params, solver.moments(params)))
    assert jax.tree.structure(found.moments) == jax.tree.structure(params if keep else ())


def test_any_optax_optimizer_is_a_local_solver():
    data = client(8)
    found = solved(mj.local_optax(optax.sgd(0.3, momentum=0.9), epochs=4, batch_size=None), data)
    np.testing.assert_allclose(
        found, solved(mj.local_sgd(0.3, epochs=4, batch_size=None, momentum=0.9), data), rtol=1e-5
    )


def test_a_penalty_is_added_to_the_loss():
    data = client(8)
    pulled = lambda params: 50.0 * sum(((leaf - 2.0) ** 2).sum() for leaf in jax.tree.leaves(params))
    found = solved(mj.local_sgd(0.01, steps=200, batch_size=None), data, penalty=pulled)
    expected = np.full(3, 2.0)
    for _ in range(20):  # fixed point: θ = 2 − ∇f(θ)/100
        expected = 2 - gradient(expected, data) / 100
    np.testing.assert_allclose(found, expected, rtol=1e-4)


@pytest.mark.parametrize("batch_size", [None, 7])
@pytest.mark.parametrize("n", [1, 5, 7, 12])
def test_blocks_of_a_batch_add_up_to_its_gradient(n, batch_size):
    """Weights, a penalty, batches that blocks of 5 do not divide, and a smaller last batch."""
    data, weights = client(n, padded=3), jnp.linspace(0.1, 0.8, n + 3)
    penalty = lambda params: 3.0 * sum((leaf**2).sum() for leaf in jax.tree.leaves(params))
    model = mj.models.linear(mj.models.Spec((2,), 2))
    local = mj.local_sgd(0.1, epochs=2, batch_size=batch_size, momentum=0.5)
    view = View((), as_hyper(local.hyper), 0, 1)

    def solve(model, key):
        params, task = model.init(key), Task(view, data, key, weights, penalty)
        return local.solve(model, task, params, local.moments(params))

    close = lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-7)
    jax.tree.map(
        close, *quickly(lambda key: (solve(model._replace(block=5), key), solve(model, key)))(jax.random.key(1))
    )


def test_schedules_scale_the_learning_rate_by_the_progress_of_the_run():
    data = client(8)
    step = lambda schedule, round: solved(
        mj.local_sgd(0.5, batch_size=None, schedule=schedule), data, round=round, planned=100
    )
    full = step(mj.schedules.constant(), 0)
    for round, factor in ((0, 1), (49, 1), (50, 0.1), (74, 0.1), (75, 0.01), (99, 0.01)):
        np.testing.assert_allclose(step(mj.schedules.multi_step(), round), factor * full, rtol=1e-5)
    np.testing.assert_allclose(step(mj.schedules.cosine(), 50), 0.5 * full, rtol=1e-5)
    for round, factor in ((0, 1), (50, 0.6), (100, 0.2)):
        np.testing.assert_allclose(step(mj.schedules.cosine(floor=0.2), round), factor * full, rtol=1e-5)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"lr": 0.0}, "lr must be a finite number greater than 0, got 0.0"),
        ({"lr": float("nan")}, "lr must be a finite number greater than 0, got nan"),
        ({"momentum": 1.0}, "momentum must be a finite number at least 0 and less than 1"),
        ({"weight_decay": -1.0}, "weight_decay must be a finite number at least 0"),
        ({"epochs": 0}, "epochs must be None or a positive whole number, got 0"),
        ({"batch_size": 2.5}, "batch_size must be None or a positive whole number, got 2.5"),
        ({"epochs": 1, "steps": 1}, "give epochs or steps, not both"),
    ],
)
def test_impossible_settings_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        mj.local_sgd(**options)


def test_the_logged_loss_is_the_mean_over_the_samples_before_each_step():
    """With a learning rate of (almost) nothing every minibatch sees the same model, so the mean is the full loss."""
    data = mj.data.synthetic_mixture(clients=1, dimension=3, seed=0)
    x, y = data.train.client(0)
    model = mj.models.linear(data)
    params = model.init(jax.random.key(1))
    local = mj.local_sgd(1e-20, epochs=1, batch_size=7)
    view = View(params, as_hyper(local.hyper), 0, 1)
    client = ClientData(jnp.asarray(x), jnp.asarray(y), jnp.int32(len(y)), jnp.int32(0))
    loss = local.solve(model, Task(view, client, jax.random.key(0)), params, local.moments(params)).loss
    np.testing.assert_allclose(loss, model.losses(params, x, y).mean(), rtol=1e-5)


def test_a_model_with_a_training_pass_is_not_passed_through_otherwise():
    """A forward pass whose result nobody reads would be traced, differentiated and compiled all the same."""
    model = mj.models.linear(mj.models.Spec((2,), 2))
    asked = []
    spy = model._replace(
        apply=lambda params, x: asked.append("apply") or model.apply(params, x),
        train_apply=lambda params, x, draw: asked.append("train") or (model.apply(params, x), params),
        statistics="",
    )
    solver = mj.local_sgd(0.1, steps=1, batch_size=2)
    params, view = model.init(jax.random.key(0)), View((), as_hyper(solver.hyper), 0, 1)
    jax.eval_shape(lambda p: solver.solve(spy, Task(view, client(4), jax.random.key(1)), p, ()), params)
    assert set(asked) == {"train"}


@pytest.mark.parametrize("named", ["statistics", None])
def test_statistics_are_what_the_model_makes_of_a_batch_and_weights_take_a_step(named):
    """Also where the model does not say which of its parameters are statistics."""
    plain, data = mj.models.linear(mj.models.Spec((2,), 2)), client(4)
    normed = plain._replace(
        init=lambda key: {"weights": plain.init(key), "statistics": jnp.zeros(2)},
        apply=lambda params, x: plain.apply(params["weights"], x),
        train_apply=lambda params, x, draw: (
            plain.apply(params["weights"], x),
            {"weights": params["weights"], "statistics": x.mean(axis=0)},
        ),
        statistics=named,
    )
    solver, task = mj.local_sgd(0.1, steps=1, batch_size=None), jax.random.key(1)
    view, start = View((), {"lr": jnp.float32(0.1)}, 0, 1), normed.init(jax.random.key(0))
    found = solver.solve(normed, Task(view, data, task), start, solver.moments(start)).params
    np.testing.assert_allclose(found["statistics"], data.x.mean(axis=0), rtol=1e-5)
    weights = solver.solve(plain, Task(view, data, task), start["weights"], ()).params
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5), found["weights"], weights)


def test_schedules_are_the_same_for_optax_and_sgd():
    data, options = client(6), {"epochs": 1, "batch_size": None, "schedule": cosine()}
    at = {"round": 6, "planned": 10}
    ours, theirs = mj.local_sgd(0.3, **options), mj.local_optax(optax.sgd(0.3), **options)
    np.testing.assert_allclose(solved(theirs, data, **at), solved(ours, data, **at), rtol=1e-5)
    assert np.abs(solved(theirs, data, **at)).max() < 0.6 * np.abs(solved(theirs, data)).max()
