"""The FedEM paper's experiments: how rates are chosen, seeds put together; peers, and rates with their theorems."""

from types import SimpleNamespace

import numpy as np
import pytest
from majorant_reproductions.fedem import adaptive
from majorant_reproductions.fedem import decentralized as d
from majorant_reproductions.fedem import synthetic as s

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


def finished(accuracies, settings=()):
    """What is read of runs with these accuracies."""
    of = lambda accuracy: SimpleNamespace(summary=lambda metric: {"test_accuracy": {"mean": accuracy}})
    return SimpleNamespace(metric="accuracy", scores=[of(a) for a in accuracies], settings=settings)


def test_a_grid_is_judged_by_means_over_its_seeds(monkeypatch):
    asked = []
    of_seeds = {s.RATES[1]: (0.9, 0.1, 0.1), s.RATES[2]: (0.5, 0.6, 0.7)}  # the luckiest seed, the best mean

    def simulate(algorithm, data, *, grid, **options):
        asked.append(options["seeds"])
        accuracies = [accuracy for rate in grid["lr"] for accuracy in of_seeds.get(rate, (0.2,) * 3)]
        return finished(accuracies, [{"hyper": {"lr": rate}} for rate in grid["lr"] for _ in range(3)])

    monkeypatch.setattr(mj, "simulate", simulate)
    data = mj.data.synthetic_mixture(clients=2, dimension=2, seed=0)
    assert s.tuned(QUICK._replace(quick=False), "FedAvg", data, 10) == {"lr": s.RATES[2]}
    assert asked == [3]


def test_methods_are_trained_for_as_many_seeds_as_are_asked_for(monkeypatch):
    asked = []
    monkeypatch.setattr(mj, "simulate", lambda algorithm, data, **options: asked.append(options["seeds"]))
    data = mj.data.synthetic_mixture(clients=2, dimension=2, seed=0)
    for seeds in (2, None):
        s.trained(QUICK._replace(seeds=seeds), "FedAvg", data, 10, {"lr": 0.1})
    assert asked == [2, s.SEEDS]
    assert s.percent(finished([0.5, 0.7])) == "60.0 ± 14.14"
    assert s.percent(finished([0.5])) == "50.0"


def test_what_is_tuned_on_is_not_what_is_reported():
    sibling, reported = s.sibling_data(QUICK), s.synthetic(QUICK)
    assert sibling.spec == reported.spec
    mine, theirs = ({row.tobytes() for row in data.train.x} for data in (sibling, reported))
    assert not mine & theirs


def test_the_worst_seed_and_what_a_round_costs():
    line = lambda accuracy: {f"{part}_accuracy": {"mean": accuracy, "bottom_decile": 0.5} for part in ("test", "train")}
    run = SimpleNamespace(histories=[[line(a) | {"bytes_up": 8e6, "components": 3}] for a in (0.6, 0.8)])
    assert adaptive.scores_of(run) == ["70.0 ± 14.14", "60.0", "50.0 ± 0.00", "70.0 ± 14.14"]
    assert adaptive.megabytes(run, rounds=4) == "2.00"
    assert adaptive.left_of(run, 8) == "3"
