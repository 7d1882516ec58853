"""The figure of what a run measured of its own convergence, with the exponents that the FedEM paper's theorems state.

Theorems 3.2 and 3.3 bound means over K rounds that are run with steps a₀/√K: a sweep over K with a run for each shows
the rate. Within a single run with a given step, the running mean is what one can look at.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from majorant.app.report.figures import INK, in_style, legend, style_of
from majorant.app.report.record import RunRecord
from majorant.metrics.rates import fitted_slope, running_mean

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


class Bound(NamedTuple):
    """A quantity that is logged, in words, and the exponent of K in the theorem's bound on its mean over K rounds."""

    name: str
    words: str
    exponent: float


BOUNDS = (
    Bound("gradient_squared", "Squared norm of the gradient", -1 / 2),
    Bound("v_gain", "Gain from the personal step", -3 / 4),
    Bound("v_distance", "Movement of the personal part", -1.0),
    Bound("consensus_distance", "Squared distance to consensus", -1 / 2),
)


def measured(records: Sequence[RunRecord]) -> list[str]:
    """The quantities with a theorem that some run has logged, and that are not 0 all along."""
    return [bound.name for bound in BOUNDS if any((averaged(record, bound.name)[1] > 0).any() for record in records)]


@in_style
def rates(records: Sequence[RunRecord]) -> Figure:
    """Running means against rounds in logarithmic scale; the dotted line falls as fast as the theorem's bound."""
    bounds = [b for b in BOUNDS if b.name in measured(records)]
    figure, panels = grid_of(len(bounds))
    drawn = {}
    for axes, bound in zip(panels, bounds, strict=True):
        slopes, first = [], None
        for place, record in enumerate(records):
            rounds, mean = averaged(record, bound.name)
            if not (mean > 0).any():
                continue
            look = style_of(place) | {"markevery": max(1, len(rounds) // 8)}
            drawn[place] = axes.plot(rounds, mean, **look)[0]
            slopes.append(f"{fitted_slope(rounds, mean):.2f}")
            first = first or (rounds, mean)
        if first is not None:
            rounds, mean = first
            axes.plot(rounds, mean[0] * (rounds / rounds[0]) ** bound.exponent, ":", color=INK, linewidth=1)
        axes.set(xscale="log", yscale="log", xlabel="Rounds")
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_formatter(lambda value, _: f"{value:g}")
            axis.set_minor_formatter(lambda value, _: "")
        axes.set_title(f"{bound.words}\nslope {', '.join(slopes)}; theorem {bound.exponent:g}")
    places = sorted(drawn)
    legend(figure, [drawn[place] for place in places], [records[place] for place in places])
    return figure


def grid_of(panels: int) -> tuple[Figure, list[Axes]]:
    """An empty figure with panels in rows of two."""
    from matplotlib.figure import Figure

    rows, columns = -(-panels // 2), min(panels, 2)
    figure = Figure(figsize=(1.2 + 3.8 * columns, 0.4 + 3.1 * rows), layout="constrained")
    axes = list(np.ravel(figure.subplots(rows, columns)))
    for empty in axes[panels:]:
        empty.set_axis_off()
    return figure, axes[:panels]


def averaged(record: RunRecord, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Rounds, and the running mean of a quantity over the evaluations until then (the mean over seeds).

    Of the solvers of personalized objectives only the distance between peers: they have theorems, and a figure, of
    their own.
    """
    by_round: dict[int, list[float]] = {}
    if record.solves and name != "consensus_distance":
        return np.zeros(0), np.zeros(0)
    for line in record.history:
        if isinstance(line.get(name), int | float) and line.get("round", 0) > 0:
            by_round.setdefault(int(line["round"]), []).append(float(line[name]))
    rounds = np.array(sorted(by_round), float)
    return rounds, running_mean(np.array([np.mean(by_round[int(r)]) for r in rounds]))
