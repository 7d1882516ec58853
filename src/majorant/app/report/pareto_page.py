"""The report of a front on one page: a table of all points, the figures, and how to pick another point."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

from majorant.app._text import html_text as escape
from majorant.app.config import read_settings
from majorant.app.files import atomic_write_bytes, atomic_write_text, make_folder
from majorant.app.front_record import FrontRecord, read_front
from majorant.app.report.chart import figure
from majorant.app.report.conclusion import block
from majorant.app.report.figures import render
from majorant.app.report.html import inline_svg
from majorant.app.report.labels import flat
from majorant.app.report.page import framed, shell
from majorant.app.report.pareto_figures import draw_front

CAPTIONS = {
    "front": "Every model by {loss} and the coordinator's criteria, all better when smaller."
    " {numbers} Hollow points are dominated: another model is at least as good"
    " in all and better in one; those far beyond the front are in the table only."
    " A sharp bend means that a little more of one buys much of another.",
    "path": "What the models are worth on samples that they were not trained on, against λ. The choice by validation"
    " does not look at the test samples.",
}
FOOTER = "Made with Majorant. The same numbers are in front.json, every point's model in models/."


def write_front_report(folder: Path, path: Path, figures: str | None = None) -> Path:
    """Writes the page of a front's folder, and the figures as files if a format is given; returns the page's path."""
    record = read_front(folder)
    settings = read_settings(folder / "config.toml") if (folder / "config.toml").exists() else {}
    drawn = draw_front(record)
    atomic_write_text(path, page(record, settings, folder, drawn))
    for name, drawing in drawn.items() if figures else ():
        make_folder(path.parent / "figures")
        atomic_write_bytes(path.parent / "figures" / f"{name}.{figures}", render(drawing, str(figures)))
    return path


def page(record: FrontRecord, settings: dict[str, Any], folder: Path, drawn: dict[str, Any]) -> str:
    """The report as HTML."""
    title = f"Trade-offs on {record.dataset.partition(':')[0]}: {', '.join(record.names)}"
    about = (
        f"{record.clients} clients · {record.rounds} rounds · seed {record.seed} · {len(record.points)} models,"
        f" {len(record.on_front)} of them on the front · data {record.dataset} · {record.seconds:.1f} s"
    )
    several = "Numbers are those of the points." if len(record.preferences) > 1 else "Numbers beside points are λ."
    numbers = several if len(record.names) < 4 else "The colour of a line is λ, the number before it the point's."
    loss = "the worst agent's training loss" if record.by_worst else "the agents' mean training loss"
    blocks = "".join(
        figure(
            name,
            f'<div class="plot">{with_titles(record, drawing, name)}</div>',
            CAPTIONS[name].format(numbers=numbers, loss=loss),
        )
        for name, drawing in drawn.items()
    )
    rows = "".join(f"<dt>{escape(key)}</dt><dd>{escape(value)}</dd>" for key, value in flat(settings))
    side_by_side = ' class="pair"' if len(record.names) == 2 else ""  # a plane is as wide as the path beside it
    command = escape(f"majorant pareto pick {folder} --point N")
    body = f"""<header><h1>{escape(title)}</h1><p class="about">{escape(about)}</p></header>
{block(sentences(record), "")}
<section><h2>Figures</h2><div{side_by_side}>{blocks}</div></section>
<section><h2>Points</h2>{table(record)}<p>To deploy another point: <code>{command}</code></p></section>
<section><h2>Configuration</h2><details><summary>settings</summary><dl>{rows}</dl></details></section>"""
    return shell(title, body, {"columns": [], "charts": {}}, FOOTER)


def columns(record: FrontRecord) -> dict[str, list[str]]:
    """The table by columns, as texts; columns of which nothing is known are left out."""
    points = record.points
    scored = any(math.isfinite(score) for p in points for score in (p.accuracy, p.validation_accuracy))
    small, share = (lambda value: f"{value:.4g}"), (lambda value: f"{100 * value:.1f} %")
    found: list[tuple[str, list[float], Any]] = [
        ("λ", [p.weight for p in points], small),
        *((name.capitalize(), [p.values[k] for p in points], small) for k, name in enumerate(record.names)),
        *(
            (f"{name.replace('_', ' ').capitalize()} of decisions", [p.decision_gaps[name] for p in points], share)
            for name in points[0].decision_gaps
        ),
        *([("Mean loss", [p.loss for p in points], small)] if record.by_worst else []),
        ("Norm", [p.norm for p in points], small),
        ("Accuracy", [p.accuracy for p in points], share),
        ("Macro F1", [p.macro_f1 for p in points], share),
        ("Validation accuracy", [p.validation_accuracy for p in points], share),
        *([] if scored else [("Test loss", [p.test_loss for p in points], small)]),
        *([] if scored else [("Validation loss", [p.validation_loss for p in points], small)]),
        ("Certificate", [p.certificate for p in points], lambda value: f"{value:.1e}"),
        ("F/F* − 1", [p.centralized_gap for p in points], lambda value: f"{value:.1e}"),
    ]
    mixed = [" ".join(f"{share:.3g}" for share in p.criteria_weights) for p in points]
    return ({"Criteria weights": mixed} if len(record.preferences) > 1 else {}) | {
        name: [form(value) if math.isfinite(value) else "–" for value in values]
        for name, values, form in found
        if any(map(math.isfinite, values))
    }


def table(record: FrontRecord) -> str:
    """A row for every point."""
    cells = columns(record)
    head = '<th scope="col" class="count">Point</th>'
    head += "".join(f'<th scope="col">{escape(name)}</th>' for name in ["", *cells])
    rows = []
    for place in range(len(record.points)):
        roles = record.roles(place)
        kind = " ".join(role for role in roles if role in ("diverged", "dominated", "picked"))
        numbers = "".join(f"<td>{escape(texts[place])}</td>" for texts in cells.values())
        role = f'<td class="text">{escape(", ".join(roles))}</td>'
        rows.append(f'<tr class="{kind}"><th scope="row">{place}</th>{role}{numbers}</tr>')
    note = (
        "Loss and criteria are on the training samples or of the parameters; accuracy and macro F1 (for regression the"
        " test loss) on the test samples of all clients. The"
        " certificate is 0 where no small step makes everything better. The norm is that of the parameters. F/F* − 1,"
        " where it was asked for, compares the weighted sum with its minimum over all samples in one place. Gaps of"
        " decisions are the largest differences between groups in the share of public samples that get the label."
    )
    return f'{framed(head, rows)}<p class="note">{note}</p>'


def sentences(record: FrontRecord) -> list[str]:
    """Which points stand out, and how good the front is."""
    name = lambda place: f"point {place} (λ = {record.points[place].weight:.4g})"
    found = [f"Deployed is {name(record.picked)}, by {record.picked_by}.", f"The knee is {name(record.knee)}."]
    if record.best_validation is not None:
        found[1] += f" The best on validation samples is {name(record.best_validation)}."
    measures = [f"The front's hypervolume is {record.hypervolume:.4g}."] if math.isfinite(record.hypervolume) else []
    measures += [f"Its spread is {record.spread:.3g}; 0 would be even."] if math.isfinite(record.spread) else []
    if any(scale != 1 for scale in record.scales.values()):
        each = ", ".join(f"{scale:.3g} · {name.replace('_', ' ')}" for name, scale in record.scales.items())
        measures.append(f"λ weighs {each} against the loss.")
    return [*found, " ".join(measures)] if measures else found


def with_titles(record: FrontRecord, drawing: Any, name: str) -> str:
    """The figure for the page; a browser shows a point's numbers where the mouse is over it."""
    svg, cells = inline_svg(render(drawing, "svg", text=True).decode(), name), columns(record)

    def titled(match: re.Match[str]) -> str:
        place = int(match[1])
        lines = [f"point {place}", *(f"{column}: {texts[place]}" for column, texts in cells.items())]
        return f"{match[0]}<title>{escape(chr(10).join(lines + record.roles(place)))}</title>"

    return re.sub(rf'<g id="{name}-point-(\d+)">', titled, svg)
