"""Fastest mixing: the weights on a given graph that bring the nodes to their mean soonest.

    minimise  ‖W − 11ᵀ/n‖₂   over   W = Wᵀ ≥ 0,  W 1 = 1,  W_ij = 0 where i and j are not linked

A node's own weight is free. With a weight w_e on every link, W = I − B diag(w) Bᵀ for the incidence matrix B, and the
problem is a semidefinite program: minimise s subject to −s I ≼ W − 11ᵀ/n ≼ s I, w ≥ 0, and the weights at a node sum
to at most 1.

Boyd, Diaconis, Xiao, "Fastest mixing Markov chain on a graph", SIAM Review 46(4), 2004, section 2.
"""

from __future__ import annotations

import functools
import importlib.util
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import scipy

from majorant._extras import require
from majorant.exchange.graphs import metropolis, tidy, weight_matrix, within

# A step of the solver decomposes two n × n matrices: about 0.03 seconds on one core for 300 nodes. With half of all
# links, 300 nodes take 6 to 15 seconds and 400 take 30; sparse graphs, which mix slowly, use all the steps they are
# allowed, which is some 4 minutes for 300 nodes and more for 400.
LARGEST = 400
TOLERANCE = 1e-6
STEPS = 2_000_000  # the solver's steps times the nodes, at most
NEGLIGIBLE = 1e-6  # weights below this are the solver's rounding, and would only cost messages


def fastest_mixing_weights(edges: Any, nodes: int) -> np.ndarray:
    """The symmetric matrix W ``(n, n)`` of the fastest mixing on these links; needs ``majorant[graphs]``.

    It is never slower than the one with Metropolis weights. A second call with the same graph costs nothing.

    >>> fastest_mixing_weights([(0, 1), (1, 2)], 3).round(3)
    array([[0.5, 0.5, 0. ],
           [0.5, 0. , 0.5],
           [0. , 0.5, 0.5]])
    """
    if nodes > LARGEST:
        raise ValueError(
            f"the fastest mixing weights are computed for at most {LARGEST} nodes, beyond which a solve takes many "
            f"minutes; for {nodes} nodes take weights='metropolis'"
        )
    links = np.ascontiguousarray(within(tidy(edges), nodes))
    return _solved(links.tobytes(), nodes).copy()


@functools.cache
def _solved(links_bytes: bytes, nodes: int) -> np.ndarray:
    links = np.frombuffer(links_bytes, np.int64).reshape(-1, 2)
    plain = metropolis(links, nodes)
    if len(links) == 0:
        return weight_matrix(links, plain, nodes).toarray()
    found, finished = solve(links, nodes)
    candidates = [weight_matrix(links, w, nodes).toarray() for w in (feasible(found, links, nodes), plain)]
    if not finished:
        warnings.warn(
            f"the fastest mixing weights of {nodes} nodes and {len(links)} links were not found to full accuracy in "
            "the steps allowed; the weights are valid, and mix no slower than Metropolis weights",
            stacklevel=3,
        )
    return min(candidates, key=norm)


def solve(links: np.ndarray, nodes: int) -> tuple[np.ndarray, bool]:
    """The solver's weight for every link, and whether it reached its tolerance."""
    with without_highs():
        cp = require("cvxpy", "graphs", 'weights="fastest", unlike "metropolis",')
    (i, j), edges = links.T, len(links)
    e, one = np.arange(edges), np.ones(edges)
    at_node = scipy.sparse.csc_array((np.tile(one, 2), (np.concatenate([i, j]), np.tile(e, 2))), shape=(nodes, edges))
    cells = np.concatenate([i * nodes + i, j * nodes + j, i * nodes + j, j * nodes + i])
    spread = scipy.sparse.csc_array(
        (np.concatenate([one, one, -one, -one]), (cells, np.tile(e, 4))), shape=(nodes * nodes, edges)
    )
    w, s = cp.Variable(edges, nonneg=True), cp.Variable()
    laplacian = cp.reshape(spread @ w, (nodes, nodes), order="C")  # B diag(w) Bᵀ
    identity, mean = np.eye(nodes), np.full((nodes, nodes), 1 / nodes)
    bounds = [(1 + s) * identity - mean - laplacian >> 0, laplacian + mean - (1 - s) * identity >> 0]
    problem = cp.Problem(cp.Minimize(s), [*bounds, at_node @ w <= 1])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that it stopped early is said above, in plainer words
        problem.solve(solver=cp.SCS, eps=TOLERANCE, max_iters=min(20_000, STEPS // nodes))
    if w.value is None:
        return metropolis(links, nodes), False
    return np.asarray(w.value, float), problem.status == cp.OPTIMAL


@contextmanager
def without_highs() -> Iterator[None]:
    """Hides the solver HiGHS from CVXPY, which loads it and does not need it here.

    Its library and the one inside OR-Tools, which k-means-constrained needs, have the same name and not the same
    content: whichever of the two is loaded second in a process fails.
    """
    clashes = "highspy" not in sys.modules and importlib.util.find_spec("ortools") is not None
    if clashes:
        sys.modules["highspy"] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        if clashes:
            del sys.modules["highspy"]


def feasible(w: np.ndarray, links: np.ndarray, nodes: int) -> np.ndarray:
    """The nearest thing to a solver's answer that meets the constraints exactly: w ≥ 0, at most 1 at every node."""
    w = np.where(w < NEGLIGIBLE, 0, w)
    total = np.bincount(links[:, 0], w, nodes) + np.bincount(links[:, 1], w, nodes)
    return w / np.maximum(1, total[links].max(axis=1))


def norm(weights: np.ndarray) -> float:
    """‖W − 11ᵀ/n‖₂ of a symmetric W: the factor by which a round shrinks the distance to the mean, at worst."""
    return float(np.abs(np.linalg.eigvalsh(weights - 1 / len(weights))).max())
