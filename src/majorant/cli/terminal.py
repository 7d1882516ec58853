"""What the command line shows a person: lines, tables, progress bars, and where results are.

Texts of others (paths, names, labels) are shown as they are: they are no markup, and move no cursor.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from majorant.app._text import neutral
from majorant.app.files import strict_json

if TYPE_CHECKING:
    from majorant.app.build import Problem
    from majorant.app.runs import PastRun


class Screen(Console):
    """A console whose closed output is an error like any other."""

    def on_broken_pipe(self) -> None:
        """The reader of our output has seen enough."""
        raise BrokenPipeError


console = Screen()
errors = Screen(stderr=True)


def say(text: str, *, wrap: bool = True, to: Console = console) -> None:
    """Prints lines; ``wrap`` false leaves long ones, such as paths, in one piece."""
    for line in text.split("\n"):
        to.print(Text(neutral(line)), soft_wrap=not wrap)


def warn(text: str) -> None:
    """A warning, on one line of the error stream."""
    complain(text, "warning", "yellow")


def complain(text: str, what: str = "error", style: str = "bold red") -> None:
    """A complaint, on one line of the error stream."""
    errors.print(Text.assemble((f"{what}:", style), " ", neutral(re.sub(r"\s*\n\s*", " ", text))), soft_wrap=True)


def print_json(value: Any) -> None:
    """Prints JSON in letters that every terminal has."""
    print(json.dumps(json.loads(strict_json(value)), indent=2))


def tell_network(problem: Problem) -> None:
    """What the network of peers is like, where there is one."""
    exchange: Any = problem.federation.exchange
    if exchange.network is not None:
        say(f"network: {exchange.facts.describe()}")


def tell_where(folder: Path, report: Path | None) -> None:
    """Where a person finds what a run left."""
    say(f"run folder: {folder}", wrap=False)
    missing = "no report: that of a front needs matplotlib (pip install 'majorant[report]')"
    say(missing if report is None else f"report: {report.resolve()}", wrap=False)


def check_figures(format: str | None) -> None:
    """Only formats that papers use."""
    if format not in (None, "pdf", "png", "svg"):
        raise ValueError(f"--figures takes pdf, png or svg, got {format!r}")


def looking_for_minimum(config: Any, data: Any, *, quiet: bool) -> float | None:
    """`find_optimum`, with words on the error stream that say what takes so long."""
    from majorant.app.optimum import find_optimum

    words = "looking for the minimum of the objective, to measure against (--no-reference does without) …"
    with nullcontext() if quiet or config.objective is None else errors.status(words):
        return find_optimum(config, data)


def making_features(problem: Problem, *, quiet: bool) -> None:
    """Has a frozen network make its features of all samples, with words that say what takes so long."""
    from majorant.engines.embedding import embedded, to_embed

    if not to_embed(problem.data, problem.model):
        return
    samples = sum(len(part.x) for part in (problem.data.train, problem.data.validation, problem.data.test))
    words = f"computing what the fixed layers make of {samples:,} samples, once for all rounds …"
    assert problem.settings is not None  # it was built from them
    with problem.settings.arithmetic(), nullcontext() if quiet else errors.status(words):
        embedded(problem.data, problem.model)


def comparison_table(summaries: dict[str, dict[str, Any]], record: dict[str, Any] | None) -> Table:
    """Methods side by side, in 80 columns; with several seeds ± is the standard deviation over them.

    ``record`` is the comparison's own summary, where there is one: its headline score is shown.
    """
    from majorant.app.wording import ERRORS, shown, title
    from majorant.engines.summary import megabytes

    metric = record["metric"] if record else next(iter(summaries.values()))["metric"]
    worst = "worst decile" if metric in ERRORS else "bottom decile"
    unseen = any(name.startswith("unseen_") for s in summaries.values() for name in s)
    table = Table(
        title=f"test {title(metric)} of each client's own model{', in %' if shown(0, metric) == '0.0 %' else ''}",
        title_justify="left",
        box=SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
    )
    columns = ["method", "mean", *["95 % interval"] * (record is not None), worst, *["unseen"] * unseen, "sent", "s"]
    for name in columns:
        left = name == "method"
        table.add_column(name, justify="left" if left else "right", overflow="fold", no_wrap=not left)
    number = lambda value: shown(value, metric, unit=False)
    for label, s in summaries.items():
        score = s.get(f"test_{s['metric']}", {})
        own = record["methods"][label] if record else {"mean": score.get("mean"), "diverged": []}
        spread = own.get("std_over_splits", score.get("std_over_runs"))
        if own["diverged"]:
            cells = [f"diverged on {len(own['diverged'])}", "–", "–"]
        else:
            mean = number(own["mean"]) + (f" ± {number(spread)}" if spread is not None else "")
            decile = number(own["bottom_decile"] if record else score.get("bottom_decile"))
            within = " – ".join(map(number, own["interval"])) if record and own["interval"] else "–"
            cells = [mean, within, decile]
        cells = cells if record else [cells[0], cells[2]]
        new = s.get(f"unseen_{s['metric']}", {}).get("mean")
        cells += [shown(new, s["metric"], unit=False)] if unseen else []
        sent = megabytes(s["communication"]["bytes_up"] + s["communication"]["bytes_down"])
        table.add_row(Text(neutral(label)), *cells, sent, f"{sum(s['seconds'].values()):.1f}")
    return table


def objective_table(summaries: dict[str, dict[str, Any]]) -> Table | None:
    """How far methods came in minimising their objective, and what it took; None where none of them measured it."""
    from majorant.engines.summary import megabytes

    if not any("objective" in s and ("gradients" in s or "optimum" in s) for s in summaries.values()):
        return None
    known = all("suboptimality" in s for s in summaries.values())
    level, form = ("suboptimality", ".2e") if known else ("objective", ".6g")
    table = Table(title="the objective F; gradients of samples that a client computed", title_justify="left")
    for name in ("method", "F − F*" if known else "F", "gradient norm", "rounds", "in w", "in β", "sent"):
        table.add_column(name, justify="left" if name == "method" else "right")
    show = lambda value, form: "–" if value is None else f"{value:{form}}"
    for label, s in summaries.items():
        calls, rounds = s.get("gradients") or {}, f"{s['rounds']}{' *' if s.get('stopped') else ''}"
        sent = megabytes(s["communication"]["bytes_up"] + s["communication"]["bytes_down"])
        work = (show(calls.get(block), ",.0f") for block in ("w", "beta"))
        table.add_row(
            Text(neutral(label)), show(s.get(level), form), show(s.get("gradient_norm"), ".2e"), rounds, *work, sent
        )
    best = {s["optimum"] for s in summaries.values() if "optimum" in s}
    notes = [f"the minimum F* is {value:.10g}" for value in best if len(best) == 1]
    notes += ["* stopped early by --until"] * any(s.get("stopped") for s in summaries.values())
    table.caption, table.caption_justify = "\n".join(notes) or None, "left"
    return table


def tell_trivial(summary: dict[str, Any]) -> None:
    """What a model without features would have scored, where that is known."""
    from majorant.app.wording import shown, whose

    known = summary.get("trivial") or {}
    if known.get("score") is not None:
        say(f"  {'trivial model':16s} {shown(known['score'], summary['metric'])} ({whose(known['name'])})")


def tell_tuned(summaries: dict[str, dict[str, Any]], folders: dict[str, Path]) -> None:
    """What tuning chose for each method, where there was any, and on what."""
    from majorant.app.files import read_json
    from majorant.app.tuning import chosen_on

    for label, summary in summaries.items():
        values: dict[str, float] = next(iter(summary.get("hyper") or []), {})
        if values:
            chosen = ", ".join(f"{name}={value:g}" for name, value in values.items())
            say(f"{label}: {chosen}, chosen on {chosen_on(read_json(folders[label] / 'tuning.json'))}")


def tuning_table(record: dict[str, Any]) -> Table:
    """What tuning tried, best first."""
    metric = record["metric"]
    score, names = f"validation_{metric}", list(record["best"])
    accurate = metric == "accuracy"
    table = Table(title=f"validation {'accuracy, in %' if accurate else metric.upper()}", title_justify="left")
    for name in (*names, "rounds", "mean", "loss", "rejected"):
        table.add_column(name, justify="right")
    for trial in record["trials"]:
        value = f"{100 * trial[score]:.1f}" if accurate else f"{trial[score]:.4g}"
        numbers = (f"{trial['rounds']:g}", value, f"{trial['validation_loss']:.4g}", f"{trial['rejected']:g}")
        table.add_row(*(f"{trial[name]:g}" for name in names), *numbers)
    return table


def tell_runs(folder: Path, runs: Sequence[PastRun]) -> None:
    """Past runs, each a row of numbers that fits the screen and its folder below."""
    from majorant.app.report.words import bytes_format
    from majorant.app.wording import shown

    if not runs:
        return say(f"there are no runs in {folder}")
    room = max(console.width, 60) - 51  # for the names of method and data
    first, second = room // 2, room - room // 2
    short = lambda text, most: neutral(text) if len(neutral(text)) <= most else neutral(text)[: most - 1] + "…"
    row = lambda when, method, data, *numbers: (
        f"{when:16} {short(method, first):{first}} {short(data, second):{second}} " + "".join(numbers)
    )
    say(row("when", "method", "data", f"{'rounds':>6}", f"{'mean':>9}", f"{'decile':>9}", f"{'sent':>8}"))
    for each in runs:
        show = lambda value, form: "–" if value is None else form(value)
        metric = each.metric or "accuracy"
        scores = f"{shown(each.mean, metric):>9}{shown(each.bottom_decile, metric):>9}"
        middle = scores if each.state == "finished" else f"{each.state:>18}"
        sent = f"{show(each.bytes, bytes_format):>8}"
        say(row(each.when[:16], each.method, each.data, f"{show(each.rounds, str):>6}", middle, sent))
        say(f"  {each.folder}")


class Bars:
    """Progress bars on the error stream, a bar per method; without a screen to show them on, nothing."""

    def __init__(self, screen: Any = None, tasks: Sequence[Any] = ()) -> None:
        self.screen, self.tasks = screen, tasks

    def advance(self, i: int, lines: list[dict[str, Any]]) -> None:
        """Moves the i-th bar to an evaluation, a line for each seed, and shows its metrics."""
        if self.screen is not None:
            self.screen.update(self.tasks[i], completed=lines[0]["round"], note=note_of(lines))

    def tuning(self, i: int, trials: int, done: int, rounds: int) -> None:
        """Moves the i-th bar to a round of tuning, with so many settings side by side."""
        if self.screen is not None:
            note = f"tuning, {trials} settings side by side" if done < rounds else ""
            self.screen.update(self.tasks[i], completed=done % rounds, note=note)

    def finish(self, i: int, rounds: int) -> None:
        """Fills the i-th bar: the run made so many rounds, and will make no more."""
        if self.screen is not None:
            self.screen.update(self.tasks[i], completed=rounds, total=rounds)


def note_of(lines: list[dict[str, Any]]) -> str:
    """The current metrics, means over seeds, in words."""
    from majorant.app.wording import shown

    mean = lambda get: sum(get(line) for line in lines) / len(lines)
    if "test_accuracy" in lines[0]:
        note = f"test accuracy {100 * mean(lambda line: line['test_accuracy']['mean']):.1f} %"
    elif "test_rmse" in lines[0]:
        note = f"test RMSE {shown(mean(lambda line: line['test_rmse']['mean']), 'rmse')}"
    else:
        part = "test" if "test_objective" in lines[0] else "train"
        note = f"{part} objective {mean(lambda line: line[f'{part}_objective']['mean']):.6g}"
    if "suboptimality" in lines[0]:
        note += f", F − F* {mean(lambda line: line['suboptimality']):.1e}"
    if "epsilon" in lines[0]:
        note += f", ε {lines[0]['epsilon']:.3g}"
    whose = lines[0].get("rejected_client")
    such = f" (such as {neutral(whose)}'s)" if whose is not None else ""
    return note + (f", {lines[0]['rejected']} updates rejected{such}" if lines[0]["rejected"] else "")


@contextmanager
def progress(labels: list[str], rounds: int, *, quiet: bool) -> Iterator[Bars]:
    """A bar per method, for the time of a ``with`` block."""
    if quiet or console.quiet:
        yield Bars()
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}", markup=False),
    )
    with Progress(*columns, console=errors) as screen:
        yield Bars(screen, [screen.add_task(neutral(label), total=rounds, note="") for label in labels])
