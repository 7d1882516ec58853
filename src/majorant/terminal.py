"""What the command line shows a person: tables, progress bars, where results are, and complaints."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
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
        from majorant.communication.gossip import facts

        console.print(f"network: {facts(algorithm).describe()}", highlight=False)


def tell_where(folder: Path, report: Path | None) -> None:
    """Where a person finds what a run left."""
    console.print(f"run folder: {folder}", highlight=False, soft_wrap=True)
    if report is None:
        console.print("no report: it needs matplotlib (pip install 'majorant[report]')", highlight=False)
    else:
        console.print(f"report: {report.resolve()}", highlight=False, soft_wrap=True)


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


@contextmanager
def progress(labels: list[str], rounds: int, *, quiet: bool) -> Iterator[Any]:
    """A bar per method with its current metrics, on the error stream; ``advance(i, lines)`` moves the i-th."""
    if quiet:
        yield lambda i, lines: None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}"),
    )
    with Progress(*columns, console=errors) as bars:
        tasks = [bars.add_task(label, total=rounds, note="") for label in labels]

        def advance(i: int, lines: list[dict[str, Any]]) -> None:
            line = lines[0]
            metric = "accuracy" if "test_accuracy" in line else "rmse"
            mean = sum(each[f"test_{metric}"]["mean"] for each in lines) / len(lines)
            note = f"test accuracy {100 * mean:.1f} %" if metric == "accuracy" else f"test RMSE {mean:.4g}"
            rejected = f", {line['rejected']} updates rejected" if line["rejected"] else ""
            bars.update(tasks[i], completed=line["round"], note=note + rejected)

        yield advance


@contextmanager
def friendly_errors() -> Iterator[None]:
    """Complaints as one message and exit status 2; warnings as one line each."""
    from majorant.experiments.storage import explain_os_error

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
        fail(explain_os_error(error, error.filename or "the run folder"))
    except (ValueError, ImportError) as error:
        fail(str(error))
    except RuntimeError as error:
        from majorant.engines.simulator import Diverged

        if not isinstance(error, Diverged):
            raise
        fail(str(error))
    except KeyboardInterrupt:
        errors.print("interrupted: the run can be continued with --resume if it has a checkpoint", highlight=False)
        raise typer.Exit(130) from None
    finally:
        warnings.showwarning = previous


def escaped(text: str) -> str:
    """Text that rich prints as it is."""
    from rich.markup import escape

    return escape(text)
