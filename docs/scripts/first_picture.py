"""Draws docs/pictures/clients.svg: how well every client is served, by the three methods of `make demo`.

    majorant compare fedem fedavg local --data synthetic --out FOLDER
    python docs/scripts/first_picture.py FOLDER

The numbers are those of the run folder: ``test_accuracy`` in each method's ``clients.csv``, from the worst served
client to the best, and the means and bottom deciles of its ``summary.json``.
"""

from __future__ import annotations

import csv
import json
import sys
from pathlib import Path

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt
import numpy as np

METHODS = {  # folder: what the method does, and its colour
    "fedem": ("FedEM: shared components, mixed for each client", "#009E73"),
    "fedavg": ("FedAvg: one model for everybody", "#D55E00"),
    "local": ("Local: every client alone", "#6b7680"),
}


def accuracies(folder: Path) -> np.ndarray:
    """Test accuracies of all clients in per cent, in rising order."""
    with (folder / "clients.csv").open(encoding="utf-8") as file:
        return np.sort([100 * float(row["test_accuracy"]) for row in csv.DictReader(file)])


def draw(comparison: Path, picture: Path) -> None:
    """A line for each method over the clients, with its mean and bottom decile."""
    matplotlib.rcParams.update({"svg.hashsalt": "majorant", "font.family": "DejaVu Sans", "font.size": 10})
    figure, axes = plt.subplots(figsize=(7.6, 4.4), layout="constrained")
    for name, (title, colour) in METHODS.items():
        values = accuracies(comparison / name)
        summary = json.loads((comparison / name / "summary.json").read_text(encoding="utf-8"))["test_accuracy"]
        label = f"{title}\nmean {100 * summary['mean']:.1f} %, bottom decile {100 * summary['bottom_decile']:.1f} %"
        axes.plot(np.arange(1, len(values) + 1), values, color=colour, linewidth=2.4, label=label)
    axes.legend(loc="lower right", frameon=False, labelspacing=0.8)
    axes.set_xlabel("clients, from the worst served to the best")
    axes.set_ylabel("test accuracy of its own model, %")
    axes.set_xlim(0, len(values) + 1)
    axes.set_ylim(0, 101)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", color="#dde1e4", linewidth=0.8)
    figure.savefig(picture, metadata={"Date": None})


if __name__ == "__main__":
    draw(Path(sys.argv[1]), Path(__file__).parents[1] / "pictures" / "clients.svg")
