"""The figure of how solvers come down to the minimum of a personalized objective, by rounds, gradients and bytes.

Where the minimum F* is known, F − F* in logarithmic scale. What is at or below the rounding of F says nothing more: it
is drawn on a dotted line, at the relative precision of the run's numbers times |F*|.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from majorant.app.report.figures import INK, canvas, in_style, legend, style_of
from majorant.app.report.record import RunRecord
from majorant.app.report.words import byte_unit
from majorant.engines.stopping import number_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDE = 30  # methods whose gradient calls differ by more than this factor are shown on a logarithmic axis


class Curve(NamedTuple):
    """What one run has logged: evaluations (R,), and the objective, or its distance from the minimum, per seed."""

    rounds: np.ndarray  # (R,)
    gradients: np.ndarray  # (R,) of single samples, in both blocks, per client; NaN where they are not counted
    sent: np.ndarray  # (R,) bytes
    values: np.ndarray  # (seeds, R)


def drawable(records: Sequence[RunRecord]) -> list[int]:
    """The places of the records of solvers that have logged their objective."""
    logs = lambda line: np.isfinite(number_of(line, "objective"))
    return [place for place, r in enumerate(records) if r.solves and any(map(logs, r.history))]


@in_style
def objective_curves(records: Sequence[RunRecord]) -> Figure:
    """F − F* (or F, where F* is not known) against rounds, gradients and bytes; a band spans the seeds."""
    places = drawable(records)
    known = all(floor_of(records[place]) is not None for place in places)
    curves = {place: curve_of(records[place], "suboptimality" if known else "objective") for place in places}
    most = lambda x_of: max(
        (np.nan_to_num(getattr(curve, x_of)).max(initial=0) for curve in curves.values()), default=0
    )
    spread, labels = wide([curve.gradients for curve in curves.values()]), {"rounds": (1.0, "Rounds")}
    if most("gradients"):  # not counted without a server
        unit, name = (1.0, "") if spread else count_unit(most("gradients"))
        labels["gradients"] = unit, f"Gradients of samples, per client{name}"
    unit, name = byte_unit(most("sent"))
    labels["sent"] = unit, f"Bytes up and down, all clients ({name})"
    figure, panels = canvas(0.5 + 3.3 * len(labels), 3.7, panels=len(labels))
    lines = {}
    for axes, (x_of, (unit, name)) in zip(panels, labels.items(), strict=True):
        for place, curve in curves.items():
            floor = floor_of(records[place]) if known else None
            lines[place] = draw(axes, getattr(curve, x_of) / unit, curve.values, style_of(place), floor)
        axes.set_xlabel(name)
        axes.locator_params(axis="x", nbins=6)
        if known:
            logarithmic(axes, "y")
    panels[0].set_ylabel("F − F*, the distance from the minimum" if known else "Objective F")
    if spread:
        logarithmic(panels[1], "x")
    if known:
        mark_rounding(panels, [records[place] for place in places], list(curves.values()))
    share_height(panels)
    legend(figure, [lines[place] for place in places], [records[place] for place in places], width=42 * len(labels))
    return figure


def draw(axes: Axes, x: np.ndarray, values: np.ndarray, look: dict[str, Any], floor: float | None) -> Any:
    """One run's curve: the mean over seeds, and a band from the least to the largest; returns the line."""
    mean, low, high = (reduce(values, axis=0) for reduce in (np.mean, np.min, np.max))
    if floor is not None:
        mean, low, high = (np.maximum(part, floor) for part in (mean, low, high))
    (line,) = axes.plot(x, mean, **look, markevery=max(1, len(x) // 8))
    if len(values) > 1:
        axes.fill_between(x, low, high, color=look["color"], alpha=0.15, linewidth=0)
    return line


def curve_of(record: RunRecord, name: str) -> Curve:
    """The evaluations at which all seeds have logged the number."""
    lines = [line for line in record.history if "round" in line]
    rounds = sorted({int(line["round"]) for line in lines})
    row, column = ({value: at for at, value in enumerate(known)} for known in (record.seeds, rounds))
    found = np.full((3, len(row), len(rounds)), np.nan)
    for line in lines:
        sent = number_of(line, "bytes_up") + number_of(line, "bytes_down")
        at = row[line.get("seed")], column[int(line["round"])]
        found[(slice(None), *at)] = number_of(line, name), number_of(line, "gradients"), sent
    whole = np.isfinite(found[0]).all(axis=0)
    values, gradients, sent = found[:, :, whole]
    return Curve(np.array(rounds, float)[whole], gradients.mean(axis=0), sent.mean(axis=0), values)


def floor_of(record: RunRecord) -> float | None:
    """The rounding of F near its minimum, in the precision of the run; None where the minimum is not known."""
    optimum = number_of(record.summary, "optimum")
    if not np.isfinite(optimum):
        return None
    values = np.abs([number_of(line, "objective") for line in record.history])
    precision = np.finfo(np.float64 if record.config.get("precision") == "double" else np.float32).eps
    return float(precision * (max(abs(optimum), 1e-3 * values[np.isfinite(values)].max(initial=0)) or 1))


def wide(counts: Sequence[np.ndarray]) -> bool:
    """Whether some method made very many more gradient calls than another."""
    ends = [count[-1] for count in counts if len(count) and count[-1] > 0]
    return len(ends) > 1 and max(ends) > WIDE * min(ends)


def logarithmic(axes: Axes, which: str) -> None:
    """A logarithmic axis with plain numbers as its labels; where it spans less than a decade, also between powers."""
    from matplotlib.ticker import LogFormatter

    class Plain(LogFormatter):
        def __call__(self, x: float, pos: int | None = None) -> str:
            return plain(x) if super().__call__(x, pos) else ""

    axis = axes.yaxis if which == "y" else axes.xaxis
    axes.set(**{f"{which}scale": "log"})
    axis.set_major_formatter(Plain())
    axis.set_minor_formatter(Plain(minor_thresholds=(1, 0.4)))


def plain(value: float) -> str:
    """A tick of a logarithmic axis as text.

    >>> plain(1e-15), plain(0.02), plain(1000.0)
    ('1e-15', '2e-2', '1,000')
    """
    digit, _, exponent = f"{value:.0e}".partition("e")
    return f"{value:,.0f}" if 1 <= value < 1e6 else f"{digit}e{int(exponent)}"


def count_unit(most: float) -> tuple[float, str]:
    """The unit in which a number of things is easy to read.

    >>> count_unit(250_000)
    (1000.0, ', thousands')
    """
    return next(((s, n) for s, n in ((1e6, ", millions"), (1e3, ", thousands")) if most >= 20 * s), (1.0, ""))


def share_height(panels: Sequence[Axes]) -> None:
    """The same scale everywhere, with its numbers at the left."""
    low, high = np.array([axes.get_ylim() for axes in panels]).T
    for place, axes in enumerate(panels):
        axes.set_ylim(low.min(), high.max())
        axes.tick_params(axis="y", which="both", labelleft=place == 0)


def mark_rounding(panels: Sequence[Axes], records: Sequence[RunRecord], curves: Sequence[Curve]) -> None:
    """A dotted line where a curve has come down to rounding, with its name below it in the first panel."""
    floors = [floor_of(record) for record in records]
    met = {f for f, curve in zip(floors, curves, strict=True) if f is not None and (curve.values <= f).any()}
    for floor in sorted(met):
        for axes in panels:
            axes.axhline(floor, color=INK, linestyle=":", linewidth=1, zorder=1)
        low, high = panels[0].get_ylim()
        panels[0].set_ylim(min(low, floor / (high / floor) ** 0.1), high)  # room for the name
        panels[0].annotate(
            "rounding", (0.02, floor), xycoords=panels[0].get_yaxis_transform(), xytext=(0, -4),
            textcoords="offset points", va="top", fontsize=9,
        )  # fmt: skip
