"""Trees of arrays that survive crashes and altered bytes."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from majorant.app.files import DamagedFile, atomic_write_text, explain_os_error
from majorant.app.trees import ARRAYS, MANIFEST, load_meta, load_tree, save_tree, tree_exists


class State(NamedTuple):
    theta: Any
    moments: Any


def example(scale: float = 1.0) -> dict[str, Any]:
    return {
        "server": State({"w": jnp.arange(6.0).reshape(2, 3) * scale, "b": jnp.ones((), jnp.bfloat16)}, None),
        "clients": [np.arange(4, dtype=np.uint8), (jnp.zeros((0, 3)), np.float64(2.5) * scale), {}],
        "odd/key%2F": jnp.array([True, False]),
        "__metadata__": np.arange(3, dtype=np.int64)[::-1],
        "round": 7,
        "rate": 0.1 * scale,
        "done": False,
    }


def assert_same(a: Any, b: Any) -> None:
    is_none = lambda leaf: leaf is None
    assert jax.tree.structure(a, is_leaf=is_none) == jax.tree.structure(b, is_leaf=is_none)
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        assert isinstance(y, type(x))
        assert np.asarray(x).dtype == np.asarray(y).dtype
        np.testing.assert_array_equal(np.asarray(x), np.asarray(y))


def test_a_tree_comes_back_as_it_was(tmp_path: Path) -> None:
    save_tree(tmp_path / "deep" / "tree", example(), {"round": 3, "name": "→"})
    tree, meta = load_tree(tmp_path / "deep" / "tree", like=example(0.0))
    assert_same(example(), tree)
    assert meta == {"round": 3, "name": "→"}
    assert sorted(p.name for p in (tmp_path / "deep").iterdir()) == ["tree"]


def test_without_a_likeness_a_tree_is_nested_dicts(tmp_path: Path) -> None:
    save_tree(tmp_path / "tree", example(), {})
    tree, _ = load_tree(tmp_path / "tree")
    assert tree["server"]["theta"]["b"].dtype == jnp.bfloat16
    assert tree["server"]["moments"] is None
    np.testing.assert_array_equal(tree["clients"]["1"]["1"], 2.5)
    np.testing.assert_array_equal(tree["odd/key%2F"], [True, False])
    np.testing.assert_array_equal(tree["__metadata__"], [2, 1, 0])
    tree["round"][...] = 8  # writable


def test_a_lone_array_and_an_empty_tree_are_trees(tmp_path: Path) -> None:
    save_tree(tmp_path / "one", np.arange(3), {})
    np.testing.assert_array_equal(load_tree(tmp_path / "one")[0], np.arange(3))
    save_tree(tmp_path / "none", {}, {})
    assert load_tree(tmp_path / "none", like={}) == ({}, {})


@pytest.mark.parametrize(
    ("like", "message"),
    [
        ({"a": np.zeros(3), "b": None}, r"leaf 'a' in .* is float64 of shape \(2,\), expected float64 of shape \(3,\)"),
        ({"a": np.zeros(2, np.float32), "b": None}, r"leaf 'a' .* is float64 .*, expected float32"),
        ({"a": np.zeros(2), "b": 1}, r"leaf 'b' .* is None, expected int64"),
        ({"a": None, "b": None}, r"leaf 'a' .* expected None"),
        ({"a": np.zeros(2)}, r"the saved tree has a leaf 'b'"),
        ({"a": np.zeros(2), "b": None, "c": 1}, r"the expected tree has a leaf 'c'"),
    ],
)
def test_another_structure_is_refused_by_its_first_leaf(tmp_path: Path, like: Any, message: str) -> None:
    save_tree(tmp_path / "tree", {"a": np.zeros(2), "b": None}, {})
    with pytest.raises(ValueError, match=message):
        load_tree(tmp_path / "tree", like)


@pytest.mark.parametrize(
    ("leaf", "message"),
    [
        (jax.random.key(0), "random key"),
        ("text", "'a' is a str"),
        (np.array([None]), "of type object"),
        (np.zeros(2, complex), "complex128"),
        (2**70, "of type object"),
    ],
)
def test_what_cannot_be_saved_is_named_and_nothing_is_written(tmp_path: Path, leaf: Any, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        save_tree(tmp_path / "tree", {"a": leaf}, {})
    assert not list(tmp_path.iterdir())


class Twice(dict[str, int]):
    """A node whose two children go by the same path."""


jax.tree_util.register_pytree_with_keys(
    Twice, lambda _: (((jax.tree_util.DictKey("y"), 0), (jax.tree_util.DictKey("y"), 1)), None), lambda *_: Twice()
)


def test_two_leaves_cannot_share_a_path(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="two leaves of the tree have the path 'x/y'"):
        save_tree(tmp_path / "tree", {"x": Twice()}, {})


def test_other_files_are_never_replaced_by_a_tree(tmp_path: Path) -> None:
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter.tex").write_text("x")
    (tmp_path / "file").write_text("x")
    for name in ("thesis", "file"):
        with pytest.raises(FileExistsError, match="other than a saved tree"):
            save_tree(tmp_path / name, {}, {})
    assert (tmp_path / "thesis" / "chapter.tex").read_text() == "x"


class Crash(BaseException):
    """The process ends here."""


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("step", range(12))
def test_a_crash_at_any_moment_leaves_the_old_or_the_new_tree(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int, first: bool
) -> None:
    """Every call that changes the disk is counted, and the process ends at one of them, without any clean-up."""
    folder = tmp_path / "checkpoint"
    if not first:
        save_tree(folder, example(1.0), {"round": 1})
    count = 0

    def fatal(call: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*args: Any, **kwargs: Any) -> Any:
            nonlocal count
            count += 1
            if count > step:
                raise Crash
            return call(*args, **kwargs)

        return counted

    with monkeypatch.context() as patch:
        for name in ("rename", "write", "fsync"):
            patch.setattr(os, name, fatal(getattr(os, name)))
        patch.setattr(shutil, "rmtree", fatal(shutil.rmtree))
        with contextlib.suppress(Crash):
            save_tree(folder, example(2.0), {"round": 2})
    if first and not tree_exists(folder):
        with pytest.raises(DamagedFile, match="missing"):
            load_tree(folder)
    else:
        tree, meta = load_tree(folder, like=example())
        assert_same(example(float(meta["round"])), tree)
    save_tree(folder, example(3.0), {"round": 3})  # and the next save works and cleans up
    assert load_tree(folder, like=example())[1] == {"round": 3}
    assert [p.name for p in tmp_path.iterdir()] == ["checkpoint"]


def test_the_old_tree_is_found_between_the_renames(tmp_path: Path) -> None:
    folder = tmp_path / "checkpoint"
    save_tree(folder, {"a": 1}, {"round": 1})
    os.rename(folder, tmp_path / ".checkpoint.old")
    assert tree_exists(folder)
    assert load_tree(folder, like={"a": 0}) == ({"a": 1}, {"round": 1})


def test_a_failed_rename_puts_the_old_tree_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "checkpoint"
    save_tree(folder, {"a": 1}, {})
    rename = os.rename

    def refuse(source: Path, target: Path) -> None:
        if source.name.endswith(".new"):
            raise OSError(errno.EIO, "input/output error")
        rename(source, target)

    monkeypatch.setattr(os, "rename", refuse)
    with pytest.raises(OSError, match="input/output"):
        save_tree(folder, {"a": 2}, {})
    assert load_tree(folder, like={"a": 0})[0] == {"a": 1}
    assert [p.name for p in tmp_path.iterdir()] == ["checkpoint"]


def test_a_save_that_fails_after_one_that_was_cut_short_keeps_the_old_tree(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "checkpoint"
    save_tree(folder, {"a": 1}, {})
    os.rename(folder, tmp_path / ".checkpoint.old")  # as if killed between the renames

    def full(descriptor: int, data: bytes) -> int:
        raise OSError(errno.ENOSPC, "no space left")

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(OSError, match="no space"):
        save_tree(folder, {"a": 2}, {})
    assert load_tree(folder, like={"a": 0})[0] == {"a": 1}
    assert [p.name for p in tmp_path.iterdir()] == ["checkpoint"]


def test_what_is_renamed_is_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At a rename the disk has all of what gets its name, files and folder, and after the last one the name as well."""
    inode = lambda path: os.stat(path).st_ino
    synced: set[int] = set()
    fsync = os.fsync

    def renaming(rename: Callable[..., Any]) -> Callable[..., Any]:
        def renamed(source: Path, target: Path) -> None:
            parts = [source, *(source.iterdir() if source.is_dir() else [])]
            assert {inode(part) for part in parts} <= synced, f"{source.name} is not on the disk"
            rename(source, target)
            synced.discard(inode(target.parent))

        return renamed

    monkeypatch.setattr(os, "fsync", lambda descriptor: (fsync(descriptor), synced.add(os.fstat(descriptor).st_ino)))
    for name in ("rename", "replace"):
        monkeypatch.setattr(os, name, renaming(getattr(os, name)))
    for round in (1, 2):  # the second takes the place of the first
        save_tree(tmp_path / "tree", example(), {"round": round})
        assert inode(tmp_path) in synced
    atomic_write_text(tmp_path / "note", "hello")
    assert inode(tmp_path) in synced


@pytest.mark.parametrize("name", [ARRAYS, MANIFEST])
def test_cut_or_altered_files_are_damaged_wherever_it_happens(tmp_path: Path, name: str) -> None:
    save_tree(tmp_path / "tree", example(), {"round": 1})
    file = tmp_path / "tree" / name
    whole = file.read_bytes()
    for position in [0, 1, 7, 8, 9, *range(10, len(whole) - 1, 41), len(whole) - 2]:
        file.write_bytes(whole[:position])
        with pytest.raises(DamagedFile, match=name):
            load_tree(tmp_path / "tree")
        altered = bytearray(whole)
        altered[position] ^= 0x15
        file.write_bytes(altered)
        with pytest.raises(DamagedFile, match=name):
            load_tree(tmp_path / "tree")
    file.unlink()
    with pytest.raises(DamagedFile, match="missing"):
        load_tree(tmp_path / "tree")


@pytest.mark.parametrize("foreign", ["", "{}", "[]", "null", "[" * 100_000, '{"format": 1}', "\xff"])
def test_a_foreign_manifest_is_damaged(tmp_path: Path, foreign: str) -> None:
    save_tree(tmp_path / "tree", {"a": 1}, {})
    (tmp_path / "tree" / MANIFEST).write_bytes(foreign.encode("latin-1"))
    with pytest.raises(DamagedFile):
        load_tree(tmp_path / "tree")


def test_a_newer_format_says_so(tmp_path: Path) -> None:
    save_tree(tmp_path / "tree", {"a": 1}, {})
    path = tmp_path / "tree" / MANIFEST
    path.write_text(json.dumps(json.loads(path.read_text()) | {"format": 2}))
    with pytest.raises(DamagedFile, match="has format 2; this version of Majorant reads format 1"):
        load_tree(tmp_path / "tree")


def forged(folder: Path, **changes: Any) -> None:
    """A manifest with other content whose own checksum is right."""
    path = folder / MANIFEST
    content = {k: v for k, v in json.loads(path.read_text()).items() if k != "check"} | changes
    check = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
    path.write_text(json.dumps(content | {"check": check}))


@pytest.mark.parametrize(
    "leaves",
    [{"a": ["int64", [-1]]}, {"a": ["object", [2]]}, {"a": ["int64"]}, {"a": ["int64", [3]]}, {"b": ["int64", [2]]}],
)
def test_a_manifest_of_impossible_arrays_is_damaged(tmp_path: Path, leaves: dict[str, Any]) -> None:
    save_tree(tmp_path / "tree", {"a": np.arange(2)}, {})
    forged(tmp_path / "tree", leaves={"a": ["int64", [2]]})
    np.testing.assert_array_equal(load_tree(tmp_path / "tree")[0]["a"], [0, 1])
    forged(tmp_path / "tree", leaves=leaves)
    with pytest.raises(DamagedFile, match=r"altered|does not match its manifest"):
        load_tree(tmp_path / "tree")


def test_meta_is_read_without_the_arrays(tmp_path: Path) -> None:
    save_tree(tmp_path / "tree", {"a": 1}, {"round": 3})
    (tmp_path / "tree" / ARRAYS).unlink()
    assert load_meta(tmp_path / "tree") == {"round": 3}


def test_a_link_in_place_of_a_tree_is_not_followed(tmp_path: Path) -> None:
    """Links on the way are: ``runs/last`` leads to a folder whose checkpoint is written."""
    (tmp_path / "real").mkdir()
    (tmp_path / "last").symlink_to("real")
    save_tree(tmp_path / "last" / "tree", {"a": 1}, {})
    assert load_tree(tmp_path / "real" / "tree", like={"a": 0})[0] == {"a": 1}
    (tmp_path / "link").symlink_to(tmp_path / "real" / "tree")
    for target in ("link", "dangling"):
        if target == "dangling":
            (tmp_path / target).symlink_to(tmp_path / "nothing")
        with pytest.raises(OSError, match="symbolic link") as caught:
            save_tree(tmp_path / target, {"a": 2}, {})
        assert "not followed" in explain_os_error(caught.value, target)
    assert load_tree(tmp_path / "link", like={"a": 0})[0] == {"a": 1}  # reading may go anywhere
    assert not (tmp_path / "nothing").exists()
