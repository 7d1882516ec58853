"""What an experiment is told, and what is written of it."""

import json

import pytest
from rich.console import Console

from majorant.app import reproduce as app
from majorant.app.reproduce import QUICK, Experiment, Result, reproduce


def test_an_experiment_is_told_how_and_where_it_runs_and_a_quick_one_says_so(tmp_path, monkeypatch):
    told = []
    result = Result("Table 1", ["method", "score"], [["fedem", 84.3]], ["of one seed"])
    monkeypatch.setattr(app, "experiments", lambda: {"x/y": Experiment("", lambda how: told.append(how) or [result])})
    for quick, notes in ((False, ["of one seed"]), (True, [QUICK, "of one seed"])):
        folder = tmp_path / str(quick)
        record = reproduce("x/y", folder, quick=quick, seeds=2, console=Console(quiet=True))
        assert (told[-1].quick, told[-1].seeds, told[-1].folder) == (quick, 2, folder)
        assert json.loads((folder / "results.json").read_text()) == json.loads(json.dumps(record))
        assert record["results"][0]["notes"] == notes
        lines = (folder / "results.md").read_text().splitlines()
        assert "| fedem | 84.3 |" in lines
        assert [line for line in lines if line.startswith("- ")] == [f"- {note}" for note in notes]
    with pytest.raises(ValueError, match="seeds must be at least 1, got 0"):
        reproduce("x/y", tmp_path, quick=True, seeds=0, console=Console(quiet=True))
