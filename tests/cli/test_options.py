"""Flags are made from the configuration's own lines: every one once, with its default, in its panel."""

from __future__ import annotations

import tomllib
from typing import Annotated

import pytest
import typer
from pydantic import Field
from typer.testing import CliRunner

from commands import apart, invoke, refused
from majorant.app._flags import PANELS, Flag
from majorant.app.config import LocalConfig, RunConfig
from majorant.app.front_config import NOT_FOR_FRONTS, FrontConfig
from majorant.app.table_settings import TableSettings
from majorant.cli.main import app
from majorant.cli.options import settings_of, with_settings

FILES_ONLY = {"algorithm", "clients", "memory_budget", "local", "keep_moments"}


def parameters(command: str) -> dict[str, list[str]]:
    """The flags of a command by the names of their settings."""
    found = typer.main.get_command(app).commands[command].params
    return {p.name: p.opts + p.secondary_opts for p in found}


def test_every_setting_has_one_flag() -> None:
    known = {*RunConfig.model_fields, *LocalConfig.model_fields} - FILES_ONLY
    for command in ("run", "compare"):
        flags = parameters(command)
        assert known <= flags.keys()
        every = [flag for names in flags.values() for flag in names]
        assert len(set(every)) == len(every)
    assert parameters("run")["data"] == ["--data", "-d"]
    assert parameters("run")["diagnostics"] == ["--diagnostics", "--no-diagnostics"]
    front = {*FrontConfig.model_fields, *LocalConfig.model_fields} - FILES_ONLY - {*NOT_FOR_FRONTS}
    assert front <= parameters("pareto").keys()
    assert parameters("pareto")["criteria"] == ["--criterion"]
    assert not {*NOT_FOR_FRONTS} & parameters("pareto").keys()


def test_a_table_is_described_by_the_same_flags_everywhere() -> None:
    known = {*TableSettings.model_fields} - {"data"}
    for command in ("check", "run", "compare", "pareto"):
        flags = parameters(command)
        assert known <= flags.keys()
        assert flags["scale_target"] == ["--scale-target", "--no-scale-target"]
    words = ["--split", "0.8,0,0.2", "--dates", "visit=%d/%m/%Y", "--categorical", "a,b", "--missing-values", "-999"]
    words += ["--no-scale-target", "--missing", "drop", "--time-column", "visit", "--max-categories", "9"]
    columns = ["--data", "t.csv", "--client-column", "c", "--label-column", "y"]
    found = tomllib.loads(invoke("run", "fedavg", *columns, *words, "--dry-run"))
    assert (found["split"], found["dates"], found["categorical"]) == ([0.8, 0, 0.2], ["visit=%d/%m/%Y"], ["a,b"])
    assert (found["missing_values"], found["scale_target"], found["missing"]) == (["-999"], False, "drop")
    assert (found["time_column"], found["max_categories"]) == ("visit", 9)
    for flags in (["--split", "0.8,0.2"], ["--split", "0,0.5,0.5"], ["--dates", "visit"], ["--max-categories", "1"]):
        text = refused("run", "fedavg", *columns, *flags, "--dry-run")
        assert flags[0][2:].replace("-", "_") in text
    assert "missing goes with a CSV or Parquet file" in refused("run", "fedavg", "--missing", "drop")


def test_a_new_option_is_one_line() -> None:
    """A setting that is added to the configuration is a flag of the command, and arrives as a value of its type."""

    class Longer(RunConfig):
        patience: Annotated[int | None, Flag("Training", "-p", default="never")] = Field(
            None, ge=1, description="rounds"
        )

    arrived = {}

    @with_settings(Longer)
    def command(settings: dict[str, object], loud: bool = False) -> None:
        arrived.update(settings, loud=loud)

    small = typer.Typer()
    small.command()(command)
    assert CliRunner().invoke(small, ["-p", "7", "--drop", "a", "--drop", "b", "--lr", "1", "--loud"]).exit_code == 0
    assert arrived == {"patience": 7, "drop": ("a", "b"), "lr": 1.0, "loud": True}
    assert isinstance(arrived["lr"], float)
    text = CliRunner().invoke(small, ["--help"], env={"COLUMNS": "200"}).output
    assert "[default: never]" in next(line for line in text.splitlines() if "--patience" in line)


def test_help_shows_panels_and_defaults_of_the_command() -> None:
    text = CliRunner().invoke(app, ["run", "--help"], env={"COLUMNS": "200"}).output
    places = [text.index(f"─ {panel} ─") for panel in (*PANELS[1:], "Output")]
    assert places == sorted(places)
    for line in ("[default: synthetic]", "[default: 200]", "[default: 0.9]", "[default: 0]", "single|double"):
        assert line in text
    front = CliRunner().invoke(app, ["pareto", "--help"], env={"COLUMNS": "200"}).output
    momentum = next(line for line in front.splitlines() if "--momentum" in line)
    assert "[default: 0.0]" in momentum  # of fronts, not of runs
    assert "[default: 100]" in front


@pytest.mark.parametrize("command", ["new", "up"])
def test_brackets_in_help_are_no_markup(command) -> None:
    """They would vanish from the screen, with the name of the table in them."""
    text = CliRunner().invoke(app, ["flower", command, "--help"], env={"COLUMNS": "200"}).output
    assert "a table [flower]" in text


def test_values_are_read_as_their_types() -> None:
    flags = ["--rounds", "7", "--lr", "1e-2", "--until", "round > 1", "--until", "loss < 1", "--no-reference"]
    found = tomllib.loads(invoke("run", "fedavg", *flags, "--precision", "double", "--dry-run"))
    assert (found["rounds"], found["until"], found["reference"]) == (7, ["round > 1", "loss < 1"], False)
    assert (found["precision"], found["local"]["lr"]) == ("double", 0.01)


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (
            ["--rounds", "１２"],
            "--rounds must be a whole number, got '１２': numbers are written with the digits 0 to 9",
        ),
        (["--rounds", "1_000"], "--rounds must be a whole number, got '1_000'"),
        (["--rounds", "many"], "--rounds must be a whole number, got 'many'"),
        (["--rounds", "1e3"], "--rounds must be a whole number"),
        (["--rounds", "9" * 30], "at most 64 bits"),
        (["--rounds", "none"], "--rounds must be a whole number"),
        (["--lr", "nan"], "--lr must be a number, got 'nan': numbers are finite"),
        (["--unseen", "inf"], "numbers are finite"),
        (["--task", "ranking"], "--task must be one of 'auto', 'classification', 'regression'"),
        (["--data", "synthetic:clients=１２"], "option 'clients' of data set 'synthetic' must be a whole number"),
        (["--model", "cnn:kernel=1_000"], "option 'kernel' of model 'cnn' must be a whole number, got '1_000'"),
        (["--data", f"synthetic:seed={2**64}"], "whole numbers have at most 64 bits"),
        (["--data", "synthetic:alpha=nan"], "numbers are finite"),
    ],
)
def test_what_is_no_number_is_refused_in_one_line(flags: list[str], words: str) -> None:
    result = CliRunner().invoke(app, ["run", "fedavg", *flags, "--dry-run"])
    assert result.exit_code == 2
    assert words in result.output
    assert result.output.count("\n") == 1


def test_numbers_of_other_commands_are_numbers_too(tmp_path) -> None:
    assert "--seeds must be a whole number" in refused("reproduce", "fedem/rates", "--quick", "--seeds", "１")
    assert "--point must be a whole number" in refused("pareto", "pick", tmp_path, "--point", "1_0")


def test_settings_of_fronts_keep_their_own_defaults() -> None:
    shown = {setting.name: setting.help for setting in settings_of(FrontConfig)}
    assert "constant" in shown["schedule"].rpartition("default")[2]
    assert "multi-step" in {s.name: s.help for s in settings_of(RunConfig)}["schedule"].rpartition("default")[2]


@pytest.mark.parametrize("arguments", [["--help"], ["run", "--help"], ["pareto", "--help"], ["runs", "--help"]])
def test_help_does_not_load_jax(arguments: list[str]) -> None:
    done = apart(*arguments)
    assert done.code == 0, done.err
    assert done.out.splitlines()[-1] == "without jax"
    assert "Usage" in done.out
