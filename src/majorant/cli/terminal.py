"""What the command line shows a person: tables, progress bars, where results are, and complaints."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import typer
from rich.console import Console
from rich.table import Table

console = Console()
errors = Console(stderr=True)


def tell_network(algorithm: Any) -> None:
    """What the network of peers is like, where there is one."""
    if algorithm.network is not None:
        from majorant.exchange.gossip import facts

        console.print(f"network: {facts(algorithm).describe()}", highlight=False)


def tell_where(folder: Path, report: Path | None) -> None:
    """Where a person finds what a run left."""
    console.print(f"run folder: {folder}", highlight=False, soft_wrap=True)
    if report is None:
        console.print("no report: it needs matplotlib (pip install 'majorant[report]')", highlight=False)
    else:
        console.print(f"report: {report.resolve()}", highlight=False, soft_wrap=True)


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


def comparison_table(summaries: dict[str, dict[str, Any]]) -> Table:
    """Methods side by side; ± is the standard deviation over seeds."""
    from majorant.engines.run import megabytes

    metric = next(iter(summaries.values()))["metric"]
    factor, digits = (100, 1) if metric == "accuracy" else (1, 3)
    title = (
        "test accuracy of each client's own model, in %"
        if metric == "accuracy"
        else "test RMSE of each client's own model"
    )
    table = Table(title=title, title_justify="left")
    unseen = any(f"unseen_{metric}" in s for s in summaries.values())
    worst = "bottom decile" if metric == "accuracy" else "worst decile"
    for name in (
        "method",
        "mean",
        worst,
        "std over clients",
        *(["unseen clients"] if unseen else []),
        "sent",
        "seconds",
    ):
        table.add_column(name, justify="left" if name == "method" else "right")
    for label, s in summaries.items():
        show = lambda key, part, s=s: (
            f"{factor * (s[key][part] if s[key][part] is not None else float('nan')):.{digits}f}"
        )
        test = f"test_{metric}"
        spread = s[test].get("std_over_runs")
        mean = show(test, "mean") + (f" ± {factor * spread:.{digits + 1}f}" if spread is not None else "")
        new = [show(f"unseen_{metric}", "mean") if f"unseen_{metric}" in s else "–"] if unseen else []
        sent = megabytes(s["communication"]["bytes_up"] + s["communication"]["bytes_down"])
        seconds = s["seconds"]
        table.add_row(
            label, mean, show(test, "bottom_decile"), show(test, "std"), *new, sent, f"{sum(seconds.values()):.1f}"
        )
    return table


def objective_table(summaries: dict[str, dict[str, Any]]) -> Table | None:
    """How far methods came in minimising their objective, and what it took; None where none of them measured it."""
    from majorant.engines.run import megabytes

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
        table.add_row(label, show(s.get(level), form), show(s.get("gradient_norm"), ".2e"), rounds, *work, sent)
    best = {s["optimum"] for s in summaries.values() if "optimum" in s}
    notes = [f"the minimum F* is {value:.10g}" for value in best if len(best) == 1]
    notes += ["* stopped early by --until"] * any(s.get("stopped") for s in summaries.values())
    table.caption, table.caption_justify = "\n".join(notes) or None, "left"
    return table


class Bars:
    """Progress bars on the error stream, a bar per method; without a screen to show them on, nothing."""

    def __init__(self, screen: Any = None, tasks: Sequence[Any] = ()) -> None:
        self.screen, self.tasks = screen, tasks

    def advance(self, i: int, lines: list[dict[str, Any]]) -> None:
        """Moves the i-th bar to an evaluation, a line for each seed, and shows its metrics."""
        if self.screen is not None:
            self.screen.update(self.tasks[i], completed=lines[0]["round"], note=note_of(lines))

    def finish(self, i: int, rounds: int) -> None:
        """Fills the i-th bar: the run made so many rounds, and will make no more."""
        if self.screen is not None:
            self.screen.update(self.tasks[i], completed=rounds, total=rounds)


def note_of(lines: list[dict[str, Any]]) -> str:
    """The current metrics, means over seeds, in words."""
    mean = lambda get: sum(get(line) for line in lines) / len(lines)
    if "test_accuracy" in lines[0]:
        note = f"test accuracy {100 * mean(lambda line: line['test_accuracy']['mean']):.1f} %"
    else:
        note = f"test RMSE {mean(lambda line: line['test_rmse']['mean']):.4g}"
    if "suboptimality" in lines[0]:
        note += f", F − F* {mean(lambda line: line['suboptimality']):.1e}"
    return note + (f", {lines[0]['rejected']} updates rejected" if lines[0]["rejected"] else "")


@contextmanager
def progress(labels: list[str], rounds: int, *, quiet: bool) -> Iterator[Bars]:
    """A bar per method, for the time of a ``with`` block."""
    if quiet:
        yield Bars()
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}"),
    )
    with Progress(*columns, console=errors) as screen:
        yield Bars(screen, [screen.add_task(label, total=rounds, note="") for label in labels])


@contextmanager
def friendly_errors(
    interrupted: str = "the run can be continued with --resume if it has a checkpoint",
) -> Iterator[None]:
    """Complaints as one message and exit status 2; warnings as one line each; ``interrupted`` is said on Ctrl-C."""

    def show(message: Any, category: Any, filename: str, lineno: int, file: Any = None, line: Any = None) -> None:
        errors.print(f"[yellow]warning:[/] {escaped(str(message))}", highlight=False)

    def fail(message: str) -> None:
        errors.print(f"[bold red]error:[/] {escaped(message)}", highlight=False, soft_wrap=True)
        raise typer.Exit(2)

    previous = warnings.showwarning
    warnings.showwarning = show
    try:
        yield
    except BrokenPipeError:  # the reader of our output has seen enough
        raise typer.Exit(141) from None
    except FileExistsError as error:
        fail(str(error))
    except OSError as error:
        from majorant.app.storage import explain_os_error

        fail(explain_os_error(error, error.filename or "the run folder"))
    except (ValueError, ImportError) as error:
        fail(str(error))
    except RuntimeError as error:
        from majorant.engines.simulator import Diverged

        if not isinstance(error, Diverged):
            raise
        fail(str(error))
    except KeyboardInterrupt:
        errors.print(f"interrupted: {interrupted}", highlight=False)
        raise typer.Exit(130) from None
    finally:
        warnings.showwarning = previous


def escaped(text: str) -> str:
    """Text that rich prints as it is."""
    from rich.markup import escape

    return escape(text)
