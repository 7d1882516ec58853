"""Pictures of networks: nodes apart, the middle of a star in the middle, and large networks as a map of weights."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from majorant.app.catalogue import topologies
from majorant.app.report.figures import canvas, render
from majorant.app.report.graph_picture import MOST_NODES, draw_map, draw_network, positions


def test_a_star_has_its_middle_in_the_middle():
    others = [node for node in range(7) if node != 3]
    place = positions(np.array([[3, node] if node > 3 else [node, 3] for node in others]), 7)
    np.testing.assert_allclose(place[3], 0, atol=1e-12)
    np.testing.assert_allclose(np.linalg.norm(place[others], axis=1), 1)


@pytest.mark.parametrize("name", ["star", "torus", "erdos-renyi:0.3"])
def test_nodes_are_drawn_apart_with_all_links(name):
    network = topologies.make(name).build(16)
    figure = draw_network(network)
    lines, dots = figure.axes[0].collections
    place = np.asarray(dots.get_offsets())
    apart = np.linalg.norm(place[:, None] - place, axis=2) + 10 * np.eye(16)
    assert apart.min() > 0.02 * np.ptp(place)
    assert len(lines.get_segments()) == len(network.edges)
    assert render(figure, "png").startswith(b"\x89PNG")


def test_a_large_network_is_a_map_of_the_largest_weights():
    nodes = MOST_NODES + 100
    figure = draw_network(topologies.make("ring").build(nodes))
    picture = figure.axes[0].images[0].get_array()
    assert picture.shape == (MOST_NODES, MOST_NODES)
    assert np.diagonal(picture).min() > 0
    assert picture[0, -1] > 0  # a ring closes
    assert picture[0, MOST_NODES // 2] is np.ma.masked
    weights = sparse.csr_array(([0.25, 0.75, 0.5], ([0, 1, 999], [1, 0, 0])), shape=(1000, 1000))
    _, (axes,) = canvas(4, 3)
    draw_map(axes, weights)
    few = axes.images[0].get_array()
    assert (few[0, 0], few[-1, 0], few.count()) == (0.75, 0.5, 2)
