"""Bounds on the logistic loss: monotone, and with scikit-learn's solution as their limit."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

import majorant as mj
import zoo
from majorant.models.base import Spec
from majorant.surrogates import logistic_bound
from majorant.surrogates.logistic_bounds import jaakkola

KINDS = ("jaakkola", "bohning")
both = pytest.mark.parametrize("kind", KINDS)


@both
def test_limit_is_scikit_learns_solution(kind):
    data, l2 = zoo.training().take(~zoo.training().unseen), 0.05
    found = mj.methods.mm(logistic_bound(data, kind=kind, l2=l2), data, iterations=60)
    values = np.asarray(found.values)
    assert (np.diff(values) <= 2e-7).all()
    x, y = data.train.x.astype(np.float64), data.train.y
    reference = LogisticRegression(C=1 / (l2 * len(y)), tol=1e-10, max_iter=1000).fit(x, y)
    np.testing.assert_allclose(found.params[0][0]["weight"][:, 0], reference.coef_[0], atol=1e-5)
    np.testing.assert_allclose(found.params[0][0]["bias"], reference.intercept_, atol=1e-5)


def test_jaakkola_is_the_tighter_bound():
    data = zoo.training()
    after = {kind: mj.methods.mm(logistic_bound(data, kind=kind), data, iterations=3).values for kind in KINDS}
    assert after["jaakkola"][-1] < after["bohning"][-1]


def test_curvature_at_and_near_zero():
    z = np.array([0.0, 1e-8, 1e-4, 9.99e-4, 1.001e-3, 0.1, 3.0, 50.0, 1e30])
    exact = [0.25, *(np.tanh(a / 2) / (2 * a) for a in z[1:])]
    for sign in (1, -1):
        np.testing.assert_allclose(jaakkola(jnp.asarray(sign * z, jnp.float32)), exact, rtol=1e-6)
        with jax.enable_x64(True):  # the term after the first is below single precision's rounding
            np.testing.assert_allclose(jaakkola(jnp.asarray(sign * z[3:])), exact[3:], rtol=1e-13)


@both
def test_two_equal_clients_are_one(kind):
    """With equal matrices the mean of the minimisers is the minimiser of the mean."""
    (x, y), surrogate, starts = zoo.training().train.client(0), logistic_bound(zoo.training(), kind=kind), []
    data = zoo.federated([(x, y)] * 2)
    keep = lambda fresh: starts.append(fresh) or fresh
    run = mj.simulate(mj.surrogate_optimization(surrogate), data, rounds=5, resume=keep)
    start = jax.tree.map(lambda a: jnp.asarray(a[0]), starts[0].server.value)
    alone = mj.methods.mm(surrogate, (x, y), iterations=5, start=start)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4), run.server.value, alone.params[0])


def test_wrong_arguments():
    with pytest.raises(ValueError, match="kind must be one of jaakkola, bohning"):
        logistic_bound(zoo.training(), kind="newton")
    with pytest.raises(ValueError, match="two classes"):
        logistic_bound(Spec((3,), 4))
    with pytest.raises(ValueError, match="l2"):
        logistic_bound(zoo.training(), l2=0.0)
