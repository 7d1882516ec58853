"""The chart of gains by client: how much better or worse off each is than if it had trained alone."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np

from majorant.app._text import html_text as escape
from majorant.app.report.chart import Axis, Points, dots, figure, frame, level, n, thousandths
from majorant.app.report.clients import ClientRow, Clients
from majorant.app.report.limits import Limits, value_limits

NAMED = 40  # so many clients have a row with their name; more are points along an axis
DRAWN = 1500  # so many points are drawn; the script finds the others all the same
KINDS = {
    "gains": "gain",
    "loses": "lose",
    "unclear": "unclear: no more than noise, or too few test rows",
    "": "not compared with noise",
}


def gains_figure(clients: Clients) -> tuple[str, Points | None]:
    """The figure, and for long ones the points that the script finds."""
    known = [place for place, row in enumerate(clients.rows) if math.isfinite(row.gain)]
    if not known:
        return "", None
    rows = [clients.rows[place] for place in known]
    range_ = gain_limits(rows)
    if len(rows) <= NAMED:
        return figure("gains", legend(rows) + named_rows(clients, rows, range_), caption(clients, rows, range_)), None
    drawing, points = ranked_points(clients, rows, known, range_)
    return figure("gains", legend(rows) + drawing, caption(clients, rows, range_)), points


def gain_limits(rows: list[ClientRow]) -> Limits:
    """The range of gains and intervals, zero included."""
    ends = [end for row in rows for end in (row.interval or ()) if math.isfinite(end)]
    gains = value_limits(np.array([row.gain for row in rows]), keep=(0.0,))
    wide = value_limits(np.array(ends), keep=(gains.low, gains.high)) if ends else gains
    room = 1.5 * (gains.high - gains.low) or math.inf  # intervals may be much wider than the gains: they can be cut
    low, high = max(wide.low, gains.low - room), min(wide.high, gains.high + room)
    return Limits(low, high, [i for i, row in enumerate(rows) if not low <= row.gain <= high])


def kind_of(row: ClientRow) -> str:
    """The class of a client's colour."""
    return row.verdict or "unjudged"


def legend(rows: list[ClientRow]) -> str:
    """Colours in words, with how many clients have each."""
    found = {kind: sum(row.verdict == kind for row in rows) for kind in KINDS}
    items = "".join(
        f'<li><i class="key {kind or "unjudged"}"></i>{count:,} {escape(KINDS[kind])}</li>'
        for kind, count in found.items()
        if count
    )
    return f'<ul class="legend">{items}</ul>'


def named_rows(clients: Clients, rows: list[ClientRow], limits: Limits) -> str:
    """A row for every client: its name, a dot with its interval, and the number."""
    axis, place = Axis.over((limits.low, limits.high), pad=0.04), clients.places()
    zero = f'<i class="zero" style="left:{n(axis.at(0) / 10)}%"></i>'
    marks = "".join(
        f'<span style="left:{n(axis.at(t) / 10)}%">{escape(text)}</span>'
        for t, text in axis.named(4, percent=clients.metric.percent, unit="")
    )
    lines = [
        f'<div class="row head" aria-hidden="true"><span></span><span class="track">{marks}</span><span></span></div>'
    ]
    for row in rows:
        whisker = ""
        if row.interval:
            low, high = (axis.within(end) / 10 for end in row.interval)
            whisker = f'<i class="whisker" style="left:{n(low)}%;width:{n(high - low)}%"></i>'
        beyond = " beyond" if not axis.low <= row.gain <= axis.high else ""
        dot = f'<i class="dot{beyond}" style="left:{n(axis.within(row.gain) / 10)}%"></i>'
        lines.append(
            f'<div class="row" data-client="{place[row.name]}"><span class="who">{escape(row.name)}</span>'
            f'<span class="track {kind_of(row)}">{zero}{whisker}{dot}</span>'
            f'<span class="number">{escape(clients.metric.show_gain(row.gain))}</span></div>'
        )
    return f'<div class="rows" style="--name:{room_for(row.name for row in rows)}">{"".join(lines)}</div>'


def ranked_points(clients: Clients, rows: list[ClientRow], known: list[int], limits: Limits) -> tuple[str, Points]:
    """Points in order of their gains."""
    axis = Axis.over((limits.low, limits.high), pad=0.04)
    up = lambda value: 1000 - axis.within(value)
    x = lambda rank: 1000 * (rank + 0.5) / len(rows)
    kept = np.unique(np.linspace(0, len(rows) - 1, min(len(rows), DRAWN)).round().astype(int)).tolist()
    whiskers = "".join(
        f"M{n(x(i))} {n(up(rows[i].interval[0]))}V{n(up(rows[i].interval[1]))}" for i in kept if rows[i].interval
    )
    drawing = f'<path class="whiskers" d="{whiskers}"/>' + level(up(0))
    for kind in ("unjudged", "unclear", "loses", "gains", "diverged"):
        some = [i for i in kept if kind_of(rows[i]) == kind]
        drawing += dots(map(x, some), (up(rows[i].gain) for i in some), kind, size=5 if len(rows) < 400 else 3)
    body = frame(
        "gains",
        drawing,
        label="Gains by client",
        height=300,
        y_ticks=[(up(t), text) for t, text in axis.named(percent=clients.metric.percent, unit="")],
        x_name=f"{len(rows):,} clients, in order of their gains",
        y_name=f"Gain, {clients.metric.gain_unit}",
    )
    return body, {"y": thousandths(up(row.gain) for row in rows), "clients": known, "upright": True}


def caption(clients: Clients, rows: list[ClientRow], limits: Limits) -> str:
    """What the chart shows."""
    words = f"Test {clients.metric.words} of {clients.best} against {clients.over}, client by client"
    words += ", in percentage points" if clients.metric.percent else ""
    words += ": to the right of zero" if len(rows) <= NAMED else ": above the dotted line"
    words += " a client is better off than alone."
    if any(row.interval for row in rows):
        words += " Lines are intervals; one that crosses zero may be noise."
        if any(row.interval and (row.interval[0] < limits.low or row.interval[1] > limits.high) for row in rows):
            words += " Those that leave the axis are cut."
    if limits.beyond:
        words += f" Beyond the axis, and drawn at its end: {listed([rows[i].name for i in limits.beyond])}."
    if len(rows) > DRAWN:
        words += f" {DRAWN:,} of the {len(rows):,} clients are drawn; the pointer finds all."
    missing = [row.name for row in clients.rows if not math.isfinite(row.gain)]
    if missing:
        words += f" Not shown, without a gain: {listed(missing)}."
    return words


def room_for(names: Iterable[str]) -> str:
    """The width of the longest name, as CSS; the page limits it.

    >>> room_for(["a", "berlin"])
    '7ch'
    """
    return f"{max(map(len, names), default=0) + 1}ch"


def listed(names: list[str], most: int = 8) -> str:
    """Names in a sentence, the first of them where there are many.

    >>> listed(["a", "b"]), listed(["a", "b", "c"], most=2)
    ('a, b', 'a, b and 1 more')
    """
    return ", ".join(names[:most]) + (f" and {len(names) - most:,} more" if len(names) > most else "")
