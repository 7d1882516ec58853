"""Files that survive full disks, and links that are not followed."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from majorant.app import files
from majorant.app.logs import append_jsonl, read_jsonl
from majorant.app.trees import load_tree, save_tree


@pytest.mark.parametrize("call", ["write", "fsync"])
@pytest.mark.parametrize("existing", [True, False])
def test_a_full_disk_leaves_what_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, existing: bool
) -> None:
    if existing:
        files.atomic_write_text(tmp_path / "file", "old")
        save_tree(tmp_path / "tree", {"a": 1}, {})
        append_jsonl(tmp_path / "log", {"round": 1})
    before = sorted(p.name for p in tmp_path.rglob("*"))
    write = os.write

    def full(descriptor: int, *data: memoryview) -> int:
        if data and len(data[0]) > 4:
            return write(descriptor, data[0][:4])  # the disk takes a little more, and then no more
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, call, full)
        with pytest.raises(OSError, match="No space left") as caught:
            files.atomic_write_text(tmp_path / "file", "new content")
        assert "disk is full" in files.explain_os_error(caught.value, "file")
        with pytest.raises(OSError, match="No space left"):
            save_tree(tmp_path / "tree", {"a": 2}, {})
        with pytest.raises(OSError, match="No space left"):
            files.check_writable(tmp_path)
        if call == "write":
            with pytest.raises(OSError, match="No space left"):
                append_jsonl(tmp_path / "log", {"round": 2})
            (tmp_path / "log").touch()
    assert sorted(p.name for p in tmp_path.rglob("*") if existing or p.name != "log") == before
    if existing:
        assert (tmp_path / "file").read_text() == "old"
        assert load_tree(tmp_path / "tree", like={"a": 0})[0] == {"a": 1}
        assert read_jsonl(tmp_path / "log") == [{"round": 1}]


def test_unwritable_folders_are_found_early_and_explained(tmp_path: Path) -> None:
    files.check_writable(tmp_path / "new" / "folder")
    assert not list((tmp_path / "new" / "folder").iterdir())
    (tmp_path / "file").write_text("x")
    with pytest.raises(OSError, match=r".") as caught:
        files.check_writable(tmp_path / "file" / "folder")
    assert "not a folder" in files.explain_os_error(caught.value, "file/folder")
    assert files.explain_os_error(OSError("odd"), "x") == "cannot use x: odd"
    for code in files.REASONS:
        assert files.explain_os_error(OSError(code, ""), "x").startswith("cannot use x: ")


def test_links_are_replaced_not_followed_and_modes_are_those_of_new_files(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("x")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "summary.json").symlink_to(tmp_path / "precious")
    (tmp_path / "last").symlink_to("run")
    files.atomic_write_bytes(tmp_path / "last" / "summary.json", b"new")
    assert (tmp_path / "precious").read_text() == "x"
    assert not (tmp_path / "run" / "summary.json").is_symlink()
    assert (tmp_path / "run" / "summary.json").read_text() == "new"
    (tmp_path / "plain").write_text("x")
    assert (tmp_path / "run" / "summary.json").stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_what_a_killed_process_left_is_removed_and_links_are_not_followed(tmp_path: Path) -> None:
    precious, folder = tmp_path / "elsewhere", tmp_path / "run"
    for place in (precious, folder, folder / ".checkpoint.old", folder / ".model.new"):
        place.mkdir()
    (precious / "thesis.tex").write_text("x")
    (folder / ".checkpoint.old" / "manifest.json").write_text("{}")
    for name in (".model.old", f".{'0' * 32}.tmp", ".picture.new"):
        (folder / name).symlink_to(precious)
    (folder / "notes.tmp").write_text("mine")
    files.tidy(folder)
    assert sorted(entry.name for entry in folder.iterdir()) == ["checkpoint", "notes.tmp"]
    assert (folder / "checkpoint" / "manifest.json").read_text() == "{}"
    assert (precious / "thesis.tex").read_text() == "x"


def test_the_entries_of_a_folder_are_synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", lambda descriptor: synced.append(os.fstat(descriptor).st_ino))
    files.sync_folder(tmp_path)
    assert synced == [tmp_path.stat().st_ino]
