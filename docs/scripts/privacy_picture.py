"""Draws docs/pictures/privacy.svg: accuracy against ε, from the files of ``python -m benchmarks.privacy accuracy``.

python docs/scripts/privacy_picture.py FILE …
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt
import numpy as np

TITLES = {"synthetic": "mixture of classifiers", "digits": "turned digits", "fashion": "Fashion-MNIST"}
METHODS = {"fedem": ("FedEM", "#009E73"), "fedavg": ("FedAvg", "#D55E00"), "fedmm": ("FedMM", "#0072B2")}
PLACES = {1.0: 0, 2.0: 1, 4.0: 2, 8.0: 3, None: 4.3}


def best(line: dict) -> tuple[float, float]:
    """Mean and standard deviation over seeds, in per cent, at the step size that validation rows choose."""
    place = int(np.nanargmax(np.mean(line["validation"], axis=1)))
    return 100 * float(np.mean(line["test"][place])), 100 * float(np.std(line["test"][place], ddof=1))


def draw(files: list[Path], picture: Path) -> None:
    """A panel for each data set, a line for each method."""
    matplotlib.rcParams.update({"svg.hashsalt": "majorant", "font.family": "DejaVu Sans", "font.size": 10})
    lines = [line for file in files for line in json.loads(file.read_text(encoding="utf-8"))]
    figure, panels = plt.subplots(1, len(TITLES), figsize=(9.6, 3.4), layout="constrained")
    for axes, (where, title) in zip(panels, TITLES.items(), strict=True):
        for name, (label, colour) in METHODS.items():
            found = {line["budget"]: best(line) for line in lines if (line["data"], line["method"]) == (where, name)}
            mean, spread = np.array([found.get(budget, (np.nan, np.nan)) for budget in PLACES]).T  # gaps stay gaps
            where_to = list(PLACES.values())
            axes.errorbar(where_to, mean, spread, color=colour, label=label, marker="o", linewidth=1.8, capsize=3)
        axes.set_title(title, fontsize=11)
        axes.set_xticks(list(PLACES.values()), ["1", "2", "4", "8", "∞"])
        axes.set_xlabel("ε")
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(axis="y", color="#dde1e4", linewidth=0.8)
    panels[0].set_ylabel("test accuracy, %")
    panels[0].legend(frameon=False, loc="center right")
    figure.savefig(picture, metadata={"Date": None})


if __name__ == "__main__":
    draw([Path(name) for name in sys.argv[1:]], Path(__file__).parents[1] / "pictures" / "privacy.svg")
