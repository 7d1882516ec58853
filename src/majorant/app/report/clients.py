"""The clients of a report: what each came to by every method, as a table that can be sorted and searched."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from majorant.app._text import html_text as escape
from majorant.app.report.comparison import Comparison
from majorant.app.report.page import framed
from majorant.app.report.record import RunRecord
from majorant.app.report.words import Metric, metric

FIRST_ROWS = 50  # in the page itself; the script shows the others


class ClientRow(NamedTuple):
    """A client; what is not known is NaN, None or empty."""

    name: str
    train: float
    test: float
    scores: dict[str, float]  # by label
    gain: float = math.nan  # positive is better
    interval: tuple[float, float] | None = None
    verdict: str = ""
    trivial: float = math.nan
    unseen: bool = False


class Clients(NamedTuple):
    """All clients, and what their gains compare."""

    metric: Metric
    rows: list[ClientRow]
    labels: list[str]  # of the methods that have scores
    best: str | None = None  # whose gain over training alone is shown
    over: str | None = None
    judged: bool = False  # whether gains were compared with noise

    def places(self) -> dict[str, int]:
        """Where each client is in the list, by name."""
        return {row.name: place for place, row in enumerate(self.rows)}


def gather(records: Sequence[RunRecord], comparison: Comparison | None = None) -> Clients:
    """The clients of some runs, those that gain most first; where a comparison has judged them, as it has."""
    if comparison is not None and comparison.clients:
        return judged(comparison, records)
    scale = metric(records[0].metric)
    found: dict[str, dict[str, Any]] = {}
    for record in records:
        if record.metric != records[0].metric:
            continue
        names, scores = record.clients.get("name", ()), record.per_client()
        for i, score in enumerate(scores):
            entry = found.setdefault(str(names[i]), {"scores": {}, "unseen": bool(record.unseen[i])})
            entry["scores"][record.label] = float(score)
            for part in ("train", "test"):
                column = record.clients.get(f"{part}_samples", ())
                entry[part] = float(column[i]) if i < len(column) else math.nan
    labels = [r.label for r in records if any(r.label in entry["scores"] for entry in found.values())]
    best, over = best_and_alone(records)
    rows = []
    for name, entry in found.items():
        ends = (
            [entry["scores"].get(label, math.nan) for label in (best, over)]
            if best is not None and over is not None
            else [math.nan] * 2
        )
        gain = (ends[0] - ends[1]) * (1 if scale.higher_is_better else -1)
        rows.append(ClientRow(name, entry["train"], entry["test"], entry["scores"], gain, unseen=entry["unseen"]))
    return Clients(scale, ranked(rows), labels, best, over)


def judged(comparison: Comparison, records: Sequence[RunRecord]) -> Clients:
    """The clients of a comparison; those that took no part in training come last, with their scores alone."""
    number = lambda value: math.nan if value is None else float(value)
    rows = [
        ClientRow(
            c.name,
            number(c.train),
            number(c.test),
            {label: number(value) for label, value in c.scores.items()},
            number(c.gain),
            c.interval,
            c.verdict or "",
            number(c.trivial),
        )
        for c in comparison.clients
    ]
    known = {row.name for row in rows}
    if records[0].metric == comparison.metric:
        unseen = (row for row in gather(records).rows if row.name not in known)
        rows += [row._replace(gain=math.nan) for row in unseen]
    labels = [label for label in comparison.methods if any(label in row.scores for row in rows)]
    verdict = comparison.verdict
    return Clients(metric(comparison.metric), ranked(rows), labels, verdict.best, verdict.over, judged=True)


def ranked(rows: list[ClientRow]) -> list[ClientRow]:
    """Those that gain most first; those whose gain is not known last, as they came."""
    return sorted(rows, key=lambda row: (row.unseen, -row.gain if math.isfinite(row.gain) else math.inf))


def best_and_alone(records: Sequence[RunRecord]) -> tuple[str | None, str | None]:
    """The labels of the best method that is not training alone, and of training alone, where there are both."""
    alone = next((r.label for r in records if r.alone), None)
    others = [r for r in records if not r.alone and math.isfinite(r.score("test", "mean"))]
    if alone is None or not others:
        return None, None
    sign = 1 if others[0].higher_is_better else -1
    return max(others, key=lambda r: sign * r.score("test", "mean")).label, alone


def columns(clients: Clients) -> list[dict[str, Any]]:
    """The table by columns, as texts for page and script; columns of which nothing is known are left out."""
    show, rows = clients.metric.show, clients.rows
    count = lambda value: f"{value:,.0f}" if math.isfinite(value) else "–"
    unit = f", {clients.metric.gain_unit}" if clients.metric.percent else ""
    wanted: list[tuple[str, list[str], str]] = [
        ("Client", [row.name + (" (unseen)" if row.unseen else "") for row in rows], "words"),
        (f"Gain{unit}", [clients.metric.show_gain(row.gain) for row in rows], ""),
        ("Interval", [clients.metric.show_interval(row.interval) for row in rows], ""),
        ("Verdict", [row.verdict for row in rows], "words chip"),
        *((label, [show(row.scores.get(label, math.nan)) for row in rows], "") for label in clients.labels),
        ("Trivial", [show(row.trivial) for row in rows], ""),
        ("Training rows", [count(row.train) for row in rows], ""),
        ("Test rows", [count(row.test) for row in rows], ""),
    ]
    kept = [column for column in wanted if any(text not in ("", "–") for text in column[1])] or wanted[:1]
    return [
        {"name": printable(name), "texts": [printable(text) for text in texts], **dict.fromkeys(kinds.split(), True)}
        for name, texts, kinds in kept
    ]


def printable(text: str) -> str:
    """A text without characters that are not to be seen."""
    return "".join(c if c.isprintable() else "�" for c in text)


def table(clients: Clients, cells: list[dict[str, Any]]) -> str:
    """The first rows of the table's columns; the script shows the others."""
    kinds = ["text" if place == 0 or c.get("words") else "" for place, c in enumerate(cells)]
    head = "".join(
        f'<th scope="col"{f""" class="{kind}" """ if kind else ""}>{escape(c["name"])}</th>'
        for c, kind in zip(cells, kinds, strict=True)
    )
    rows = []
    for place in range(min(len(clients.rows), FIRST_ROWS)):
        texts = [c["texts"][place] for c in cells]
        first = f'<th scope="row" title="{escape(texts[0])}">{escape(texts[0])}</th>'
        rest = "".join(
            f'<td class="text"><span class="chip {escape(t)}">{escape(t)}</span></td>' if c.get("chip") and t
            else f"<td>{escape(t)}</td>"
            for t, c in zip(texts[1:], cells[1:], strict=True)
        )  # fmt: skip
        rows.append(f'<tr data-client="{place}">{first}{rest}</tr>')
    left = len(clients.rows) - len(rows)
    more = (
        f'<noscript><p class="note">{left:,} more clients are shown where scripts may run.</p></noscript>'
        if left
        else ""
    )
    return (
        '<div id="clients"><div class="tools" hidden>'
        '<input type="search" placeholder="Search by name or verdict" aria-label="Search clients">'
        '<span class="count" role="status"></span>'
        '<button type="button" class="back">Previous</button><button type="button" class="on">Next</button></div>'
        f"{framed(head, rows, kind='')}{more}</div>"
        f'<p class="note">{escape(note(clients))}</p>'
    )


def note(clients: Clients) -> str:
    """What the columns say."""
    words = f"Test {clients.metric.words} of each client's own model; {clients.metric.direction}."
    if clients.best is not None and clients.over is not None:
        words += f" The gain is that of {clients.best} over {clients.over}, positive where the client is better off"
        words += ", in percentage points." if clients.metric.percent else "."
        words += (
            " A client gains or loses where its interval excludes zero."
            if clients.judged
            else " Gains were not compared with noise: majorant compare does that."
        )
    return words
