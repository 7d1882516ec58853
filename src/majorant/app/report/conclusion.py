"""The top of a report: what came out, in sentences and a few numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence

from majorant.app._text import html_text as escape
from majorant.app.report.clients import best_and_alone
from majorant.app.report.comparison import Comparison, Verdict
from majorant.app.report.gains import listed
from majorant.app.report.record import RunRecord, common_trivial
from majorant.app.report.words import Metric, bytes_format, metric
from majorant.app.wording import under_attack, whose


def conclusion(records: Sequence[RunRecord], comparison: Comparison | None) -> str:
    """The verdict of a comparison, or what can be said without one."""
    if comparison is None:
        return block(plain_sentences(records), "")
    verdict, scale = comparison.verdict, metric(comparison.metric)
    return block(verdict.sentences, verdict.worth_it) + facts(verdict, scale) + names(verdict)


def block(sentences: Sequence[str], kind: str) -> str:
    """Sentences, the first one large."""
    return (
        f'<section class="verdict {kind}">{"".join(f"<p>{escape(s)}</p>" for s in sentences)}</section>'
        if sentences
        else ""
    )


def facts(verdict: Verdict, scale: Metric) -> str:
    """The numbers of the conclusion."""
    cells = []
    if verdict.best is not None and verdict.gain is not None:
        unit = f" {scale.gain_unit}"
        between = f"interval {scale.show_interval(verdict.interval)}" if verdict.interval else ""
        cells.append((f"Gain of {verdict.best} over {verdict.over}", scale.show_gain(verdict.gain) + unit, between))
    counts = len(verdict.gain_clients), len(verdict.lose_clients)
    if any(counts) or verdict.unclear_clients:
        told = f"{counts[0]:,} gain, {counts[1]:,} lose"
        cells.append(("Clients, beyond noise", told, f"{verdict.unclear_clients:,} unclear"))
    if verdict.trivial is not None:
        beaten = {True: "is beaten", False: "is not beaten", None: ""}[verdict.trivial.beaten]
        cells.append(("Trivial model", scale.show(verdict.trivial.score), f"{verdict.trivial.name} {beaten}".strip()))
    if verdict.megabytes is not None:
        cells.append(
            (
                f"Traffic of {verdict.best}" if verdict.best else "Traffic",
                bytes_format(1e6 * verdict.megabytes),
                "all clients and rounds",
            )
        )
    drawn = "".join(
        f"<div><dt>{escape(name)}</dt><dd>{escape(value)}<small>{escape(more)}</small></dd></div>"
        for name, value, more in cells
    )
    return f'<dl class="facts">{drawn}</dl>' if cells else ""


def names(verdict: Verdict) -> str:
    """Who gains, who loses, of whom nothing can be said; folded, as there may be many."""
    lists = {
        "gain": verdict.gain_clients,
        "lose": verdict.lose_clients,
        "with too few test rows to be judged": verdict.small_clients,
    } | {f"diverged with {method}": who for method, who in verdict.diverged.items()}
    return "".join(
        f"<details><summary>{len(who):,} {'client' if len(who) == 1 else 'clients'} {escape(words)}</summary>"
        f'<p class="names">{escape(listed(who, 200))}</p></details>'
        for words, who in lists.items()
        if who
    )


def plain_sentences(records: Sequence[RunRecord]) -> list[str]:
    """What can be said of runs that nobody compared: numbers, and no judgement."""
    scale = metric(records[0].metric)
    others = [f"{r.label} ({metric(r.metric).words})" for r in records if r.metric != records[0].metric]
    records = [r for r in records if r.metric == records[0].metric]
    scored = [r for r in records if math.isfinite(r.score("test", "mean"))]
    if not scored:
        return []
    sign = 1 if scale.higher_is_better else -1
    best = max(scored, key=lambda r: sign * r.score("test", "mean"))
    mean, tail = best.score("test", "mean"), best.score("test", "bottom_decile")
    words = [f"{best.label} has a test {scale.words} of {scale.show(mean)} over the clients"]
    if math.isfinite(tail):
        words[0] += f", and {scale.show(tail)} in the {scale.tail}"
    words[0] += "."
    label, alone = best_and_alone(records)
    if label is not None and alone is not None:
        ends = {r.label: r.score("test", "mean") for r in records}
        gain = sign * (ends[label] - ends[alone])
        words.append(
            f"{label} against {alone}: {scale.show_gain(gain)} {scale.gain_unit}. Whether that is more than noise was"
            " not asked: majorant compare does."
        )
    attacks = [r.summary["attack"] for r in records if r.summary.get("attack")]
    words += dict.fromkeys(map(under_attack, attacks))
    if (known := common_trivial(records, records[0].metric)) is not None:
        words.append(f"The trivial model ({whose(known[0])}) has {scale.show(known[1])}.")
    diverged = [r.label for r in records if not math.isfinite(r.score("test", "mean")) and r.summary]
    if diverged and len(records) > 1:
        words.append(f"Without a finite score: {', '.join(diverged)}.")
    if others:
        words.append(f"Scored otherwise, and compared with nothing here: {', '.join(others)}.")
    return words
