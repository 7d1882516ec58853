"""Analysis: is a network fit for gossip learning, and how fast does it mix?

Assumption 8 of FedEM (Marfoq et al., 2021; from Koloskova et al., 2020) asks for doubly stochastic weights such that

    E ‖X P − X̄‖² ≤ (1 − p) ‖X − X̄‖²        P: the product of the weights of τ rounds

with some p > 0. The largest such p, the contraction, is 1 − ‖E[PᵀP] − 11ᵀ/n‖₂.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import jax
import numpy as np
import scipy

from majorant.core.compilation import jit
from majorant.exchange.graphs import parts
from majorant.exchange.mixing import Dense, Mixing
from majorant.exchange.spectrum import contraction, spectral_gap

if TYPE_CHECKING:
    from majorant.exchange.network import Network

TOLERANCE = 1e-6
MOST_WEIGHTS = 20_000_000  # weights of drawn rounds that are held at once: fewer rounds are drawn of large networks


class Properties(NamedTuple):
    """What holds for a network, and how fast it mixes; NaN where the question makes no sense."""

    nodes: int
    links: float  # undirected links in a round, on average
    doubly_stochastic: bool
    nonnegative: bool
    symmetric: bool
    connected: bool  # over a period; for random ones, over all the rounds that were drawn
    spectral_gap: float  # 1 − |λ₂| of W, or of the mean W where it varies
    contraction: float  # p of Assumption 8 over a period
    period: int
    varying: bool
    draws: int  # periods that were drawn; an average over few of them makes p too small rather than too large
    estimated: bool = False  # whether p and the gap are averages over draws

    def describe(self) -> str:
        """The properties in one line.

        >>> Properties(4, 6.0, True, True, True, True, 1.0, 1.0, 1, False, 1).describe()
        '4 nodes, 6 links, spectral gap 1, contraction p 1 over 1 round, symmetric'
        """
        rounds = f"{self.period} round" + "s" * (self.period > 1)
        found = [
            f"{self.nodes:,} node" + "s" * (self.nodes != 1),
            f"{self.links:,.0f} link" + "s" * (round(self.links) != 1) + " a round" * self.varying,
            f"spectral gap {'about ' * self.estimated}{self.spectral_gap:.3g}",
            f"contraction p {'about ' * self.estimated}{self.contraction:.3g} over {rounds}",
            "symmetric" if self.symmetric else "not symmetric",
        ]
        wrong = ((self.doubly_stochastic, "not doubly stochastic"), (self.nonnegative, "negative weights"),
                 (self.connected, "not connected"))  # fmt: skip
        return ", ".join(found + [words for holds, words in wrong if not holds])


def inspect(network: Network, *, draws: int = 50) -> Properties:
    """The properties of a network: exact, or for random ones an average over ``draws`` periods.

    >>> from majorant.exchange.topology import complete
    >>> inspect(complete().build(10)).describe()
    '10 nodes, 45 links, spectral gap 1, contraction p 1 over 1 round, symmetric'
    """
    periods = list(drawn(network, draws))
    rounds = [weights for period in periods for weights in period]
    mean = scipy.sparse.csr_array(sum(rounds[1:], start=rounds[0]) / len(rounds))
    sums = [np.concatenate([w.sum(axis=0), w.sum(axis=1)]) for w in rounds]
    right = all(np.abs(s - 1).max() <= TOLERANCE for s in sums)
    symmetric = all(asymmetry(w).max() <= TOLERANCE for w in rounds)
    exact = [[rebalanced(weights) for weights in period] for period in periods]
    gap = p = np.nan
    if right and network.exchangeable:
        gap, p = of_exchangeable(periods)
    elif right:
        gap = spectral_gap(rebalanced(mean), symmetric)
        p = contraction(exact, symmetric, gap)
    pairs = [abs(w) + abs(w).T for w in rounds]
    return Properties(
        nodes=network.nodes,
        links=float(np.mean([(w.nnz - np.count_nonzero(w.diagonal())) / 2 for w in pairs])),
        doubly_stochastic=right,
        nonnegative=all(w.min() >= 0 for w in rounds),
        symmetric=symmetric,
        connected=network.exchangeable
        or scipy.sparse.csgraph.connected_components(mean + links_of(network), connection="strong")[0] == 1,
        spectral_gap=gap,
        contraction=p,
        period=network.period,
        varying=network.varying,
        draws=len(periods),
        estimated=network.random,
    )


def validate(network: Network) -> None:
    """Raises a ``ValueError`` that says what is wrong with a network's weights, and where."""
    rounds = [weights for period in drawn(network, 10) for weights in period]
    for place, weights in enumerate(rounds, 1):
        check_sums(weights, f"round {place}" if network.varying else "the network")
        if network.symmetric:
            check_symmetry(weights, f"round {place}" if network.varying else "the network")
    if network.exchangeable:
        return
    together = scipy.sparse.csr_array(sum(rounds[1:], start=rounds[0]) + links_of(network))
    check_connected(together, "the network")
    if network.period == 1 and not network.random:
        check_mixes(rounds[0])


def check_weights(weights: scipy.sparse.csr_array, name: str) -> None:
    """Raises a ``ValueError`` where a user's weights are not doubly stochastic, or do not connect all nodes."""
    rows, columns = weights.shape
    if rows != columns or rows == 0:
        raise ValueError(f"{name} of weights must be square, a row and a column for each node; got {rows} × {columns}")
    check_sums(weights, name)
    check_connected(weights, name)


def check_sums(weights: scipy.sparse.csr_array, name: str) -> None:
    """Weights are finite, not negative, and rows and columns sum to 1."""
    entries = scipy.sparse.coo_array(weights)
    for wrong, words in ((~np.isfinite(entries.data), "finite"), (entries.data < 0, "negative")):
        if wrong.any():
            at = int(np.argmax(wrong))
            i, j, value = entries.row[at], entries.col[at], entries.data[at]
            should = "must be finite" if words == "finite" else "must not be negative"
            raise ValueError(f"weights {should}: in {name}, the one of nodes {i} and {j} is {value:.6g}")
    for axis, kind in ((1, "row"), (0, "column")):
        sums = weights.sum(axis=axis)
        wrong = np.flatnonzero(np.abs(sums - 1) > TOLERANCE)
        if len(wrong):
            raise ValueError(
                f"rows and columns of weights must sum to 1: in {name}, {kind} {wrong[0]} sums to {sums[wrong[0]]:.7g}"
                + (f" (and {len(wrong) - 1} more are wrong)" if len(wrong) > 1 else "")
            )


def check_symmetry(weights: scipy.sparse.csr_array, name: str) -> None:
    """Weights are the same in both directions."""
    difference = scipy.sparse.coo_array(asymmetry(weights))
    wrong = np.flatnonzero(difference.data > TOLERANCE)
    if len(wrong):
        i, j = int(difference.row[wrong[0]]), int(difference.col[wrong[0]])
        raise ValueError(
            f"weights are said to be symmetric, and in {name} {len(wrong)} are not: from node {i} to {j} it is "
            f"{weights[i, j]:.6g}, back it is {weights[j, i]:.6g}"
        )


def check_connected(weights: scipy.sparse.csr_array, name: str) -> None:
    """Every node reaches every other."""
    count, label = scipy.sparse.csgraph.connected_components(weights, directed=True, connection="strong")
    if count > 1:
        raise ValueError(f"the links of {name} do not connect all nodes: {parts(label)}")


def check_mixes(weights: scipy.sparse.csr_array) -> None:
    """Values come nearer to each other: W may not only move them around, p must not be 0."""
    twice = scipy.sparse.csr_array(weights.T @ weights)
    if scipy.sparse.csgraph.connected_components(twice, directed=False)[0] > 1:
        raise ValueError(
            "the weights only pass values on, without ever mixing them (the contraction p is 0): give nodes some "
            "weight of their own"
        )


def links_of(network: Network) -> scipy.sparse.csr_array:
    """The links that exist, whether or not they fail, as a matrix of ones."""
    i, j = np.concatenate([network.edges, network.edges[:, ::-1]]).T
    return scipy.sparse.csr_array((np.ones(len(i)), (i, j)), shape=(network.nodes, network.nodes))


def of_exchangeable(periods: list[list[scipy.sparse.csr_array]]) -> tuple[float, float]:
    """Spectral gap and contraction where all nodes are alike: E[W] and E[WᵀW] are then a I + b 11ᵀ.

    Their second eigenvalue is (trace − 1)/(n − 1), so that few draws suffice. Those of E[WᵀW] multiply over the rounds
    of a period, whose draws are independent.
    """
    others = max(periods[0][0].shape[0] - 1, 1)
    trace = np.array([[w.diagonal().sum() for w in period] for period in periods])
    squares = np.array([[w.power(2).sum() for w in period] for period in periods])
    left = (squares.mean(axis=0) - 1) / others  # of the distance to consensus, squared, after each round of a period
    return 1 - abs(trace.mean() - 1) / others, 1 - float(left.prod())


def asymmetry(weights: scipy.sparse.csr_array) -> scipy.sparse.csr_array:
    """|W − Wᵀ|."""
    return scipy.sparse.csr_array(abs(weights - weights.T))


def rebalanced(weights: scipy.sparse.csr_array) -> scipy.sparse.csr_array:
    """The weights with rows that sum to 1 in double precision: gaps can be smaller than single precision resolves."""
    return scipy.sparse.csr_array(weights + scipy.sparse.diags_array(1 - weights.sum(axis=1)))


def drawn(network: Network, draws: int) -> Iterator[list[scipy.sparse.csr_array]]:
    """The weights of periods, one after another: the first if it says all, else ``draws``, or fewer of large ones."""
    key, draw, held, total = jax.random.key(0), jit(network.draw), 0, max(1, draws if network.random else 1)
    for place in range(total):
        numbers = range(place * network.period + 1, (place + 1) * network.period + 1)
        period = [as_matrix(draw(jax.random.fold_in(key, number), number)) for number in numbers]
        yield period
        held += sum(weights.nnz for weights in period)
        if held > MOST_WEIGHTS:
            return


def as_matrix(mixing: Mixing) -> scipy.sparse.csr_array:
    """The weights of a round as a sparse matrix in double precision, without the zeros."""
    if isinstance(mixing, Dense):
        return scipy.sparse.csr_array(np.asarray(mixing.weights, float))
    index, weight, own = (np.asarray(part) for part in mixing)
    nodes = np.arange(len(own))
    rows, columns = np.append(np.repeat(nodes, index.shape[1]), nodes), np.append(index.ravel(), nodes)
    values = np.append(weight.ravel(), own).astype(float)
    found = scipy.sparse.csr_array(scipy.sparse.coo_array((values, (rows, columns)), shape=(len(own), len(own))))
    found.eliminate_zeros()
    return found
