"""``majorant check``: a table as training would see it, with every problem it has and what would fix it."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from majorant.cli.terminal import console, escaped, friendly_errors

if TYPE_CHECKING:
    from majorant.data.tabular import TableReport

MANY = 20  # clients or classes that are shown
Texts = list[str] | None


def check(
    table: Annotated[str, typer.Argument(help="A CSV or Parquet file, or several: 'silos/*.csv'.")],
    client_column: Annotated[str | None, typer.Option(help="The column that says whose a row is.")] = None,
    label_column: Annotated[str | None, typer.Option(help="The column that is predicted.")] = None,
    task: Annotated[str, typer.Option(help="classification, regression, or auto.")] = "auto",
    drop: Annotated[Texts, typer.Option(help="Columns to leave out: a,b (repeatable).")] = None,
    categorical: Annotated[Texts, typer.Option(help="Columns that are categories: a,b (repeatable).")] = None,
    dates: Annotated[Texts, typer.Option(help="How dates are written: visit=%d/%m/%Y (repeatable).")] = None,
    missing: Annotated[str, typer.Option(help="Missing values: impute, drop or refuse.")] = "impute",
    missing_values: Annotated[Texts, typer.Option(help="A text that marks a missing value (repeatable).")] = None,
    max_categories: Annotated[int, typer.Option(help="Categories of a column: rarer ones are pooled.")] = 50,
    min_samples: Annotated[int, typer.Option(help="Leave out clients with fewer rows.")] = 0,
    split: Annotated[str, typer.Option(help="Shares of train, validation and test.")] = "0.6,0.2,0.2",
    split_seed: Annotated[int, typer.Option(help="Seed of the random split.")] = 0,
    time_column: Annotated[str | None, typer.Option(help="Split in the order of this column.")] = None,
    group_column: Annotated[str | None, typer.Option(help="Split in whole groups of this column.")] = None,
    split_column: Annotated[str | None, typer.Option(help="The column that says train, validation or test.")] = None,
    unseen: Annotated[float, typer.Option(help="Share of the clients kept away from training.")] = 0.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON and nothing else.")] = False,
) -> None:
    """Show a table as training would see it: columns, clients, problems and what would fix them."""
    settings = {k: v for k, v in locals().items() if k not in ("table", "as_json")}
    with friendly_errors():
        from majorant.app.table_settings import check_roles, table_options
        from majorant.data.tabular import inspect_table

        check_roles({"data": table} | settings)
        report = inspect_table(table, **table_options(settings | {"split": shares(split)}))
        if as_json:
            print(json.dumps(report.to_dict(), indent=2, ensure_ascii=False))
        else:
            show(report)
        sys.stdout.flush()
        if report.problems:
            raise typer.Exit(2)


def shares(text: str) -> tuple[float, ...]:
    """The numbers in a list with commas.

    >>> shares("0.8, 0, 0.2")
    (0.8, 0.0, 0.2)
    """
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError:
        raise ValueError(f"--split takes three shares, as in 0.6,0.2,0.2, got {text!r}") from None


def show(report: TableReport) -> None:
    """The report for a person."""
    say = lambda text: console.print(escaped(text), highlight=False, soft_wrap=True)
    say(f"{report.where}: {report.rows} rows, {len(report.clients)} clients, {outcome(report)}")
    if report.columns:
        rows = [[c.name, c.kind, str(c.missing or ""), str(c.features or ""), c.decision] for c in report.columns]
        console.print(grid(["column", "kind", "missing", "features", "what becomes of it"], rows, (2, 3)))
    if report.clients:
        console.print(grid(["client", "rows", "train", "labels", ""], client_rows(report), (1, 2)))
        if len(report.clients) > MANY:
            say(f"… and {len(report.clients) - MANY} more clients, {sizes(report)}")
    for note in report.notes:
        say(f"note: {note}")
    for problem in report.problems:
        say(f"problem: {problem.what}\n  fix: {problem.fix}")
    if not report.problems:
        say(f"ready to train on, with {len(report.features)} features")


def outcome(report: TableReport) -> str:
    """What is predicted, in words."""
    if report.task is None:
        return "labels unknown"
    return f"classification ({counts(report.classes)})" if report.classes else "regression"


def counts(classes: dict[str, int]) -> str:
    """How often each class occurs, of many the most frequent.

    >>> counts({"no": 30, "yes": 12})
    'no 30, yes 12'
    """
    shown = sorted(classes, key=lambda name: -classes[name])[:MANY] if len(classes) > MANY else list(classes)
    more = f", … ({len(classes)} classes)" if len(classes) > MANY else ""
    return ", ".join(f"{name} {classes[name]}" for name in shown) + more


def sizes(report: TableReport) -> str:
    """The range of all clients' sizes."""
    rows = sorted(client.rows for client in report.clients)
    return f"of {rows[0]} to {rows[-1]} rows, median {rows[len(rows) // 2]}"


def client_rows(report: TableReport) -> list[list[str]]:
    """The first clients as cells."""
    found = []
    for client in report.clients[:MANY]:
        there = {name: count for name, count in client.classes.items() if count}
        found.append(
            [client.name, str(client.rows), str(client.train), counts(there), "unseen" if client.unseen else ""]
        )
    return found


def grid(heads: list[str], rows: list[list[str]], numbers: tuple[int, ...]) -> Any:
    """Rows of cells under their heads; ``numbers`` are the places of columns of numbers."""
    table = Table(box=None, padding=(0, 2, 0, 0))
    for place, head in enumerate(heads):
        table.add_column(head, justify="right" if place in numbers else "left", overflow="fold")
    for row in rows:
        table.add_row(*map(escaped, row))
    return table
