"""Programs that are kept between processes as they were lowered."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import majorant as mj
import zoo
from majorant.app import catalogue, execute
from majorant.app.build import build
from majorant.app.config import make_config
from majorant.engines import kept, resident, set_up
from majorant.engines.options import Resources
from majorant.engines.simulator import planned

made_from = execute.made_from.__wrapped__  # which conftest has replaced
DATA = zoo.training()
ANOTHER = bytes(kept.export.export(jax.jit(lambda x: x))(1.0).serialize())
ALGORITHM = mj.fedavg(mj.models.linear(DATA))


@pytest.fixture
def folder(tmp_path):
    """A cache of its own, in which nothing is kept."""
    before = jax.config.jax_compilation_cache_dir
    jax.config.update("jax_compilation_cache_dir", str(tmp_path))
    yield tmp_path
    jax.config.update("jax_compilation_cache_dir", before)


@pytest.fixture
def traced(monkeypatch):
    """How many programs were traced."""
    found = []
    real = kept.export.export
    monkeypatch.setattr(kept.export, "export", lambda function: found.append(function) or real(function))
    return found


def accuracies(made_from="a run"):
    """A short run in what could be another process."""
    resident.programs.cache_clear()
    run = mj.simulate(ALGORITHM, DATA, rounds=2, resources=Resources(made_from=made_from))
    return run.clients["test_accuracy"]


def test_what_was_kept_is_not_traced_again_and_computes_the_same(folder, traced):
    plain = accuracies(None)
    assert not traced
    first = accuracies()
    assert len(traced) == len(list(folder.glob("majorant-*"))) == 3  # start, rounds and evaluation
    again = accuracies()
    assert len(traced) == 3
    np.testing.assert_array_equal(first, plain)
    np.testing.assert_array_equal(again, plain)


def test_a_program_that_is_kept_says_what_it_returns_without_being_traced(folder, monkeypatch):
    def shapes():
        resident.programs.cache_clear()
        asked = {"rounds": 2, "resources": Resources(made_from="a run")}
        simulation = planned(ALGORITHM, DATA, **asked)
        engine = simulation.engine
        return engine.programs.start.shapes(engine.keys, simulation.given_hyper(), jnp.int32(2), engine.data)

    traced = shapes()  # nothing is kept yet
    accuracies()
    monkeypatch.setattr(set_up, "start_server", None)
    found = shapes()
    assert jax.tree.structure(found) == jax.tree.structure(traced)
    alike = jax.tree.map(lambda a, b: (a.shape, a.dtype) == (b.shape, b.dtype), found, traced)
    assert jax.tree.all(alike)


def test_where_operations_come_from_makes_no_other_program(folder, traced):
    before = jax.config.jax_traceback_in_locations_limit
    try:
        for frames in (0, 3):
            jax.config.update("jax_traceback_in_locations_limit", frames)
            accuracies()
            assert len(traced) == 3
    finally:
        jax.config.update("jax_traceback_in_locations_limit", before)


@pytest.fixture(scope="module")
def kept_before(tmp_path_factory):
    """What a run leaves in its cache, and its accuracies."""
    before, cache = jax.config.jax_compilation_cache_dir, tmp_path_factory.mktemp("kept")
    jax.config.update("jax_compilation_cache_dir", str(cache))
    plain = accuracies()
    jax.config.update("jax_compilation_cache_dir", before)
    return {path.name: path.read_bytes() for path in cache.glob("majorant-*")}, plain


@pytest.mark.parametrize(
    "damage",
    [
        lambda raw: raw[: len(raw) // 2],
        lambda raw: raw[:-20] + bytes([raw[-20] ^ 1]) + raw[-19:],
        lambda raw: b"",
        lambda raw: b'{"tuples": ["os:stat_result"], "sum": "0"}\n',
        lambda raw: raw.replace(b"majorant.core", b"os.core", 1),
        lambda raw: raw.partition(b"\n")[0] + b"\n" + ANOTHER,
    ],
    ids=["short", "flipped", "empty", "other", "foreign", "exchanged"],
)
def test_a_damaged_file_is_none_and_is_written_anew(kept_before, folder, traced, damage):
    files, plain = kept_before
    assert len(files) == 3
    for name, raw in files.items():
        (folder / name).write_bytes(damage(raw))
    np.testing.assert_array_equal(accuracies(), plain)
    assert len(traced) == 3  # all of them, anew
    assert all(kept.read(folder / name) is not None for name in files)


def test_no_foreign_module_is_loaded_for_a_file():
    for name in ("os:stat_result", "majorant.engines.kept:lowered"):
        with pytest.raises(ValueError, match=r"none of ours|no named tuple"):
            kept.known(name)


def test_other_sources_versions_settings_and_arguments_are_other_programs(monkeypatch, tmp_path):
    names = [kept.digest_of("a run", "shapes"), kept.digest_of("a run", "other"), kept.digest_of("other", "shapes")]
    for what, value in (("sources", "changed"), ("versions", ["0.0"])):
        with monkeypatch.context() as patch:
            patch.setattr(kept, what, lambda *_, value=value: value)
            names.append(kept.digest_of("a run", "shapes"))
    with jax.default_matmul_precision("float32"):
        names.append(kept.digest_of("a run", "shapes"))
    monkeypatch.setenv("XLA_FLAGS", "--xla_other")
    names.append(kept.digest_of("a run", "shapes"))
    assert len(set(names)) == len(names)
    (tmp_path / "module.py").write_text("a = 1")
    before = kept.sources.__wrapped__(tmp_path)
    (tmp_path / "module.py").write_text("a = 2")
    assert kept.sources.__wrapped__(tmp_path) != before


def test_what_cannot_be_exported_is_traced(folder):
    """A program that calls Python is of this process."""
    function = jax.jit(lambda x: jax.pure_callback(np.sin, jax.ShapeDtypeStruct((), jnp.float32), x))
    kept.lowered("a run", function, (jnp.float32(1.0),), "shapes").compile()
    assert not list(folder.glob("*majorant-*"))


def test_a_run_is_told_from_others_by_settings_and_samples_and_by_our_own_names_alone(monkeypatch):
    ask = lambda **settings: make_config({}, data="synthetic:clients=4,dimension=3", **settings)
    config = ask(algorithm="fedavg")
    problem = build(config)
    moved = dataclasses.replace(problem.data, train=problem.data.train._replace(x=problem.data.train.x + 1))
    others = [ask(algorithm="fedavg", lr=0.05), ask(algorithm="local")]
    found = {
        made_from(config, problem),
        made_from(config, problem._replace(data=moved)),
        *(made_from(other, build(other)) for other in others),
    }
    assert len(found) == 4
    assert None not in found
    assert made_from(others[0], problem) is made_from(config, problem._replace(settings=None)) is None
    of_a_file = config.model_copy(update={"model": "efficientnet-lite0:weights=a.safetensors"})
    assert made_from(of_a_file, problem._replace(settings=of_a_file)) is None  # the file may change
    monkeypatch.setitem(catalogue.algorithms._entries, "my-own", (functools.partial(mj.fedavg), ""))
    assert made_from(config, problem) is None
