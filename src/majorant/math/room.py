"""How much memory and how many cores there are, and refusals of what cannot fit: from an estimate, before anything is
allocated."""

from __future__ import annotations

import functools
import os
from pathlib import Path

GIB = 1 << 30


@functools.cache
def machine_memory() -> int:
    """The bytes of memory of this machine, or of the container that we are in."""
    memory = 8 * GIB
    if hasattr(os, "sysconf"):
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limit = Path("/sys/fs/cgroup/memory.max")  # of a container
    if limit.exists() and limit.read_text().strip().isdigit():
        memory = min(memory, int(limit.read_text()))
    return memory


def cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def refuse_too_large(what: str, needed: float, fix: str) -> None:
    """Raises a ValueError where something needs more bytes than there are; ``fix`` says what would be right.

    >>> refuse_too_large("a trillion clients", 1e15, "give fewer")
    Traceback (most recent call last):
    ValueError: a trillion clients would take about ... GiB of memory, and this machine has ...: give fewer
    """
    if needed > machine_memory():
        have = f"{machine_memory() / GIB:.3g} GiB"
        raise ValueError(
            f"{what} would take about {needed / GIB:.3g} GiB of memory, and this machine has {have}: {fix}"
        )
