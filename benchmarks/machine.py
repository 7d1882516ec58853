"""The machine's own limits, measured: multiplications per second and bytes per second."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np


class Limits(NamedTuple):
    """What this machine can do at best."""

    gflops: float
    gigabytes: float  # per second, read and written


def best_of(work: Callable[[], object], repeats: int = 5, clock: Callable[[], float] = time.perf_counter) -> float:
    """The shortest of several timings, after one that does not count."""
    return interleaved({"": work}, repeats, clock)[""]


def interleaved(
    works: dict[str, Callable[[], object]], repeats: int = 5, clock: Callable[[], float] = time.perf_counter
) -> dict[str, float]:
    """The shortest timing of each after one that does not count, in turns: a noisy moment hits all of them."""
    for work in works.values():
        work()
    best = dict.fromkeys(works, float("inf"))
    for _ in range(repeats):
        for name, work in works.items():
            begin = clock()
            work()
            best[name] = min(best[name], clock() - begin)
    return best


def measure_limits() -> Limits:
    """A large matrix product for arithmetic, a large copy for memory."""
    n = 2048 if jax.default_backend() == "cpu" else 8192
    a = jnp.asarray(np.random.default_rng(0).normal(size=(n, n)), jnp.float32)
    product = jax.jit(lambda a: a @ a)
    seconds = best_of(lambda: product(a).block_until_ready())
    if jax.default_backend() == "cpu":  # into memory that is already there: first touches would be timed otherwise
        source, target = np.ones(1 << 26, np.float32), np.zeros(1 << 26, np.float32)
        moved = best_of(lambda: np.copyto(target, source))
        return Limits(2 * n**3 / seconds / 1e9, 2 * source.nbytes / moved / 1e9)
    big, copy = jnp.zeros(1 << 28, jnp.float32), jax.jit(lambda a: a + 1)
    moved = best_of(lambda: copy(big).block_until_ready())
    return Limits(2 * n**3 / seconds / 1e9, 2 * big.nbytes / moved / 1e9)


def need_torch() -> None:
    """Says what to install where PyTorch, which only benchmarks use, is missing."""
    try:
        import torch  # noqa: F401
    except ImportError:
        raise SystemExit("this benchmark compares with PyTorch: pip install -e '.[benchmark]'") from None
