"""Topologies: doubly stochastic for every number of nodes, connected, reproducible; wrong ones are told apart."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from compiling import quickly
from majorant.exchange import topology as t
from majorant.exchange.analysis import as_matrix, inspect, validate
from majorant.exchange.graphs import read_links
from majorant.exchange.mixing import Dense, Table

KEY = jax.random.key(0)
SIZES = (1, 2, 3, 7, 12)
ANY_SIZE = {
    "ring": t.ring(),
    "star": t.star(),
    "complete": t.complete(),
    "exponential": t.exponential(),
    "erdos-renyi": t.erdos_renyi(0.9, seed=1),
    "varying": t.erdos_renyi(0.3, varying=True),
    "one-peer": t.one_peer_exponential(),
    "matching": t.matching(),
    "failing": t.ring(link_failure=0.5),
    "sequence": t.sequence(t.ring(), t.star(), t.matching()),
    "directed sequence": t.sequence(t.one_peer_exponential(), t.complete()),
}


def weights(network, round=1, key=KEY):
    return np.asarray(quickly(lambda key, round: network.draw(key, round).dense().weights)(key, round), float)


@pytest.mark.parametrize("name", ANY_SIZE)
@pytest.mark.parametrize("n", SIZES)
def test_every_round_is_doubly_stochastic_under_jit_and_vmap(name, n):
    network = ANY_SIZE[name].build(n)
    dense = lambda key, round: network.draw(key, round).dense().weights
    rounds = np.arange(1, 6)
    w = np.asarray(quickly(jax.vmap(dense))(jax.random.split(KEY, 5), rounds), float)
    assert w.shape == (5, n, n)
    assert w.min() >= 0
    np.testing.assert_allclose(w.sum(axis=1), 1, atol=1e-6)
    np.testing.assert_allclose(w.sum(axis=2), 1, atol=1e-6)
    if network.symmetric:
        np.testing.assert_allclose(w, np.swapaxes(w, 1, 2), atol=1e-7)


@pytest.mark.parametrize("n", [4, 6, 9, 12, 35])
def test_a_torus_is_doubly_stochastic_with_at_most_four_neighbours(n):
    w = weights(t.torus().build(n))
    np.testing.assert_allclose(w.sum(axis=0), 1, atol=1e-6)
    np.testing.assert_allclose(w, w.T)
    assert (np.count_nonzero(w, axis=1) - 1).max() == min(4, {4: 2, 6: 3}.get(n, 4))


@pytest.mark.parametrize("name", ANY_SIZE)
def test_networks_are_valid(name):
    validate(ANY_SIZE[name].build(12))


def test_the_same_arguments_give_the_same_objects():
    assert t.erdos_renyi(0.5, seed=2) is t.erdos_renyi(0.5, seed=2)
    assert t.ring().build(5) is t.ring().build(5)
    assert t.from_edges([(0, 1)]) is t.from_edges([(1, 0), (0, 1)])
    assert t.from_matrix(np.full((2, 2), 0.5)) is t.from_matrix([[0.5, 0.5], [0.5, 0.5]])


def test_names_are_as_a_user_writes_them():
    assert t.ring().name == "ring"
    assert t.ring(weights="fastest", link_failure=0.1).name == "ring:weights=fastest,link_failure=0.1"
    assert t.erdos_renyi(0.5, seed=3).name == "erdos-renyi:0.5,seed=3"
    assert t.sequence(t.ring(), t.torus()).name == "sequence:ring+torus"


def test_metropolis_weights_on_a_star():
    w = weights(t.star().build(5))
    np.testing.assert_allclose(w[0], [0.2] * 5, atol=1e-7)
    np.testing.assert_allclose(np.diag(w)[1:], 0.8, atol=1e-7)


def test_complete_is_exactly_equal_weights():
    assert (weights(t.complete().build(7)) == np.float32(1 / 7)).all()


def test_a_ring_has_the_eigenvalues_of_theory():
    n = 11
    found = np.sort(np.linalg.eigvalsh(weights(t.ring().build(n))))
    np.testing.assert_allclose(found, np.sort((1 + 2 * np.cos(2 * np.pi * np.arange(n) / n)) / 3), atol=1e-6)


@pytest.mark.parametrize("n", [2, 4, 8, 32])
def test_one_peer_exponential_reaches_the_exact_mean_in_log2_n_rounds(n):
    network, x = t.one_peer_exponential().build(n), np.arange(n, dtype=np.float32)
    assert network.period == np.log2(n)

    @quickly
    def step(x, round):
        drawn = network.draw(KEY, round)
        return drawn.index[0, 0], drawn.mix(x, jnp.ones(n, bool))

    for round in range(1, network.period + 1):
        peer, x = step(x, round)
        assert peer == 2 ** (round - 1) % n
    np.testing.assert_array_equal(x, (n - 1) / 2)


def test_matchings_are_uniform_pairs():
    draws = quickly(jax.vmap(lambda key: t.matching().build(4).draw(key, 1).index[0, 0]))(jax.random.split(KEY, 3000))
    np.testing.assert_allclose(np.bincount(draws, minlength=4)[1:] / 3000, 1 / 3, atol=0.04)
    odd = t.matching().build(5).draw(KEY, 1)
    assert np.count_nonzero(odd.weight) == 4


def test_varying_graphs_differ_by_round_and_are_reproducible():
    network = t.erdos_renyi(0.4, varying=True).build(30)
    one, again, other = weights(network), weights(network), weights(network, key=jax.random.key(1))
    np.testing.assert_array_equal(one, again)
    assert (one != other).any()
    many = quickly(jax.vmap(lambda key: jnp.triu(network.draw(key, 1).weights, 1)))(jax.random.split(KEY, 40))
    share = np.count_nonzero(many) / (40 * 435)
    assert abs(share - 0.4) < 4 * np.sqrt(0.24 / (435 * 40))
    degree = np.count_nonzero(one, axis=1) - (np.diag(one) > 0)
    i, j = np.argwhere(np.triu(one, 1))[0]
    assert one[i, j] == pytest.approx(1 / (1 + max(degree[i], degree[j])))


def test_a_static_erdos_renyi_graph_is_drawn_once():
    network = t.erdos_renyi(0.5).build(40)
    np.testing.assert_array_equal(weights(network, 1), weights(network, 9, jax.random.key(5)))
    assert not network.varying
    assert abs(len(network.edges) / 780 - 0.5) < 0.1
    assert (t.erdos_renyi(0.5, seed=1).build(40).edges[:20] != network.edges[:20]).any()


def test_sequences_take_turns_and_each_counts_its_own_rounds():
    network = t.sequence(t.one_peer_exponential(), t.ring()).build(8)
    assert network.period == 6
    jumps = [int(np.flatnonzero(weights(network, round)[0])[-1]) for round in (1, 3, 5)]
    assert jumps == [1, 2, 4]
    np.testing.assert_array_equal(weights(network, 2), weights(t.ring().build(8)))


def test_a_sequence_begins_anew_when_all_in_it_do():
    """One of three rounds and one of two, in turns: after twelve all rounds come again, and no sooner."""
    network = t.sequence(t.one_peer_exponential(), t.sequence(t.ring(), t.star())).build(8)
    assert network.period == 12
    rounds = [weights(network, round) for round in range(1, 25)]
    again = lambda after: all(np.array_equal(a, b) for a, b in zip(rounds, rounds[after:], strict=False))
    assert [after for after in range(1, 13) if again(after)] == [12]


def test_sparse_graphs_are_tables_and_small_dense_ones_matrices():
    form = lambda topology, n: type(topology.build(n).draw(KEY, 1))
    assert form(t.ring(), 31) is Dense
    assert form(t.ring(), 32) is Table
    assert form(t.erdos_renyi(0.5), 100) is Dense
    assert form(t.star(), 3000) is Table
    with pytest.raises(ValueError, match="training with a server"):
        t.star().build(10_000)
    with pytest.raises(ValueError, match="2048"):
        t.complete().build(3000)
    with pytest.raises(ValueError, match="2048"):
        t.erdos_renyi(0.5, varying=True).build(3000)


def test_own_links_from_a_list_and_from_a_file(tmp_path):
    path = tmp_path / "links.csv"
    path.write_text("from,to\n0,1\n1, 2\n2,1\n\n2,3\n")
    network = t.read_edges(str(path)).build(4)
    assert network.edges.tolist() == [[0, 1], [1, 2], [2, 3]]
    np.testing.assert_array_equal(weights(network), weights(t.from_edges([(1, 0), (1, 2), (3, 2)], 4).build(4)))
    path.write_text("0,1\n1,b\n")
    with pytest.raises(ValueError, match=r"links.csv, line 2: expected two node numbers, got '1,b'"):
        read_links(path)


def test_own_weights():
    w = np.array([[0.6, 0.4, 0.0], [0.4, 0.2, 0.4], [0.0, 0.4, 0.6]])
    np.testing.assert_allclose(weights(t.from_matrix(w).build(3)), w, atol=1e-7)
    turn = t.from_matrix(np.roll(np.eye(3), 1, axis=1) / 2 + np.eye(3) / 2)
    assert not turn.build(3).symmetric
    assert as_matrix(turn.build(3).draw(KEY, 1)).nnz == 6


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: t.torus().build(7), r"rows × columns.*7 has no such factors"),
        (lambda: t.ring().build(0), "at least one node"),
        (lambda: t.ring(weights="best"), "'metropolis' or 'fastest', got 'best'"),
        (lambda: t.ring(link_failure=1.0), r"in \[0, 1\), got 1.0"),
        (lambda: t.erdos_renyi(0.0), r"in \(0, 1\], got 0.0"),
        (lambda: t.erdos_renyi(0.01).build(50), r"p = 0.01, 50 nodes.*log\(n\)/n = 0.0782"),
        (lambda: t.erdos_renyi(0.5, varying=True, weights="fastest"), "solver in each round"),
        (lambda: t.one_peer_exponential(link_failure=0.1), "needs symmetric weights"),
        (lambda: t.sequence(t.one_peer_exponential(), link_failure=0.1).build(4), "needs symmetric weights"),
        (lambda: t.sequence(), "at least one topology"),
        (lambda: t.from_edges([(0, 1), (1, 9)]).build(3), "do not exist: 9; nodes go from 0 to 2"),
        (lambda: t.from_edges([(0, 1), (-1, 1)], 2), "do not exist: -1"),
        (lambda: t.from_edges([(0, 1), (2, 2)]), "not linked to themselves, as 2 here"),
        (lambda: t.from_edges([(0, 1, 2)]), "pairs of node numbers"),
        (lambda: t.from_edges([(0, 1.5)]), "pairs of node numbers"),
        (lambda: t.from_edges([(0, 1)], 2).build(3), "for 2 nodes, not for 3"),
        (lambda: t.from_edges([(0, 1), (2, 3)]).build(4), "2 parts, and from node 0 .* nodes 2, 3"),
        (lambda: t.from_matrix(np.ones((2, 3))), "square.*got 2 × 3"),
        (lambda: t.from_matrix([[0.5, 0.4], [0.5, 0.5]]), "row 0 sums to 0.9"),
        (lambda: t.from_matrix([[0.0, 1.0], [0.0, 1.0]]), "column 0 sums to 0"),
        (lambda: t.from_matrix([[1.5, -0.5], [-0.5, 1.5]]), "nodes 0 and 1 is -0.5"),
        (lambda: t.from_matrix([[np.nan, 1.0], [1.0, 0.0]]), "finite"),
        (lambda: t.from_matrix(np.eye(3)), "3 parts, and from node 0 .* nodes 1, 2"),
        (lambda: t.from_matrix(np.full((2, 2), 0.5)).build(3), "2 nodes, not for 3"),
        (lambda: t.from_matrix(np.roll(np.eye(3), 1, axis=1), link_failure=0.1), "needs symmetric weights"),
    ],
)
def test_wrong_input_is_told_in_words(make, words):
    with pytest.raises(ValueError, match=words):
        make()


def test_link_failure_slows_mixing_and_keeps_the_network_valid():
    sure, shaky = (inspect(t.torus(link_failure=rate).build(36)) for rate in (0.0, 0.5))
    assert shaky.varying
    assert shaky.connected
    assert shaky.doubly_stochastic
    assert 0 < shaky.contraction < sure.contraction
