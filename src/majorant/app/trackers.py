"""Trackers of other projects that a run tells its evaluations: TensorBoard, MLflow, Weights & Biases.

Each gets the settings once, the numbers of every evaluation at their round, and the summary's scores at the end. They
are told after the run folder, which stays the record of a run: a tracker that cannot start is an error before any
work, one that fails later is warned of and left out. TensorBoard's files go to ``tensorboard/`` in the run
folder; where MLflow and Weights & Biases store is theirs to say (``MLFLOW_TRACKING_URI``, ``WANDB_MODE``).
"""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from majorant._extras import require
from majorant.app.config import RunConfig, flat
from majorant.engines.run import flat_line

Told = Callable[[list[dict[str, Any]]], None]
Log = Callable[[Mapping[str, float], int], None]  # numbers by name, at a round


def check_trackers(names: Sequence[str]) -> None:
    """Complains about trackers that are unknown or not installed, before any work."""
    for name in names:
        if name not in TRACKERS:
            raise ValueError(f"--track takes {', '.join(TRACKERS)}, got {name!r}")
        require(PACKAGES[name], name, f"--track {name} needs the package {PACKAGES[name]}")


@contextmanager
def tracking(names: Sequence[str], config: RunConfig, folder: Path) -> Iterator[Told]:
    """A function that tells all trackers of an evaluation, a record for each seed; open for a ``with`` block."""
    logs: dict[str, Log] = {}

    def told(records: list[dict[str, Any]]) -> None:
        numbers = numbers_of(records)
        for name, log in list(logs.items()):
            try:
                log(numbers, records[0]["round"])
            except Exception as error:
                del logs[name]
                warnings.warn(f"{name} is told no more: {error}", stacklevel=2)

    with ExitStack() as stack:
        for name in names:
            try:
                logs[name] = stack.enter_context(TRACKERS[name](config, folder))
            except Exception as error:
                raise ValueError(f"--track {name} cannot start: {error}") from error
        yield told


def numbers_of(records: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """All finite numbers of an evaluation by name; with several seeds, each under its own.

    >>> numbers_of([{"round": 5, "seed": 0, "test_accuracy": {"mean": 0.9}, "loss": float("nan")}])
    {'test_accuracy_mean': 0.9}
    """
    found = {}
    for record in records:
        prefix = f"seed_{record['seed']}/" if len(records) > 1 else ""
        for name, value in flat_line(record).items():
            number = isinstance(value, int | float) and not isinstance(value, bool)
            if number and math.isfinite(value) and name not in ("round", "seed"):
                found[prefix + name] = float(value)
    return found


@contextmanager
def tensorboard(config: RunConfig, folder: Path) -> Iterator[Log]:
    """Event files that ``tensorboard --logdir`` shows."""
    writer = require("tensorboardX", "tensorboard", "--track tensorboard needs tensorboardX").SummaryWriter(
        str(folder / "tensorboard")
    )
    try:
        writer.add_text("settings", "\n".join(f"- {k}: `{v}`" for k, v in settings_of(config).items()))

        def log(numbers: Mapping[str, float], step: int) -> None:
            for name, value in numbers.items():
                writer.add_scalar(name, value, step)
            writer.flush()

        yield log
    finally:
        writer.close()


@contextmanager
def mlflow(config: RunConfig, folder: Path) -> Iterator[Log]:
    """A run of MLflow, in the experiment that is set (``MLFLOW_EXPERIMENT_NAME``)."""
    client = require("mlflow", "mlflow", "--track mlflow needs mlflow")
    with client.start_run(run_name=folder.name):
        client.log_params({name: str(value)[:500] for name, value in settings_of(config).items()})
        client.set_tag("majorant.folder", str(folder))
        yield lambda numbers, step: client.log_metrics(dict(numbers), step=step)


@contextmanager
def wandb(config: RunConfig, folder: Path) -> Iterator[Log]:
    """A run of Weights & Biases, in the project ``majorant`` unless ``WANDB_PROJECT`` names another."""
    client = require("wandb", "wandb", "--track wandb needs wandb")
    project = os.environ.get("WANDB_PROJECT", "majorant")
    run = client.init(project=project, name=folder.name, dir=str(folder), config=settings_of(config))
    code = 1
    try:
        yield lambda numbers, step: run.log(dict(numbers), step=step)
        code = 0
    finally:
        run.finish(exit_code=code)


def settings_of(config: RunConfig) -> dict[str, Any]:
    """All settings under dotted names."""
    return {name: value for name, value in flat(config.model_dump()).items() if value is not None}


TRACKERS: dict[str, Any] = {"tensorboard": tensorboard, "mlflow": mlflow, "wandb": wandb}
PACKAGES = {"tensorboard": "tensorboardX", "mlflow": "mlflow", "wandb": "wandb"}
