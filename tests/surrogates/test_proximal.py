"""The proximal surrogate: its objective is the Moreau envelope, and its fixed point the envelope's minimiser."""

import jax
import jax.numpy as jnp
import numpy as np
import scipy.optimize
from jax.flatten_util import ravel_pytree

import majorant as mj
import zoo
from majorant.core import ClientData
from majorant.surrogates import proximal_surrogate

LAMBDA = 0.5


def losses(u, x, y):
    """Logistic regression's mean loss and its gradient in NumPy; u = (bias, weights)."""
    sign = np.where(y > 0, 1.0, -1.0)
    z = sign * (x @ u[1:] + u[0])
    residual = -sign * (1 / (1 + np.exp(z)))
    return np.logaddexp(0, -z).mean(), np.append(residual.mean(), residual @ x / len(y))


def scipy_prox(omega, x, y):
    def objective(theta):
        value, gradient = losses(theta, x, y)
        gap = theta - omega
        return value + LAMBDA / 2 * gap @ gap, gradient + LAMBDA * gap

    found = scipy.optimize.minimize(objective, omega, jac=True, method="BFGS", options={"gtol": 1e-10})
    return found.x, found.fun


def client():
    x, y = zoo.training().train.client(0)
    return x.astype(np.float64), y


def as_tree(u):
    return [{"bias": jnp.asarray(u[:1]), "weight": jnp.asarray(u[1:, None])}]


def test_envelope_its_gradient_and_the_minimiser():
    """F(ω) and prox agree with SciPy; ∇F = λ(ω − θ), which finite differences of SciPy's envelope confirm."""
    (x, y), omega = client(), np.array([0.3, -1.0, 2.0, 0.5])
    theta, envelope = scipy_prox(omega, x, y)
    step = 1e-4
    moves = step * np.eye(4)
    differences = [(scipy_prox(omega + d, x, y)[1] - scipy_prox(omega - d, x, y)[1]) / (2 * step) for d in moves]
    with jax.enable_x64(True):
        s = proximal_surrogate(mj.models.linear(zoo.training()), lambda_=LAMBDA)
        data = ClientData(jnp.asarray(x), jnp.asarray(y), jnp.asarray(len(y)), jnp.asarray(0))
        value, gradient = jax.value_and_grad(s.objective)(as_tree(omega), (), data)
        found = s.minimize_u(s.majorize(as_tree(omega), (), data), (), data)
        found, gradient = (np.asarray(ravel_pytree(tree)[0]) for tree in (found, gradient))
    np.testing.assert_allclose(value, envelope, rtol=1e-9)
    np.testing.assert_allclose(found, theta, atol=1e-7)
    np.testing.assert_allclose(gradient, differences, atol=1e-6)
    np.testing.assert_allclose(gradient, LAMBDA * (omega - theta), atol=1e-7)


def test_the_sum_of_envelopes_is_minimised():
    """Rounds are gradient steps of length 1/λ on Σ_t ω_t F_t: their limit is the minimiser that SciPy finds."""
    data = zoo.training()
    seen = [data.train.client(t) for t in range(data.clients) if not data.unseen[t]]
    seen = [(x.astype(np.float64), y) for x, y in seen]
    total = sum(len(y) for _, y in seen)

    def objective(omega):
        parts = [(len(y) / total, *scipy_prox(omega, x, y)) for x, y in seen]
        return sum(w * f for w, _, f in parts), sum(w * LAMBDA * (omega - theta) for w, theta, _ in parts)

    best = scipy.optimize.minimize(objective, np.zeros(4), jac=True, method="BFGS", options={"gtol": 1e-8}).x
    algorithm = mj.surrogate_optimization(proximal_surrogate(mj.models.linear(data), lambda_=LAMBDA))
    run = mj.simulate(algorithm, data, rounds=150, evaluation=mj.Evaluation(every=150))
    np.testing.assert_allclose(ravel_pytree(run.server.value)[0], best, atol=1e-4)
    x, y = seen[0]
    theta = scipy_prox(best, x, y)[0]  # what a client deploys, not ω
    probability = 1 / (1 + np.exp(-(x @ theta[1:] + theta[0])))
    np.testing.assert_allclose(run.model(0).predict_proba(x.astype(np.float32))[:, 1], probability, atol=1e-4)


def test_minimising_the_envelope_of_pooled_samples_minimises_the_loss():
    data = zoo.training().take(~zoo.training().unseen)
    found = mj.methods.mm(proximal_surrogate(mj.models.linear(data), lambda_=LAMBDA), data, iterations=100)
    assert (np.diff(found.values) <= 1e-6).all()
    x, y = data.train.x.astype(np.float64), data.train.y
    best = scipy.optimize.minimize(losses, np.zeros(4), args=(x, y), jac=True, method="BFGS").x
    np.testing.assert_allclose(ravel_pytree(found.params[0])[0], best, atol=1e-3)
