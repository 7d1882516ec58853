"""What every algorithm promises, whatever it does: one suite over the whole zoo."""

from __future__ import annotations

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import majorant as mj
import zoo
from majorant.core import ClientData, client_key, round_key, tree_bytes
from majorant.data.federated import FederatedData
from majorant.engines.resident import Resident
from majorant.engines.run import Run
from majorant.engines.settings import run_settings
from majorant.engines.simulation import Simulation
from majorant.engines.snapshots import Snapshot
from majorant.exchange._stage import LOSS_STREAM, STAGES_STREAM
from majorant.exchange.federation import Federation, federation
from majorant.exchange.participation import Participation
from records import over

ROUNDS = 4
TRAINING = np.flatnonzero(~zoo.problem().unseen)
every_algorithm = pytest.mark.parametrize("name", zoo.ZOO)

LONG = 1000  # rounds; after them nobody takes part, and then two do
EVERYONE_FOR_LONG = Participation(
    "everyone for long",
    lambda key, round, clients: (
        (round <= LONG) | ((round == LONG + 2) & ((jnp.arange(clients) == 0) | (jnp.arange(clients) == 3)))
    ),
    lambda clients: 1 - 1e-12,  # 1 in the precision of the programs, which are those of rounds that miss someone
)


def participation(name: str) -> Participation | None:
    """Who takes part in the reference run: everyone, and later nobody and two, in one program where that is allowed."""
    return None if zoo.algorithm(name).traits.needs_everyone else EVERYONE_FOR_LONG


def simulate(name: str, data: FederatedData | None = None, **options) -> Run:
    options = over({"rounds": ROUNDS, "evaluation": mj.Evaluation(every=2)} | zoo.ZOO[name].options, options)
    return mj.simulate(zoo.algorithm(name), zoo.problem() if data is None else data, **options)


def simulate_as_reference(name: str, data: FederatedData | None = None, **options) -> Run:
    """With the programs of the reference run."""
    return simulate(name, data, participation=participation(name), **options)


@functools.cache
def reference(name: str) -> tuple[Run, Snapshot]:
    """The run that others are compared with, and its state after two rounds."""
    halfway = []
    keep = mj.Evaluation(report=lambda records, snapshot: halfway.append(snapshot()))
    run = simulate_as_reference(name, evaluation=keep)
    return run, halfway[0]


def assert_same(run: Run, other: Run, tolerance: float = 1e-6) -> None:
    """The same server, private states and scores (states of single samples may be padded differently)."""
    assert_close(run.snapshot.server, other.snapshot.server, tolerance)
    assert_close(run.snapshot.clients, other.snapshot.clients, tolerance)
    for mine, theirs in zip(run.scores, other.scores, strict=True):
        assert_close(mine.values, theirs.values, 10 * tolerance)


def assert_close(tree, other, tolerance: float) -> None:
    for a, b in zip(jax.tree.leaves(tree), jax.tree.leaves(other), strict=True):
        common = tuple(slice(min(n, m)) for n, m in zip(a.shape, b.shape, strict=True))
        np.testing.assert_allclose(a[common], b[common], rtol=tolerance, atol=tolerance)


def all_finite(tree) -> bool:
    return all(np.isfinite(a).all() for a in jax.tree.leaves(tree))


def assert_equal(tree, other) -> None:
    jax.tree.map(np.testing.assert_array_equal, tree, other)


@every_algorithm
def test_a_new_hyperparameter_value_compiles_nothing_and_changes_the_result(name, monkeypatch):
    run, _ = reference(name)
    key, _, value = zoo.ZOO[name].hyper
    with monkeypatch.context() as patch:
        patch.setattr(jax.stages.Lowered, "compile", lambda self: pytest.fail("compiled anew"))
        changed = simulate_as_reference(name, hyper={key: value})
    distance = lambda a, b: float(np.abs(a.astype(float) - b).max())
    moved = jax.tree.map(distance, states_and_value(run), states_and_value(changed))
    assert max(jax.tree.leaves(moved)) > 1e-4


def states_and_value(run: Run):
    return run.snapshot.clients, run.snapshot.server.value


@every_algorithm
def test_runs_side_by_side_are_the_single_runs(name):
    """Two seeds × two values of a hyperparameter: what the runs of one seed share are their random numbers only."""
    key, value, other = zoo.ZOO[name].hyper
    runs = simulate(name, seeds=2, hyper=None, grid={key: [value, other]})
    assert_same(runs[0], reference(name)[0])
    assert_same(runs[1], simulate_as_reference(name, seed=1))
    assert_same(runs[3], simulate_as_reference(name, seed=1, hyper={key: other}))


@every_algorithm
def test_types_stay_as_they_were(name):
    run, start = reference(name)[0], run_start(name)
    types = lambda tree: jax.tree.map(lambda a: a.dtype, tree)
    assert types(run.snapshot.server) == types(start.server)
    assert types(run.snapshot.clients) == types(start.clients)
    numbers = jax.tree.leaves((start.server, start.clients))
    assert {str(a.dtype) for a in numbers} <= {"bool", "float32", "int32", "uint32"}  # the last: a random key's data


@functools.cache
def run_start(name: str) -> Snapshot:
    """The state before round 1."""

    def stop(fresh: Snapshot) -> Snapshot:
        raise Started(fresh)

    with pytest.raises(Started) as started:
        simulate_as_reference(name, resume=stop)
    return started.value.args[0]


class Started(Exception):
    """A run was about to train."""


@every_algorithm
def test_what_travels_is_the_view_and_the_upload(name):
    """Nothing else does, and all of it is counted; peers send points, and what one sends another receives."""
    algorithm, data = zoo.algorithm(name), client(0)

    def message(key):
        view = algorithm.server.address(algorithm.server.broadcast(start_of(algorithm, key), key), data.slot)
        upload, _ = algorithm.client.update(view, algorithm.client.init(view, data, key), data, key)
        return view, upload, algorithm.client.origin(view)

    view, upload, origin = jax.eval_shape(message, jax.random.key(0))
    shapes = lambda tree: jax.tree.map(lambda a: (a.shape, a.dtype), tree)
    assert shapes(upload.value) == shapes(origin)
    assert all(value.shape == () for value in upload.info.values())
    if zoo.ZOO[name].sends_points:
        assert shapes(upload.value) == shapes(view.value)
    bill, messages = reference(name)[0].communication[0], ROUNDS * zoo.ZOO[name].messages
    if messages and zoo.ZOO[name].exchange is not None:
        assert bill["bytes_up"] == bill["bytes_down"] == messages * tree_bytes(upload.value)
    elif messages:
        assert bill["bytes_up"] == messages * tree_bytes(upload._replace(travels=())) * bool(upload.value)
        assert bill["bytes_down"] == messages * tree_bytes(view._replace(travels=())) * bool(
            jax.tree.leaves(view.value)
        )


def start_of(algorithm: mj.Algorithm, key) -> mj.Server:
    """The server before its set-up, as an engine makes it."""
    number = jnp.int32(0)
    return algorithm.server.init(key)._replace(round=number, rounds=number, terms=Federation(algorithm).terms(5))


def client(index: int) -> ClientData:
    x, y = zoo.problem().train.client(index)
    return ClientData(jnp.asarray(x), jnp.asarray(y), jnp.int32(len(y)), jnp.int32(index), jnp.int32(index))


@every_algorithm
def test_ids_are_opaque(name):
    """Other ids draw other random numbers; what is kept for each client goes by slots, which the engine gives."""
    engine = engine_of(name)
    (bucket,) = engine.data
    engine.data = (bucket._replace(train=bucket.train._replace(id=bucket.train.id + 1_000_003)),)
    server, clients = trained(name, engine)
    run = reference(name)[0]
    assert all_finite((server, clients))
    if name in ("fedem:newton", "surrogate:bohning"):  # which draw nothing
        assert_close((server, clients), (run.snapshot.server, run.snapshot.clients), 1e-6)
    elif zoo.ZOO[name].exchange is None:  # all clients are heard, as before: the same scores but for the draws
        assert moved(server.value, run.snapshot.server.value) or not jax.tree.leaves(server.value)
        still = run_start(name).clients
        for place in range(len(TRAINING)):
            assert moved(clients, still, (0, place)) == moved(run.snapshot.clients, still, (0, place))


LOST = mj.channel.lossy(0.5)


@pytest.mark.parametrize("name", [*zoo.MECHANISMS, "fedmm", "acd", "pfedme"])
def test_a_message_that_is_lost_changes_nobody(name):
    """A client whose message is lost is one that did not take part: nothing that it prepared is committed."""
    if zoo.algorithm(name).traits.needs_everyone:
        with pytest.raises(ValueError, match=r"must see every client in every round.*lossy"):
            simulate(name, channel=LOST)
        return
    seen = []
    record = lambda records, snapshot: seen.append(snapshot())
    options = {"rounds": 1, "evaluation": mj.Evaluation(every=1, report=record), "channel": LOST}
    run = simulate(name, resume=lambda fresh: seen.append(fresh) or fresh, **options)
    start, end = seen
    key = round_key(jax.random.key(0), 1)
    draws = [jax.random.fold_in(client_key(key, i), STAGES_STREAM) for i in TRAINING]
    arrived = [bool(jax.random.bernoulli(jax.random.fold_in(k, LOSS_STREAM), 0.5)) for k in draws]
    sends = jax.tree.leaves(zoo_upload(name).value)
    assert not sends or (any(arrived) and not all(arrived))
    for place, there in enumerate(arrived):
        if sends and not there:
            assert not moved(end.clients, start.clients, (0, place))
    assert all_finite(run.snapshot.server)


def zoo_upload(name: str) -> mj.Upload:
    """The shapes of what a client of the zoo's algorithm sends."""
    algorithm, data = zoo.algorithm(name), client(0)

    def upload(key):
        view = algorithm.server.address(algorithm.server.broadcast(start_of(algorithm, key), key), data.slot)
        return algorithm.client.update(view, algorithm.client.init(view, data, key), data, key)[0]

    return jax.eval_shape(upload, jax.random.key(0))


@every_algorithm
def test_a_private_state_reaches_other_clients_through_its_upload_only(name):
    """Within a round, before the server has averaged, another client's private state changes nothing."""
    halfway = reference(name)[1]
    poison = lambda a: np.concatenate([a[:, :1] + np.float32(0.25), a[:, 1:]], axis=1) if a.dtype == np.float32 else a
    poisoned = halfway._replace(clients=jax.tree.map(poison, halfway.clients))
    go_on = lambda start: simulate_as_reference(name, rounds=3, resume=start).snapshot
    after, after_poison = go_on(halfway), go_on(poisoned)
    others = lambda tree: jax.tree.map(lambda a: a[:, 1:], tree)
    assert_equal(others(after.clients), others(after_poison.clients))
    assert moved(after.clients, after_poison.clients, (0, 0)) or not jax.tree.leaves(halfway.clients)


@every_algorithm
def test_resuming_is_bitwise(name):
    run, halfway = reference(name)
    resumed = simulate_as_reference(name, resume=halfway)
    assert int(halfway.server.round[0]) == ROUNDS // 2
    assert_equal(resumed.snapshot.server, run.snapshot.server)
    assert_equal(resumed.snapshot.clients, run.snapshot.clients)
    assert resumed.communication == run.communication
    assert resumed.history[-1]["test_loss"] == run.history[-1]["test_loss"]


@every_algorithm
def test_one_client_at_a_time_from_files_and_with_more_padding_changes_nothing(name, tmp_path):
    """The streamed engine, with chunks of a single client, which the algorithm sees without a batch axis."""
    assert_same(
        simulate(name, resources=mj.Resources(clients="map", extra_padding=7, state_folder=tmp_path)),
        reference(name)[0],
    )


@pytest.mark.parametrize("name", zoo.MECHANISMS)
def test_streaming_clients_through_in_chunks_changes_nothing(name, tmp_path):
    row = zoo.problem().train.x[0].nbytes
    budget = 8 * 3 * max(zoo.SIZES) * row  # chunks of three clients; one of the six places is a filler
    resources = mj.Resources(memory_budget=budget, state_folder=tmp_path)
    run = simulate_as_reference(name, resources=resources)
    assert_same(run, reference(name)[0])
    if participation(name) is not None:
        late = at_round(LONG, run.snapshot)
        alone = simulate_as_reference(name, rounds=LONG + 1, resume=late, resources=resources).snapshot
        assert_equal(alone.clients, late.clients)


@pytest.mark.parametrize("name", zoo.MECHANISMS)
def test_resident_clients_one_at_a_time_change_nothing(name):
    assert_same(simulate(name, resources=mj.Resources(clients="map")), reference(name)[0])


@every_algorithm
def test_a_client_with_absurd_features_is_rejected_and_harms_nobody(name):
    absurd = 1
    train = zoo.problem().train
    rows = (np.repeat(np.arange(len(zoo.SIZES)), train.sizes) == absurd)[:, None]
    x = np.where(rows, np.float32(3e38) * np.sign(train.x), train.x)
    run = simulate_as_reference(name, dataclasses.replace(zoo.problem(), train=train._replace(x=x)))
    assert all_finite((run.snapshot.server, run.snapshot.clients))
    assert run.summary()["rejected"] == (ROUNDS if zoo.ZOO[name].rejects else 0)
    if zoo.ZOO[name].forgets:  # all the same as if the client had no samples
        engine = engine_of(name)
        (bucket,) = engine.data
        sizes = jnp.where(bucket.train.slot == absurd, 0, bucket.train.size)
        engine.data = (bucket._replace(train=bucket.train._replace(size=sizes)),)
        server, clients = trained(name, engine)
        assert_close(run.snapshot.server, server, 1e-6)
        others = lambda tree: jax.tree.map(lambda a: np.delete(a, absurd, axis=1), tree)
        assert_close(others(run.snapshot.clients), others(clients), 1e-6)


def engine_of(name: str) -> Resident:
    """The engine of the reference run before it has started, for tests that change its arrays."""
    entry = zoo.ZOO[name]
    settings = run_settings(zoo.algorithm(name), 0, None, entry.options["hyper"], None)
    together = federation(
        zoo.algorithm(name),
        training=TRAINING,
        participation=participation(name),
        exchange=entry.options.get("exchange"),
    )
    engine = Simulation(together, zoo.problem(), settings, ROUNDS).engine
    assert isinstance(engine, Resident)
    return engine


def trained(name: str, engine: Resident):
    """Server and clients of the (only) bucket after all rounds, clients in the order of their ids."""
    key, value, _ = zoo.ZOO[name].hyper
    engine.start({key: jnp.full(1, value)}, ROUNDS)
    engine.block(ROUNDS)
    order = np.argsort(np.asarray(engine.data[0].train.slot))
    server, clients = jax.tree.map(np.asarray, (engine.server, engine.clients[0].state))
    return server, jax.tree.map(lambda a: a[:, order], clients)


@every_algorithm
def test_nobody_changes_nothing_and_two_change_themselves(name):
    algorithm, seen = zoo.algorithm(name), []
    record = lambda records, snapshot: seen.append(snapshot())
    options = {"rounds": LONG + 2, "evaluation": mj.Evaluation(every=1, report=record)}
    options["participation"] = EVERYONE_FOR_LONG
    if algorithm.traits.needs_everyone:
        with pytest.raises(ValueError, match="must see every client in every round"):
            simulate(name, **options)
        return
    start = at_round(LONG, run_start(name), planned=LONG + 2)
    simulate(name, resume=start, **options)
    empty, two = seen
    assert empty.server.round.tolist() == [LONG + 1]
    if not algorithm.traits.moves_alone:
        assert_equal(empty.server._replace(round=start.server.round), start.server)
    assert_equal(empty.clients, start.clients)
    absent = lambda tree: jax.tree.map(lambda a: a[:, [1, 2, 4]], tree)
    assert_equal(absent(two.clients), absent(start.clients))
    for place in (0, 0), (0, 3):
        assert moved(two.clients, start.clients, place) or not jax.tree.leaves(start.clients)
    assert moved(two.server.value, start.server.value) or not jax.tree.leaves(start.server.value)


def at_round(number: int, snapshot: Snapshot, planned: int = LONG) -> Snapshot:
    """The snapshot, as if that many rounds had been made."""
    clock = {name: np.full_like(snapshot.server.round, n) for name, n in (("round", number), ("rounds", planned))}
    return snapshot._replace(server=snapshot.server._replace(**clock))


def four(probability: float) -> Participation:
    """All but client 1; how many go side by side depends on the probability."""
    there = lambda key, round, clients: jnp.arange(clients) != 1
    return Participation(f"four by {probability}", there, lambda clients: probability)


def test_those_who_take_part_may_be_gathered_in_chunks_that_do_not_divide_them():
    """Three at a time or all at once, where every upload is seen by itself: who is absent overwrites nobody's."""
    few, many = (simulate("gossip:ring", rounds=1, participation=four(p)) for p in (0.4, 1 - 1e-12))
    assert_same(few, many)


def moved(tree, other, place: tuple[int, ...] = ()) -> bool:
    """Whether the trees differ (at a place of their leading axes)."""
    return any(bool((a[place] != b[place]).any()) for a, b in zip(*map(jax.tree.leaves, (tree, other)), strict=True))


@every_algorithm
def test_the_order_of_the_clients_does_not_matter(name):
    """Rows of the engine's arrays are permuted: ids, which define a client's randomness, travel with them."""
    order = np.array([3, 0, 4, 1, 2])
    run, engine = reference(name)[0], engine_of(name)
    engine.data = jax.tree.map(lambda a: a[order], engine.data)
    server, clients = trained(name, engine)
    assert_close(server, run.snapshot.server, 1e-6)
    assert_close(clients, run.snapshot.clients, 1e-6)


@every_algorithm
def test_a_client_that_joins_is_served_with_and_without_samples(name):
    run = reference(name)[0]
    x, y = zoo.problem().train.client(zoo.UNSEEN)
    nothing = run.deployment.personalize(x[:0], y[:0], room=len(x))  # in the room of the others: one program for both
    for model in (run.personalize((x, y)), nothing):
        probabilities = model.predict_proba(x)
        assert probabilities.shape == (len(x), 2)
        np.testing.assert_allclose(probabilities.sum(axis=1), 1, atol=1e-5)
    assert np.isfinite(run.scores[0].values["test_loss"][zoo.UNSEEN])
