"""Ditto: its shared model is FedAvg's, its personal ones are pulled to it."""

import jax
import numpy as np

import majorant as mj
import zoo

LR, STEPS, ROUNDS, MU = 0.3, 3, 2, 0.7
DATA = zoo.problem()


def gradient(theta, x, y):
    """Of logistic regression with a bias, the last coordinate."""
    slope = 1 / (1 + np.exp(-(x @ theta[:-1] + theta[-1]))) - y
    return np.append(x.T @ slope, slope.sum()) / len(y)


def test_rounds_are_the_papers():
    """Algorithm 1 in NumPy: w by FedAvg; v by steps on f_t(v) + (μ/2) ‖v − w‖² from where it was, w as it is sent."""
    model = mj.models.linear(DATA, start="zeros")
    local = mj.local_sgd(LR, steps=STEPS, batch_size=None)
    run = mj.simulate(mj.ditto(model, mu=MU, local=local), DATA, rounds=ROUNDS, evaluation=mj.Evaluation(every=ROUNDS))
    flat = lambda layers: np.append(
        np.asarray(layers[0]["weight"], float)[..., 0], np.asarray(layers[0]["bias"], float)
    )
    clients, sizes = np.flatnonzero(~DATA.unseen), DATA.train.sizes
    w = flat(model.init(jax.random.key(0)))
    v = dict.fromkeys(clients, w)
    for _ in range(ROUNDS):
        sent = dict.fromkeys(clients, w)
        for t in clients:
            x, y = map(np.asarray, DATA.train.client(t))
            for _ in range(STEPS):
                sent[t] = sent[t] - LR * gradient(sent[t], x, y)
                v[t] = v[t] - LR * (gradient(v[t], x, y) + MU * (v[t] - w))
        w = sum(sizes[t] * sent[t] for t in clients) / sizes[clients].sum()
    np.testing.assert_allclose(flat(run.server.value), w, atol=1e-5)
    for place, t in enumerate(clients):
        own = jax.tree.map(lambda a, place=place: a[0, place], run.snapshot.clients.v)
        np.testing.assert_allclose(flat(own), v[t], atol=1e-5)
