"""A silo's own rows and learning rate: nobody else's rows, and a rate that is stable at every silo."""

from __future__ import annotations

import numpy as np
import pytest
from fake_grid import FakeGrid
from silo_files import write_silos, write_study

import majorant as mj
from commands import write_visits
from majorant.app.build import USUAL_RATE
from majorant.app.config import make_config
from majorant.app.flower.apps import GridCarrier, client_app, serve
from majorant.app.flower.own_rows import own_data, stable_rate, surveyed
from majorant.app.flower.post import from_record
from majorant.app.flower.study import NodeSettings, read_study
from majorant.data import FederatedData
from majorant.data.tabular.agreeing import agree
from majorant.data.tabular.answers import answer_of
from majorant.data.tabular.options import TableOptions
from majorant.solvers.smoothness import CURVATURES, stable_step

ANY = {"algorithm": "fedavg"}
SECRET = "what a row holds"


def config_of(path, **settings):
    return make_config(ANY | {"data": str(path), "client_column": "hospital", "label_column": "outcome"} | settings)


def node_of(path, client=None, name="here"):
    return NodeSettings(name=name, state="state", data=str(path), client=client)


def test_of_a_file_of_several_clients_the_rows_of_one_are_taken(tmp_path):
    """The same numbers as from a file that holds these rows alone, without the column that says whose they are."""
    whole = write_visits(tmp_path / "visits.csv", range(3))
    head, *rows = whole.read_text().splitlines()
    (tmp_path / "own.csv").write_text("\n".join([head, *(row for row in rows if row.startswith("h1,"))]) + "\n")
    config = config_of(whole)
    found = [surveyed(config, node) for node in (node_of(whole, "h1"), node_of(tmp_path / "own.csv"))]
    one, two = (answer_of(each) for each in found)
    assert one == two
    assert {column.name for column in one.columns} == {"age", "dose", "ward"}
    options = TableOptions(**config.table_options() | {"client_column": None})
    encoding = agree({"here": one}, options)
    mine, theirs = (own_data(config, node, encoding) for node in (node_of(whole, "h1"), node_of(tmp_path / "own.csv")))
    assert mine.names == ("here",)
    assert sum(len(getattr(mine, part).y) for part in ("train", "validation", "test")) == 40
    np.testing.assert_array_equal(mine.train.x, theirs.train.x)
    np.testing.assert_array_equal(mine.train.y, theirs.train.y)


def test_whose_rows_are_meant_must_be_clear(tmp_path):
    whole = write_visits(tmp_path / "visits.csv", range(3))
    with pytest.raises(ValueError, match=r"rows of several clients .*'h0'.* name one in the node configuration"):
        surveyed(config_of(whole), node_of(whole))
    with pytest.raises(ValueError, match="has no rows of client 'h9': it has those of 'h0'"):
        surveyed(config_of(whole), node_of(whole, "h9"))
    with pytest.raises(ValueError, match="does not say whose its rows are: leave client out"):
        surveyed(config_of(whole, client_column="clinic"), node_of(whole, "h1"))
    with pytest.raises(ValueError, match="'here' does not say which file is its own"):
        surveyed(config_of(whole), NodeSettings(name="here", state="state"))


def test_of_data_with_a_name_a_silo_has_one_client():
    config = make_config(ANY | {"data": "synthetic:clients=3,dimension=2"})
    whole = mj.data.synthetic_mixture(clients=3, dimension=2, seed=0)
    found = own_data(config, NodeSettings(name="two", state="state", client="2"), None)
    assert found.names == ("two",)
    np.testing.assert_array_equal(found.train.x, whole.train.client(2)[0])
    np.testing.assert_array_equal(found.test.y, whole.test.client(2)[1])
    with pytest.raises(ValueError, match="has no client 'three': name one in client, such as '0'"):
        own_data(config, NodeSettings(name="three", state="state"), None)


def test_a_silo_asks_for_a_rate_that_is_stable_on_its_rows():
    rng, config = np.random.default_rng(0), make_config(ANY)
    x = rng.normal(size=(40, 3)).astype(np.float32)
    silo = lambda scale: FederatedData.from_arrays(scale * x, rng.integers(2, size=40), np.zeros(40, int))
    steep, flat = silo(30), silo(0.1)
    model = mj.models.linear(steep)
    local = config.local  # whose momentum lets steps be longer
    every = stable_step(steep.train, CURVATURES[model.loss.name], local.batch_size, every_batch=True)
    assert stable_rate(config, model, steep) == (1 + local.momentum) * every < USUAL_RATE / 2
    assert stable_rate(config, model, flat) == USUAL_RATE
    assert stable_rate(make_config(ANY | {"local": {"lr": 0.3}}), model, steep) is None
    assert stable_rate(config, mj.models.mlp(steep), steep) is None


def test_an_open_rate_is_the_smallest_that_a_silo_asks_for(tmp_path):
    """b's doses lie far apart: a rate of 0.1 would throw the shared model about."""
    files = write_silos(tmp_path / "files", rows=400)
    path = write_study(tmp_path / "study.toml", files, algorithm="fedavg", rounds=1)
    path.write_text(path.read_text().replace("lr = 0.3\nbatch_size = 8", "batch_size = 1"))
    lines = (files / "b.csv").read_text().splitlines()
    far = [line.split(",") for line in lines[1:]]
    for row in far[::80]:
        row[1] = f"{300 + float(row[1])}"
    (files / "b.csv").write_text("\n".join([lines[0], *(",".join(row) for row in far)]) + "\n")
    asked = []

    def listen(node, message, answer):
        reply = answer()
        asked.append(reply)
        return reply

    which = read_study(path)
    nodes = {i: {"name": n, "state": str(tmp_path / n), "data": str(files / f"{n}.csv")} for i, n in enumerate("ab", 7)}
    run = serve(which, GridCarrier(FakeGrid(client_app(which), nodes, listen)), tmp_path / "run", poll=0.0)
    letters = [from_record(reply.content) for reply in asked]
    steps = [letter.facts["step"] for letter in letters if letter.kind == "ready"]
    assert len(set(steps)) == 2
    assert run.server.hyper["lr"] == np.float32(min(steps)) < USUAL_RATE


def test_an_error_that_nobody_foresaw_tells_the_server_no_row(tmp_path):
    """Errors of other packages may quote what they were given: the server learns the kind of error alone."""

    def rows(node):
        raise KeyError(SECRET)

    which = read_study(write_study(tmp_path / "study.toml", write_silos(tmp_path / "files")))
    nodes = {7: {"name": "a", "state": str(tmp_path / "a")}, 8: {"name": "b", "state": str(tmp_path / "b")}}
    with pytest.raises(RuntimeError, match=r"^KeyError: '[ab]' failed, and its log says why$") as found:
        serve(which, GridCarrier(FakeGrid(client_app(which, rows=rows), nodes)), tmp_path / "run", poll=0.0)
    assert found.value.__suppress_context__
