"""Runs in folders: train, checkpoint, resume, and leave everything that a person or a program wants to read.

A run folder holds ``config.toml``, ``metrics.jsonl`` (a line per evaluation and seed), ``summary.json``,
``clients.csv`` (a line per client), ``checkpoint/``, ``model/`` and ``report.html``. A folder without ``summary.json``
is a run that did not finish; it can be resumed from its checkpoint.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from majorant.app._checkpoint import Checkpoint, lines_of, started_with
from majorant.app._text import csv_text
from majorant.app.build import Problem, build
from majorant.app.config import RunConfig, to_toml
from majorant.app.files import atomic_write_text, strict_json
from majorant.app.folders import check_folder, working_in
from majorant.app.logs import append_jsonl
from majorant.app.optimum import find_optimum
from majorant.app.saved_model import model_meta
from majorant.app.trees import save_tree, tree_exists
from majorant.app.tuning import chosen_hyper
from majorant.engines.options import Evaluation, Resources
from majorant.engines.run import Run
from majorant.engines.simulator import Snapshot, simulate

CHECKPOINT_SECONDS = 5.0  # a checkpoint at most this often, and one at the end
Told = Callable[[list[dict[str, Any]]], None]


def run_in_folder(
    config: RunConfig,
    folder: Path,
    *,
    problem: Problem | None = None,
    resume: bool = False,
    on_evaluation: Told | None = None,
    on_tuning: Callable[[int, int, int], None] | None = None,
    checkpoint_seconds: float = CHECKPOINT_SECONDS,
) -> Run:
    """Trains a configuration and writes its run folder; ``resume`` goes on from the folder's checkpoint.

    A problem that is given has its ``optimum``, where there is one. ``on_tuning`` is told of the rounds of tuning, as
    `majorant.tune` tells them. A failure before the first checkpoint leaves no
    folder behind; a later one leaves a run that can be resumed.
    """
    check_folder(folder, resume=resume)
    if resume:
        check_settings(folder, config)
    if problem is None:
        problem = build(config)
        problem = problem._replace(optimum=find_optimum(config, problem.data))
    keep = lambda: tree_exists(folder / "checkpoint")
    with config.arithmetic(), working_in(folder, keep, resume=resume):
        checkpoint = Checkpoint(folder, config, problem, checkpoint_seconds)
        hyper = chosen_hyper(config, problem, folder, on_tuning) if config.tune else None
        run = train(config, problem, folder, checkpoint, hyper, go_on=resume and keep(), on_evaluation=on_evaluation)
        write_results(run, config, problem, folder)
    return run


def train(
    config: RunConfig,
    problem: Problem,
    folder: Path,
    checkpoint: Checkpoint,
    hyper: dict[str, float] | None,
    *,
    go_on: bool,
    on_evaluation: Told | None,
) -> Run:
    """Trains in a folder that is ours, from its checkpoint or from the beginning."""
    log = folder / "metrics.jsonl"

    def restored(like: Snapshot) -> Snapshot:
        taken = checkpoint.restore(like)
        atomic_write_text(log, "".join(f"{strict_json(line)}\n" for line in lines_of(taken)))
        return taken

    def evaluated(records: list[dict[str, Any]], snapshot: Callable[[], Snapshot]) -> None:
        for record in records:
            append_jsonl(log, record)
        checkpoint.after(records[0]["round"], snapshot)
        if on_evaluation is not None:
            on_evaluation(records)

    atomic_write_text(folder / "config.toml", to_toml(config))
    if not go_on:  # also a run that was stopped before its first checkpoint: it begins anew
        log.unlink(missing_ok=True)
    run = simulate(
        problem.algorithm,
        problem.data,
        rounds=config.rounds,
        seed=config.seed,
        seeds=config.seeds,
        hyper=hyper,
        **problem.exchange,
        evaluation=Evaluation(
            every=config.evaluate_every,
            diagnostics=config.measures,
            until=config.until,
            optimum=problem.optimum,
            patience=config.patience,
            report=evaluated,
        ),
        resources=Resources(clients=config.clients, memory_budget=config.memory_budget),
        resume=restored if go_on else None,
    )
    checkpoint.save(run.rounds, run.last)
    return run


def check_settings(folder: Path, config: RunConfig) -> None:
    """A run is resumed with the settings that it was started with."""
    different = config.differences(started_with(folder))
    if different:
        raise ValueError(
            f"{folder} was started with another configuration ({'; '.join(different)}):"
            " resume with the same settings, or start a new run"
        )


def write_results(run: Run, config: RunConfig, problem: Problem, folder: Path) -> None:
    """Summary, per-client table and models of a finished run (of its first seed, where there are several)."""
    columns = run.scores[0].table(run.data.names, run.metric)
    rows = zip(*columns.values(), strict=True)
    atomic_write_text(folder / "clients.csv", csv_text([list(columns), *map(list, rows)]))
    deployment = run.deployment
    save_tree(folder / "model", deployment.server, model_meta(config, problem.data, problem.encoding, deployment.seed))
    atomic_write_text(folder / "summary.json", strict_json(dict(run.summary()), indent=2) + "\n")
