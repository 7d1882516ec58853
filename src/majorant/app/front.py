"""Fronts in folders: settings in, every point's model, numbers and report out (see `front_record` for the folder)."""

from __future__ import annotations

import shutil
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from pydantic import Field

from majorant.app import catalogue
from majorant.app.config import (
    LocalConfig,
    RunConfig,
    check_names,
    load_data,
    read_settings,
    to_toml,
    validated,
)
from majorant.app.files import atomic_write_text, check_writable
from majorant.app.front_record import FORMAT, FrontRecord, PointRecord, deploy, model_folder
from majorant.app.trees import save_tree

if TYPE_CHECKING:
    from majorant.data.federated import FederatedData
    from majorant.data.tabular import Encoding
    from majorant.exchange.participation import Participation
    from majorant.models.base import Model
    from majorant.tradeoffs.choice import Held
    from majorant.tradeoffs.criteria import Criterion
    from majorant.tradeoffs.front import Front, Point

NOT_FOR_FRONTS = ("objective", "until", "seeds", "compression", "topology", "scaling", "diagnostics", "reference",
                  "evaluate_every", "clients", "memory_budget")  # fmt: skip
OF_SUMS = ("step", "agents")  # settings of one scalarization only
OF_CHEBYSHEV = ("mirror_rate", "memory", "output", "criteria_lr")
HIGHEST = 0.9  # the largest λ of an even grid


class PlainLocal(LocalConfig):
    """Plain gradient steps: weight decay would be a criterion that the front does not show."""

    momentum: float = Field(0.0, description="momentum of SGD; criteria with a kink need 0")
    weight_decay: float = Field(0.0, description="weight decay of SGD")
    schedule: str = Field("constant", description="learning rate over the rounds: constant, multi-step, cosine")


class FrontConfig(RunConfig):
    """A sweep over λ, the weight of a coordinator's criteria beside the agents' losses."""

    algorithm: Literal["weighted-sum"] = Field("weighted-sum", exclude=True)  # of runs; a front has a scalarization
    scalarization: Literal["weighted-sum", "chebyshev"] = Field(
        "weighted-sum", description="how losses and criteria become one: chebyshev is by the worst agent's loss"
    )
    rounds: int = Field(100, ge=1, description="communication rounds for every λ")
    criteria: tuple[str, ...] = Field((), description="what the coordinator wants: squared-norm:factor=0.1, l1")
    criteria_weights: tuple[tuple[float, ...], ...] = Field(
        (), description="of the criteria, each summing to 1; all λ for each (default: one of equal weights)"
    )
    weights: tuple[float, ...] | None = Field(None, description="the λ, at least 0 and less than 1")
    points: int | None = Field(None, ge=2, description="so many λ from 0 to 0.9 instead (default 8)")
    refine: int = Field(0, ge=0, description="further λ where the front is sparse")
    ramp: float | None = Field(
        None, ge=0, lt=1, description="share of the rounds over which λ rises from 0 to its value (default 0.25)"
    )
    mirror_rate: float | None = Field(None, gt=0, description="of chebyshev: how fast the worst get weight (default 2)")
    memory: float | None = Field(None, ge=0, le=1, description="of chebyshev: of past gaps, 1 keeps all (default 0.9)")
    output: Literal["last", "average"] | None = Field(None, description="of chebyshev: the model of rounds to deploy")
    criteria_lr: float | None = Field(
        None, gt=0, description="of chebyshev: the coordinator's step in a round (default: as long as the agents' are)"
    )
    step: Literal["auto", "explicit", "implicit"] = Field("auto", description="implicit where a criterion has a kink")
    agents: Literal["equal", "samples"] = Field("equal", description="agents count once each, or by their samples")
    choose: Literal["auto", "validation", "knee"] = Field("auto", description="which point is deployed at first")
    centralized: bool = Field(
        False, description="on convex problems, how far every point is from a solve with all samples in one place"
    )
    local: PlainLocal = PlainLocal()

    @property
    def lambdas(self) -> list[float]:
        """The λ of the first sweep."""
        return list(self.weights) if self.weights is not None else np.linspace(0, HIGHEST, self.points or 8).tolist()

    @property
    def preferences(self) -> list[tuple[float, ...]]:
        """The different weights of the criteria, with each of which λ is swept."""
        equal = tuple(1 / len(self.criteria) for _ in self.criteria)
        return list(dict.fromkeys(self.criteria_weights)) or [equal]

    @property
    def method(self) -> dict[str, Any]:
        """What goes to `pareto_front` about the method, beside the scalarization."""
        names = OF_SUMS if self.scalarization == "weighted-sum" else OF_CHEBYSHEV
        given = {name: getattr(self, name) for name in ("ramp", *names)}
        return {"local": self.local.build()} | {k: v for k, v in given.items() if v not in (None, "auto")}

    @property
    def as_run(self) -> RunConfig:
        """A run with these settings whose outcome is used as that of a front: one model for everybody."""
        values = {name: getattr(self, name) for name in RunConfig.model_fields if name not in ("algorithm", "local")}
        return RunConfig(algorithm="fedavg", local=LocalConfig(**self.local.model_dump()), **values)


class FrontProblem(NamedTuple):
    """A configuration, built."""

    data: FederatedData
    model: Model
    criteria: list[Criterion]
    participation: Participation
    encoding: Encoding | None


def make_front_config(path: Path | None = None, **overrides: Any) -> FrontConfig:
    """Settings from a TOML file, if given, and over them ``overrides`` that are not None; checked."""
    values = read_settings(path) if path else {}
    if values.get("algorithm", "weighted-sum") != "weighted-sum":
        raise ValueError(f"{path} has the settings of a run: a front is of no algorithm, leave algorithm out")
    for name, other in (("weights", "points"), ("points", "weights")):  # a flag is instead of either in the file
        if overrides.get(name) is not None:
            values.pop(other, None)
    config = validated(FrontConfig, values, overrides)
    check_front(config)
    return config


def check_front(config: FrontConfig) -> None:
    """Complains about unknown names and impossible numbers before anything is loaded."""
    odd = [name for name in NOT_FOR_FRONTS if getattr(config, name) != RunConfig.model_fields[name].default]
    if odd:
        raise ValueError(f"{odd[0]} does not go with a front: leave it out")
    foreign = OF_SUMS if config.scalarization == "chebyshev" else OF_CHEBYSHEV
    odd = [name for name in foreign if getattr(config, name) != FrontConfig.model_fields[name].default]
    if odd:
        raise ValueError(f"{odd[0]} does not go with --scalarization {config.scalarization}: leave it out")
    if config.centralized and config.scalarization == "chebyshev":
        raise ValueError("--centralized solves weighted sums: leave it out for --scalarization chebyshev")
    if not config.criteria:
        raise ValueError("give at least one --criterion, as in squared-norm (majorant list criteria)")
    for text in config.criteria:
        catalogue.criteria.check(text)
    if config.weights is not None and config.points is not None:
        raise ValueError("give --weights, or --points for an even grid, not both")
    wrong = [value for value in config.lambdas if not 0 <= value < 1]
    if wrong:
        why = " (at 1 the agents' losses would not count at all)" if wrong[0] == 1 else ""
        raise ValueError(f"every weight λ must be at least 0 and less than 1, got {wrong[0]:g}{why}")
    if len(set(config.lambdas)) < 2:
        raise ValueError(f"a front needs at least two different weights λ, got {config.lambdas}")
    for shares in config.criteria_weights:
        if len(shares) != len(config.criteria):
            raise ValueError(
                f"there are {len(config.criteria)} criteria but {len(shares)} numbers in --criteria-weights"
            )
        if not min(shares) >= 0 or not abs(sum(shares) - 1) < 1e-6:
            raise ValueError(f"--criteria-weights must be at least 0 and sum to 1, got {list(shares)}")
    check_names(config.as_run)


def build_front(config: FrontConfig) -> FrontProblem:
    """Data, model and criteria; complaints about them come before any training."""
    from majorant.app.named_criteria import Setting
    from majorant.tradeoffs.centralized import check_convex
    from majorant.tradeoffs.criteria import coordinate
    from majorant.tradeoffs.front import scalarized, step_for

    with config.arithmetic():
        data, encoding = load_data(config)
        model = catalogue.models.make(config.model, data)
        setting = Setting(model, data.spec.features, data.classes, encoding)
        criteria = [catalogue.criteria.make(text, setting) for text in config.criteria]
        plain = config.local.optimizer == "sgd" and not config.local.momentum
        step = step_for(criteria) if config.step == "auto" else config.step
        if config.scalarization == "weighted-sum" and step == "implicit" and not plain:
            raise ValueError("implicit steps (l1, group-lasso) need --optimizer sgd and --momentum 0")
        scalarized(config.scalarization, model, data, criteria, config.preferences[0], **config.method)
        if config.centralized:
            check_convex(model, coordinate(criteria, step=step_for(criteria)))
        if config.choose == "validation" and not data.validation.sizes[~data.unseen].sum():
            raise ValueError(f"{config.data} has no validation samples to choose by: --choose knee")
    return FrontProblem(data, model, criteria, catalogue.participations.make(config.participation), encoding)


def front_in_folder(
    config: FrontConfig,
    folder: Path,
    problem: FrontProblem | None = None,
    on_progress: Callable[[int, int], None] | None = None,
) -> FrontRecord:
    """Finds a front and writes its folder; a failure leaves no folder behind. ``on_progress`` as in `pareto_front`."""
    problem = problem or build_front(config)
    if folder.exists() and any(folder.iterdir()):
        raise FileExistsError(f"{folder} is not empty: choose another --out")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        check_writable(folder)
        atomic_write_text(folder / "config.toml", to_toml(config))
        with config.arithmetic():
            return find_and_save(config, problem, folder, on_progress)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def find_and_save(
    config: FrontConfig, problem: FrontProblem, folder: Path, on_progress: Callable[[int, int], None] | None
) -> FrontRecord:
    """Trains, measures, and writes models and numbers, in the precision that is switched on."""
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
            seed=config.seed,
            participation=problem.participation,
            on_progress=on_progress,
            **config.method,
        )
    order = config.preferences
    found = sorted(
        [*front.points, *front.dominated], key=lambda point: (order.index(point.criteria_weights), point.weight)
    )
    gaps = centralized_gaps(problem, found, config.agents) if config.centralized else [float("nan")] * len(found)
    held = held_out(problem.model, problem.data, found)
    tested = [score.loss for score in held_out(problem.model, problem.data, found, "test", unseen=True)]
    record = describe(config, problem, found, held, gaps, tested)
    record = record.model_copy(update={"seconds": time.monotonic() - began})
    save_models(config, problem, found, folder)
    return deploy(folder, record, record.picked, record.picked_by)


def centralized_gaps(problem: FrontProblem, points: Sequence[Point], agents: str) -> list[float]:
    """F/F* − 1 of every point, F* by a solve with all samples in one place; NaN where F* is near 0 or F not finite."""
    from majorant.tradeoffs.centralized import agreement
    from majorant.tradeoffs.criteria import coordinate
    from majorant.tradeoffs.front import step_for

    sound = [place for place, point in enumerate(points) if np.isfinite(point.values).all()]
    found = agreement(
        problem.model,
        problem.data,
        coordinate(problem.criteria, step=step_for(problem.criteria)),
        [points[place].weight for place in sound],
        [points[place].params for place in sound],
        criteria_weights=[points[place].criteria_weights for place in sound],
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
) -> FrontRecord:
    """Points in numbers, and the one that is chosen: by validation, or the knee."""
    from majorant.tradeoffs.choice import best_of
    from majorant.tradeoffs.dominance import knee, nondominated
    from majorant.tradeoffs.front import Front

    kept = nondominated([point.values for point in points])
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
        spread=front.spread() if len(front) > 2 else float("nan"),
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

    from majorant.app.config import build_algorithm
    from majorant.app.execute import model_meta

    run, data = config.as_run, problem.data
    _, algorithm = build_algorithm(run, data, data.clients, data)
    meta = model_meta(run, data, problem.encoding, config.seed)
    done = jnp.asarray(config.rounds, jnp.int32)
    server = algorithm.init(jax.random.key(config.seed))._replace(round=done, rounds=done)
    for place, point in enumerate(points):
        about = meta | {"point": place, "lambda": point.weight}
        save_tree(model_folder(folder, place), server._replace(value=point.params), about)
