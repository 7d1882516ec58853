"""The links of a round: those of its number, drawn from a key of its own."""

import itertools

import jax
import numpy as np

import majorant as mj
import zoo
from majorant.core import tree_bytes

NODES = len(zoo.SIZES) - 1
RESTING = mj.fedavg(zoo.model(), local=mj.local_sgd(1e-30, steps=1, batch_size=None))


def points(topology, rounds):
    """All nodes' weights, before round 1 and after every round in which nothing but mixing happens."""
    seen = []
    options = {
        "rounds": rounds,
        "evaluation": mj.Evaluation(every=1, report=lambda _, snapshot: seen.append(snapshot())),
    }
    exchange = mj.gossip(topology, start="own")
    run = mj.simulate(
        RESTING, zoo.training(), exchange=exchange, resume=lambda fresh: seen.append(fresh) or fresh, **options
    )
    return run, [snapshot.server.value[0]["weight"][0].reshape(NODES, -1) for snapshot in seen]


def test_links_fail_anew_in_every_round():
    run, weights = points(mj.topology.ring(link_failure=0.5), 12)
    per_link = run.communication[0]["bytes_per_link"]
    messages = np.diff([0, *(line["bytes_up"] for line in run.history)]) // per_link
    assert len(set(messages.tolist())) > 2
    stayed = [frozenset(np.flatnonzero((a == b).all(axis=1)).tolist()) for a, b in itertools.pairwise(weights[:6])]
    assert len(set(stayed)) > 2  # nodes without a link that works


def test_a_sequence_begins_with_its_first_topology():
    run, weights = points(mj.topology.sequence(mj.topology.complete(), mj.topology.ring()), 1)
    np.testing.assert_allclose(weights[1], np.broadcast_to(weights[0].mean(axis=0), weights[0].shape), rtol=1e-5)
    sent = run.history[0]["bytes_up"] // run.communication[0]["bytes_per_link"]
    assert sent == NODES * (NODES - 1)
    assert run.communication[0]["bytes_per_link"] >= tree_bytes(jax.eval_shape(zoo.model().init, jax.random.key(0)))
