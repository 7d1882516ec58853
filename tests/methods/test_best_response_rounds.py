"""Best-response rounds against a loop in NumPy, control variates that add up, and a game with a known solution."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import majorant as mj
from majorant.methods import best_response, gradient_play
from majorant.surrogates import BestResponse, Pair

SIZES = (3, 6, 9)
MEANS = np.array([[0.0, 1.0], [2.0, -1.0], [1.0, 3.0]])
PULL = 0.5


def critic() -> BestResponse:
    """A critic ⟨ω, x⟩ on the clients and a generator z + θ on the server: θ must become the clients' mean."""
    return BestResponse(
        name="critic",
        init=lambda key: Pair(jnp.zeros(2), jnp.zeros(2)),
        losses=lambda omega, theta, x, y: -(x @ omega),
        draw=lambda key: jnp.zeros((1, 2)),
        public=lambda omega, theta, z, hyper: (z + theta) @ omega + PULL / 2 * (omega**2).sum(),
        response=lambda omega, theta, z, hyper: -((z + theta) @ omega),
        predict=lambda pair, x: x + pair.theta,
    )


def data() -> mj.FederatedData:
    rng = np.random.default_rng(0)
    x = np.concatenate([mean + rng.normal(size=(n, 2)) for mean, n in zip(MEANS, SIZES, strict=True)])
    return mj.FederatedData.unlabelled(x.astype(np.float32), clients=np.repeat(np.arange(3), SIZES))


def algorithm(**options) -> mj.Algorithm:
    plain = {"server": optax.sgd(0.5), "inner": optax.sgd(0.2), "inner_steps": 3, "alpha": 0.3}
    return best_response(critic(), local=mj.local_sgd(0.4, steps=2, batch_size=None), **plain | options)


@pytest.fixture(scope="module")
def everyone():
    seen = []
    look = mj.Evaluation(every=1, diagnostics=True, report=lambda records, snapshot: seen.append(snapshot()))
    run = mj.simulate(algorithm(), data(), rounds=4, evaluation=look)
    return run, seen


def test_rounds_are_algorithm_3_in_numpy(everyone):
    """Two local steps, plain server steps along H, three steps on θ: the same numbers."""
    train, shares = data().train, np.array(SIZES) / sum(SIZES)
    omega, theta, variates, variate = np.zeros(2), np.zeros(2), np.zeros((3, 2)), np.zeros(2)
    for snapshot in everyone[1]:
        drifts = []
        for c in range(3):
            own = omega.copy()
            for _ in range(2):
                own -= 0.4 * (-train.client(c)[0].mean(axis=0) + theta + PULL * own)
            drifts.append(own - omega - variates[c])
        heard = shares @ np.array(drifts)
        field = variate + heard
        variates += 0.3 * np.array(drifts)
        variate = variate + 0.3 * heard
        omega = omega + 0.5 * field
        for _ in range(3):
            theta = theta + 0.2 * omega
        server = jax.tree.map(lambda a: a[0], snapshot.server)
        np.testing.assert_allclose(server.value.omega, omega, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(server.value.theta, theta, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(server.state.variate, variate, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(snapshot.clients.variate[0], variates, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("resources", [mj.Resources(), mj.Resources(memory_budget=64)], ids=["resident", "streamed"])
def test_variates_add_up_when_some_are_absent_and_bits_are_few(resources):
    """V is the mean of the clients' own, which are measured where they are held: all at once, or one at a time."""
    run = mj.simulate(
        algorithm(server=optax.adam(0.1)),
        data(),
        rounds=6,
        participation=mj.participation.uniform(0.7),
        channel=mj.channel.quantized(8),
        evaluation=mj.Evaluation(every=6, diagnostics=True),
        resources=resources,
    )
    assert run.history[-1]["variates_apart"] < 1e-5 * run.history[-1]["mean_field"]
    assert run.history[-1]["mean_field"] > 0
    assert run.history[-1]["participants"] == 2


def test_peers_find_the_mean_of_all_clients_too():
    """Two of three nodes do not hear each other: all come to the saddle point, as V and the generator are averaged."""
    ends = mj.Evaluation(every=300)
    run = mj.simulate(algorithm(), data(), rounds=300, exchange=mj.gossip(mj.topology.star()), evaluation=ends)
    everybody = data().train.x.mean(axis=0)
    omega, theta = (leaf[0] for leaf in run.snapshot.server.value)
    np.testing.assert_allclose(theta, np.tile(everybody, (3, 1)), atol=1e-3)
    np.testing.assert_allclose(omega, 0, atol=1e-3)
    np.testing.assert_allclose(run.snapshot.server.state.variate[0], 0, atol=1e-3)


def test_the_generator_finds_the_mean_of_all_clients(everyone):
    """The saddle point of the game is known: θ = E X over everybody, ω = 0."""
    everybody = data().train.x.mean(axis=0)
    run = mj.simulate(everyone[0].algorithm, data(), rounds=300, evaluation=mj.Evaluation(every=300, diagnostics=True))
    np.testing.assert_allclose(run.server.value.theta, everybody, atol=1e-3)
    np.testing.assert_allclose(run.server.value.omega, 0, atol=1e-3)
    np.testing.assert_allclose(run.model(0).predict(np.zeros((1, 2), np.float32))[0], everybody, atol=1e-3)


def test_gradient_play_moves_each_player_down_its_own_loss():
    """One round of FedAvg on the game, by hand: the mean of the clients' simultaneous steps."""
    play = gradient_play(critic(), local=mj.local_sgd(0.4, steps=1, batch_size=None), server=optax.sgd(1.0))
    run = mj.simulate(play, data(), rounds=2, evaluation=mj.Evaluation(every=2))
    omega = 0.4 * data().train.x.mean(axis=0)  # round 1; θ does not move, as ω = 0
    theta = 0.4 * omega
    omega = omega - 0.4 * (-data().train.x.mean(axis=0) + PULL * omega)
    np.testing.assert_allclose(run.server.value.omega, omega, rtol=1e-5)
    np.testing.assert_allclose(run.server.value.theta, theta, rtol=1e-5)


def test_bad_numbers_are_refused():
    with pytest.raises(ValueError, match="alpha must be a finite number at least 0 and at most 1"):
        algorithm(alpha=2.0)
    with pytest.raises(ValueError, match="inner_steps must be a whole number"):
        algorithm(inner_steps=-1)
    with pytest.raises(ValueError, match="server_scale must be a finite number at least 0"):
        mj.simulate(algorithm(), data(), rounds=1, hyper={"server_scale": -1.0})
    wide = mj.FederatedData.unlabelled(np.zeros((6, 3)), clients=np.arange(6) % 2)
    with pytest.raises(ValueError, match="the reference has 2 features and the clients' samples have 3"):
        mj.transport(wide, np.zeros((9, 2)))
    with pytest.raises(ValueError, match="the network is for 2 features, and samples have 3"):
        mj.transport(wide, np.zeros((9, 3)), network=mj.models.icnn(2))
    with pytest.raises(ValueError, match="lr must be a finite number greater than 0"):
        mj.transport(mj.models.Spec((2,), 0), np.zeros((9, 2)), lr=0.0)
    with pytest.raises(ValueError, match="flatten them first"):
        mj.transport(mj.models.Spec((2, 2), 0), np.zeros((9, 4)))
