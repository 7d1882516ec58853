"""Fastest mixing: known optima, constraints met exactly, never slower than Metropolis weights."""

import subprocess
import sys

import jax
import numpy as np
import pytest

from majorant.exchange import fastest_mixing
from majorant.exchange.fastest_mixing import fastest_mixing_weights, norm
from majorant.exchange.graphs import metropolis, ring_links, star_links, tidy, weight_matrix
from majorant.exchange.topology import erdos_renyi, ring


def path(n):
    return np.stack([np.arange(n - 1), np.arange(1, n)], axis=1)


def all_links(n):
    return np.stack(np.triu_indices(n, 1), axis=1)


def barbell(n):
    return tidy(np.concatenate([all_links(n), all_links(n) + n, [[n - 1, n]]]))


GRAPHS = {
    "path": (path(8), 8),
    "star": (star_links(9), 9),
    "barbell": (barbell(5), 10),
    "ring": (ring_links(9), 9),
    "random": (erdos_renyi(0.3, seed=1).build(25).edges, 25),
}


@pytest.mark.parametrize("name", GRAPHS)
def test_weights_meet_the_constraints_and_beat_metropolis(name):
    links, n = GRAPHS[name]
    w = fastest_mixing_weights(links, n)
    np.testing.assert_array_equal(w, w.T)
    np.testing.assert_allclose(w.sum(axis=1), 1, atol=1e-12)
    assert w.min() >= 0
    assert set(map(tuple, np.argwhere(np.triu(w, 1)).tolist())) <= set(map(tuple, links.tolist()))
    assert norm(w) < norm(weight_matrix(links, metropolis(links, n), n).toarray()) - 1e-4


@pytest.mark.parametrize("n", [2, 3, 6, 10])
def test_on_a_path_the_optimum_is_cos_pi_over_n_with_all_weights_one_half(n):
    """Boyd, Diaconis, Sun, Xiao, "Fastest mixing Markov chain on a path", 2006."""
    w = fastest_mixing_weights(path(n), n)
    assert norm(w) == pytest.approx(np.cos(np.pi / n), abs=1e-5)
    np.testing.assert_allclose(np.diag(w, 1), 0.5, atol=2e-3)


@pytest.mark.parametrize("n", [3, 7])
def test_on_a_star_every_leaf_gets_an_equal_share_of_the_middle(n):
    w = fastest_mixing_weights(star_links(n), n)
    assert norm(w) == pytest.approx(1 - 1 / (n - 1), abs=1e-5)
    np.testing.assert_allclose(w[0, 1:], 1 / (n - 1), atol=1e-4)


def test_on_a_complete_graph_the_optimum_is_the_mean():
    np.testing.assert_allclose(fastest_mixing_weights(all_links(6), 6), 1 / 6, atol=1e-4)


@pytest.mark.parametrize("n", [5, 8, 9])
def test_on_a_ring_one_weight_balances_both_ends_of_the_spectrum(n):
    """All links are alike: a single weight w is optimal, eigenvalues are 1 − 2w(1 − cos 2πk/n)."""
    slow = 2 - 2 * np.cos(2 * np.pi / n)
    fast = 2 - 2 * np.cos(2 * np.pi * (n // 2) / n)
    best = min(2 / (slow + fast), 0.5)
    w = fastest_mixing_weights(ring_links(n), n)
    assert norm(w) == pytest.approx(1 - best * slow, abs=1e-5)


def test_a_graph_is_solved_once(monkeypatch):
    first = fastest_mixing_weights(path(7), 7)
    monkeypatch.setattr(fastest_mixing, "solve", None)
    np.testing.assert_array_equal(fastest_mixing_weights(path(7)[::-1, ::-1], 7), first)


def test_a_topology_takes_them():
    network = ring(weights="fastest").build(8)
    w = np.asarray(network.draw(jax.random.key(0), 1).dense().weights)
    np.testing.assert_allclose(w, fastest_mixing_weights(ring_links(8), 8), atol=1e-7)


@pytest.mark.parametrize(("links", "n"), [(barbell(6), 12), (ring_links(11), 11)], ids=["barbell", "ring"])
def test_an_early_stop_is_told_and_is_never_worse_than_metropolis(links, n, monkeypatch):
    monkeypatch.setattr(fastest_mixing, "STEPS", 20)
    with pytest.warns(UserWarning, match="not found to full accuracy"):
        w = fastest_mixing_weights(links, n)
    assert w.min() >= 0
    np.testing.assert_allclose(w.sum(axis=0), 1, atol=1e-12)
    assert norm(w) <= norm(weight_matrix(links, metropolis(links, n), n).toarray())


def test_large_graphs_are_refused_and_a_missing_package_is_named(monkeypatch):
    with pytest.raises(ValueError, match=r"at most 400 nodes.*weights='metropolis'"):
        fastest_mixing_weights(ring_links(401), 401)
    monkeypatch.setitem(sys.modules, "cvxpy", None)
    with pytest.raises(ImportError, match=r"pip install 'majorant\[graphs\]'"):
        fastest_mixing_weights(path(13), 13)


def test_the_solver_leaves_room_for_k_means():
    """Both bring a library of the name HiGHS: in one process, in either order, both must work."""
    script = """
import numpy as np
from majorant.exchange.fastest_mixing import fastest_mixing_weights
from majorant.data.partition import balanced_kmeans
def mix(): return fastest_mixing_weights([(0, 1), (1, 2)], 3)
def cluster(): return balanced_kmeans(np.random.default_rng(0).normal(size=(12, 2)), clients=3)
"""
    for order in ("mix(); cluster()", "cluster(); mix()"):
        subprocess.run([sys.executable, "-c", script + order], check=True, capture_output=True)
