"""The engines on clients of very different sizes: several buckets, a validation part, some clients unseen."""

from __future__ import annotations

import copy
import functools
import itertools
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import multihost_utils

import majorant as mj
import zoo
from compiling import quickly
from majorant.core import blockwise
from majorant.data.federated import FederatedData
from majorant.engines import population, programs
from majorant.engines.evaluation import measure_clients
from majorant.engines.population import bucket_edges, build_buckets, stack
from majorant.engines.resident import Resident
from majorant.engines.set_up import finish_start, start_clients, start_server
from majorant.engines.simulator import planned
from majorant.engines.streamed import of_all_processes
from majorant.engines.streamed_programs import add
from majorant.exchange.federation import federation
from majorant.metrics.scores import across_clients, bottom_decile
from majorant.solvers import permutation
from records import over

SIZES = np.array([8, 60, 9, 300, 10, 64, 8, 280, 70, 9])


@pytest.fixture(autouse=True, scope="module")
def buckets_for_small_data():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(population, "LEAST_SAVED", 0)
        yield


@functools.cache
def problem() -> FederatedData:
    rng = np.random.default_rng(0)
    owner = np.repeat(np.arange(len(SIZES)), SIZES)
    x = rng.normal(size=(len(owner), 3))
    y = (x @ np.array([1.0, -1.0, 0.5]) * np.where(owner % 2, 1, -1) > 0).astype(int)
    return FederatedData.from_arrays(x, y, owner).with_unseen(0.2, seed=1)


@functools.cache
def algorithm_and_participation():
    """Once, so that runs share what they have compiled."""
    local = mj.local_sgd(0.3, batch_size=16, momentum=0.5)
    algorithm = mj.fedem(mj.models.linear(problem()), components=2, local=local)
    return algorithm, mj.participation.bernoulli(0.7)


STREAMED = mj.Resources(memory_budget=1 << 12)
EVALUATION = mj.Evaluation(every=2, diagnostics=True)


def train(**options):
    algorithm, some = algorithm_and_participation()
    return mj.simulate(
        algorithm,
        problem(),
        **over({"rounds": 6, "evaluation": EVALUATION, "seeds": 2, "participation": some}, options),
    )


def assert_same(one, two, tolerance=1e-6):
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(two), strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=tolerance)


@pytest.fixture(scope="module")
def reference():
    return train()


@pytest.mark.usefixtures("as_users_compile")
def test_the_installed_compiler_knows_the_options():
    lowered = jax.jit(lambda x: jnp.tanh(x @ x.T).sum()).lower(jnp.ones((3, 2)))
    assert float(lowered.compile(programs.QUICK_COMPILATION)(jnp.ones((3, 2)))) == pytest.approx(9 * np.tanh(2))


def test_there_are_several_buckets():
    assert len(build_buckets(problem(), np.arange(10), chunk_bytes=1 << 20)) > 1


def test_streamed_clients_give_the_same_numbers_in_any_place(reference, tmp_path):
    for folder in (None, tmp_path):
        run = train(resources=STREAMED._replace(state_folder=folder))
        assert_same(run.snapshot[:2], reference.snapshot[:2])
        for mine, theirs in zip(run.scores, reference.scores, strict=True):
            assert_same(mine.values, theirs.values)
        measured = lambda run: [[line["gradient_squared"] for line in lines] for lines in run.histories]
        np.testing.assert_allclose(measured(run), measured(reference), rtol=1e-4)


def test_every_chunk_of_streamed_clients_answers_before_the_first_round():
    """The server is told how many samples all clients have; states of any type have their place in memory."""
    algorithm = mj.fedavg(mj.models.linear(problem()), absent="hold")
    simulation = planned(algorithm, problem(), 1, resources=STREAMED)
    engine = simulation.engine
    assert sum(len(list(bucket.pieces())) for bucket in engine.buckets) > 1
    engine.start(simulation.given_hyper(), 1)
    assert engine.server.state.tolist() == [problem().train.sizes[~problem().unseen].sum()]
    one = {"count": np.ones((1, 2), np.int32), "mean": np.ones((1, 2, 3), np.float32)}
    bucket = engine.buckets[-1]
    places = engine.allocate(0, bucket, one)
    assert {name: (a.dtype, a.shape) for name, a in places.items()} == {
        "count": (np.int32, (1, len(bucket.ids))),
        "mean": (np.float32, (1, len(bucket.ids), 3)),
    }


def test_rows_of_several_processes_follow_each_other_in_every_run(monkeypatch):
    monkeypatch.setattr(jax, "process_count", lambda: 2)
    monkeypatch.setattr(multihost_utils, "process_allgather", lambda rows: np.stack([rows, rows + 100]))
    assert of_all_processes(np.array([[1, 2], [11, 12]])).tolist() == [[1, 2, 101, 102], [11, 12, 111, 112]]


def test_each_of_several_runs_says_what_it_has_sent_itself(reference):
    run = copy.copy(reference)
    run.communication = [{"bytes_up": 1_000_000, "bytes_down": 2_000_000}, {"bytes_up": 3, "bytes_down": 4}]
    assert [run[i].summary()["communication"] for i in range(2)] == run.communication
    assert "sent 1 MB up, 2 MB down" in str(run[0].summary())


def test_private_states_take_memory_for_every_run():
    """Models that clients keep: those of one run fit into memory, and those of two thousand do not."""
    data = mj.data.synthetic_mixture(clients=10, dimension=100, seed=0)
    algorithm = mj.local(mj.models.linear(data))
    samples = sum(part.x.nbytes for part in (data.train, data.validation, data.test))
    budget = {"resources": mj.Resources(memory_budget=3 * samples)}
    engine = lambda seeds: planned(algorithm, data, 1, seeds=seeds, **budget).engine
    assert [type(engine(seeds)).__name__ for seeds in (1, 2000)] == ["Resident", "Streamed"]


def test_methods_that_compare_all_uploads_refuse_what_does_not_fit():
    data = problem()
    model = mj.models.linear(data)
    for algorithm in (mj.clustered(model, clients=data.clients), mj.mocha(model, clients=data.clients)):
        with pytest.raises(ValueError, match=r"holds the uploads of all \d+ clients.*memory budget"):
            mj.simulate(algorithm, data, rounds=1, resources=mj.Resources(memory_budget=1 << 10))


@pytest.mark.parametrize("folder", [False, True])
def test_a_run_resumes_from_any_evaluation(reference, tmp_path, folder):
    taken = []
    train(evaluation=EVALUATION._replace(report=lambda lines, snapshot: taken.append(snapshot())))
    run = train(resume=taken[0], **({"resources": STREAMED._replace(state_folder=tmp_path)} if folder else {}))
    assert_same(run.snapshot[:2], reference.snapshot[:2], 1e-6 if folder else 0)
    strip = lambda history: [{k: v for k, v in line.items() if k != "seconds"} for line in history]
    assert [line["round"] for line in run.history] == [2, 4, 6]
    if not folder:
        assert strip(run.history) == strip(reference.history)


def test_every_part_and_kind_of_client_is_scored(reference):
    summary = reference.summary()
    for name in ("train", "validation", "test", "unseen", "unseen_train", "unseen_validation"):
        assert 0 <= summary[f"{name}_accuracy"]["mean"] <= 1
    assert len(reference.scores[0].values["test_score"]) == len(SIZES)
    for part in ("train", "test"):
        assert reference.clients[f"{part}_samples"].tolist() == getattr(problem(), part).sizes.tolist()


def test_a_deployed_model_scores_what_was_evaluated(reference):
    data = problem()
    assert reference.deployment.seed == reference.settings[0]["seed"] != reference.settings[1]["seed"]
    for client in (*np.flatnonzero(data.unseen), 0, 3, 5):  # unseen ones, and seen ones of very different sizes
        x, y = data.test.client(client)
        accuracy = np.mean(reference.model(client).predict(x) == y)
        assert accuracy == pytest.approx(reference.scores[0].values["test_score"][client], abs=1e-6)
    x, y = data.train.client(0)
    alone, padded = (reference.deployment.personalize(x, y, room=room).mixture_weights for room in (0, len(x) + 20))
    np.testing.assert_allclose(padded, alone, atol=1e-5)
    nobody = reference.personalize((x[:0], y[:0]))  # its program sees a row of padding
    np.testing.assert_allclose(nobody.mixture_weights, 0.5)


def test_seconds_of_compiling_add_up_apart_from_those_of_training():
    seconds = {"compile": 1.0, "train": 0.0, "evaluate": 0.0}
    Resident.prepare(SimpleNamespace(seconds=seconds, lowered=lambda *asked: [lambda: None]), {}, 1)
    fresh = SimpleNamespace(compiled={})
    fresh.lowered = lambda x: lambda: fresh.compiled.setdefault(programs.signature((x,)), abs)
    assert programs.Program.__call__(fresh, seconds, -2.0) == 2.0
    assert seconds.pop("compile") > 1.0
    assert set(seconds.values()) == {0.0}


def test_bucket_edges_are_the_best_cuts():
    sizes = np.random.default_rng(1).integers(1, 50, 12)
    ordered = np.sort(sizes)
    waste = lambda ends: sum((e - b) * ordered[e - 1] for b, e in itertools.pairwise([0, *ends]))
    best = min(waste([*cuts, 12]) for cuts in itertools.combinations(range(1, 12), 2))
    assert waste(bucket_edges(sizes, most=3, cost=0.0)) == best


def test_bucket_edges_of_very_many_sizes_are_nearly_the_best():
    """Sizes 1, …, n are best cut into equal parts, which pad n² (k + 1) / (2 k) samples; not every cut is tried."""
    n, k = 5000, 4
    edges = bucket_edges(np.random.default_rng(0).permutation(n) + 1, most=k, cost=0.0)
    assert len(edges) == k
    assert edges[-1] == n
    padded = sum((end - begin) * end for begin, end in itertools.pairwise([0, *edges]))
    assert padded <= 1.001 * n * n * (k + 1) / (2 * k)


@pytest.mark.parametrize("size", [10, 1000, 60_000, 300_000])
def test_permutations_are_uniform_for_clients_of_any_size(size):
    order = np.asarray(permutation(jax.random.key(0), jnp.int32(size), size + 5))[:size]
    assert (np.sort(order) == np.arange(size)).all()
    ascents = np.mean(np.diff(order) > 0)  # half of the neighbours of a random order, variance about 1 / (12 size)
    assert abs(ascents - 0.5) < 5 / np.sqrt(12 * size)
    start = order[: size // 4].mean() / size
    assert abs(start - 0.5) < 5 * np.sqrt(1 / 12 / max(size // 4, 1))


def test_blocks_of_samples_change_nothing(monkeypatch):
    monkeypatch.setattr("majorant.core.trees.BLOCK_VALUES", 64)
    x, y = jnp.arange(1000.0).reshape(200, 5), jnp.arange(200)
    function = lambda x, y: jnp.stack([x.sum(axis=1), x[:, 0] * y], axis=1)
    np.testing.assert_array_equal(blockwise(function, x, y), function(x, y))


BAD = [
    {"evaluation": mj.Evaluation(every=0)}, {"evaluation": mj.Evaluation(every=-1)}, {"seed": -1}, {"seed": 1 << 32},
    {"resources": mj.Resources(clients="some")}, {"rounds": 0},
    {"grid": {"lr": []}}, {"grid": {"lr": [-1.0, 0.1]}}, {"hyper": {"lr": float("nan")}}, {"hyper": {"nonsense": 1.0}},
]  # fmt: skip


@pytest.mark.parametrize("options", BAD, ids=str)
def test_bad_arguments_are_refused(options):
    data = mj.data.synthetic_mixture(clients=3, dimension=2)
    with pytest.raises(ValueError, match=r"must be|no values|no hyperparameter"):
        mj.simulate(mj.fedavg(mj.models.linear(data)), data, **({"rounds": 1} | options))


def test_participation_takes_whom_it_says():
    key = jax.random.key(0)

    def drawn(some):
        return np.asarray(quickly(jax.vmap(lambda r: some.active(jax.random.fold_in(key, r), r, 20)))(np.arange(400)))

    draws = drawn(mj.participation.uniform(0.3))
    assert (draws.sum(axis=1) == 6).all()
    np.testing.assert_allclose(draws.mean(axis=0), 0.3, atol=5 * np.sqrt(0.21 / 400))
    draws = drawn(mj.participation.bernoulli(0.3))
    np.testing.assert_allclose(draws.mean(axis=0), 0.3, atol=5 * np.sqrt(0.21 / 400))
    cycle = np.array([mj.participation.cyclic(0.3).active(key, r, 20) for r in range(1, 5)])
    assert (cycle.sum(axis=0) == 1).all()


def test_the_bottom_decile_of_errors_is_the_largest():
    errors = np.arange(1.0, 31.0)
    assert bottom_decile(errors, larger_is_better=False) == 28
    found = across_clients(errors, np.ones(30), "rmse")
    assert found["mean"] == pytest.approx(np.sqrt(np.mean(errors**2)))
    assert found["bottom_decile"] == 28


def test_a_run_goes_on_with_the_hyperparameters_it_began_with():
    algorithm, data = zoo.algorithm("fedavg"), zoo.training()
    half = mj.simulate(algorithm, data, rounds=2, hyper={"lr": 0.1}).snapshot
    with pytest.raises(ValueError, match=r"trained with lr=0\.1, not 0\.01"):
        mj.simulate(algorithm, data, rounds=4, hyper={"lr": 0.01}, resume=half)
    longer = mj.simulate(algorithm, data, rounds=4, hyper={"lr": 0.1}, resume=half)
    assert int(longer.server.rounds) == int(longer.server.round) == 4


def test_newcomers_have_ids_after_all_others_and_no_slots():
    """What is kept for each client by slot says nothing of a newcomer; scored or served, it has the same model."""
    rng = np.random.default_rng(0)
    x, owner = rng.normal(size=(160, 3)), np.arange(160) % 4  # of one size: one program for all
    y = (x @ np.array([1.0, -1.0, 0.5]) * np.where(owner % 2, 1, -1) > 0).astype(int)
    data = FederatedData.from_arrays(x, y, owner)
    small = {"batch_size": 8}  # drawn at random
    several = mj.solvers.local_by_client([mj.local_sgd(0.1, **small), mj.local_sgd(1e-9, **small)], {0: 1, 1: 1})
    run = mj.simulate(mj.pfedme(mj.models.linear(data), local=several), data, rounds=2)
    scores = run.evaluate_new(data)
    for client, model in enumerate(run.personalize(data)):
        x, y = data.test.client(client)
        assert np.mean(model.predict(x) == y) == pytest.approx(scores.values["test_score"][client], abs=1e-6)
        chances = model.predict_proba(x)[np.arange(len(y)), y]
        assert -np.log(chances).mean() == pytest.approx(scores.values["test_loss"][client], rel=1e-4)


def samples_known(clients, real):
    """How many samples FedMM's server knows of after the set-up question to these clients."""
    together, key = federation(zoo.algorithm("fedmm"), training=np.arange(5)), jax.random.key(0)

    @quickly
    def known(clients, real):
        server = start_server(together, 5, key, {}, jnp.int32(3))
        _held, answers = start_clients(together, server, key, clients, real, len(clients.id))
        return finish_start(together, server, [answers], [clients.slot], 6).state.samples

    return float(known(clients, jnp.asarray(real)))


def test_fillers_do_not_answer_the_set_up_question():
    """Rows that fill up a chunk hold samples of somebody, and are nobody."""
    clients = stack(zoo.problem().train, np.array([0, 1, 3, 4, 5]), 12)
    known = samples_known(clients, [True, True, True, True, False])
    assert known == sum(zoo.SIZES[client] for client in (0, 1, 3, 4))


def test_answers_that_are_not_finite_are_left_out():
    clients = stack(zoo.problem().train, np.array([0, 1, 3, 4, 5]), 12)
    x = np.array(clients.x)
    x[1] = np.nan
    assert samples_known(clients._replace(x=x), [True] * 5) == sum(zoo.SIZES[client] for client in (0, 3, 4, 5))


def test_answers_of_chunks_are_sums_and_largest_values():
    assert add((1.0, {"steep": 2.0}), (10.0, {"steep": 5.0})) == (11.0, {"steep": 5.0})
    assert add((1.0, 7.0), (10.0, 5.0)) == (11.0, 7.0)


def test_fillers_are_not_measured():
    together, key = federation(zoo.algorithm("fedem"), training=np.arange(5)), jax.random.key(0)

    @quickly
    def weights(clients, real):
        server = start_server(together, 5, key, {}, jnp.int32(3))
        held, _ = start_clients(together, server, key, clients, real, len(clients.id))
        return measure_clients(together, server, key, held.state, clients, real, chunk=len(clients.id))[1]

    clients = stack(zoo.problem().train, np.array([0, 1, 3]), 12)
    everybody = weights(clients, jnp.array([True, True, True]))
    assert float(everybody - weights(clients, jnp.array([True, True, False]))) == zoo.SIZES[3]
