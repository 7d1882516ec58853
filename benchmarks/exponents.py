"""A FedEM round's time against clients, samples, parameters, components and runs: a figure with fitted exponents.

One number grows at a time, 8 and 64 times, from a small problem: 300 clients of 40 samples, 20 features, 3 components,
one run, one epoch of batches of 32. An exponent of 1 is linear; below 1, what grows makes better use of the machine.
Seconds are those of processors, of all threads: on a busy machine they are the ones to compare.
Run: python -m benchmarks.exponents [--json FILE] [--figure FILE]
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np


class Size(NamedTuple):
    """How large a problem is."""

    clients: int = 300
    samples: int = 40  # of each client
    parameters: int = 20  # of each component: features
    components: int = 3
    runs: int = 1


GROWING = {
    "clients": (300, 2_400, 19_200),
    "samples": (40, 320, 2_560),
    "parameters": (20, 160, 1_280),
    "components": (3, 24, 192),
    "runs": (1, 8, 64),
}


def round_seconds(size: Size, repeats: int = 2) -> float:
    """Seconds of processors of one round."""
    import majorant as mj
    from majorant.data.federated import FederatedData, Ragged, offsets_of
    from majorant.engines.simulator import planned

    rng = np.random.default_rng(0)

    def part(samples: int) -> Ragged:
        x = rng.standard_normal((size.clients * samples, size.parameters), dtype=np.float32)
        return Ragged(x, (x[:, 0] > 0).astype(np.int64), offsets_of(np.full(size.clients, samples)))

    names = tuple(map(str, range(size.clients)))
    data = FederatedData(part(size.samples), part(0), part(1), np.zeros(size.clients, bool), names, (0, 1), "sizes")
    local = mj.local_sgd(0.1, batch_size=32)
    algorithm = mj.fedem(mj.models.linear(data), components=size.components, local=local)
    simulation: Any = planned(algorithm, data, 100, seeds=size.runs)
    simulation.start()
    simulation.engine.block(1)
    found, rounds = [], 1
    for _ in range(repeats):
        before = time.process_time()
        simulation.engine.block(rounds)
        spent = time.process_time() - before
        found.append(spent / rounds)
        rounds = int(np.clip(0.2 / found[-1], 1, 40))
    return min(found)


def exponent(values: tuple[int, ...], seconds: list[float]) -> float:
    """The slope of the line through the logarithms."""
    return float(np.polyfit(np.log(values), np.log(seconds), 1)[0])


def measure() -> dict[str, Any]:
    """All curves."""
    base = round_seconds(Size())
    found = {}
    for name, values in GROWING.items():
        seconds = [base, *(round_seconds(Size()._replace(**{name: value})) for value in values[1:])]
        found[name] = {"values": values, "seconds": seconds, "exponent": exponent(values, seconds)}
        shown = ", ".join(f"{value:,}: {1e3 * s:.1f}" for value, s in zip(values, seconds, strict=True))
        print(f"{name:11s} ms of processors a round at {shown}; exponent {found[name]['exponent']:.2f}", flush=True)
    return found


def draw(found: dict[str, Any], picture: Path) -> None:
    """The curves, each against how many times the number has grown."""
    import matplotlib

    matplotlib.use("svg")
    import matplotlib.pyplot as plt

    matplotlib.rcParams.update({"svg.hashsalt": "majorant", "font.family": "DejaVu Sans", "font.size": 10})
    figure, axes = plt.subplots(figsize=(7.6, 4.4), layout="constrained")
    looks = zip(("#009E73", "#D55E00", "#0072B2", "#CC79A7", "#6b7680"), "osD^v", strict=True)
    for (name, curve), (colour, marker) in zip(found.items(), looks, strict=True):
        grown = np.asarray(curve["values"]) / curve["values"][0]
        label = f"{name} (from {curve['values'][0]:,}): exponent {curve['exponent']:.2f}"
        axes.loglog(grown, 1e3 * np.asarray(curve["seconds"]), color=colour, marker=marker, label=label)
    base = 1e3 * next(iter(found.values()))["seconds"][0]
    axes.loglog([1, 64], [base, 64 * base], color="#b8c0c6", linestyle=":", label="linear")
    axes.legend(frameon=False)
    axes.set_xlabel("times as many")
    axes.set_ylabel("a round, ms of processors")
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(color="#dde1e4", linewidth=0.8)
    figure.savefig(picture, metadata={"Date": None})


def main() -> None:
    """Measures, prints, writes and draws."""
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--json", type=Path, help="where to write the numbers")
    asked.add_argument("--figure", type=Path, help="where to draw them, as SVG")
    given = asked.parse_args()
    found = measure()
    if given.json:
        given.json.write_text(json.dumps(found, indent=1) + "\n")
    if given.figure:
        draw(found, given.figure)


if __name__ == "__main__":
    main()
