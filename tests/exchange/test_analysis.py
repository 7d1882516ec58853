"""Analysis: gaps and contractions against closed forms, and messages that say what is wrong where."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from majorant.exchange import spectrum
from majorant.exchange import topology as t
from majorant.exchange.analysis import as_matrix, inspect, validate
from majorant.exchange.mixing import Dense


def ring_gap(n):
    return 1 - (1 + 2 * np.cos(2 * np.pi / n)) / 3


def network(*matrices, symmetric=True):
    """A network from weights as they are, checked by nobody."""
    rounds = jnp.asarray(matrices)
    draw = lambda key, round: Dense(rounds[(round - 1) % len(rounds)])
    n = rounds.shape[1]
    return t.Network(n, draw, symmetric, len(rounds), len(rounds) > 1, np.zeros((0, 2), int))


@pytest.mark.parametrize("n", [5, 100, 10_000])
def test_the_gap_of_a_ring(n):
    found = inspect(t.ring().build(n))
    assert found.spectral_gap == pytest.approx(ring_gap(n), rel=1e-5)
    assert found.contraction == pytest.approx(ring_gap(n) * (2 - ring_gap(n)), rel=1e-5)
    assert found.connected
    assert found.symmetric
    assert found.links == n


def test_the_gap_of_a_large_torus():
    assert inspect(t.torus().build(10_000)).spectral_gap == pytest.approx(
        1 - (1 + 2 + 2 * np.cos(2 * np.pi / 100)) / 5, rel=1e-5
    )


def test_iterative_and_dense_results_agree(monkeypatch):
    made = [t.erdos_renyi(0.2), t.exponential(), t.ring(), t.star(), t.one_peer_exponential(), t.matching(),
            t.sequence(t.ring(), t.star()), t.ring(link_failure=0.3), t.star(weights="fastest")]  # fmt: skip
    dense = [inspect(each.build(60), draws=20) for each in made]
    monkeypatch.setattr(spectrum, "SMALL", 1)
    for each, exact in zip(made, dense, strict=True):
        found = inspect(each.build(60), draws=20)
        assert found.spectral_gap == pytest.approx(exact.spectral_gap, rel=1e-4), each.name
        assert found.contraction == pytest.approx(exact.contraction, rel=1e-4), each.name


def test_products_that_are_not_sparse_need_not_be_made(monkeypatch):
    made = t.sequence(t.erdos_renyi(0.2), t.star()).build(60)  # whose weights do not commute
    exact = inspect(made).contraction
    monkeypatch.setattr(spectrum, "SMALL", 1)
    monkeypatch.setattr(spectrum, "FILL", 0)
    assert inspect(made).contraction == pytest.approx(exact, rel=1e-6)


def test_weights_that_nearly_turn_values_over_mix_slowly(monkeypatch):
    """Nodes of an even ring that keep ε of their own: values of alternating signs have λ = 2ε − 1."""
    monkeypatch.setattr(spectrum, "SMALL", 1)
    own, after = 1e-4, np.roll(np.eye(60), 1, axis=0)
    made = network(own * np.eye(60) + (1 - own) / 2 * (after + after.T))
    assert inspect(made).spectral_gap == pytest.approx(2 * own, rel=1e-3)


def test_one_peer_exponential_contracts_fully_over_its_period():
    found = inspect(t.one_peer_exponential().build(16))
    assert found.contraction == pytest.approx(1)
    assert found.period == 4
    assert found.connected
    assert not found.symmetric


@pytest.mark.parametrize("n", [6, 7])
def test_random_matchings_contract_as_in_theory(n):
    """E[WᵀW] = E[W], whose entries off the diagonal are half the probability that two given nodes meet."""
    meet = 1 / (n - 1) if n % 2 == 0 else 1 / n
    found = inspect(t.matching().build(n), draws=1500)
    assert found.contraction == pytest.approx(n * meet / 2, rel=0.1)
    assert found.connected


def test_the_contraction_bounds_what_a_period_does():
    made = t.sequence(t.ring(), t.star()).build(9)
    p, x = inspect(made).contraction, np.random.default_rng(0).standard_normal((9, 50)).astype(np.float32)
    y = x
    for round in (1, 2):
        y = np.asarray(made.draw(None, round).mix(y, jnp.ones(9, bool)))
    spread = lambda v: ((v - x.mean(axis=0)) ** 2).sum(axis=0)
    assert (spread(y) <= (1 - p) * spread(x) * (1 + 1e-5)).all()


def test_where_all_nodes_are_alike_the_contraction_is_what_a_round_does_on_average():
    made, x = t.erdos_renyi(0.5, varying=True).build(6), np.random.default_rng(0).standard_normal((6, 50))
    x = (x - x.mean(axis=0)).astype(np.float32)
    mixed = jax.jit(jax.vmap(lambda key: made.draw(key, 1).mix(x, jnp.ones(6, bool))))(
        jax.random.split(jax.random.key(1), 400)
    )
    left = float((mixed**2).sum() / 400 / (x**2).sum())
    found = inspect(made, draws=400)
    assert 1 - found.contraction == pytest.approx(left, rel=0.1)
    assert found.links == pytest.approx(15 / 2, rel=0.05)  # of rounds that differ: half of all pairs


def test_the_line_that_describes_a_network():
    assert inspect(t.complete().build(300)).describe() == (
        "300 nodes, 44,850 links, spectral gap 1, contraction p 1 over 1 round, symmetric"
    )
    assert "7 links a round" in inspect(t.one_peer_exponential().build(8)).describe()
    assert "not connected" in inspect(network(np.eye(2))).describe()


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (network([[0.5, 0.4], [0.5, 0.6]]), "row 0 sums to 0.9"),
        (network([[1.2, -0.2], [-0.2, 1.2]]), "nodes 0 and 1 is -0.2"),
        (network(np.roll(np.eye(3), 1, axis=1)), r"symmetric, and in the network .* from node 0 to 1 it is 1, back it"),
        (network(np.eye(4)), "4 parts, and from node 0 there is no way to and from nodes 1, 2, 3"),
        (network(np.eye(2), [[0.5, 0.5], [0.4, 0.6]]), "in round 2, column 0 sums to 0.9"),
    ],
)
def test_validate_says_what_is_wrong_and_where(made, words):
    with pytest.raises(ValueError, match=words):
        validate(made)


def test_rounds_that_connect_only_together_are_valid():
    pair = lambda i, j: (
        np.eye(3)
        + 0.5
        * np.array([[-1.0 * (a == b and a in (i, j)) + (sorted((a, b)) == [i, j]) for b in range(3)] for a in range(3)])
    )
    made = network(pair(0, 1), pair(1, 2))
    validate(made)
    found = inspect(made)
    assert found.connected
    assert 0 < found.contraction < 1
    with pytest.raises(ValueError, match="2 parts"):
        validate(network(pair(0, 1)))


def test_random_matchings_have_their_exact_contraction():
    """E[WᵀW] = E[W] has the second eigenvalue 1/2 − 1/(2(n − 1))."""
    for nodes in (6, 20, 300):
        found = inspect(t.matching().build(nodes))
        assert found.contraction == pytest.approx(1 / 2 + 1 / (2 * (nodes - 1)), rel=1e-6)
        assert found.spectral_gap == pytest.approx(found.contraction, rel=1e-6)
        assert "about" in found.describe()


def test_weights_that_only_pass_values_on_are_refused():
    with pytest.raises(ValueError, match="without ever mixing"):
        validate(t.from_matrix(np.roll(np.eye(5), 1, axis=1)).build(5))


def test_links_that_mostly_fail_still_connect():
    validate(t.ring(link_failure=0.95).build(50))
    validate(t.erdos_renyi(0.01, varying=True).build(50))


def test_failures_inside_and_outside_a_sequence_are_independent():
    network = t.sequence(t.ring(link_failure=0.3), link_failure=0.3).build(400)
    kept = [int(network.draw(jax.random.key(k), 1).messages(np.ones(400, bool))) / 800 for k in range(20)]
    assert np.mean(kept) == pytest.approx(0.49, abs=0.03)


def test_narrow_gaps_of_large_networks_cost_few_products(monkeypatch):
    """Lanczos' method cannot resolve them: it is given up soon, and asked once for gap and contraction."""
    products = 0
    plain = spectrum.lanczos

    def counted(apply, nodes):
        def applied(x):
            nonlocal products
            products += 1
            return apply(x)

        return plain(applied, nodes)

    monkeypatch.setattr(spectrum, "lanczos", counted)
    assert inspect(t.ring().build(3000)).spectral_gap == pytest.approx(ring_gap(3000), rel=1e-5)
    assert 0 < products < 400


def test_rounds_that_take_turns_contract_as_often_as_there_are_rounds_in_a_period():
    """Two rounds of independent matchings leave the square of what one leaves; as pairs of draws say, one by one."""
    one, two = (inspect(t.sequence(*[t.matching()] * count).build(20), draws=400) for count in (1, 2))
    assert (one.period, two.period) == (1, 2)
    assert two.contraction == pytest.approx(1 - (1 - one.contraction) ** 2, abs=0.01)
    start = np.random.default_rng(0).normal(size=20)
    start -= start.mean()
    both = t.sequence(t.matching(), t.matching()).build(20)
    draw = jax.jit(lambda key, number: both.draw(key, number))
    left = []
    for key in jax.random.split(jax.random.key(0), 200):
        after = start
        for number in (1, 2):
            after = as_matrix(draw(jax.random.fold_in(key, number), number)) @ after
        left.append((after**2).sum() / (start**2).sum())
    assert 1 - np.mean(left) == pytest.approx(two.contraction, abs=0.03)
