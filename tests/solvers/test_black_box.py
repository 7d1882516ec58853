"""Local solvers of the whole objective, against scikit-learn, NumPy and what can be worked out by hand."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

import majorant as mj
import zoo
from compiling import quickly
from majorant.core import ClientData, View, as_hyper
from majorant.solvers import Task

N, D = 60, 3
KEY = jax.random.key(0)


@functools.cache
def samples(classes=2, seed=0):
    """Features, labels that no line separates, and weights."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(N, D)).astype(np.float32)
    score = x @ rng.normal(size=(D, max(classes, 1))) + rng.normal(size=(N, max(classes, 1)))
    y = score[:, 0].astype(np.float32) if classes == 0 else score.argmax(axis=1).astype(np.int32)
    return x, y, rng.uniform(0.1, 1, size=N).astype(np.float32)


def client(x, y, *, padded=0, size=None):
    pad = lambda a: jnp.asarray(np.concatenate([a, np.zeros((padded, *a.shape[1:]), a.dtype)]))
    return ClientData(pad(x), pad(y), jnp.int32(len(y) if size is None else size), jnp.int32(0))


def solve(solver, model, data, params, **options):
    view = View((), as_hyper(solver.hyper), 0, 1)
    run = lambda params, data: solver.solve(model, Task(view, data, KEY, **options), params, solver.moments(params))
    return jax.jit(run)(params, data)


def model_of(classes):
    return mj.models.linear(mj.models.Spec((D,), classes))


def matrix(params):
    """Weights, and the bias as a last row."""
    (layer,) = params
    return np.r_[np.asarray(layer["weight"]), np.asarray(layer["bias"])[None]]


SOLVERS = {
    "newton": lambda **o: mj.solvers.local_newton(10, **o),
    "lbfgs": lambda **o: mj.solvers.local_lbfgs(100, **o),
}


@pytest.mark.parametrize(("name", "tolerance"), [("newton", 1e-5), ("lbfgs", 2e-4)])
@pytest.mark.parametrize("classes", [2, 3])
def test_logistic_and_softmax_regression_are_those_of_scikit_learn(name, tolerance, classes):
    """With weights w: Σ w·loss / n + (l2/2) ‖θ‖², which is scikit-learn's with C = 1 / (n·l2); padding is not seen."""
    x, y, w = samples(classes)
    found = solve(
        SOLVERS[name](l2=0.01),
        model_of(classes),
        client(x, y, padded=4),
        start(classes),
        weights=np.r_[w, 9.0 * np.ones(4)].astype(np.float32),
    )
    outside = LogisticRegression(C=1 / (N * 0.01), fit_intercept=False, tol=1e-12, max_iter=10_000)
    outside.fit(np.c_[x, np.ones(N)].astype(np.float64), y, sample_weight=w)
    np.testing.assert_allclose(matrix(found.params), outside.coef_.T, atol=tolerance)


@functools.cache
def start(classes):
    return quickly(model_of(classes).init)(jax.random.key(3))


@pytest.mark.parametrize("solver", [mj.solvers.local_newton(5), mj.solvers.local_lbfgs(30)])
def test_models_that_are_not_convex_go_down(solver):
    x, y, _ = samples(3)
    model = mj.models.mlp(mj.models.Spec((D,), 3), hidden=(6,))
    params, loss = quickly(model.init)(KEY), quickly(lambda params: model.losses(params, x, y).mean())
    found = solve(solver, model, client(x, y), params)
    before, after = (float(loss(p)) for p in (params, found.params))
    assert after < 0.9 * before
    np.testing.assert_allclose(found.loss, before, rtol=1e-5)


def design(x, w):
    return np.sqrt(w)[:, None] * np.c_[x, np.ones(len(x))].astype(np.float64)


def test_least_squares_is_that_of_numpy():
    x, y, w = samples(0)
    found = solve(
        mj.solvers.local_least_squares(),
        model_of(0),
        client(x, y, padded=4),
        start(0),
        weights=np.r_[w, np.zeros(4, w.dtype)],
    )
    expected = np.linalg.lstsq(design(x, w), np.sqrt(w) * y, rcond=None)[0]
    np.testing.assert_allclose(matrix(found.params)[:, 0], expected, atol=2e-6)


def test_least_squares_does_not_move_where_samples_say_nothing():
    x, y, _ = (a[:2] for a in samples(0))
    theta = matrix(start(0))[:, 0]
    a = design(x, np.ones(2))
    expected = theta + np.linalg.lstsq(a, y - a @ theta, rcond=None)[0]
    found = solve(mj.solvers.local_least_squares(), model_of(0), client(x, y), start(0))
    np.testing.assert_allclose(matrix(found.params)[:, 0], expected, atol=1e-5)


@pytest.mark.parametrize(
    "solver", [mj.solvers.local_newton(10), mj.solvers.local_lbfgs(50), mj.solvers.local_least_squares(l2=1e-6)]
)
def test_a_penalty_is_part_of_the_objective(solver):
    """At the optimum ∇f + μ (θ − a) = 0."""
    x, y, _ = samples(0)
    anchor, mu, model = start(0), 3.0, model_of(0)
    penalty = lambda p: mu / 2 * sum(jax.tree.leaves(jax.tree.map(lambda p, a: ((p - a) ** 2).sum(), p, anchor)))
    found = solve(solver, model, client(x, y), jax.tree.map(lambda a: a + 1, anchor), penalty=penalty).params
    slope = quickly(jax.grad(lambda p: model.losses(p, x, y).mean() + penalty(p)))(found)
    assert max(np.abs(leaf).max() for leaf in jax.tree.leaves(slope)) < 2e-5


EVERY = [mj.solvers.local_newton(3, l2=0.1), mj.solvers.local_lbfgs(5, l2=0.1), mj.solvers.local_least_squares(l2=0.1)]


@pytest.mark.parametrize("solver", EVERY)
def test_a_client_without_samples_keeps_its_parameters(solver):
    x, y, _ = samples(0)
    for data in (client(x, y, size=0), client(x[:0], y[:0])):
        found = solve(solver, model_of(0), data, start(0))
        jax.tree.map(np.testing.assert_array_equal, found.params, start(0))
        assert float(found.loss) == 0


@pytest.mark.parametrize("solver", EVERY)
def test_an_objective_that_is_not_finite_gives_nan(solver):
    x, y, _ = samples(0)
    found = solve(solver, model_of(0), client(x, np.full_like(y, 1e30)), start(0))
    assert all(bool(jnp.isnan(leaf).all()) for leaf in jax.tree.leaves(found.params))


@pytest.mark.parametrize("solver", EVERY[:2])
def test_any_objective_is_minimized(solver):
    x, y, _ = samples(0)
    view = View((), as_hyper(solver.hyper), 0, 1)
    centre = lambda m, batch: batch.mean(((batch.x - m) ** 2).sum(axis=1) / 2)
    found = solver.minimize(centre, Task(view, client(x, y, padded=5), KEY), jnp.zeros(D), ())
    np.testing.assert_allclose(found.params, x.mean(axis=0) / 1.1, atol=1e-5)


def test_what_cannot_be_solved_is_refused():
    x, y, _ = samples()
    big = mj.models.mlp(mj.models.Spec((D,), 2), hidden=(500,))
    with pytest.raises(ValueError, match=r"for at most 2,000; this model has 2,501: use local_lbfgs"):
        solve(mj.solvers.local_newton(), big, client(x, y), big.init(KEY))
    with pytest.raises(ValueError, match=r"not linear with the logistic loss: use local_newton"):
        solve(mj.solvers.local_least_squares(), model_of(2), client(x, y), start(2))
    deep = mj.models.mlp(mj.models.Spec((D,), 0), hidden=(4,))
    with pytest.raises(ValueError, match=r"not mlp with the squared loss"):
        solve(mj.solvers.local_least_squares(), deep, client(x, y), deep.init(KEY))
    refreshing = model_of(2)._replace(train_apply=lambda params, x: (model_of(2).apply(params, x), params))
    with pytest.raises(ValueError, match=r"refreshes batch statistics while it trains"):
        solve(mj.solvers.local_lbfgs(), refreshing, client(x, y), start(2))
    for method in (mj.apfl, functools.partial(mj.pfedme, variant="paper")):
        with pytest.raises(ValueError, match=r"must be local_sgd or local_optax, not a BlackBox"):
            method(model_of(2), local=mj.solvers.local_newton())
    mj.pfedme(model_of(2), local=mj.solvers.local_newton())
    for options in ({"steps": 0}, {"l2": -1.0}):
        with pytest.raises(ValueError, match=r"steps must be a positive whole|l2 must be a finite number at least 0"):
            mj.solvers.local_newton(**options)


@pytest.mark.parametrize("method", [mj.local, mj.fedprox, mj.fedem])
def test_methods_train_with_black_boxes(method):
    model = mj.models.linear(zoo.training())
    run = mj.simulate(method(model, local=mj.solvers.local_lbfgs(5, l2=0.1)), zoo.training(), rounds=2)
    assert run.summary()["rejected"] == 0
    assert run.history[-1]["train_loss"] < np.log(2) - 0.05


@pytest.mark.parametrize("lr", [0.1, 0.4])
def test_alpha_of_a_gradient_step_is_known(lr):
    """On (h/2)(θ − θ*)² a step leaves (1 − lr·h)² of the gap; the exact solver leaves nothing."""
    spec = mj.models.Spec((1,), 0)
    model = mj.models.from_functions(lambda key: jnp.full((1, 1), 5.0), lambda w, x: x @ w, spec)
    x, y, _ = samples(0)
    x = x[:, :1]
    h = float((x**2).mean())
    sgd = mj.fedavg(model, local=mj.local_sgd(lr, batch_size=None))
    assert probe(sgd, client(x, y, padded=3))["alpha"] == pytest.approx((1 - lr * h) ** 2, rel=1e-4)
    exact = mj.fedavg(model, local=mj.solvers.local_least_squares())
    assert probe(exact, client(x, y, padded=3))["alpha"] < 1e-6


def probe(algorithm, data):
    def found(data):
        view = algorithm.server.broadcast(algorithm.server.init(KEY), KEY)
        return algorithm.diagnostics.probe(view, algorithm.client.init(view, data, KEY), data, KEY)

    return quickly(found)(data)
