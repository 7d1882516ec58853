"""Gossip: with equal weights it is the server; what else it keeps, loses, refuses and counts."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import majorant as mj
import zoo
from majorant.core import Stack, tree_bytes
from majorant.engines.memory import largest_value, rounds_that_count
from majorant.exchange.participation import Participation, bernoulli

NODES = len(zoo.SIZES) - 1
ROUNDS = 4


def run(algorithm, **options):
    return mj.simulate(algorithm, zoo.problem(), **({"rounds": ROUNDS, "evaluate_every": 1} | options))


def peers(name, topology, **options):
    return mj.gossip(zoo.algorithm(name), topology, zoo.problem(), **options)


def close(tree, other, tolerance=1e-5):
    for a, b in zip(jax.tree.leaves(tree), jax.tree.leaves(other), strict=True):
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(
    "name",
    ["fedem", "fedavg", "fedavg:adam", "fedavg:hold", "fedavg_plus", "fedprox", "pfedme", "pfedme:paper",
     "apfl:adaptive"],
)  # fmt: skip
def test_equal_weights_are_the_server(name):
    """Clients of different sizes, several local steps, momentum, an unseen client: W = 11ᵀ/n is the star."""
    star, ours = run(zoo.algorithm(name)), run(peers(name, mj.topology.complete()))
    for node in range(NODES):
        close(jax.tree.map(lambda v, node=node: v[:, node], ours.snapshot.server.value), star.snapshot.server.value)
    close(ours.snapshot.clients, star.snapshot.clients)
    close(ours.scores[0].values, star.scores[0].values)
    for mine, theirs in zip(ours.history, star.history, strict=True):
        assert mine["loss"] == pytest.approx(theirs["loss"], rel=1e-4)
        assert mine["consensus_distance"] < 1e-9


def test_the_em_surrogate_on_a_network_is_d_fedem():
    """Algorithm 5 with the surrogate of the E-step: number for number, with momentum and smaller last batches."""
    surrogate = mj.surrogates.em_surrogate(zoo.model(), components=2)
    generic = mj.gossip(mj.surrogate_optimization(surrogate, local=zoo.solver()), mj.topology.ring(), zoo.problem())
    ours, theirs = run(generic), run(peers("fedem", mj.topology.ring()))
    close(ours.snapshot.server.value, theirs.snapshot.server.value, 2e-6)
    close(ours.scores[0].values, theirs.scores[0].values)
    assert ours.history[-1]["consensus_distance"] == pytest.approx(theirs.history[-1]["consensus_distance"], rel=1e-3)


def test_without_scaling_every_node_counts_the_same():
    """One full-batch step of FedAvg from a common point: the plain mean of the nodes' models."""
    local = mj.local_sgd(0.3, batch_size=None)
    algorithm = mj.fedavg(zoo.model(), local=local)
    ours = run(mj.gossip(algorithm, mj.topology.complete(), zoo.problem(), scaling="none"), rounds=1)
    alone = run(mj.local(zoo.model(), local=local), rounds=1)
    mean = jax.tree.map(lambda v: v[0].mean(axis=0), alone.snapshot.clients.theta)
    close(jax.tree.map(lambda v: v[0, 0], ours.snapshot.server.value), mean)


def test_nodes_agree_at_the_rate_of_the_network():
    """Without learning, the distance to the mean shrinks by at least 1 − p a round, and the mean stays."""
    frozen = mj.fedavg(zoo.model(), local=mj.local_sgd(1e-30))
    algorithm = mj.gossip(frozen, mj.topology.ring(), zoo.problem(), start="own")
    seen = []
    result = run(algorithm, on_evaluation=lambda lines, snapshot: seen.append(snapshot().server.value))
    distances = [line["consensus_distance"] for line in result.history]
    p = 1 - ((1 + 2 * np.cos(2 * np.pi / NODES)) / 3) ** 2
    for before, after in itertools.pairwise(distances):
        assert after <= (1 - p) * before * (1 + 1e-4)
    assert distances[-1] > 0
    centre = lambda value: jax.tree.map(lambda v: v.mean(axis=1), value)
    close(centre(seen[-1]), centre(seen[0]), 1e-6)


AWAY = Participation(
    "the third node is away", lambda key, round, nodes: jnp.arange(nodes) != 2, lambda nodes: 1 - 1 / nodes
)


def test_a_node_that_is_away_keeps_its_state_and_the_others_go_on():
    algorithm = peers("fedem", mj.topology.complete(), start="own")
    start = []
    result = run(algorithm, participation=AWAY, resume=lambda fresh: start.append(fresh) or fresh)
    third = lambda tree: jax.tree.map(lambda v: v[:, 2], tree)
    jax.tree.map(np.testing.assert_array_equal, third(result.snapshot.server.value), third(start[0].server.value))
    jax.tree.map(np.testing.assert_array_equal, third(result.snapshot.clients), third(start[0].clients))
    others = np.delete(jax.tree.leaves(result.snapshot.server.value)[0][0], 2, axis=0)
    assert np.abs(others - jax.tree.leaves(third(start[0].server.value))[0]).max() > 1e-3


def test_messages_are_the_links_that_carried_one():
    model_bytes = tree_bytes(jax.eval_shape(zoo.algorithm("fedem").init, jax.random.key(0)).value)
    ring = run(peers("fedem", mj.topology.ring())).communication[0]
    assert ring["bytes_up"] == ring["bytes_down"] == ROUNDS * 2 * NODES * model_bytes
    away = run(peers("fedem", mj.topology.complete()), participation=AWAY).communication[0]
    assert away["bytes_up"] == ROUNDS * (NODES - 1) * (NODES - 2) * model_bytes


def test_failing_links_and_nodes_are_drawn_again_from_the_same_seed():
    algorithm = peers("fedem", mj.topology.complete(link_failure=0.3))
    once, again = (run(algorithm, participation=bernoulli(0.7), seed=5) for _ in range(2))
    jax.tree.map(np.testing.assert_array_equal, once.snapshot.server, again.snapshot.server)
    other = run(algorithm, participation=bernoulli(0.7), seed=6)
    assert other.communication[0]["bytes_up"] != once.communication[0]["bytes_up"]


def test_one_sided_links_need_everybody():
    algorithm = peers("fedem", mj.topology.one_peer_exponential())
    assert np.isfinite(run(algorithm).history[-1]["consensus_distance"])
    with pytest.raises(ValueError, match="must see every client in every round"):
        run(algorithm, participation=bernoulli(0.5))


def test_a_joining_client_starts_from_its_contacts():
    """With all nodes as contacts and plain FedAvg, a new client deploys the mean of the nodes' models."""
    result = run(peers("fedavg", mj.topology.ring(), contacts=NODES))
    x, y = zoo.problem().train.client(zoo.UNSEEN)
    mean = jax.tree.map(lambda v: v[0].mean(axis=0), result.snapshot.server.value)
    close(result.personalize((x, y)).model, mean)


@pytest.mark.parametrize("name", ["ring", "torus", "exponential", "matching", "one_peer_exponential"])
def test_large_sparse_networks_never_make_a_matrix_of_nodes_times_nodes(name):
    nodes, dimension = 10_000, 3
    spec = mj.models.Spec((dimension,), 2)
    algorithm = mj.gossip(mj.fedavg(mj.models.linear(spec)), getattr(mj.topology, name)(), nodes)

    def aggregate(server, value):
        return algorithm.aggregate(server, Stack(value, jnp.ones(nodes)))

    server = jax.eval_shape(algorithm.init, jax.random.key(0))
    program = jax.make_jaxpr(aggregate)(server, server.value)
    assert largest_value(program.jaxpr) <= 40 * nodes * dimension


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: zoo.algorithm("clustered"), "must see every client's upload"),
        (lambda: zoo.algorithm("mocha"), "must see every client's upload"),
        (lambda: zoo.algorithm("local"), "do not send points"),
        (lambda: peers("fedem", mj.topology.ring()), "gossips already"),
    ],
)
def test_methods_that_cannot_gossip_say_why(make, reason):
    with pytest.raises(ValueError, match=rf"cannot run without a server: .*{reason}"):
        mj.gossip(make(), mj.topology.ring(), zoo.problem())


@pytest.mark.parametrize("options", [{"scaling": "size"}, {"start": "random"}, {"contacts": 0}])
def test_bad_options_are_refused(options):
    (name,) = options
    with pytest.raises(ValueError, match=f"{name} must be"):
        peers("fedem", mj.topology.ring(), **options)


@pytest.mark.parametrize("nodes", [3, NODES, 20])
def test_a_network_for_other_nodes_is_refused(nodes):
    """Five clients train, with ids 0, 1, 3, 4, 5: even a network of five nodes numbered from 0 is another one."""
    algorithm = mj.gossip(zoo.algorithm("fedem"), mj.topology.ring(), nodes)
    with pytest.raises(ValueError, match="are not the 5 clients of this data that train"):
        run(algorithm)


@pytest.mark.parametrize("wrong", ["ring", mj.topology.ring, None])
def test_what_is_no_topology_is_refused(wrong):
    with pytest.raises(ValueError, match="expected a topology"):
        mj.gossip(zoo.algorithm("fedem"), wrong, zoo.problem())


def test_the_logged_loss_is_that_of_the_nodes_that_took_part():
    """Groups of nodes of different sizes take turns: the loss is weighted as with a server."""
    algorithm = mj.fedavg(zoo.model(), local=mj.local_sgd(1e-6))
    options = {"participation": mj.participation.cyclic(0.4)}
    star, ours = run(algorithm, **options), run(mj.gossip(algorithm, mj.topology.complete(), zoo.problem()), **options)
    for mine, theirs in zip(ours.history, star.history, strict=True):
        assert mine["loss"] == pytest.approx(theirs["loss"], rel=1e-4)


def test_a_rejected_upload_does_not_move_the_mean_of_one_sided_links():
    spoil = lambda params, x, y, weights: jax.tree.map(lambda p: p * (np.nan if len(y) == zoo.SIZES[1] else 1), params)
    algorithm = mj.fedavg(zoo.model(), local=mj.solvers.local_function(spoil))
    peers_ = mj.gossip(algorithm, mj.topology.one_peer_exponential(), zoo.problem(), start="own")
    seen = []
    result = run(peers_, on_evaluation=lambda lines, snapshot: seen.append(snapshot().server.value))
    assert result.summary()["rejected"] >= ROUNDS
    centre = lambda value: jax.tree.map(lambda v: v.mean(axis=1), value)
    close(centre(seen[-1]), centre(seen[0]), 1e-6)


def test_messages_of_many_rounds_are_counted_in_pieces():
    small = rounds_that_count(mj.gossip(zoo.algorithm("fedavg"), mj.topology.ring(), 3_000), 3_000)
    dense = rounds_that_count(mj.gossip(zoo.algorithm("fedavg"), mj.topology.complete(), 400), 400)
    for rounds, messages in ((small, 2 * 3_000), (dense, 400 * 399)):
        assert 0.9 * (1 << 31) < rounds * messages < 1 << 31


def test_pieces_of_a_block_add_up(monkeypatch):
    whole = run(peers("fedem", mj.topology.ring()), evaluate_every=ROUNDS)
    monkeypatch.setattr("majorant.engines.simulator.rounds_that_count", lambda *_: 3)
    pieces = run(peers("fedem", mj.topology.ring()), evaluate_every=ROUNDS)
    assert pieces.communication == whole.communication
    assert pieces.history[-1]["loss"] == pytest.approx(whole.history[-1]["loss"], rel=1e-6)
    jax.tree.map(np.testing.assert_array_equal, pieces.snapshot.server, whole.snapshot.server)


@pytest.mark.parametrize("scaling", ["sizes", "none"])
def test_the_gradient_that_is_measured_is_that_of_the_objective_that_is_minimised(scaling):
    """Clients of different sizes, one full-batch step a round on the complete graph: gradient descent."""
    algorithm = mj.fedavg(zoo.model(), local=mj.local_sgd(0.5, batch_size=None, weight_decay=0.0))
    ours = mj.gossip(algorithm, mj.topology.complete(), zoo.problem(), scaling=scaling)
    history = run(ours, rounds=400, evaluate_every=200, diagnostics=True).history
    first = run(ours, rounds=1, diagnostics=True).history[0]
    assert history[-1]["gradient_squared"] < 1e-4 * first["gradient_squared"]
    assert history[-1]["objective"] < first["objective"]
