"""Noise on a network: drawn from what is secret, accounted for as in the simulator, and within its budget."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from test_network_rounds import distance, method, silos, study, trained

import majorant as mj
from majorant.app.flower.letters import Agreement
from majorant.app.flower.silo import Work, own_key
from majorant.app.flower.states import Place

CHANNELS = {
    "server": ("clip:1.0", "gaussian:2.0"),
    "together": ("clip:1.0", "skellam:2.0", "secure-sum:1.0,bits=12,threshold=3"),
}
pytestmark = pytest.mark.filterwarnings("ignore:δ = 0.001 with 4 clients")


@pytest.mark.parametrize("at", CHANNELS)
def test_the_budget_ends_training_and_the_seed_does_not_tell_the_noise(tmp_path, at):
    """All parties know the seed: a simulation from it must not find the noise that hides them."""
    hidden = {"channel": list(CHANNELS[at]), "delta": 0.001}
    guarantee = study("fedavg", **hidden).federation(silos().spec).guarantee
    run = trained(tmp_path, study("fedavg", epsilon=1.01 * guarantee.epsilon(2), **hidden))
    assert run.rounds == 2
    assert run.summary()["privacy"]["epsilon"] == run.history[-1]["epsilon"] == guarantee.epsilon(2)
    assert run.summary()["privacy"]["noise_at"] == at
    channel = study("fedavg", **hidden).federation(silos().spec).channel
    told = mj.simulate(method("fedavg"), silos(), rounds=2, seed=3, channel=channel)
    assert distance(run.server, told.server) > 0.1


def test_a_silo_draws_noise_from_a_key_that_the_server_does_not_know(tmp_path):
    key, spec = jax.random.key(0), silos().spec
    agreement = Agreement(run="0" * 32, clients=4, slot=0, features=[1], classes=[])

    def drawn(name, **settings):
        place = Place(str(tmp_path / name), agreement.run, name)
        place.make()
        federation = study("fedavg", **settings).federation(spec)
        work = Work(place, agreement, federation, None, None, None)
        return tuple(np.asarray(jax.random.key_data(own_key(work, key))).tolist())

    noisy = {"channel": ["clip:1.0", "gaussian:1.0,at=client"], "delta": 0.001}
    plain = tuple(np.asarray(jax.random.key_data(key)).tolist())
    assert drawn("a") == plain
    assert drawn("a", **noisy) == drawn("a", **noisy)  # asked again, it answers the same
    assert len({plain, drawn("a", **noisy), drawn("b", **noisy)}) == 3
