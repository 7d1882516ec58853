"""FedEM: an EM algorithm, so the likelihood never decreases; FedAvg, when there is one component."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import majorant as mj
import zoo
from compiling import quickly
from majorant.core import ClientData, View, as_hyper, round_key
from majorant.engines.simulator import planned

DIRECTIONS = np.array([[2.0, -1.0], [-2.0, 1.0]])


def mixed_clients(clients, n=40):
    """Clients whose samples come from two opposite classifiers, in proportions of their own."""
    rng, made = np.random.default_rng(1), []
    for t in range(clients):
        x = rng.normal(size=(n, 2)).astype(np.float32)
        component = (rng.random(n) < (t + 1) / (clients + 1)).astype(int)
        made.append((x, ((x * DIRECTIONS[component]).sum(axis=1) > 0).astype(np.int32)))
    return zoo.federated(made)


def client(x, y):
    return ClientData(jnp.asarray(x), jnp.asarray(y), jnp.int32(len(y)), jnp.int32(0))


def components(weights, biases):
    """Parameters of linear models, stacked."""
    return [
        {"weight": jnp.asarray(weights, jnp.float32)[:, :, None], "bias": jnp.asarray(biases, jnp.float32)[:, None]}
    ]


def view_of(theta):
    return View(theta, as_hyper(mj.local_sgd(0.1).hyper), 0, 1)


def sample_losses(theta, x, y):
    """l(θ_m; s_i) in double precision, (n, M)."""
    (layer,) = theta
    scores = (
        np.asarray(x, np.float64) @ np.asarray(layer["weight"], np.float64)[:, :, 0].T + np.asarray(layer["bias"])[:, 0]
    )
    return np.logaddexp(0, np.where(y[:, None] > 0, -scores, scores))


def responsibilities(pi, losses):
    """q_im ∝ π_m exp(−l_im), in double precision."""
    joint = np.log(pi) - losses
    joint -= joint.max(axis=1, keepdims=True)
    return np.exp(joint) / np.exp(joint).sum(axis=1, keepdims=True)


def test_one_component_is_fedavg():
    data, start = zoo.training(), []
    local = zoo.solver()
    model = mj.models.linear(data)
    remember = lambda fresh: start.append(fresh) or fresh
    average = mj.simulate(mj.fedavg(model, local=local), data, rounds=3, resume=remember)
    same = jax.tree.map(lambda a: a[:, None], start[0].server.value)
    from_there = lambda fresh: fresh._replace(server=fresh.server._replace(value=same))
    em = mj.simulate(mj.fedem(model, components=1, local=local), data, rounds=3, resume=from_there)
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a[0], b, rtol=1e-5, atol=1e-6), em.server.value, average.server.value
    )
    for name in ("train_loss", "test_score"):
        np.testing.assert_allclose(em.scores[0].values[name], average.scores[0].values[name], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("batch_size", "products"), [(None, 2), (64, 2), (16, 3)])
def test_the_e_step_and_a_step_on_all_samples_share_their_outputs(batch_size, products):
    """Both need the outputs for the same samples at the same point: one product gives them, and one the gradient.

    Minibatches need products of their own. In any case a chunk is copied out of all clients once.
    """
    data = mixed_clients(6)
    algorithm = mj.fedem(mj.models.linear(data), components=3, local=mj.local_sgd(0.1, batch_size=batch_size))
    simulation = planned(algorithm, data, 1, resources=mj.Resources(side_by_side=3))
    simulation.start()
    (program,) = simulation.engine.programs.block.compiled.values()
    text = program.as_text()
    assert len(re.findall(r"= f32\[(?:3,\d+|120),[23]\]\S* dot\(", text)) == products
    assert len(re.findall(r"= f32\[1,3,40,2\]\S* dynamic-slice\(", text)) == 1


@pytest.mark.parametrize(("clients", "steps"), [(1, 20), (6, 1)])
def test_the_likelihood_never_decreases(clients, steps):
    """The M-step descends: many small full-batch steps on one client, one on each of many (so the average does)."""
    data = mixed_clients(clients)
    algorithm = mj.fedem(mj.models.linear(data), components=2, local=mj.local_sgd(0.5, steps=steps, batch_size=None))
    run = mj.simulate(algorithm, data, rounds=40, evaluation=mj.Evaluation(every=1), seed=1)
    loss = np.array([line["loss"] for line in run.history])  # f at the start of each round
    assert (np.diff(loss) < 1e-6).all()
    assert loss[-1] < loss[0] - 0.05


@pytest.mark.parametrize("scale", [1.0, 1e4])
def test_the_e_step_is_bayes_rule_in_log_space(scale):
    """Also where exp(−loss) underflows for every component."""
    rng = np.random.default_rng(2)
    x, y = rng.normal(size=(30, 2)).astype(np.float32), rng.integers(2, size=30).astype(np.int32)
    theta = components(scale * np.array([[1.0, 0.5], [-0.5, 1.0], [0.3, 0.3]]), [0.1, 0.0, -0.2])
    algorithm = mj.fedem(mj.models.linear(mj.models.Spec((2,), 2)), components=3)
    view = view_of(theta)
    pi = np.array([0.5, 0.2, 0.3])
    start = algorithm.client.init(view, client(x, y), None)._replace(pi=jnp.asarray(pi, jnp.float32))
    upload, updated = quickly(algorithm.client.update)(view, start, client(x, y), jax.random.key(0))
    losses = sample_losses(theta, x, y)
    np.testing.assert_allclose(updated.pi, responsibilities(pi, losses).mean(axis=0), atol=2e-5)
    least = losses.min(axis=1, keepdims=True)
    negative_log_likelihood = least[:, 0] - np.log((pi * np.exp(least - losses)).sum(axis=1))
    np.testing.assert_allclose(upload.info["loss"], negative_log_likelihood.mean(), rtol=1e-5)


def test_weights_add_up_to_one_where_components_are_equally_absurd():
    """Losses of 1e16, between which float32 has no place for log 2: two equal components still share alike."""
    x, y = np.ones((4, 2), np.float32), np.zeros(4, np.int32)
    view = view_of(components(np.full((2, 2), 1e16), [0.0, 0.0]))
    algorithm = mj.fedem(mj.models.linear(mj.models.Spec((2,), 2)), components=2)
    start = algorithm.client.init(view, client(x, y), None)
    _, updated = quickly(algorithm.client.update)(view, start, client(x, y), jax.random.key(0))
    np.testing.assert_allclose(updated.pi, 0.5)


def newcomer(n=60):
    rng, theta = np.random.default_rng(3), components(DIRECTIONS, [0.0, 0.0])
    x = rng.normal(size=(n, 2)).astype(np.float32)
    component = (rng.random(n) < 0.3).astype(int)
    probability = 1 / (1 + np.exp(-(x * DIRECTIONS[component]).sum(axis=1)))
    return theta, x, (rng.random(n) < probability).astype(np.int32)


def joined(theta, x, y, **options):
    algorithm = mj.fedem(mj.models.linear(mj.models.Spec((2,), 2)), components=2, **options)
    return np.asarray(algorithm.deployment.join(view_of(theta), client(x, y), jax.random.key(0)).pi, np.float64)


def test_a_newcomer_without_samples_has_uniform_weights():
    theta, x, y = newcomer()
    algorithm = mj.fedem(mj.models.linear(mj.models.Spec((2,), 2)), components=2)
    empty = client(x, y)._replace(size=jnp.int32(0))
    np.testing.assert_allclose(algorithm.deployment.join(view_of(theta), empty, jax.random.key(0)).pi, 0.5)


def test_a_newcomers_weights_maximise_the_concave_likelihood():
    """At the maximum over the simplex, mean_i p_im / Σ_k π_k p_ik is 1 where π_m > 0, and at most 1 elsewhere."""
    theta, x, y = newcomer()
    density = np.exp(-sample_losses(theta, x, y))
    pi = joined(theta, x, y)
    slope = (density / (density @ pi)[:, None]).mean(axis=0)
    np.testing.assert_allclose(slope, 1, atol=1e-3)
    grid = np.linspace(1e-3, 1 - 1e-3, 999)
    likelihood = np.log(density @ np.stack([grid, 1 - grid])).mean(axis=0)
    assert abs(grid[likelihood.argmax()] - pi[0]) < 2e-3


def test_one_em_step_is_one_e_step_from_uniform_weights():
    theta, x, y = newcomer()
    expected = responsibilities(np.full(2, 0.5), sample_losses(theta, x, y)).mean(axis=0)
    np.testing.assert_allclose(joined(theta, x, y, em_steps=1), expected, atol=1e-6)
    np.testing.assert_allclose(joined(theta, x, y, em_steps=0), 0.5)


def test_a_client_mixes_probabilities_not_logits():
    theta, x, _ = newcomer()
    algorithm = mj.fedem(mj.models.linear(mj.models.Spec((2,), 2)), components=2)
    state = algorithm.client.init(view_of(theta), client(x, x[:, 0]), None)._replace(pi=jnp.array([0.25, 0.75]))
    deployed = algorithm.deployment.personalize(view_of(theta), state, client(x, x[:, 0]), None)
    probability = 1 / (1 + np.exp(-x @ DIRECTIONS.T))
    np.testing.assert_allclose(algorithm.deployment.predict(deployed, x)[:, 1], probability @ [0.25, 0.75], atol=1e-6)


@pytest.mark.parametrize("options", [{"components": 0}, {"components": 1.5}, {"em_steps": -1}, {"absent": "ignored"}])
def test_impossible_settings_are_refused(options):
    with pytest.raises(ValueError, match="must be"):
        mj.fedem(mj.models.linear(mj.models.Spec((2,), 2)), **options)


def test_components_start_at_different_points():
    server = mj.fedem(mj.models.linear(mj.models.Spec((2,), 2)), components=2).server.init(
        round_key(jax.random.key(0), 0)
    )
    (layer,) = server.value
    assert float(jnp.abs(layer["weight"][0] - layer["weight"][1]).max()) > 1e-3
