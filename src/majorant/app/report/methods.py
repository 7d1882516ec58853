"""The tables of methods: what each came to, and at the end what it cost."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from majorant.app._text import html_text as escape
from majorant.app.report.comparison import Comparison
from majorant.app.report.curves import Levels
from majorant.app.report.page import framed
from majorant.app.report.record import RunRecord, amount, number
from majorant.app.report.words import Metric, bytes_format, metric

Column = tuple[str, Callable[[RunRecord], float], Callable[[float], str], bool | None]  # name, get, show, gain
SECONDS = ("compile", "train", "evaluate")


def methods_table(records: Sequence[RunRecord], comparison: Comparison | None, levels: Levels) -> str:
    """The methods; the best value of a column is marked where there are several runs."""
    scale = metric(comparison.metric if comparison else records[0].metric)
    headline = {record.label: headline_of(record, comparison) for record in records}
    wanted: list[Column] = [
        ("Mean", lambda r: headline[r.label][0], scale.show, scale.higher_is_better),
        (scale.tail.capitalize(), lambda r: headline[r.label][1], scale.show, scale.higher_is_better),
        *other_metrics(records, comparison),
        *progress_columns(records),
    ]
    if scale == metric(records[0].metric):
        wanted[2:2] = [
            ("Std over clients", lambda r: r.score("test", "std"), scale.show, None),
            ("Unseen clients", lambda r: r.score("unseen", "mean"), scale.show, scale.higher_is_better),
        ]
    values = {name: [get(record) for record in records] for name, get, _, _ in wanted}
    kept = [column for column in wanted if any(math.isfinite(value) for value in values[column[0]])]
    means = [headline[record.label][0] for record in records]
    able = [math.isfinite(mean) or not any(map(math.isfinite, means)) for mean in means]  # one that diverged cannot win
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name, *_ in kept)
    rows = []
    for place, record in enumerate(records):
        cells = []
        for name, _, form, higher in kept:
            text = form(values[name][place]) if math.isfinite(values[name][place]) else "–"
            ends = [
                value for value, may_win in zip(values[name], able, strict=True) if may_win and math.isfinite(value)
            ]
            best = (
                able[place]
                and higher is not None
                and len(ends) > 1
                and text == form(max(ends) if higher else min(ends))
            )
            text += between_runs(record, scale) if name == "Mean" else ""
            cells.append(f'<td class="best">{escape(text)}</td>' if best else f"<td>{escape(text)}</td>")
        label = escape(record.label)
        rows.append(f'<tr><th scope="row" title="{label}">{label}</th>{"".join(cells)}</tr>')
    blank = "<td></td>" * (len(kept) - 1)
    for text, value in levels if kept and kept[0][0] == "Mean" else ():
        name = text.removesuffix(f" {scale.show(value)}")
        shown = f"<td>{escape(scale.show(value))}</td>{blank}"
        rows.append(f'<tr class="level"><th scope="row">{escape(name)}</th>{shown}</tr>')
    body = framed(f'<th scope="col">Method</th>{head}', rows)
    return f'{body}<p class="note">{escape(methods_note(records, scale))}</p>'


def headline_of(record: RunRecord, comparison: Comparison | None) -> tuple[float, float]:
    """Mean and decile of a run by the metric that decides."""
    if comparison is None or record.label not in comparison.methods:
        known = comparison is None or comparison.metric == record.metric
        return (record.score("test", "mean"), record.score("test", "bottom_decile")) if known else (math.nan, math.nan)
    method = comparison.methods[record.label]
    return number(method.mean), number(method.bottom_decile)


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
    spread = record.score("test", "std_over_runs") if scale == metric(record.metric) else math.nan
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
