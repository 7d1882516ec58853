"""The report of runs on one page: conclusion, clients, methods, figures, costs, settings. It needs no network."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from majorant.app._text import html_text as escape
from majorant.app.files import atomic_write_text
from majorant.app.report.chart import figure
from majorant.app.report.clients import columns, gather, table
from majorant.app.report.comparison import Comparison
from majorant.app.report.conclusion import conclusion
from majorant.app.report.curves import Levels, curve_figure
from majorant.app.report.gains import gains_figure
from majorant.app.report.labels import about, flat, title_of, told_apart
from majorant.app.report.methods import costs_table, groups_table, headline_of, methods_table
from majorant.app.report.mixtures import components_figure, mixture_figure
from majorant.app.report.page import shell
from majorant.app.report.promises import privacy_section
from majorant.app.report.record import RunRecord, common_trivial
from majorant.app.report.strips import strips_figure
from majorant.app.report.words import metric

CAPTIONS = {
    "objective": "How far the objective is from its minimum (or its value, where the minimum is not known) after so"
    " many rounds, gradients and bytes{band}: a method may be ahead in one and behind in another.",
    "rates": "What the runs measured of their own convergence: means over the evaluations so far, in logarithmic scale."
    " The dotted line falls as fast as the theorem's bound, which is about runs of different lengths with their own"
    " steps; a curve that levels off has reached the noise of its step.",
    "network": "Who talks to whom. The wider a link, the larger its weight in the average.",
}
FOOTER = "Made with Majorant. The same numbers are in each run's summary.json, metrics.jsonl and clients.csv."
INKS = {"#1f2328": "ink", "#d0d7de": "faint", "#fefefe": "paper"}  # Matplotlib's, and what they are on a page


def write_report(records: Sequence[RunRecord], path: str | Path, comparison: Comparison | None = None) -> Path:
    """Writes the report of one or several runs as a self-contained page and returns its path."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    atomic_write_text(path, page(records, comparison))
    return path


def page(records: Sequence[RunRecord], comparison: Comparison | None = None) -> str:
    """The report as HTML."""
    if not records:
        raise ValueError("a report needs at least one run")
    records = told_apart(records)
    clients = gather(records, comparison)
    cells = columns(clients) if clients.rows else []
    decides = comparison.metric if comparison else records[0].metric
    levels, own_levels = (levels_of(records, comparison, name) for name in (decides, records[0].metric))
    charts: dict[str, Any] = {}

    def keep(drawn: tuple[str, Any], name: str) -> str:
        text, charts[name] = drawn
        return text

    gains = keep(gains_figure(clients), "gains")
    statistics = {record.label: headline_of(record, comparison, decides) for record in records}
    spread = keep(strips_figure(clients, statistics, levels), "strips")
    curves, alike = "", [record for record in records if record.metric == records[0].metric]
    if any(len(record.series()[0]) for record in alike):
        curves = keep(curve_figure(alike, "rounds", own_levels), "rounds")
        if any(record.series()[1].any() for record in alike):
            curves += keep(curve_figure(alike, "bytes", own_levels), "traffic")
    mixed = ""
    for place, record in enumerate([r for r in records if r.mixture.size], 1):
        mixed += keep(mixture_figure(record, clients, f"mixture-{place}"), f"mixture-{place}")
        if record.components is not None:
            mixed += components_figure(record, record.components, f"components-{place}")
    sections = [
        ("Who gains and who loses", gains),
        ("Methods", methods_table(records, comparison, levels)),
        ("Groups", groups_table(comparison) if comparison else ""),
        ("Clients", table(clients, cells) + spread if clients.rows else ""),
        ("Progress", f'<div class="pair">{curves}</div>' if curves else ""),
        ("Mixtures", mixed),
        ("Convergence and network", other_figures(records)),
        ("Privacy", privacy_section(records)),
        ("Traffic and time", costs_table(records)),
        ("Configuration", "".join(configuration(record) for record in records)),
    ]
    body = f'<header><h1>{escape(title_of(records))}</h1><p class="about">{escape(about(records))}</p></header>'
    body += conclusion(records, comparison)
    body += "".join(f"<section><h2>{escape(name)}</h2>{content}</section>" for name, content in sections if content)
    data = {"columns": cells, "charts": {name: points for name, points in charts.items() if points}}
    return shell(title_of(records), body, data, FOOTER)


def levels_of(records: Sequence[RunRecord], comparison: Comparison | None, name: str) -> Levels:
    """Chance and the trivial model by some metric, with their scores in words, where they are known."""
    scale, found = metric(name), []
    classes = next((r.classes for r in records if r.classes), 0)
    chance = {"accuracy": 1 / max(classes, 1), "balanced_accuracy": 1 / max(classes, 1), "auc": 0.5}.get(name)
    if classes > 1 and chance is not None:
        found.append((f"chance {scale.show(chance)}", chance))
    trivial = comparison.verdict.trivial if comparison and comparison.metric == name else None
    if trivial is not None and trivial.score is not None:
        found.append((f"{trivial.name} {scale.show(trivial.score)}", trivial.score))
    elif (known := common_trivial(records, name)) is not None:
        found.append((f"{known[0]} {scale.show(known[1])}", known[1]))
    return found


def other_figures(records: Sequence[RunRecord]) -> str:
    """Objectives, rates and networks, where there are some, drawn by Matplotlib where it is installed."""
    if importlib.util.find_spec("matplotlib") is None:
        return ""
    from majorant.app.report.figures import draw_diagnostics, render

    band = "; a band spans the seeds" if any(len(record.seeds) > 1 for record in records) else ""
    found = ""
    for name, drawn in draw_diagnostics(records).items():
        svg = inline_svg(render(drawn, "svg", text=True).decode(), name)
        found += figure(name, f'<div class="plot">{svg}</div>', CAPTIONS[name.partition("-")[0]].format(band=band))
    return found


def inline_svg(svg: str, name: str) -> str:
    """An SVG file as part of a page: no prologue, no style for the whole page, ids of its own, the theme's inks."""
    svg = re.sub(r"<(metadata|style)\b.*?</\1>", "", svg[svg.index("<svg") :], flags=re.DOTALL)
    svg = re.sub(r'\bid="([^"]+)"', rf'id="{name}-\1"', svg)
    svg = re.sub(r'(url\(#|href="#)', rf"\1{name}-", svg)
    for colour, variable in INKS.items():
        svg = svg.replace(colour, f"var(--{variable})")
    return re.sub(r"<svg ", f'<svg role="img" aria-label="{name}" ', svg, count=1).strip()


def configuration(record: RunRecord) -> str:
    """The settings of a run, folded."""
    rows = "".join(f"<dt>{escape(key)}</dt><dd>{escape(value)}</dd>" for key, value in flat(record.config))
    return f"<details><summary>{escape(record.label)}</summary><dl>{rows}</dl></details>"
