"""The command line. Heavy modules are imported inside the commands, so that help answers at once."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from majorant.cli._failures import CLOSED, Commands
from majorant.cli._garbage import search_seldom
from majorant.cli._processor import divide_processor
from majorant.cli._streams import adapt_streams, let_go_of_output
from majorant.cli.check import check
from majorant.cli.flower import flower
from majorant.cli.keep import export, personalize, predict
from majorant.cli.options import Figures, Json, Out
from majorant.cli.pareto import number, pareto, write_page
from majorant.cli.terminal import check_figures, console, errors, print_json, say, tell_runs
from majorant.cli.train import compare, run, tune, write_pages
from majorant.cli.transport import transport

app = typer.Typer(
    name="majorant",
    cls=Commands,
    help="Personalized federated learning by surrogate optimization.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
LOOK, TRAIN, KEEP = "Look at data and names", "Train", "Keep models and results"
app.command(rich_help_panel=LOOK)(check)
app.command(rich_help_panel=TRAIN)(run)
app.command(rich_help_panel=TRAIN)(compare)
app.command(rich_help_panel=TRAIN)(tune)
app.command(rich_help_panel=TRAIN)(transport)
app.add_typer(pareto, name="pareto", rich_help_panel=TRAIN)
app.add_typer(flower, name="flower", rich_help_panel=TRAIN)
app.command(rich_help_panel=KEEP)(personalize)
app.command(rich_help_panel=KEEP)(predict)
app.command(rich_help_panel=KEEP)(export)


def show_version(wanted: bool) -> None:
    """Prints the version and ends."""
    if wanted:
        import majorant

        say(f"majorant {majorant.__version__}")
        raise typer.Exit


@app.callback()
def top(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version and exit.", is_eager=True, callback=show_version)
    ] = False,
) -> None:
    """Personalized federated learning by surrogate optimization."""


@app.command("list", rich_help_panel=LOOK)
def list_names(
    kind: Annotated[
        str | None,
        typer.Argument(help="algorithms, data, models, participation, topologies, schedules, optimizers, solvers, …"),
    ] = None,
) -> None:
    """List the names that you can use, with their options."""
    from majorant.app.catalogue import KINDS, costs_of_models
    from majorant.app.names import REQUIRED, UnknownName, format_value

    if kind == "experiments":
        return list_experiments()
    if kind is not None and kind not in KINDS:
        raise UnknownName(f"there is no list of {kind!r}: choose from {', '.join([*KINDS, 'experiments'])}")
    for title, registry in KINDS.items():
        if kind not in (None, title):
            continue
        table = Table(title=title, title_justify="left", box=None, padding=(0, 2, 0, 0))
        costs = costs_of_models() if kind == "models" else {}
        for column in ("name", "what it is", "options", *(("cost",) if costs else ())):
            table.add_column(column, overflow="fold")
        for name in registry:
            shown = [
                f"{o.name}=…" if o.default is REQUIRED else f"{o.name}={format_value(o.default)}"
                for o in registry.options(name)
                if not (o.name == "clients" and o.default is REQUIRED)  # which the run knows
            ]
            table.add_row(name, registry.help(name), ", ".join(shown), *((costs.get(name, ""),) if costs else ()))
        console.print(table)


def list_experiments() -> None:
    """The named experiments."""
    from majorant.app.reproduce import experiments

    table = Table(title="experiments", title_justify="left", box=None, padding=(0, 2, 0, 0))
    table.add_column("name", no_wrap=True)
    table.add_column("what it shows")
    for name, experiment in experiments().items():
        table.add_row(name, experiment.help)
    console.print(table)


@app.command(rich_help_panel=KEEP)
def runs(
    folder: Annotated[Path, typer.Argument(help="Where runs are.")] = Path("runs"),
    as_json: Json = False,
) -> None:
    """List past runs with their headline numbers, newest first."""
    from majorant.app.runs import find_runs

    found = find_runs(folder)
    if as_json:
        return print_json([each._asdict() for each in found])
    tell_runs(folder, found)


@app.command(rich_help_panel=TRAIN)
def reproduce(
    experiment: Annotated[str, typer.Argument(help="The experiment's name (majorant list experiments).")],
    out: Out = None,
    quick: Annotated[bool, typer.Option(help="A smaller version that runs in seconds, to see that it works.")] = False,
    seeds: Annotated[str | None, typer.Option(help="Number of seeds.", metavar="INTEGER")] = None,
    as_json: Json = False,
) -> None:
    """Run a paper's experiment by name and show its numbers beside ours."""
    from majorant.app.folders import check_folder, new_folder
    from majorant.app.reproduce import experiment_named
    from majorant.app.reproduce import reproduce as reproduce_experiment

    experiment_named(experiment)
    count = number("--seeds", seeds, int)
    if out is not None:
        check_folder(out, resume=out.is_dir())
    folder = out or new_folder(Path("runs"), f"reproduce-{experiment}")
    result = reproduce_experiment(experiment, folder, quick=quick, seeds=count, console=errors if as_json else console)
    if as_json:
        return print_json(result)
    say(f"results in {folder}", wrap=False)


@app.command(rich_help_panel=KEEP)
def report(
    folders: Annotated[list[Path], typer.Argument(help="Run folders, or the folder of a comparison or front.")],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="The page to write (default: report.html in the folder).")
    ] = None,
    figures: Figures = None,
) -> None:
    """Write the report page of finished runs, and their figures for papers."""
    from majorant.app.folders import check_file

    check_figures(figures)
    target = out or folders[0] / "report.html"
    check_file(target, b"<!doctype html", "a report page")
    if len(folders) == 1 and (folders[0] / "front.json").exists():
        page = write_page(folders[0], figures, target)
        if page is None:
            raise ValueError("the report of a front needs matplotlib: pip install 'majorant[report]'")
    else:
        from majorant.app.report.comparison import runs_in

        runs, labels = zip(*(run for folder in folders for run in runs_in(folder)), strict=True)
        compared_in = folders[0] if len(folders) == 1 else runs[0]  # a run has no verdict
        page = write_pages(list(runs), target.parent, figures, list(labels), target.name, compared_in)
    say(f"report: {page.resolve()}", wrap=False)


def main() -> None:
    """The entry point."""
    search_seldom()
    adapt_streams()
    divide_processor()
    try:
        app()
    except SystemExit as end:
        code = end.code
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        let_go_of_output()
        code = CLOSED
    sys.exit(code)


if __name__ == "__main__":
    main()
