"""The benchmarks can be run: those that need no PyTorch are, on the smallest sizes; the others are read."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

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
