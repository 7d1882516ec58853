"""How a tool's time is told: start-up, first round, further rounds, accuracy on the way, and peak memory."""

from __future__ import annotations

import json
import os
import statistics
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.peers.work import Work

BEGAN = "PEERS_BEGAN"  # when the process was started, in seconds of the epoch
OUT = "PEERS_OUT"  # the file for the result


class Clock:
    """Stands still while accuracy is measured."""

    def __init__(self, work: Work) -> None:
        self.work = work
        self.rounds: list[float] = []
        self.accuracy: list[tuple[int, float]] = []
        self.startup = 0.0
        self.memory = Memory(watched=work.device == "cpu")
        self.last = time.perf_counter()

    def ready(self) -> None:
        """Training begins now."""
        self.startup = time.time() - float(os.environ[BEGAN])
        self.last = time.perf_counter()

    def round(self, accuracy: Callable[[], float]) -> None:
        """A round is done, as soon as the device is."""
        if on_a_gpu():
            sys.modules["torch"].cuda.synchronize()
        self.rounds.append(time.perf_counter() - self.last)
        done = len(self.rounds)
        if done % max(1, self.work.rounds // 10) == 0 or done == self.work.rounds:
            self.accuracy.append((done, float(accuracy())))
        self.last = time.perf_counter()

    def finish(self, **more: Any) -> None:
        """Writes down what was measured."""
        further = self.rounds[1:] or self.rounds
        steady = statistics.median(further)
        reached = next((done for done, value in self.accuracy if value >= self.work.target), None)
        result = {
            "startup_s": self.startup,
            "first_round_s": self.rounds[0],
            "round_s": steady,
            "rounds": len(self.rounds),
            "accuracy": self.accuracy[-1][1],
            "rounds_to_target": reached,
            "seconds_to_target": None if reached is None else self.startup + sum(self.rounds[:reached]),
            "peak_mb": self.memory.stop(),
        }
        if (device := device_megabytes()) is not None:
            result["device_mb"] = device
        Path(os.environ[OUT]).write_text(json.dumps(result | more), encoding="utf-8")


class Memory:
    """The most memory that this process and its descendants hold at one time, looked at five times a second."""

    def __init__(self, *, watched: bool) -> None:
        self.peak, self.stopped = 0.0, threading.Event()
        self.thread = threading.Thread(target=self.watch, daemon=True)
        self.watched = watched  # with a GPU, looking takes long and what counts is the device's memory
        if watched:
            self.thread.start()

    def watch(self) -> None:
        while not self.stopped.wait(0.2):
            self.peak = max(self.peak, family_megabytes(os.getpid()))

    def stop(self) -> float:
        self.stopped.set()
        if self.watched:
            self.thread.join()
        return max(self.peak, own_peak_megabytes())


def on_a_gpu() -> bool:
    """Whether this process uses a GPU by way of PyTorch."""
    return "torch" in sys.modules and sys.modules["torch"].cuda.is_initialized()


def device_megabytes() -> float | None:
    """The most memory of a GPU that arrays took, if there is one."""
    if on_a_gpu():
        return sys.modules["torch"].cuda.max_memory_allocated() / 2**20
    found = sys.modules["jax"].devices()[0].memory_stats() if "jax" in sys.modules else None
    return found["peak_bytes_in_use"] / 2**20 if found and "peak_bytes_in_use" in found else None


def own_peak_megabytes() -> float:
    """The most memory that this program has held; `getrusage` would count the program that started it as well."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(float(line.split()[1]) for line in lines if line.startswith("VmHWM:")) / 1024


def family_megabytes(root: int) -> float:
    """Memory of a process and all its descendants, by what each has of its own (proportional set size)."""
    parents, found = {}, {root}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            after = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        parents[int(path.parent.name)] = int(after[1])
    grown = True
    while grown:
        children = {child for child, parent in parents.items() if parent in found} - found
        found |= children
        grown = bool(children)
    total = 0.0
    for process in found:
        try:
            lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
        except OSError:
            continue
        total += sum(float(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1024
    return total


def work_file() -> str:
    """The piece of work that this process was started for."""
    return sys.argv[1]
