"""Figures of fronts: what every model costs in loss and criteria, and how its scores go with λ.

Two coordinates (the agents' mean or worst loss and one criterion) make a plane, three make the three planes of their
pairs, and more make parallel coordinates. Numbers beside points are λ, or those of the points where criteria have
several weights or coordinates are parallel; where there is no room for one, the report's table has it. So it has the
dominated points that lie far beyond the front, as where training all but diverged: they would hide the others.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import numpy as np

from majorant.app.front_record import FrontRecord
from majorant.app.report.chart import COLOURS
from majorant.app.report.figures import FAINT, INK, PAPER, canvas, in_style, shown, style_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

GREY = COLOURS[6]
ROLES = {"knee": ("D", COLOURS[1], 130), "best validation": ("s", COLOURS[2], 210), "picked": ("o", INK, 330)}
LABEL = 8.0  # points
FAR = 4.0  # times the extent of the front: dominated points that are further off are not drawn
LINES = 26  # numbers above one another beside parallel coordinates
SIDES = [(1, 0.8), (-1, -0.8), (1, 0), (-1, 0), (1, -0.8), (-1, 0.8), (0, 1), (0, -1)]  # of a point, to try in turn


@in_style
def front(record: FrontRecord) -> Figure:
    """The agents' loss against the criteria; dominated points are hollow, chosen ones framed."""
    return planes(record) if len(record.names) <= 3 else parallel(record)


def placed(record: FrontRecord) -> np.ndarray:
    """What is drawn, ``(points, coordinates)``: NaN for points far beyond the front."""
    values = np.array([point.values for point in record.points])
    front = np.array([point.values for point in record.on_front])
    low, high = front.min(axis=0), front.max(axis=0)
    extent = np.where(high > low, high - low, np.abs(high))
    return np.where((values <= high + FAR * extent).all(axis=1, keepdims=True), values, np.nan)


def planes(record: FrontRecord) -> Figure:
    """A panel for every pair of coordinates."""
    pairs = [(b, a) for a, b in itertools.combinations(range(len(record.names)), 2)]  # the loss is upright
    figure, panels = canvas(6.4 if len(pairs) == 1 else 3.7 * len(pairs), 4.2, len(pairs))
    handles: dict[str, Any] = {}
    values = placed(record)
    for axes, (x, y) in zip(panels, pairs, strict=True):
        handles |= plane(axes, record, values, x, y)
    figure.legend(handles.values(), handles.keys(), loc="outside upper left", ncols=6, columnspacing=1.4)
    figure.draw_without_rendering()  # the layout must be known before labels are placed
    for axes, (x, y) in zip(panels, pairs, strict=True):
        label(axes, record, values, x, y)
    return figure


def plane(axes: Axes, record: FrontRecord, values: np.ndarray, x: int, y: int) -> dict[str, Any]:
    """The points in two coordinates, and for the legend what was drawn."""
    drawn: dict[str, Any] = {}
    on_front = "on the front, with λ" if len(record.preferences) == 1 else "on the front, with its number"
    for shares in record.preferences:
        kept = [(p.values[x], p.values[y]) for p in record.path(shares) if not p.dominated]
        axes.plot(*np.reshape(kept, (-1, 2)).T, color=COLOURS[0], linewidth=1, alpha=0.5, zorder=2)
    for role, (marker, colour, size) in reversed(ROLES.items()):
        for point in record.points:
            if role in record.roles(point.point):
                place = values[point.point]
                drawn[role] = axes.scatter([place[x]], [place[y]], s=size, marker=marker, facecolor="none",
                                           edgecolor=colour, zorder=3, linewidth=1.6)  # fmt: skip
    for point in record.points:
        face, edge = (PAPER, GREY) if point.dominated else (COLOURS[0], COLOURS[0])
        place = values[point.point]
        made = axes.scatter([place[x]], [place[y]], s=30, color=face, edgecolor=edge, linewidth=1.2,
                            zorder=4, gid=f"point-{point.point}")  # fmt: skip
        drawn["dominated" if point.dominated else on_front] = made
    axes.set_xlabel(shown(record.names[x].capitalize(), 30))
    axes.set_ylabel(shown(record.names[y].capitalize(), 30))
    axes.margins(0.12)
    order = [on_front, "dominated", *ROLES]
    return {name: drawn[name] for name in order if name in drawn}


def label(axes: Axes, record: FrontRecord, values: np.ndarray, x: int, y: int) -> None:
    """Writes λ beside the points, each where it covers neither a point nor another label, or not at all."""
    known = [point for point in record.points if np.isfinite(values[point.point]).all()]
    scale = 72 / axes.figure.dpi
    centres = axes.transData.transform([(point.values[x], point.values[y]) for point in known]) * scale
    edges = axes.get_window_extent()
    left, bottom, right, top = (edge * scale for edge in (edges.x0, edges.y0, edges.x1, edges.y1))
    sizes = [10.0 if set(record.roles(point.point)) & ROLES.keys() else 4.0 for point in known]
    taken = [(cx - r, cy - r, cx + r, cy + r) for (cx, cy), r in zip(centres, sizes, strict=True)]
    for point, (cx, cy), radius in zip(known, centres, sizes, strict=True):
        text = f"{point.weight:.3g}" if len(record.preferences) == 1 else str(point.point)
        width = 0.62 * LABEL * len(text)
        for right_of, above in SIDES:
            dx, dy = right_of * (radius + 2), above * (radius + 2 if right_of else radius + 6)
            start = cx + dx - (0 if dx > 0 else width if dx < 0 else width / 2)
            box = (start, cy + dy - LABEL / 2, start + width, cy + dy + LABEL / 2)
            inside = left <= box[0] and box[2] <= right + 20 and bottom <= box[1] and box[3] <= top
            if inside and not any(overlap(box, other) for other in taken):
                taken.append(box)
                where = "left" if dx > 0 else "right" if dx < 0 else "center"
                axes.annotate(text, (point.values[x], point.values[y]), xytext=(dx, dy), textcoords="offset points",
                              ha=where, va="center", fontsize=LABEL, color=GREY if point.dominated else INK,
                              zorder=5)  # fmt: skip
                break


def overlap(a: tuple[float, ...], b: tuple[float, ...]) -> bool:
    """Whether two boxes (left, bottom, right, top) have a point in common."""
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]


def parallel(record: FrontRecord) -> Figure:
    """A vertical axis for every coordinate, from its least value to its largest, and a line for every point."""
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import LinearSegmentedColormap, Normalize

    values = placed(record)
    low, high = np.nanmin(values, axis=0), np.nanmax(values, axis=0)
    height = (values - low) / np.where(high > low, high - low, 1)
    places = range(len(record.names))
    figure, (axes,) = canvas(max(6.8, 1.55 * len(record.names)), 4.3)
    blend = LinearSegmentedColormap.from_list("λ", [COLOURS[0], "#9a9a8c", COLOURS[4]])  # to be seen in both themes
    shades = ScalarMappable(Normalize(0, max(p.weight for p in record.points) or 1), blend)
    handles: dict[str, Any] = {}
    for place in places:
        axes.axvline(place, color=FAINT, linewidth=1, zorder=1)
        for end, value, side in ((0, low[place], "top"), (1, high[place], "bottom")):
            axes.annotate(f"{value:.3g}", (place, end), xytext=(0, 6 if end else -6), textcoords="offset points",
                          ha="center", va=side, fontsize=LABEL)  # fmt: skip
    for role, (_, colour, _) in ROLES.items():
        for point in record.points:
            if role in record.roles(point.point) and role != "picked":
                (handles[role],) = axes.plot(
                    places, height[point.point], color=colour, linewidth=6, alpha=0.45, zorder=2
                )
    for point in record.points:
        look: dict[str, Any] = {"color": GREY, "linestyle": ":", "markerfacecolor": PAPER}
        if not point.dominated:
            look = {"color": shades.to_rgba(np.array([point.weight]))[0]}
        (line,) = axes.plot(places, height[point.point], marker="o", markersize=4, linewidth=1.6, zorder=3, **look)
        line.set_gid(f"point-{point.point}")
        if point.dominated:
            handles["dominated"] = line
        if point.point == record.picked:
            (handles["picked"],) = axes.plot(places, height[point.point], "o", markersize=10, markerfacecolor="none",
                                             markeredgecolor=INK, zorder=4)  # fmt: skip
    number_lines(axes, height[:, 0])
    axes.set_xticks(places, [shown(name.capitalize(), 20) for name in record.names])
    axes.set_yticks([])
    axes.set_ylim(-0.12, 1.12)
    axes.set_xlim(right=len(record.names) - 0.7)
    axes.grid(visible=False)
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0, pad=8)
    bar = figure.colorbar(shades, ax=axes, label="λ", pad=0.02)
    bar.outline.set_visible(False)
    figure.legend(handles.values(), handles.keys(), loc="outside upper left", ncols=4)
    return figure


def number_lines(axes: Axes, heights: np.ndarray) -> None:
    """Writes the points' numbers left of the first of parallel axes, as close to the points as there is room."""
    from sklearn.isotonic import isotonic_regression

    order = [place for place in np.argsort(heights) if np.isfinite(heights[place])]
    columns = -(-len(order) // LINES)
    apart = np.arange(len(order)) / (LINES * columns - 1)
    levels = isotonic_regression(heights[order] - apart, y_min=0, y_max=1 - apart[-1]) + apart
    for turn, (place, level) in enumerate(zip(order, levels, strict=True)):
        left = -0.14 - 0.14 * (turn % columns)
        axes.plot([-0.02, left + 0.02], [heights[place], level], color=FAINT, linewidth=0.8, zorder=1)
        axes.annotate(str(place), (left, level), ha="right", va="center", fontsize=LABEL)
    axes.set_xlim(left=-0.3 - 0.14 * columns)


@in_style
def path(record: FrontRecord) -> Figure:
    """Scores on test and validation samples against λ; for regression the losses."""
    points = record.points
    scores = {
        "test accuracy": [p.accuracy for p in points],
        "test macro F1": [p.macro_f1 for p in points],
        "validation accuracy": [p.validation_accuracy for p in points],
    }
    percent = any(np.isfinite(values).any() for values in scores.values())
    if not percent:
        scores = {
            "training loss": [p.loss for p in points],
            "test loss": [p.test_loss for p in points],
            "validation loss": [p.validation_loss for p in points],
        }
    known = {name: np.array(values) for name, values in scores.items() if np.isfinite(values).any()}
    if len(record.preferences) > 1:
        figure, panels, lines = by_preference(record, known)
    else:
        figure, panels, lines = together(record, known)
    for axes in panels:
        axes.set_xlabel("λ, the weight of the criteria")
        if percent:
            axes.yaxis.set_major_formatter(lambda value, _: f"{100 * value:.3g} %")
    if len(record.preferences) == 1:
        panels[0].set_ylabel("Score" if percent else "Mean loss")
    figure.legend(lines.values(), lines.keys(), loc="outside upper left", ncols=3, labelspacing=0.9)
    return figure


def together(record: FrontRecord, scores: dict[str, np.ndarray]) -> tuple[Figure, list[Axes], dict[str, Any]]:
    """A line for every score; what was drawn, for the legend."""
    figure, panels = canvas(6.4, 4.2)
    weights = [point.weight for point in record.points]
    lines: dict[str, Any] = {}
    for turn, (name, values) in enumerate(scores.items()):
        (lines[name],) = panels[0].plot(weights, values, **style_of(turn))
    for name, place in {"knee": record.knee, "best validation": record.best_validation}.items():
        if place is not None:
            line = ":" if name == "knee" else (0, (6, 2, 1, 2))
            lines[name] = panels[0].axvline(weights[place], color=INK, linestyle=line, linewidth=1.2, zorder=1)
    return figure, panels, lines


def by_preference(record: FrontRecord, scores: dict[str, np.ndarray]) -> tuple[Figure, list[Axes], dict[str, Any]]:
    """A panel for every score, with a line for all points with the same weights of the criteria."""
    figure, panels = canvas(max(6.4, 3.7 * len(scores)), 4.2, max(1, len(scores)))
    lines: dict[str, Any] = {}
    for axes, (name, values) in zip(panels, scores.items(), strict=False):
        for turn, shares in enumerate(record.preferences):
            swept = [point.point for point in record.path(shares)]
            of = "criteria weights " + " ".join(f"{share:.3g}" for share in shares)
            (lines[of],) = axes.plot([record.points[i].weight for i in swept], values[swept], **style_of(turn))
        for role, (marker, colour, size) in ROLES.items():
            for point in record.points:
                if role in record.roles(point.point):
                    lines[role] = axes.scatter([point.weight], [values[point.point]], s=size, marker=marker,
                                               facecolor="none", edgecolor=colour, zorder=3, linewidth=1.6)  # fmt: skip
        axes.set_ylabel(name[0].upper() + name[1:])
    return figure, panels, lines


def draw_front(record: FrontRecord) -> dict[str, Figure]:
    """The figures of a front by name, in the order of the report."""
    return {"front": front(record), "path": path(record)}
