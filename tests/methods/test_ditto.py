"""Ditto: its shared model is FedAvg's, its personal ones are pulled to it."""

import jax
import numpy as np

import majorant as mj
import zoo

LR, STEPS, ROUNDS, MU, MOMENTUM = 0.3, 3, 2, 0.7, 0.5
DATA = zoo.problem()


def gradient(theta, x, y):
    """Of logistic regression with a bias, the last coordinate."""
    slope = 1 / (1 + np.exp(-(x @ theta[:-1] + theta[-1]))) - y
    return np.append(x.T @ slope, slope.sum()) / len(y)


def test_rounds_are_the_papers():
    """Algorithm 1 in NumPy: w by FedAvg; v by steps on f_t(v) + (μ/2) ‖v − w‖² from where it was, w as it is sent.

    Both have a momentum of their own, which clients keep from round to round.
    """
    model = mj.models.linear(DATA, start="zeros")
    local = mj.local_sgd(LR, steps=STEPS, batch_size=None, momentum=MOMENTUM)
    run = mj.simulate(mj.ditto(model, mu=MU, local=local), DATA, rounds=ROUNDS, evaluation=mj.Evaluation(every=ROUNDS))
    flat = lambda layers: np.append(
        np.asarray(layers[0]["weight"], float)[..., 0], np.asarray(layers[0]["bias"], float)
    )
    clients, sizes = np.flatnonzero(~DATA.unseen), DATA.train.sizes
    w = flat(model.init(jax.random.key(0)))
    v = dict.fromkeys(clients, w)
    of_w, of_v = dict.fromkeys(clients, 0.0), dict.fromkeys(clients, 0.0)
    for _ in range(ROUNDS):
        sent = dict.fromkeys(clients, w)
        for t in clients:
            x, y = map(np.asarray, DATA.train.client(t))
            for _ in range(STEPS):
                of_w[t] = MOMENTUM * of_w[t] + gradient(sent[t], x, y)
                of_v[t] = MOMENTUM * of_v[t] + gradient(v[t], x, y) + MU * (v[t] - w)
                sent[t], v[t] = sent[t] - LR * of_w[t], v[t] - LR * of_v[t]
        w = sum(sizes[t] * sent[t] for t in clients) / sizes[clients].sum()
    np.testing.assert_allclose(flat(run.server.value), w, atol=1e-5)
    for place, t in enumerate(clients):
        own = jax.tree.map(lambda a, place=place: a[0, place], run.snapshot.clients.v)
        np.testing.assert_allclose(flat(own), v[t], atol=1e-5)
