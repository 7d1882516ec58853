"""Studies by letters: a grid in this process hands them to the ClientApp. The numbers are those of the simulator."""

from __future__ import annotations

import functools
import json

import jax
import numpy as np
import pytest
from fake_grid import FakeGrid

import majorant as mj
import zoo
from majorant.app.config import make_config
from majorant.app.flower.apps import GridCarrier, client_app, serve
from majorant.app.flower.study import FlowerSettings, Study
from majorant.engines.remote.shapes import client_of, messages_of
from majorant.exchange.federation import federation

ROUNDS = 3


@functools.cache
def silos():
    """Clients of two sizes: a silo's programs are compiled for the samples that it has."""
    sizes = {0: 7, 1: 11, 3: 11, 4: 7}  # below different powers of two, which secure sums tell apart
    return zoo.federated([[part[:n] for part in zoo.problem().train.client(t)] for t, n in sizes.items()])


FOR_FOUR = {  # methods that are told how many clients there are
    "clustered": lambda model, local: mj.clustered(
        model, clients=4, local=local, tolerance_mean=0.15, tolerance_max=0.01
    ),
    "mocha": lambda model, local: mj.mocha(model, clients=4, lambda_=0.5, omega_every=2),
    "chebyshev": lambda model, local: mj.tradeoffs.chebyshev(
        model, mj.criteria.squared_norm(0.1), clients=4, mirror_rate=0.5, criteria_lr=0.3, local=local
    ),
    "afl": lambda model, local: mj.tradeoffs.afl(model, clients=4, local=local),
}


@functools.cache
def method(name):
    make = FOR_FOUR.get(name) or zoo.ZOO[name].make
    return make(mj.models.linear(silos()), mj.local_sgd(0.1, epochs=1, batch_size=4))


def study(name, **settings):
    flower = {"clients": 4, "timeout": 5.0, "wait": 5.0} | settings.pop("flower", {})
    values = {"algorithm": "fedavg", "data": "synthetic", "rounds": ROUNDS, "seed": 3, "evaluate_every": ROUNDS}
    config = make_config(values | settings)
    return Study(config, FlowerSettings(**flower), lambda spec, clients: method(name))


def grid_of(folder, which, spoil=None, names="abcd"):
    rows = lambda node: silos().take(np.array(["abcd".index(node.name)]))
    app = client_app(which, rows=rows)
    return FakeGrid(app, {7 + i: {"name": n, "state": str(folder / n)} for i, n in enumerate(names)}, spoil)


def trained(folder, which, spoil=None, **options):
    return serve(which, GridCarrier(grid_of(folder, which, spoil)), folder / "run", poll=0.0, **options)


def simulated(name, **options):
    return mj.simulate(method(name), silos(), rounds=ROUNDS, seed=3, **options)


def distance(one, two):
    difference = lambda a, b: np.abs(np.asarray(a, np.float64) - np.asarray(b, np.float64)).max(initial=0)
    return max(jax.tree.leaves(jax.tree.map(difference, (one.value, one.state), (two.value, two.state))), default=0)


SERVED = [name for name, entry in zoo.ZOO.items() if entry.exchange is None]


@pytest.mark.parametrize("name", [*SERVED, "afl"])
def test_the_same_seed_gives_the_numbers_of_the_simulator(tmp_path, name):
    everyone = {} if method(name).traits.needs_everyone else {"participation": "uniform:0.5"}
    run = trained(tmp_path, study(name, flower={"per_client_scores": True}, evaluate_every=2, **everyone))
    drawn = {"participation": mj.participation.uniform(0.5)} if everyone else {}
    simulation = simulated(name, evaluation=mj.Evaluation(every=2), **drawn)
    assert distance(run.server, simulation.server) < 1e-5
    summary, expected = run.summary(), simulation.summary()
    score = f"test_{expected['metric']}"
    assert summary[score] == pytest.approx(expected[score], rel=1e-4)
    lines = [[(line["round"], line["participants"]) for line in each.history] for each in (run, simulation)]
    assert lines[0] == lines[1]
    assert [round for round, _ in lines[0]] == [2, 3]  # the last evaluation is after a single round
    counted = ("bytes_up", "bytes_down", "rounds")
    assert [summary["communication"][c] for c in counted] == [expected["communication"][c] for c in counted]
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["rounds"] == ROUNDS


def test_what_silos_measure_is_a_mean_by_their_sizes(tmp_path):
    """The server's control variate is the mean of the silos' own, of which the server hears the weighted sum alone."""
    line = trained(tmp_path, study("fedmm", diagnostics=True)).history[-1]
    assert line["variates_apart"] < 1e-5 * line["mean_field"]
    assert np.isfinite(line["objective"])


def test_who_has_no_place_among_the_clients_is_sent_the_whole_view():
    """A client of MOCHA sees its own weights alone, in rounds and for its model."""
    together = federation(method("mocha"), training=np.arange(4))
    messages = messages_of(together, client_of(silos().spec, np.float32))
    size = lambda view: sum(leaf.size for leaf in jax.tree.leaves(view.value))
    assert size(messages.view) == size(messages.released) < size(messages.whole)
