"""Gossip: with equal weights it is the server; what else it keeps, loses, refuses and counts."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import majorant as mj
import zoo
from majorant.core import View, tree_bytes
from majorant.engines.memory import largest_value, rounds_that_count
from majorant.exchange.federation import federation
from majorant.exchange.participation import Participation, bernoulli
from records import over

NODES = len(zoo.SIZES) - 1
ROUNDS = 4


def run(algorithm, exchange=None, **options):
    options = over({"rounds": ROUNDS, "evaluation": mj.Evaluation(every=1)}, options)
    return mj.simulate(algorithm, zoo.training(), exchange=exchange, **options)


def peers(name, topology, **options):
    return zoo.algorithm(name), mj.gossip(topology, **options)


def close(tree, other, tolerance=1e-5):
    for a, b in zip(jax.tree.leaves(tree), jax.tree.leaves(other), strict=True):
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(
    "name",
    ["fedem", "fedavg", "fedavg:adam", "fedavg:hold", "fedavg_plus", "fedprox", "pfedme", "pfedme:paper",
     "apfl:adaptive", "lsgd"],
)  # fmt: skip
def test_equal_weights_are_the_server(name):
    """Clients of different sizes, several local steps, momentum: W = 11ᵀ/n is the star."""
    star, ours = run(zoo.algorithm(name)), run(*peers(name, mj.topology.complete()))
    for node in range(NODES):
        close(jax.tree.map(lambda v, node=node: v[:, node], ours.snapshot.server.value), star.snapshot.server.value)
    close(ours.snapshot.clients, star.snapshot.clients)
    close(ours.scores[0].values, star.scores[0].values)
    for mine, theirs in zip(ours.history, star.history, strict=True):
        assert mine["loss"] == pytest.approx(theirs["loss"], rel=1e-4)
        assert mine["consensus_distance"] < 1e-9


@pytest.mark.parametrize("everyone", [True, False])
@pytest.mark.parametrize("alpha", [None, 0.3])
def test_statistics_gossip_too_and_equal_weights_are_the_server(alpha, everyone):
    """FedMM sends displacements in a linear space; nodes average the statistics and control variates they depart from.

    With nodes that are away, those that are there agree among themselves: the mean of V stays Σ μ_i V_i.
    """
    algorithm = zoo.fedmm_of(zoo.model(), alpha=alpha)
    options = {"evaluation": mj.Evaluation(diagnostics=True)} | ({} if everyone else {"participation": bernoulli(0.6)})
    ours = run(algorithm, mj.gossip(mj.topology.complete()), **options)
    if everyone:
        star = run(algorithm, **options)
        for node in range(NODES):
            mine = jax.tree.map(
                lambda v, node=node: v[:, node], (ours.snapshot.server.value, ours.snapshot.server.state)
            )
            close(mine, (star.snapshot.server.value, star.snapshot.server.state))
        close(ours.snapshot.clients, star.snapshot.clients)
        close(ours.scores[0].values, star.scores[0].values)
        assert all(line["consensus_distance"] < 1e-9 for line in ours.history)
    assert all(line["variates_apart"] < 1e-5 for line in ours.history if everyone)


def test_statistics_on_a_ring_come_to_the_servers_minimum():
    """Full steps on all samples: on a star that is centralized MM; a ring comes to the same objective and agreement."""
    surrogate = mj.surrogates.proximal_gradient(zoo.model(), rho=0.3)
    algorithm = mj.fedmm(surrogate, zoo.training(), step=0.3)
    options = {"rounds": 400, "evaluation": mj.Evaluation(every=400, diagnostics=True)}
    star, ring = run(algorithm, **options), run(algorithm, mj.gossip(mj.topology.ring()), **options)
    assert ring.history[-1]["objective"] == pytest.approx(star.history[-1]["objective"], rel=1e-3)
    assert ring.history[-1]["variates_apart"] < 1e-4


def test_the_em_surrogate_on_a_network_is_d_fedem():
    """Algorithm 5 with the surrogate of the E-step: number for number, with momentum and smaller last batches."""
    surrogate = mj.surrogates.em_surrogate(zoo.model(), components=2)
    generic = mj.surrogate_optimization(surrogate, local=zoo.solver())
    ours, theirs = run(generic, mj.gossip(mj.topology.ring())), run(*peers("fedem", mj.topology.ring()))
    close(ours.snapshot.server.value, theirs.snapshot.server.value, 2e-6)
    close(ours.scores[0].values, theirs.scores[0].values)
    assert ours.history[-1]["consensus_distance"] == pytest.approx(theirs.history[-1]["consensus_distance"], rel=1e-3)


def test_without_scaling_every_node_counts_the_same():
    """One full-batch step of FedAvg from a common point: the plain mean of the nodes' models."""
    local = mj.local_sgd(0.3, batch_size=None)
    algorithm = mj.fedavg(zoo.model(), local=local)
    ours = run(algorithm, mj.gossip(mj.topology.complete(), scaling="none"), rounds=1)
    alone = run(mj.local(zoo.model(), local=local), rounds=1)
    mean = jax.tree.map(lambda v: v[0].mean(axis=0), alone.snapshot.clients.theta)
    close(jax.tree.map(lambda v: v[0, 0], ours.snapshot.server.value), mean)


def test_nodes_agree_at_the_rate_of_the_network():
    """Without learning, the distance to the mean shrinks by at least 1 − p a round, and the mean stays."""
    frozen = mj.fedavg(zoo.model(), local=mj.local_sgd(1e-30))
    exchange = mj.gossip(mj.topology.ring(), start="own")
    seen = []
    result = run(
        frozen, exchange, evaluation=mj.Evaluation(report=lambda lines, snapshot: seen.append(snapshot().server.value))
    )
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
    start = []
    result = run(
        *peers("fedem", mj.topology.complete(), start="own"),
        participation=AWAY,
        resume=lambda fresh: start.append(fresh) or fresh,
    )
    third = lambda tree: jax.tree.map(lambda v: v[:, 2], tree)
    jax.tree.map(np.testing.assert_array_equal, third(result.snapshot.server.value), third(start[0].server.value))
    jax.tree.map(np.testing.assert_array_equal, third(result.snapshot.clients), third(start[0].clients))
    others = np.delete(jax.tree.leaves(result.snapshot.server.value)[0][0], 2, axis=0)
    assert np.abs(others - jax.tree.leaves(third(start[0].server.value))[0]).max() > 1e-3


def test_messages_are_the_links_that_carried_one():
    model_bytes = tree_bytes(jax.eval_shape(zoo.algorithm("fedem").server.init, jax.random.key(0)).value)
    ring = run(*peers("fedem", mj.topology.ring())).communication[0]
    assert ring["bytes_up"] == ring["bytes_down"] == ROUNDS * 2 * NODES * model_bytes
    away = run(*peers("fedem", mj.topology.complete()), participation=AWAY).communication[0]
    assert away["bytes_up"] == ROUNDS * (NODES - 1) * (NODES - 2) * model_bytes


def test_failing_links_and_nodes_are_drawn_again_from_the_same_seed():
    algorithm = peers("fedem", mj.topology.complete(link_failure=0.3))
    once, again = (run(*algorithm, participation=bernoulli(0.7), seed=5) for _ in range(2))
    jax.tree.map(np.testing.assert_array_equal, once.snapshot.server, again.snapshot.server)
    other = run(*algorithm, participation=bernoulli(0.7), seed=6)
    assert other.communication[0]["bytes_up"] != once.communication[0]["bytes_up"]


def test_one_sided_links_need_everybody():
    algorithm = peers("fedem", mj.topology.one_peer_exponential())
    assert np.isfinite(run(*algorithm).history[-1]["consensus_distance"])
    with pytest.raises(ValueError, match="must see every client in every round"):
        run(*algorithm, participation=bernoulli(0.5))


def test_a_joining_client_starts_from_its_contacts():
    """With all nodes as contacts and plain FedAvg, a new client deploys the mean of the nodes' models."""
    result = run(*peers("fedavg", mj.topology.ring(), contacts=NODES))
    x, y = zoo.training().train.client(zoo.UNSEEN)
    mean = jax.tree.map(lambda v: v[0].mean(axis=0), result.snapshot.server.value)
    close(result.personalize((x, y)).model, mean)


def test_views_are_those_of_a_clients_own_node_and_of_a_newcomers_contacts():
    """The client in the third slot does not train: the fourth slot is the third node."""
    algorithm, exchange = peers("fedavg", mj.topology.ring(), contacts=2)
    trains = np.delete(np.arange(NODES + 1), 2)
    bound, views = exchange.bind(algorithm, trains), View(jnp.eye(NODES), {}, 0, 1, jnp.arange(NODES))
    for node, slot in enumerate(trains):
        own = bound.seen(algorithm, views, slot)
        assert own.value.argmax() == own.shared == node
    joining = bound.newcomer(algorithm, views, jax.random.key(0))
    assert sorted(joining.value.tolist()) == [0, 0, 0, 0.5, 0.5]
    assert joining.value[joining.shared] == 0.5


@pytest.mark.parametrize("name", ["ring", "torus", "exponential", "matching", "one_peer_exponential"])
def test_large_sparse_networks_never_make_a_matrix_of_nodes_times_nodes(name):
    nodes, dimension = 10_000, 3
    algorithm = mj.fedavg(mj.models.linear(mj.models.Spec((dimension,), 2)))
    exchange = mj.gossip(getattr(mj.topology, name)()).bind(algorithm, np.arange(nodes))

    def finish(server, uploads, key):
        view = exchange.broadcast(algorithm, server, key)
        return exchange.finish(algorithm, server, view, uploads, jnp.ones(nodes, bool), jnp.asarray(nodes), key)

    server = jax.eval_shape(lambda key: exchange.start(algorithm, key), jax.random.key(0))
    uploads = mj.Uploads(server.value, jax.ShapeDtypeStruct((nodes,), jnp.float32))
    program = jax.make_jaxpr(finish)(server, uploads, jax.random.key(0))
    assert largest_value(program.jaxpr) <= 40 * nodes * dimension


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: zoo.algorithm("clustered"), "must see every client's upload"),
        (lambda: zoo.algorithm("mocha"), "must see every client's upload"),
        (lambda: zoo.algorithm("local"), "do not send points"),
        (lambda: zoo.algorithm("acd"), "do not send points"),
    ],
)
def test_methods_that_cannot_gossip_say_why(make, reason):
    with pytest.raises(ValueError, match=rf"cannot run without a server: .*{reason}"):
        run(make(), mj.gossip(mj.topology.ring()))


def test_displacements_that_are_changed_on_their_way_do_not_gossip():
    """Neighbours do not know the point that a displacement departs from."""
    with pytest.raises(ValueError, match="cannot be put between peers"):
        run(*peers("fedem", mj.topology.ring()), channel=mj.channel.quantized(8))
    lost = run(*peers("fedem", mj.topology.ring()), channel=mj.channel.lossy(0.3))
    assert np.isfinite(lost.history[-1]["consensus_distance"])


@pytest.mark.parametrize("options", [{"scaling": "size"}, {"start": "random"}, {"contacts": 0}])
def test_bad_options_are_refused(options):
    (name,) = options
    with pytest.raises(ValueError, match=f"{name} must be"):
        peers("fedem", mj.topology.ring(), **options)


@pytest.mark.parametrize("wrong", ["ring", mj.topology.ring, None])
def test_what_is_no_topology_is_refused(wrong):
    with pytest.raises(ValueError, match="expected a topology"):
        mj.gossip(wrong)


def test_the_logged_loss_is_that_of_the_nodes_that_took_part():
    """Groups of nodes of different sizes take turns: the loss is weighted as with a server."""
    algorithm = mj.fedavg(zoo.model(), local=mj.local_sgd(1e-6))
    options = {"participation": mj.participation.cyclic(0.4)}
    star, ours = run(algorithm, **options), run(algorithm, mj.gossip(mj.topology.complete()), **options)
    for mine, theirs in zip(ours.history, star.history, strict=True):
        assert mine["loss"] == pytest.approx(theirs["loss"], rel=1e-4)


def test_a_rejected_upload_does_not_move_the_mean_of_one_sided_links():
    spoil = lambda params, x, y, weights: jax.tree.map(lambda p: p * (np.nan if len(y) == zoo.SIZES[1] else 1), params)
    algorithm = mj.fedavg(zoo.model(), local=mj.solvers.local_function(spoil))
    exchange = mj.gossip(mj.topology.one_peer_exponential(), start="own")
    seen = []
    result = run(
        algorithm,
        exchange,
        evaluation=mj.Evaluation(report=lambda lines, snapshot: seen.append(snapshot().server.value)),
    )
    assert result.summary()["rejected"] >= ROUNDS
    centre = lambda value: jax.tree.map(lambda v: v.mean(axis=1), value)
    close(centre(seen[-1]), centre(seen[0]), 1e-6)


def test_messages_of_many_rounds_are_counted_in_pieces():
    for topology, nodes, messages in (
        (mj.topology.ring(), 3_000, 2 * 3_000),
        (mj.topology.complete(), 400, 400 * 399),
    ):
        together = federation(zoo.algorithm("fedavg"), training=np.arange(nodes), exchange=mj.gossip(topology))
        rounds = rounds_that_count(together, nodes)
        assert 0.9 * (1 << 31) < rounds * messages < 1 << 31


def test_pieces_of_a_block_add_up(monkeypatch):
    whole = run(*peers("fedem", mj.topology.ring()), evaluation=mj.Evaluation(every=ROUNDS))
    monkeypatch.setattr("majorant.engines.simulation.rounds_that_count", lambda *_: 3)
    pieces = run(*peers("fedem", mj.topology.ring()), evaluation=mj.Evaluation(every=ROUNDS))
    assert pieces.communication == whole.communication
    assert pieces.history[-1]["loss"] == pytest.approx(whole.history[-1]["loss"], rel=1e-6)
    jax.tree.map(np.testing.assert_array_equal, pieces.snapshot.server, whole.snapshot.server)


@pytest.mark.parametrize("scaling", ["sizes", "none"])
def test_the_gradient_that_is_measured_is_that_of_the_objective_that_is_minimised(scaling):
    """Clients of different sizes, one full-batch step a round on the complete graph: gradient descent."""
    algorithm = mj.fedavg(zoo.model(), local=mj.local_sgd(0.5, batch_size=None, weight_decay=0.0))
    ours = mj.gossip(mj.topology.complete(), scaling=scaling)
    history = run(algorithm, ours, rounds=400, evaluation=mj.Evaluation(every=200, diagnostics=True)).history
    first = run(algorithm, ours, rounds=1, evaluation=mj.Evaluation(diagnostics=True)).history[0]
    assert history[-1]["gradient_squared"] < 1e-4 * first["gradient_squared"]
    assert history[-1]["objective"] < first["objective"]


def test_nodes_that_are_away_do_not_lengthen_the_others_steps():
    """A peer that is absent makes no step: nothing is divided by how often nodes take part."""
    few = {"participation": mj.participation.uniform(0.4), "exchange": mj.gossip(mj.topology.ring())}
    for name in ("lsgd", "fedmm"):
        result = mj.simulate(zoo.algorithm(name), zoo.training(), rounds=60, **few)
        assert float(result.server.terms.inclusion) == 1
        distances = [line["consensus_distance"] for line in result.history]
        assert max(distances[-5:]) <= 4 * max(distances[:10])
