"""The benchmarks can be run: those that need no PyTorch are, on the smallest sizes; the others are read."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import jax
import numpy as np
import pytest

import majorant as mj
from majorant.core import SERVER_STREAM, client_key, round_key, stream_key
from majorant.engines.settings import hyper_after_setup
from majorant.methods._two_blocks import DRAWN
from majorant.objectives import mixture

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))
from benchmarks.all import NAMES  # noqa: E402


@pytest.mark.parametrize("name", NAMES)
def test_every_benchmark_is_a_program(name):
    program = ast.parse((ROOT / "benchmarks" / f"{name}.py").read_text(encoding="utf-8"))
    assert any(isinstance(node, ast.FunctionDef) and node.name == "main" for node in program.body)


def test_scaling_measures_a_small_population():
    from benchmarks.scaling import measure

    resident, streamed = measure(20, None), measure(20, 1 << 10)
    assert resident["samples"] == streamed["samples"] > 0
    assert min(resident["round"], streamed["round"]) > 0


def test_the_machines_limits_are_positive_numbers():
    from benchmarks.machine import best_of, interleaved

    assert best_of(lambda: sum(range(1000)), repeats=2) > 0
    assert set(interleaved({"a": lambda: None, "b": lambda: None}, repeats=2)) == {"a", "b"}


def small_logistic():
    return mj.data.heterogeneous_logistic(clients=3, samples=6, dimension=2, test_samples=2, sigma=1.0)


def test_asvrcd_in_numpy_does_our_iterations():
    """With the same coins and samples, round for round: all kinds of iterations come up."""
    from benchmarks.numpy_solvers import Asvrcd

    data, rounds, seen = small_logistic(), 12, []
    objective = mixture(data, lambda_=0.5, l2=0.1)
    algorithm = mj.methods.asvrcd(objective, constants=objective.constants(data), p_w=0.3, rho=0.2)
    record = lambda records, snapshot: seen.append(snapshot())
    mj.simulate(algorithm, data, rounds=rounds, evaluation=mj.Evaluation(every=1, report=record))
    server = jax.tree.map(lambda a: a[0], seen[0].server)
    theirs = Asvrcd(data, 0.5, 0.1, {k: float(v) for k, v in server.hyper.items()}, loop=False)
    block_key = lambda k, m, i: jax.random.fold_in(client_key(round_key(jax.random.key(0), k), m), i // DRAWN)
    draw = jax.jit(lambda k, m, i: jax.random.randint(block_key(k, m, i), (DRAWN,), 0, 6, np.int32)[i % DRAWN])
    of_round = lambda k: stream_key(round_key(jax.random.key(0), k + 1), SERVER_STREAM)
    coins_in = jax.jit(lambda k: algorithm.server.broadcast(server._replace(round=k), of_round(k)).shared.coins)
    kinds = set()
    for k, snapshot in enumerate(seen):
        coins = coins_in(k)
        for i in range(int(coins.silent) + 1):
            last = i == int(coins.silent)
            kind = bool(last and coins.w_step), bool(last and coins.refresh)
            theirs.step(*kind, np.array([draw(k + 1, m, i) for m in range(3)]))
            kinds.add(kind)
        joined = lambda tree: np.concatenate([tree["weight"][..., 0], tree["bias"]], axis=-1)[0]
        np.testing.assert_allclose(theirs.w, joined(snapshot.server.value.w.y), rtol=0, atol=1e-6)
        np.testing.assert_allclose(theirs.beta, joined(snapshot.clients.beta.y), rtol=0, atol=1e-6)
    assert len(kinds) == 4


def test_numpy_solvers_solve_the_problem_on_arrays_as_in_loops():
    from benchmarks.numpy_solvers import SOLVERS
    from benchmarks.unified_solvers import L2, LAMBDA, algorithms

    data = small_logistic()
    for name, algorithm in algorithms(data).items():
        hyper = hyper_after_setup(algorithm, data)
        if "p_w" in hyper:
            hyper["p_w"] = 0.3  # steps in both blocks
        arrays, loop = (SOLVERS[name](data, LAMBDA, L2, hyper, loop=each) for each in (False, True))
        for _ in range(40):
            arrays.iterate()
            loop.iterate()
        assert np.abs(arrays.beta).max() > 1e-4
        np.testing.assert_allclose(arrays.beta, loop.beta, rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose(arrays.w, loop.w, rtol=1e-4, atol=1e-6)


def test_numpy_solvers_find_the_minimum():
    """Those that converge quickly; in the units of the library's objective."""
    from benchmarks.numpy_solvers import SOLVERS

    data = small_logistic()
    objective = mixture(data, lambda_=0.5, l2=0.1)
    constants, best = objective.constants(data), mj.objectives.reference_solution(objective, data)
    made = {
        "acd": mj.methods.acd(objective, constants=constants),
        "l2sgd+": mj.methods.l2sgd_plus(objective, constants=constants),
    }
    for name, algorithm in made.items():
        solver = SOLVERS[name](data, 0.5, 0.1, hyper_after_setup(algorithm, data), loop=False)
        for _ in range(2000):
            solver.iterate()
        expected = np.concatenate([best.beta["weight"][..., 0], best.beta["bias"]], axis=-1)
        np.testing.assert_allclose(solver.beta, expected, rtol=0, atol=1e-5)


def test_solvers_are_measured_on_a_small_problem():
    from benchmarks.machine import Limits
    from benchmarks.unified_solvers import algorithms, measure, report

    data = small_logistic()
    found = measure("lsgd", data, algorithms(data)["lsgd"], seeds=2, rounds=2, repeats=1)
    assert min(found) > 0
    text = report("lsgd", found, data, Limits(1.0, 1.0))
    assert "1,000 rounds of 5 iterations" in text
    assert "Table 4 has 256 s" in text


def test_gossip_is_measured_on_a_small_network(capsys):
    from benchmarks.gossip_round import measure

    measure("ring", mj.topology.ring(), 4, bandwidth=1.0)
    assert "4 nodes         8 links: round" in capsys.readouterr().out


def test_packed_images_lose_nothing():
    from benchmarks.pack_images import decode, encode

    images = np.random.default_rng(0).integers(0, 256, (3, 3, 6, 6), dtype=np.uint8)
    images[1] = 255
    np.testing.assert_array_equal(decode(encode(images)), images)
    assert (encode(images)[:, 1, 1:] == 0).all()  # an even surface is predicted


def test_deep_benchmark_makes_equal_clients():
    from benchmarks.deep import Work

    data = Work(clients=3, samples=16, shape=(8, 8, 3), batch=4, stages=1).data()
    assert data.train.sizes.tolist() == [16] * 3
    assert data.train.x.dtype == np.uint8
    text = Work(clients=2, samples=16, shape=(5,), batch=4, classes=10)
    assert text.data().spec == ((5,), 10)
    assert text.made()[0].max() == 9  # characters that are classes, too


def test_a_study_of_attacks_is_one_program_for_all_rules_and_attacks():
    """Traced, not compiled: every rule and every attack on FedEM's uploads."""
    import jax.numpy as jnp
    from benchmarks import attack_study as attacks

    data = small_logistic()
    method = mj.fedem(mj.models.linear(data), components=2)
    train, test = (
        jax.tree.map(lambda a: a[None], attacks.stack(part, np.arange(3), 6)) for part in (data.train, data.test)
    )
    two = lambda value: jnp.broadcast_to(jnp.asarray(value), (1, 2, *np.shape(value)))  # one data set, two runs on it
    menus = attacks.Menu(two(1), two(2), two([True, False, False]), two(0), two(0.1))
    shapes = jax.eval_shape(attacks.program(method, 2, 3), train, (test, test), jax.random.key(0)[None], menus)
    assert [leaf.shape for leaf in shapes] == [(1, 2, 2, 3), (1, 2, 3, 2)]


def test_works_for_a_gpu_are_equal_clients_of_images_in_bytes(tmp_path):
    from benchmarks.peers.work import DEEP, load, samples, save, tiny

    for work in DEEP:
        assert work.rows == 4 * work.batch
        small = tiny(work)._replace(device="cuda")
        save(small, samples(small), tmp_path / "work.npz")
        read, train, test = load(tmp_path / "work.npz")
        assert read == small
        assert train.x.shape == (3, 16, 32, 32, 3)
        assert train.x.dtype == test.x.dtype == np.uint8
        means = np.stack([train.x[train.y == label].mean(0) for label in np.unique(train.y)])
        assert means.std(axis=0).mean() > 10  # labels can be told from images


def test_packages_that_are_not_installed_can_be_imported_but_not_used():
    from benchmarks.peers.absent import may_be_absent

    may_be_absent("nowhere_to_be_found", "json")
    import json

    import nowhere_to_be_found.part as part
    from nowhere_to_be_found import Thing

    assert json.loads("1") == 1  # what is installed is itself
    assert isinstance(part.Other.DEFAULT, type)
    with pytest.raises(ImportError, match=r"nowhere_to_be_found\.Thing is not installed"):
        Thing(1)
    with pytest.raises(ModuleNotFoundError):
        import nowhere_else  # noqa: F401


def test_peers_stand_on_the_page_as_they_were_measured():
    """Tables are put between their comments, and a second time changes nothing."""
    import json

    from benchmarks.peers.page import parts, rewritten
    from benchmarks.peers.work import DEEP, WORKS

    one = {"round_s": 0.5, "startup_s": 1.0, "first_round_s": 2.0, "seconds_to_target": None, "accuracy": 0.5}
    one |= {"rounds": 3, "peak_mb": 10.0, "lines": 9, "load": 0.3, "version": "tool 1.2"}
    works = {
        WORKS[0].name: {"Majorant": one, "a loop": one | {"round_s": 6.0}, "other": {"not run": "not here"}},
        DEEP[0].name: {"Majorant, mixed precision": one, "a loop": one | {"round_s": 0.1, "device_mb": 77.0}},
    }
    later = {"machine": "fast", "date": "2026-11-18", "works": {WORKS[0].name: {"a loop": one | {"round_s": 7.0}}}}
    found = parts([{"machine": "slow", "works": works}, later])
    assert "| a loop | 14 × |" in found["works cpu"]
    assert "Measured on slow (no date) and fast (2026-11-18), with tool 1.2" in found["setting cpu"]
    assert "| other | not run: not here |" in found["tables cpu"]
    assert "| a loop | 100 ms | 0.2 × | 3.0 s | – | 50.0% after 3 | 77 MB | 9 |" in found["tables gpu"]
    page = (ROOT / "docs" / "how-fast.md").read_text(encoding="utf-8")
    changed = rewritten(page, found)
    assert all(text in changed for text in found.values())
    assert rewritten(changed, found) == changed
    assert found["works cpu"] in rewritten((ROOT / "README.md").read_text(encoding="utf-8"), found)
    stored = json.loads((ROOT / "benchmarks" / "results" / "peers.json").read_text(encoding="utf-8"))
    assert parts([stored])["tables cpu"].splitlines()[4] in page  # our row of the first work
