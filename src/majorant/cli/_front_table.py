"""A front on the screen: a table of its points, and what stands out."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from rich.table import Table

from majorant.cli.terminal import console, say, warn

if TYPE_CHECKING:
    from majorant.app.front_record import FrontRecord

ABSURD = 1e3  # times the largest number on the front: a point beyond has diverged, if not to infinity
FAR = 0.1  # of F above its minimum: a point that has not converged


def facts(record: FrontRecord, place: int) -> dict[str, str]:
    """A point in words, by the names of the columns; what nobody knows is left out."""
    point = record.points[place]
    values = dict(zip(["loss", *record.names[1:], "norm"], [*point.values, point.norm], strict=True))
    if record.by_worst:
        values = {"worst loss": point.worst_loss, "mean loss": point.loss} | values
        values.pop("loss")
    texts = {"point": str(place), "λ": f"{point.weight:.3g}"}
    if len(record.preferences) > 1:
        texts["criteria weights"] = " ".join(f"{share:.3g}" for share in point.criteria_weights)
    texts |= {k: f"{value:.3g}" for k, value in values.items()}
    texts |= {f"{name.replace('_', ' ')} of decisions": f"{100 * v:.1f} %" for name, v in point.decision_gaps.items()}
    scores = {"accuracy": point.accuracy, "macro F1": point.macro_f1, "valid. accuracy": point.validation_accuracy}
    texts |= {name: f"{100 * value:.1f} %" for name, value in scores.items() if math.isfinite(value)}
    if not any(map(math.isfinite, scores.values())):
        losses = {"test loss": point.test_loss, "valid. loss": point.validation_loss}
        texts |= {name: f"{value:.3g}" for name, value in losses.items() if math.isfinite(value)}
    texts["certificate"] = f"{point.certificate:.1e}"
    gap = point.centralized_gap
    return texts | ({"F/F*−1": f"{gap:.1e}"} if math.isfinite(gap) else {})


def tables(record: FrontRecord, width: int) -> list[Table]:
    """All points as one table, or as several with the same rows where one would be wider than the screen."""
    rows = [facts(record, place) for place in range(len(record.points))]
    roles = [" ".join(role.removeprefix("best ") for role in record.roles(place)) for place in range(len(rows))]
    names = list(dict.fromkeys(name for row in rows for name in row))
    short = {"point": "#", "certificate": "certif."}
    heads = {name: short.get(name, name.replace(" ", "\n")) for name in names}
    cells = {name: [row.get(name, "–") for row in rows] for name in names}
    wide = {name: 1 + max(map(len, [*heads[name].split("\n"), *cells[name]])) for name in names}
    room = width - 1 - max(len(word) for text in roles for word in [*text.split(), ""])  # roles are broken at spaces
    parts: list[list[str]] = [["point"]]
    for name in names[1:]:
        if len(parts[-1]) > 1 and sum(wide[each] for each in [*parts[-1], name]) > room:
            parts.append(["point"])
        parts[-1].append(name)
    made = []
    for part in parts:
        table = Table(box=None, padding=(0, 1, 0, 0))
        for name in part:
            table.add_column(heads[name], justify="right", no_wrap=True, min_width=wide[name] - 1)
        table.add_column("", min_width=min(10, max(map(len, roles))))
        for place, point in enumerate(record.points):
            shown = [cells[name][place] for name in part]
            table.add_row(*shown, roles[place], style="dim" if point.dominated else "")
        made.append(table)
    return made


def show_front(record: FrontRecord) -> None:
    """The table of all points, and what was chosen among them."""
    for turn, table in enumerate(tables(record, console.width)):
        if turn:
            console.print()
        console.print(table)
    worst = max(max(map(abs, point.values)) for point in record.on_front)
    off = lambda point: point.diverged or max(point.values) > ABSURD * worst
    lost = [f"{point.weight:.3g} (point {point.point})" for point in record.points if off(point)]
    if lost:
        other = "--step implicit" if record.scalarization == "weighted-sum" else "a smaller --criteria-lr"
        words = f"training diverged for λ = {', '.join(lost)}: lower --lr, or take {other}"
        warn(words)
    gaps = [point.centralized_gap for point in record.on_front if math.isfinite(point.centralized_gap)]
    if max(gaps, default=0) > FAR:
        words = f"points are up to {100 * max(gaps):.0f} % above the least F: more --rounds, or another --lr"
        warn(words)
    scaled = [f"{scale:.3g} · {name.replace('_', ' ')}" for name, scale in record.scales.items()]
    if any(scale != 1 for scale in record.scales.values()):
        say(f"λ weighs {', '.join(scaled)} against the loss: in units of the loss (--scale none: as they are)")
    weight = lambda place: f"λ = {record.points[place].weight:.4g} (point {place})"
    if record.best_validation is None:
        say("no validation samples to choose λ by")
    else:
        say(f"best on validation samples: {weight(record.best_validation)}")
    say(f"knee: {weight(record.knee)}")
    measures = [f"{len(record.on_front)} of {len(record.points)} points are on the front"]
    measures += [f"hypervolume {record.hypervolume:.4g}"] * math.isfinite(record.hypervolume)
    measures += [f"spread {record.spread:.3g}" if math.isfinite(record.spread) else "spread –"]
    say(", ".join(measures))
    say(f"deployed: {weight(record.picked)}, by {record.picked_by}")
    if record.points[record.picked].weight == 0:
        say("at λ = 0 the criteria do not count: pick --knee, or a bound, to have them met")
