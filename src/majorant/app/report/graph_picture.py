"""The picture of a gossip network: nodes and links, or for large ones a map of the weights.

A link is the wider and darker the larger its weight; a node's colour is the weight it gives to itself. Weights that
vary are averaged over a period. Drawing needs the extra ``majorant[report]``; NetworkX (``majorant[graphs]``) places
the nodes of irregular graphs, which are on a circle without it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from scipy import sparse

from majorant.app.report.figures import FAINT, INK, PAPER, canvas, styled
from majorant.app.report.record import RunRecord
from majorant.exchange.analysis import Properties, drawn, inspect
from majorant.exchange.graphs import connected
from majorant.exchange.network import Network

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_NODES = 400  # more are drawn as a map
PIXELS = 400  # the rows and columns of a map, at most
LINK_COLOUR, NODE_COLOURS, MAP_COLOURS = "#0072B2", "YlOrBr", "Blues"


def draw_network(network: Network) -> Figure:
    """A figure of a network."""
    with styled():
        figure, (axes,) = canvas(6.4, 4.6)
        weights = mean_weights(network)
        (draw_nodes if network.nodes <= MOST_NODES else draw_map)(axes, weights)
        axes.set_title(title(inspect(network)), fontsize=9)
    return figure


def networks_of(records: Sequence[RunRecord]) -> dict[str, Figure]:
    """A picture of every network that the runs were on; none where its links are no longer to be had."""
    from majorant.app.catalogue import topologies

    gossiping = [record for record in records if "network" in record.summary and "topology" in record.config]
    asked = {(str(r.config["topology"]), r.summary["network"]["nodes"]): None for r in gossiping}
    found = {}
    for place, (name, nodes) in enumerate(asked, 1):
        try:
            network = topologies.make(name).build(nodes)
        except (ImportError, OSError, ValueError):
            continue
        found[f"network-{place}" if len(asked) > 1 else "network"] = draw_network(network)
    return found


def mean_weights(network: Network) -> sparse.csr_array:
    """The weights, averaged over the first period."""
    rounds = next(drawn(network, 1))
    return sparse.csr_array(sum(rounds[1:], start=rounds[0]) / len(rounds))


def title(properties: Properties) -> str:
    """The properties in two lines."""
    words = properties.describe().split(", ")
    return ", ".join(words[:3]) + "\n" + ", ".join(words[3:])


def draw_nodes(axes: Axes, weights: sparse.csr_array) -> None:
    """Nodes and links."""
    from matplotlib.collections import LineCollection
    from matplotlib.colors import to_rgba

    both = sparse.coo_array(sparse.triu((weights + weights.T) / 2, 1))
    links, strength = np.stack([both.row, both.col], axis=1), both.data / both.data.max(initial=1e-12)
    place, own, nodes = positions(links, weights.shape[0]), weights.diagonal(), weights.shape[0]
    crowd = min(1.0, (3 * nodes / max(len(links), 1)) ** 0.8)  # many links are thin and pale, so that none is lost
    colours = np.tile(to_rgba(LINK_COLOUR), (len(links), 1))
    colours[:, 3] = np.clip(0.85 * strength * crowd, 0.01, 1)
    order = np.argsort(strength)
    lines = LineCollection(
        list(place[links][order]), colors=colours[order], linewidths=0.2 + 2.2 * strength[order] * crowd, zorder=1
    )
    axes.add_collection(lines)
    size = float(np.clip(6000 / nodes, 12, 160))
    x, y = place.T
    dots = axes.scatter(x, y, s=size, c=own, cmap=NODE_COLOURS, vmin=0, vmax=max(1e-9, own.max()), zorder=2,
                        edgecolors=INK, linewidths=0.6)  # fmt: skip
    axes.set_aspect("equal")
    axes.margins(0.06)
    axes.set_axis_off()
    bar = axes.figure.colorbar(dots, ax=axes, label="A node's own weight", shrink=0.7, pad=0.02)
    cast(Any, bar.outline).set_visible(False)


def draw_map(axes: Axes, weights: sparse.csr_array) -> None:
    """The weights as a map, in blocks that hold the largest weight in them."""
    nodes = weights.shape[0]
    blocks, entries = min(PIXELS, nodes), sparse.coo_array(weights)
    picture = np.zeros((blocks, blocks))
    np.maximum.at(picture, (entries.row * blocks // nodes, entries.col * blocks // nodes), entries.data)
    image = axes.imshow(np.ma.masked_equal(picture, 0), cmap=MAP_COLOURS, vmin=0, interpolation="nearest",
                        extent=(0, nodes, nodes, 0), rasterized=True)  # fmt: skip
    axes.set_facecolor(PAPER)
    axes.spines[:].set_visible(True)
    axes.spines[:].set_color(FAINT)
    axes.grid(visible=False)
    axes.set_xlabel("from node")
    axes.set_ylabel("to node")
    bar = axes.figure.colorbar(image, ax=axes, label="Weight, largest in a block", shrink=0.8, pad=0.02)
    cast(Any, bar.outline).set_visible(False)


def positions(links: np.ndarray, nodes: int) -> np.ndarray:
    """Where the nodes are drawn ``(n, 2)``: on a circle, around the middle of a star, or where NetworkX puts them."""
    degree = np.bincount(links.ravel(), minlength=nodes)
    middle = np.flatnonzero(degree == nodes - 1)
    if len(links) == nodes - 1 and nodes > 2 and len(middle):
        return np.insert(circle_of(nodes - 1), middle[0], 0, axis=0)
    circle = circle_of(nodes)
    if circular(links, nodes) or not connected(links, nodes):  # parts would be drawn on top of each other
        return circle
    try:
        import networkx
    except ImportError:
        return circle
    graph = networkx.Graph()
    graph.add_nodes_from(range(nodes))
    graph.add_edges_from(links.tolist())
    if nodes <= 150:
        found = networkx.kamada_kawai_layout(graph)
    else:
        found = networkx.spring_layout(graph, seed=0, pos=dict(enumerate(circle)))
    return np.array([found[node] for node in range(nodes)])


def circle_of(nodes: int) -> np.ndarray:
    """Places on a circle, clockwise from the top."""
    turn = np.pi / 2 - 2 * np.pi * np.arange(nodes) / nodes
    return np.stack([np.cos(turn), np.sin(turn)], axis=1)


def circular(links: np.ndarray, nodes: int) -> bool:
    """Whether every node is linked to those at the same distances on a circle, as in a ring.

    >>> circular(np.array([[0, 1], [1, 2], [0, 2]]), 3), circular(np.array([[0, 1], [1, 2]]), 3)
    (True, False)
    """
    distance = (links[:, 1] - links[:, 0]) % nodes
    counts = np.bincount(np.minimum(distance, nodes - distance), minlength=nodes // 2 + 1)
    full = np.full(nodes // 2 + 1, nodes)
    if nodes % 2 == 0:
        full[nodes // 2] = nodes // 2
    return bool(((counts == 0) | (counts == full)).all())
