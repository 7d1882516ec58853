"""``majorant run`` and ``majorant compare``. Heavy modules are imported inside the commands."""

from __future__ import annotations

import functools
import itertools
import shlex
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from majorant._syntax import parse_raw
from majorant.app.catalogue import needs_no_labels
from majorant.app.config import RunConfig, load_config, make_config, to_toml, validated
from majorant.app.table_settings import check_table
from majorant.cli._failures import DIVERGED, at_work_in
from majorant.cli._hosts import with_hosts
from majorant.cli.options import Config, DryRun, Figures, Json, Out, Track, method_names, with_settings
from majorant.cli.terminal import (
    check_figures,
    comparison_table,
    console,
    looking_for_minimum,
    making_features,
    objective_table,
    print_json,
    progress,
    say,
    tell_network,
    tell_trivial,
    tell_tuned,
    tell_where,
    tuning_table,
    warn,
)


@with_hosts
@with_settings(RunConfig)
def run(
    settings: dict[str, Any],
    algorithm: Annotated[
        str | None, typer.Argument(help="Algorithm, with options: fedem:components=3.", autocompletion=method_names)
    ] = None,
    config: Config = None,
    out: Out = None,
    resume: Annotated[
        Path | None, typer.Option(help="Resume the run in this folder.", rich_help_panel="Output")
    ] = None,
    dry_run: DryRun = False,
    as_json: Json = False,
    figures: Figures = None,
    track: Track = None,
) -> None:
    """Train one method and evaluate every client's own model."""
    if not dry_run:
        check_table(settings, config, [algorithm])
    from majorant.app.build import build, check_names, without_effect

    wanted = resolve(settings | ({"algorithm": algorithm} if algorithm else {}), config, resume)
    check_names(wanted)
    if dry_run:
        return print(to_toml(wanted))
    if wanted.group_column is not None:
        warn("group_column is for compare: a run has no scores by groups")
    for complaint in without_effect(settings, wanted):
        warn(complaint)
    from majorant.app.execute import run_in_folder
    from majorant.app.folders import check_folder, new_folder, point_last_at
    from majorant.app.signed import read_signed
    from majorant.app.trackers import check_trackers
    from majorant.engines.hosts import follows

    check_figures(figures)
    check_trackers(track or ())
    if (given := resume or out) is not None:
        check_folder(given, resume=resume is not None)
    problem = build(wanted)
    problem = problem._replace(optimum=looking_for_minimum(wanted, problem.data, quiet=as_json))
    making_features(problem, quiet=as_json)
    if not as_json:
        tell_network(problem)
    folder = given or new_folder(Path("runs"), f"{wanted.algorithm}-{wanted.data}")
    left = lambda: left_in(folder, wanted.rounds)
    with at_work_in(folder, left), progress([wanted.algorithm], wanted.rounds, quiet=as_json) as bars:
        told: Any = {
            "on_evaluation": functools.partial(bars.advance, 0),
            "on_tuning": functools.partial(bars.tuning, 0),
            "track": track or (),
        }
        result = run_in_folder(wanted, folder, problem=problem, resume=resume is not None, **told)
        bars.finish(0, result.rounds)
    if follows():
        return
    point_last_at(folder)
    report = write_pages([folder], folder, figures)
    if as_json:
        return print_json(read_signed(folder / "summary.json"))
    say(str(result.summary()))
    tell_trivial(read_signed(folder / "summary.json"))
    tell_tuned({wanted.algorithm: result.summary()}, {wanted.algorithm: folder})
    tell_where(folder, report)


@with_hosts
@with_settings(RunConfig)
def tune(
    settings: dict[str, Any],
    algorithm: Annotated[str | None, typer.Argument(help="Algorithm, with options: fedem:components=3.")] = None,
    config: Config = None,
    out: Out = None,
    as_json: Json = False,
) -> None:
    """Choose hyperparameters on the clients' validation samples, and show what was tried."""
    check_table(settings, config)
    from majorant.app.build import build, check_names
    from majorant.app.folders import check_folder, new_folder, working_in
    from majorant.app.tuning import chosen_on, tune_config, write_tuning

    own = {"tune": True} | ({"algorithm": algorithm} if algorithm else {})
    wanted = resolve(settings | own, config, None)
    check_names(wanted)
    if out is not None:
        check_folder(out)
    problem = build(wanted)
    making_features(problem, quiet=as_json)
    folder = out or new_folder(Path("runs"), f"tune-{wanted.algorithm}-{wanted.data}")
    with (
        at_work_in(folder, lambda: "nothing is kept"),
        working_in(folder),
        wanted.arithmetic(),
        progress([wanted.algorithm], wanted.rounds, quiet=as_json) as bars,
    ):
        found = tune_config(wanted, problem, functools.partial(bars.tuning, 0))
        record = write_tuning(folder / "tuning.json", found, wanted)
    if as_json:
        return print_json(record)
    say(problem.data.describe())
    console.print(tuning_table(record))
    values = ",".join(f"{name}={value:g}" for name, value in found.best.items())
    say(f"best on {chosen_on(record)}: {values}")
    say(f"what was tried is in {folder / 'tuning.json'}", wrap=False)


@with_hosts
@with_settings(RunConfig)
def compare(
    settings: dict[str, Any],
    algorithms: Annotated[
        list[str] | None,
        typer.Argument(
            help="Algorithms, each with options: local fedavg:lr=0.03; by default local, fedavg, fedavg+, fedem, "
            "pfedme and clustered.",
            autocompletion=method_names,
        ),
    ] = None,
    config: Config = None,
    out: Out = None,
    dry_run: DryRun = False,
    as_json: Json = False,
    figures: Figures = None,
    track: Track = None,
) -> None:
    """Run several methods on the same data, and say whether collaboration is worth it, with which and for whom."""
    check_comparable(algorithms or [])
    if not dry_run:
        check_table(settings, config, algorithms or ())
    from majorant.app.build import build, check_devices, check_names, load_data
    from majorant.app.comparing import METHODS, compiled_methods, group_values, write_verdict

    algorithms = algorithms or list(METHODS)
    wanted = [resolve(settings | {"algorithm": name}, config, None) for name in algorithms]
    for each in wanted:
        check_names(each)
    if dry_run:
        return print("\n".join(map(to_toml, wanted)))
    from majorant.app.execute import run_in_folder
    from majorant.app.folders import check_folder, new_folder, point_last_at, slug, working_in
    from majorant.app.signed import read_signed
    from majorant.app.trackers import check_trackers
    from majorant.app.wording import under_attack
    from majorant.engines.divergence import Diverged
    from majorant.engines.hosts import follows

    check_figures(figures)
    check_trackers(track or ())
    if out is not None:
        check_folder(out)
    check_devices(wanted[0])
    groups = group_values(wanted[0])
    shared, encoding = load_data(wanted[0])
    problems = [build(each, shared)._replace(encoding=encoding) for each in wanted]
    algorithms, names = distinct(algorithms), distinct([slug(name) for name in algorithms])
    optimum = looking_for_minimum(wanted[0], shared, quiet=as_json)  # of the objective that all share
    problems = [problem._replace(optimum=optimum) for problem in problems]
    making_features(problems[0], quiet=as_json)
    folder = out or new_folder(Path("runs"), f"compare-{wanted[0].data}")
    kept = lambda: any(path.is_dir() for path in folder.iterdir())
    left = lambda: f"what was trained is in {folder}" if folder.exists() else "nothing is kept"
    runs: dict[str, Any] = {}
    with (
        at_work_in(folder, left),
        working_in(folder, kept),
        progress(algorithms, wanted[0].rounds, quiet=as_json) as bars,
        compiled_methods(wanted, problems) as compiled,
    ):
        for i, (each, problem) in enumerate(zip(wanted, problems, strict=True)):
            told: Any = {
                "on_evaluation": functools.partial(bars.advance, i),
                "on_tuning": functools.partial(bars.tuning, i),
                "track": track or (),
            }
            try:
                result = run_in_folder(each, folder / names[i], problem=problem, simulation=compiled(i), **told)
            except Diverged as error:
                warn(str(error))
                result = None
            runs[algorithms[i]] = result
            bars.finish(i, result.rounds if result else 0)
        if not any(runs.values()):
            raise Diverged("every method diverged: lower the learning rate, for example --lr 0.01")
        folders = dict(zip(algorithms, names, strict=True))
        record = write_verdict(folder, runs, folders, groups)
    if follows():
        return
    point_last_at(folder)
    finished = [name for name, result in runs.items() if result is not None]
    report = write_pages([folder / folders[name] for name in finished], folder, figures, labels=finished)
    summaries = {name: read_signed(folder / folders[name] / "summary.json") for name in finished}
    if as_json:
        print_json(summaries | (record or {}))
    else:
        say(shared.describe())
        tell_network(problems[0])
        console.print(comparison_table(summaries, record))
        tell_tuned(summaries, {name: folder / folders[name] for name in finished})
        if (measured := objective_table(summaries)) is not None:
            console.print(measured)
        for sentence in record["verdict"]["sentences"] if record else []:
            say(sentence)
        attacked = next((s["attack"] for s in summaries.values() if s.get("attack")), None)
        if attacked is not None:
            say(f"{under_attack(attacked)} There is no verdict: gains of hostile clients mean nothing.")
        tell_where(folder, report)
    if len(finished) < len(runs) or (record and record["verdict"]["diverged"]):
        sys.stdout.flush()
        raise typer.Exit(DIVERGED)


def check_comparable(algorithms: list[str]) -> None:
    """Methods with and without labels have no score in common, nor have two kinds of those without."""
    without = [name for name in algorithms if needs_no_labels(name)]
    if without and len(without) < len(algorithms):
        others = [name for name in algorithms if name not in without]
        raise ValueError(f"{', '.join(without)} learn without labels, {', '.join(others)} with: compare them apart")
    kinds = dict.fromkeys(parse_raw(name)[0] for name in without)
    if len(kinds) > 1:
        raise ValueError(f"{' and '.join(kinds)} minimise different objectives, which have no unit in common: run each")


def resolve(settings: dict[str, Any], config: Path | None, resume: Path | None) -> RunConfig:
    """The configuration that flags, a file, or a run to be resumed describe together."""
    if resume is not None:
        from majorant.app._checkpoint import check_settings, started_with

        started = started_with(resume)
        if config is None and (resume / "config.toml").exists():
            config = resume / "config.toml"  # an edit of it is refused rather than overwritten without a word
        wanted = load_config(config, **settings) if config else validated(RunConfig, started.model_dump(), settings)
        check_settings(resume, started, wanted)
        return wanted
    if config is None and "algorithm" not in settings:
        raise ValueError("name an algorithm (majorant list algorithms) or give --config FILE")
    return load_config(config, **settings) if config else make_config({}, **settings)


def distinct(names: list[str]) -> list[str]:
    """The names, numbered where one stands again.

    >>> distinct(["fedavg", "local", "fedavg"])
    ['fedavg', 'local', 'fedavg-2']
    """
    return [n if (k := names[: i + 1].count(n)) == 1 else f"{n}-{k}" for i, n in enumerate(names)]


def left_in(folder: Path, rounds: int) -> str:
    """What is left of an interrupted run, with the command that continues it to its last round."""
    if not (folder / "checkpoint").exists():
        return "it had no checkpoint yet: nothing is kept"
    from majorant.app._checkpoint import planned_rounds

    more = f" --rounds {rounds}" if planned_rounds(folder) != rounds else ""
    return f"majorant run --resume {shlex.quote(str(folder))}{more} resumes it"


def write_pages(
    runs: list[Path],
    target: Path,
    figures: str | None,
    labels: list[str] | None = None,
    page: str = "report.html",
    compared_in: Path | None = None,
) -> Path:
    """The report page and, if asked, the figures as files; the verdict, if any, is in ``compared_in``."""
    from majorant.app.report.comparison import load_comparison
    from majorant.app.report.html import write_report
    from majorant.app.report.record import load_run

    records = [load_run(run, label) for run, label in itertools.zip_longest(runs, labels or [])]
    if figures:
        from majorant.app.report.figures import save_figures

        save_figures(records, target / "figures", figures)
    return write_report(records, target / page, load_comparison(compared_in or target))
