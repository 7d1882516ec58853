"""Runs every benchmark, one after the other: python -m benchmarks.all"""

from __future__ import annotations

import subprocess
import sys

NAMES = (
    "startup",
    "fedem_round",
    "cnn_round",
    "convolution",
    "scaling",
    "scale",
    "exponents",
    "limits",
    "heads",
    "gossip_round",
    "mesh",
    "hosts_memory",
    "unified_solvers",
    "fedmm",
    "estimators",
    "transport",
    "pareto_front",
    "flower",
    "privacy",
)

if __name__ == "__main__":
    for name in NAMES:
        print(f"— {name}", flush=True)
        subprocess.run([sys.executable, "-m", f"benchmarks.{name}"], check=True)
