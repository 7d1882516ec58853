"""Federated surrogate optimization: exact solves on one client go down monotonically; it measures its convergence."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import majorant as mj
import zoo
from compiling import quickly
from majorant.core import ClientData, View
from majorant.surrogates import Coefficients, PartialSurrogate, em_surrogate, logistic_bound, quadratic_surrogate


def client(t=0, padding=0):
    x, y = (np.pad(a, [(0, padding)] + [(0, 0)] * (a.ndim - 1)) for a in zoo.training().train.client(t))
    return ClientData(jnp.asarray(x), jnp.asarray(y), jnp.int32(len(y) - padding), jnp.int32(t))


def start(algorithm, data):
    key = jax.random.key(3)
    server = algorithm.server.init(key)
    view = View(server.value, server.hyper, 0, 1)
    return view, algorithm.client.init(view, data, key)


def em():
    return em_surrogate(mj.models.linear(zoo.training()), components=2)


def test_one_client_goes_down_monotonically():
    """With exact solves and one client the rounds are Algorithm 6."""
    data, surrogate, values = zoo.federated([zoo.training().train.client(0)]), logistic_bound(zoo.training()), []
    record = lambda records, snapshot: values.append(records[0]["objective"])
    mj.simulate(
        mj.surrogate_optimization(surrogate),
        data,
        rounds=6,
        evaluation=mj.Evaluation(every=1, diagnostics=True, report=record),
    )
    assert len(values) >= 6
    assert (np.diff(values) <= 1e-7).all()


def test_u_is_minimised_where_v_has_gone():
    """g = ½(u − v)² + ½ mean (v − y)²: at u the best v is halfway to the mean, and there the best u is."""
    halfway = PartialSurrogate(
        "halfway",
        init=lambda key: jnp.array(1.0),
        objective=lambda u, v, data: 0.5 * (u - v) ** 2 + 0.5 * ((v - data.y) ** 2).mean(),
        majorize=lambda u, v, data: Coefficients(),
        value=lambda coefficients, u, v, batch: 0.5 * (u - v) ** 2 + 0.5 * ((v - batch.y) ** 2).mean(),
        predict=lambda u, v, x: jnp.full(len(x), v),
        minimize_u=lambda coefficients, v, data: v,
        init_v=lambda data, key: jnp.array(-5.0),
        minimize_v=lambda coefficients, u, data: (u + data.y.mean()) / 2,
    )
    algorithm = mj.surrogate_optimization(halfway)
    data = ClientData(jnp.zeros((4, 1)), jnp.arange(4.0), jnp.int32(4), jnp.int32(0))
    upload, after = algorithm.client.update(*start(algorithm, data), data, jax.random.key(0))
    assert float(upload.value) == float(after.v) == 1.25


def test_diagnosis_measures_gradient_gain_and_distance():
    """Against quantities computed from the definition of f, client by client."""
    surrogate, data = em(), zoo.training()
    algorithm = mj.surrogate_optimization(surrogate, local=mj.local_sgd(0.1))
    clients, sizes = [client(0), client(1)], np.array([zoo.SIZES[0], zoo.SIZES[1]])
    view, _ = start(algorithm, clients[0])
    states = [start(algorithm, c)[1]._replace(v=jnp.array([0.3, 0.7])) for c in clients]
    measure = quickly(algorithm.diagnostics.measure)
    measured = [measure(view, s, c, jax.random.key(0)) for s, c in zip(states, clients, strict=True)]
    weights = sizes / sizes.sum()
    mean = jax.tree.map(lambda *leaves: sum(w * leaf for w, leaf in zip(weights, leaves, strict=True)), *measured)
    concluded = algorithm.diagnostics.conclude(None, mean)

    @jax.jit
    def likelihood(theta, pi, c):
        losses = jnp.stack([mj.models.linear(data).losses(component, c.x, c.y) for component in theta])
        return -jnp.log((pi[:, None] * jnp.exp(-losses)).sum(0)).mean()

    pi, f, gain, distance = states[0].v, 0.0, 0.0, 0.0
    unstack = lambda theta: [jax.tree.map(lambda a, m=m: a[m], theta) for m in range(2)]
    total = lambda theta: sum(w * likelihood(unstack(theta), pi, c) for w, c in zip(weights, clients, strict=True))
    for w, c in zip(weights, clients, strict=True):
        losses = np.stack([mj.models.linear(data).losses(component, c.x, c.y) for component in unstack(view.value)])
        q = np.asarray(pi)[:, None] * np.exp(-losses)
        new = (q / q.sum(0)).mean(1)
        before, after = (likelihood(unstack(view.value), p, c) for p in (pi, new))
        f, gain = f + w * before, gain + w * (before - after)
        distance = distance + w * (new * np.log(new / pi)).sum()
    gradient = sum(float((g**2).sum()) for g in jax.tree.leaves(quickly(jax.grad(total))(view.value)))
    np.testing.assert_allclose(concluded["objective"], f, rtol=1e-5)
    np.testing.assert_allclose(concluded["v_gain"], gain, atol=1e-6)
    np.testing.assert_allclose(concluded["v_distance"], distance, atol=1e-6)
    np.testing.assert_allclose(concluded["gradient_squared"], gradient, rtol=1e-4)
    assert concluded["v_gain"] >= concluded["v_distance"] > 0  # (161): the objective gains at least the distance


def test_alpha_is_known_for_the_quadratic_surrogate():
    """A step of length s/L on a parabola leaves the share (1 − s)² of the gap undone."""
    surrogate = quadratic_surrogate(mj.models.linear(zoo.training()), smoothness=4.0)
    for share in (0.5, 1.0, 1.5):
        local = mj.local_sgd(share / 4.0, epochs=1, batch_size=None)
        algorithm = mj.surrogate_optimization(surrogate, local=local)
        data = client(padding=3)
        alpha = quickly(algorithm.diagnostics.probe)(*start(algorithm, data), data, jax.random.key(0))["alpha"]
        np.testing.assert_allclose(alpha, (1 - share) ** 2, atol=1e-4)
    exact = mj.surrogate_optimization(surrogate)
    assert float(quickly(exact.diagnostics.probe)(*start(exact, data), data, jax.random.key(0))["alpha"]) < 1e-4


def test_more_local_steps_solve_better():
    alphas = []
    for steps in (1, 10, 100):
        algorithm = mj.surrogate_optimization(em(), local=mj.local_sgd(0.5, steps=steps, batch_size=None))
        data = client()
        probe = quickly(algorithm.diagnostics.probe)
        alphas.append(float(probe(*start(algorithm, data), data, jax.random.key(0))["alpha"]))
    assert 1 > alphas[0] > alphas[1] > alphas[2] >= 0


def test_diagnostics_appear_in_a_run():
    algorithm = mj.surrogate_optimization(em(), local=mj.local_sgd(0.5, epochs=5, batch_size=4))
    run = mj.simulate(algorithm, zoo.training(), rounds=60, evaluation=mj.Evaluation(every=20, diagnostics=True))
    first, last = run.history[0], run.history[-1]
    assert {"gradient_squared", "v_gain", "v_distance", "objective", "alpha"} <= last.keys()
    assert last["objective"] < first["objective"]
    assert last["v_distance"] < first["v_distance"]


def test_black_box_solvers_fit():
    """The exact minimiser by Newton steps: Böhning's bound is a parabola, so both are the same."""
    surrogate = logistic_bound(zoo.training(), kind="bohning", l2=0.1)
    exact = mj.simulate(mj.surrogate_optimization(surrogate), zoo.training(), rounds=4)
    newton = mj.simulate(
        mj.surrogate_optimization(surrogate, local=mj.solvers.local_newton(l2=0)), zoo.training(), rounds=4
    )
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5), exact.server.value, newton.server.value)


def test_a_client_without_samples_sends_the_broadcast_with_weight_0():
    for surrogate, local in ((em(), mj.local_sgd(0.1)), (logistic_bound(zoo.training()), None)):
        algorithm = mj.surrogate_optimization(surrogate, local=local)
        data = client()._replace(size=jnp.int32(0))
        view, state = start(algorithm, data)
        upload, after = quickly(algorithm.client.update)(view, state, data, jax.random.key(0))
        jax.tree.map(np.testing.assert_array_equal, (upload.value, after.v), (view.value, state.v))
        assert upload.weight == 0
        assert np.isfinite(upload.info["loss"])


def test_pooled_samples_may_come_in_three_forms():
    data, surrogate = zoo.training(), logistic_bound(zoo.training())
    data = data.take(~data.unseen)
    padded = ClientData(*(jnp.asarray(a) for a in (data.train.x, data.train.y, len(data.train.y), 0)))
    values = [
        mj.methods.mm(surrogate, samples, iterations=5).values
        for samples in (data, (data.train.x, data.train.y), padded)
    ]
    np.testing.assert_allclose(values[0], values[1])
    np.testing.assert_allclose(values[0], values[2])


def test_wrong_arguments():
    with pytest.raises(ValueError, match="em surrogate has no exact minimiser in u: give a local solver"):
        mj.surrogate_optimization(em())
    with pytest.raises(ValueError, match="both have a hyperparameter l2"):
        mj.surrogate_optimization(logistic_bound(zoo.training()), local=mj.solvers.local_newton())
    with pytest.raises(ValueError, match="iterations"):
        mj.methods.mm(logistic_bound(zoo.training()), zoo.training(), iterations=0)
    with pytest.raises(ValueError, match="jaakkola has no statistic"):
        mj.methods.mm(logistic_bound(zoo.training()), zoo.training(), statistic=jnp.zeros(2))
