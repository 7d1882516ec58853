"""Secure sums by letters: the simulator's numbers, whoever drops out, and nothing of a single silo is seen."""

from __future__ import annotations

from fractions import Fraction

import jax.numpy as jnp
import pytest
from flwr.app import Message
from silo_files import write_silos, write_study
from test_network_rounds import ROUNDS, distance, method, silos, simulated, study, trained

import majorant as mj
from majorant.app.flower.letters import Hello, Task
from majorant.app.flower.post import from_record, to_record
from majorant.app.flower.silo import Silo, told
from majorant.app.flower.study import read_study
from majorant.engines.remote.sums import evaluation_numbers, summed_evaluation
from majorant.exchange.participation import Participation

CHANNEL = "secure-sum:4.0,bits=20,threshold=3"
SECURE = {"channel": mj.channel.secure_sum(4.0, bits=20, threshold=3)}
SMALL = 0.05  # a range that some updates of the first rounds pass
STEPS = ("keys", "shares", "round", "reveal")


def secret(name="fedem", **settings):
    """A study with a secure sum; silos that are silent are soon given up."""
    flower = {"timeout": 0.6, "minimum": 3} | settings.pop("flower", {})
    return study(name, channel=settings.pop("channel", [CHANNEL]), flower=flower, **settings)


def silent(nodes, plan):
    """Silos that are silent from a step of a round's sum on, until its end; ``plan`` has the step of each round."""
    state = {"round": 0, "away": False}

    def spoil(node, message, answer):
        letter = from_record(message.content)
        if letter.facts.get("round", state["round"]) != state["round"] or letter.kind == "evaluate":
            state.update(round=letter.facts["round"], away=False)
        if letter.kind == plan.get(state["round"]) and not (letter.kind == "keys" and letter.facts["round"] == 0):
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


def test_a_drop_out_at_any_step_is_survived(tmp_path):
    """A silo that is lost before its vector has come is out of the sum; one that is lost after it is in."""
    run = trained(tmp_path, secret(rounds=4, evaluate_every=4), silent({8}, dict(enumerate(STEPS, 1))))
    away = Participation("b", lambda key, round, n: (jnp.arange(n) != 1) | (jnp.asarray(round) > 3), lambda n: 1.0)
    expected = mj.simulate(method("fedem"), silos(), rounds=4, seed=3, participation=away, **SECURE)
    assert distance(run.server, expected.server) < 1e-5
    assert run.summary()["rejected"] == 0
    log = (tmp_path / "run" / "network.log").read_text()
    assert [f"round {n} of 4: {heard} of 4 silos" in log for n, heard in ((1, 3), (2, 3), (3, 3), (4, 4))] == [True] * 4


def test_keys_and_shares_that_are_none_leave_a_silo_out_and_the_others_go_on(tmp_path):
    nothing = {"keys": {"keys": ["00ff", "00ff"]}, "shares": {"shares": {}}}
    wrong = {1: "keys", 2: "shares"}  # by round
    at = [0]

    def spoil(node, message, answer):
        letter, reply = from_record(message.content), answer()
        at[0] = letter.facts.get("round", at[0])
        if node != 8 or letter.kind != wrong.get(at[0]):
            return reply
        given = from_record(reply.content)
        return Message(to_record(given._replace(facts=given.facts | nothing[given.kind])), reply_to=message)

    run = trained(tmp_path, secret(), spoil)
    away = Participation("b", lambda key, round, n: (jnp.arange(n) != 1) | (jnp.asarray(round) > 2), lambda n: 1.0)
    assert distance(run.server, simulated("fedem", participation=away, **SECURE).server) < 1e-5
    log = (tmp_path / "run" / "network.log").read_text()
    assert [f"left out: the {what} of 'b' are of no use" in log for what in ("keys", "shares")] == [True, True]


def test_with_too_few_left_nothing_is_opened_and_the_run_can_be_resumed(tmp_path, whole):
    for attempt, step in enumerate(STEPS):
        with pytest.raises(ValueError, match=r"round 2 stops: 2 members have .*a secure sum needs 3.*Resume"):
            trained(tmp_path, secret(), silent({8, 9}, {2: step}), resume=attempt > 0)
    run = trained(tmp_path, secret(), resume=True)
    assert distance(run.server, whole.server) < 1e-5


def test_a_sum_that_has_too_few_for_the_study_is_not_opened(tmp_path):
    """Three of four would be enough for the threshold: opened now and, later, with the fourth, they would tell it."""
    kinds = []

    quiet = silent({8}, {1: "round"})

    def spoil(node, message, answer):
        kinds.append(from_record(message.content).kind)
        return quiet(node, message, answer)

    with pytest.raises(ValueError, match="round 1 stops: it has 3 answers of 4 that it needs: the sum is not opened"):
        trained(tmp_path, secret(flower={"minimum": 4}), spoil)
    assert kinds[-1] == "round"


def test_what_does_not_fit_the_range_is_caught_before_it_is_masked(tmp_path):
    """In so small a range some silos' updates do not fit: they are rejected, and the others' sum is right."""
    small = mj.channel.secure_sum(SMALL, bits=20, threshold=2)
    run = trained(tmp_path, secret(channel=[f"secure-sum:{SMALL},bits=20"], flower={"minimum": 2}))
    expected = simulated("fedem", channel=small)
    assert 0 < run.summary()["rejected"] == expected.summary()["rejected"] < 4 * ROUNDS
    assert distance(run.server, expected.server) < 1e-5


def test_a_silo_whose_model_fails_on_test_samples_alone_is_not_lost():
    both = [{"train": (5, 1.0, 2.0), "test": (2, None, None)}, {"train": (3, 2.0, 1.0), "test": (1, 0.5, 1.0)}]
    total = [sum(map(Fraction, numbers)) for numbers in zip(*(evaluation_numbers(s, ()) for s in both), strict=True)]
    sums, lost, _ = summed_evaluation(total, ())
    assert lost == 0
    assert sums == {"train": (8, 3.0, 3.0), "test": (3, None, None)}


def test_a_silo_says_nothing_of_its_own_outside_of_a_sum(tmp_path):
    said = []

    def ask_plainly(node, message, answer):
        letter = from_record(message.content)
        reply = answer()
        if letter.kind in ("welcome", "round", "evaluate") and node == 8:
            facts = Task.model_validate(letter.facts).model_copy(update={"secret": None, "each": True})
            message.content = to_record(told(facts, letter.kind, letter.arrays))
            said.append(from_record(answer().content))
        return reply

    trained(tmp_path, secret(), ask_plainly)
    assert {letter.kind for letter in said} == {"refused"}
    assert all("secure sum" in letter.facts["reason"] and not letter.arrays for letter in said)


def test_a_silo_introduces_its_table_without_numbers(tmp_path):
    files = write_silos(tmp_path / "files")
    path = write_study(tmp_path / "study.toml", files, more='channel = ["secure-sum:8.0"]')
    found = read_study(path)
    silo = Silo(found, {"name": "a", "state": str(tmp_path / "a"), "data": str(files / "a.csv")})
    letter = silo.answer(told(Hello(run="0" * 32, settings=found.to_toml()), "hello"))
    columns = {column["name"]: column for column in letter.facts["table"]["columns"]}
    assert columns["age"]["moments"] == [{"count": 0, "mean": 0.0, "scale": 0.0}]
    assert columns["ward"]["counts"] == {"x": 0, "y": 0}
