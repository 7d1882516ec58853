"""Runs in folders: train, checkpoint, resume, and leave everything that a person or a program wants to read.

A run folder holds ``config.toml``, ``metrics.jsonl`` (a line per evaluation and seed), ``summary.json``,
``clients.csv`` (a line per client), ``checkpoint/``, ``model/`` and ``report.html``. A folder without ``summary.json``
is a run that did not finish; it can be resumed from its checkpoint.
"""

from __future__ import annotations

import csv
import datetime
import io
import os
import re
import shutil
import time
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from majorant.app.config import (
    Problem,
    RunConfig,
    build,
    build_algorithm,
    fingerprint,
    load_config,
    make_config,
    network_fingerprint,
    to_toml,
)
from majorant.app.optimum import find_optimum
from majorant.app.storage import (
    DamagedFile,
    append_jsonl,
    atomic_write_text,
    check_writable,
    load_tree,
    save_tree,
    strict_json,
    tree_exists,
)

if TYPE_CHECKING:
    from majorant.data.federated import FederatedData
    from majorant.data.tabular import Encoding
    from majorant.engines.deployment import Deployment
    from majorant.engines.run import Run
    from majorant.engines.simulator import Snapshot

CHECKPOINT_SECONDS = 5.0  # a checkpoint at most this often, and one at the end


def run_in_folder(
    config: RunConfig,
    folder: Path,
    *,
    problem: Problem | None = None,
    resume: bool = False,
    on_evaluation: Callable[[list[dict[str, Any]]], None] | None = None,
    checkpoint_seconds: float = CHECKPOINT_SECONDS,
) -> Run:
    """Trains a configuration and writes its run folder; ``resume`` goes on from the folder's checkpoint.

    A problem that is given has its ``optimum``, where there is one. A failure before the first checkpoint leaves no
    folder behind; a later one leaves a run that can be resumed.
    """
    if problem is None:
        problem = build(config)
        problem = problem._replace(optimum=find_optimum(config, problem.data))
    with config.arithmetic():
        return run_problem(config, problem, folder, resume, on_evaluation, checkpoint_seconds)


def run_problem(
    config: RunConfig,
    problem: Problem,
    folder: Path,
    resume: bool,
    on_evaluation: Callable[[list[dict[str, Any]]], None] | None,
    checkpoint_seconds: float,
) -> Run:
    """`run_in_folder`, in the precision that is switched on."""
    from majorant.engines.simulator import Snapshot, simulate

    mark = fingerprint(problem.data) + network_fingerprint(problem.algorithm)
    fresh = not folder.exists() or not any(folder.iterdir())
    if resume:
        check_resumable(folder, config)
    elif not fresh:
        raise FileExistsError(f"{folder} is not empty: choose another --out, or go on with it by --resume")

    last, saved = time.monotonic(), 0

    def restored(like: Snapshot) -> Snapshot:
        nonlocal saved
        tree, meta = load_tree(folder / "checkpoint", {"server": like.server, "clients": like.clients})
        if meta.get("data") != mark:
            what = "links" if str(meta.get("data")).partition("-")[0] == mark.partition("-")[0] else "data"
            raise ValueError(
                f"{folder} was trained on other {what} than {config.data!r} gives now: it cannot be resumed"
            )
        saved = meta["round"]
        lines = [line for together in zip(*meta["counters"]["history"], strict=True) for line in together]
        atomic_write_text(folder / "metrics.jsonl", "".join(f"{strict_json(line)}\n" for line in lines))
        return Snapshot(tree["server"], tree["clients"], meta["counters"])

    def save(taken: Snapshot, done: int) -> None:
        meta = {"round": done, "data": mark, "counters": taken.counters}
        save_tree(folder / "checkpoint", {"server": taken.server, "clients": taken.clients}, meta)

    def evaluated(records: list[dict[str, Any]], snapshot: Callable[[], Snapshot]) -> None:
        nonlocal last, saved
        for record in records:
            append_jsonl(folder / "metrics.jsonl", record)
        if time.monotonic() - last >= checkpoint_seconds:
            saved = records[0]["round"]
            save(snapshot(), saved)
            last = time.monotonic()
        if on_evaluation is not None:
            on_evaluation(records)

    try:
        folder.mkdir(parents=True, exist_ok=True)
        check_writable(folder)
        atomic_write_text(folder / "config.toml", to_toml(config))
        go_on = resume and tree_exists(folder / "checkpoint")
        if not go_on:  # also a run that was stopped before its first checkpoint: it begins anew
            (folder / "metrics.jsonl").unlink(missing_ok=True)
        run = simulate(
            problem.algorithm,
            problem.data,
            rounds=config.rounds,
            seed=config.seed,
            seeds=config.seeds,
            participation=problem.participation,
            evaluate_every=config.evaluate_every,
            clients=config.clients,
            memory_budget=config.memory_budget,
            diagnostics=config.measures,
            until=config.until,
            optimum=problem.optimum,
            resume=restored if go_on else None,
            on_evaluation=evaluated,
        )
        if saved < run.rounds:
            save(run.snapshot, run.rounds)
        write_results(run, config, problem, folder)
    except BaseException:
        if fresh and not tree_exists(folder / "checkpoint"):
            shutil.rmtree(folder, ignore_errors=True)
        raise
    return run


def check_resumable(folder: Path, config: RunConfig) -> None:
    """A resume needs the folder of a run, and the configuration that it was started with."""
    if not (folder / "config.toml").exists():
        raise ValueError(f"{folder} is not a run folder: it has no config.toml")
    different = config.differences(load_config(folder / "config.toml"))
    if different:
        raise ValueError(
            f"{folder} was started with another configuration ({'; '.join(different)}):"
            " resume with the same settings, or start a new run"
        )


def write_results(run: Run, config: RunConfig, problem: Problem, folder: Path) -> None:
    """Summary, per-client table and models of a finished run (of its first seed, where there are several)."""
    atomic_write_text(folder / "clients.csv", clients_csv(run))
    deployment = run.deployment
    save_tree(folder / "model", deployment.server, model_meta(config, problem.data, problem.encoding, deployment.seed))
    atomic_write_text(folder / "summary.json", strict_json(dict(run.summary()), indent=2) + "\n")


def model_meta(config: RunConfig, data: FederatedData, encoding: Encoding | None, seed: int) -> dict[str, Any]:
    """What is saved beside a server so that `load_deployment` can use it without the data."""
    return {
        "config": to_toml(config),
        "spec": [list(data.spec.features), data.spec.classes],
        "classes": list(data.classes),
        "clients": data.clients,
        "nodes": int((~data.unseen).sum()),
        "seed": seed,
        "target_scale": data.target_scale,
        "encoding": encoding.to_dict() if encoding else None,
    }


def clients_csv(run: Run) -> str:
    """A line per client: sizes, scores and, where the method has them, mixture weights."""
    columns = run.scores[0].table(run.data.names, run.metric)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(zip(*columns.values(), strict=True))
    return text.getvalue()


def load_deployment(folder: Path) -> tuple[Deployment, Encoding | None]:
    """The trained server of a run folder, ready to give models to clients."""
    import jax

    from majorant.data.labels import TargetScale
    from majorant.data.tabular import Encoding
    from majorant.engines.deployment import Deployment
    from majorant.models.base import Spec

    if not (folder / "config.toml").exists():
        runs = sorted(str(path.parent) for path in folder.glob("*/config.toml"))
        hint = f"; it holds the runs {', '.join(runs)}: name one of them" if runs else ""
        raise ValueError(f"{folder} is not a run folder: it has no config.toml{hint}")
    if not tree_exists(folder / "model"):
        raise ValueError(f"{folder} has no model: the run has not finished (go on with it by --resume)")
    _, meta = load_tree(folder / "model")
    try:
        config = make_config(tomllib.loads(meta["config"]))
        spec = Spec(tuple(meta["spec"][0]), meta["spec"][1])
        classes, clients, seed = tuple(meta["classes"]), meta["clients"], meta["seed"]
        nodes = meta.get("nodes", clients)
        target = TargetScale(*meta["target_scale"]) if meta.get("target_scale") else None
        encoding = Encoding.from_dict(meta["encoding"]) if meta["encoding"] else None
    except (KeyError, TypeError, IndexError) as error:
        raise DamagedFile(f"{folder / 'model'} lacks what a model of this library has ({error})") from None
    with config.arithmetic():
        _, algorithm = build_algorithm(config, spec, clients, nodes)
        number = jax.ShapeDtypeStruct((), "int32")
        like = jax.eval_shape(algorithm.init, jax.random.key(0))._replace(round=number, rounds=number)
        server, _ = load_tree(folder / "model", like)
    return Deployment(algorithm, server, seed, classes, spec.features, clients, target), encoding


def new_folder(root: Path, label: str) -> Path:
    """A name for a run that does not exist yet: time and label."""
    stamp = datetime.datetime.now().strftime("%Y%m%d-%H%M%S")
    base = root / f"{stamp}-{slug(label)}"
    folder, number = base, 1
    while folder.exists():
        number += 1
        folder = base.with_name(f"{base.name}-{number}")
    return folder


def slug(label: str) -> str:
    """A label as a file name.

    >>> slug("fedem:components=3, data/x.csv")
    'fedem-components-3-data-x-csv'
    """
    return re.sub(r"[^A-Za-z0-9+_]+", "-", label).strip("-")[:80] or "run"


def point_last_at(folder: Path) -> None:
    """``runs/last`` leads to the newest run in ``runs``, where the file system has links."""
    folder = folder.resolve()  # a run may be named by the link itself
    if folder.parent.name != "runs":
        return
    link, temporary = folder.parent / "last", folder.parent / f".last-{os.getpid()}"
    if link.exists() and not link.is_symlink():
        return
    try:
        temporary.symlink_to(folder.name)
        temporary.replace(link)
    except OSError:
        temporary.unlink(missing_ok=True)
