"""Curves of scores over rounds and over traffic."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from majorant.app.report.chart import Axis, Points, figure, frame, legend, level, line, look, n, thousandths
from majorant.app.report.limits import curve_limits
from majorant.app.report.record import RunRecord
from majorant.app.report.words import byte_unit, metric

MOST_POINTS = 400  # of a curve; more cannot be told apart
Levels = Sequence[tuple[str, float]]


def curve_figure(records: Sequence[RunRecord], against: str, levels: Levels = ()) -> tuple[str, Points]:
    """The test score against "rounds" or "bytes"; a band spans the seeds, and levels are dotted lines with names."""
    scale = metric(records[0].metric)
    series = [thinned(*record.series()) for record in records]
    curves = [np.nanmean(values, axis=0) for _, _, values in series]
    limits = curve_limits(curves, scale, keep=[v for _, v in levels])
    y_axis = Axis.over((limits.low, limits.high))
    up = lambda value: np.clip(1000 - np.array([y_axis.at(v) for v in np.atleast_1d(value)]), -3000, 4000)
    most = max((float(total.max(initial=0)) for _, total, _ in series), default=0.0)
    unit, name = byte_unit(most)
    places = [rounds if against == "rounds" else total / unit for rounds, total, _ in series]
    x_axis = Axis(0.0, max((float(x.max(initial=0)) for x in places), default=0.0) or 1.0)
    drawing = ""
    tips: Points = {"x": [], "y": [], "tips": []}
    for place, (record, x, (rounds, total, values), curve) in enumerate(
        zip(records, places, series, curves, strict=True)
    ):
        colour, dashes = look(place)
        level_only = against == "bytes" and len(curve) and not total.any()  # nothing travels: a level to compare with
        x, values, rounds = (
            (np.array([0.0, x_axis.high]), values[:, [-1, -1]], rounds[[-1, -1]]) if level_only else (x, values, rounds)
        )
        mean, across = np.nanmean(values, axis=0), np.array([x_axis.at(v) for v in x])
        if len(values) > 1:
            drawing += band(across, up(np.nanmin(values, axis=0)), up(np.nanmax(values, axis=0)), colour)
        drawing += line(across, up(mean), colour, dashes)
        for at, height, value, r, spread in zip(across, up(mean), mean, rounds, values.T, strict=True):
            if math.isfinite(value) and 0 <= height <= 1000:
                several = (
                    f" ({scale.show(np.nanmin(spread))} to {scale.show(np.nanmax(spread))} over seeds)"
                    if len(spread) > 1
                    else ""
                )
                tips["x"].append(at)
                tips["y"].append(height)
                tips["tips"].append(f"{record.label}\nround {r:.0f}: {scale.show(value)}{several}")
    inside = [(t, float(up(v)[0]), text) for t, (text, v) in enumerate(levels) if y_axis.low <= v <= y_axis.high]
    name_ = "rounds" if against == "rounds" else "traffic"
    body = legend([(r.label, *look(i)) for i, r in enumerate(records)]) + frame(
        name_,
        f'<svg class="clip" viewBox="0 0 1000 1000" preserveAspectRatio="none">{drawing}</svg>'
        + "".join(level(y, turn) for turn, y, _ in inside),
        label=f"Test {scale.words} against {name_}",
        height=280,
        x_ticks=[(x_axis.at(t), text) for t, text in x_axis.named(4)],
        y_ticks=[(float(up(t)[0]), text) for t, text in y_axis.named(percent=scale.percent)],
        x_name="Rounds" if against == "rounds" else f"Sent and received by all clients, {name}",
        y_name=f"Test {scale.words}, mean over clients",
        marks=[(y, text) for _, y, text in inside],
    )
    tips = {"x": thousandths(tips["x"]), "y": thousandths(tips["y"]), "tips": tips["tips"]}
    return figure(name_, body, caption(records, against, limits.beyond, y_axis)), tips


def caption(records: Sequence[RunRecord], against: str, beyond: list[int], axis: Axis) -> str:
    """What the curves show, and what was cut off."""
    scale = metric(records[0].metric)
    if against == "rounds":
        words = (
            f"The test {scale.words} after each evaluation; {scale.direction}. Look for how early a curve levels off."
        )
    else:
        words = (
            "The same curves against what was sent and received. A curve further to the left reaches its level with"
            " less traffic; a level line is a method that sends nothing."
        )
    if any(len(record.seeds) > 1 for record in records):
        words += " A band spans the seeds."
    if beyond:
        names = ", ".join(records[i].label for i in beyond)
        end = axis.low if scale.higher_is_better else axis.high
        words += f" The axis ends at {scale.show(end)}, so that curves can be told apart; somewhere beyond it: {names}."
    return words


def band(x: np.ndarray, low: np.ndarray, high: np.ndarray, colour: str) -> str:
    """The area between two curves, where both are known."""
    known = np.isfinite(x) & np.isfinite(low) & np.isfinite(high)
    if known.sum() < 2:
        return ""
    there = [f"{n(a)} {n(b)}" for a, b in zip(x[known], low[known], strict=True)]
    back = [f"{n(a)} {n(b)}" for a, b in zip(x[known][::-1], high[known][::-1], strict=True)]
    return f'<path d="M{"L".join(there + back)}Z" fill="{colour}" fill-opacity="0.15" stroke="none"/>'


def thinned(rounds: np.ndarray, total: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A series with at most so many points, the first and the last among them."""
    if len(rounds) <= MOST_POINTS:
        return rounds, total, values
    kept = np.unique(np.linspace(0, len(rounds) - 1, MOST_POINTS).round().astype(int))
    return rounds[kept], total[kept], values[:, kept]
