"""What every algorithm promises, whatever it does: one suite over the whole zoo."""

from __future__ import annotations

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import zoo

import majorant as mj
from majorant.communication.participation import Participation, full
from majorant.core import ClientData, all_finite, round_key, tree_bytes
from majorant.data.federated import FederatedData, Ragged
from majorant.engines import rounds as engine
from majorant.engines.run import Run
from majorant.engines.simulator import Simulation, Snapshot, run_settings

ROUNDS = 4
every_algorithm = pytest.mark.parametrize("name", list(zoo.ZOO))


def simulate(name: str, data: FederatedData | None = None, **options) -> Run:
    key, value, _ = zoo.ZOO[name].hyper
    options = {"rounds": ROUNDS, "evaluate_every": 2, "hyper": {key: value}} | options
    return mj.simulate(zoo.algorithm(name), zoo.problem() if data is None else data, **options)


@functools.cache
def reference(name: str) -> tuple[Run, Snapshot]:
    """The run that others are compared with, and its state after two rounds."""
    halfway = []
    run = simulate(name, on_evaluation=lambda records, snapshot: halfway.append(snapshot()))
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


def assert_equal(tree, other) -> None:
    jax.tree.map(np.testing.assert_array_equal, tree, other)


def client(data: FederatedData, index: int) -> ClientData:
    x, y = data.train.client(index)
    return ClientData(jnp.asarray(x), jnp.asarray(y), jnp.int32(len(y)), jnp.int32(index))


@every_algorithm
def test_a_new_hyperparameter_value_compiles_nothing_and_changes_the_result(name):
    run, _ = reference(name)
    key, _, value = zoo.ZOO[name].hyper
    changed = simulate(name, hyper={key: value})
    assert changed.seconds["compile"] == 0
    moved = jax.tree.map(lambda a, b: np.abs(a - b).max(), run.snapshot.clients, changed.snapshot.clients)
    moved_server = jax.tree.map(lambda a, b: np.abs(a - b).max(), run.server.value, changed.server.value)
    assert max(map(float, jax.tree.leaves((moved, moved_server)))) > 1e-4


@every_algorithm
def test_runs_side_by_side_are_the_single_runs(name):
    both = simulate(name, seeds=2)
    assert_same(both[0], reference(name)[0])
    assert_same(both[1], simulate(name, seed=1))


@every_algorithm
def test_types_stay_as_they_were(name):
    algorithm, run = zoo.algorithm(name), reference(name)[0]
    key = jax.random.key(0)
    server = jax.eval_shape(algorithm.init, key)
    types = lambda tree: jax.tree.map(lambda a: jnp.asarray(a).dtype, tree)
    assert types(run.server.value) == types(server.value)
    assert types(run.server.state) == types(run_start(name).server.state)
    assert types(run.snapshot.clients) == types(run_start(name).clients)
    assert all(a.dtype in (jnp.float32, jnp.int32) for a in jax.tree.leaves((server.value, run.snapshot.clients)))


@functools.cache
def run_start(name: str) -> Snapshot:
    """The state before round 1."""
    seen = []
    simulate(name, resume=lambda fresh: seen.append(fresh) or fresh)
    return seen[0]


@every_algorithm
def test_padding_is_invisible(name):
    assert_same(simulate(name, extra_padding=7), reference(name)[0])


@every_algorithm
def test_what_travels_is_the_view_and_the_upload(name):
    algorithm, run = zoo.algorithm(name), reference(name)[0]
    entry, data = zoo.ZOO[name], client(zoo.problem(), 0)
    view = algorithm.address(algorithm.broadcast(jax.tree.map(jnp.asarray, run.server), jax.random.key(1)), data.id)
    state = jax.tree.map(lambda a: jnp.asarray(a[0, 0]), run.snapshot.clients)
    upload, _ = algorithm.client_update(view, cut(algorithm, view, state, data), data, jax.random.key(2))
    if entry.sends_points and name != "local":
        shapes = lambda tree: jax.tree.map(lambda a: (a.shape, a.dtype), tree)
        assert shapes(upload.value) == shapes(algorithm.origin(view)) == shapes(view.value)
    messages = ROUNDS * (len(zoo.SIZES) - 1)
    assert run.communication[0]["bytes_up"] == messages * tree_bytes(upload.value)
    assert run.communication[0]["bytes_down"] == messages * tree_bytes(view.value)
    assert all(v.shape == () for v in upload.info.values())


def cut(algorithm, view, state, data: ClientData):
    """A client's state from a snapshot, without the padding of states of single samples."""
    like = jax.eval_shape(algorithm.init_client, view, data, jax.random.key(0))
    return jax.tree.map(lambda a, b: a[tuple(slice(n) for n in b.shape)], state, like)


@every_algorithm
def test_private_states_meet_in_uploads_only(name):
    """Another client's private state changes nothing for a client, and nothing at the server if uploads are the same."""
    algorithm, run = zoo.algorithm(name), reference(name)[0]
    server, data = jax.tree.map(jnp.asarray, run.server), zoo.problem()
    key = round_key(jax.random.key(0), ROUNDS + 1)
    view = algorithm.broadcast(server, key)
    stacked = jax.tree.map(lambda *a: jnp.stack(a), *(padded(data, t) for t in (0, 1, 3)))
    states = jax.tree.map(lambda a: jnp.asarray(a[0, :3]), run.snapshot.clients)
    poisoned = jax.tree.map(lambda a: a.at[0].add(0.25) if a.dtype == jnp.float32 else a, states)
    update = lambda states: jax.vmap(
        lambda state, data: engine.guarded_update(algorithm, view, key, state, data, jnp.asarray(True))
    )(states, stacked)
    (uploads, after, _), (uploads_, after_, _) = jax.jit(update)(states), jax.jit(update)(poisoned)
    others = lambda tree: jax.tree.map(lambda a: a[1:], tree)
    assert_equal(others((uploads, after)), others((uploads_, after_)))
    if jax.tree.leaves(states):
        touched = jax.tree.leaves(jax.tree.map(lambda a, b: bool((a[0] != b[0]).any()), after, after_))
        assert any(touched)


def padded(data: FederatedData, index: int) -> ClientData:
    longest, own = max(zoo.SIZES), client(data, index)
    extra = longest - own.y.shape[0]
    return own._replace(x=jnp.pad(own.x, ((0, extra), (0, 0))), y=jnp.pad(own.y, (0, extra)))


@every_algorithm
def test_resuming_is_bitwise(name):
    run, halfway = reference(name)
    resumed = simulate(name, resume=halfway)
    assert int(halfway.server.round[0]) == ROUNDS // 2
    assert_equal(resumed.snapshot.server, run.snapshot.server)
    assert_equal(resumed.snapshot.clients, run.snapshot.clients)
    assert resumed.communication == run.communication
    assert resumed.history[-1]["test_accuracy"] == run.history[-1]["test_accuracy"]


@every_algorithm
def test_streaming_clients_through_in_chunks_changes_nothing(name, tmp_path):
    row = zoo.problem().train.x[0].nbytes
    budget = 8 * 3 * max(zoo.SIZES) * row  # chunks of three clients; one of the six places is a filler
    assert_same(simulate(name, memory_budget=budget, state_folder=tmp_path), reference(name)[0])


@every_algorithm
def test_one_client_at_a_time_changes_nothing(name):
    assert_same(simulate(name, clients="map"), reference(name)[0])


@every_algorithm
def test_a_client_with_absurd_features_is_rejected_and_harms_nobody(name):
    absurd = 1
    with_absurd = replaced(absurd, lambda x: np.float32(3e38) * np.sign(x))
    run = simulate(name, with_absurd)
    assert bool(all_finite((run.snapshot.server, run.snapshot.clients)))
    assert run.summary()["rejected"] == (ROUNDS if zoo.ZOO[name].rejects else 0)
    if zoo.ZOO[name].forgets:
        without = simulate(name, without_samples(absurd))
        assert_close(run.snapshot.server, without.snapshot.server, 1e-6)
        others = np.delete(np.arange(len(zoo.SIZES) - 1), absurd)
        pick = lambda r: jax.tree.map(lambda a: a[:, others], r.snapshot.clients)
        assert_close(pick(run), pick(without), 1e-6)


def replaced(index: int, change) -> FederatedData:
    data = zoo.problem()
    x = data.train.x.copy()
    rows = slice(data.train.offsets[index], data.train.offsets[index + 1])
    x[rows] = change(x[rows])
    return dataclasses.replace(data, train=data.train._replace(x=x))


def without_samples(index: int) -> FederatedData:
    data = zoo.problem()
    kept = np.repeat(np.arange(data.clients) != index, data.train.sizes)
    sizes = np.where(np.arange(data.clients) == index, 0, data.train.sizes)
    train = Ragged(data.train.x[kept], data.train.y[kept], np.concatenate([[0], np.cumsum(sizes)]))
    return dataclasses.replace(data, train=train)


ABSENT_THEN_TWO = Participation(
    "two in the second round",
    lambda key, round, clients: (round == 2) & ((jnp.arange(clients) == 0) | (jnp.arange(clients) == 3)),
    lambda clients: 2 / clients,
)


@every_algorithm
def test_nobody_changes_nothing_and_two_change_themselves(name):
    algorithm, seen = zoo.algorithm(name), []
    record = lambda records, snapshot: seen.append(snapshot())
    options = {"rounds": 2, "evaluate_every": 1, "participation": ABSENT_THEN_TWO, "on_evaluation": record}
    if algorithm.needs_everyone:
        with pytest.raises(ValueError, match="must see every client in every round"):
            simulate(name, **options)
        return
    simulate(name, resume=lambda fresh: seen.append(fresh) or fresh, **options)
    start, empty, two = seen
    assert empty.server.round.tolist() == [1]
    assert_equal(empty.server._replace(round=start.server.round), start.server)
    assert_equal(empty.clients, start.clients)
    absent = lambda tree: jax.tree.map(lambda a: a[:, [1, 2, 4]], tree)
    assert_equal(absent(two.clients), absent(start.clients))
    for place in (0, 3):
        moved = jax.tree.leaves(jax.tree.map(lambda a, b: (a[0, place] != b[0, place]).any(), two.clients, start.clients))
        assert any(moved)
    if jax.tree.leaves(start.server.value):
        moved = jax.tree.leaves(jax.tree.map(lambda a, b: (a != b).any(), two.server.value, start.server.value))
        assert any(moved)


@every_algorithm
def test_the_order_of_the_clients_does_not_matter(name):
    """Rows of the engine's arrays are permuted: ids, which define a client's randomness, travel with them."""
    order = np.array([3, 0, 4, 1, 2])
    algorithm, (key, value, _) = zoo.algorithm(name), zoo.ZOO[name].hyper
    settings = run_settings(algorithm, 0, None, {key: value}, None)
    simulation = Simulation(algorithm, zoo.problem(), full(), settings, ROUNDS, "auto", None, None, 0)
    simulation.engine.data = jax.tree.map(lambda a: a[order], simulation.engine.data)
    simulation.start()
    simulation.engine.block(ROUNDS)
    run = reference(name)[0]
    assert simulation.seconds["compile"] == 0
    assert_close(jax.tree.map(np.asarray, simulation.engine.server), run.snapshot.server, 1e-6)
    permuted = jax.tree.map(lambda a: a[:, order], run.snapshot.clients)
    assert_close(jax.tree.map(np.asarray, simulation.engine.clients[0]), permuted, 1e-6)


@every_algorithm
def test_a_client_that_joins_is_served_with_and_without_samples(name):
    run = reference(name)[0]
    x, y = zoo.problem().train.client(zoo.UNSEEN)
    for samples in ((x, y), (x[:0], y[:0])):
        probabilities = run.personalize(samples).predict_proba(x)
        assert probabilities.shape == (len(x), 2)
        np.testing.assert_allclose(probabilities.sum(axis=1), 1, atol=1e-5)
    assert np.isfinite(run.scores[0].values["test_loss"][zoo.UNSEEN])
