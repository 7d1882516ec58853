"""Figures of runs, drawn with Matplotlib from plain records (the extra ``majorant[report]``).

Colours are Okabe and Ito's, which colour-blind readers can tell apart; line styles and markers repeat the distinction
for print. Every function returns a ``Figure`` and leaves Matplotlib's global state as it found it.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from majorant._extras import require
from majorant.app.files import atomic_write_bytes, make_folder
from majorant.app.report.chart import COLOURS
from majorant.app.report.limits import curve_limits
from majorant.app.report.record import RunRecord, amount
from majorant.app.report.strips import density
from majorant.app.report.words import Metric, byte_unit, metric

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INK, FAINT, PAPER = "#1f2328", "#d0d7de", "#fefefe"  # the page replaces these three in its dark theme
LINES, MARKERS = ("-", "--", "-.", ":"), ("o", "s", "^", "D", "v", "P", "X")
GAP = "\u2003\u2003"  # wide spaces that browsers keep
STYLE: Any = {
    "font.family": "sans-serif", "font.sans-serif": ["DejaVu Sans"], "font.size": 10, "text.parse_math": False,
    "text.color": INK, "axes.labelcolor": INK, "axes.edgecolor": INK, "xtick.color": INK, "ytick.color": INK,
    "axes.spines.top": False, "axes.spines.right": False, "axes.linewidth": 0.8, "axes.axisbelow": True,
    "axes.grid": True, "grid.color": FAINT, "grid.linewidth": 0.6, "axes.facecolor": "none",
    "axes.titlesize": 10, "axes.titleweight": "bold", "axes.titlelocation": "left", "axes.titlepad": 10,
    "legend.frameon": False, "legend.fontsize": 9, "lines.linewidth": 1.8, "lines.markersize": 5,
    "savefig.dpi": 200, "pdf.fonttype": 42, "svg.hashsalt": "majorant", "svg.fonttype": "path",
}  # fmt: skip


def styled() -> AbstractContextManager[None]:
    """Our style for the time of a ``with`` block."""
    return require("matplotlib", "report", "a figure").rc_context(STYLE)


def in_style(draw: Callable[..., Figure]) -> Callable[..., Figure]:
    """Draws in our style."""

    @wraps(draw)
    def drawn(*args: Any, **kwargs: Any) -> Figure:
        with styled():
            return draw(*args, **kwargs)

    return drawn


def canvas(width: float, height: float, panels: int = 1, rows: int = 1) -> tuple[Figure, list[Axes]]:
    """An empty figure in inches with panels side by side, in one row or several."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, list(np.ravel(figure.subplots(rows, panels)))


@in_style
def convergence(records: Sequence[RunRecord], against: str = "rounds") -> Figure:
    """The test metric against "rounds" or against "bytes" sent and received; a band spans the seeds."""
    figure, (axes,) = canvas(5.6, 3.9)
    series = [record.series() for record in records]
    unit, name = byte_unit(max((total.max(initial=0) for _, total, _ in series), default=0))
    lines = []
    for place, (rounds, total, values) in enumerate(series):
        x, y = (rounds if against == "rounds" else total / unit), np.nanmean(values, axis=0)
        look = style_of(place) | {"markevery": max(1, len(x) // 8)}
        if against == "bytes" and len(y) and not total.any():  # nothing travels: a level to compare with
            lines.append(axes.axhline(y[-1], color=look["color"], linestyle=look["linestyle"]))
            continue
        lines += axes.plot(x, y, **look)
        if len(values) > 1:
            low, high = np.nanmin(values, axis=0), np.nanmax(values, axis=0)
            axes.fill_between(x, low, high, color=look["color"], alpha=0.15, linewidth=0)
    means = [np.nanmean(values, axis=0) for _, _, values in series]
    limits = curve_limits(means, metric_of(records))
    if limits.beyond:  # one that went astray must not flatten the others
        room = 0.05 * (limits.high - limits.low)
        axes.set_ylim(limits.low - room, limits.high + room)
    axes.set_xlabel("Rounds" if against == "rounds" else f"Bytes sent and received, all clients ({name})")
    axes.set_ylabel(f"Test {metric_of(records).words}, mean over clients")
    percent(axes.yaxis, records)
    legend(figure, lines, records)
    return figure


@in_style
def lines(
    curves: dict[str, tuple[list[float], list[float]]],
    x_name: str,
    y_name: str,
    bands: dict[str, tuple[list[float], list[float]]] | None = None,
    dots: Sequence[str] = (),
) -> Figure:
    """Named curves over one axis, for experiments that vary a parameter; ``bands`` (low and high) lie around them.

    Names such as "left | ours" and "right | ours" put curves in panels side by side. Curves named in ``dots`` are
    points with nothing between them.
    """
    split = {name: name.rpartition(" | ")[::2] for name in curves}
    panels, names = (list(dict.fromkeys(parts)) for parts in zip(*split.values(), strict=True))
    figure, axes = canvas(5.6 if len(panels) == 1 else 3.6 * len(panels), 3.9, len(panels))
    found = {}
    for key, (x, y) in curves.items():
        panel, name = split[key]
        where, look = axes[panels.index(panel)], style_of(names.index(name)) | {"markevery": max(1, len(x) // 10)}
        look |= {"linestyle": "", "markevery": 1} if key in dots else {}
        (found[name],) = where.plot(x, y, **look)
        if bands and key in bands:
            where.fill_between(x, *bands[key], color=look["color"], alpha=0.2, linewidth=0)
        where.set_title(panel)
        where.set_xlabel(x_name)
    axes[0].set_ylabel(y_name)
    words = [shown(name, 36) for name in found]
    fitting = int(figure.get_figwidth() // (0.65 + 0.085 * max(map(len, words))))  # inches of a line and of a letter
    columns = max(1, min(2 * len(panels), fitting))
    figure.legend(found.values(), words, loc="outside upper left", ncols=columns)
    figure.set_figheight(figure.get_figheight() + 0.2 * (len(names) // columns))
    return figure


@in_style
def distribution(records: Sequence[RunRecord]) -> Figure:
    """The test metric of every client, a row per method: density, one dot per client, mean and bottom decile."""
    figure, (axes,) = canvas(7.2, 1.2 + 0.95 * max(len(records), 1))
    found = [values[np.isfinite(values)] for values in (record.per_client() for record in records)]
    pooled = np.concatenate([*found, np.zeros(0)])
    low, high = (pooled.min(), pooled.max()) if len(pooled) else (0.0, 1.0)
    pad = 0.02 * (high - low) or 0.05
    for place, record in enumerate(records):
        values, colour = record.per_client(), style_of(place)["color"]
        unseen = record.unseen[: len(values)]
        seen = values[~unseen & np.isfinite(values)]
        grid, height = density(seen, low - pad, high + pad)
        axes.fill_between(grid, place, place - 0.52 * height, color=colour, alpha=0.35, linewidth=0)
        axes.plot(grid, place - 0.52 * height, color=colour, linewidth=1)
        for dots, face in ((seen, colour), (values[unseen & np.isfinite(values)], PAPER)):
            dots, jitter = cloud(dots)
            axes.scatter(
                dots, place + 0.07 + 0.2 * jitter, s=8, color=face, edgecolor=colour, linewidth=0.6, alpha=0.75
            )
        for statistic, marker in (("mean", "D"), ("bottom_decile", "|")):
            where = record.score("test", statistic)
            size = 42 if marker == "D" else 260
            axes.scatter([where], [place], s=size, marker=marker, color=INK, linewidth=2, zorder=5)
    axes.set_yticks(range(len(records)), [shown(record.label) for record in records])
    axes.set_ylim(len(records) - 0.55, -0.75)
    axes.set_xlim(low - pad, high + pad)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    axes.grid(visible=False, axis="y")
    words = [f"Test {metric_of(records).words} of each client", "◆ mean", f"❙ {metric_of(records).tail}"]
    axes.set_xlabel(GAP.join(words + ["○ unseen"] * any(record.unseen.any() for record in records)))
    percent(axes.xaxis, records)
    return figure


@in_style
def mixture(record: RunRecord) -> Figure:
    """The mixture weights of the clients, grouped by their largest one; marks under the map are unseen clients."""
    weights, unseen = record.mixture, record.unseen
    clients, components = weights.shape
    order = np.lexsort((-weights.max(axis=1, initial=0), weights.argmax(axis=1))) if weights.size else np.zeros(0, int)
    order = order[np.linspace(0, len(order) - 1, min(len(order), 3000)).astype(int)]
    weights, unseen = weights[order], unseen[order]
    figure, (axes,) = canvas(7.2, 1.5 + 0.42 * components)
    image = axes.imshow(
        weights.T, aspect="auto", cmap="cividis", vmin=0, vmax=1, interpolation="nearest", rasterized=True
    )
    axes.set_yticks(range(components), [f"π {m + 1}" for m in range(components)])
    axes.set_xticks(np.flatnonzero(np.diff(weights.argmax(axis=1))) + 0.5 if clients else [], [], minor=False)
    for edge in range(1, components):
        axes.axhline(edge - 0.5, color=PAPER, linewidth=1.5)
    if unseen.any():
        below = np.full(int(unseen.sum()), -0.05)
        axes.plot(np.flatnonzero(unseen), below, "^", color=COLOURS[1], markersize=4, clip_on=False,
                  transform=axes.get_xaxis_transform())  # fmt: skip
    axes.grid(visible=False)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    words = [f"{clients} clients, grouped by their largest weight", "▲ unseen at training"]
    axes.set_xlabel(GAP.join(words[: 2 if unseen.any() else 1]), labelpad=12)
    axes.set_title(shown(record.label))
    bar = figure.colorbar(image, ax=axes, label="Weight", pad=0.02, ticks=[0, 0.5, 1])
    bar.outline.set_visible(False)
    return figure


@in_style
def costs(records: Sequence[RunRecord]) -> Figure:
    """What the runs cost: bytes up and down, and seconds to compile, train and evaluate."""
    figure, panels = canvas(7.2, 1.5 + 0.5 * max(len(records), 1), panels=2)
    traffic = [record.summary.get("communication") or {} for record in records]
    seconds = [record.summary.get("seconds") or {} for record in records]
    unit, name = byte_unit(max((amount(t, "bytes_up") + amount(t, "bytes_down") for t in traffic), default=0))
    bars(panels[0], traffic, (("bytes_up", "up"), ("bytes_down", "down")), unit)
    panels[0].set_xlabel(f"Bytes, all clients and rounds ({name})")
    bars(panels[1], seconds, (("compile", "compile"), ("train", "train"), ("evaluate", "evaluate")), 1.0)
    panels[1].set_xlabel("Seconds")
    panels[0].set_yticks(range(len(records)), [shown(record.label) for record in records])
    panels[1].set_yticks(range(len(records)), [""] * len(records))
    return figure


def bars(axes: Axes, costs: Sequence[dict[str, Any]], parts: Iterable[tuple[str, str]], unit: float) -> None:
    """Stacked horizontal bars, a row per method, with the total at the end."""
    left, rows = np.zeros(len(costs)), np.arange(len(costs))
    for (key, label), colour in zip(parts, (COLOURS[0], COLOURS[4], FAINT), strict=False):
        width = np.array([amount(cost, key) / unit for cost in costs])
        axes.barh(rows, width, left=left, height=0.55, color=colour, label=label, edgecolor=PAPER, linewidth=0.8)
        left = left + width
    for row, total in zip(rows, left, strict=True):
        axes.annotate(f"{total:.3g}", (total, row), xytext=(4, 0), textcoords="offset points", va="center", fontsize=9)
    axes.set_xlim(0, 1.18 * left.max(initial=0) or 1)
    axes.set_ylim(len(costs) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0)
    axes.grid(visible=False, axis="y")
    axes.legend(loc="lower left", bbox_to_anchor=(-0.02, 1), ncols=3, handlelength=1, columnspacing=1.2)


def draw_all(records: Sequence[RunRecord]) -> dict[str, Figure]:
    """Every figure that the records have data for, by name, in the order of a report."""
    drawn: dict[str, Figure] = {}
    if any(len(record.series()[0]) for record in records):
        drawn["convergence"] = convergence(records)
        if any(record.series()[1].any() for record in records):
            drawn["communication"] = convergence(records, against="bytes")
    if any(len(record.per_client()) for record in records):
        drawn["distribution"] = distribution(records)
    mixed = [record for record in records if record.mixture.size]
    drawn |= {f"mixture-{place}" if len(mixed) > 1 else "mixture": mixture(r) for place, r in enumerate(mixed, 1)}
    drawn |= draw_diagnostics(records)
    if any(record.summary.get("communication") or record.summary.get("seconds") for record in records):
        drawn["costs"] = costs(records)
    return drawn


def draw_diagnostics(records: Sequence[RunRecord]) -> dict[str, Figure]:
    """The figures of objectives, rates and networks that the records have data for."""
    from majorant.app.report.diagnosis import measured, rates

    drawn: dict[str, Figure] = {}
    if any(record.solves for record in records):
        from majorant.app.report.objective_curves import drawable, objective_curves

        if drawable(records):
            drawn["objective"] = objective_curves(records)
    if measured(records):
        drawn["rates"] = rates(records)
    if any("network" in record.summary for record in records):
        from majorant.app.report.graph_picture import networks_of

        drawn |= networks_of(records)
    return drawn


def render(figure: Figure, format: str, *, text: bool = False) -> bytes:
    """A figure as the bytes of a "pdf", "png" or "svg" file; with ``text``, letters in SVG stay letters."""
    stream, undated = io.BytesIO(), {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(format)
    with styled(), warnings.catch_warnings():
        import matplotlib

        warnings.filterwarnings("ignore", message="Glyph .* missing")  # a label in a script the font does not have
        matplotlib.rcParams["svg.fonttype"] = "none" if text else "path"
        figure.savefig(stream, format=format, metadata=undated, facecolor="none" if format == "svg" else "white")
    return stream.getvalue()


def save_figures(records: Sequence[RunRecord], folder: str | Path, format: str = "pdf") -> list[Path]:
    """Draws every figure into a folder and returns the files."""
    if format not in ("pdf", "png", "svg"):
        raise ValueError(f"figures are saved as pdf, png or svg, not {format!r}")
    paths = []
    make_folder(Path(folder))
    for name, figure in draw_all(records).items():
        paths.append(Path(folder) / f"{name}.{format}")
        atomic_write_bytes(paths[-1], render(figure, format))
    return paths


def style_of(place: int) -> dict[str, Any]:
    """Colour, line and marker of the method at a place."""
    turn, colour = divmod(place, len(COLOURS))
    return {"color": COLOURS[colour], "linestyle": LINES[(colour + turn) % 4], "marker": MARKERS[(colour + turn) % 7]}


def legend(figure: Figure, lines: Sequence[Any], records: Sequence[RunRecord], width: int = 70) -> None:
    """Labels above the axes, ``width`` letters wide; set afterwards, as Matplotlib hides those that begin with "_"."""
    columns = min(width // 17, width // (9 + max((len(shown(record.label)) for record in records), default=0)))
    made = figure.legend(lines, ["x"] * len(lines), loc="outside upper left", ncols=columns)
    figure.set_figheight(figure.get_figheight() + 0.2 * ((len(lines) - 1) // columns))
    for text, record in zip(made.get_texts(), records, strict=True):
        text.set_text(shown(record.label))


def shown(label: str, most: int = 24) -> str:
    """A label that fits: printable and not too long."""
    label = "".join(c if c.isprintable() else "�" for c in label)
    return label if len(label) <= most else label[: most - 1] + "…"


def metric_of(records: Sequence[RunRecord]) -> Metric:
    """The metric that the runs are judged by."""
    return metric(records[0].metric if records else "accuracy")


def percent(axis: Any, records: Sequence[RunRecord]) -> None:
    """Shares as percentages."""
    if metric_of(records).percent:
        axis.set_major_formatter(lambda value, _: f"{100 * value:.3g} %")


def cloud(values: np.ndarray, most: int = 400) -> tuple[np.ndarray, np.ndarray]:
    """At most so many of the values, evenly by rank, and an even scatter in [0, 1) to set them apart."""
    kept = np.sort(values)[np.linspace(0, len(values) - 1, min(len(values), most)).astype(int)]
    return kept, (np.arange(len(kept)) * 0.6180339887) % 1
