"""A report on one page: a table, the figures and the configuration, in a single file that needs no network."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence, Set
from pathlib import Path
from typing import Any

from majorant.app._text import html_text as escape
from majorant.app.files import atomic_write_text
from majorant.app.report.figures import FAINT, INK, PAPER, amount, byte_unit, decile_name, draw_all, metric_name, render
from majorant.app.report.record import RunRecord, number

CAPTIONS = {
    "convergence": "The test {metric} after each evaluation. Look for how early a curve levels off, and how"
    " high{band}.",
    "communication": "The same curves against what was sent and received. A curve further to the left reaches its level"
    " with less traffic; a level line is a method that sends nothing.",
    "distribution": "One dot per client, with the density above. Look at the {tail}: a method that serves everybody has"
    " a short tail there, and not only a good mean.",
    "mixture": "The weight of each component in each client's model. Clear blocks mean that groups of alike clients"
    " were found; an even colour means that everybody mixes everything.",
    "objective": "How far the objective is from its minimum (or its value, where the minimum is not known) after so"
    " many rounds, gradients and bytes{band}: a method may be ahead in one and behind in another.",
    "rates": "What the runs measured of their own convergence: means over the evaluations so far, in logarithmic scale."
    " The dotted line falls as fast as the theorem's bound, which is about runs of different lengths with their own"
    " steps; a curve that levels off has reached the noise of its step.",
    "network": "Who talks to whom. The wider a link, the larger its weight in the average.",
    "costs": "What the runs cost in traffic and in time. Compilation is paid once, whatever the number of rounds.",
}
Column = tuple[str, Callable[[RunRecord], float], Callable[[float], str], bool | None]  # name, get, show, gain
HALVES = {"convergence", "communication"}
SECONDS = ("compile", "train", "evaluate")
STYLE = """
:root { color-scheme: light dark; --ink: #1f2328; --muted: #59636e; --faint: #d0d7de; --paper: #fefefe; --wash: #f5f7f9;
  --accent: #0072b2; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6edf3; --muted: #9aa4af; --faint: #3a424c; --paper: #12161b;
  --wash: #1b2128; --accent: #56b4e9; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink); line-height: 1.55;
  font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", sans-serif; }
main { max-width: 1120px; margin: 0 auto; padding: 2.5rem 1.25rem 3rem; }
h1 { font-size: 1.9rem; line-height: 1.2; letter-spacing: -0.015em; margin: 0 0 .4rem; overflow-wrap: anywhere; }
h2 { font-size: 1.2rem; margin: 2.75rem 0 .9rem; }
.about { color: var(--muted); margin: 0; overflow-wrap: anywhere; }
.scroll { overflow-x: auto; border: 1px solid var(--faint); border-radius: 10px; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; font-size: .94rem; }
th, td { padding: .6rem .9rem; text-align: right; white-space: nowrap; border-top: 1px solid var(--faint); }
thead th { border-top: 0; background: var(--wash); color: var(--muted); font-weight: 600; font-size: .82rem; }
th:first-child { text-align: left; }
tbody th { font-weight: 600; max-width: 22rem; overflow: hidden; text-overflow: ellipsis; }
td.best { font-weight: 700; color: var(--accent); }
.note { color: var(--muted); font-size: .86rem; margin: .6rem 0 0; }
.figures { display: grid; grid-template-columns: repeat(2, minmax(0, 1fr)); gap: 1.25rem; }
figure { margin: 0; padding: 1.1rem 1.1rem 1rem; border: 1px solid var(--faint); border-radius: 10px;
  grid-column: 1 / -1; }
figure.half { grid-column: auto; }
.plot { overflow-x: auto; }
.plot svg { display: block; width: 100%; height: auto; max-width: 880px; margin: 0 auto; }
figcaption { color: var(--muted); font-size: .9rem; border-top: 1px solid var(--faint); padding-top: .7rem;
  margin-top: .9rem; }
details { border: 1px solid var(--faint); border-radius: 10px; margin-bottom: .7rem; }
summary { cursor: pointer; padding: .6rem .9rem; font-weight: 600; overflow-wrap: anywhere; }
dl { display: grid; grid-template-columns: minmax(7rem, max-content) 1fr; gap: .25rem 1.5rem; margin: 0;
  padding: .2rem .9rem .9rem; font-size: .9rem; }
dt { color: var(--muted); } dd { margin: 0; overflow-wrap: anywhere; font-family: ui-monospace, Menlo, monospace; }
footer { color: var(--muted); font-size: .82rem; border-top: 1px solid var(--faint); margin-top: 3rem;
  padding-top: 1rem; }
@media print { main { max-width: none; padding: 0; } figure, tr { break-inside: avoid; } }
@media (max-width: 860px) { figure.half { grid-column: 1 / -1; } figure:not(.half) svg { min-width: 440px; } }
@media (max-width: 600px) { main { padding-top: 1.5rem; } h1 { font-size: 1.5rem; } figure { padding: .7rem; }
  tbody th { max-width: 9rem; }  th, td { padding: .5rem .6rem; } }
"""


def write_report(records: Sequence[RunRecord], path: str | Path) -> Path:
    """Writes the report of one or several runs as a self-contained page and returns its path."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    atomic_write_text(path, page(records))
    return path


def page(records: Sequence[RunRecord]) -> str:
    """The report as HTML."""
    if not records:
        raise ValueError("a report needs at least one run")
    title = escape(title_of(records))
    figures = draw_all(records)
    drawn = "".join(figure_block(name, figure, records, figures.keys()) for name, figure in figures.items())
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>{STYLE}</style>
</head>
<body>
<main>
<header><h1>{title}</h1><p class="about">{escape(about(records))}</p></header>
<section><h2>Results</h2>{table(records)}</section>
<section><h2>Figures</h2><div class="figures">{drawn}</div></section>
<section><h2>Configuration</h2>{"".join(configuration(record) for record in records)}</section>
<footer>Made with Majorant. The same numbers are in each run's summary.json, metrics.jsonl and clients.csv.</footer>
</main>
</body>
</html>
"""


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


def table(records: Sequence[RunRecord]) -> str:
    """The comparison; the best value of a column is marked where there are several runs."""
    cost = lambda part, key: lambda record: amount(record.summary.get(part) or {}, key)
    total = lambda record: math.fsum(amount(record.summary.get("seconds") or {}, k) for k in SECONDS)
    gain = records[0].higher_is_better
    columns: list[Column] = [
        ("Mean", lambda r: r.score("test", "mean"), score_format(records), gain),
        (decile_name(records).capitalize(), lambda r: r.score("test", "bottom_decile"), score_format(records), gain),
        ("Std", lambda r: r.score("test", "std"), score_format(records), None),
        ("Unseen", lambda r: r.score("unseen", "mean"), score_format(records), gain),
        *progress_columns(records),
        ("Bytes up", cost("communication", "bytes_up"), bytes_format, None),
        ("Bytes down", cost("communication", "bytes_down"), bytes_format, None),
        ("Seconds", total, lambda value: f"{value:.1f}", None),
    ]
    values = {name: [get(record) for record in records] for name, get, _, _ in columns}
    columns = [column for column in columns if any(math.isfinite(value) for value in values[column[0]])]
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name, *_ in columns)
    rows = []
    for place, record in enumerate(records):
        cells = []
        for name, _, form, higher in columns:
            text = form(values[name][place]) if math.isfinite(values[name][place]) else "–"
            known = [form(value) for value in values[name] if math.isfinite(value)]
            ends = [value for value in values[name] if math.isfinite(value)]
            best = higher is not None and len(known) > 1 and text == form(max(ends) if higher else min(ends))
            cells.append(f'<td class="best">{escape(text)}</td>' if best else f"<td>{escape(text)}</td>")
        rows.append(
            f'<tr><th scope="row" title="{escape(record.label)}">{escape(record.label)}</th>{"".join(cells)}</tr>'
        )
    note = f"Test {metric_name(records)} over the clients, the mean weighted by their test samples."
    note += " Bytes are those of all clients and rounds."
    if any(record.solves for record in records):
        note += " F is the objective, F* its minimum; gradients are those of samples that a client has computed."
    first = f'<tr><th scope="col">Method</th>{head}</tr>'
    body = f'<div class="scroll"><table><thead>{first}</thead><tbody>{"".join(rows)}</tbody></table></div>'
    return f'{body}<p class="note">{escape(note)}</p>'


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


def score_format(records: Sequence[RunRecord]) -> Callable[[float], str]:
    """Accuracies as percentages, everything else with four digits."""
    return (lambda value: f"{100 * value:.1f} %") if records[0].metric == "accuracy" else (lambda value: f"{value:.4g}")


def bytes_format(value: float) -> str:
    """An amount of bytes to read.

    >>> bytes_format(28_800_000), bytes_format(0)
    ('28.8 MB', '0 B')
    """
    unit, name = byte_unit(value)
    return f"{value / unit:.3g} {name}" if unit > 1 else f"{value:.0f} B"


def figure_block(name: str, figure: Any, records: Sequence[RunRecord], drawn: Set[str]) -> str:
    """A figure with its caption; the two curves stand side by side."""
    band = "; a band spans the seeds" if any(len(record.seeds) > 1 for record in records) else ""
    words = {"metric": metric_name(records), "tail": decile_name(records), "band": band}
    caption = CAPTIONS[name.partition("-")[0]].format(**words)
    svg = inline_svg(render(figure, "svg", text=True).decode(), name)
    half = ' class="half"' if name in HALVES and len(HALVES & drawn) == 2 else ""
    return f'<figure id="{name}"{half}><div class="plot">{svg}</div><figcaption>{escape(caption)}</figcaption></figure>'


def inline_svg(svg: str, name: str) -> str:
    """An SVG file as part of a page: no prologue, ids of its own, and inks that follow the page's theme."""
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg[svg.index("<svg") :], flags=re.DOTALL)
    svg = re.sub(r'\bid="([^"]+)"', rf'id="{name}-\1"', svg)
    svg = re.sub(r'(url\(#|href="#)', rf"\1{name}-", svg)
    for colour, variable in ((INK, "ink"), (FAINT, "faint"), (PAPER, "paper")):
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
