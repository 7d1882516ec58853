"""When things go wrong: one line, the right exit code, details in a file, and quiet ends."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
from typer.testing import CliRunner

from commands import invoke, refused
from majorant.cli._failures import told
from majorant.cli._streams import adapt_streams
from majorant.cli.main import app
from majorant.cli.terminal import comparison_table, console, progress, say

SMALL = ["--data", "synthetic:clients=3,dimension=2", "--rounds", "1"]


def broken(*args: object, **kwargs: object) -> None:
    """A bug."""
    raise KeyError("a\x1b[31m key\nof two lines")


def test_an_unforeseen_error_is_one_line_and_a_file(tmp_path, monkeypatch):
    monkeypatch.setattr("majorant.app.execute.carried_out", broken)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    result = CliRunner().invoke(app, ["run", "fedavg", *SMALL, "--out", str(tmp_path / "run")])
    assert result.exit_code == 70
    assert "Traceback" not in result.output
    assert result.stderr.splitlines()[-1].startswith("error: this was not foreseen (KeyError: ")
    assert "\x1b" not in result.output
    assert not (tmp_path / "run").exists()  # there was no checkpoint yet: the details are among the temporary files
    (log,) = tmp_path.glob("majorant-*.log")
    assert str(log) in result.output
    assert "Traceback" in log.read_text()
    assert "in broken" in log.read_text()


def test_a_failed_download_says_so(tmp_path, monkeypatch):
    """And not that the run folder cannot be used."""
    monkeypatch.setenv("MAJORANT_DATA", str(tmp_path))

    def unreachable(*args: object, **kwargs: object) -> None:
        raise OSError(101, "Network is unreachable")

    monkeypatch.setattr("pooch.retrieve", unreachable)
    words = refused("run", "fedavg", "--data", "mnist", "--rounds", "1")
    assert "nor could it be downloaded" in words
    assert "put the published files under" in words
    assert "run folder" not in words


def test_the_details_lie_in_the_run_folder_where_there_is_one(copied, monkeypatch):
    monkeypatch.setattr("majorant.app.execute.carried_out", broken)
    text = " ".join(invoke("run", "--resume", copied, code=70).split())
    assert f"with the file {copied}/error.log" in text
    assert "in broken" in (copied / "error.log").read_text()


def test_details_are_shown_to_those_who_ask(monkeypatch, tmp_path):
    monkeypatch.setattr("majorant.app.runs.find_runs", broken)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setenv("MAJORANT_DEBUG", "1")
    assert "Traceback" in invoke("runs", code=70)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ImportError("figures need Matplotlib: pip install 'majorant[report]'"), 2),
        (ImportError("cannot import name 'x'", name="majorant"), 70),
        (PermissionError(13, "Permission denied", "place"), 2),
        (MemoryError(), 2),
        (RuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 9 bytes\nmore of XLA's"), 2),
        (RuntimeError("unknown"), 70),
        (TypeError("a bug"), 70),
    ],
)
def test_errors_of_people_and_of_ours_are_told_apart(error, code, monkeypatch, tmp_path):
    def failing(folder: Path) -> None:
        raise error

    monkeypatch.setattr("majorant.app.runs.find_runs", failing)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert ("not foreseen" in invoke("runs", code=code)) == (code == 70)


def test_an_interrupted_run_says_how_to_go_on(copied, monkeypatch, tmp_path):
    def interrupted(*args: object, **kwargs: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("majorant.app.execute.carried_out", interrupted)
    text = " ".join(invoke("run", "--resume", copied, code=130).split())
    assert f"interrupted: majorant run --resume {copied} resumes it" in text
    assert "nothing is kept" in invoke("run", "fedavg", *SMALL, "--out", tmp_path / "new", code=130)
    assert "nothing is kept" in invoke("compare", "fedavg", *SMALL, "--out", tmp_path / "new", code=130)
    assert not (tmp_path / "new").exists()


def test_a_run_that_is_told_to_end_says_how_to_go_on(copied, monkeypatch):
    """SIGTERM, as a computer sends it that shuts down; afterwards the signal means what it meant before."""
    before = signal.getsignal(signal.SIGTERM)
    monkeypatch.setattr("majorant.app.execute.carried_out", lambda *args, **rest: signal.raise_signal(signal.SIGTERM))
    text = " ".join(invoke("run", "--resume", copied, code=143).split())
    assert f"terminated: majorant run --resume {copied} resumes it" in text
    assert signal.getsignal(signal.SIGTERM) == before


def majorant(*arguments: str) -> list[str]:
    """The command line of another process."""
    return [sys.executable, "-m", "majorant", *arguments]


@pytest.mark.parametrize(("arguments", "code"), [("--help", 1), ("runs", 141)])  # the first is typer's own
def test_a_closed_pipe_is_a_quiet_end(arguments, code, tmp_path):
    """The reader closes its end before anything is written, as ``head`` does after its lines."""
    (tmp_path / "runs").mkdir()
    reading, writing = os.pipe()
    process = subprocess.Popen(majorant(arguments), stdout=writing, stderr=subprocess.PIPE, cwd=tmp_path)
    os.close(writing)
    os.close(reading)
    _, said = process.communicate(timeout=60)
    assert (process.returncode, said) == (code, b"")


def test_a_terminal_without_utf8_gets_help_in_other_letters():
    environment = os.environ | {"PYTHONIOENCODING": "ascii"}
    done = subprocess.run(majorant("pareto", "--help"), env=environment, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"lambda" in done.stdout


def test_a_terminal_without_utf8_gets_results_in_other_letters(place, monkeypatch):
    """What follows training does not fail, whatever the letters: tables, names and progress bars."""
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="ascii") for _ in range(2))
    monkeypatch.setattr("sys.stdout", out)
    monkeypatch.setattr("sys.stderr", err)
    adapt_streams()
    summary = json.loads((place / "run" / "summary.json").read_text())
    summary["test_accuracy"]["std_over_runs"] = 0.01
    console.print(comparison_table({"fedém λ 联": summary}, None))
    say("F − F* ≤ 1e-9 …")
    with progress(["β"], 3, quiet=False) as bars:
        bars.finish(0, 3)
    out.flush()
    text = out.buffer.getvalue().decode("ascii")
    for letters in ("+/-", "fed?m", "lambda", "F - F* <= 1e-9 ..."):
        assert letters in text
    err.flush()
    assert "beta" in err.buffer.getvalue().decode("ascii")


def test_names_that_are_no_text_are_written_in_utf_8(monkeypatch):
    output = io.TextIOWrapper(io.BytesIO(), "utf-8")
    monkeypatch.setattr(sys, "stdout", output)
    adapt_streams()
    print("there is no file caf\udce9.csv")
    output.flush()
    assert output.buffer.getvalue() == b"there is no file caf\\udce9.csv\n"


def test_json_is_ascii_whatever_the_terminal(tmp_path):
    folder = tmp_path / "λ"
    folder.mkdir()
    (folder / "config.toml").write_text('algorithm = "fedavg"')
    text = invoke("runs", tmp_path, "--json")
    assert text.isascii()
    assert "\\u03bb" in text


def test_names_of_others_are_shown_as_they_are(tmp_path):
    """Markup and control characters in a path and in a setting."""
    hostile = tmp_path / "[bold]x\x1b[31m"
    text = refused("report", hostile)
    assert "[bold]x\\x1b[31m" in text
    assert "\x1b" not in text
    text = refused("run", "[red]fedem[/]\x07")
    assert "'[red]fedem[/]\\x07'" in text
    hostile.mkdir()
    (hostile / "run").mkdir()
    (hostile / "run" / "config.toml").write_text('algorithm = "[blink]a\\u001b"')
    text = invoke("runs", hostile)
    assert "[blink]a\\x1b" in text
    assert "\x1b" not in text


def test_python_runs_the_module():
    done = subprocess.run(majorant("--version"), capture_output=True, text=True, check=True)
    assert done.stdout.startswith("majorant ")


@pytest.mark.filterwarnings("always")
def test_a_warning_is_told_once(capsys):
    with told():
        for text in ("the sky is low", "the sky is low", "the ground is wet"):
            warnings.warn(text, stacklevel=1)
    assert capsys.readouterr().err.splitlines() == ["warning: the sky is low", "warning: the ground is wet"]
