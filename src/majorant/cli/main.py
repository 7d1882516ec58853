"""The command line. Heavy modules are imported inside the commands, so that help answers at once."""

from __future__ import annotations

import functools
import itertools
import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from majorant.cli.check import check
from majorant.cli.flags import (
    BatchSize,
    ClientColumn,
    Compression,
    Config,
    Data,
    Diagnostics,
    Drop,
    DryRun,
    Epochs,
    EvaluateEvery,
    Figures,
    Json,
    LabelColumn,
    Model,
    Momentum,
    Objective,
    Optimizer,
    Out,
    Participation,
    Precision,
    Rate,
    Reference,
    Rounds,
    Scaling,
    Schedule,
    Seed,
    Seeds,
    Steps,
    Task,
    Topology,
    Unseen,
    Until,
    WeightDecay,
)
from majorant.cli.pareto import pareto, write_page
from majorant.cli.terminal import (
    check_figures,
    comparison_table,
    console,
    errors,
    friendly_errors,
    looking_for_minimum,
    objective_table,
    progress,
    tell_network,
    tell_where,
)

app = typer.Typer(
    name="majorant",
    help="Personalized federated learning by surrogate optimization.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(pareto, name="pareto")
app.command()(check)


@app.callback()
def top(version: Annotated[bool, typer.Option("--version", help="Show the version.", is_eager=True)] = False) -> None:
    """Personalized federated learning by surrogate optimization."""
    if version:
        import majorant

        console.print(f"majorant {majorant.__version__}")
        raise typer.Exit


@app.command()
def run(
    algorithm: Annotated[str | None, typer.Argument(help="Algorithm, with options: fedem:components=3.")] = None,
    data: Data = None,
    objective: Objective = None,
    model: Model = None,
    rounds: Rounds = None,
    until: Until = None,
    seed: Seed = None,
    seeds: Seeds = None,
    participation: Participation = None,
    compression: Compression = None,
    topology: Topology = None,
    scaling: Scaling = None,
    diagnostics: Diagnostics = None,
    reference: Reference = None,
    precision: Precision = None,
    unseen: Unseen = None,
    evaluate_every: EvaluateEvery = None,
    client_column: ClientColumn = None,
    label_column: LabelColumn = None,
    task: Task = None,
    drop: Drop = None,
    lr: Rate = None,
    epochs: Epochs = None,
    steps: Steps = None,
    batch_size: BatchSize = None,
    momentum: Momentum = None,
    weight_decay: WeightDecay = None,
    schedule: Schedule = None,
    optimizer: Optimizer = None,
    config: Config = None,
    out: Out = None,
    resume: Annotated[Path | None, typer.Option(help="Go on with this run folder.")] = None,
    dry_run: DryRun = False,
    as_json: Json = False,
    figures: Figures = None,
) -> None:
    """Train one method and evaluate every client's own model."""
    flags = {k: v for k, v in locals().items() if k not in NOT_SETTINGS}
    with friendly_errors():
        from majorant.app.table_settings import check_table

        if not dry_run:
            check_table(flags, config)
        from majorant.app.config import build, check_names
        from majorant.app.execute import point_last_at, run_in_folder

        settings = resolve(flags, config, resume)
        check_names(settings)
        if dry_run:
            return show_configuration([settings])
        folder = resume or out or fresh_folder(f"{settings.algorithm}-{settings.data}")
        check_figures(figures)
        problem = build(settings)
        problem = problem._replace(optimum=looking_for_minimum(settings, problem.data, quiet=as_json))
        if not as_json:
            tell_network(problem.algorithm)
        with progress([settings.algorithm], settings.rounds, quiet=as_json) as bars:
            advance, again = functools.partial(bars.advance, 0), resume is not None
            result = run_in_folder(settings, folder, problem=problem, resume=again, on_evaluation=advance)
            bars.finish(0, result.rounds)
        point_last_at(folder)
        report = write_pages([folder], folder, figures)
        if as_json:
            print((folder / "summary.json").read_text(), end="")
        else:
            console.print(str(result.summary()), highlight=False)
            tell_where(folder, report)


@app.command()
def compare(
    algorithms: Annotated[list[str], typer.Argument(help="Two or more algorithms, each with options: fedavg:lr=0.03.")],
    data: Data = None,
    objective: Objective = None,
    model: Model = None,
    rounds: Rounds = None,
    until: Until = None,
    seed: Seed = None,
    seeds: Seeds = None,
    participation: Participation = None,
    compression: Compression = None,
    topology: Topology = None,
    scaling: Scaling = None,
    diagnostics: Diagnostics = None,
    reference: Reference = None,
    precision: Precision = None,
    unseen: Unseen = None,
    evaluate_every: EvaluateEvery = None,
    client_column: ClientColumn = None,
    label_column: LabelColumn = None,
    task: Task = None,
    drop: Drop = None,
    lr: Rate = None,
    epochs: Epochs = None,
    steps: Steps = None,
    batch_size: BatchSize = None,
    momentum: Momentum = None,
    weight_decay: WeightDecay = None,
    schedule: Schedule = None,
    optimizer: Optimizer = None,
    config: Config = None,
    out: Out = None,
    dry_run: DryRun = False,
    as_json: Json = False,
    figures: Figures = None,
) -> None:
    """Run several methods on the same data and seeds, and print a table of mean ± standard deviation over seeds."""
    flags = {k: v for k, v in locals().items() if k not in NOT_SETTINGS}
    with friendly_errors():
        from majorant.app.table_settings import check_table

        if not dry_run:
            check_table(flags, config)
        from majorant.app.config import build, check_names, load_data
        from majorant.app.execute import point_last_at, run_in_folder, slug

        settings = [resolve(flags | {"algorithm": name}, config, None) for name in algorithms]
        for each in settings:
            check_names(each)
        if dry_run:
            return show_configuration(settings)
        check_figures(figures)
        shared, encoding = load_data(settings[0])
        problems = [build(each, shared)._replace(encoding=encoding) for each in settings]
        folder = out or fresh_folder(f"compare-{settings[0].data}")
        if folder.exists() and any(folder.iterdir()):
            raise FileExistsError(f"{folder} is not empty: choose another --out")
        algorithms, names = distinct(algorithms), distinct([slug(name) for name in algorithms])
        optimum = looking_for_minimum(settings[0], shared, quiet=as_json)  # of the objective that all share
        with progress(algorithms, settings[0].rounds, quiet=as_json) as bars:
            for i, (each, problem) in enumerate(zip(settings, problems, strict=True)):
                advance, problem = functools.partial(bars.advance, i), problem._replace(optimum=optimum)
                result = run_in_folder(each, folder / names[i], problem=problem, on_evaluation=advance)
                bars.finish(i, result.rounds)
        point_last_at(folder)
        report = write_pages([folder / name for name in names], folder, figures, labels=algorithms)
        summaries = {
            a: json.loads((folder / n / "summary.json").read_text()) for a, n in zip(algorithms, names, strict=True)
        }
        if as_json:
            print(json.dumps(summaries, indent=2))
        else:
            console.print(shared.describe(), highlight=False)
            tell_network(problems[0].algorithm)
            console.print(comparison_table(summaries))
            if (measured := objective_table(summaries)) is not None:
                console.print(measured)
            tell_where(folder, report)


@app.command("list")
def list_names(
    kind: Annotated[
        str | None,
        typer.Argument(help="algorithms, data, models, participation, topologies, schedules, optimizers, solvers, …"),
    ] = None,
) -> None:
    """Show what goes by a name, with the options it takes."""
    with friendly_errors():
        from majorant.app.catalogue import KINDS
        from majorant.app.names import REQUIRED, UnknownName, describe, format_value

        if kind == "experiments":
            return list_experiments()
        if kind is not None and kind not in KINDS:
            raise UnknownName(f"there is no list of {kind!r}: choose from {', '.join([*KINDS, 'experiments'])}")
        for title, registry in KINDS.items():
            if kind not in (None, title):
                continue
            table = Table(title=title, title_justify="left", box=None, padding=(0, 2, 0, 0))
            for column in ("name", "what it is", "options"):
                table.add_column(column, overflow="fold")
            for name in registry:
                shown = [
                    f"{o.name}=…" if o.default is REQUIRED else f"{o.name}={format_value(o.default)}"
                    for o in registry.options(name)
                    if describe(o.annotation) and not (o.name == "clients" and o.default is REQUIRED)
                ]
                table.add_row(name, registry.help(name), ", ".join(shown))
            console.print(table)


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
    with friendly_errors():
        from majorant.app.personalize import personalize_from_files

        result = personalize_from_files(folder, data, predict, out)
        if as_json:
            print(json.dumps(result, indent=2))
            return
        console.print(f"a personal model for {data} from {result['samples']} samples", highlight=False)
        for name in ("mixture_weights", "fit", "predictions"):
            if result.get(name) is not None:
                console.print(f"  {name.replace('_', ' ')}: {result[name]}", highlight=False)


@app.command()
def reproduce(
    experiment: Annotated[str, typer.Argument(help="The experiment's name (majorant list experiments).")],
    out: Out = None,
    quick: Annotated[bool, typer.Option(help="A smaller version that runs in seconds, to see that it works.")] = False,
    seeds: Seeds = None,
    as_json: Json = False,
) -> None:
    """Run a paper's experiment by name and show its numbers beside ours."""
    with friendly_errors():
        from majorant.app.reproduce import reproduce as reproduce_experiment

        folder = out or fresh_folder(f"reproduce-{experiment}")
        result = reproduce_experiment(
            experiment, folder, quick=quick, seeds=seeds, console=errors if as_json else console
        )
        if as_json:
            print(json.dumps(result, indent=2))
        else:
            console.print(f"results in {folder}", highlight=False)


@app.command()
def report(
    folders: Annotated[list[Path], typer.Argument(help="Run folders, or the folder of a comparison or front.")],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="The page to write (default: report.html in the folder).")
    ] = None,
    figures: Figures = None,
) -> None:
    """Write the report page of finished runs, and their figures for papers."""
    with friendly_errors():
        check_figures(figures)
        target = (out or folders[0] / "report.html").resolve()
        if len(folders) == 1 and (folders[0] / "front.json").exists():
            page = write_page(folders[0], figures, target)
        else:
            runs = [run for folder in folders for run in run_folders(folder)]
            page = write_pages(runs, target.parent, figures, page=target.name)
        if page is None:
            raise ValueError("the report needs matplotlib: pip install 'majorant[report]'")
        console.print(f"report: {page}", highlight=False, soft_wrap=True)


NOT_SETTINGS = ("config", "out", "resume", "dry_run", "as_json", "figures", "algorithms")


def resolve(flags: dict[str, Any], config: Path | None, resume: Path | None) -> Any:
    """The configuration that flags, a file, or a run to be resumed describe together."""
    from majorant.app.config import load_config, make_config

    flags = flags | {name: tuple(flags[name]) if flags.get(name) else None for name in ("drop", "until")}
    if resume is not None:
        if not (resume / "config.toml").exists():
            raise ValueError(f"{resume} is not a run folder: it has no config.toml")
        started = load_config(resume / "config.toml")
        wanted = load_config(config or resume / "config.toml", **flags)
        different = wanted.differences(started)
        if different:
            raise ValueError(f"{resume} was started with another configuration: {'; '.join(different)}")
        return started
    if config is None and flags.get("algorithm") is None:
        raise ValueError("name an algorithm (majorant list algorithms) or give --config FILE")
    return load_config(config, **flags) if config else make_config({}, **flags)


def distinct(names: list[str]) -> list[str]:
    """The names, numbered where one stands again.

    >>> distinct(["fedavg", "local", "fedavg"])
    ['fedavg', 'local', 'fedavg-2']
    """
    return [n if (k := names[: i + 1].count(n)) == 1 else f"{n}-{k}" for i, n in enumerate(names)]


def show_configuration(settings: list[Any]) -> None:
    """The resolved configurations as TOML."""
    from majorant.app.config import to_toml

    for each in settings:
        print(to_toml(each))


def fresh_folder(label: str) -> Path:
    """A new folder under ``runs``."""
    from majorant.app.execute import new_folder

    return new_folder(Path("runs"), label)


def run_folders(folder: Path) -> list[Path]:
    """The folder itself, or the runs inside it."""
    if (folder / "summary.json").exists() or not folder.is_dir():
        return [folder]
    return sorted(path.parent for path in folder.glob("*/summary.json")) or [folder]


def write_pages(
    runs: list[Path], target: Path, figures: str | None, labels: list[str] | None = None, page: str = "report.html"
) -> Path | None:
    """The report page (None where matplotlib is not installed) and, if asked, the figures as files."""
    import importlib.util

    if importlib.util.find_spec("matplotlib") is None:
        return None
    from majorant.app.report.figures import save_figures
    from majorant.app.report.html import write_report
    from majorant.app.report.record import load_run

    records = [load_run(run, label) for run, label in itertools.zip_longest(runs, labels or [])]
    if figures:
        save_figures(records, target / "figures", figures)
    return write_report(records, target / page)


def list_experiments() -> None:
    """The named experiments."""
    from majorant.app.reproduce import experiments

    table = Table(title="experiments", title_justify="left", box=None, padding=(0, 2, 0, 0))
    table.add_column("name", no_wrap=True)
    table.add_column("what it shows")
    for name, experiment in experiments().items():
        table.add_row(name, experiment.help)
    console.print(table)


def main() -> None:
    """The entry point."""
    app()


if __name__ == "__main__":
    main()
