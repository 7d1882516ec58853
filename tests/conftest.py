"""Tests in all folders import `zoo`, which lies here: this file puts the folder on their path.

Compiled programs are kept beside the tests, not in the user's own cache: workers share them. The tests of PyTorch
clients are collected where PyTorch is installed: the test set-up leaves it out, as it is large.

Programs are small and run for a moment: XLA is told not to spend time on making them fast. It takes its flags from the
environment when JAX is imported.

Every program that XLA compiles for a CPU takes some of a process's memory maps, of which Linux allows 65,530: JAX
forgets its programs when there are many.
"""

import gc
import importlib.util
import itertools
import os
from pathlib import Path

QUICK = (
    "--xla_cpu_use_fusion_emitters=false --xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"
)
os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {QUICK}".strip()

import jax  # noqa: E402
import pytest  # noqa: E402

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
