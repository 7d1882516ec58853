"""Draws docs/pictures/privacy.svg: accuracy against ε, from the tables of docs/how-to/privacy.md.

python docs/scripts/privacy_picture.py
"""

from __future__ import annotations

import re
from pathlib import Path

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt
import numpy as np

DOCS = Path(__file__).parents[1]
TITLES = {
    "A mixture of linear classifiers": "mixture of classifiers",
    "Rotated digits": "turned digits",
    "Fashion-MNIST": "Fashion-MNIST",
}
METHODS = {"FedAvg": (0, "#D55E00"), "FedEM": (1, "#009E73"), "FedMM": (2, "#0072B2")}
PLACES = {"1": 0, "2": 1, "4": 2, "8": 3, "∞": 4.3}
ROW = re.compile(r"^\| (∞|\d) \| [^|]* \|(.*)\|$", re.MULTILINE)
CELL = re.compile(r"([\d.]+) ± ([\d.]+)")


def tables(page: str) -> dict[str, dict[str, list[tuple[float, float]]]]:
    """For each data set and ε the mean and standard deviation of each method, in the order of `METHODS`."""
    parts = {name: page.split(f"**{name}**")[1].split("\n\n")[1] for name in TITLES}
    cells = lambda row: [(float(mean), float(spread)) for mean, spread in CELL.findall(row)]
    return {name: {budget: cells(row) for budget, row in ROW.findall(part)} for name, part in parts.items()}


def draw(picture: Path) -> None:
    """A panel for each data set, a line for each method."""
    matplotlib.rcParams.update({"svg.hashsalt": "majorant", "font.family": "DejaVu Sans", "font.size": 10})
    found = tables((DOCS / "how-to" / "privacy.md").read_text(encoding="utf-8"))
    figure, panels = plt.subplots(1, len(TITLES), figsize=(9.6, 3.4), layout="constrained")
    for axes, (name, title) in zip(panels, TITLES.items(), strict=True):
        for label, (column, colour) in METHODS.items():
            mean, spread = np.array([found[name][budget][column] for budget in PLACES]).T
            places = list(PLACES.values())
            axes.errorbar(places, mean, spread, color=colour, label=label, marker="o", linewidth=1.8, capsize=3)
        axes.set_title(title, fontsize=11)
        axes.set_xticks(list(PLACES.values()), list(PLACES))
        axes.set_xlabel("ε")
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(axis="y", color="#dde1e4", linewidth=0.8)
    panels[0].set_ylabel("test accuracy, %")
    panels[0].legend(frameon=False, loc="center right")
    figure.savefig(picture, metadata={"Date": None})


if __name__ == "__main__":
    draw(DOCS / "pictures" / "privacy.svg")
