"""A few of the cases of `make fuzz`, always the same ones; and that the campaign notices what it is there to notice."""

from __future__ import annotations

import time
import warnings
from pathlib import Path

import campaign
import fuzz_cases
import pytest
from campaign import BATCH, KINDS, batch
from fuzz_cases import Case, run_case

import majorant.cli.train
from commands import write_visits
from majorant.app import signed

SHORT = {
    "commands": 100,
    "settings": 100,
    "tables": 75,
    "data": 75,
    "builds": 25,
    "samples": 20,
    "folders": 12,
}  # cases
FIRST = 77  # the seed of the first batch


@pytest.fixture(scope="module")
def bases(place, tmp_path_factory) -> dict[str, Path]:
    """The run that the tests of all commands share, and a new client's table."""
    return {"run": place / "run", "new.csv": write_visits(tmp_path_factory.mktemp("new") / "new.csv", range(9, 10))}


@pytest.mark.parametrize("kind", SHORT)
def test_odd_input_ends_politely(bases, kind):
    wrong = []
    with warnings.catch_warnings():
        warnings.simplefilter("default")  # they are lines on the screen, as for everybody
        for done in range(0, SHORT[kind], BATCH):
            start = FIRST + done // BATCH
            for place, case in enumerate(batch(kind, start, BATCH, bases)[: SHORT[kind] - done]):
                ended = KINDS[kind].run(case, bases)
                if ended.wrong:
                    wrong.append(f"make fuzz FUZZ='{kind}/{start}/{place}' ends with {ended.wrong}: {ended.detail}")
    assert not wrong, "\n".join(wrong)


def test_a_batch_is_the_same_every_time():
    assert batch("tables", 5, BATCH, {}) == batch("tables", 5, BATCH, {})
    assert len(batch("commands", 5, BATCH, {})) == BATCH


@pytest.mark.parametrize(
    ("does", "wrong"),
    [
        (lambda: {}["x"], "exit code"),
        (lambda: Path("half.tmp").write_text(""), "left behind"),
        (lambda: Path("t.csv").write_text("other"), "changed"),
        (lambda: time.sleep(5), "hang"),
        (lambda: print('Traceback (most recent call last):\n  File "x", line 3'), "traceback"),
    ],
)
def test_what_is_wrong_is_noticed(monkeypatch, does, wrong):
    """A command that does something that it must not do."""

    def broken(*_: object, **__: object) -> str:
        does()
        return "rounds = 1"

    monkeypatch.setattr(majorant.cli.train, "to_toml", broken)
    monkeypatch.setattr(fuzz_cases, "SECONDS", 1)
    ended = run_case(Case(["run", "fedavg", "--dry-run"], {"t.csv": b"a,b\n"}), {})
    assert ended.wrong == wrong, ended
    assert run_case(Case(["run", "fedavg", "--rounds", "x"], {}), {}).wrong == ""


def test_altered_numbers_that_are_taken_are_noticed(bases, monkeypatch):
    whole = (bases["run"] / "clients.csv").read_bytes()
    case = Case(["runs", "."], {"run/clients.csv": whole.replace(b"0.", b"1.")}, "run")
    assert campaign.altered_folder(case, bases).wrong == ""
    monkeypatch.setattr(signed, "verified", lambda content, path: content | {"sha256": {}})
    assert campaign.altered_folder(case, bases).wrong == "accepted"


def test_settings_that_mean_something_else_when_read_back_are_noticed(monkeypatch):
    other = lambda config: f'algorithm = "local"\nrounds = {config.rounds + 1}'
    monkeypatch.setattr(majorant.cli.train, "to_toml", other)
    ended = campaign.command_and_again(Case(["run", "fedavg", "--dry-run"]), {})
    assert ended.wrong == "inconsistent"
