"""Letters as Flower carries them: what comes is what was sent; all else is refused, and nothing in it is run."""

from __future__ import annotations

import json
import pickle
import sys
from fractions import Fraction

import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict
from test_network_rounds import study, trained

from majorant.app.flower import post
from majorant.app.flower.letters import Letter
from majorant.engines.remote.wire import Raw, Refused

LETTER = Letter("upload", {"round": 3}, [Raw("float32", (1,), bytes(4)), Raw("int8", (2,), b"ab")])


def record(data=b"abcd", form=post.FORM, **about):
    """A letter of our form with something else in it."""
    usual = {"kind": "upload", "facts": "{}", "arrays": json.dumps([["uint8", [4], 4]])}
    arrays = ArrayRecord({"bytes": Array("uint8", (len(data),), form, data)})
    return RecordDict({post.ABOUT: ConfigRecord(usual | about), post.ARRAYS: arrays})


def test_a_letter_comes_as_it_was_sent():
    assert post.from_record(post.to_record(LETTER)) == LETTER
    assert post.from_record(record()).arrays == [Raw("uint8", (4,), b"abcd")]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (RecordDict(), "no letter of ours"),
        (record(kind=3), "no letter of ours"),
        (record(facts="{"), "not JSON"),
        (record(facts="[" * 100_000), "not JSON"),
        (record(facts='{"loss": NaN}'), "not JSON"),
        (record(facts='{"name": "\\ud800"}'), "not JSON"),
        (record(facts="[]"), "not a record"),
        (record(facts=json.dumps({"name": "x" * 400})), "bytes of facts, more than 300"),
        (record(arrays="{}"), "does not say what its arrays are"),
        (record(arrays='[["uint8", [4], -4]]'), "does not say what its arrays are"),
        (record(arrays='[["uint8", 4, 4]]'), "without a shape"),
        (record(arrays='[["uint8", [4], 5]]'), "has 4 bytes of arrays, and speaks of 5"),
        (record(data=b"abcd" * 100), "has 400 bytes of arrays, and speaks of 4"),
        (record(form="numpy.ndarray"), "has 0 bytes of arrays"),
    ],
)
def test_what_is_no_letter_is_refused(content, words, monkeypatch):
    monkeypatch.setattr(post, "FACTS_LIMIT", 300 if "300" in words else post.FACTS_LIMIT)
    with pytest.raises(Refused, match=words):
        post.from_record(content)


def test_nothing_is_unpickled(tmp_path):
    """Python's own hook is told of everything that a pickle looks up; it cannot be taken away again."""
    found, listening = [], [True]

    def hear(event, given):
        if listening[0] and event == "pickle.find_class":
            found.append(given)

    sys.addaudithook(hear)
    try:
        pickle.loads(pickle.dumps(Fraction(1)))
        assert found, "the hook hears nothing"
        found.clear()
        trained(tmp_path, study("fedem", rounds=1, evaluate_every=1))
    finally:
        listening[0] = False
    assert found == []
