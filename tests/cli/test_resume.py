"""Runs that go on: bit for bit, with the settings and data that they were started with, one process at a time."""

from __future__ import annotations

import json
import os
import shutil

import pytest

from commands import invoke, refused, timeless
from majorant.app.folders import claimed


def test_resume_refuses_other_settings_and_damage(place, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(place / "run", copy)
    assert "another configuration" in refused("run", "--resume", copy, "--lr", "0.01")
    arrays = copy / "checkpoint" / "arrays.safetensors"
    whole = arrays.read_bytes()
    arrays.write_bytes(whole[: len(whole) // 2])
    assert "checkpoint" in refused("run", "--resume", copy)
    arrays.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    assert "checkpoint" in refused("run", "--resume", copy)
    shutil.rmtree(copy / "checkpoint")  # as if killed before the first one: the run begins anew and ends the same
    invoke("run", "--resume", copy)
    assert (copy / "model" / "arrays.safetensors").read_bytes() == (
        place / "run" / "model" / "arrays.safetensors"
    ).read_bytes()
    assert "is not a run folder" in refused("run", "--resume", tmp_path)


def test_settings_are_compared_with_the_checkpoint_not_with_a_file_that_people_edit(copied):
    config = copied / "config.toml"
    config.write_text(config.read_text().replace("rounds = 60", "rounds = 90"))
    for more in (["--config", config], ["--rounds", "90"]):  # the learning rate of this run falls over its 60 rounds
        assert "cannot be extended to 90 rounds" in refused("run", "--resume", copied, *more)
    assert "rounds: 30 against 60" in refused("run", "--resume", copied, "--rounds", "30")
    summary = (copied / "summary.json").read_text()
    invoke("run", "--resume", copied, "--rounds", "60")
    assert json.loads((copied / "summary.json").read_text())["rounds"] == json.loads(summary)["rounds"] == 60
    assert "rounds = 60" in config.read_text()  # the file says again what was run
    edited = config.read_text().replace("lr = 0.5", "lr = 0.375")
    config.write_text(edited)
    assert "local.lr: 0.375 against 0.5" in refused("run", "--resume", copied)
    assert config.read_text() == edited
    config.unlink()
    invoke("run", "--resume", copied)
    assert "rounds = 60" in config.read_text()


def test_more_rounds_extend_a_finished_run_bit_for_bit(tmp_path):
    """A run of 5 rounds, extended to 8, is the run of 8 rounds; and a bound that was met is met still."""
    flags = ["fedavg", "--data", "synthetic:clients=5,dimension=3", "--participation", "uniform:0.5"]
    settings = ["--schedule", "constant", "--evaluate-every", "2", "--rounds"]
    whole, part = tmp_path / "whole", tmp_path / "part"
    invoke("run", *flags, *settings, "8", "--out", whole)
    invoke("run", *flags, *settings, "5", "--out", part)
    short = json.loads((part / "summary.json").read_text())
    invoke("run", "--resume", part, "--rounds", "8")
    for name in ("checkpoint", "model"):
        assert (part / name / "arrays.safetensors").read_bytes() == (whole / name / "arrays.safetensors").read_bytes()
    first, second = (json.loads((folder / "summary.json").read_text()) for folder in (whole, part))
    assert timeless(first) == timeless(second)
    assert first["rounds"] == 8 > short["rounds"]
    assert "rounds = 8" in (part / "config.toml").read_text()
    assert "rounds: 5 against 8" in refused("run", "--resume", part, "--rounds", "5")


def test_a_run_whose_checkpoint_lost_its_manifest_does_not_begin_anew(copied):
    before = {path: path.read_bytes() for path in copied.rglob("*") if path.is_file() and path.name != "manifest.json"}
    (copied / "checkpoint" / "manifest.json").unlink()
    text = refused("run", "--resume", copied)
    assert "checkpoint/manifest.json is missing, so the run cannot resume" in text
    assert {path: path.read_bytes() for path in before} == before


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("h7,", "h8,"),  # another name of a client
        ("sick", "ill"),  # another name of a class, in the same order
        ("hospital,age,dose,ward", "hospital,age,dose,room"),  # another name of a column
        (",b,", ",c,"),  # another name of a category
    ],
)
def test_other_names_are_other_data(place, copied, old, new):
    """The numbers of the table are the same; the run's settings lead to the table, which is put back."""
    table = place / "visits.csv"
    whole = table.read_text()
    assert old in whole
    try:
        table.write_text(whole.replace(old, new))
        assert "was trained on other data than there are now" in refused("run", "--resume", copied)
    finally:
        table.write_text(whole)


def test_two_processes_do_not_write_one_folder(copied):
    """The lock of this process, which a command in the same process cannot take again: a stale file does not matter."""
    (copied / ".lock").write_text("999999\n")  # of a process that died
    invoke("run", "--resume", copied)
    assert not (copied / ".lock").exists()
    with claimed(copied):
        text = refused("run", "--resume", copied)
    assert f"another process ({os.getpid()}) is writing to {copied}" in text
    assert (copied / "summary.json").exists()
