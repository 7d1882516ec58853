"""The command line. Heavy modules are imported inside the commands, so that help answers at once."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from majorant.cli._failures import CLOSED, Commands
from majorant.cli._streams import adapt_streams, let_go_of_output
from majorant.cli.check import check
from majorant.cli.options import Figures, Json, Out
from majorant.cli.pareto import number, pareto, write_page
from majorant.cli.terminal import check_figures, console, errors, print_json, say, tell_runs
from majorant.cli.train import compare, run, tune, write_pages

app = typer.Typer(
    name="majorant",
    cls=Commands,
    help="Personalized federated learning by surrogate optimization.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command()(check)
app.command()(run)
app.command()(compare)
app.command()(tune)
app.add_typer(pareto, name="pareto")


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


@app.command("list")
def list_names(
    kind: Annotated[
        str | None,
        typer.Argument(help="algorithms, data, models, participation, topologies, schedules, optimizers, solvers, …"),
    ] = None,
) -> None:
    """Show what goes by a name, with the options it takes."""
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


@app.command()
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


@app.command()
def personalize(
    folder: Annotated[Path, typer.Argument(help="The run folder: runs/last.")],
    data: Annotated[
        Path,
        typer.Option(
            "--data", "-d", help="The new client's samples: CSV or Parquet as in training, or npz with x and y."
        ),
    ],
    predict: Annotated[Path | None, typer.Option(help="Samples to predict with the new model.")] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Where predictions go as CSV (default: beside the run).")
    ] = None,
    as_json: Json = False,
) -> None:
    """Give a model to a client that was not there at training, from its own samples alone."""
    from majorant.app.personalize import personalize_from_files

    result = personalize_from_files(folder, data, predict, out)
    if as_json:
        return print_json(result)
    say(f"a personal model for {data} from {result['samples']} samples", wrap=False)
    for name in ("mixture_weights", "fit", "predictions"):
        if result.get(name) is not None:
            say(f"  {name.replace('_', ' ')}: {result[name]}", wrap=False)


@app.command()
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


@app.command()
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
    else:
        runs = [run for folder in folders for run in run_folders(folder)]
        page = write_pages(runs, target.parent, figures, page=target.name)
    if page is None:
        raise ValueError("the report needs matplotlib: pip install 'majorant[report]'")
    say(f"report: {page.resolve()}", wrap=False)


def run_folders(folder: Path) -> list[Path]:
    """The folder itself, or the runs inside it."""
    if (folder / "summary.json").exists() or not folder.is_dir():
        return [folder]
    return sorted(path.parent for path in folder.glob("*/summary.json")) or [folder]


def main() -> None:
    """The entry point."""
    adapt_streams()
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
