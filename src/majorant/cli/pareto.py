"""``majorant pareto``: fronts on the command line. Heavy modules are imported inside the commands."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from majorant.cli.flags import (
    BatchSize,
    ClientColumn,
    Config,
    Data,
    Drop,
    DryRun,
    Epochs,
    Figures,
    Json,
    LabelColumn,
    Model,
    Momentum,
    Optimizer,
    Out,
    Participation,
    Precision,
    Rate,
    Rounds,
    Schedule,
    Seed,
    Steps,
    Task,
    Unseen,
    WeightDecay,
)
from majorant.cli.terminal import check_figures, console, errors, friendly_errors, tell_where

if TYPE_CHECKING:
    from majorant.app.front_record import FrontRecord

ABSURD = 1e3  # times the largest number on the front: a point beyond has diverged, if not to infinity
FAR = 0.1  # of F above its minimum: a point that has not converged
NOT_SETTINGS = ("context", "criterion", "config", "out", "dry_run", "as_json", "figures")

pareto = typer.Typer(
    invoke_without_command=True,
    help="Find the trade-offs between the agents' loss and a coordinator's criteria, and pick one of the models.",
    context_settings={"help_option_names": ["-h", "--help"]},
)

Folder = Annotated[Path, typer.Argument(help="The folder of a front: runs/last.")]


@pareto.callback()
def sweep(
    context: typer.Context,
    criterion: Annotated[
        list[str] | None,
        typer.Option(help="What the coordinator wants small: squared-norm, l1:factor=0.1 (repeatable)."),
    ] = None,
    weights: Annotated[
        str | None, typer.Option(help="The λ: 0,0.25,0.5. 0 is the agents' loss alone; λ stays below 1.")
    ] = None,
    scalarization: Annotated[
        str | None,
        typer.Option(help="weighted-sum, or chebyshev: the worst agent's loss, and fronts that are bent in."),
    ] = None,
    points: Annotated[int | None, typer.Option(help="So many λ from 0 to 0.9 instead (default 8).")] = None,
    refine: Annotated[int | None, typer.Option(help="Further λ, put where the front is sparse.")] = None,
    criteria_weights: Annotated[
        list[str] | None,
        typer.Option(help="Of several criteria: 0.8,0.2 (default: equal; repeatable, all λ for each)."),
    ] = None,
    ramp: Annotated[
        float | None,
        typer.Option(help="Share of the rounds over which λ rises from 0 to its value (default 0.25)."),
    ] = None,
    mirror_rate: Annotated[
        float | None, typer.Option(help="Of chebyshev: how fast the worst get weight (default 2).")
    ] = None,
    memory: Annotated[float | None, typer.Option(help="Of chebyshev: of past gaps, from 0 to 1 (default 0.9).")] = None,
    output: Annotated[str | None, typer.Option(help="Of chebyshev: the last model, or the average of all.")] = None,
    criteria_lr: Annotated[
        float | None, typer.Option(help="Of chebyshev: the coordinator's step in a round (default: as the agents').")
    ] = None,
    choose: Annotated[
        str | None, typer.Option(help="The model to deploy at first: by validation, the knee, or auto.")
    ] = None,
    step: Annotated[str | None, typer.Option(help="explicit, implicit (for kinks) or auto.")] = None,
    agents: Annotated[str | None, typer.Option(help="Agents count equal, or by their samples.")] = None,
    centralized: Annotated[
        bool | None,
        typer.Option("--centralized", help="On convex problems: compare with a solve of all samples in one place."),
    ] = None,
    data: Data = None,
    model: Model = None,
    rounds: Rounds = None,
    seed: Seed = None,
    participation: Participation = None,
    precision: Precision = None,
    unseen: Unseen = None,
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
    """Train a model for every λ side by side, and show what each is worth."""
    if context.invoked_subcommand is not None:
        return
    flags = {k: v for k, v in locals().items() if k not in NOT_SETTINGS}
    with friendly_errors(interrupted="nothing of the front is kept"):
        from majorant.app.table_settings import check_table

        if not dry_run:
            check_table(flags, config)
        from majorant.app.config import to_toml
        from majorant.app.execute import new_folder, point_last_at
        from majorant.app.front import build_front, front_in_folder, make_front_config

        flags |= {"criteria": tuple(criterion) if criterion else None, "drop": tuple(drop) if drop else None}
        flags["weights"] = numbers("weights", weights)
        flags["criteria_weights"] = tuple(numbers("criteria-weights", text) for text in criteria_weights or []) or None
        settings = make_front_config(config, **flags)
        check_figures(figures)
        if dry_run:
            return print(to_toml(settings))
        problem = build_front(settings)
        folder = out or new_folder(Path("runs"), f"pareto-{settings.data}")
        with sweeps(settings, quiet=as_json) as advance:
            record = front_in_folder(settings, folder, problem, advance)
        point_last_at(folder)
        report = write_page(folder, figures)
        if as_json:
            print((folder / "front.json").read_text(), end="")
        else:
            console.print(problem.data.describe(), highlight=False)
            show_front(record)
            tell_where(folder, report)
            console.print(f"another point: majorant pareto pick {folder} --point N", highlight=False, soft_wrap=True)


@pareto.command()
def pick(
    folder: Folder,
    knee: Annotated[
        bool, typer.Option("--knee", help="The best compromise: nearest to the least value of everything.")
    ] = False,
    best_validation: Annotated[
        bool, typer.Option("--best-validation", help="The best on the clients' validation samples.")
    ] = False,
    max_norm: Annotated[float | None, typer.Option(help="The least loss with parameters of at most this norm.")] = None,
    limit: Annotated[
        list[str] | None, typer.Option(help="The least loss within a bound on a criterion: l1=20 (repeatable).")
    ] = None,
    point: Annotated[int | None, typer.Option(help="The point of this number.")] = None,
    as_json: Json = False,
) -> None:
    """Choose a point of a front: its model goes to FOLDER/model, where `majorant personalize FOLDER` uses it."""
    with friendly_errors():
        from majorant.app.front_record import pick as pick_point
        from majorant.app.storage import strict_json

        limits = dict(parse_limit(text) for text in limit or [])
        how: dict[str, Any] = {"knee": knee, "best_validation": best_validation, "point": point}
        record = pick_point(folder, max_norm=max_norm, limits=limits, **how)
        chosen = record.points[record.picked]
        write_page(folder, None)
        if as_json:
            more = {"picked_by": record.picked_by, "model": str(folder / "model")}
            print(strict_json(chosen.model_dump(by_alias=True) | more, indent=2))
            return
        if chosen.dominated:
            errors.print(
                f"[yellow]warning:[/] point {chosen.point} is not on the front: another is at least as good in all",
                highlight=False,
            )
        console.print(f"picked by {record.picked_by}:", highlight=False)
        for name, text in facts(record, chosen.point).items():
            console.print(f"  {name}: {text}", highlight=False)
        console.print(f"its model is now in {folder / 'model'}", highlight=False, soft_wrap=True)


@pareto.command()
def show(folder: Folder, as_json: Json = False) -> None:
    """Print the table of a front again."""
    with friendly_errors():
        from majorant.app.front_record import read_front

        record = read_front(folder)
        if as_json:
            print((folder / "front.json").read_text(), end="")
        else:
            show_front(record)


def numbers(name: str, text: str | None) -> tuple[float, ...] | None:
    """Numbers between commas.

    >>> numbers("weights", "0, 0.25,5e-1")
    (0.0, 0.25, 0.5)
    """
    if text is None:
        return None
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError:
        raise ValueError(f"--{name} takes numbers between commas, as in 0,0.25,0.5, got {text!r}") from None


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
    """Bars on the error stream for the two programs, the sweep and its refinement; yields what moves them."""
    if quiet:
        yield None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    paths, lambdas = len(settings.preferences), set(settings.lambdas)
    words = [f"{len(lambdas - {0.0}) * paths + (0.0 in lambdas)} models, side by side"]
    words += [f"{settings.refine * paths} more between them"] * bool(settings.refine)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=errors) as screen:
        tasks = [screen.add_task(text, total=settings.rounds) for text in words]
        yield lambda sweep, done: screen.update(tasks[sweep], completed=done)


def write_page(folder: Path, figures: str | None, page: Path | None = None) -> Path | None:
    """The report page (None where matplotlib is not installed) and, if asked, the figures as files."""
    import importlib.util

    if importlib.util.find_spec("matplotlib") is None:
        return None
    from majorant.app.report.pareto_page import write_front_report

    return write_front_report(folder, page or folder / "report.html", figures)


def facts(record: FrontRecord, place: int) -> dict[str, str]:
    """A point in words, by the names of the columns; what nobody knows is left out."""
    point = record.points[place]
    values = dict(zip(["loss", *record.names[1:], "norm"], [*point.values, point.norm], strict=True))
    if record.by_worst:
        values = {"worst loss": point.worst_loss, "mean loss": point.loss} | values
        values.pop("loss")
    texts = {"point": str(place), "λ": f"{point.weight:.3g}"}
    if len(record.preferences) > 1:
        texts["criteria weights"] = " ".join(f"{share:.3g}" for share in point.criteria_weights)
    texts |= {k: f"{value:.3g}" for k, value in values.items()}
    texts |= {f"{name.replace('_', ' ')} of decisions": f"{100 * v:.1f} %" for name, v in point.decision_gaps.items()}
    scores = {"accuracy": point.accuracy, "macro F1": point.macro_f1, "valid. accuracy": point.validation_accuracy}
    texts |= {name: f"{100 * value:.1f} %" for name, value in scores.items() if math.isfinite(value)}
    if not any(map(math.isfinite, scores.values())):
        losses = {"test loss": point.test_loss, "valid. loss": point.validation_loss}
        texts |= {name: f"{value:.3g}" for name, value in losses.items() if math.isfinite(value)}
    texts["certificate"] = f"{point.certificate:.1e}"
    gap = point.centralized_gap
    return texts | ({"F/F*−1": f"{gap:.1e}"} if math.isfinite(gap) else {})


def tables(record: FrontRecord, width: int) -> list[Table]:
    """All points as one table, or as several with the same rows where one would be wider than the screen."""
    rows = [facts(record, place) for place in range(len(record.points))]
    roles = [" ".join(role.removeprefix("best ") for role in record.roles(place)) for place in range(len(rows))]
    names = list(dict.fromkeys(name for row in rows for name in row))
    short = {"point": "#", "certificate": "certif."}
    heads = {name: short.get(name, name.replace(" ", "\n")) for name in names}
    cells = {name: [row.get(name, "–") for row in rows] for name in names}
    wide = {name: 1 + max(map(len, [*heads[name].split("\n"), *cells[name]])) for name in names}
    room = width - 1 - max(len(word) for text in roles for word in [*text.split(), ""])  # roles are broken at spaces
    parts: list[list[str]] = [["point"]]
    for name in names[1:]:
        if len(parts[-1]) > 1 and sum(wide[each] for each in [*parts[-1], name]) > room:
            parts.append(["point"])
        parts[-1].append(name)
    made = []
    for part in parts:
        table = Table(box=None, padding=(0, 1, 0, 0))
        for name in part:
            table.add_column(heads[name], justify="right", no_wrap=True, min_width=wide[name] - 1)
        table.add_column("", min_width=min(10, max(map(len, roles))))
        for place, point in enumerate(record.points):
            shown = [cells[name][place] for name in part]
            table.add_row(*shown, roles[place], style="dim" if point.dominated else "")
        made.append(table)
    return made


def show_front(record: FrontRecord) -> None:
    """The table of all points, and what was chosen among them."""
    for turn, table in enumerate(tables(record, console.width)):
        if turn:
            console.print()
        console.print(table)
    worst = max(max(map(abs, point.values)) for point in record.on_front)
    off = lambda point: point.diverged or max(point.values) > ABSURD * worst
    lost = [f"{point.weight:.3g} (point {point.point})" for point in record.points if off(point)]
    if lost:
        other = "--step implicit" if record.scalarization == "weighted-sum" else "a smaller --criteria-lr"
        words = f"training diverged for λ = {', '.join(lost)}: lower --lr, or take {other}"
        errors.print(f"[yellow]warning:[/] {words}", highlight=False)
    gaps = [point.centralized_gap for point in record.on_front if math.isfinite(point.centralized_gap)]
    if max(gaps, default=0) > FAR:
        words = f"points are up to {100 * max(gaps):.0f} % above the least F: more --rounds, or another --lr"
        errors.print(f"[yellow]warning:[/] {words}", highlight=False)
    weight = lambda place: f"λ = {record.points[place].weight:.4g} (point {place})"
    if record.best_validation is None:
        console.print("no validation samples to choose λ by", highlight=False)
    else:
        console.print(f"best on validation samples: {weight(record.best_validation)}", highlight=False)
    console.print(f"knee: {weight(record.knee)}", highlight=False)
    measures = [f"{len(record.on_front)} of {len(record.points)} points are on the front"]
    measures += [f"hypervolume {record.hypervolume:.4g}"] * math.isfinite(record.hypervolume)
    measures += [f"spread {record.spread:.3g}"] * math.isfinite(record.spread)
    console.print(", ".join(measures), highlight=False)
    console.print(f"deployed: {weight(record.picked)}, by {record.picked_by}", highlight=False)
    if record.points[record.picked].weight == 0:
        console.print("at λ = 0 the criteria do not count: pick --knee, or a bound, to have them met", highlight=False)
