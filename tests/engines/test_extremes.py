"""One client that sends enormous numbers: it is rejected and named; where it is not, the run says whose they were."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import majorant as mj
import zoo
from majorant.app.files import strict_json
from majorant.core import ClientData, all_finite
from majorant.engines.client_scores import Scores
from majorant.engines.divergence import Diverged, OutlierWarning
from majorant.engines.extremes import Largest, larger, largest_of
from majorant.engines.settings import run_settings
from majorant.engines.simulation import Simulation
from majorant.exchange.federation import federation
from majorant.exchange.star import Combine
from majorant.metrics.scores import client_scores, sample_scores

DATA = zoo.problem()
STREAMED = mj.Resources(memory_budget=1)
GOSSIP = mj.gossip(mj.topology.ring())


def sending(algorithm, size, slot=1):
    """The algorithm with one client all of whose numbers are the same."""

    def update(view, state, data, key):
        upload, state = algorithm.client.update(view, state, data, key)
        fake = jax.tree.map(lambda v: jnp.where(data.slot == slot, jnp.asarray(size, v.dtype), v), upload.value)
        return upload._replace(value=fake), state

    return algorithm._replace(client=algorithm.client._replace(update=update))


@pytest.mark.parametrize(
    ("name", "size", "options"),
    [
        ("fedavg", 1e36, {}),
        ("fedavg", 1e36, {"exchange": GOSSIP}),
        ("fedem", 3e38, {"resources": STREAMED}),
        ("pfedme", 3e38, {"channel": mj.channel.quantized(8)}),
        ("apfl:adaptive", 3e38, {"channel": mj.channel.top_k(0.5)}),
    ],
)
def test_an_upload_too_large_to_be_added_up_is_rejected_and_its_client_named(name, size, options):
    run = mj.simulate(sending(zoo.algorithm(name), size), DATA, rounds=2, **options)
    summary = run.summary()
    assert (summary["rejected"], summary["rejected_clients"]) == (2, ["client 1"])
    assert bool(all_finite((run.snapshot.server, run.snapshot.clients, run.snapshot.memory)))
    assert np.isfinite(summary["test_accuracy"]["mean"])
    assert max(np.abs(leaf).max() for leaf in jax.tree.leaves(run.snapshot.server.value)) < 100
    assert "such as those of 'client 1'" in str(summary)


def test_a_network_that_one_client_made_useless_stops_the_run_which_names_the_client():
    """Finite numbers, of which the others' layers make infinite ones: most are rejected from the second round on."""
    algorithm = sending(mj.fedavg(mj.models.mlp(DATA, hidden=[4, 4])), 1e18)
    cause = r"most clients.*Client 'client 1' had sent numbers of up to 1e\+18, where the others' were at most [0-9.]+:"
    with pytest.raises(Diverged, match=cause):
        mj.simulate(algorithm, DATA, rounds=4, evaluation=mj.Evaluation(every=2))


def test_a_run_whose_rounds_were_lost_at_first_goes_on():
    """Between two evaluations most are rejected in the first round, and nobody in the second."""
    algorithm = zoo.algorithm("fedavg")

    def update(view, state, data, key):
        upload, state = algorithm.client.update(view, state, data, key)
        return upload._replace(
            value=jax.tree.map(lambda v: jnp.where(view.round == 0, jnp.nan, v), upload.value)
        ), state

    late = algorithm._replace(client=algorithm.client._replace(update=update))
    run = mj.simulate(late, DATA, rounds=2, evaluation=mj.Evaluation(every=2))
    assert run.history[-1]["rejected"] == run.history[-1]["participants"]  # those of one round
    assert np.isfinite(run.summary()["test_accuracy"]["mean"])


def test_a_finite_model_that_one_client_made_is_warned_of():
    with pytest.warns(OutlierWarning, match="Client 'client 1' had sent"):
        mj.simulate(sending(zoo.algorithm("fedavg"), 1e18), DATA, rounds=1)


def test_a_server_whose_step_is_not_finite_keeps_its_state():
    """All uploads are sound and what is made of them is not: the round counts as one without a usable upload."""
    nonsense = Combine("nonsense", lambda values, weights: jax.tree.map(lambda v: v[0] + jnp.inf, values))
    algorithm = zoo.algorithm("fedavg")
    together = federation(algorithm, training=np.flatnonzero(~DATA.unseen), exchange=mj.star(combine=nonsense))
    simulation = Simulation(together, DATA, run_settings(algorithm, 0, None, None, None), 1)
    simulation.start()
    before = jax.tree.map(np.asarray, simulation.engine.server.value)
    tally = simulation.block(1)
    jax.tree.map(np.testing.assert_array_equal, before, jax.tree.map(np.asarray, simulation.engine.server.value))
    assert int(simulation.engine.server.round[0]) == 1
    assert int(tally.rejected[0]) == int(tally.participants[0])
    assert int(tally.fruitless[0]) == 1
    simulation.record(1, 1, tally)
    with pytest.raises(Diverged, match="Lower the learning rate"):
        simulation.stop_if_diverged(1, tally)


def test_the_largest_two_are_of_different_clients():
    some = largest_of(jnp.array([2.0, 9.0, 4.0]), jnp.array([0, 1, 2]))
    assert tuple(map(float, some)) == (9, 4, 1)
    assert tuple(map(float, larger(some, Largest(7.0, 1.0, 1)))) == (9, 4, 1)  # the same client's, in another round
    assert tuple(map(float, larger(some, Largest(7.0, 1.0, 5)))) == (9, 7, 1)
    assert tuple(map(float, larger(some, Largest(11.0, 1.0, 5)))) == (11, 9, 5)


def test_the_largest_of_nothing_known_is_no_prediction():
    """NaN probabilities score NaN, not as often as the first class occurs; a file of scores has null then."""
    data = ClientData(jnp.zeros((3, 2)), jnp.array([0, 0, 1]), jnp.asarray(2), 0)
    predicted = jnp.array([[jnp.nan, jnp.nan], [0.9, 0.1], [0.5, 0.5]])
    loss, score = client_scores(sample_scores(predicted, data.y, 2), data, 2)
    assert np.isnan([loss, score]).all()
    assert strict_json({"score": score}) == '{"score": null}'
    sizes = {"train": np.array([5, 5, 5, 0])}
    lost = lambda losses: Scores({"train_loss": np.array(losses)}, sizes, np.zeros(4, bool)).lost()
    assert lost([np.nan, np.nan, 1, 1])
    assert not lost([np.nan, 1, 1, np.nan])  # one of those three who have samples
