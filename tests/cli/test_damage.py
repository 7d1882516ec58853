"""Damaged, foreign and hostile files of a run folder: one clear line and exit code 2, whatever reads them."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import zipfile
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from commands import COLUMNS, alter, invoke, read, write_visits
from majorant.app import build, front
from majorant.cli.main import app

FOREIGN = [b"", b"\x00\xff\xfe", b"[]", b"null", b"{", b'{"a": NaN}', b"[" * 5000, b"a,b\n1,2\n", b"\x1b[31m"]


def polite(*arguments: object) -> str:
    """The complaint of a command that must fail with one line and no traceback."""
    result = CliRunner().invoke(app, [str(a) for a in arguments])
    assert result.exit_code == 2, (result.output, result.exception)
    *before, last = result.stderr.splitlines()
    assert last.startswith("error: ")
    assert not any("error" in line or "Traceback" in line for line in before), before
    assert "\x1b" not in last
    return last


@pytest.mark.parametrize("name", ["summary.json", "metrics.jsonl", "clients.csv", "config.toml"])
def test_a_report_of_damaged_files_is_refused_or_written(copied, name):
    """Whatever a file holds: a page, or a line that names the file."""
    whole = (copied / name).read_bytes()
    complaints = 0
    for content in [*FOREIGN[1:6], whole.replace(b"0", b"\xff"), whole.replace(b":", b"="), b"{}\n[]\n"]:
        (copied / name).write_bytes(content)
        result = CliRunner().invoke(app, ["report", str(copied)])
        assert result.exit_code in (0, 2), (content, result.output, result.exception)
        if result.exit_code == 2:
            assert name in result.stderr
            complaints += 1
    assert complaints >= 3


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"rounds": -3}, "rounds"),
        ({"clients": 10**30}, "clients"),
        ({"clients": 7}, "clients.csv does not have a row for every client"),
        ({"test_accuracy": {"mean": "high"}}, "test_accuracy.mean"),
        ({"test_accuracy": 0.5}, "test_accuracy"),
        ({"communication": {"bytes_up": -1}}, "communication.bytes_up"),
        ({"seconds": [1]}, "seconds"),
        ({"network": {"nodes": 0}}, "network.nodes"),
        ({"network": {"nodes": 9}}, "9 nodes for 8 clients"),
        ({"network": {"nodes": 6, "spectral_gap": 17}}, "network.spectral_gap"),
        ({"seed": "x"}, "seed"),
    ],
)
def test_numbers_out_of_range_are_named(copied, changes, words):
    alter(copied / "summary.json", **changes)
    assert words in polite("report", copied)


def test_a_line_out_of_range_is_named(copied):
    alter(copied / "summary.json")
    lines = (copied / "metrics.jsonl").read_text().splitlines()
    for entry, value in (("round", -1), ("bytes_up", -5), ("rejected", 0.5), ("test_accuracy", {"mean": "x"})):
        bad = json.dumps(json.loads(lines[1]) | {entry: value})
        (copied / "metrics.jsonl").write_text("\n".join([lines[0], bad, *lines[2:]]) + "\n")
        text = polite("report", copied)
        assert "line 2 of" in text
        assert entry in text


def test_a_plausible_number_that_was_changed_is_noticed(copied):
    """A digit of an accuracy, in any file that a report is made from; the list of runs marks the run."""
    (line,) = json.loads(invoke("runs", copied.parent, "--json"))
    assert line["state"] == "finished"
    for name in ("summary.json", "metrics.jsonl", "clients.csv"):
        whole = (copied / name).read_bytes()
        at = whole.rindex(b"0.") + 2
        digit = b"%d" % ((int(whole[at : at + 1]) + 1) % 10)
        (copied / name).write_bytes(whole[:at] + digit + whole[at + 1 :])
        assert f"{name} was altered" in polite("report", copied)
        (line,) = json.loads(invoke("runs", copied.parent, "--json"))
        assert (line["state"], line["mean"], line["method"]) == ("changed", None, "fedem:components=2")
        assert "changed" in invoke("runs", copied.parent)
        (copied / name).write_bytes(whole)
    (copied / "clients.csv").unlink()
    assert "clients.csv is missing" in polite("report", copied)


def test_what_is_no_change_of_numbers_is_none(copied):
    """Another layout of the same JSON, an edit of the settings, and files of a version without checksums."""
    (copied / "config.toml").write_text((copied / "config.toml").read_text() + "# mine\n")
    (copied / "summary.json").write_text(json.dumps(json.loads((copied / "summary.json").read_text()), indent=7))
    invoke("report", copied)
    alter(copied / "summary.json")
    (copied / "clients.csv").unlink()
    invoke("report", copied)
    (line,) = json.loads(invoke("runs", copied.parent, "--json"))
    assert line["state"] == "finished"


def forge(folder: Path, change) -> None:
    """Changes what a manifest says, with a checksum that is right."""
    path = folder / "manifest.json"
    content = json.loads(path.read_text())
    del content["check"]
    change(content["meta"])
    check = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
    path.write_text(json.dumps(content | {"check": check}))


@pytest.mark.parametrize(
    "change",
    [
        lambda meta: meta.clear(),
        lambda meta: meta.update(clients=0),
        lambda meta: meta.update(nodes=99),
        lambda meta: meta.update(seed=-1),
        lambda meta: meta.update(seed=2**40),
        lambda meta: meta.update(spec=[[0], 2]),
        lambda meta: meta.update(spec=[[4], 3]),
        lambda meta: meta.update(spec="x"),
        lambda meta: meta.update(spec=[[5], 2]),
        lambda meta: meta.update(config="= 1"),
        lambda meta: meta.update(config='algorithm = "magic"'),
        lambda meta: meta.update(config="rounds = 3"),
        lambda meta: meta.update(classes=["sick"]),
        lambda meta: meta.update(classes=["sick", "else"]),
        lambda meta: meta.update(encoding={}) or meta.update(encoding={"columns": []}),
        lambda meta: meta.update(encoding={}),
        lambda meta: meta["encoding"]["columns"][1].update(name="age"),
        lambda meta: meta["encoding"]["columns"].append(meta["encoding"]["columns"][0] | {"name": "more"}),
        lambda meta: meta["encoding"]["columns"][0].update(scale=-1.0),
        lambda meta: meta["encoding"]["columns"][0].update(mean=None),
        lambda meta: meta["encoding"]["columns"][0].update(mean="old"),
        lambda meta: meta["encoding"]["columns"][2].update(categories=[1, 2]),
        lambda meta: meta["encoding"]["columns"][2].update(kind="colour"),
        lambda meta: meta["encoding"]["label"].update(classes=["sick", "else"]),
        lambda meta: meta["encoding"].update(task="ranking"),
        lambda meta: meta.update(encoding={"columns": ["age"], "means": {"age": 1.0}}),  # as version 0.1 had it
        lambda meta: meta.update(target_scale=[0.0, 1.0]),
        lambda meta: meta.update(target_scale="x"),
    ],
)
def test_a_model_with_impossible_facts_is_refused(copied, tmp_path, change):
    forge(copied / "model", change)
    new = write_visits(tmp_path / "new.csv", range(9, 10))
    polite("personalize", copied, "--data", new)


@pytest.mark.parametrize("file", ["manifest.json", "arrays.safetensors"])
@pytest.mark.parametrize("content", [None, *FOREIGN])
def test_foreign_models_and_checkpoints_are_refused(copied, tmp_path, file, content):
    new = write_visits(tmp_path / "new.csv", range(9, 10))
    for part, command in (
        ("model", ["personalize", copied, "--data", new]),
        ("checkpoint", ["run", "--resume", copied]),
    ):
        if content is None:
            (copied / part / file).unlink()
        else:
            (copied / part / file).write_bytes(content)
        assert f"{part}/{file}" in polite(*command)


@pytest.mark.parametrize(
    "change",
    [
        lambda meta: meta.clear(),
        lambda meta: meta.update(round=-1),
        lambda meta: meta.update(counters={}),
        lambda meta: meta["counters"].update(history=[]),
        lambda meta: meta["counters"]["history"].append([]),
        lambda meta: meta["counters"]["history"].append(meta["counters"]["history"][0]),
        lambda meta: meta["counters"]["history"][0][0].update(round="first"),
        lambda meta: meta["counters"].update(communication=[{"bytes_up": -1}]),
        lambda meta: meta["counters"].pop("communication"),
        lambda meta: meta["counters"]["communication"].clear(),
        lambda meta: meta["counters"]["seconds"].pop("train"),
        lambda meta: meta["counters"]["history"][0][-1].pop("rejected"),
        lambda meta: meta["counters"]["history"][0].pop(),
        lambda meta: meta["counters"]["history"][0].reverse(),
        lambda meta: meta.update(settings="0" * 64),
        lambda meta: meta.update(config="rounds = 1"),
    ],
)
def test_a_checkpoint_with_impossible_facts_is_refused(copied, change):
    before = (copied / "metrics.jsonl").read_bytes()
    forge(copied / "checkpoint", change)
    polite("run", "--resume", copied)
    assert (copied / "metrics.jsonl").read_bytes() == before


def test_foreign_samples_are_refused(copied, tmp_path):
    """Archives that are cut, altered, of the wrong arrays, of objects, or no archives at all."""
    path = tmp_path / "new.npz"
    np.savez_compressed(path, x=np.zeros((50, 4)), y=np.array(["sick", "well"] * 25))
    whole = path.read_bytes()
    invoke("personalize", copied, "--data", path)
    middle = len(whole) // 3
    altered = whole[:middle] + bytes(byte ^ 0x5A for byte in whole[middle : middle + 20]) + whole[middle + 20 :]
    for content in [*FOREIGN, whole[:-30], altered]:
        path.write_bytes(content)
        assert "new.npz is not a" in polite("personalize", copied, "--data", path)
    header = b"{'descr': '<f8', 'fortran_order': False, 'shape': (137438953472,), }".ljust(117) + b"\n"
    with zipfile.ZipFile(path, "w") as archive:  # it claims to hold a tebibyte
        archive.writestr("x.npy", b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header)
    assert "new.npz is not a readable" in polite("personalize", copied, "--data", path)
    for arrays, words in (
        ({"x": np.array([None, {}]), "y": np.zeros(2)}, "not a readable .npz"),  # objects would be pickled
        ({"z": np.zeros(3)}, "has no array 'x'"),
        ({"x": np.zeros((3, 4))}, "has no array 'y'"),
        ({"x": np.zeros((3, 5)), "y": np.array(["sick"] * 3)}, "must have shape"),
        ({"x": np.array(3.0), "y": np.array(["sick"])}, "must have shape"),
        ({"x": np.zeros((3, 4)), "y": np.array("sick")}, "one number or name per sample"),
        ({"x": np.zeros((3, 4), [("a", "f4"), ("b", "i4")]), "y": np.array(["sick"] * 3)}, "must be numbers"),
        ({"x": np.zeros((3, 4), complex), "y": np.array(["sick"] * 3)}, "must be numbers"),
        ({"x": np.full((3, 4), np.nan), "y": np.array(["sick"] * 3)}, "NaN or infinite"),
        ({"x": np.zeros((3, 4)), "y": np.array(["odd"] * 3)}, "were not in the training data"),
    ):
        np.savez(path, **arrays)
        assert words in polite("personalize", copied, "--data", path)


def test_links_are_not_followed_out_of_a_run_folder(copied, tmp_path):
    """Everything that a resumed run writes stays in its folder; what links led to is as it was."""
    outside = tmp_path / "outside"
    outside.mkdir()
    for name in ("summary.json", "clients.csv", "config.toml", "report.html"):
        shutil.copy(copied / name, outside / name)
        (copied / name).unlink()
        (copied / name).symlink_to(outside / name)
    before = {path.name: (path.stat().st_mtime_ns, path.read_bytes()) for path in outside.iterdir()}
    invoke("run", "--resume", copied)
    assert {path.name: (path.stat().st_mtime_ns, path.read_bytes()) for path in outside.iterdir()} == before
    assert not any(path.is_symlink() for path in copied.iterdir())

    for name in ("figures", "model"):  # a run that cannot write its model has not finished, and has no report
        shutil.rmtree(copied / name)
        (copied / name).symlink_to(outside)
        flags = ["--figures", "svg"] if name == "figures" else []
        command = ["report", copied] if name == "figures" else ["run", "--resume", copied]
        assert "symbolic link" in polite(*command, *flags)
        (copied / name).unlink()
        (copied / name).mkdir()
    assert {path.name for path in outside.iterdir()} == set(before)


def test_devices_and_files_are_refused_before_training(place, tmp_path, monkeypatch):
    for module in (front, build):
        monkeypatch.setattr(module, "load_data", lambda *a: pytest.fail("data was loaded"))
    thesis = tmp_path / "thesis.tex"
    thesis.write_text("x")
    for command in (["run", "fedavg"], ["compare", "fedavg"], ["pareto", "--criterion", "l1"]):
        assert "it is a device" in polite(*command, "--out", os.devnull)
        assert "it is a file" in polite(*command, "--out", thesis)
        assert "is not empty" in polite(*command, "--out", tmp_path)
    assert "it is a file" in polite("reproduce", "fedem/rates", "--quick", "--out", thesis)
    assert "is not a report page" in polite("report", place / "run", "--out", thesis)
    assert "it is a device" in polite("report", place / "run", "--out", os.devnull)
    assert thesis.read_text() == "x"


def test_predictions_overwrite_neither_their_input_nor_the_run(copied, tmp_path):
    new = write_visits(tmp_path / "new.csv", range(9, 10))
    later = write_visits(tmp_path / "later.csv", range(9, 10), labels=False)
    (tmp_path / "same.csv").hardlink_to(later)
    every = {path: path.read_bytes() for path in [new, later, *copied.rglob("*")] if path.is_file()}
    predict = lambda out: polite("personalize", copied, "--data", new, "--predict", later, "--out", out)
    for out in (new, later, tmp_path / "same.csv"):
        assert "own input" in predict(out)
    for name in ("summary.json", "clients.csv", "model/manifest.json", "new-file.csv", "figures/x.csv"):
        assert "among the run's own files" in predict(copied / name)
    assert "it is a device" in predict(os.devnull)
    (tmp_path / "notes.txt").write_text("mine")
    assert "is not a file of predictions" in predict(tmp_path / "notes.txt")
    assert {path: path.read_bytes() for path in every} == every
    for _ in range(2):  # older predictions may go
        invoke("personalize", copied, "--data", new, "--predict", later)
    assert len(read(copied / "predictions-later.csv")) == 40


def test_a_column_whose_name_is_no_text_is_damage(copied, tmp_path):
    new, manifest = write_visits(tmp_path / "new.csv", range(9, 10)), copied / "model" / "manifest.json"
    content = json.loads(manifest.read_text())
    content["meta"]["encoding"]["label"]["name"] = False
    manifest.write_text(json.dumps(content))
    assert "manifest.json" in polite("personalize", copied, "--data", new)


def test_rows_that_cannot_be_predicted_are_refused_before_a_model_is_saved(copied, tmp_path):
    new = write_visits(tmp_path / "new.csv", range(9, 10))
    np.savez(tmp_path / "empty.npz", x=np.zeros(0, np.float32))
    said = polite(
        "personalize", copied, "--data", new, "--predict", tmp_path / "empty.npz", "--out", tmp_path / "out.csv"
    )
    assert "samples must have shape (n, " in said
    assert not (copied / "personal").exists()


def test_names_of_clients_and_labels_are_no_formulas(tmp_path):
    """Hospitals and outcomes that a spreadsheet would run, in what a run and its predictions leave behind."""
    table = write_visits(tmp_path / "visits.csv", range(4))
    text = table.read_text().replace("h1,", "=cmd(),").replace("h2,", "@h2,").replace("sick", "=1+1")
    table.write_text(text)
    run = tmp_path / "run"
    columns = COLUMNS[:4]
    invoke("run", "fedavg", "--data", table, *columns, "--rounds", "2", "--out", run)
    assert {row["name"] for row in read(run / "clients.csv")} == {"h0", "'=cmd()", "'@h2", "h3"}
    out = tmp_path / "predictions.csv"
    invoke("personalize", run, "--data", table, "--client", "h0", "--folds", "0", "--predict", table, "--out", out)
    found = {row["prediction"] for row in read(out)}
    assert found <= {"'=1+1", "well"}
    assert "'=1+1" in found
