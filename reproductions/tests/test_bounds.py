"""The bound on the weighted sum's suboptimality: the steps of its proof, and a run that stays under it."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from majorant_reproductions.tradeoffs import bounds
from scipy.optimize import minimize

import majorant as mj

DATA = mj.data.heterogeneous_logistic(clients=5, samples=12, dimension=3, sigma=2.0, seed=0, test_samples=1)
MODEL = mj.models.linear(DATA)


def agents_loss(theta):
    """The agents' mean logistic loss and its gradient, in NumPy; the bias comes first, as in the raveled model."""
    total, slope = 0.0, np.zeros_like(theta)
    for agent in range(DATA.clients):
        x, y = DATA.train.client(agent)
        x = np.column_stack([np.ones(len(y)), x]).astype(float)
        sign = 2.0 * y - 1
        margin = sign * (x @ theta)
        total += np.logaddexp(0, -margin).mean() / DATA.clients
        slope -= (sign / (1 + np.exp(margin))) @ x / len(y) / DATA.clients
    return total, slope


def minimiser(lam, share=0.75):
    """Of (1 − λ) C + λ (share ½ ‖θ‖² + (1 − share) ½ ‖θ − ½‖²)."""

    def objective(theta):
        loss, slope = agents_loss(theta)
        value = share * 0.5 * theta @ theta + (1 - share) * 0.5 * ((theta - 0.5) ** 2).sum()
        return (1 - lam) * loss + lam * value, (1 - lam) * slope + lam * (theta - (1 - share) * 0.5)

    return minimize(objective, np.zeros(4), jac=True, method="BFGS", options={"gtol": 1e-9})


def test_the_rate_of_the_theorem_holds():
    """Whole batches and one step: no variance, and Σ over rounds of F(Θ^t) is what the theorem bounds."""
    lam, rounds = 0.4, 20
    half = jax.tree.map(lambda a: jnp.full_like(a, 0.5), MODEL.init(jax.random.key(0)))
    algorithm = mj.tradeoffs.weighted_sum(
        MODEL,
        [mj.criteria.squared_norm(), mj.criteria.distance(half)],
        weights=[0.75, 0.25],
        local=mj.local_sgd(1.0, steps=1, batch_size=None),
    )
    x = [np.column_stack([np.ones(DATA.train.sizes[i]), DATA.train.client(i)[0]]) for i in range(DATA.clients)]
    agents = max(np.linalg.eigvalsh(a.T @ a / len(a) / 4)[-1] for a in x)
    smooth = bounds.smoothness(agents, [1.0, 1.0], weight=lam, weights=[0.75, 0.25])
    best, start = minimiser(lam), []
    run = mj.simulate(
        algorithm,
        DATA,
        rounds=rounds,
        evaluation=mj.Evaluation(every=1, diagnostics=True),
        hyper={"lambda": lam, "lr": bounds.step_size(smooth, tau=1, rounds=rounds)},
        resume=lambda fresh: start.append(fresh) or fresh,
    )
    first = ravel_pytree(jax.tree.map(lambda a: a[0], start[0].server.value))[0]
    distance = np.linalg.norm(np.asarray(first) - best.x)
    bound = bounds.suboptimality_bound(smooth, tau=1, rounds=rounds, agents=DATA.clients, distance=distance)
    gap = np.mean([line["objective"] for line in run.history]) - best.fun
    assert bound / 50 < gap < bound


def test_the_constants_of_the_bound():
    """The printed steps of the proof, with the factor e − 1 that one of them drops."""
    smooth, tau, rounds, agents, distance, zeta, sigma = 1.3, 4, 50, 6, 0.7, 0.5, 0.2
    eta = bounds.step_size(smooth, tau=tau, rounds=rounds)
    proof = (
        distance**2 / (2 * eta * tau * rounds)
        + 2 * sigma * eta / agents
        + (np.e - 1) * (10 * smooth * tau**2 * eta**2 * zeta**2 + 4 * smooth * tau * eta**2 * sigma)
    )
    bound = bounds.suboptimality_bound(
        smooth, tau=tau, rounds=rounds, agents=agents, distance=distance, heterogeneity=zeta, variance=sigma
    )
    assert proof < bound < 1.01 * proof
