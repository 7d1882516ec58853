"""The measures of convergence, against sums written out by hand and what they must be at known points."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import majorant as mj
import zoo
from compiling import quickly
from majorant.core import ClientData, View, as_hyper
from majorant.objectives import global_value, mixture

MODEL = mj.models.linear(zoo.training())
KEY = jax.random.key(0)


def client(index, length=15):
    """Other samples than its own, as padding, make all of them equally long."""
    x, y = zoo.training().train.client(index)
    pad = lambda a: jnp.asarray(np.concatenate([a, a[: length - len(a)]]))
    return ClientData(pad(x), pad(y), jnp.int32(len(y)), jnp.int32(index))


def measured(algorithm, view, state, clients):
    """The diagnosis over clients, weighted by their sizes."""
    data = [client(t) for t in clients]
    measure = quickly(algorithm.diagnostics.measure)
    found = [measure(view, state, d, KEY) for d in data]
    sizes = np.array([int(d.size) for d in data])
    mean = jax.tree.map(
        lambda *leaves: sum(n * leaf for n, leaf in zip(sizes, leaves, strict=True)) / sizes.sum(), *found
    )
    return algorithm.diagnostics.conclude(None, mean)


def test_a_shared_model_is_measured_by_the_gradient_over_all_samples():
    theta, clients = MODEL.init(KEY), (0, 1, 3)
    x, y = (np.concatenate(parts) for parts in zip(*(zoo.training().train.client(t) for t in clients), strict=True))
    objective, gradient = quickly(jax.value_and_grad(lambda theta: MODEL.losses(theta, x, y).mean()))(theta)
    found = measured(mj.fedavg(MODEL), View(theta, {}, 0, 1), (), clients)
    assert set(found) == {"objective", "gradient_squared"}
    np.testing.assert_allclose(found["objective"], objective, rtol=1e-5)
    np.testing.assert_allclose(
        found["gradient_squared"], sum((g**2).sum() for g in jax.tree.leaves(gradient)), rtol=1e-5
    )


@pytest.mark.parametrize("variant", ["paper", "released"])
def test_pfedme_is_measured_by_its_objective(variant):
    """In the paper's variant that is the mixture objective, whose own solvers report it as well."""
    data = zoo.training()
    model = mj.models.linear(data, start="zeros")
    local = mj.local_sgd(0.1, steps=3, batch_size=4)
    algorithm = mj.pfedme(model, mu=0.3, variant=variant, inner_steps=2, outer_lr=0.5, local=local)
    run = mj.simulate(algorithm, data, rounds=3, evaluation=mj.Evaluation(every=3, diagnostics=True))
    start = jax.tree.leaves(algorithm.server.init(KEY).value)
    assert not any(leaf.any() for leaf in start)
    w, thetas = (jax.tree.map(lambda a: a[0], t) for t in (run.snapshot.server.value[0], run.snapshot.clients.theta[0]))
    if variant == "paper":
        w = jax.tree.map(lambda a: a * 5**0.5, w)  # of five clients: the objective multiplies w by 1/√5
        expected = global_value(mixture(data, lambda_=0.3, l2=0.0), data, w, thetas)
    else:
        each, ids = [], np.flatnonzero(~data.unseen)
        for place, id in enumerate(ids):
            theta = jax.tree.map(lambda a, place=place: a[place], thetas)
            apart = sum(((a - b) ** 2).sum() for a, b in zip(*map(jax.tree.leaves, (theta, w)), strict=True))
            each.append(model.losses([theta], *map(jnp.asarray, data.train.client(id))).mean() + 0.15 * apart)
        expected = np.average(each, weights=data.train.sizes[ids])
    assert run.history[-1]["objective"] == pytest.approx(float(expected), rel=1e-5)


def test_a_mixture_is_measured_by_its_likelihood():
    algorithm, clients = mj.fedem(MODEL, components=2), (0, 4)
    view = View(algorithm.server.init(KEY).value, as_hyper(mj.local_sgd().hyper), 0, 1)
    state = algorithm.client.init(view, client(0), KEY)._replace(pi=jnp.array([0.3, 0.7]))

    @partial(jax.jit, static_argnums=1)
    def likelihoods(theta, t, pi):
        x, y = zoo.training().train.client(t)
        return pi * jnp.exp(-jax.vmap(lambda theta_m: MODEL.losses(theta_m, x, y))(theta).T)  # (n, M)

    sizes = zoo.training().train.sizes[list(clients)]
    share = sizes / sizes.sum()

    @quickly
    @jax.value_and_grad
    def mean(theta, pis):
        each = [jnp.log(likelihoods(theta, t, pi).sum(axis=1)).mean() for t, pi in zip(clients, pis, strict=True)]
        return -sum(s * value for s, value in zip(share, each, strict=True))

    now = [state.pi] * 2
    joint = [np.asarray(likelihoods(view.value, t, state.pi)) for t in clients]
    after = [(p / p.sum(axis=1, keepdims=True)).mean(axis=0) for p in joint]
    objective, slope = mean(view.value, now)
    found = measured(algorithm, view, state, clients)
    expected = {
        "objective": objective,
        "gradient_squared": sum((np.asarray(g) ** 2).sum() for g in jax.tree.leaves(slope)),
        "v_gain": objective - mean(view.value, after)[0],
        "v_distance": sum(s * (p * np.log(p / np.asarray(state.pi))).sum() for s, p in zip(share, after, strict=True)),
    }
    assert set(found) == set(expected)
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=2e-4, atol=1e-7, err_msg=name)
    assert found["v_gain"] >= 0


def test_a_runs_measures_fall_to_a_stationary_point_of_exact_em():
    """One client and an exact M-step is EM: the likelihood never decreases, its gradients vanish, α is 0."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(300, 3)).astype(np.float32)
    score = np.where(np.arange(300) < 150, x @ [3.0, -1.0, 0.5], x @ [-1.0, 3.0, 0.5])
    data = zoo.federated([(x, (score + rng.logistic(size=300) > 0).astype(np.int32))])
    algorithm = mj.fedem(mj.models.linear(data), components=2, local=mj.solvers.local_newton(20, l2=0.0))
    run = mj.simulate(algorithm, data, rounds=30, evaluation=mj.Evaluation(every=1, diagnostics=True))
    of = lambda name: np.array([line[name] for line in run.history])
    assert (np.diff(of("objective")) <= 1e-6).all()
    assert of("objective")[-1] < of("objective")[0]
    assert of("gradient_squared")[-1] < 1e-4
    assert (of("v_gain") >= -1e-6).all()
    assert (of("alpha") < 0.02).all()


@pytest.mark.parametrize("name", ["fedavg", "fedprox", "fedem"])
def test_alpha_is_small_for_an_exact_solver_and_large_for_a_lazy_one(name):
    method = getattr(mj, name)
    run = lambda local: mj.simulate(
        method(MODEL, local=local), zoo.federated(noisy()), rounds=1, evaluation=mj.Evaluation(diagnostics=True)
    )
    exact, lazy = (
        run(local).history[-1]["alpha"] for local in (mj.solvers.local_newton(10), mj.local_sgd(0.01, batch_size=None))
    )
    assert exact < 1e-2
    assert 0.5 < lazy <= 1


def noisy():
    """Labels that no line separates."""
    rng = np.random.default_rng(1)
    x = rng.normal(size=(3, 40, 3)).astype(np.float32)
    return [(x[t], (x[t, :, 0] + 2 * rng.normal(size=40) > 0).astype(np.int32)) for t in range(3)]
