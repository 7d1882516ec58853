"""SCAFFOLD: its paper's Algorithm 1 in NumPy, both options, with absent clients; and where FedAvg does not arrive."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import majorant as mj
import zoo
from majorant import methods
from majorant.core import ClientData
from majorant.methods.scaffold import steps_made
from majorant.solvers.minibatches import minibatches, run_minibatches

LR, STEPS, ROUNDS = 0.3, 4, 3
DATA = zoo.problem()
MODEL = mj.models.linear(DATA, start="zeros")
LOCAL = mj.local_sgd(LR, steps=STEPS, batch_size=None)
CLIENTS, SIZES = np.flatnonzero(~DATA.unseen), DATA.train.sizes


def gradient(theta, t):
    """Of client t's logistic regression with a bias, the last coordinate."""
    x, y = map(np.asarray, DATA.train.client(t))
    slope = 1 / (1 + np.exp(-(x @ theta[:-1] + theta[-1]))) - y
    return np.append(x.T @ slope, slope.sum()) / len(y)


def flat(layers):
    return np.append(np.asarray(layers[0]["weight"], float)[..., 0], np.asarray(layers[0]["bias"], float))


def by_hand(control, server_lr, groups):
    """Rounds in which the clients of a group take part; they count by their samples."""
    x = flat(MODEL.init(jax.random.key(0)))
    c, own = np.zeros_like(x), {t: np.zeros_like(x) for t in CLIENTS}
    for group in groups:
        weights = SIZES[group] / SIZES[group].sum()
        moves, changes = [], []
        for t in group:
            y = x
            for _ in range(STEPS):
                y = y - LR * (gradient(y, t) - own[t] + c)
            new = gradient(x, t) if control == "gradient" else own[t] - c + (x - y) / (STEPS * LR)
            moves.append(y - x)
            changes.append(new - own[t])
            own[t] = new
        x = x + server_lr * weights @ moves
        c = c + SIZES[group].sum() / SIZES[CLIENTS].sum() * (weights @ changes)
    return x, c, own


@pytest.mark.parametrize("control", ["gradient", "steps"])
def test_rounds_are_the_papers(control):
    algorithm = methods.scaffold(MODEL, control=control, server_lr=0.8, local=LOCAL)
    halves = mj.participation.cyclic(0.5)
    run = mj.simulate(algorithm, DATA, rounds=ROUNDS, participation=halves, evaluation=mj.Evaluation(every=1))
    there = lambda k: np.asarray(halves.active(jax.random.key(0), k, len(CLIENTS)))
    groups = [CLIENTS[there(k)] for k in range(1, ROUNDS + 1)]
    x, c, own = by_hand(control, 0.8, groups)
    np.testing.assert_allclose(flat(run.server.value.theta), x, atol=1e-5)
    np.testing.assert_allclose(flat(run.server.value.control), c, atol=1e-5)
    for place, t in enumerate(CLIENTS):
        mine = jax.tree.map(lambda a, place=place: a[0, place], run.snapshot.clients.control)
        np.testing.assert_allclose(flat(mine), own[t], atol=1e-5)


def test_it_arrives_where_long_local_training_does_not():
    """The minimum of the mean loss, with many local steps on clients of opposite tendencies; FedAvg stays away."""
    ends = {}
    for make in (mj.fedavg, methods.scaffold):
        run = mj.simulate(make(MODEL, local=LOCAL), DATA, rounds=300, evaluation=mj.Evaluation(every=300))
        value = run.server.value if make is mj.fedavg else run.server.value.theta
        slope = sum(SIZES[t] * gradient(flat(value), t) for t in CLIENTS) / SIZES[CLIENTS].sum()
        ends[make] = np.linalg.norm(slope)
    assert ends[methods.scaffold] < 1e-4 < 1e-2 < ends[mj.fedavg]


def test_options_that_do_not_go_together():
    with pytest.raises(ValueError, match="needs plain SGD"):
        methods.scaffold(MODEL, control="steps", local=mj.local_sgd(0.1, momentum=0.9))
    with pytest.raises(ValueError, match="one of gradient, steps"):
        methods.scaffold(MODEL, control="II")


@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("size", [3, 10])
def test_a_control_variate_divides_by_the_steps_that_are_made(size, drop_last):
    plan = minibatches(epochs=2, steps=None, batch_size=4, drop_last=drop_last)
    data = ClientData(jnp.zeros((12, 1)), jnp.zeros(12, jnp.int32), jnp.int32(size), jnp.int32(0))
    made = run_minibatches(plan, lambda count, batch: count + 1, jnp.zeros(()), data, jax.random.key(0))
    assert float(steps_made(plan, data)) == float(made)


def test_remainders_that_are_left_out_do_not_count():
    model = MODEL._replace(normalises_by_batch=True)
    algorithm = methods.scaffold(model, control="steps", local=mj.local_sgd(LR, epochs=1, batch_size=4))
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(10, *DATA.spec.features)).astype(np.float32), rng.integers(0, 2, 10).astype(np.int32)
    data = ClientData(jnp.asarray(x), jnp.asarray(y), jnp.int32(10), jnp.int32(0))
    view = algorithm.server.broadcast(algorithm.server.init(jax.random.key(0)), jax.random.key(0))
    state = algorithm.client.init(view, data, jax.random.key(0))
    sent, _ = algorithm.client.update(view, state, data, jax.random.key(0))
    moved = flat(view.value.theta) - flat(sent.value.theta)
    np.testing.assert_allclose(flat(sent.value.control), moved / (2 * LR), rtol=1e-4)  # two batches of four, not three
