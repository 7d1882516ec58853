"""What objectives have in common and how they are related: limits, equivalences, rescaling, other models, bad input."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import small_problems
from scipy.optimize import minimize
from small_problems import Flat

from compiling import quickly
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


def bfgs(both, size):
    """A minimum by SciPy, from a function that gives value and gradient."""
    return minimize(lambda z: tuple(map(np.asarray, both(z))), np.zeros(size), jac=True, method="BFGS", tol=1e-9)


def test_three_forms_of_the_mixture(data):
    """(9) in the personal models, (10) in the shared one, and (11) in both have one solution."""
    lambda_, m, p = 0.4, 3, 4
    best = reference_solution(mixture(data, lambda_=lambda_, l2=L2), data)
    with jax.enable_x64(True):
        each, batches = base_functions(data)

        def spread(flat):
            betas = flat.reshape(m, p)
            return (each(betas, batches) + lambda_ / 2 * jnp.square(betas - betas.mean(axis=0)).sum(axis=1)).mean()

        @quickly
        def envelope(w):
            """(10), its gradient λ (w − β_m(w)) on average, and the β_m(w) by Newton's method on each client."""
            pulled = lambda beta, batch: (
                each(beta[None], jax.tree.map(lambda a: a[None], batch))[0] + lambda_ / 2 * jnp.square(beta - w).sum()
            )
            step = lambda beta, batch: (
                beta - jnp.linalg.solve(jax.hessian(pulled)(beta, batch), jax.grad(pulled)(beta, batch))
            )
            once = lambda _, betas: jax.vmap(step)(betas, batches)
            betas = jax.lax.fori_loop(0, 12, once, jnp.tile(w, (m, 1)))
            return jax.vmap(pulled)(betas, batches).mean(), lambda_ * (w - betas).mean(axis=0), betas

        of_9 = bfgs(quickly(jax.value_and_grad(spread)), m * p)
        of_10 = bfgs(lambda w: envelope(w)[:2], p)
        w, betas, of_9_betas = m**-0.5 * rows(best.w), rows(best.beta), of_9.x.reshape(m, p)
        np.testing.assert_allclose(of_9_betas, betas, atol=1e-6)
        np.testing.assert_allclose(of_9_betas.mean(axis=0), w, atol=1e-6)
        np.testing.assert_allclose(of_10.x, w, atol=1e-6)
        np.testing.assert_allclose(envelope(of_10.x)[2], betas, atol=1e-6)
        np.testing.assert_allclose([of_9.fun, of_10.fun], best.value, atol=1e-10)


def steepness(objective, data, w, betas):
    """The largest number in ∇F(w, β): zero at the minimum, and nowhere else, as F is strongly convex."""
    with jax.enable_x64(True):
        batches, ids = reference.training_batches(data)
        total = lambda w, betas: jax.vmap(objective.value, (None, 0, 0, 0))(w, betas, batches, ids).mean()
        slopes = quickly(jax.grad(total, argnums=(0, 1)))(reference.double(w), reference.double(betas))
        return max(float(jnp.abs(leaf).max()) for leaf in jax.tree.leaves(slopes))


def times(factor, tree):
    return jax.tree.map(lambda leaf: factor * leaf, tree)


def test_multi_task_tends_to_ditto(data, common):
    """For large Λ, w is the traditional model and β_m solves the client's own problem around it."""
    best = reference_solution(multi_task(data, lambda_=0.7, relaxation=1e6, l2=L2), data)
    assert_same(times(3**-0.5, best.w), common, 1e-5)
    base = base_model.base_model(data, l2=L2)

    def around(w, beta, batch, id):
        return base.value(beta, batch) + 0.35 * sum(jnp.square(beta[k] - w[k]).sum() for k in beta)

    ditto = custom(data, lambda w, *rest: around(common, *rest), init_personal=base.init, predict=base.predict)
    assert steepness(ditto, data, (), best.beta) < 1e-6
    assert steepness(ditto, data, (), times(1.01, best.beta)) > 1e-4


def test_limits(data, alone, common):
    none, little, much = (mixture(data, lambda_=x, l2=L2) for x in (1e-12, 0.1, 1e5))
    mean = jax.tree.map(lambda a: 3**0.5 * a.mean(axis=0), alone)
    assert steepness(none, data, mean, alone) < 1e-9
    assert steepness(little, data, mean, alone) > 1e-3
    assert steepness(multi_task(data, lambda_=0.0, l2=L2), data, times(3**0.5, common), alone) < 1e-9
    one = rows(deployed(much, data))
    np.testing.assert_allclose(one, np.tile(rows(common), (3, 1)), atol=1e-4)
    assert np.abs(rows(alone) - rows(common)).max() > 0.1


@pytest.mark.parametrize("alpha", [(1e-3,) * 4, (0.2, 0.9, 0.6, 0.35)])
def test_apfl2_deploys_fully_personal_models_at_its_minimum(data, alone, common, alpha):
    """Whatever α < 1 and Λ are, the personal part can make the blend anything; the shared part is the traditional."""
    objective = apfl2(data, alpha=alpha, relaxation=0.7, l2=L2)
    a = np.array(alpha)[IDS]
    own = lambda mine, shared: (mine - np.multiply.outer(a, shared)) / (1 - a.reshape(3, *[1] * shared.ndim))
    w, betas = times(3**0.5, common), jax.tree.map(own, alone, common)
    assert steepness(objective, data, w, betas) < 1e-9
    with jax.enable_x64(True):
        assert_same(jax.vmap(objective.deploy, in_axes=(None, 0, 0))(w, betas, IDS), alone, 1e-9)


def test_a_newcomers_blend_has_the_mean_alpha_of_those_that_train(data):
    """Client 1 does not train, and has another α."""
    blend = apfl2(data, alpha=[0.2, 0.9, 0.3, 0.4], rescale=False).deploy
    assert blend(jnp.ones(()), jnp.zeros(()), jnp.int32(-1)) == pytest.approx(0.3)
    assert blend(jnp.ones(()), jnp.zeros(()), jnp.int32(3)) == pytest.approx(0.4)


def test_residual_with_separate_features_is_weight_sharing(data):
    """With the residual model's shared bias at zero, the two have the same value."""
    split = weight_sharing(data, personal=[0, "bias"], l2=L2)
    added = residual(data, shared=[1, 2], personal=[0], l2=L2)
    with jax.enable_x64(True):
        a, b = Flat(split, data), Flat(added, data)
        point = np.random.default_rng(0).normal(size=a.size)
        slopes, rest = point[:2], point[2:]
        wider = np.concatenate([[0.0], slopes, rest])  # the shared bias of the residual model, at zero
        np.testing.assert_allclose(*quickly(lambda p, q: (a.total(p), b.total(q)))(point, wider), rtol=1e-12)


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
    """F and the models are those of the plain objective at w/√M, everywhere; and so are the starts."""
    rescaled, plain = make(data, start="model"), make(data, start="model", rescale=False)
    with jax.enable_x64(True):
        a, b = Flat(rescaled, data), Flat(plain, data)
        point = np.random.default_rng(0).normal(size=a.size)
        longer = np.concatenate([3**0.5 * point[: a.w.size], point[a.w.size :]])
        np.testing.assert_allclose(*quickly(lambda p, q: (a.total(p), b.total(q)))(longer, point), rtol=1e-12)
        model = lambda o, flat, p: o.deploy(flat.unravel_w(p[: a.w.size]), flat.unravel_beta(p[-a.personal :]), 2)
        assert_same(model(rescaled, a, longer), model(plain, b, point), 1e-12)
    start = quickly(lambda o, key: o.deploy(o.init(key), o.init_personal(key), jnp.asarray(2)), static_argnums=0)
    assert_same(*(start(o, jax.random.key(3)) for o in (rescaled, plain)))


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

    @quickly
    def step(key):
        w, beta = objective.init(key), objective.init_personal(jax.random.fold_in(key, 1))
        value, gradient = jax.value_and_grad(objective.value, argnums=(0, 1))(w, beta, batch, id)
        w, beta = jax.tree.map(lambda a, g: a - 0.01 * g, (w, beta), gradient)
        return value, objective.value(w, beta, batch, id), objective.predict(objective.deploy(w, beta, id), batch.x)

    before, after, probabilities = step(key)
    assert before.dtype == jnp.float32
    assert after < before
    np.testing.assert_allclose(probabilities.sum(axis=1), 1, rtol=1e-6)


def test_maml(data):
    """The exact gradient is that of the value; the first-order one is the base gradient at the adapted point."""
    with jax.enable_x64(True):
        exact, first = (maml(data, alpha=0.3, first_order=order, l2=L2) for order in (False, True))
        a, b = Flat(exact, data), Flat(first, data)
        point, step = np.random.default_rng(0).normal(size=a.size), 1e-6
        moved = np.concatenate([point + step * np.eye(a.size), point - step * np.eye(a.size)])
        totals, same, slope = quickly(lambda z, zs: (jax.vmap(a.total)(zs), b.total(z), jax.grad(a.total)(z)))(
            point, np.concatenate([moved, point[None]])
        )
        np.testing.assert_allclose(totals[-1], same, rtol=1e-12)
        numeric = (totals[: a.size] - totals[a.size : 2 * a.size]) / (2 * step)
        np.testing.assert_allclose(slope, numeric, atol=1e-7)
        base = base_model.base_model(data, l2=L2)
        one = jax.tree.map(lambda leaf: leaf[0], a.batches)
        w = a.unravel_w(jnp.asarray(point))
        found, expected = quickly(
            lambda w: (
                jax.grad(first.value)(w, (), one, jnp.asarray(0)),
                jax.grad(base.value)(first.adapt(w, one), one),
            )
        )(w)
        assert_same(found, expected, 1e-12)
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
        (lambda d: multi_task(d, lambda_=-1.0), "lambda_ must be"),
        (lambda d: multi_task(d, relaxation=-0.1), "relaxation must be"),
        (lambda d: apfl2(d, relaxation=-0.1), "relaxation must be"),
        (lambda d: multi_task(d, relaxation=float("nan")), "relaxation must be"),
        (lambda d: apfl2(d, alpha=0.0), "alpha must be"),
        (lambda d: apfl2(d, alpha=1.0), "alpha must be"),
        (lambda d: apfl2(d, alpha=-0.5), "alpha must be"),
        (lambda d: apfl2(d, alpha=1.5), "alpha must be"),
        (lambda d: apfl2(d, alpha=[0.5, 0.5, 1.5, 0.5]), "alpha must be"),
        (lambda d: apfl2(d, alpha=[0.5, 0.5]), "each of the 4 clients"),
        (lambda d: weight_sharing(d), "one of the two"),
        (lambda d: weight_sharing(d, shared=[0], personal=[1]), "one of the two"),
        (lambda d: weight_sharing(d, shared=[]), "names no parameters"),
        (lambda d: weight_sharing(d, personal=["weight", "bias"]), "names all parameters"),
        (lambda d: weight_sharing(d, model=models.mlp(d), personal=[]), "names no parameters"),
        (lambda d: weight_sharing(d, model=models.mlp(d), shared=["0", "1"]), "names all parameters"),
        (lambda d: weight_sharing(d, personal=["bais"]), "did you mean 'bias'"),
        (lambda d: weight_sharing(d, personal=[7]), "unknown parameter 'weight.7'"),
        (lambda d: weight_sharing(d, model=models.mlp(d), personal=["1.wieght"]), "did you mean '1.weight'"),
        (lambda d: residual(d, shared=[5]), "from 0 to 2"),
        (lambda d: residual(d, personal=[]), "from 0 to 2"),
        (lambda d: residual(d, personal=[0, 0]), "different columns"),
        (lambda d: maml(d, alpha=0.0), "alpha must be"),
        *((lambda d, make=make: make(d, l2=-0.1), "l2 must be") for make in (traditional, mixture, apfl2, residual)),
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
