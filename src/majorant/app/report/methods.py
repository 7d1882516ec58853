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
    decides = comparison.metric if comparison else records[0].metric
    scale, headline = metric(decides), {record.label: headline_of(record, comparison, decides) for record in records}
    of_run = lambda part, statistic: lambda r: r.score(part, statistic) if r.metric == decides else math.nan
    wanted: list[Column] = [
        (scale.tail.capitalize(), lambda r: headline[r.label][1], scale.show, scale.higher_is_better),
        ("Std over clients", of_run("test", "std"), scale.show, None),
        ("Unseen clients", of_run("unseen", "mean"), scale.show, scale.higher_is_better),
        *other_metrics(records, comparison),
        *progress_columns(records),
    ]
    scored = any(math.isfinite(mean) for mean, _ in headline.values())
    able = [not scored or math.isfinite(headline[r.label][0]) for r in records]  # one that diverged cannot win
    cells: dict[str, list[str]] = {}
    if scored:
        mean: Column = ("Mean", lambda r: headline[r.label][0], scale.show, scale.higher_is_better)
        cells["Mean"] = column_cells(mean, records, able, lambda r: after_mean(r, comparison, scale))
        if comparison is not None and any(method.interval for method in comparison.methods.values()):
            cells["95 % interval"] = [f"<td>{escape(within(r, comparison, scale))}</td>" for r in records]
    for column in wanted:
        if any(math.isfinite(column[1](record)) for record in records):
            cells[column[0]] = column_cells(column, records, able)
    rows = [
        f'<tr><th scope="row" title="{escape(r.label)}">{escape(r.label)}{chosen(r, comparison)}</th>'
        f"{''.join(column[place] for column in cells.values())}</tr>"
        for place, r in enumerate(records)
    ]
    blank = "<td></td>" * (len(cells) - 1)
    lost = [label for label in (comparison.verdict.diverged if comparison else ()) if label not in headline]
    rows += [f'<tr><th scope="row">{escape(label)}</th><td>diverged</td>{blank}</tr>' for label in lost]
    for text, value in levels if scored else ():
        name, shown = escape(text.removesuffix(f" {scale.show(value)}")), escape(scale.show(value))
        rows.append(f'<tr class="level"><th scope="row">{name}</th><td>{shown}</td>{blank}</tr>')
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in ("Method", *cells))
    return f'{framed(head, rows)}<p class="note">{escape(methods_note(records, comparison, scale))}</p>'


def column_cells(
    column: Column, records: Sequence[RunRecord], able: Sequence[bool], after: Callable[[RunRecord], str] = lambda _: ""
) -> list[str]:
    """A column of the table; what comes ``after`` a value in its cell does not count for who is best."""
    _, get, form, higher = column
    values = [get(record) for record in records]
    ends = [value for value, may_win in zip(values, able, strict=True) if may_win and math.isfinite(value)]
    best = form(max(ends) if higher else min(ends)) if higher is not None and len(ends) > 1 else None
    found = []
    for record, value, may_win in zip(records, values, able, strict=True):
        text = form(value) if math.isfinite(value) else "–"
        kind = ' class="best"' if may_win and text == best else ""
        more = after(record)
        found.append(f"<td{kind}>{escape(more.strip() if text == '–' and more else text + more)}</td>")
    return found


def after_mean(record: RunRecord, comparison: Comparison | None, scale: Metric) -> str:
    """What stands beside a mean: the spread over seeds, or on how many clients training diverged."""
    lost = comparison.verdict.diverged.get(record.label, ()) if comparison else ()
    return f" diverged on {len(lost):,}" if lost else between_runs(record, comparison, scale)


def chosen(record: RunRecord, comparison: Comparison | None) -> str:
    """A mark for the method that the verdict is about."""
    mark = comparison is not None and record.label == comparison.verdict.best
    return ' <span class="chip">chosen</span>' if mark else ""


def within(record: RunRecord, comparison: Comparison, scale: Metric) -> str:
    """The interval of a method's mean."""
    method = comparison.methods.get(record.label)
    return " to ".join(map(scale.number, method.interval)) if method and method.interval else "–"


def groups_table(comparison: Comparison) -> str:
    """The scores by groups of rows, where a column for them was named."""
    known = {label: method.gaps for label, method in comparison.methods.items() if method.gaps is not None}
    if not known:
        return ""
    scale, first = metric(comparison.metric), next(iter(known.values()))
    names = list(first.groups)
    head = "".join(
        f'<th scope="col">{escape(name)}<small>{first.groups[name].rows:,} rows</small></th>' for name in names
    )
    rows = []
    for label, gaps in known.items():
        scores = [scale.show(gaps.groups[name].score) if name in gaps.groups else "–" for name in names]
        cells = "".join(f"<td>{escape(text)}</td>" for text in [*scores, scale.number(gaps.gap)])
        rows.append(f'<tr><th scope="row">{escape(label)}</th>{cells}</tr>')
    head = f'<th scope="col">Method</th>{head}<th scope="col">Gap{", points" if scale.percent else ""}</th>'
    note = (
        f"Test {scale.words} by {first.column}, over the rows of each group; the gap is between the best and the worst."
    )
    return f'{framed(head, rows)}<p class="note">{escape(note)}</p>'


def headline_of(record: RunRecord, comparison: Comparison | None, decides: str) -> tuple[float, float]:
    """Mean and decile of a run by the metric that decides; NaN for a run that is judged by another."""
    if comparison is None or record.label not in comparison.methods:
        known = decides == record.metric
        return (record.score("test", "mean"), record.score("test", "bottom_decile")) if known else (math.nan, math.nan)
    method = comparison.methods[record.label]
    return number(method.mean), number(method.bottom_decile)


def methods_note(records: Sequence[RunRecord], comparison: Comparison | None, scale: Metric) -> str:
    """What the columns say."""
    note = f"Test {scale.words} over the clients, the mean weighted by their test samples; {scale.direction}."
    if comparison is not None:
        note = f"Test {scale.words} of all clients' test rows; {scale.direction}."
        note += " The verdict is about the method that was chosen." if comparison.verdict.best else ""
    if any(between_runs(record, comparison, scale) for record in records):
        note += " ± is the standard deviation over seeds."
    if any(record.solves for record in records):
        note += " F is the objective, F* its minimum; gradients are those of samples that a client has computed."
    return note


def between_runs(record: RunRecord, comparison: Comparison | None, scale: Metric) -> str:
    """The standard deviation over seeds or splits, where there are several."""
    method = comparison.methods.get(record.label) if comparison else None
    spread = record.score("test", "std_over_runs") if scale == metric(record.metric) else math.nan
    spread = method.std_over_splits if method is not None and method.std_over_splits is not None else spread
    return f" ± {scale.number(spread)}" if math.isfinite(spread) else ""


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
    names = ("Bytes up", "Bytes down", *(f"Seconds to {name}" for name in SECONDS), "Padding")
    if not any(record.summary.get("communication") or record.summary.get("seconds") for record in records):
        return ""
    rows = []
    for record in records:
        traffic, seconds = (record.summary.get(key) or {} for key in ("communication", "seconds"))
        sent = [bytes_format(amount(traffic, key)) for key in ("bytes_up", "bytes_down")]
        spent = [f"{amount(seconds, key):.1f}" for key in SECONDS]
        padded = (record.summary.get("padding") or {}).get("work")
        waste = "–" if padded is None else f"{100 * padded:.0f} %"
        cells = "".join(f"<td>{escape(text)}</td>" for text in (*sent, *spent, waste))
        rows.append(f'<tr><th scope="row">{escape(record.label)}</th>{cells}</tr>')
    head = "".join(f'<th scope="col">{name}</th>' for name in ("Method", *names))
    note = (
        "Bytes are those of all clients and rounds. Compilation is paid once, however many the rounds. Padding is the "
        "share of rows that a round goes through without a sample in them, as clients' sizes differ."
    )
    return f'{framed(head, rows, kind="", around="scroll small")}<p class="note">{note}</p>'
