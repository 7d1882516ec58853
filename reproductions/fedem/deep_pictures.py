"""Pictures of the deep rows from what was measured: ``python -m majorant_reproductions.fedem.deep_pictures``.

``figures/convergence.png`` is the analogue of the paper's Figures 3 and 4 (accuracies, not losses),
``figures/sizes.png`` shows whom learning together serves: test accuracy of each client against its number of samples.
``figures/samples-cifar10.png`` is the analogue of Figure 2: test accuracy of clients that join, against the share of
their samples that they use.
"""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from majorant.app.report.figures import canvas, render, styled

HERE = Path(__file__).parent
NAMES = {"fedem": "FedEM", "fedavg+": "FedAvg+", "fedavg": "FedAvg", "local": "Local"}
DATA = ("CIFAR-10", "CIFAR-100")
PARTS = {"training": "train_accuracy", "test": "test_accuracy"}


def runs_of(measured: dict[str, Any], data: str, method: str) -> list[dict[str, Any]]:
    """The runs of a method that differ in their seed alone."""
    of_data = measured[f"{data}, EfficientNet-Lite0 from ImageNet weights"]
    return [of_data[f"{method}, seed {seed}"] for seed in range(3) if f"{method}, seed {seed}" in of_data]


def convergence(measured: dict[str, Any]) -> bytes:
    """Accuracies along the rounds, on training and on test samples; bands from the worst to the best of three seeds."""
    with styled():
        figure, panels = canvas(9, 6.4, panels=2, rows=2)
        for axes, (part, data) in zip(panels, product(("training", "test"), DATA), strict=True):
            for method, name in NAMES.items():
                runs = [run for run in runs_of(measured, data, method) if len(run["history"]) > 1]
                rounds = [line["round"] for line in runs[0]["history"]]
                values = np.array([[line[PARTS[part]] for line in run["history"]] for run in runs])
                (drawn,) = axes.plot(rounds, values.mean(axis=0), label=name)
                axes.fill_between(rounds, values.min(axis=0), values.max(axis=0), alpha=0.2, color=drawn.get_color())
            axes.set(title=f"{data}, {part} samples", xlabel="round")
        for axes in panels[::2]:
            axes.set_ylabel("accuracy, %")
        panels[-1].legend(loc="center right", bbox_to_anchor=(1, 0.35))
        return render(figure, "png")


def sizes(measured: dict[str, Any]) -> bytes:
    """Each client's test accuracy against its training samples, and means over fifths of the clients."""
    with styled():
        figure, (axes,) = canvas(6.5, 4)
        for method in ("fedem", "fedavg", "local"):
            clients = runs_of(measured, "CIFAR-10", method)[1]["clients"]
            samples, accuracy = np.array(clients["train_samples"]), 100 * np.array(clients["test_score"])
            points = axes.plot(samples, accuracy, ".", alpha=0.35)[0]
            fifths = np.array_split(np.argsort(samples), 5)
            middle, mean = zip(*((np.median(samples[own]), accuracy[own].mean()) for own in fifths), strict=True)
            axes.plot(middle, mean, color=points.get_color(), label=f"{NAMES[method]}, mean of a fifth of the clients")
        axes.set(xscale="log", xlabel="training samples of the client", ylabel="its test accuracy, %")
        ticks = (20, 50, 100, 200, 500, 1000, 2000)
        axes.set_xticks(ticks, [f"{tick:,}" for tick in ticks])
        axes.set_title("CIFAR-10, 80 clients, seed 1")
        axes.legend(loc="lower right")
        return render(figure, "png")


def joining(measured: dict[str, Any]) -> bytes:
    """Clients that join after training, by the share of their samples."""
    with styled():
        figure, (axes,) = canvas(6.5, 3.6)
        for method, name in NAMES.items():
            run = measured["CIFAR-10, EfficientNet-Lite0 from ImageNet weights"].get(
                f"{method}, 20 % of the clients unseen"
            )
            if run is not None:
                shares = run["unseen_by_share"]
                axes.plot([float(share) for share in shares], list(shares.values()), ".-", label=name)
        axes.set(xlabel="share of the local training samples", ylabel="test accuracy of clients that join, %")
        axes.set_title("CIFAR-10, 16 of 80 clients, seed 0")
        axes.legend(loc="lower left")
        return render(figure, "png")


def main() -> None:
    """Draws all."""
    measured = json.loads((HERE / "measured.json").read_text())
    pictures = {"convergence": convergence, "sizes": sizes, "samples-cifar10": joining}
    for name, drawn in ((name, draw(measured)) for name, draw in pictures.items()):
        (HERE / "figures" / f"{name}.png").write_bytes(drawn)


if __name__ == "__main__":
    main()
