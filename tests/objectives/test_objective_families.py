"""What objectives have in common and how they are related: limits, equivalences, rescaling, other models, bad input."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import small_problems
from scipy.optimize import minimize
from small_problems import Flat

from majorant import models
from majorant.objectives import (
    Constants,
    apfl2,
    base_model,
    custom,
    fully_personal,
    maml,
    mixture,
    multi_task,
    reference,
    reference_solution,
    residual,
    traditional,
    weight_sharing,
)
from majorant.objectives.splits import split_by_column, split_by_name

L2 = 0.05
IDS = np.array([0, 2, 3])  # of the clients that train


@pytest.fixture(scope="module")
def data():
    return small_problems.problem("classification")


def deployed(objective, data):
    """The models of all clients at the minimum, stacked."""
    best = reference_solution(objective, data)
    with jax.enable_x64(True):
        found = jax.vmap(objective.deploy, in_axes=(None, 0, 0))(best.w, best.beta, IDS) if best.beta != () else best.w
        return jax.tree.map(np.asarray, found)


@pytest.fixture(scope="module")
def alone(data):
    return deployed(fully_personal(data, l2=L2), data)


@pytest.fixture(scope="module")
def common(data):
    return deployed(traditional(data, l2=L2), data)


def rows(model):
    """A linear model's parameters as rows, one for each client."""
    weight, bias = model["weight"], model["bias"]
    return np.concatenate([weight, bias[..., None, :]], axis=-2)[..., 0]


def assert_same(a, b, atol=1e-6):
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, atol=atol), a, b)


def base_functions(data):
    """f'_m of a row of parameters for all clients, in double precision; inside ``enable_x64``."""
    base = base_model.base_model(data, l2=L2)
    batches, _ = reference.training_batches(data)
    tree = lambda theta: {"weight": theta[:-1, None], "bias": theta[-1:]}
    return jax.vmap(lambda theta, batch: base.value(tree(theta), batch)), batches


def bfgs(function, size):
    """A minimiser by SciPy, from the function alone."""
    both = jax.jit(jax.value_and_grad(function))
    found = minimize(lambda z: tuple(map(np.asarray, both(z))), np.zeros(size), jac=True, method="BFGS", tol=1e-9)
    return found.x


def test_three_forms_of_the_mixture(data):
    """(9) in the personal models, (10) in the shared one, and (11) in both have one solution."""
    lambda_, m, p = 0.4, 3, 4
    best = reference_solution(mixture(data, lambda_=lambda_, l2=L2), data)
    with jax.enable_x64(True):
        each, batches = base_functions(data)

        def spread(flat):
            betas = flat.reshape(m, p)
            return (each(betas, batches) + lambda_ / 2 * jnp.square(betas - betas.mean(axis=0)).sum(axis=1)).mean()

        def inner(w):
            """Newton's method for every client's own problem."""
            pulled = lambda beta, w, batch: (
                each(beta[None], jax.tree.map(lambda a: a[None], batch))[0] + (lambda_ / 2 * jnp.square(beta - w).sum())
            )
            step = lambda beta, batch: (
                beta - jnp.linalg.solve(jax.hessian(pulled)(beta, w, batch), jax.grad(pulled)(beta, w, batch))
            )
            start = jnp.tile(w, (m, 1))
            return jax.lax.fori_loop(0, 12, lambda _, betas: jax.vmap(step)(betas, batches), start)

        @jax.jit
        def envelope(w):
            """(10) and its gradient, λ (w − β_m(w)) on average."""
            betas = inner(w)
            value = (each(betas, batches) + lambda_ / 2 * jnp.square(betas - w).sum(axis=1)).mean()
            return value, lambda_ * (w - betas).mean(axis=0)

        of_9 = bfgs(spread, m * p).reshape(m, p)
        of_10 = minimize(lambda z: tuple(map(np.asarray, envelope(z))), np.zeros(p), jac=True, method="BFGS", tol=1e-9)
        of_10_betas = jax.jit(inner)(of_10.x)
        w, betas = m**-0.5 * rows(best.w), rows(best.beta)
        np.testing.assert_allclose(of_9, betas, atol=1e-6)
        np.testing.assert_allclose(of_9.mean(axis=0), w, atol=1e-6)
        np.testing.assert_allclose(of_10.x, w, atol=1e-6)
        np.testing.assert_allclose(of_10_betas, betas, atol=1e-6)
        np.testing.assert_allclose([spread(of_9.ravel()), of_10.fun], best.value, atol=1e-10)


def test_multi_task_tends_to_ditto(data, common):
    """As Λ grows, w is the traditional model and β_m solves the client's own problem around it."""
    base = base_model.base_model(data, l2=L2)

    def around(w, beta, batch, id):
        return base.value(beta, batch) + 0.35 * sum(jnp.square(beta[k] - common[k]).sum() for k in beta)

    ditto = deployed(
        custom(data, around, init_personal=base.init, deploy=lambda w, b, id: b, predict=base.predict, convex=True),
        data,
    )
    gaps = []
    for relaxation in (1e3, 1e6):
        found = deployed(multi_task(data, lambda_=0.7, relaxation=relaxation, l2=L2), data)
        gaps.append(np.abs(rows(found) - rows(ditto)).max())
    assert gaps[0] > 100 * gaps[1]
    assert gaps[1] < 1e-5


def test_limits(data, alone, common):
    assert_same(deployed(mixture(data, lambda_=1e-7, l2=L2), data), alone, 1e-5)
    assert_same(deployed(multi_task(data, lambda_=0.0, l2=L2), data), alone)
    one = rows(deployed(mixture(data, lambda_=1e6, l2=L2), data))
    np.testing.assert_allclose(one, np.tile(rows(common), (3, 1)), atol=1e-5)
    assert np.abs(rows(alone) - rows(common)).max() > 0.1


@pytest.mark.parametrize("alpha", [1e-3, (0.2, 0.9, 0.6, 0.35)])
def test_apfl2_deploys_fully_personal_models_at_its_minimum(data, alone, common, alpha):
    """Whatever α < 1 and Λ are, the personal part can make the blend anything; the shared part is the traditional."""
    objective = apfl2(data, alpha=alpha, relaxation=0.7, l2=L2)
    best = reference_solution(objective, data)
    with jax.enable_x64(True):
        assert_same(jax.vmap(objective.deploy, in_axes=(None, 0, 0))(best.w, best.beta, IDS), alone, 1e-5)
    assert_same(jax.tree.map(lambda a: a * 3**-0.5, best.w), common, 1e-5)


def test_residual_with_separate_features_is_weight_sharing(data):
    """With the residual model's shared bias at zero, the two have the same value."""
    split = weight_sharing(data, personal=[0, "bias"], l2=L2)
    added = residual(data, shared=[1, 2], personal=[0], l2=L2)
    with jax.enable_x64(True):
        a, b = Flat(split, data), Flat(added, data)
        point = np.random.default_rng(0).normal(size=a.size)
        slopes, rest = point[:2], point[2:]
        wider = np.concatenate([[0.0], slopes, rest])  # the shared bias of the residual model, at zero
        np.testing.assert_allclose(jax.jit(a.total)(point), jax.jit(b.total)(wider), rtol=1e-12)


@pytest.mark.parametrize(
    "make",
    [
        lambda data, **o: multi_task(data, lambda_=0.4, relaxation=0.5, **o),
        lambda data, **o: mixture(data, lambda_=0.4, **o),
        lambda data, **o: apfl2(data, alpha=(0.2, 0.9, 0.6, 0.35), **o),
        lambda data, **o: weight_sharing(data, shared=[0, 2], **o),
        lambda data, **o: residual(data, shared=[0, 1], personal=[1, 2], **o),
    ],
    ids=["multi_task", "mixture", "apfl2", "weight_sharing", "residual"],
)
def test_rescaling_moves_no_model(data, make):
    assert_same(deployed(make(data, l2=L2), data), deployed(make(data, l2=L2, rescale=False), data), 1e-6)
    same = make(data, start="model"), make(data, start="model", rescale=False)
    key, id = jax.random.key(3), jnp.asarray(2)
    started = [o.deploy(o.init(key), o.init_personal(key), id) for o in same]
    assert_same(*started)


NETWORKS = {
    "traditional": traditional,
    "multi_task": multi_task,
    "mixture": mixture,
    "apfl2": apfl2,
    "weight_sharing": lambda data, **o: weight_sharing(data, personal=["1"], **o),
}


@pytest.mark.parametrize("make", NETWORKS.values(), ids=NETWORKS)
def test_networks(data, make):
    """Any model will do, without constants: a gradient step descends, predictions are probabilities."""
    objective = make(data, model=models.mlp(data, hidden=(5,)))
    assert not objective.convex
    with pytest.raises(ValueError, match="has no constants: give step sizes"):
        objective.constants(data)
    key, id = jax.random.key(0), jnp.asarray(2)
    batches, _ = reference.training_batches(data)
    batch = jax.tree.map(lambda leaf: leaf[1], batches)
    w, beta = objective.init(key), objective.init_personal(jax.random.key(1))

    @jax.jit
    def step(w, beta):
        value, gradient = jax.value_and_grad(objective.value, argnums=(0, 1))(w, beta, batch, id)
        w, beta = jax.tree.map(lambda a, g: a - 0.01 * g, (w, beta), gradient)
        return value, objective.value(w, beta, batch, id), objective.predict(objective.deploy(w, beta, id), batch.x)

    before, after, probabilities = step(w, beta)
    assert before.dtype == jnp.float32
    assert after < before
    np.testing.assert_allclose(probabilities.sum(axis=1), 1, rtol=1e-6)


def test_maml(data):
    """The exact gradient is that of the value; the first-order one is the base gradient at the adapted point."""
    with jax.enable_x64(True):
        exact, first = (maml(data, alpha=0.3, first_order=order, l2=L2) for order in (False, True))
        a, b = Flat(exact, data), Flat(first, data)
        point, step = np.random.default_rng(0).normal(size=a.size), 1e-6
        total, moves = jax.jit(a.total), step * np.eye(a.size)
        np.testing.assert_allclose(total(point), jax.jit(b.total)(point), rtol=1e-12)
        numeric = [(total(point + move) - total(point - move)) / (2 * step) for move in moves]
        np.testing.assert_allclose(jax.jit(jax.grad(a.total))(point), numeric, atol=1e-7)
        base = base_model.base_model(data, l2=L2)
        one = jax.tree.map(lambda leaf: leaf[0], a.batches)
        w = a.unravel_w(jnp.asarray(point))
        expected = jax.jit(lambda w: jax.grad(base.value)(first.adapt(w, one), one))(w)
        assert_same(jax.jit(jax.grad(first.value))(w, (), one, jnp.asarray(0)), expected, 1e-12)
    with pytest.raises(ValueError, match="give step sizes"):
        exact.constants(data)


def test_split_and_merge():
    params = {"weight": jnp.arange(8.0).reshape(4, 2), "bias": jnp.ones(2)}
    for options in ({"shared": [3, 1]}, {"personal": ["2"]}, {"personal": ["bias"]}, {"shared": ["bias"]}):
        split = split_by_column(4, **options)
        assert_same(split.merge(split.shared(params), split.personal(params)), params, 0)
    layers = [{"weight": jnp.ones(2)}, {"weight": jnp.zeros(3), "bias": jnp.ones(1)}]
    split = split_by_name(layers, shared=["0", "1.bias"])
    assert list(split.personal(layers)) == ["1.weight"]
    assert_same(split.merge(split.shared(layers), split.personal(layers)), layers, 0)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda d: mixture(d, lambda_=-1.0), "lambda_ must be"),
        (lambda d: mixture(d, lambda_=float("inf")), "lambda_ must be"),
        (lambda d: multi_task(d, relaxation=-0.1), "relaxation must be"),
        (lambda d: multi_task(d, relaxation=float("nan")), "relaxation must be"),
        (lambda d: apfl2(d, alpha=0.0), "alpha must be"),
        (lambda d: apfl2(d, alpha=1.0), "alpha must be"),
        (lambda d: apfl2(d, alpha=[0.5, 0.5, 1.5, 0.5]), "alpha must be"),
        (lambda d: apfl2(d, alpha=[0.5, 0.5]), "each of the 4 clients"),
        (lambda d: weight_sharing(d), "one of the two"),
        (lambda d: weight_sharing(d, shared=[0], personal=[1]), "one of the two"),
        (lambda d: weight_sharing(d, shared=[]), "names no parameters"),
        (lambda d: weight_sharing(d, personal=["weight", "bias"]), "names all parameters"),
        (lambda d: weight_sharing(d, personal=["bais"]), "did you mean 'bias'"),
        (lambda d: weight_sharing(d, personal=[7]), "unknown parameter 'weight.7'"),
        (lambda d: weight_sharing(d, model=models.mlp(d), personal=["1.wieght"]), "did you mean '1.weight'"),
        (lambda d: residual(d, shared=[5]), "from 0 to 2"),
        (lambda d: residual(d, personal=[]), "from 0 to 2"),
        (lambda d: residual(d, personal=[0, 0]), "different columns"),
        (lambda d: maml(d, alpha=0.0), "alpha must be"),
        (lambda d: traditional(d, model=models.linear(d), loss="logistic"), "model or loss"),
        (lambda d: custom(d, lambda *a: 0.0, predict=lambda m, x: x), "shared or a personal part"),
        (lambda d: custom(d, lambda *a: 0.0, init=jnp.zeros(2), predict=lambda m, x: x), "function of a key"),
    ],
)
def test_bad_input(data, make, message):
    with pytest.raises(ValueError, match=message):
        make(data)


def test_constants_of_custom_objectives(data):
    parts = {"init": lambda key: jnp.zeros(3), "predict": lambda w, x: x @ w[0]}
    value = lambda w, beta, batch, id: batch.mean(batch.x @ w)
    with pytest.raises(ValueError, match="give step sizes"):
        custom(data, value, **parts).constants(data)
    numbers = Constants(0.1, 1.0, 0.0, 2.0, 0.0)
    assert custom(data, value, constants=numbers, **parts).constants(data) == numbers
    assert custom(data, value, constants=lambda data: numbers, **parts).constants(data) == numbers
