"""Tests in all folders import `zoo`, which lies here: this file puts the folder on their path.

Compiled programs are kept beside the tests, not in the user's own cache: workers share them. The tests of PyTorch
clients are collected where PyTorch is installed: the test set-up leaves it out, as it is large.

Every program that XLA compiles for a CPU takes some of a process's memory maps, of which Linux allows 65,530: JAX
forgets its programs when there are many.
"""

import gc
import importlib.util
import itertools
import os
from pathlib import Path

import jax
import pytest

os.environ.setdefault("MAJORANT_COMPILATION_CACHE", str(Path(__file__).parents[1] / ".pytest_cache" / "xla"))

collect_ignore = [] if importlib.util.find_spec("torch") else ["models/test_torch_adapter.py"]

MAPS, MANY_MAPS = Path("/proc/self/maps"), 45_000
finished = itertools.count(1)


@pytest.fixture(autouse=True)
def few_memory_maps():
    """Looks after every tenth test whether there are many."""
    yield
    if next(finished) % 10 == 0 and MAPS.exists() and MAPS.read_bytes().count(b"\n") > MANY_MAPS:
        jax.clear_caches()
        gc.collect()
