"""``majorant pareto``: fronts on the command line. Heavy modules are imported inside the commands."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from majorant.app._kinds import fit
from majorant.app.front_config import NOT_FOR_FRONTS, FrontConfig, make_front_config
from majorant.app.table_settings import check_table
from majorant.cli._failures import at_work_in
from majorant.cli._front_table import facts, show_front
from majorant.cli._hosts import with_hosts
from majorant.cli.options import Config, DryRun, Figures, Json, Out, with_settings
from majorant.cli.terminal import check_figures, errors, print_json, say, tell_where, warn

pareto = typer.Typer(
    invoke_without_command=True,
    help="Find the trade-offs between the agents' loss and a coordinator's criteria, and pick one of the models.",
    context_settings={"help_option_names": ["-h", "--help"]},
)

Folder = Annotated[Path, typer.Argument(help="The folder of a front: runs/last.")]


@pareto.callback()
@with_hosts
@with_settings(FrontConfig, without=NOT_FOR_FRONTS)
def sweep(
    context: typer.Context,
    settings: dict[str, Any],
    config: Config = None,
    out: Out = None,
    dry_run: DryRun = False,
    as_json: Json = False,
    figures: Figures = None,
) -> None:
    """Train a model for every λ side by side, and show what each is worth."""
    if context.invoked_subcommand is not None:
        return None
    if not dry_run:
        check_table(settings, config)
    front = make_front_config(config, **settings)
    check_figures(figures)
    if dry_run:
        from majorant.app.config import to_toml

        return print(to_toml(front))
    from majorant.app.folders import check_folder, new_folder, point_last_at
    from majorant.app.front import build_front, front_in_folder
    from majorant.app.signed import read_signed

    if out is not None:
        check_folder(out)
    problem = build_front(front)
    folder = out or new_folder(Path("runs"), f"pareto-{front.data}")
    with at_work_in(folder, lambda: "nothing of the front is kept"), sweeps(front, quiet=as_json) as advance:
        record = front_in_folder(front, folder, problem, advance)
    point_last_at(folder)
    report = write_page(folder, figures)
    if as_json:
        return print_json(read_signed(folder / "front.json"))
    say(problem.data.describe())
    show_front(record)
    tell_where(folder, report)
    say(f"another point: majorant pareto pick {folder} --point N", wrap=False)


@pareto.command()
def pick(
    folder: Folder,
    knee: Annotated[
        bool, typer.Option("--knee", help="The best compromise: nearest to the least value of everything.")
    ] = False,
    best_validation: Annotated[
        bool, typer.Option("--best-validation", help="The best on the clients' validation samples.")
    ] = False,
    max_norm: Annotated[
        str | None, typer.Option(help="The least loss with parameters of at most this norm.", metavar="NUMBER")
    ] = None,
    limit: Annotated[
        list[str] | None, typer.Option(help="The least loss within a bound on a criterion: l1=20 (repeatable).")
    ] = None,
    point: Annotated[str | None, typer.Option(help="The point of this number.", metavar="INTEGER")] = None,
    as_json: Json = False,
) -> None:
    """Choose a point of a front: its model goes to FOLDER/model, where `majorant personalize FOLDER` uses it."""
    from majorant.app.front_record import pick as pick_point

    how: dict[str, Any] = {"knee": knee, "best_validation": best_validation, "point": number("--point", point, int)}
    limits = dict(parse_limit(text) for text in limit or [])
    record = pick_point(folder, max_norm=number("--max-norm", max_norm, float), limits=limits, **how)
    chosen = record.points[record.picked]
    write_page(folder, None)
    if as_json:
        more = {"picked_by": record.picked_by, "model": str(folder / "model")}
        return print_json(chosen.model_dump(by_alias=True) | more)
    if chosen.dominated:
        warn(f"point {chosen.point} is not on the front: another is at least as good in all")
    say(f"picked by {record.picked_by}:")
    for name, text in facts(record, chosen.point).items():
        say(f"  {name}: {text}")
    say(f"its model is now in {folder / 'model'}", wrap=False)


@pareto.command()
def show(folder: Folder, as_json: Json = False) -> None:
    """Print the table of a front again."""
    from majorant.app.front_record import read_front
    from majorant.app.signed import read_signed

    record = read_front(folder)
    if as_json:
        return print_json(read_signed(folder / "front.json"))
    show_front(record)


def number(flag: str, text: str | None, kind: type) -> Any:
    """The number that a flag was given, where it was given one."""
    try:
        return None if text is None else fit(text, kind)
    except ValueError as error:
        raise ValueError(f"{flag} {error}") from None


def parse_limit(text: str) -> tuple[str, float]:
    """A criterion and its bound.

    >>> parse_limit("squared-norm=1.5")
    ('squared_norm', 1.5)
    """
    name, equals, value = text.partition("=")
    try:
        if not equals or math.isnan(float(value)):
            raise ValueError
        return name.strip().replace("-", "_"), float(value)
    except ValueError:
        raise ValueError(f"--limit takes criterion=value, as in l1=20, got {text!r}") from None


@contextmanager
def sweeps(settings: Any, *, quiet: bool) -> Iterator[Callable[[int, int], None] | None]:
    """Bars on the error stream for the programs, the sweep and what is before and after; yields what moves them."""
    if quiet:
        yield None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    paths, lambdas = len(settings.preferences), set(settings.lambdas)
    scaled = settings.scale == "loss"
    words = ["the loss alone"] * scaled
    words += [f"{len(lambdas - {0.0}) * paths + (0.0 in lambdas and not scaled)} models, side by side"]
    words += [f"{settings.refine * paths} more between them"] * bool(settings.refine)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=errors) as screen:
        tasks = [screen.add_task(text, total=settings.rounds) for text in words]
        yield lambda number, done: screen.update(tasks[number], completed=done)


def write_page(folder: Path, figures: str | None, page: Path | None = None) -> Path | None:
    """The report page (None where matplotlib is not installed) and, if asked, the figures as files."""
    import importlib.util

    if importlib.util.find_spec("matplotlib") is None:
        return None
    from majorant.app.report.pareto_page import write_front_report

    return write_front_report(folder, page or folder / "report.html", figures)
