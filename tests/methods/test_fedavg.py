"""FedAvg against gradient descent on pooled data, its server optimizers, and its rule for absent clients."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import majorant as mj
import zoo
from compiling import quickly
from majorant.core import Uploads
from majorant.exchange.participation import Participation

DATA = zoo.training()
MODEL = mj.models.linear(DATA)
ONE_STEP = mj.local_sgd(0.5, steps=1, batch_size=None)


def run_from_start(algorithm, **options):
    """A run and the model it started from."""
    start = []
    run = mj.simulate(algorithm, DATA, resume=lambda fresh: start.append(fresh) or fresh, **options)
    return run, jax.tree.map(lambda a: jnp.asarray(a[0]), start[0].server.value)


def pooled():
    """The samples of the clients that train."""
    kept = np.repeat(~DATA.unseen, DATA.train.sizes)
    return jnp.asarray(DATA.train.x[kept]), jnp.asarray(DATA.train.y[kept])


def pooled_gradient(theta):
    x, y = pooled()
    return jax.grad(lambda theta: MODEL.losses(theta, x, y).mean())(theta)


def assert_close(tree, other, tolerance=1e-5):
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance), tree, other)


def test_one_full_batch_step_is_gradient_descent_on_the_pooled_data():
    run, theta = run_from_start(mj.fedavg(MODEL, local=ONE_STEP), rounds=5)
    for _ in range(5):
        theta = jax.tree.map(lambda v, g: v - 0.5 * g, theta, pooled_gradient(theta))
    assert_close(run.server.value, theta)


@pytest.mark.parametrize(
    ("server", "rate", "optimizer"),
    [
        ("momentum", 1.0, optax.sgd(1.0, momentum=0.9)),
        ("adam-corrected", 0.01, optax.adam(0.01, b1=0.9, b2=0.99, eps=1e-3)),
        ("yogi-corrected", 0.05, optax.yogi(0.05, b1=0.9, b2=0.99, eps=1e-3)),
    ],
)
def test_the_server_optimizer_steps_along_the_pseudo_gradient(server, rate, optimizer):
    """With one full-batch step a client, the pseudo-gradient is the learning rate times the pooled gradient."""
    run, theta = run_from_start(mj.fedavg(MODEL, local=ONE_STEP, server=server, server_lr=rate), rounds=4)
    moments = optimizer.init(theta)
    for _ in range(4):
        gap = jax.tree.map(lambda g: 0.5 * g, pooled_gradient(theta))
        updates, moments = optimizer.update(gap, moments, theta)
        theta = optax.apply_updates(theta, updates)
    assert_close(run.server.value, theta, 1e-4)
    assert run.summary()["algorithm"] == f"fedavg:server={server}"


def algorithm_2(kind, theta, deltas, *, rate=0.01, b1=0.9, b2=0.99, tau=1e-3):
    """Reddi et al.'s Algorithm 2 in NumPy, as printed: Δ points from the server's model to the clients' mean."""
    x, m, v = np.asarray(theta, np.float64), np.zeros(np.shape(theta)), np.full(np.shape(theta), tau**2)
    for delta in np.asarray(deltas, np.float64):
        m = b1 * m + (1 - b1) * delta
        yogi, adam = v - (1 - b2) * delta**2 * np.sign(v - delta**2), b2 * v + (1 - b2) * delta**2
        v = yogi if kind == "yogi" else adam
        x = x + rate * m / (np.sqrt(v) + tau)
    return x


@pytest.mark.parametrize("kind", ["adam", "yogi"])
def test_adaptive_servers_are_the_papers_algorithm_2(kind):
    """Displacements of all sizes: below τ the second moment falls, above it rises."""
    server, draws = mj.fedavg(MODEL, server=kind).server, np.random.default_rng(0)
    first = state = server.init(jax.random.key(0))
    of_all_sizes = lambda leaf: draws.normal(size=(6, *leaf.shape)) * 10 ** draws.uniform(-5, 1, leaf.shape)
    deltas = jax.tree.map(of_all_sizes, first.value)
    for k in range(6):
        sent = jax.tree.map(lambda value, delta, k=k: 3.0 * (value + delta[k]), state.value, deltas)
        state = server.update(state, None, Uploads(sent, jnp.asarray(3.0)))
    expected = jax.tree.map(lambda value, delta: algorithm_2(kind, value, delta), first.value, deltas)
    assert_close(state.value, expected)


def test_absent_clients_that_hold_count_with_the_old_model():
    """θ = (Σ_{t in round} n_t θ_t + Σ_{others} n_t θ_old) / Σ_all n_t."""
    active = np.array([True, False, False, True, False])
    some = Participation("some", lambda key, round, clients: jnp.asarray(active), lambda clients: 2 / 5)
    run, theta = run_from_start(mj.fedavg(MODEL, local=ONE_STEP, absent="hold"), rounds=1, participation=some)
    samples = [DATA.train.client(t) for t in np.flatnonzero(~DATA.unseen)]
    total = sum(len(y) for _, y in samples)
    theta, gradient = jax.tree.map(np.asarray, theta), quickly(jax.grad(lambda p, x, y: MODEL.losses(p, x, y).mean()))
    expected = jax.tree.map(np.zeros_like, theta)
    for (x, y), taking_part in zip(samples, active, strict=True):
        own = jax.tree.map(lambda v, g: v - 0.5 * np.asarray(g), theta, gradient(theta, x, y)) if taking_part else theta
        share = len(y) / total
        expected = jax.tree.map(lambda e, v, share=share: e + share * v, expected, own)
    assert_close(run.server.value, expected)


def test_with_everybody_there_holding_changes_nothing():
    held, _ = run_from_start(mj.fedavg(MODEL, local=ONE_STEP, absent="hold"), rounds=3)
    plain, _ = run_from_start(mj.fedavg(MODEL, local=ONE_STEP), rounds=3)
    assert_close(held.server.value, plain.server.value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"server": "sgd"},
            "server must be one of plain, momentum, adam, yogi, adam-corrected, yogi-corrected, got 'sgd'",
        ),
        ({"server": "adam", "absent": "hold"}, "absent='hold' is defined for the plain server optimizer only"),
        ({"server_lr": 0.0}, "server_lr must be a finite number greater than 0"),
        ({"absent": "gone"}, "absent must be 'excluded' or 'hold', got 'gone'"),
    ],
)
def test_impossible_settings_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        mj.fedavg(MODEL, **options)


@pytest.mark.parametrize("server", ["momentum", "adam"])
def test_running_statistics_are_averaged_whatever_the_server_does_with_weights(server):
    model = MODEL._replace(
        init=lambda key: {"weights": jnp.zeros(3), "statistics": jnp.array([0.0, 1.0])},
        train_apply=lambda params, x, draw: (x, params),
        statistics="statistics",
        normalises_by_batch=True,
    )
    algorithm = mj.fedavg(model, server=server, server_lr=0.1)
    start = algorithm.server.init(jax.random.key(0))
    heard = {"weights": jnp.array([3.0, -6.0, 9.0]), "statistics": jnp.array([6.0, 12.0])}
    moved = algorithm.server.update(start, None, Uploads(heard, jnp.asarray(3.0))).value
    np.testing.assert_allclose(moved["statistics"], [2.0, 4.0])
    assert float(jnp.abs(moved["weights"] - heard["weights"] / 3).min()) > 0.1  # a step towards the mean, not the mean
    unchanged = mj.fedavg(model._replace(normalises_by_batch=False), server=server, server_lr=0.1)
    kept = unchanged.server.update(start, None, Uploads(heard, jnp.asarray(3.0))).value
    assert not np.allclose(kept["statistics"], [2.0, 4.0])
