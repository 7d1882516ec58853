"""Runs in folders: train, checkpoint, resume, and leave everything that a person or a program wants to read.

A run folder holds ``config.toml``, ``metrics.jsonl`` (a line per evaluation and seed), ``summary.json``,
``clients.csv`` (a line per client), ``checkpoint/``, ``model/`` and ``report.html``. A folder without ``summary.json``
is a run that did not finish; it can be resumed from its checkpoint.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from majorant.app import catalogue
from majorant.app._checkpoint import Checkpoint, check_settings, lines_of, started_with
from majorant.app._fingerprint import OF_A_FILE, digest, divided_digest, network_digest, settings_digest
from majorant.app._text import csv_text
from majorant.app.build import Problem, build, splits_of
from majorant.app.config import RunConfig, to_toml
from majorant.app.files import atomic_write_text, strict_json
from majorant.app.folders import check_folder, working_in
from majorant.app.logs import append_jsonl
from majorant.app.named_tables import licence_of
from majorant.app.optimum import find_optimum
from majorant.app.saved_model import model_meta
from majorant.app.signed import write_signed
from majorant.app.trackers import check_trackers, tracking
from majorant.app.trees import save_tree, tree_exists
from majorant.app.tuning import chosen_hyper
from majorant.data.federated import FederatedData
from majorant.engines.hosts import explained_loss, follows, place_to_write
from majorant.engines.mesh import devices_worth_using
from majorant.engines.options import Evaluation, Resources
from majorant.engines.run import Run
from majorant.engines.simulation import Simulation
from majorant.engines.simulator import carried_out, planned
from majorant.engines.snapshots import Snapshot

CHECKPOINT_SECONDS = 5.0  # a checkpoint at most this often, and one at the end
Told = Callable[[list[dict[str, Any]]], None]


def run_in_folder(
    config: RunConfig,
    folder: Path,
    *,
    problem: Problem | None = None,
    simulation: Simulation | None = None,
    resume: bool = False,
    on_evaluation: Told | None = None,
    on_tuning: Callable[[int, int, int], None] | None = None,
    track: Sequence[str] = (),
    checkpoint_seconds: float = CHECKPOINT_SECONDS,
) -> Run:
    """Trains a configuration and writes its run folder; ``resume`` goes on from the folder's checkpoint.

    A problem that is given has its ``optimum``, where there is one; ``simulation`` is what was planned for it, if that
    was done ahead (`majorant.engines.ahead`). ``track`` names trackers of other projects that are told of every
    evaluation (`trackers`), and ``on_tuning`` of the rounds of tuning, as `majorant.tune` tells them. A failure before
    the first checkpoint leaves no folder behind; a later one leaves a run that can be resumed. Of many processes the
    first writes, and all read the checkpoint that a run goes on from.
    """
    check_trackers(track)
    if not follows():
        check_folder(folder, resume=resume)
    if resume:
        check_settings(folder, started_with(folder), config)
    if problem is None:
        problem = build(config)
        problem = problem._replace(optimum=find_optimum(config, problem.data))
    keep = lambda: tree_exists(folder / "checkpoint")
    with (
        explained_loss(),
        config.arithmetic(),
        place_to_write(folder) as place,
        working_in(place, keep, resume=resume and place == folder),
    ):
        checkpoint = Checkpoint(folder, config, problem, checkpoint_seconds, writes=not follows())
        hyper = chosen_hyper(config, problem, folder, place, on_tuning) if config.tune else None
        with tracking(() if follows() else track, config, place) as told:

            def tell(records: list[dict[str, Any]]) -> None:
                told(records)
                if on_evaluation is not None:
                    on_evaluation(records)

            go_on = resume and keep()
            run = train(config, problem, simulation, place, checkpoint, hyper, go_on=go_on, on_evaluation=tell)
        run.encoding, run.origin = problem.encoding, model_meta(config, problem.data, problem.encoding, config.seed)
        write_results(run, config, problem, place)
    return run


def train(
    config: RunConfig,
    problem: Problem,
    simulation: Simulation | None,
    folder: Path,
    checkpoint: Checkpoint,
    hyper: dict[str, Any] | None,
    *,
    go_on: bool,
    on_evaluation: Told,
) -> Run:
    """Trains in a folder that is ours, from its checkpoint or from the beginning."""
    log = folder / "metrics.jsonl"

    def restored(like: Snapshot) -> Snapshot:
        taken = checkpoint.restore(like)
        atomic_write_text(folder / "config.toml", to_toml(config))
        (folder / "summary.json").unlink(missing_ok=True)  # a finished run that is extended is not finished
        atomic_write_text(log, "".join(f"{strict_json(line)}\n" for line in lines_of(taken)))
        return taken

    def evaluated(records: list[dict[str, Any]], snapshot: Callable[[], Snapshot]) -> None:
        for record in records:
            append_jsonl(log, record)
        checkpoint.after(records[0]["round"], snapshot)
        on_evaluation(records)

    if not go_on:  # also a run that was stopped before its first checkpoint: it begins anew
        atomic_write_text(folder / "config.toml", to_toml(config))
        (folder / "summary.json").unlink(missing_ok=True)
        log.unlink(missing_ok=True)
    asked = asked_of(config, problem, hyper, evaluated)
    run = carried_out(simulation or planned(**asked), asked["evaluation"], restored if go_on else None)
    checkpoint.save(run.rounds, run.last)
    return run


def asked_of(
    config: RunConfig, problem: Problem, hyper: dict[str, Any] | None = None, report: Callable[..., None] | None = None
) -> dict[str, Any]:
    """What `simulate` is asked to do for a configuration."""
    return {
        "algorithm": problem.algorithm,
        "data": splits_of(config, problem.data),
        "rounds": config.rounds,
        "seed": config.seed,
        "seeds": config.seeds,
        "hyper": hyper,
        **problem.exchange,
        "evaluation": Evaluation(
            every=config.evaluate_every,
            diagnostics=config.measures,
            until=config.until,
            optimum=problem.optimum,
            patience=config.patience,
            report=report,
        ),
        "resources": resources_of(config, problem),
    }


def resources_of(config: RunConfig, problem: Problem) -> Resources:
    """What a run may use; of devices so many as are asked for, or are worth using."""
    devices = config.devices or devices_worth_using(problem.algorithm, problem.data)
    return Resources(config.clients, config.memory_budget, devices=devices, made_from=made_from(config, problem))


def made_from(config: RunConfig, problem: Problem) -> str | None:
    """A digest of all that a run's programs are made from, beside the library; None where something else may be.

    Those are problems made by hand, models that read a file, and what a process has registered itself. Tried on
    CPUs alone.
    """
    if problem.settings != config or OF_A_FILE in catalogue.models.given(config.model):
        return None
    if not all(registry.ours() for kind, registry in catalogue.KINDS.items() if kind != "data"):
        return None
    if jax.default_backend() != "cpu" or jax.process_count() > 1:
        return None
    data = divided_digest(problem.data, problem.encoding)
    return digest([settings_digest(config), data, network_digest(problem.federation)])


def write_results(run: Run, config: RunConfig, problem: Problem, folder: Path) -> None:
    """Summary, per-client table and models of a finished run (of its first seed, where there are several)."""
    columns = run.clients
    rows = zip(*columns.values(), strict=True)
    atomic_write_text(folder / "clients.csv", csv_text([list(columns), *map(list, rows)]))
    deployment = run.deployment
    save_tree(folder / "model", deployment.server, model_meta(config, problem.data, problem.encoding, deployment.seed))
    summary = run.summary() | licence_of(config.data) | rate_of(run, config) | trivial_of(run)
    write_signed(folder / "summary.json", summary, ("metrics.jsonl", "clients.csv"))


def rate_of(run: Run, config: RunConfig) -> dict[str, float]:
    """The learning rate, where the settings left it to the data or to theory."""
    rate = run.server.hyper.get("lr")
    if rate is None or config.local.lr is not None or config.tune:
        return {}
    return {"lr": float(f"{np.ravel(rate)[0]:.6g}")}


def trivial_of(run: Run) -> dict[str, Any]:
    """The trivial model's test score, mean over seeds, where the run's is as plain: without it a score says little."""
    plain = run.metric in ("accuracy", "rmse") and run.algorithm.deployment.scores is None
    if not plain or run.federation.hostile is not None or jax.process_count() > 1:
        return {}
    score = float(np.mean([trivial_score(data) for data in run.data_sets]))
    name = "majority class" if run.data.classes else "mean of the training targets"
    return {"trivial": {"name": name, "score": score if np.isfinite(score) else None}}


def trivial_score(data: FederatedData) -> float:
    """What each client's most frequent training label, or the mean of its targets, scores on its test rows."""
    own, where = (np.repeat(np.arange(data.clients), part.sizes) for part in (data.train, data.test))
    seen = ~data.unseen[where]
    if not seen.any():
        return float("nan")
    if data.classes:
        counts = np.zeros((data.clients, len(data.classes)), np.int64)
        np.add.at(counts, (own, data.train.y), 1)
        return float((counts.argmax(axis=1)[where] == data.test.y)[seen].mean())
    values, truth = (np.asarray(data.label_values(part.y), np.float64) for part in (data.train, data.test))
    means = np.bincount(own, values, data.clients) / np.maximum(data.train.sizes, 1)
    return float(np.sqrt(((means[where] - truth)[seen] ** 2).mean()))
