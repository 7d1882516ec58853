"""Silos whose tables do not go together: the run stops before it trains, and says whose table it is and why."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from fake_grid import FakeGrid
from silo_files import write_silos, write_study

from majorant.app.flower.apps import GridCarrier, client_app, serve
from majorant.app.flower.gathering import Gathering
from majorant.app.flower.ledger import Record
from majorant.app.flower.letters import Readiness
from majorant.app.flower.post import from_record
from majorant.app.flower.silo import told
from majorant.app.flower.study import read_study

SECRET = "a secret"


def with_labels(text, labels):
    """A table with other labels."""
    head, *lines = text.strip().split("\n")
    return "\n".join([head, *(f"{line.rpartition(',')[0]},{label}" for line, label in zip(lines, labels, strict=True))])


def without_column(text, name):
    """A table that lacks a column."""
    rows = [line.split(",") for line in text.strip().split("\n")]
    place = rows[0].index(name)
    return "\n".join(",".join(cell for i, cell in enumerate(row) if i != place) for row in rows)


def test_the_learning_rate_is_one_that_is_stable_at_every_silo(tmp_path):
    which = read_study(write_study(tmp_path / "study.toml", write_silos(tmp_path / "files")))
    gathering = Gathering(which, None, Record(names=["a", "b"], classes=[0, 1]), lambda line: None, poll=0.0)
    steps = {0: 0.3, 1: 0.02}
    ready = lambda slot: told(Readiness(train=4, validation=1, test=1, step=steps[slot]), "ready")
    answer = lambda whom, send, hear, **_: [slot for slot in whom if not hear(slot, ready(slot))]
    gathering.office = SimpleNamespace(ask=answer)
    gathering.prepare()
    assert gathering.record.rate == 0.02


def stopped(tmp_path, change, after=None):
    """Why a run stops in which b's file is changed, before the beginning or when b has answered a letter."""
    files = write_silos(tmp_path / "files")
    which = read_study(write_study(tmp_path / "study.toml", files))
    which = which._replace(flower=which.flower.model_copy(update={"wait": 20.0}))
    path = files / "b.csv"

    def spoil(node, message, answer):
        reply = answer()
        if node == 8 and from_record(message.content).kind == after:
            path.write_text(change(path.read_text()))
        return reply

    if after is None:
        path.write_text(change(path.read_text()))
    nodes = {
        7 + i: {"name": n, "state": str(tmp_path / n), "data": str(files / f"{n}.csv")} for i, n in enumerate("ab")
    }
    with pytest.raises(ValueError, match=r"refuses|do not go together") as found:
        serve(which, GridCarrier(FakeGrid(client_app(which), nodes, spoil)), tmp_path / "run", poll=0.0)
    assert not (tmp_path / "run").exists()
    return str(found.value)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda text: without_column(text, "dose"), "'b' lacks the columns 'dose', compared with 'a'"),
        (lambda text: text.replace(",x,", ",1,").replace(",y,", ",2,").replace(",z,", ",3,"), "column 'ward' holds"),
        (lambda text: with_labels(text, range(20)), "the labels 'outcome' are classes (categories) at 'a'; "),
    ],
    ids=["a column is missing", "numbers for categories", "numbers for classes"],
)
def test_tables_that_do_not_go_together_stop_the_run(tmp_path, change, words):
    assert words in stopped(tmp_path, change)


@pytest.mark.parametrize(
    ("change", "after", "words"),
    [
        (lambda text: text.partition("\n")[0] + "\n", None, "no rows"),
        (lambda text: text.replace(",x,", f",{SECRET},"), "hello", f"categories that were not agreed on ('{SECRET}')"),
        (lambda text: text.replace("sick", SECRET), "hello", f"its labels are '{SECRET}'"),
        (lambda text: without_column(text, "dose"), "hello", "no column 'dose', which was agreed on"),
    ],
    ids=["no rows", "an unknown category", "an unknown class", "a column is gone"],
)
def test_what_is_wrong_with_one_table_is_told_to_its_owner(tmp_path, change, after, words):
    said = stopped(tmp_path, change, after)
    assert said.startswith("'b' refuses: it cannot use its own data")
    assert SECRET not in said
    assert words in (tmp_path / "b" / "problems.txt").read_text()
