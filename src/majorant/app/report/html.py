"""The report of runs on one page: conclusion, clients, methods, figures, costs, settings. It needs no network."""

from __future__ import annotations

import importlib.util
import math
import re
from collections.abc import Callable, Sequence
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
from majorant.app.report.mixtures import components_figure, mixture_figure
from majorant.app.report.page import framed, shell
from majorant.app.report.record import RunRecord, amount, number
from majorant.app.report.strips import strips_figure
from majorant.app.report.words import Metric, bytes_format, metric

CAPTIONS = {
    "objective": "How far the objective is from its minimum (or its value, where the minimum is not known) after so"
    " many rounds, gradients and bytes{band}: a method may be ahead in one and behind in another.",
    "rates": "What the runs measured of their own convergence: means over the evaluations so far, in logarithmic scale."
    " The dotted line falls as fast as the theorem's bound, which is about runs of different lengths with their own"
    " steps; a curve that levels off has reached the noise of its step.",
    "network": "Who talks to whom. The wider a link, the larger its weight in the average.",
}
FOOTER = "Made with Majorant. The same numbers are in each run's summary.json, metrics.jsonl and clients.csv."
Column = tuple[str, Callable[[RunRecord], float], Callable[[float], str], bool | None]  # name, get, show, gain
SECONDS = ("compile", "train", "evaluate")
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
    clients, levels = gather(records, comparison), levels_of(records, comparison)
    charts: dict[str, Any] = {}

    def keep(drawn: tuple[str, Any], name: str) -> str:
        text, charts[name] = drawn
        return text

    gains = keep(gains_figure(clients), "gains")
    statistics = {r.label: (r.score("test", "mean"), r.score("test", "bottom_decile")) for r in records}
    spread = keep(strips_figure(clients, statistics, levels), "strips")
    curves = ""
    if any(len(record.series()[0]) for record in records):
        curves = keep(curve_figure(records, "rounds", levels), "rounds")
        if any(record.series()[1].any() for record in records):
            curves += keep(curve_figure(records, "bytes", levels), "traffic")
    mixed = ""
    for place, record in enumerate([r for r in records if r.mixture.size], 1):
        mixed += keep(mixture_figure(record, clients, f"mixture-{place}"), f"mixture-{place}")
        if record.components is not None:
            mixed += components_figure(record, record.components, f"components-{place}")
    sections = [
        ("Who gains and who loses", gains),
        ("Methods", methods_table(records, comparison, levels)),
        ("Clients", table(clients) + spread if clients.rows else ""),
        ("Progress", f'<div class="pair">{curves}</div>' if curves else ""),
        ("Mixtures", mixed),
        ("Convergence and network", other_figures(records)),
        ("Traffic and time", costs_table(records)),
        ("Configuration", "".join(configuration(record) for record in records)),
    ]
    body = f'<header><h1>{escape(title_of(records))}</h1><p class="about">{escape(about(records))}</p></header>'
    body += conclusion(records, comparison)
    body += "".join(f"<section><h2>{escape(name)}</h2>{content}</section>" for name, content in sections if content)
    data = {
        "columns": columns(clients) if clients.rows else [],
        "charts": {name: points for name, points in charts.items() if points},
    }
    return shell(title_of(records), body, data, FOOTER)


def told_apart(records: Sequence[RunRecord]) -> list[RunRecord]:
    """The records with labels of their own: by the settings in which runs of one label differ, else by number."""
    found: list[RunRecord] = []
    for record in records:
        alike = [r for r in records if r.label == record.label]
        found.append(record.relabelled(apart(record, alike)) if len(alike) > 1 else record)
    seen: dict[str, int] = {}
    for place, record in enumerate(found):
        seen[record.label] = seen.get(record.label, 0) + 1
        if seen[record.label] > 1:
            found[place] = record.relabelled(f"{record.label} ({seen[record.label]})")
    return found


def apart(record: RunRecord, alike: Sequence[RunRecord]) -> str:
    """A label with the settings that the others of that label do not have, such as "fedem, lr 0.1"."""
    own, others = dict(flat(record.config)), [dict(flat(r.config)) for r in alike]
    differing = [key for key in own if any(other.get(key) != own[key] for other in others)]
    words = [f"{key.rpartition('.')[2]} {own[key]}" for key in differing if key != "algorithm"][:3]
    name = own["algorithm"] if "algorithm" in differing else record.label
    return ", ".join([name, *words])


def levels_of(records: Sequence[RunRecord], comparison: Comparison | None) -> Levels:
    """Chance and the trivial model, with their scores in words, where they are known."""
    scale, found = metric(records[0].metric), []
    classes = next((r.classes for r in records if r.classes), 0)
    if classes > 1 and records[0].metric in ("accuracy", "balanced_accuracy"):
        found.append((f"chance {scale.show(1 / classes)}", 1 / classes))
    trivial = comparison.verdict.trivial if comparison else None
    if trivial is not None and trivial.score is not None:
        found.append((f"{trivial.name} {scale.show(trivial.score)}", trivial.score))
    return found


def title_of(records: Sequence[RunRecord]) -> str:
    """The methods and the data."""
    labels = list(dict.fromkeys(record.label for record in records))
    names = ", ".join(labels[:-1]) + f" and {labels[-1]}" if len(labels) > 1 else labels[0]
    names = f"{len(labels)} methods" if len(labels) > 4 else names
    data = list(dict.fromkeys(str(record.summary.get("dataset", "")).partition(":")[0] for record in records))
    return f"{names} on {' and '.join(data)}" if all(data) else names


def about(records: Sequence[RunRecord]) -> str:
    """One line on what was run."""
    first, facts = records[0], []
    unseen = int(first.unseen.sum())
    if "clients" in first.summary:
        facts.append(
            f"{first.summary['clients']} clients" + (f", {unseen} of them unseen at training" if unseen else "")
        )
    for key in ("rounds", "seed", "dataset"):
        values = list(dict.fromkeys(str(record.summary[key]) for record in records if key in record.summary))
        if values:
            facts.append(
                {"rounds": "{} rounds", "seed": "seed {}", "dataset": "data {}"}[key].format(" / ".join(values))
            )
    return " · ".join(facts)


def methods_table(records: Sequence[RunRecord], comparison: Comparison | None, levels: Levels) -> str:
    """The methods; the best value of a column is marked where there are several runs."""
    scale = metric(records[0].metric)
    others = other_metrics(records, comparison)
    wanted: list[Column] = [
        ("Mean", lambda r: r.score("test", "mean"), scale.show, scale.higher_is_better),
        (scale.tail.capitalize(), lambda r: r.score("test", "bottom_decile"), scale.show, scale.higher_is_better),
        ("Std over clients", lambda r: r.score("test", "std"), scale.show, None),
        ("Unseen clients", lambda r: r.score("unseen", "mean"), scale.show, scale.higher_is_better),
        *others,
        *progress_columns(records),
    ]
    values = {name: [get(record) for record in records] for name, get, _, _ in wanted}
    kept = [column for column in wanted if any(math.isfinite(value) for value in values[column[0]])]
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name, *_ in kept)
    rows = []
    for place, record in enumerate(records):
        cells = []
        for name, _, form, higher in kept:
            text = form(values[name][place]) if math.isfinite(values[name][place]) else "–"
            ends = [value for value in values[name] if math.isfinite(value)]
            best = higher is not None and len(ends) > 1 and text == form(max(ends) if higher else min(ends))
            text += between_runs(record, scale) if name == "Mean" else ""
            cells.append(f'<td class="best">{escape(text)}</td>' if best else f"<td>{escape(text)}</td>")
        label = escape(record.label)
        rows.append(f'<tr><th scope="row" title="{label}">{label}</th>{"".join(cells)}</tr>')
    blank = "<td></td>" * (len(kept) - 1)
    for text, value in levels if kept and kept[0][0] == "Mean" else ():
        name = text.removesuffix(f" {scale.show(value)}")
        rows.append(
            f'<tr class="level"><th scope="row">{escape(name)}</th><td>{escape(scale.show(value))}</td>{blank}</tr>'
        )
    body = framed(f'<th scope="col">Method</th>{head}', rows)
    return f'{body}<p class="note">{escape(methods_note(records, scale))}</p>'


def methods_note(records: Sequence[RunRecord], scale: Metric) -> str:
    """What the columns say."""
    note = f"Test {scale.words} over the clients, the mean weighted by their test samples; {scale.direction}."
    if any(between_runs(record, scale) for record in records):
        note += " ± is the standard deviation over seeds."
    if any(record.solves for record in records):
        note += " F is the objective, F* its minimum; gradients are those of samples that a client has computed."
    return note


def between_runs(record: RunRecord, scale: Metric) -> str:
    """The standard deviation over seeds, where there are several."""
    spread = record.score("test", "std_over_runs")
    return f" ± {scale.show_spread(spread)}" if math.isfinite(spread) else ""


def other_metrics(records: Sequence[RunRecord], comparison: Comparison | None) -> list[Column]:
    """Columns for the metrics beside the one that decides."""
    if comparison is None:
        return []
    names = list(dict.fromkeys(name for method in comparison.methods.values() for name in method.scores))
    found: list[Column] = []
    for name in names:
        if name == comparison.metric:
            continue
        scale = metric(name)
        get = lambda r, name=name: (
            number(comparison.methods[r.label].scores.get(name)) if r.label in comparison.methods else math.nan
        )
        found.append((scale.words[0].upper() + scale.words[1:], get, scale.show, scale.higher_is_better))
    return found


def progress_columns(records: Sequence[RunRecord]) -> list[Column]:
    """How far solvers of an objective came, and what it took; nothing is shown of other methods."""
    value = lambda name: lambda record: number(record.summary.get(name)) if record.solves else math.nan
    calls = lambda block: lambda record: number((record.summary.get("gradients") or {}).get(block))
    count = lambda value: f"{value:,.0f}"
    small = lambda value: f"{value:.2e}"
    known = any("suboptimality" in record.summary for record in records if record.solves)
    level: Column = ("F", value("objective"), lambda value: f"{value:.6g}", False)
    return [
        ("F − F*", value("suboptimality"), small, False) if known else level,
        ("Gradient norm", value("gradient_norm"), small, False),
        ("Rounds", value("rounds"), count, None),
        ("Gradients in w", calls("w"), count, None),
        ("Gradients in β", calls("beta"), count, None),
    ]


def costs_table(records: Sequence[RunRecord]) -> str:
    """Traffic and time, small."""
    names = ("Bytes up", "Bytes down", *(f"Seconds to {name}" for name in SECONDS))
    if not any(record.summary.get("communication") or record.summary.get("seconds") for record in records):
        return ""
    rows = []
    for record in records:
        traffic, seconds = (record.summary.get(key) or {} for key in ("communication", "seconds"))
        sent = [bytes_format(amount(traffic, key)) for key in ("bytes_up", "bytes_down")]
        spent = [f"{amount(seconds, key):.1f}" for key in SECONDS]
        cells = "".join(f"<td>{escape(text)}</td>" for text in (*sent, *spent))
        rows.append(f'<tr><th scope="row">{escape(record.label)}</th>{cells}</tr>')
    head = "".join(f'<th scope="col">{name}</th>' for name in ("Method", *names))
    note = "Bytes are those of all clients and rounds. Compilation is paid once, however many the rounds."
    return f'{framed(head, rows, kind="", around="scroll small")}<p class="note">{note}</p>'


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
    """An SVG file as part of a page: no prologue, ids of its own, and inks that follow the page's theme."""
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg[svg.index("<svg") :], flags=re.DOTALL)
    svg = re.sub(r'\bid="([^"]+)"', rf'id="{name}-\1"', svg)
    svg = re.sub(r'(url\(#|href="#)', rf"\1{name}-", svg)
    for colour, variable in INKS.items():
        svg = svg.replace(colour, f"var(--{variable})")
    return re.sub(r"<svg ", f'<svg role="img" aria-label="{name}" ', svg, count=1).strip()


def configuration(record: RunRecord) -> str:
    """The settings of a run, folded."""
    rows = "".join(f"<dt>{escape(key)}</dt><dd>{escape(value)}</dd>" for key, value in flat(record.config))
    return f"<details><summary>{escape(record.label)}</summary><dl>{rows}</dl></details>"


def flat(config: dict[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    """Nested settings as dotted keys.

    >>> flat({"rounds": 200, "local": {"rate": 0.1}})
    [('rounds', '200'), ('local.rate', '0.1')]
    """
    found: list[tuple[str, str]] = []
    for key, value in config.items():
        found += flat(value, f"{prefix}{key}.") if isinstance(value, dict) else [(f"{prefix}{key}", str(value))]
    return found
