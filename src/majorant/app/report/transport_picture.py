"""A transport map in the plane: samples, where they are carried, arrows between them, and the reference behind."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from majorant.app.report.figures import canvas, in_style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST, ARROWS = 1_500, 60


@in_style
def transport_picture(
    x: np.ndarray, moved: np.ndarray, reference: np.ndarray, names: Sequence[str] = ("x1", "x2")
) -> Figure:
    """Two panels: the clients' samples with arrows to where they go, and the transported samples on the reference."""
    if x.shape[1] != 2 or x.shape != moved.shape or reference.shape[1] != 2:
        raise ValueError(f"the picture is for two features, got {x.shape}, {moved.shape} and {reference.shape}")
    figure, (left, right) = canvas(7.6, 3.9, 2)
    some = np.random.default_rng(0).permutation(len(x))
    dots: dict[str, Any] = {"s": 4, "linewidths": 0, "alpha": 0.6}
    behind = np.random.default_rng(1).permutation(len(reference))[:MOST]
    for axes in (left, right):
        axes.scatter(*reference[behind].T, color="0.75", label="reference", **dots)
    left.scatter(*x[some[:MOST]].T, color="C0", label="samples", **dots)
    start, way = x[some[:ARROWS]], (moved - x)[some[:ARROWS]]
    left.quiver(*start.T, *way.T, angles="xy", scale_units="xy", scale=1, width=0.003, color="0.25")
    right.scatter(*moved[some[:MOST]].T, color="C1", label="transported", **dots)
    for axes in (left, right):
        axes.set_xlabel(names[0])
        axes.set_aspect("equal", "datalim")
        axes.legend(loc="best", markerscale=3)
    left.set_ylabel(names[1])
    return figure
