"""Shakespeare's roles: their windows, and which of them are for training."""

import bz2
import hashlib
import json

import numpy as np
import pytest

from majorant.data import load_shakespeare
from majorant.data import shakespeare as plays
from majorant.data.shakespeare import LETTERS, encoded


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("MAJORANT_DATA", str(tmp_path))
    (tmp_path / "shakespeare").mkdir()
    return tmp_path / "shakespeare"


def written(folder, monkeypatch, roles):
    """A file of plays with these roles' lines."""
    lines = "".join(json.dumps({"play": "Hamlet", "role": role, "lines": said}) + "\n" for role, said in roles.items())
    raw = bz2.compress(lines.encode())
    (folder / "shakespeare.jsonl.bz2").write_bytes(raw)
    monkeypatch.setattr(plays, "PLAYS", hashlib.sha256(raw).hexdigest())


def spoken(part, client):
    """A client's windows with what follows them, as text."""
    own = slice(*part.offsets[client : client + 2])
    codes = np.column_stack([part.x[own], part.y[own]])
    return ["".join(LETTERS[code] for code in row) for row in codes]


def test_roles_speak_in_windows_split_in_their_order(folder):
    with pytest.raises(FileNotFoundError, match=r"neither shakespeare.jsonl.bz2 nor LEAF's JSON files"):
        load_shakespeare()
    text = "To be, or not to be: that is the question"
    leaf = {"x": [text[i : i + 8] for i in range(20)], "y": list(text[8:28])}
    short = {"x": [text[:8]], "y": ["x"]}
    users = {"users": ["HAMLET", "GHOST"], "user_data": {"HAMLET": leaf, "GHOST": short}}
    (folder / "all_data.json").write_text(json.dumps(users))
    data = load_shakespeare(window=8)
    assert data.names == ("HAMLET",)
    said = "".join(LETTERS[code] for code in encoded(text[:28]))
    windows = ["".join(LETTERS[c] for c in row) for row in np.concatenate([data.train.x, data.test.x])]
    assert windows == [said[i : i + 8] for i in range(20)]
    assert [LETTERS[c] for c in np.concatenate([data.train.y, data.test.y])] == list(said[8:])
    assert data.train.x.dtype == np.uint8
    assert data.train.sizes.tolist() == [16]


def test_lines_are_split_before_there_are_windows(folder, monkeypatch):
    said = ["Who's there?", "Nay, answer me", "Long live the king!", "You come most", "carefully upon", "your hour."]
    roles = {"BERNARDO": said, "FRANCISCO": ["For this relief", "much thanks: 'tis", "cold"], "GHOST": ["Mark me."] * 3}
    roles["HAMLET"] = ["A little more than", "kin, and", "less than kind."]
    roles["LAERTES"] = ["My dread lord,", "Your leave and favour", "to return to France"]
    written(folder, monkeypatch, roles)
    whole, parted = (load_shakespeare(window=9, split=(0.5, 0.2, 0.3), split_lines=by) for by in (False, True))
    assert whole.names == (
        "Hamlet: BERNARDO",
        "Hamlet: FRANCISCO",
        "Hamlet: GHOST",
        "Hamlet: HAMLET",
        "Hamlet: LAERTES",
    )
    assert parted.names == ("Hamlet: BERNARDO", "Hamlet: LAERTES")  # the others' validation is shorter than a window
    windows = lambda text: [text[i : i + 10] for i in range(len(text) - 9)]
    # Of six lines 0.5, 0.2 and 0.3: the first part takes what is left over.
    for client, cut in enumerate([(said[:4], said[4:5], said[5:]), [[line] for line in roles["LAERTES"]]]):
        for part, lines in zip((parted.train, parted.validation, parted.test), cut, strict=True):
            assert spoken(part, client) == windows(" ".join(lines))
    in_order = [window for part in (whole.train, whole.validation, whole.test) for window in spoken(part, 0)]
    assert in_order == windows(" ".join(said))


def test_the_seed_draws_roles_and_who_of_them_joins_later(folder, monkeypatch):
    written(folder, monkeypatch, {f"R{i}": ["Mark me,", "and mark me well."] * 2 for i in range(9)})
    some = [load_shakespeare(window=9, roles=2, seed=seed).names for seed in range(6)]
    assert set(map(len, some)) == {2}
    assert len(set().union(*some)) > 3
    later = [load_shakespeare(window=9, unseen=0.2, seed=seed).unseen for seed in range(6)]
    assert {unseen.sum() for unseen in later} == {2}
    assert np.any(later, axis=0).sum() > 3


def test_text_without_lines_cannot_be_split_by_them(folder):
    leaf = {"users": ["HAMLET"], "user_data": {"HAMLET": {"x": ["To be, o"], "y": list("r not to be")}}}
    (folder / "all_data.json").write_text(json.dumps(leaf))
    with pytest.raises(ValueError, match="LEAF's files have no lines to split"):
        load_shakespeare(window=8, split_lines=True)
    with pytest.raises(ValueError, match=r"no role has 2 samples of 80 characters$"):
        load_shakespeare()


def test_text_is_put_together_from_all_of_its_windows_or_not_at_all(folder):
    """LEAF's own samples, and its training and test files, leave windows out: their letters in a row are no text."""
    text = "To be, or not to be: that is the question"
    windows = {"x": [text[i : i + 8] for i in range(20)], "y": list(text[8:28])}
    some = {name: own[::2] for name, own in windows.items()}
    (folder / "all_data.json").write_text(json.dumps({"users": ["HAMLET"], "user_data": {"HAMLET": some}}))
    with pytest.raises(ValueError, match="windows of HAMLET do not follow each other letter by letter"):
        load_shakespeare(window=8)
    for name in ("one", "other"):
        (folder / f"{name}.json").write_text(json.dumps({"users": ["HAMLET"], "user_data": {"HAMLET": windows}}))
    (folder / "all_data.json").unlink()
    with pytest.raises(ValueError, match="has user 'HAMLET' twice"):
        load_shakespeare(window=8)
