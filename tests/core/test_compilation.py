"""Every program goes through one place, whose options keep a product and what follows it apart where XLA would err."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import majorant
from majorant.core import all_finite, compilation, magnitude, select
from majorant.core.compilation import compiled, jit, leave_out_tracebacks, staged
from majorant.engines import programs
from majorant.solvers.gradient import shortened

SOURCE = Path(majorant.__file__).parent
PLACE = SOURCE / "core" / "compilation.py"
X = np.random.default_rng(0).normal(size=(1000, 784)).astype(np.float32)
HALF = 0.5 * X.sum(axis=1)
FAULTY = {
    "a constant": lambda x, number: (x @ jnp.full((784, 10), 0.5)).max(axis=1),
    "an argument": lambda x, number: (x @ jnp.broadcast_to(number, (784, 10))).max(axis=1),
    "a sum": lambda x, number: (x @ jnp.full((784, 10), 0.05)).sum(axis=1),
    "side by side": lambda x, number: jax.vmap(lambda x: (x @ jnp.full((784, 10), 0.5)).max(axis=1))(x[None])[0],
}


def compilations(tree: ast.AST) -> list[int]:
    """The lines of a file that hand something to XLA: ``jax.jit`` or ``pmap``, and ``.compile()`` of a program."""
    found = []
    for node in ast.walk(tree):
        attribute = isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "jax"
        if attribute and node.attr in ("jit", "pmap"):
            found.append(node.lineno)
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "jax":
            found += [node.lineno for name in node.names if name.name in ("jit", "pmap", "pjit")]
        called = node.func if isinstance(node, ast.Call) else None
        named = isinstance(called, ast.Attribute) and isinstance(called.value, ast.Name) and called.value.id
        if isinstance(called, ast.Attribute) and called.attr == "compile" and named != "re":
            found.append(node.lineno)
    return found


def test_nothing_is_compiled_elsewhere():
    files = [path for path in SOURCE.rglob("*.py") if path != PLACE]
    assert len(files) > 100
    elsewhere = {str(path.relative_to(SOURCE)): compilations(ast.parse(path.read_text())) for path in files}
    assert {path: lines for path, lines in elsewhere.items() if lines} == {}
    assert len(compilations(ast.parse(PLACE.read_text()))) >= 4  # which are found, were they elsewhere


@pytest.mark.usefixtures("as_users_compile")
@pytest.mark.parametrize("name", FAULTY)
def test_a_product_with_one_number_broadcast_is_read_correctly(name):
    """XLA's own fusion with what follows gives garbage, from one compilation to the next another."""
    program = programs.Program(FAULTY[name])
    for run in (lambda *args: program({"compile": 0.0}, *args), jit(FAULTY[name])):
        np.testing.assert_allclose(run(jnp.asarray(X), jnp.float32(0.5)), HALF, atol=1e-3)


def reductions_in_libraries(text: str) -> list[str]:
    """The computations that XLA gives to a library and that have both a product and a reduction."""
    bodies = dict(re.findall(r"^%?([\w.-]+) \([^\n]*\{\n(.*?)^\}", text, re.MULTILINE | re.DOTALL))
    given = re.findall(r"calls=%?([\w.-]+)[^\n]*__ynn_fusion", text)
    return [name for name in given if " dot(" in bodies[name] and " reduce(" in bodies[name]]


@pytest.mark.usefixtures("as_users_compile")
def test_where_the_fault_can_occur_it_is_seen():
    """XLA itself fuses a product with a maximum, where it has the library for it; with our options it never does."""
    lowered = staged(FAULTY["a constant"]).lower(X, np.float32(0.5))
    assert not reductions_in_libraries(compiled(lowered, programs.QUICK_COMPILATION).as_text())
    own = lowered.compile().as_text()
    assert reductions_in_libraries(own) or "__ynn_fusion" not in own


def test_a_part_of_another_program_has_no_options_of_its_own():
    double = jit(lambda x: 2 * x)
    assert float(jit(lambda x: double(x) + double(1.0))(3.0)) == 8
    assert float(jax.grad(double)(1.0)) == 2
    assert jax.vmap(double)(jnp.arange(3.0)).tolist() == [0, 2, 4]


def test_what_decides_about_all_leaves_is_made_once():
    """With twice the leaves a program has about twice the instructions, and not four times as many."""

    def guarded(tree):
        sound = all_finite(tree) & (magnitude(tree) < 5)
        return select(sound, jax.tree.map(lambda leaf: 2 * leaf, shortened(tree, jnp.asarray(1.0))), tree)

    def instructions(leaves):
        tree = [jnp.ones(3 + i) for i in range(leaves)]
        return compiled(staged(guarded).lower(tree), programs.QUICK_COMPILATION).as_text().count(" = ")

    assert instructions(32) < 2.5 * instructions(16)


def test_each_backend_has_wishes_of_its_own_and_none_that_xla_does_not_know(monkeypatch):
    class Lowered:
        def __init__(self, known):
            self.known = known

        def compile(self, options):
            if not set(options) <= self.known:
                raise jax.errors.JaxRuntimeError("INVALID_ARGUMENT: No such compile option: 'xla_unknown'")
            return options

    monkeypatch.setattr(compilation, "right_options", dict)
    of = lambda backend, known: (
        monkeypatch.setattr(jax, "default_backend", lambda: backend),
        compiled(Lowered(known), {"xla_cpu_wish": 1}),
    )[1]
    everything = {"xla_cpu_wish", *compilation.ON_GPUS}
    assert of("cpu", everything) == {"xla_cpu_wish": 1}
    assert of("gpu", everything) == compilation.ON_GPUS
    assert of("tpu", everything) == {}
    assert of("gpu", set()) == {}


@pytest.mark.parametrize(
    ("environment", "frames", "left"), [(None, 100, 0), (None, 7, 7), (None, -1, -1), ("100", 100, 100)]
)
def test_tracebacks_are_left_out_of_programs_unless_somebody_asks_for_them(monkeypatch, environment, frames, left):
    name, before = "jax_traceback_in_locations_limit", jax.config.jax_traceback_in_locations_limit
    monkeypatch.delenv(name.upper(), raising=False)
    if environment is not None:
        monkeypatch.setenv(name.upper(), environment)
    try:
        jax.config.update(name, frames)
        leave_out_tracebacks()
        assert jax.config.jax_traceback_in_locations_limit == left
        told = jax.jit(lambda x: jnp.sin(x)).lower(1.0).as_text(debug_info=True)
        assert (Path(__file__).name in told) == (left != 0)
    finally:
        jax.config.update(name, before)
