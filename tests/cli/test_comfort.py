"""Everyday comfort: what the shell offers, how soon a mistake is answered, and runs that are told apart."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from commands import apart
from majorant.cli.main import app


def offered(text: str) -> list[str]:
    """What the shell is told after a line that was typed so far."""
    words = text.split(" ")
    asked = {"_MAJORANT_COMPLETE": "complete_bash", "COMP_WORDS": text, "COMP_CWORD": str(len(words) - 1)}
    return CliRunner().invoke(app, [], env=asked, prog_name="majorant").output.split()


def test_the_shell_completes_commands_names_and_words():
    assert offered("majorant per") == ["personalize"]
    assert {"fedavg", "fedem", "fedprox"} <= set(offered("majorant run fed"))
    assert offered("majorant compare local fedav") == ["fedavg", "fedavg+"]
    assert offered("majorant run fedem --schedule co") == ["constant", "cosine"]
    assert offered("majorant run fedem --missing ") == ["impute", "drop", "refuse"]
    assert "--client-column" in offered("majorant check --cl")


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (["run", "fedem", "--data", "{table}", "--client-column", "hospitl", "--label-column", "outcome"], "hospital"),
        (["compare", "local", "--data", "{table}", "--client-column", "hospital", "--label-column", "x"], "outcome"),
        (["predict", "{run}", "--data", "{links}"], "age"),
        (["personalize", "{run}", "--data", "{links}"], "outcome"),
        (["run", "fedemm"], "did you mean 'fedem'"),
    ],
)
def test_a_wrong_name_is_answered_before_jax_is_loaded(place, tmp_path, command, words):
    """Loading it is what takes seconds."""
    places = {"table": place / "visits.csv", "run": place / "run", "links": tmp_path / "links.csv"}
    places["links"].write_text("from,to\n1,2\n")
    done = apart(*(word.format(**places) for word in command))
    assert (done.code, done.out) == (2, "without jax\n")
    assert words in done.err
