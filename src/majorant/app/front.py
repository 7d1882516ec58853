"""Fronts in folders: settings in, every point's model, numbers and report out (see `front_record` for the folder)."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import jax
import numpy as np

from majorant.app import catalogue
from majorant.app.build import (
    build_algorithm,
    build_exchange,
    check_devices,
    federated,
    load_data,
    local_solver,
    safe_rate,
)
from majorant.app.config import to_toml
from majorant.app.files import atomic_write_text
from majorant.app.folders import working_in
from majorant.app.front_config import FrontConfig, make_front_config
from majorant.app.front_record import FORMAT, FrontRecord, PointRecord, deploy, model_folder
from majorant.app.saved_model import model_meta
from majorant.app.trees import save_tree
from majorant.core import tree_bytes
from majorant.math.room import refuse_too_large

if TYPE_CHECKING:
    from majorant.data.federated import FederatedData
    from majorant.data.tabular import Encoding
    from majorant.exchange.participation import Participation
    from majorant.models.base import Model
    from majorant.solvers import Solver
    from majorant.tradeoffs.choice import Held
    from majorant.tradeoffs.criterion import Criterion
    from majorant.tradeoffs.front import Front
    from majorant.tradeoffs.judge import Point

__all__ = ["FrontProblem", "build_front", "front_in_folder", "make_front_config"]


class FrontProblem(NamedTuple):
    """A configuration, built."""

    data: FederatedData
    model: Model
    criteria: list[Criterion]
    participation: Participation
    encoding: Encoding | None
    local: Solver


def build_front(config: FrontConfig) -> FrontProblem:
    """Data, model and criteria; complaints about them come before any training."""
    from majorant.app.named_criteria import Setting
    from majorant.tradeoffs.centralized import check_convex
    from majorant.tradeoffs.criteria import coordinate
    from majorant.tradeoffs.sweep import scalarized, step_for

    check_devices(config)
    with config.arithmetic():
        data, encoding = load_data(config)
        model = catalogue.models.make(config.model, data)
        points = (len(config.lambdas) + config.refine) * len(config.preferences)
        size = tree_bytes(jax.eval_shape(model.init, jax.random.key(0)))
        refuse_too_large(f"{points} models of {size / 4:.3g} numbers", 3 * points * size, "give a smaller model")
        setting = Setting(model, data.spec.features, data.classes, encoding)
        criteria = [catalogue.criteria.make(text, setting) for text in config.criteria]
        plain = config.local.optimizer == "sgd" and not config.local.momentum
        step = step_for(criteria) if config.step == "auto" else config.step
        if config.scalarization == "weighted-sum" and step == "implicit" and not plain:
            raise ValueError("implicit steps (l1, group-lasso) need --optimizer sgd and --momentum 0")
        local = local_solver(config.local, safe_rate(config.local, model, data))
        scalarized(config.scalarization, model, data, criteria, config.preferences[0], local=local, **config.method)
        if config.centralized:
            check_convex(model, coordinate(criteria, step=step_for(criteria)))
        if config.choose == "validation" and not data.validation.sizes[~data.unseen].sum():
            raise ValueError(f"{config.data} has no validation samples to choose by: --choose knee")
    taking_part = catalogue.participations.make(config.participation)
    return FrontProblem(data, model, criteria, taking_part, encoding, local)


def front_in_folder(
    config: FrontConfig,
    folder: Path,
    problem: FrontProblem | None = None,
    on_progress: Callable[[int, int], None] | None = None,
) -> FrontRecord:
    """Finds a front and writes its folder; a failure leaves no folder behind. ``on_progress`` as in `pareto_front`."""
    problem = problem or build_front(config)
    with config.arithmetic(), working_in(folder):
        atomic_write_text(folder / "config.toml", to_toml(config))
        return find_and_save(config, problem, folder, on_progress)


def find_and_save(
    config: FrontConfig, problem: FrontProblem, folder: Path, on_progress: Callable[[int, int], None] | None
) -> FrontRecord:
    """Trains, measures, and writes models and numbers, in the precision that is switched on."""
    from majorant.engines.options import Resources
    from majorant.tradeoffs.choice import held_out
    from majorant.tradeoffs.front import DivergedWarning, pareto_front

    began = time.monotonic()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DivergedWarning)  # the table says which
        front = pareto_front(
            problem.model,
            problem.data,
            problem.criteria,
            weights=config.lambdas,
            rounds=config.rounds,
            refine=config.refine,
            criteria_weights=config.preferences,
            scalarization=config.scalarization,
            scale=config.scale,
            seed=config.seed,
            participation=problem.participation,
            resources=Resources(devices=config.devices),
            on_progress=on_progress,
            local=problem.local,
            **config.method,
        )
    order = config.preferences
    found = sorted(
        [*front.points, *front.dominated], key=lambda point: (order.index(point.criteria_weights), point.weight)
    )
    gaps = [float("nan")] * len(found)
    if config.centralized:
        gaps = centralized_gaps(problem, found, config.agents, front.scales)
    held = held_out(problem.model, problem.data, found)
    tested = [score.loss for score in held_out(problem.model, problem.data, found, "test", unseen=True)]
    record = describe(config, problem, found, held, gaps, tested, front.scales)
    record = record.model_copy(update={"seconds": time.monotonic() - began})
    save_models(config, problem, found, folder)
    return deploy(folder, record, record.picked, record.picked_by)


def centralized_gaps(
    problem: FrontProblem, points: Sequence[Point], agents: str, scales: Sequence[float]
) -> list[float]:
    """F/F* − 1 of every point, F* by a solve with all samples in one place; NaN where F* is near 0 or F not finite."""
    from majorant.tradeoffs.centralized import agreement
    from majorant.tradeoffs.criteria import coordinate
    from majorant.tradeoffs.judge import Setting
    from majorant.tradeoffs.scaling import as_is
    from majorant.tradeoffs.sweep import step_for

    sound = [place for place, point in enumerate(points) if np.isfinite(point.values).all()]
    weighed = [as_is(Setting(points[place].weight, points[place].criteria_weights), scales) for place in sound]
    found = agreement(
        problem.model,
        problem.data,
        coordinate(problem.criteria, step=step_for(problem.criteria)),
        [setting.weight for setting in weighed],
        [points[place].params for place in sound],
        criteria_weights=[setting.criteria_weights for setting in weighed],
        agents=agents,
    )
    gaps = dict(zip(sound, [each.gap if each.relative else float("nan") for each in found], strict=True))
    return [gaps.get(place, float("nan")) for place in range(len(points))]


def describe(
    config: FrontConfig,
    problem: FrontProblem,
    points: Sequence[Point],
    held: Sequence[Held],
    gaps: Sequence[float],
    tested: Sequence[float],
    scales: Sequence[float],
) -> FrontRecord:
    """Points in numbers, and the one that is chosen: by validation, or the knee."""
    from majorant.tradeoffs.choice import best_of
    from majorant.tradeoffs.dominance import front_of, knee
    from majorant.tradeoffs.front import Front

    kept = front_of([point.values for point in points])
    places = np.flatnonzero(kept).tolist()
    front = Front(problem.model, tuple(points[place] for place in places), ())
    middle = places[knee(front.values)]
    chosen = best_of([held[place] for place in places])
    best = None if chosen is None else places[chosen]
    by_knee = config.choose == "knee" or best is None
    volume, reference = volume_of(front)
    return FrontRecord(
        format=FORMAT,
        dataset=config.data,
        model=config.model,
        clients=problem.data.clients,
        rounds=config.rounds,
        seed=config.seed,
        scalarization=config.scalarization,
        criteria=list(points[0].criteria),
        points=[
            PointRecord(
                point=place,
                validation_accuracy=score.accuracy,
                validation_loss=score.loss,
                test_loss=test,
                centralized_gap=gap,
                dominated=not kept[place],
                **{name: value for name, value in point._asdict().items() if name != "params"},
            )
            for place, (point, score, gap, test) in enumerate(zip(points, held, gaps, tested, strict=True))
        ],
        knee=middle,
        best_validation=best,
        picked=middle if by_knee or best is None else best,
        picked_by="knee" if by_knee else "best validation",
        hypervolume=volume,
        hypervolume_reference=reference,
        spread=front.spread(),
        scales=dict(zip(points[0].criteria, scales, strict=False)),
        seconds=0.0,
    )


def volume_of(front: Front) -> tuple[float, list[float]]:
    """The hypervolume and its reference point; NaN for three coordinates or more without the extra for it."""
    low, high = front.values.min(axis=0), front.values.max(axis=0)
    reference = (high + 0.1 * np.where(high > low, high - low, 1)).tolist()
    try:
        return front.hypervolume(reference), reference
    except ImportError:
        return float("nan"), reference


def save_models(config: FrontConfig, problem: FrontProblem, points: Sequence[Point], folder: Path) -> None:
    """Every point's model, as `load_deployment` reads them."""
    import jax
    import jax.numpy as jnp

    from majorant.engines.set_up import start_server

    run, data = config.as_run, problem.data
    _, algorithm = build_algorithm(run, data, data)
    meta = model_meta(run, data, problem.encoding, config.seed)
    done, key = jnp.asarray(config.rounds, jnp.int32), jax.random.key(config.seed)
    federation = federated(algorithm, build_exchange(run), (~data.unseen).nonzero()[0])
    server = start_server(federation, int((~data.unseen).sum()), key, {}, done)._replace(round=done)
    for place, point in enumerate(points):
        about = meta | {"point": place, "lambda": point.weight}
        save_tree(model_folder(folder, place), server._replace(value=point.params), about)
