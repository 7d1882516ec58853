"""The scores of all clients by method: a strip of dots for each."""

from __future__ import annotations

import math

import numpy as np

from majorant.app._text import html_text as escape
from majorant.app.report.chart import Axis, Points, dots, figure, frame, level_class, look, n, thousandths
from majorant.app.report.clients import Clients
from majorant.app.report.curves import Levels
from majorant.app.report.limits import value_limits

MOST_DOTS = 400  # of a method, evenly by rank
FEW = 12  # clients have no density
HEIGHT = 84  # pixels of a strip


def strips_figure(
    clients: Clients, statistics: dict[str, tuple[float, float]], levels: Levels = ()
) -> tuple[str, Points | None]:
    """The figure, and the points that the script finds; statistics are mean and decile by label."""
    scores = {label: np.array([row.scores.get(label, math.nan) for row in clients.rows]) for label in clients.labels}
    if not scores or not any(np.isfinite(values).any() for values in scores.values()):
        return "", None
    pooled = np.concatenate(list(scores.values()))
    limits = value_limits(pooled[np.isfinite(pooled)], keep=[v for _, v in levels])
    axis, count = Axis.over((limits.low, limits.high), pad=0.03), len(scores)
    drawing = ""
    points: Points = {"x": [], "y": [], "clients": [], "tips": []}
    for turn, (label, values) in enumerate(scores.items()):
        middle, room = 1000 * (turn + 0.55) / count, 1000 / count
        drawing += strip(values, axis, look(clients.labels.index(label))[0], middle, room)
        kept = spread_out(values)
        for rank, client in enumerate(kept):
            points["x"].append(axis.within(values[client]))
            points["y"].append(middle + room * scatter(rank))
            points["clients"].append(int(client))
            points["tips"].append(f"{label}: {clients.metric.show(values[client])}")
        for value, mark in zip(statistics.get(label, ()), ("mean", "tail"), strict=False):
            if math.isfinite(value):
                drawing += tall(axis.within(value), middle, room, mark)
    for turn, (_, value) in enumerate(levels):
        drawing += f'<path class="{level_class(turn)}" d="M{n(axis.within(value))} 0V1000"/>'
    longest = max(len(label) for label in scores)
    body = key(clients, levels) + frame(
        "strips",
        drawing,
        label=f"Test {clients.metric.words} of all clients by method",
        height=HEIGHT * count,
        x_ticks=[(axis.at(t), text) for t, text in axis.named(percent=clients.metric.percent)],
        y_ticks=[(1000 * (turn + 0.55) / count, label) for turn, label in enumerate(scores)],
        x_name=f"Test {clients.metric.words} of each client",
        left=f"clamp(3rem, {min(longest, 18) * 0.48 + 0.8:.1f}rem, 32vw)",
    )
    points |= {name: thousandths(points[name]) for name in ("x", "y")}
    return figure("strips", body, caption(clients, len(limits.beyond))), points


def strip(values: np.ndarray, axis: Axis, colour: str, middle: float, room: float) -> str:
    """Density above, dots below."""
    known, hill = values[np.isfinite(values)], ""
    if len(known) >= FEW:
        grid, height = density(np.clip(known, axis.low, axis.high), axis.low, axis.high)
        top = [f"{n(axis.at(x))} {n(middle - 0.42 * room * h)}" for x, h in zip(grid, height, strict=True)]
        area = f"M{n(axis.at(grid[0]))} {n(middle)}L{'L'.join(top)}L{n(axis.at(grid[-1]))} {n(middle)}Z"
        hill = f'<path d="{area}" fill="{colour}" fill-opacity="0.3" stroke="none"/>'
    kept = spread_out(values)
    cloud = dots(
        (axis.within(values[i]) for i in kept),
        (middle + room * scatter(rank) for rank in range(len(kept))),
        "cloud",
        size=5 if len(kept) < 150 else 3.5,
        colour=colour,
    )
    return hill + cloud


def scatter(rank: int) -> float:
    """How far below the middle a dot is, in strips: evenly, so that neighbours are apart."""
    return 0.08 + 0.24 * ((rank * 0.6180339887) % 1)


def spread_out(values: np.ndarray) -> list[int]:
    """At most so many of the clients with a score, evenly by rank."""
    order = [int(i) for i in np.argsort(values, kind="stable") if math.isfinite(values[i])]
    return [order[i] for i in np.unique(np.linspace(0, len(order) - 1, min(len(order), MOST_DOTS)).astype(int))]


def tall(x: float, middle: float, room: float, kind: str) -> str:
    """An upright line for the mean (whole) or the decile (dashed)."""
    dashes = ' stroke-dasharray="3 2"' if kind == "tail" else ""
    return (
        f'<path d="M{n(x)} {n(middle - 0.36 * room)}V{n(middle + 0.36 * room)}" stroke="var(--ink)" stroke-width="2.5"'
        f' fill="none"{dashes}/>'
    )


def key(clients: Clients, levels: Levels) -> str:
    """The lines in words."""
    items = [("", "mean"), ("3 2", clients.metric.tail)]
    drawn = "".join(
        f'<li><svg viewBox="0 0 30 12" aria-hidden="true"><path d="M15 0V12" stroke="var(--ink)" stroke-width="2.5"'
        f' stroke-dasharray="{dashes}"/></svg>{escape(text)}</li>'
        for dashes, text in items
    )
    for turn, (text, _) in enumerate(levels):
        sample = f'<path class="{level_class(turn)}" d="M0 6H30"/>'
        drawn += f'<li><svg viewBox="0 0 30 12" aria-hidden="true">{sample}</svg>{escape(text)}</li>'
    return f'<ul class="legend">{drawn}</ul>'


def caption(clients: Clients, beyond: int) -> str:
    """What the strips show."""
    density_too = ", with the density above" if len(clients.rows) >= FEW else ""
    words = (
        f"One dot per client{density_too}; {clients.metric.direction}. Look at the {clients.metric.tail}: a"
        " method that serves everybody has a short tail there, and not only a good mean."
    )
    if beyond:
        words += f" Drawn at the end of the axis, as {'it lies' if beyond == 1 else 'they lie'} beyond: {beyond:,}."
    if len(clients.rows) > MOST_DOTS:
        words += f" {MOST_DOTS} of the {len(clients.rows):,} clients are drawn for each method, evenly by rank."
    return words


def density(values: np.ndarray, low: float, high: float, bins: int = 128) -> tuple[np.ndarray, np.ndarray]:
    """A smoothed histogram scaled to height 1, reflected at the ends so that no mass leaks out."""
    counts, edges = np.histogram(values, bins=bins, range=(low, high))
    width = max(1.0, 0.9 * values.std() * max(len(values), 1) ** -0.2 / (high - low) * bins) if len(values) else 1.0
    offsets = np.arange(-bins + 1, bins)
    kernel = np.exp(-0.5 * (offsets / width) ** 2)
    smooth = np.convolve(np.concatenate([counts[::-1], counts, counts[::-1]]), kernel, mode="same")[bins : 2 * bins]
    return (edges[1:] + edges[:-1]) / 2, smooth / (smooth.max() or 1)
