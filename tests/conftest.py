"""Tests in all folders import `zoo`, which lies here: this file puts the folder on their path.

Compiled programs stay in the process, and those of commands that tests start are kept beside the tests: nothing goes
to the user's own cache. The tests of PyTorch clients are collected where PyTorch is installed: the test set-up leaves
it out, as it is large.

Programs are small and run for a moment: XLA is told not to spend time on making them fast, nor on sharing the work out
to threads. It takes its flags from the environment when JAX is imported; the engines' own programs have options that
overrule the flags, and are given the same ones here. A test that has the fixture ``as_users_compile`` takes theirs.

Every program that XLA compiles for a CPU takes memory, and some of a process's memory maps, of which Linux allows
65,530: JAX forgets its programs when there are many maps, or much memory is taken. Tracing them makes many objects,
nearly all of which die without help: the garbage collector looks less often, and at what JAX remembers only when JAX
has forgotten it.

Arrays are put on the device without a program for each shape, as JAX has one compiled.

Two tests that make the same federation share it, and what has been traced of it, unless a test changes the library.

Properties that are tested on many instances are tested on some of them (`representatives`), unless all are asked for.
"""

import ctypes
import functools
import gc
import importlib.util
import itertools
import os
import sys
from pathlib import Path

from compiling import (
    QUICK,
    changed,
    forget_context,
    forget_programs,
    keep_contexts,
    put_arrays,
    share_federations,
    share_programs,
)

FLAGS = " ".join(f"--{name}={str(value).lower()}" for name, value in QUICK.items())
os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {FLAGS}".strip()
# no operation is told which lines of Python it comes from: to write that down takes time
os.environ.setdefault("JAX_TRACEBACK_IN_LOCATIONS_LIMIT", "0")

import jax  # noqa: E402
import pytest  # noqa: E402
import typer.testing  # noqa: E402

from majorant.app import execute  # noqa: E402
from majorant.engines import programs  # noqa: E402
from representatives import is_left_out, unknown  # noqa: E402

# tests change the library in their own process, and must leave no such programs to others
execute.made_from = functools.wraps(execute.made_from)(lambda config, problem: None)
OPTIONS_OF_USERS, programs.QUICK_COMPILATION = programs.QUICK_COMPILATION, QUICK

os.environ.setdefault("MAJORANT_COMPILATION_CACHE", str(Path(__file__).parents[1] / ".pytest_cache" / "xla"))
programs.enable_compilation_cache()
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)  # single operations are most of what is compiled
keep_contexts()
put_arrays()
share_programs()
share_federations()
if hasattr(
    typer.testing, "_get_command"
):  # makes all commands out of their functions again, for each that a test gives
    typer.testing._get_command = functools.cache(typer.testing._get_command)

pytest_plugins = ["finished_run"]

collect_ignore = [] if importlib.util.find_spec("torch") else ["models/test_torch_adapter.py"]
if not (importlib.util.find_spec("mlflow") and importlib.util.find_spec("wandb")):
    collect_ignore.append("app/test_outside_trackers.py")

gc.set_threshold(50_000, 20)
MAPS, MANY_MAPS = Path("/proc/self/maps"), 45_000
MEMORY, MUCH_MEMORY, MORE = Path("/proc/self/statm"), 2_500 << 20, 800 << 20  # bytes
finished = itertools.count(1)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--every-instance",
        action="store_true",
        help="tests of many instances look at all: see tests/representatives.py",
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Some instances are left out, unless they are asked for.

    Tests of the protocol on one algorithm follow each other, while its programs are remembered.
    """
    if not config.getoption("every_instance") and not any("::" in given for given in config.args):
        leave_some_out(config, items)
    places = [i for i, item in enumerate(items) if item.path.name == "test_protocol.py"]
    by_algorithm = sorted((items[i] for i in places), key=lambda item: item.name.partition("[")[2])
    for i, item in zip(places, by_algorithm, strict=True):
        items[i] = item


def leave_some_out(config: pytest.Config, items: list[pytest.Item]) -> None:
    lost = unknown(item.nodeid for item in items)
    if lost:
        raise pytest.UsageError(f"tests/representatives.py names tests that do not exist: {', '.join(lost)}")
    some = [item for item in items if is_left_out(item.nodeid)]
    if some:
        config.hook.pytest_deselected(items=some)
        items[:] = [item for item in items if not is_left_out(item.nodeid)]


def pytest_collection_finish() -> None:
    changed.clear()  # by pytest itself
    gc.collect()
    gc.freeze()


@pytest.fixture
def as_users_compile(monkeypatch):
    """Programs are compiled with the library's own options, as in another process."""
    monkeypatch.setattr(programs, "QUICK_COMPILATION", OPTIONS_OF_USERS)


@pytest.fixture(autouse=True)
def few_programs():
    """Looks after every tenth test whether there are many."""
    yield
    if next(finished) % 10 == 0 and MAPS.exists() and too_many_programs():
        jax.clear_caches()
        forget_context()
        forget_programs()
        gc.unfreeze()
        give_back()
        taken["at most"] = max(MUCH_MEMORY, memory() + MORE)


@pytest.fixture(autouse=True, scope="module")
def programs_of_one_file():
    """What the engines keep for the tests of one file is of little use to those of another."""
    yield
    if MAPS.exists() and memory() > max(MUCH_MEMORY // 2, taken["by earlier files"] + MORE // 8):
        for name, module in list(sys.modules.items()):
            for kept in vars(module).values() if name.startswith("majorant.engines.") else ():
                if isinstance(kept, functools._lru_cache_wrapper):
                    kept.cache_clear()
        forget_programs()
        give_back()


taken = {"at most": MUCH_MEMORY, "by earlier files": 0}


def too_many_programs() -> bool:
    return memory() > taken["at most"] or MAPS.read_bytes().count(b"\n") > MANY_MAPS


def memory() -> int:
    """The bytes of this process."""
    return int(MEMORY.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def give_back() -> None:
    """Collects garbage, and gives what is free to the operating system: the C library would keep it.

    What is left is not looked at again until JAX forgets its programs: looking would take a second after every file.
    """
    gc.collect()
    gc.freeze()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
    taken["by earlier files"] = memory()
