"""The command line divides a processor into devices before JAX is imported."""

import os
import subprocess
import sys

import pytest

from majorant.cli._processor import MOST, divide_processor

NUMBER = "JAX_NUM_CPU_DEVICES"


@pytest.fixture(autouse=True)
def a_new_environment(monkeypatch):
    monkeypatch.delenv(NUMBER, raising=False)
    monkeypatch.delenv("XLA_FLAGS", raising=False)
    monkeypatch.setattr(sys, "argv", ["majorant", "run", "fedavg"])


def divided() -> str | None:
    """The number that JAX is told; the environment is as before."""
    before = os.environ.copy()
    try:
        divide_processor()
        return os.environ.get(NUMBER)
    finally:
        os.environ.clear()
        os.environ.update(before)


def test_every_core_is_a_device_up_to_a_number(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(3)), raising=False)
    assert divided() == "3"
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(100)), raising=False)
    assert divided() == str(MOST)


def test_a_number_that_was_given_stays(monkeypatch):
    monkeypatch.setenv(NUMBER, "5")
    assert divided() == "5"
    monkeypatch.delenv(NUMBER)
    monkeypatch.setenv("XLA_FLAGS", "--xla_force_host_platform_device_count=4")
    assert divided() is None


def test_processes_that_run_together_have_one_device_each(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["majorant", "run", "fedavg", "--coordinator=auto"])
    assert divided() is None


def test_jax_takes_the_number_from_the_environment():
    code = (
        "import os; os.sched_getaffinity = lambda _: {0, 1, 2}\n"
        "from majorant.cli._processor import divide_processor\n"
        "divide_processor()\nimport jax\nprint(len(jax.devices('cpu')))"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "3"
