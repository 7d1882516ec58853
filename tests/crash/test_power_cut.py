"""A process that ends at any operation on its run folder: the run is resumed, or begun anew, and ends bit for bit.

The processes here do not really end (`disk.PowerCut`), and only some operations are tried; ``make crash`` kills a
hundred real ones.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import Any

import pytest
from disk import Disk, PowerCut, cut_within, power_cut, refuses
from victims import content, finish, left_over, train

from majorant.app.files import is_leftover

NAME = "FedEM"


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], list[str]]:
    """What a run leaves, and the operations that it made."""
    folder = tmp_path_factory.mktemp("undisturbed") / "run"
    with Disk(folder) as disk:
        train(NAME, folder)
    assert not left_over(folder)
    return content(folder), disk.names


def test_a_power_cut_at_any_operation_loses_nothing(undisturbed: Any, tmp_path: Path) -> None:
    whole, names = undisturbed
    assert len(names) > 60
    points = [*range(8), *range(8, len(names), 7)]  # the first ones are before config.toml is written
    for at in points:
        folder = tmp_path / str(at) / "run"
        folder.parent.mkdir()
        with Disk(folder, at, cut_within() if names[at] == "write" else power_cut), pytest.raises(PowerCut):
            train(NAME, folder)
        finish(NAME, folder)
        assert content(folder) == whole, names[at]
        assert not left_over(folder), names[at]


def test_a_power_cut_while_resuming_loses_nothing(undisturbed: Any, tmp_path: Path) -> None:
    whole, names = undisturbed
    folder = tmp_path / "run"
    for at in (len(names) // 3, 14, 15, 16, 3):
        with Disk(folder, at, power_cut), pytest.raises(PowerCut):
            finish(NAME, folder)
    finish(NAME, folder)
    assert content(folder) == whole
    assert not left_over(folder)


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EROFS])
def test_a_disk_that_refuses_leaves_what_can_be_resumed_and_no_temporary_files(undisturbed, tmp_path, code) -> None:
    whole, names = undisturbed
    changes = ("write",) if code == errno.ENOSPC else ("open", "mkdir", "write", "rename", "replace")
    folder = tmp_path / "run"
    with Disk(folder, 2 * len(names) // 3, refuses(code, *changes)), pytest.raises(OSError, match=os.strerror(code)):
        train(NAME, folder)
    assert not [path.name for path in folder.iterdir() if is_leftover(path.name)]
    finish(NAME, folder)
    assert content(folder) == whole


def test_private_states_are_their_owners_alone(tmp_path: Path) -> None:
    """Also where a person's files are for everybody (umask 0), and where states lie in files."""
    before = os.umask(0)
    try:
        train("in files", tmp_path / "run")
    finally:
        os.umask(before)
    private = [tmp_path / "run" / "checkpoint", *(tmp_path / "run" / "checkpoint").iterdir(), tmp_path / "states"]
    assert not [path for path in private if stat.S_IMODE(path.stat().st_mode) & 0o077]
    assert not left_over(tmp_path / "run")
