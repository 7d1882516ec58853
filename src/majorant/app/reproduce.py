"""Named experiments: a paper's tables and figures, run by ``majorant reproduce``, our numbers beside the paper's."""

from __future__ import annotations

import pkgutil
from collections.abc import Callable
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from majorant.app.files import atomic_write_bytes, atomic_write_text, check_writable, strict_json
from majorant.app.names import nearest

if TYPE_CHECKING:
    from rich.console import Console


class Result(NamedTuple):
    """A table with a title and notes; ``curves`` (name → x and y values) make a figure where the paper has one.

    ``bands`` (name → low and high values) are shaded around curves; a curve "panel | name" is drawn in a panel; curves
    named in ``dots`` are points with nothing between them.
    """

    title: str
    columns: list[str]
    rows: list[list[Any]]
    notes: list[str] = []  # noqa: RUF012 - never mutated
    curves: dict[str, tuple[list[float], list[float]]] = {}  # noqa: RUF012
    axes: tuple[str, str] = ("", "")
    bands: dict[str, tuple[list[float], list[float]]] = {}  # noqa: RUF012
    dots: tuple[str, ...] = ()


class Context(NamedTuple):
    """How an experiment is run: small (to see that it works), how many seeds, where progress is told, and where long
    experiments keep what they have finished."""

    quick: bool
    seeds: int | None
    tell: Callable[[str], None]
    folder: Path | None = None


class Experiment(NamedTuple):
    """An experiment: one line about it, and the function that runs it."""

    help: str
    run: Callable[[Context], list[Result]]


QUICK = "a quick run, to see that it works: smaller and shorter than the paper's, its numbers are NOT comparable"
GROUP = "majorant.reproductions"  # the entry points under which packages offer experiments


def experiments() -> dict[str, Experiment]:
    """The experiments of all installed packages that offer some, by name.

    An entry point of the group ``majorant.reproductions`` names a dictionary of experiments.
    """
    found: dict[str, Experiment] = {}
    for entry in sorted(entry_points(group=GROUP), key=lambda entry: entry.name):
        found |= entry.load()
    return found


def experiment_named(name: str) -> Experiment:
    """The experiment of a name that must be known."""
    known = experiments()
    if not known:
        raise ValueError("no experiments are installed: pip install -e ./reproductions, in a copy of the repository")
    if name not in known:
        raise ValueError(f"there is no experiment {name!r}{nearest(name, known)} Known: {', '.join(known)}")
    return known[name]


def lazily(place: str, help: str, **options: Any) -> Experiment:
    """An experiment whose function, "module:function", is imported when it runs, and then given the options."""
    return Experiment(help, lambda context: pkgutil.resolve_name(place)(context, **options))


def reproduce(name: str, folder: Path, *, quick: bool, seeds: int | None, console: Console) -> dict[str, Any]:
    """Runs an experiment, prints its tables, and writes ``results.json``, ``results.md`` and figures."""
    from rich.table import Table

    experiment = experiment_named(name)
    if seeds is not None and seeds < 1:
        raise ValueError(f"seeds must be at least 1, got {seeds}")
    folder.mkdir(parents=True, exist_ok=True)
    check_writable(folder)
    with console.status(f"{name} …") as status:
        tell = lambda text: status.update(f"{name}: {text} …")
        results = experiment.run(Context(quick, seeds, tell, folder))
    if quick:
        results = [result._replace(notes=[QUICK, *result.notes]) for result in results]
    for result in results:
        table = Table(title=result.title, title_justify="left")
        for i, column in enumerate(result.columns):
            table.add_column(column, justify="left" if i == 0 else "right")
        for row in result.rows:
            table.add_row(*map(str, row))
        console.print(table)
        for note in result.notes:
            console.print(f"  {note}", highlight=False)
    record = {"experiment": name, "quick": quick, "results": [r._asdict() for r in results]}
    atomic_write_text(folder / "results.json", strict_json(record, indent=2) + "\n")
    atomic_write_text(folder / "results.md", "\n".join(markdown(r) for r in results))
    draw(results, folder)
    return record


def markdown(result: Result) -> str:
    """The table and its notes in Markdown."""
    line = lambda cells: "| " + " | ".join(str(c) for c in cells) + " |"
    rule = "|---|" + "---:|" * (len(result.columns) - 1)
    rows = [line(result.columns), rule, *map(line, result.rows)]
    return "\n".join([f"### {result.title}", "", *rows, "", *(f"- {note}" for note in result.notes), ""])


def draw(results: list[Result], folder: Path) -> None:
    """A figure for every result with curves, where matplotlib is installed."""
    import importlib.util

    if importlib.util.find_spec("matplotlib") is None:
        return
    from majorant.app.report.figures import lines, render

    for number, result in enumerate(results, 1):
        if result.curves:
            picture = render(lines(result.curves, *result.axes, result.bands, result.dots), "png")
            atomic_write_bytes(folder / f"figure{number}.png", picture)
