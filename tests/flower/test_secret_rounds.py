"""Secure sums by letters: the numbers are those of the simulator's, whoever drops out, and nothing of one silo is seen."""

from __future__ import annotations

import pytest
from test_network_faults import AWAY
from test_network_rounds import ROUNDS, distance, grid_of, simulated, study, trained

import majorant as mj
from majorant.app.flower.apps import GridCarrier, serve
from majorant.app.flower.letters import Letter, Task
from majorant.app.flower.post import from_record
from majorant.app.flower.silo import Silo, told

CHANNEL = "secure-sum:4.0,bits=20,threshold=3"
SECURE = {"channel": mj.channel.secure_sum(4.0, bits=20, threshold=3)}
STEPS = ("keys", "shares", "round", "reveal")


def secret(name="fedem", **settings):
    """A study with a secure sum; silos that are silent are soon given up."""
    flower = {"timeout": 0.6, "minimum": 3} | settings.pop("flower", {})
    return study(name, channel=settings.pop("channel", [CHANNEL]), flower=flower, **settings)


def round_of(letter):
    """The round of which a letter is, 0 for all before training."""
    return letter.facts.get("round", round_of.last)


def silent(nodes, step, in_round):
    """Silos that are silent from a step of a round's sum on, until its end."""
    state = {"round": 0, "away": False}

    def spoil(node, message, answer):
        letter = from_record(message.content)
        if "round" in letter.facts:
            state["away"] &= letter.facts["round"] == state["round"]
            state["round"] = letter.facts["round"]
        if letter.kind == step and state["round"] == in_round:
            state["away"] = True
        return None if state["away"] and node in nodes and letter.kind in STEPS else answer()

    return spoil


@pytest.fixture(scope="module")
def whole():
    return simulated("fedem", **SECURE)


def test_the_sum_is_the_simulators_and_no_silo_is_seen(tmp_path, whole):
    seen = []

    def watch(node, message, answer):
        reply = answer()
        seen.append((from_record(message.content), from_record(reply.content)))
        return reply

    run = trained(tmp_path, secret(), watch)
    assert distance(run.server, whole.server) < 1e-5
    summary, expected = run.summary(), whole.summary()
    assert summary["test_accuracy"]["mean"] == pytest.approx(expected["test_accuracy"]["mean"])
    assert summary["test_loss"] == pytest.approx(expected["test_loss"], rel=1e-4)
    assert summary["communication"]["bytes_up"] == expected["communication"]["bytes_up"]
    replies = [reply for _, reply in seen]
    kinds = {reply.kind for reply in replies}
    assert kinds == {"introduction", "ready", "keys", "shares", "begun", "upload", "reveal", "evaluation"}
    assert all(not reply.facts["sums"] for reply in replies if reply.kind == "evaluation")
    assert all(reply.facts["train"] is None for reply in replies if reply.kind == "ready")
    uploads = [reply for reply in replies if reply.kind == "upload"]
    assert len(uploads) == 4 * ROUNDS
    assert len({reply.arrays[0].data[:8] for reply in uploads}) == len(uploads)
