"""The FedEM paper's experiments without a server: peers are trained and described, and rates have their theorems."""

from types import SimpleNamespace

import numpy as np
import pytest
from majorant_reproductions.fedem import decentralized as d

import majorant as mj
from majorant.app.reproduce import Context
from majorant.exchange.analysis import inspect

QUICK = Context(quick=True, seeds=2, tell=lambda text: None)


@pytest.fixture
def small(monkeypatch):
    """Ten clients in place of the paper's data, four rounds and two evaluations."""
    data = mj.data.synthetic_mixture(clients=10, dimension=3, seed=0)
    monkeypatch.setattr(d, "synthetic", lambda context: data)
    monkeypatch.setattr(d, "rounds_of", lambda context, rounds: 4)
    monkeypatch.setattr(d, "EVALUATIONS", 2)


def test_networks_stand_beside_the_server_with_what_they_are_like(small):
    table, against_gaps = d.decentralized(QUICK)
    labels = [row[0] for row in table.rows]
    assert labels == ["server (FedEM)", "Erdős–Rényi 0.5, fastest mixing", "ring"]
    assert all(len(row) == len(table.columns) for row in table.rows)
    ring = inspect(mj.topology.ring().build(10))
    assert table.rows[2][1:3] == [f"{ring.spectral_gap:.3g}", f"{ring.contraction:.3g} / {ring.period}"]
    assert [row[-1] for row in table.rows] == ["74.7", "73.8", "–"]
    assert float(table.rows[2][6]) > 0  # peers on a ring do not agree at once
    assert [curve[0] for curve in table.curves.values()] == [[2, 4]] * 3
    gaps = [float(row[0]) for row in against_gaps.rows]
    assert gaps == sorted(gaps)
    assert "not scaled by sizes" in table.notes[-1]


def test_links_fail_and_nodes_are_away_as_the_rows_say(small, monkeypatch):
    asked = []

    def fake(context, data, rate, label, *, participation, exchange):
        network = exchange.topology.build(data.clients)
        asked.append((label, participation.probability(data.clients), network.random))
        return SimpleNamespace(histories=[[{"rejected": 2, "consensus_distance": 0.5}]])

    monkeypatch.setattr(d, "trained", fake)
    monkeypatch.setattr(d, "curve", lambda run: ([1.0], [50.0]))
    monkeypatch.setattr(d, "percent", lambda run, **part: "50.0")
    (table,) = d.failures(QUICK)
    assert len(asked) == len(table.rows) == 14
    assert asked[0] == ("nothing fails", 1, False)
    assert asked[2] == ("30 % of the links", 1, True)
    assert asked[5] == ("half of the nodes away", 0.5, False)
    assert asked[13] == ("30 % of the links, 20 % of the nodes", 0.8, True)
    assert table.rows[0][-2:] == ["0.5", 2]


def test_all_that_theorems_bound_is_measured_with_and_without_a_server(monkeypatch):
    data = d.mixed_regressions(clients=4, samples=20, dimension=2)
    monkeypatch.setattr(d, "mixed_regressions", lambda **sizes: data)
    monkeypatch.setattr(d, "LENGTHS", (2, 4))
    server, peers = d.rates(QUICK)
    stated = {bound.words: f"{bound.exponent:g}" for bound in d.BOUNDS}
    for result in (server, peers):
        assert result.columns[1:3] == ["K = 2", "K = 4"]
        assert {row[0]: row[-1] for row in result.rows}.items() <= stated.items()
        assert all(float(value) > 0 for row in result.rows for value in row[1:3])
        slope = np.log2(float(result.rows[0][2]) / float(result.rows[0][1]))
        assert float(result.rows[0][3]) == pytest.approx(slope, abs=0.02)
    assert len(server.rows) == 3
    assert len(peers.rows) == 4  # and how far nodes are from agreement
