"""Everyday comfort: what the shell offers, how soon a mistake is answered, and runs that are told apart."""

from __future__ import annotations

import subprocess
import sys

import pytest
from typer.testing import CliRunner

from majorant.cli.main import app, labels_of


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
    program = (
        "import sys\nfrom majorant.cli.main import main\ntry:\n    main()\nfinally:\n    print('jax' in sys.modules)"
    )
    arguments = [sys.executable, "-c", program, *(word.format(**places) for word in command)]
    done = subprocess.run(arguments, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "False\n")
    assert words in done.stderr


def test_runs_of_one_report_have_different_labels(tmp_path):
    for name, method in {"a/fedem": "fedem", "b/fedem": "fedem", "b/local": "local", "c/local": "local:lr=1"}.items():
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "config.toml").write_text(f'algorithm = "{method}"\n')
    runs = [tmp_path / name for name in ("a/fedem", "b/fedem", "b/local")]
    assert labels_of(runs) == ["fedem (a/fedem)", "fedem (b/fedem)", "local"]
    assert labels_of(runs[1:]) == ["fedem", "local"]
    assert labels_of([runs[0]]) is None
    assert labels_of([tmp_path / "b/local", tmp_path / "c/local"]) == ["local", "local:lr=1"]
