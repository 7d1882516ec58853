"""``majorant check``: a table as training would see it, with every problem it has and what would fix it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from majorant._tables import TABLES
from majorant.app._text import neutral
from majorant.app.config import validated
from majorant.app.named_tables import notes_on
from majorant.app.names import UnknownName, listed, nearest
from majorant.app.table_settings import TableSettings
from majorant.app.wording import count, digits
from majorant.cli.options import Json, with_settings
from majorant.cli.terminal import console, print_json, say

if TYPE_CHECKING:
    from majorant.data.tabular import TableReport

MANY = 20  # clients or classes that are shown


@with_settings(TableSettings, without=("data",))
def check(
    settings: dict[str, Any],
    table: Annotated[
        str, typer.Argument(help="A CSV or Parquet file, several ('silos/*.csv'), or a table by name: school.")
    ] = "",
    data: Annotated[str, typer.Option(help="The same as TABLE, as the other commands call it.")] = "",
    as_json: Json = False,
) -> None:
    """Show a table as training would see it: columns, clients, problems and what would fix them."""
    from majorant.data.tabular import inspect_table

    if bool(table) == bool(data):
        raise ValueError("name one table: majorant check FILE")
    table = table or data
    about = validated(TableSettings, {"data": table}, settings)
    check_name(about)
    about.check_roles()
    report = inspect_table(about.source, **about.table_options())
    report = report._replace(notes=[*notes_on(about.data), *report.notes])
    if as_json:
        print_json(report.to_dict())
    else:
        show(report)
    sys.stdout.flush()
    if report.problems:
        raise typer.Exit(2)


def check_name(about: TableSettings) -> None:
    """Refuses what is neither a file nor a table's name, with the nearest name."""
    if not about.is_table and not Path(about.data).exists() and not any(c in about.data for c in "*?["):
        raise UnknownName(
            f"there is no file or table {about.data!r}{nearest(about.data, TABLES)} Known: {listed(TABLES)}"
        )


def show(report: TableReport) -> None:
    """The report for a person."""
    if not report.columns:
        say(f"{report.where} was not read", wrap=False)
    else:
        sizes = f"{count(report.rows, 'row')}, {count(len(report.clients), 'client')}"
        say(f"{report.where}: {sizes}, {outcome(report)}", wrap=False)
        rows = [[c.name, c.kind, str(c.missing or ""), str(c.features or ""), c.decision] for c in report.columns]
        console.print(grid(["column", "kind", "missing", "features", "how it is used"], rows, (2, 3)))
    if report.clients:
        console.print(grid(["client", "rows", "train", "labels", ""], client_rows(report), (1, 2)))
        if len(report.clients) > MANY:
            say(f"… and {len(report.clients) - MANY} more clients, {spread(report)}", wrap=False)
    for note in report.notes:
        say(f"note: {note}", wrap=False)
    for problem in report.problems:
        say(f"problem: {problem.what}\n  fix: {problem.fix}", wrap=False)
    if not report.problems:
        say(f"ready to train, with {len(report.features)} features", wrap=False)


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


def spread(report: TableReport) -> str:
    """The range of all clients' sizes."""
    rows = sorted(client.rows for client in report.clients)
    return f"of {rows[0]} to {rows[-1]} rows, median {rows[len(rows) // 2]}"


def client_rows(report: TableReport) -> list[list[str]]:
    """The first clients as cells."""
    found = []
    divided = any(client.train for client in report.clients)
    for client in report.clients[:MANY]:
        there = {name: count for name, count in client.classes.items() if count}
        labels = " ± ".join(digits(number, 4) for number in client.targets.values()) or counts(there)
        train = str(client.train) if divided else ""
        found.append([client.name, str(client.rows), train, labels, "unseen" if client.unseen else ""])
    return found


def grid(heads: list[str], rows: list[list[str]], numbers: tuple[int, ...]) -> Any:
    """Rows of cells under their heads; ``numbers`` are the places of columns of numbers."""
    table = Table(box=None, padding=(0, 2, 0, 0))
    for place, head in enumerate(heads):
        table.add_column(head, justify="right" if place in numbers else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(neutral(cell)) for cell in row))
    return table
