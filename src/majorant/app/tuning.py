"""Tuning for run folders: the values to choose from, and ``tuning.json``, which says what was tried and chosen."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from majorant._syntax import format_name, parse, parse_value
from majorant.app import catalogue
from majorant.app.build import Problem, parse_grid, splits_of
from majorant.app.config import RunConfig
from majorant.app.records import Record, Whole, checked
from majorant.app.signed import read_signed, write_signed

if TYPE_CHECKING:
    from majorant.engines.tuning import Tuning

USUAL = {  # by the names of hyperparameters, where methods have them
    "lr": [0.01, 0.03, 0.1, 0.3, 1.0],
    "lr_scale": [0.1, 0.3, 1.0, 3.0],
    "mu": [0.01, 0.1, 1.0],
    "lambda": [0.01, 0.1, 1.0],
    "alpha": [0.25, 0.5, 0.75],
}


class TuningRecord(Record):
    """``tuning.json``."""

    metric: str
    best: Annotated[dict[str, float | list[float]], Field(min_length=1)]  # a list: for each seed, with its own split
    halving: bool
    folds: Whole = 0  # by which the choice was made, or 0 for the validation parts
    by_loss: bool = False  # whether trials are ranked by their loss, as the labels are skewed
    seeds: Whole
    trials: list[dict[str, float | None]]


def grid_of(config: RunConfig, problem: Problem) -> dict[str, list[float]]:
    """The values to choose from: as given, or the usual ones of the hyperparameters that the method has."""
    import jax

    given = parse_grid(config.grid)
    known = jax.eval_shape(problem.algorithm.server.init, jax.random.key(0)).hyper
    for name, values in given.items():
        if name not in known and catalogue.algorithms.takes(config.algorithm, name):
            method, options = parse(config.algorithm)
            each = " ".join(format_name(method, options | {name: parse_value(f"{value:g}")}) for value in values)
            raise ValueError(f"{name!r} is an option of {config.algorithm} and no hyperparameter: compare {each}")
    if given:
        return given
    found = {name: values for name, values in USUAL.items() if name in known}
    if not found:
        names = ", ".join(sorted(known)) or "none"
        raise ValueError(
            f"{config.algorithm} has no usual values to tune: give --grid; its hyperparameters are {names}"
        )
    return found


def tune_config(config: RunConfig, problem: Problem, report: Callable[[int, int, int], None] | None = None) -> Tuning:
    """Chooses hyperparameters on the validation samples, with the rounds, seeds and exchange of the run."""
    from majorant.engines.options import Resources
    from majorant.engines.tuning import tune

    exchange = {name: value for name, value in problem.exchange.items() if name != "privacy"}  # a budget is not tuned
    return tune(
        problem.algorithm,
        problem.data,
        rounds=config.rounds,
        grid=grid_of(config, problem),
        seed=config.seed,
        seeds=config.seeds,
        halving=config.halving,
        folds=config.folds,
        resources=Resources(config.clients, config.memory_budget, devices=config.devices),
        report=report,
        **exchange,
    )


def chosen_hyper(
    config: RunConfig, problem: Problem, folder: Path, written: Path, report: Callable[[int, int, int], None] | None
) -> dict[str, Any]:
    """What ``tuning.json`` says, or what tuning finds: it writes the file, into the folder ``written``."""
    place = folder / "tuning.json"
    if place.is_file():  # a run that is resumed
        return dict(checked(TuningRecord, read_signed(place), place).best)
    place = written / "tuning.json"
    splits = splits_of(config, problem.data)
    if not isinstance(splits, list):
        found = tune_config(config, problem, report)
        write_tuning(place, found, config)
        return dict(found.best)
    each = [  # each split on its own: rows that test in one of them may validate in another
        tune_config(config.model_copy(update={"seed": config.seed + i, "seeds": 1}), problem._replace(data=one), report)
        for i, one in enumerate(splits)
    ]
    record = tuning_record(each[0], config)
    record["best"] = {name: [one.best[name] for one in each] for name in each[0].best}
    record["trials"] = [
        trial | {"split": i} for i, one in enumerate(each) for trial in tuning_record(one, config)["trials"]
    ]
    write_signed(place, record)
    return dict(record["best"])


def write_tuning(place: Path, found: Tuning, config: RunConfig) -> dict[str, Any]:
    """Writes ``tuning.json``."""
    record = tuning_record(found, config)
    write_signed(place, record)
    return record


def tuning_record(found: Tuning, config: RunConfig) -> dict[str, Any]:
    """What was tried, best first, and what was chosen."""
    score = f"validation_{found.metric}"
    each = lambda t: t.hyper | {"rounds": t.rounds, score: t.score, "validation_loss": t.loss, "rejected": t.rejected}
    trials = [each(trial) for trial in found.trials]
    return {
        "metric": found.metric,
        "best": found.best,
        "halving": config.halving,
        "folds": found.folds,
        "by_loss": found.by_loss,
        "seeds": config.seeds,
        "trials": trials,
    }


def chosen_on(record: dict[str, Any]) -> str:
    """In words, what ``tuning.json`` says that the choice was made on.

    >>> chosen_on({"folds": 5}), chosen_on({"by_loss": True})
    ('5 folds of the training and validation samples', 'validation samples by their loss, as one class is rare')
    """
    folds = record.get("folds")
    on = f"{folds} folds of the training and validation samples" if folds else "validation samples"
    return on + " by their loss, as one class is rare" * bool(record.get("by_loss"))
