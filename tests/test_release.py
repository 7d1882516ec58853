"""One version: pyproject.toml has it, and everything else that names one agrees."""

from __future__ import annotations

import importlib
import re
import tomllib
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

import majorant
from majorant import _renamed
from majorant.cli.main import app

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def test_the_papers_experiments_have_the_same_version():
    experiments = tomllib.loads((ROOT / "reproductions" / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert experiments["version"] == PROJECT["version"]


def test_the_citation_agrees_with_the_project_and_the_changelog():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["version"] == PROJECT["version"]
    assert citation["license"] == PROJECT["license"]
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    newest = re.search(r"^## \[(?P<version>[\d.]+)\] – (?P<date>[\d-]+)$", changes, re.M)
    assert newest["version"] == citation["version"]
    assert newest["date"] == str(citation["date-released"])


def test_names_of_the_first_version_are_in_the_changelog():
    """Every old name that still works is in the table, old on the left."""
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    known = {name for row in re.findall(r"^\| (`.*?) \|", changes, re.M) for name in re.findall(r"`(\w+)`", row)}
    assert not set(_renamed._PLACE) - known


@pytest.mark.parametrize("old", sorted(_renamed._PLACE))
def test_names_of_the_first_version_lead_to_what_they_say(old):
    with pytest.warns(DeprecationWarning, match=f"majorant.{old} is now ") as told:
        found = getattr(majorant, old)
    module, _, name = str(told[0].message).rpartition(" ")[2].rpartition(".")
    assert getattr(importlib.import_module(module), name) is found
    assert told[0].filename == __file__  # it tells the line to change


def test_the_command_line_says_its_version():
    told = CliRunner().invoke(app, ["--version"])
    assert told.exit_code == 0
    assert told.output == f"majorant {majorant.__version__}\n"
