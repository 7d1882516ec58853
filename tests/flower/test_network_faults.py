"""What goes wrong on a network: what was not delivered was not sent, and nothing is lost by a crash."""

from __future__ import annotations

import shutil
from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, RecordDict
from silo_files import write_silos, write_study
from test_network_rounds import ROUNDS, distance, grid_of, method, silos, simulated, study, trained

import majorant as mj
from majorant.app.flower.apps import GridCarrier, client_app, serve
from majorant.app.flower.letters import Hello, Letter
from majorant.app.flower.post import ARRAYS, from_record, to_record
from majorant.app.flower.silo import Silo, told
from majorant.app.flower.study import read_study
from majorant.engines.deployment import Trained
from majorant.engines.remote.wire import Raw
from majorant.exchange.federation import federation
from majorant.exchange.participation import Participation

SILENT = {"timeout": 0.4, "minimum": 1}
AWAY = Participation(
    "b is away in round 2", lambda key, round, n: (jnp.arange(n) != 1) | (jnp.asarray(round) != 2), lambda n: 1.0
)


@pytest.fixture(scope="module")
def without_b():
    """The simulation in which silo b takes no part in round 2."""
    return simulated("fedem", participation=AWAY)


def changed(reply, arrays):
    """A reply with other arrays."""
    letter = from_record(reply.content)
    return Message(to_record(Letter(letter.kind, letter.facts, arrays(letter.arrays))), reply_to=reply)


def as_nan(raws):
    first = raws[0]
    size = int(np.prod(first.shape))
    return [Raw(first.dtype, first.shape, np.full(size, np.nan, first.dtype).tobytes()), *raws[1:]]


def of_negative_weight(raws):
    """The weight is the first array without a shape."""
    place = next(i for i, raw in enumerate(raws) if raw.shape == ())
    weight = -np.frombuffer(raws[place].data, raws[place].dtype)
    return [*raws[:place], raws[place]._replace(data=weight.tobytes()), *raws[place + 1 :]]


def complaint(reply, reason):
    """A refusal; its facts are as JSON as the reason is."""
    about = ConfigRecord({"kind": "refused", "facts": f'{{"name": "b", "reason": {reason}}}', "arrays": "[]"})
    return Message(RecordDict({"letter": about}), reply_to=reply)


def garbage(reply):
    content = RecordDict({"letter": reply.content["letter"]})
    data = b"\x80\x04garbage"
    content[ARRAYS] = ArrayRecord({"bytes": Array("uint8", (len(data),), "majorant.bytes", data)})
    return Message(content, reply_to=reply)


SPOILED = {
    "lost": lambda answer, old: None,
    "of an old round": lambda answer, old: old,
    "of another shape": lambda answer, old: changed(
        answer, lambda raws: [Raw(raws[0].dtype, (1, *raws[0].shape), raws[0].data), *raws[1:]]
    ),
    "larger than it says": lambda answer, old: changed(
        answer, lambda raws: [raws[0]._replace(data=raws[0].data * 2), *raws[1:]]
    ),
    "not finite": lambda answer, old: changed(answer, as_nan),
    "of a negative weight": lambda answer, old: changed(answer, of_negative_weight),
    "garbage": lambda answer, old: garbage(answer),
    "a line for the log": lambda answer, old: complaint(answer, '"no\\n2020-01-01 00:00:00 round 9' + "." * 5000 + '"'),
    "half of a character": lambda answer, old: complaint(answer, r'"\ud800"'),
    "NaN for JSON": lambda answer, old: complaint(answer, "NaN"),
}


@pytest.mark.parametrize("how", SPOILED)
def test_an_upload_that_does_not_arrive_is_as_if_its_silo_had_been_away(tmp_path, how, without_b):
    old = []

    def spoil(node, message, answer):
        letter, reply = from_record(message.content), answer()
        if letter.kind != "round" or node != 8:
            return reply
        if letter.facts["round"] == 1:
            old.append(Message(reply.content, reply_to=message))
        return SPOILED[how](reply, old[0]) if letter.facts["round"] == 2 else reply

    run = trained(tmp_path, study("fedem", flower=SILENT), spoil)
    assert distance(run.server, without_b.server) < 1e-5
    assert run.summary()["test_accuracy"]["mean"] == pytest.approx(without_b.summary()["test_accuracy"]["mean"])
    assert run.summary()["rejected"] == (0 if how == "lost" else 1)
    log = (tmp_path / "run" / "network.log").read_text().splitlines()
    assert [line[20:27] for line in log if "round" in line[20:27]] == ["round 1", "round 2", "round 3"]
    assert max(map(len, log)) < 1100


def lose_b_in_round_2(node, message, answer):
    letter, reply = from_record(message.content), answer()
    return None if letter.kind == "round" and letter.facts["round"] == 2 and node == 8 else reply


@pytest.mark.parametrize("name", ["median", "mocha", "chebyshev", "clustered"])
def test_who_reads_each_upload_bears_one_that_does_not_arrive(tmp_path, name):
    rule = {"combine": "median"} if name == "median" else {}
    which = study("fedavg" if rule else name, flower=SILENT, **rule)
    run = trained(tmp_path, which, lose_b_in_round_2)
    assert "round 2 of 3: 3 of 4 silos" in (tmp_path / "run" / "network.log").read_text()
    if name != "clustered":  # of which a simulation lets everybody take part
        exchange = {"exchange": which.federation(silos().spec).exchange} if rule else {}
        expected = simulated("fedavg" if rule else name, participation=AWAY, **exchange)
        assert distance(run.server, expected.server) < 1e-5


def test_an_evaluation_of_another_mixture_is_left_out_and_flowers_log_says_what_ours_does(tmp_path, caplog):
    def spoil(node, message, answer):
        reply = answer()
        letter = from_record(reply.content)
        if letter.kind != "evaluation" or node != 8:
            return reply
        return Message(to_record(letter._replace(facts=letter.facts | {"weights": [0.2] * 5})), reply_to=message)

    with caplog.at_level("INFO", "flwr"):
        run = trained(tmp_path, study("fedem", flower={"per_client_scores": True}), spoil)
    assert np.isnan(run.clients["test_accuracy"]).tolist() == [False, True, False, False]
    assert all(np.isfinite([line["train_loss"], line["test_loss"]]).all() for line in run.history)  # of the others
    log = [line[20:] for line in (tmp_path / "run" / "network.log").read_text().splitlines()]
    assert "left out: 'b' tells 5 weights of its model's mixture" in log
    flowers = [record.getMessage() for record in caplog.records if record.name == "flwr"]
    assert [line for line in flowers if line.startswith("majorant: ")] == [f"majorant: {line}" for line in log]


def test_a_server_that_is_stopped_in_a_round_goes_on_to_the_same_end(tmp_path):
    whole = trained(tmp_path / "whole", study("fedem"))

    def stop(node, message, answer):
        letter, reply = from_record(message.content), answer()  # the silo has done its work, and nobody hears of it
        if letter.kind == "round" and letter.facts["round"] == 2 and node == 9:
            raise SystemExit
        return reply

    with pytest.raises(SystemExit):
        trained(tmp_path, study("fedem"), stop)
    resumed = trained(tmp_path, study("fedem"), resume=True)
    assert distance(resumed.server, whole.server) == 0
    assert resumed.summary()["test_accuracy"]["mean"] == whole.summary()["test_accuracy"]["mean"]
    assert resumed.summary()["communication"]["bytes_up"] == whole.summary()["communication"]["bytes_up"]
    with pytest.raises(ValueError, match="another study"):
        trained(tmp_path, study("fedem", seed=4), resume=True)


def test_a_silo_that_comes_back_without_its_state_begins_anew_or_stops_the_run(tmp_path):
    def forget(node, message, answer):
        letter = from_record(message.content)
        if letter.kind == "round" and letter.facts["round"] == 2 and node == 8:
            shutil.rmtree(tmp_path / "b", ignore_errors=True)
        return answer()

    run = trained(tmp_path, study("fedem"), forget)
    assert run.rounds == ROUNDS
    assert run.history[-1]["participants"] == 4
    model = mj.load_model(tmp_path / "b" / "model", method("fedem"))
    x, y = silos().test.client(1)
    assert model.predict_proba(x).shape == (len(y), 2)
    shutil.rmtree(tmp_path / "run")
    with pytest.raises(ValueError, match="'b' has lost its private state"):
        trained(tmp_path, study("fedmm"), forget)


def test_a_silo_that_lost_its_state_and_does_not_begin_anew_is_as_one_that_is_silent(tmp_path, without_b):
    def forget(node, message, answer):
        letter = from_record(message.content)
        if letter.kind == "round" and letter.facts["round"] == 2 and node == 8:
            (tmp_path / "b").rename(tmp_path / "elsewhere")
        if letter.kind == "round" and letter.facts["round"] == 3 and (tmp_path / "elsewhere").exists():
            shutil.rmtree(tmp_path / "b", ignore_errors=True)
            (tmp_path / "elsewhere").rename(tmp_path / "b")
        return garbage(answer()) if letter.kind == "prepare" and (tmp_path / "elsewhere").exists() else answer()

    run = trained(tmp_path, study("fedem", flower={"minimum": 3}), forget)
    assert distance(run.server, without_b.server) < 1e-5
    shutil.rmtree(tmp_path / "run")
    with pytest.raises(ValueError, match="round 2 has 3 answers of 4 that it needs: nothing came from 'b'"):
        trained(tmp_path, study("fedem"), forget)


def test_a_silo_that_comes_later_is_given_a_model(tmp_path):
    """The one that the simulator gives to a newcomer, who tunes it in an order of its own."""
    which = study("fedavg_plus", flower={"clients": 3})
    grid = grid_of(tmp_path, which)
    grid.away = {10}

    def come(node, message, answer):
        if from_record(message.content).kind == "evaluate":
            grid.away = set()
        return answer()

    grid.spoil = come
    run = serve(which, GridCarrier(grid), tmp_path / "run", poll=0.0)
    assert run.data.names == ("a", "b", "c")
    given = mj.load_model(tmp_path / "d" / "model", method("fedavg_plus"))
    assert given.origin["client"] == "d"
    together = federation(method("fedavg_plus"), training=np.arange(3))
    x, y = silos().train.client(3)
    expected = Trained(together, run.server, which.config.seed, given.classes, given.features, 3).personalize(x, y)
    np.testing.assert_allclose(given.predict_proba(x), expected.predict_proba(x), rtol=1e-5)


def test_what_is_wrong_with_a_silos_rows_is_told_to_its_owner_alone(tmp_path):
    files = write_silos(tmp_path / "files")
    path = files / "a.csv"
    path.write_text(path.read_text().replace("\n5", "\nover fifty: a secret ", 1))
    found = read_study(write_study(tmp_path / "study.toml", files))
    silo = Silo(found, {"name": "a", "state": str(tmp_path / "a"), "data": str(path)})
    reply = silo.answer(told(Hello(run="0" * 32, settings=found.to_toml()), "hello"))
    assert reply.kind == "refused"
    assert "a secret" not in str(reply)
    assert "a secret" in (tmp_path / "a" / "problems.txt").read_text()


def test_parties_that_do_not_go_together_are_refused_before_training(tmp_path):
    which = study("fedem", flower={"wait": 0.5})
    with pytest.raises(ValueError, match="two silos are named 'a'"):
        serve(which, GridCarrier(grid_of(tmp_path, which, names="abca")), tmp_path / "run", poll=0.0)
    others = study("fedem", seed=9)
    with pytest.raises(ValueError, match="was given another study than the server \\(seed: 9 against 3\\)"):
        serve(which, GridCarrier(grid_of(tmp_path, others)), tmp_path / "run", poll=0.0)
    with pytest.raises(ValueError, match="3 of 4 silos are here after"):
        serve(which, GridCarrier(grid_of(tmp_path, which, names="abc")), tmp_path / "run", poll=0.0)
    twelve = tuple(range(12))
    other = lambda node: replace(silos().take(np.array([0])), classes=(*twelve, 99) if node.name == "c" else twelve)
    grid = grid_of(tmp_path, which)
    grid.app = client_app(which, rows=other)
    with pytest.raises(ValueError, match=r"\[3\] and 12 classes, 'c' .* \[3\] and 13 classes \(99 not at the other\)"):
        serve(which, GridCarrier(grid), tmp_path / "run", poll=0.0)
    assert not (tmp_path / "run").exists()
