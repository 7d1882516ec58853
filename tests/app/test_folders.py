"""Run folders: each process has its own, and only files of ours are written over."""

from __future__ import annotations

import datetime
import os
import subprocess
import sys
from pathlib import Path

import pytest

from majorant.app import folders
from majorant.app.folders import (
    check_file,
    check_folder,
    check_run_folder,
    claimed,
    in_use,
    new_folder,
    point_last_at,
    working_in,
)

HOLD = """
import sys, time
from pathlib import Path
from majorant.app.folders import claimed
with claimed(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""


def test_three_starts_in_one_second_get_three_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Clock(datetime.datetime):
        @classmethod
        def now(cls, tz: datetime.tzinfo | None = None) -> Clock:
            return cls(2026, 1, 2, 3, 4, 5)

    monkeypatch.setattr(folders.datetime, "datetime", Clock)
    found = [new_folder(tmp_path / "runs", "fedem:components=3") for _ in range(3)]
    names = [folder.name for folder in found]
    assert names == ["20260102-030405-fedem-components-3" + end for end in ("", "-2", "-3")]
    assert all(folder.is_dir() for folder in found)  # so that no other process takes the name


def test_a_folder_is_one_process_alone_and_a_dead_one_keeps_nothing(tmp_path: Path) -> None:
    process = subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    assert in_use(tmp_path)
    with pytest.raises(ValueError, match=rf"another process \({process.pid}\) is writing to"), claimed(tmp_path):
        pass
    with pytest.raises(ValueError, match="another process"), working_in(tmp_path):
        pass
    assert (tmp_path / folders.LOCK).exists()  # the owner's, which the refused process left alone
    process.kill()
    process.wait()
    process.stdout.close()
    assert (tmp_path / folders.LOCK).exists()
    assert not in_use(tmp_path)
    with claimed(tmp_path):
        assert (tmp_path / folders.LOCK).read_text() == f"{os.getpid()}\n"
    assert not list(tmp_path.iterdir())


def test_a_lock_is_not_followed_out_of_the_folder(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("x")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / folders.LOCK).symlink_to(tmp_path / "precious")
    with pytest.raises(OSError, match="symbolic links"), claimed(tmp_path / "run"):
        pass
    assert (tmp_path / "precious").read_text() == "x"


def test_the_newest_run_is_the_last_one(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    for name in ("one", "two"):
        (runs / name).mkdir(parents=True)
        point_last_at(runs / name)
        assert (runs / "last").resolve() == runs / name
    point_last_at(runs / "last")  # a run that is resumed by the link
    assert os.readlink(runs / "last") == "two"  # not to itself, and to the same where the folder is moved
    assert sorted(entry.name for entry in runs.iterdir()) == ["last", "one", "two"]
    (tmp_path / "elsewhere").mkdir()
    point_last_at(tmp_path / "elsewhere")
    assert not (tmp_path / "last").is_symlink()


@pytest.mark.parametrize("kind", ["folder", "file"])
def test_what_is_named_last_and_is_no_link_is_left_alone(tmp_path: Path, kind: str) -> None:
    (tmp_path / "runs" / "new").mkdir(parents=True)
    last = tmp_path / "runs" / "last"
    precious = last / "precious" if kind == "folder" else last
    precious.parent.mkdir(exist_ok=True)
    precious.write_text("x")
    point_last_at(tmp_path / "runs" / "new")
    assert not last.is_symlink()
    assert precious.read_text() == "x"


@pytest.mark.parametrize("keep", [True, False])
def test_a_failure_removes_a_new_folder_unless_it_holds_something(tmp_path: Path, keep: bool) -> None:

    def fail() -> None:
        (tmp_path / "new" / "file").write_text("x")
        raise KeyError

    with pytest.raises(KeyError), working_in(tmp_path / "new", lambda: keep):
        fail()
    assert (tmp_path / "new").exists() == keep


def test_what_cannot_become_a_run_folder_is_refused(tmp_path: Path) -> None:
    check_folder(tmp_path / "new")
    (tmp_path / "file").write_text("x")
    (tmp_path / "link").symlink_to(tmp_path / "nothing")
    for path, words in (
        (tmp_path, "is not empty"),
        (tmp_path / "file", "it is a file"),
        (tmp_path / "link", "it is a symbolic link"),
        (Path(os.devnull), "it is a device"),
    ):
        with pytest.raises(FileExistsError, match=words):
            check_folder(path)
    with pytest.raises(ValueError, match="it does not exist"):
        check_folder(tmp_path / "new", resume=True)
    check_folder(tmp_path, resume=True)


def test_only_pages_of_ours_are_written_over(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    check_file(page, b"<!doctype html", "a report page")
    for content in (b"<!DOCTYPE html><html>", b""):
        page.write_bytes(content)
        check_file(page, b"<!doctype html", "a report page")
    page.write_bytes(b"\\documentclass{thesis}")
    (tmp_path / "link").symlink_to(page)
    for path, words in ((page, "is not a report page"), (tmp_path, "a folder"), (Path(os.devnull), "a device")):
        with pytest.raises(FileExistsError, match=words):
            check_file(path, b"<!doctype html", "a report page")
    with pytest.raises(FileExistsError, match="a symbolic link"):
        check_file(tmp_path / "link", b"", "")


def test_what_is_no_run_folder_is_told_with_what_it_is(tmp_path: Path) -> None:
    (tmp_path / "visits.csv").write_text("a,b\n")
    (tmp_path / "compared" / "fedem").mkdir(parents=True)
    (tmp_path / "compared" / "fedem" / "config.toml").write_text("")
    check_run_folder(tmp_path / "compared" / "fedem")
    for name, what in (("gone", "it does not exist"), ("visits.csv", "it is a file"), (".", "it has no config.toml$")):
        with pytest.raises(ValueError, match=f"is not a run folder: {what}"):
            check_run_folder(tmp_path / name)
    with pytest.raises(ValueError, match=r"it has no config.toml; it holds the runs .*fedem: name one of them"):
        check_run_folder(tmp_path / "compared")
