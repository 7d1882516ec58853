"""Local solvers that are Python functions: what they are given, and what becomes of what they return."""

import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import majorant as mj
import zoo
from majorant.core import ClientData
from majorant.solvers import Task

MODEL = mj.models.linear(zoo.training())


def gradient_step(params, x, y, weights):
    """One step of length 0.3 on Σ weight · loss / n of logistic regression, in double precision."""
    (layer,) = params
    error = weights * (1 / (1 + np.exp(-(x @ layer["weight"] + layer["bias"])[:, 0].astype(np.float64))) - y)
    slope = {"weight": x.T @ error[:, None] / len(y), "bias": error.sum(keepdims=True) / len(y)}
    return [{name: layer[name] - 0.3 * slope[name] for name in layer}]


def simulate(function, method=mj.fedavg, **options):
    return mj.simulate(
        method(MODEL, local=mj.solvers.local_function(function)), zoo.training(), **{"rounds": 2} | options
    )


@pytest.mark.parametrize("method", [mj.fedavg, mj.fedem, mj.local])
def test_a_gradient_step_by_hand_is_one_of_sgd(method):
    """Weights and padding included; float64 results become float32."""
    mine = simulate(gradient_step, method, resources=mj.Resources(extra_padding=3))
    sgd = mj.simulate(method(MODEL, local=mj.local_sgd(0.3, batch_size=None)), zoo.training(), rounds=2)
    close = lambda a, b: np.testing.assert_allclose(a, b, atol=1e-6)
    jax.tree.map(close, mine.snapshot.server.value, sgd.snapshot.server.value)
    jax.tree.map(close, mine.snapshot.clients, sgd.snapshot.clients)
    assert mine.summary()["rejected"] == 0


def test_a_function_sees_real_rows_only_and_a_seed_where_it_asks():
    seen = set()

    def record(params, x, y, weights, seed):
        seen.add((len(x), len(y), len(weights), seed))
        x[:] = 0  # its own copy
        return params

    simulate(record, rounds=1, resources=mj.Resources(extra_padding=5))
    sizes = [n for t, n in enumerate(zoo.SIZES) if t != zoo.UNSEEN]
    assert sorted(s[:3] for s in seen) == sorted((n, n, n) for n in sizes)
    assert len({s[3] for s in seen}) == len(sizes)
    first = set(seen)
    seen.clear()
    simulate(record, rounds=1)
    assert seen == first


@pytest.mark.parametrize(
    ("result", "message"),
    [
        (
            lambda p: [{**p[0], "weight": np.zeros((7, 1))}],
            r"gives \[0\]\['weight'\] of shape \(7, 1\), expected \(3, 1\)",
        ),
        (lambda p: p[0], r"gives a tree of another structure: PyTreeDef\(\{'bias'"),
    ],
)
def test_another_shape_is_an_error_that_names_it(result, message):
    def wrong(params, x, y, weights):
        return result(params)

    with pytest.raises(Exception, match=r"the local solver 'wrong' " + message):
        simulate(wrong)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_numbers_that_are_not_finite_are_rejected_and_counted(bad):
    def sometimes(params, x, y, weights):
        return jax.tree.map(lambda p: p + bad if len(y) == 9 else 0.5 * p, params)

    run = simulate(sometimes)
    assert [line["rejected"] for line in run.history] == [1, 1]
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(run.snapshot.server.value))


def test_a_client_without_samples_does_not_call():
    local = mj.solvers.local_function(lambda params, x, y, weights: pytest.fail("called"))
    x, y = zoo.training().train.client(0)
    data = ClientData(jnp.asarray(x), jnp.asarray(y), jnp.int32(0), jnp.int32(0))
    params = MODEL.init(jax.random.key(0))
    found = local.solve(MODEL, Task(None, data, jax.random.key(0)), params, ())
    jax.tree.map(np.testing.assert_array_equal, found.params, params)


def test_absent_clients_do_not_call():
    """Places of a chunk that no active client needs are filled by absent ones."""
    sizes = []

    def record(params, x, y, weights):
        sizes.append(len(x))
        return params

    run = simulate(record, participation=mj.participation.bernoulli(0.5), rounds=4, seed=1)
    assert len(sizes) == sum(line["participants"] for line in run.history)
    assert len({line["participants"] for line in run.history}) > 1


def test_what_a_function_cannot_do_is_refused():
    with pytest.raises(ValueError, match="adds a penalty to the local loss, which a Python function is not given"):
        simulate(gradient_step, mj.fedprox)
    with pytest.raises(TypeError, match="local_function takes a function"):
        mj.solvers.local_function(3)
    with pytest.raises(ValueError, match="has an objective of its own"):
        mj.solvers.local_function(gradient_step).minimize(None, None, None, ())


def test_runs_side_by_side_are_the_single_runs():
    both, single = simulate(gradient_step, seeds=2), simulate(gradient_step, seed=1)
    close = lambda a, b: np.testing.assert_allclose(a, b, atol=1e-6)
    jax.tree.map(close, both[1].snapshot.server.value, single.snapshot.server.value)


def test_without_pytorch_it_is_said_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    for use in (lambda: mj.models.from_torch(None, zoo.training()), lambda: mj.solvers.local_torch(None, None)):
        with pytest.raises(ImportError, match=r"needs the package 'torch': pip install 'majorant\[torch\]'"):
            use()
