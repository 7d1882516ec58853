"""The EM surrogate: surrogate optimization with it is FedEM, and with exact steps the likelihood never decreases."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import majorant as mj
import zoo
from compiling import quickly
from majorant.core import ClientData
from majorant.solvers import whole
from majorant.surrogates import em_surrogate


def client(t=0):
    x, y = zoo.training().train.client(t)
    return ClientData(jnp.asarray(x), jnp.asarray(y), jnp.int32(len(y)), jnp.int32(t))


def assert_close(tree, other, tolerance=2e-6):
    for a, b in zip(jax.tree.leaves(tree), jax.tree.leaves(other), strict=True):
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(
    "local",
    [
        mj.local_sgd(0.1, epochs=2, batch_size=4, momentum=0.5, weight_decay=1e-2, schedule=mj.schedules.multi_step()),
        mj.local_sgd(0.1, steps=5, batch_size=4),
        mj.local_sgd(0.1, epochs=3, batch_size=None),
    ],
    ids=["epochs and momentum", "steps", "full gradients"],
)
def test_surrogate_optimization_is_fed_em(local):
    data, model = zoo.training(), mj.models.linear(zoo.training())
    options = {"rounds": 6, "evaluation": mj.Evaluation(every=2), "participation": mj.participation.uniform(0.6)}
    em = mj.simulate(mj.fedem(model, components=2, local=local), data, **options)
    mine = mj.simulate(mj.surrogate_optimization(em_surrogate(model, 2), local=local), data, **options)
    assert_close(mine.server.value, em.server.value)
    assert_close(mine.snapshot.clients, em.snapshot.clients)  # weights π and the moments
    assert_close([h["loss"] for h in mine.history], [h["loss"] for h in em.history])
    assert_close(mine.scores[0].values, em.scores[0].values)  # of all clients, the unseen one too
    new = data.train.client(zoo.UNSEEN)
    assert_close(mine.personalize(new).predict_proba(new[0]), em.personalize(new).predict_proba(new[0]))


def test_adam_is_the_same_on_all_components_at_once():
    data, model = zoo.training(), mj.models.linear(zoo.training())
    local = mj.local_optax(optax.adam(0.05), batch_size=4)
    em = mj.simulate(mj.fedem(model, components=2, local=local), data, rounds=3)
    mine = mj.simulate(mj.surrogate_optimization(em_surrogate(model, 2), local=local), data, rounds=3)
    assert_close(mine.server.value, em.server.value)


def test_likelihood_never_decreases():
    data = zoo.training()
    found = mj.methods.mm(em_surrogate(mj.models.linear(data), 2), data, iterations=15)
    values = np.asarray(found.values)
    assert (np.diff(values) <= 1e-6).all()
    assert values[-1] < values[0] - 0.1


def test_distance_is_kl_of_the_minimiser_from_the_start():
    """g(Θ, π⁰) − g(Θ, π*) = KL(π* ‖ π⁰), and not the other order."""
    s, data = em_surrogate(mj.models.linear(zoo.training()), 3), client()
    theta, pi = s.init(jax.random.key(1)), jnp.array([0.6, 0.3, 0.1])
    c = s.majorize(jax.tree.map(lambda a: 4 * a, theta), pi, data)
    star = s.minimize_v(c, theta, data)
    gain = s.value(c, theta, pi, whole(data)) - s.value(c, theta, star, whole(data))
    kl = lambda p, q: float((p * jnp.log(p / q)).sum())
    np.testing.assert_allclose(gain, kl(star, pi), atol=1e-6)
    np.testing.assert_allclose(s.distance(pi, star), kl(star, pi), atol=1e-6)
    assert abs(kl(pi, star) - kl(star, pi)) > 1e-4


def test_weights_that_have_died_out_stay_finite():
    s, data = em_surrogate(mj.models.linear(zoo.training()), 2), client()
    theta, pi = s.init(jax.random.key(1)), jnp.array([1.0, 0.0])

    @quickly
    def found(theta, pi, data):
        c = s.majorize(theta, pi, data)
        value, gradient = jax.value_and_grad(s.value, argnums=1)(c, theta, pi, whole(data))
        return s.minimize_v(c, theta, data), value, s.objective(theta, pi, data), s.distance(pi, pi), gradient

    star, value, objective, distance, gradient = found(theta, pi, data)
    np.testing.assert_allclose(star, pi)
    np.testing.assert_allclose(value, objective, rtol=1e-6)
    assert distance == 0
    assert all(bool(jnp.isfinite(g).all()) for g in jax.tree.leaves(gradient))


def test_wrong_arguments():
    model = mj.models.linear(zoo.training())
    with pytest.raises(ValueError, match="components must be a positive whole number"):
        em_surrogate(model, 0)
    with pytest.raises(ValueError, match="normalisation statistics"):
        em_surrogate(model._replace(train_apply=lambda params, x: (model.apply(params, x), params)))
