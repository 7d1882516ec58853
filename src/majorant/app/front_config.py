"""The configuration of a front: a sweep over λ, the weight of a coordinator's criteria beside the agents' losses."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from majorant.app import catalogue
from majorant.app._flags import Count, Flag, Texts
from majorant.app.build import check_names
from majorant.app.config import LocalConfig, RunConfig, read_settings, validated
from majorant.math.room import refuse_too_large

NOT_FOR_FRONTS = ("objective", "until", "patience", "tune", "grid", "halving", "folds", "seeds", "channel", "topology",
                  "scaling", "epsilon", "delta", "amplification", "accountant", "diagnostics", "reference",
                  "evaluate_every", "clients", "memory_budget")  # fmt: skip
Numbers = Annotated[tuple[float, ...], Field(strict=False)]  # files have lists
OF_SUMS = ("step", "agents")  # settings of one scalarization only
OF_CHEBYSHEV = ("mirror_rate", "memory", "output", "criteria_lr")
HIGHEST = 0.9  # the largest λ of an even grid


class PlainLocal(LocalConfig):
    """Plain gradient steps: weight decay would be a criterion that the front does not show."""

    momentum: Annotated[float, Flag("Training")] = Field(0.0, description="momentum of SGD; kinks need 0")
    weight_decay: Annotated[float, Flag("Training")] = Field(0.0, description="weight decay of SGD")
    schedule: Annotated[str, Flag("Training")] = Field(
        "constant", description="learning rate over the rounds: constant, multi-step or cosine"
    )


class FrontConfig(RunConfig):
    """A sweep over λ, the weight of a coordinator's criteria beside the agents' losses."""

    algorithm: Literal["weighted-sum"] = Field("weighted-sum", exclude=True)  # of runs; a front has a scalarization
    criteria: Annotated[Texts, Flag("Front", "--criterion")] = Field(
        (), description="what the coordinator wants small: squared-norm, l1:factor=0.1"
    )
    weights: Annotated[Numbers | None, Flag("Front")] = Field(
        None, description="the λ, at least 0 (the agents' loss alone) and less than 1: 0,0.25,0.5"
    )
    scalarization: Annotated[Literal["weighted-sum", "chebyshev"], Flag("Front")] = Field(
        "weighted-sum", description="how losses and criteria become one; chebyshev is by the worst agent's loss"
    )
    rounds: Annotated[Count, Flag("Training", "-r")] = Field(100, description="communication rounds for every λ")
    points: Annotated[Count | None, Flag("Front", default="8")] = Field(
        None, ge=2, description="so many λ from 0 to 0.9 instead of weights"
    )
    refine: Annotated[int, Flag("Front")] = Field(
        0, ge=0, lt=1 << 31, description="further λ, put where the front is sparse"
    )
    criteria_weights: Annotated[tuple[Numbers, ...], Flag("Front", default="equal"), Field(strict=False)] = Field(
        (), description="shares of several criteria, all λ for each: 0.8,0.2"
    )
    scale: Annotated[Literal["loss", "none"], Flag("Front")] = Field(
        "loss", description="loss: criteria count in units of the loss, so that λ from 0 to 0.9 suit; none: as they are"
    )
    ramp: Annotated[float | None, Flag("Front", default="0.25")] = Field(
        None, ge=0, lt=1, description="share of the rounds over which λ rises from 0 to its value"
    )
    mirror_rate: Annotated[float | None, Flag("Front", default="2")] = Field(
        None, gt=0, description="of chebyshev: how fast the worst get weight"
    )
    memory: Annotated[float | None, Flag("Front", default="0.9")] = Field(
        None, ge=0, le=1, description="of chebyshev: of past gaps, 1 keeps all"
    )
    output: Annotated[Literal["last", "average"] | None, Flag("Front", default="last")] = Field(
        None, description="of chebyshev: the model that is deployed, of the last round or the mean over all"
    )
    criteria_lr: Annotated[float | None, Flag("Front", default="as long as the agents' steps")] = Field(
        None, gt=0, description="of chebyshev: the coordinator's step in a round"
    )
    choose: Annotated[Literal["auto", "validation", "knee"], Flag("Front")] = Field(
        "auto", description="the point that is deployed at first"
    )
    step: Annotated[Literal["auto", "explicit", "implicit"], Flag("Front")] = Field(
        "auto", description="of weighted sums: auto is implicit where a criterion has a kink"
    )
    agents: Annotated[Literal["equal", "samples"], Flag("Front")] = Field(
        "equal", description="of weighted sums: agents count once each, or by their samples"
    )
    centralized: Annotated[bool, Flag("Front")] = Field(
        False, description="on convex problems: compare with a solve of all samples in one place"
    )
    local: PlainLocal = PlainLocal()

    @property
    def lambdas(self) -> list[float]:
        """The λ of the first sweep."""
        if self.weights is not None:
            return list(self.weights)
        last = (self.points or 8) - 1
        return [place * (HIGHEST / last) for place in range(last)] + [HIGHEST]

    @property
    def preferences(self) -> list[tuple[float, ...]]:
        """The different weights of the criteria, with each of which λ is swept."""
        equal = tuple(1 / len(self.criteria) for _ in self.criteria)
        return list(dict.fromkeys(self.criteria_weights)) or [equal]

    @property
    def method(self) -> dict[str, Any]:
        """What goes to `pareto_front` about the method, beside the scalarization and the local solver."""
        names = OF_SUMS if self.scalarization == "weighted-sum" else OF_CHEBYSHEV
        given = {name: getattr(self, name) for name in ("ramp", *names)}
        return {k: v for k, v in given.items() if v not in (None, "auto")}

    @property
    def as_run(self) -> RunConfig:
        """A run with these settings whose outcome is used as that of a front: one model for everybody."""
        values = {name: getattr(self, name) for name in RunConfig.model_fields if name not in ("algorithm", "local")}
        return RunConfig(algorithm="fedavg", local=LocalConfig(**self.local.model_dump()), **values)


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
    if config.local.sample_noise is not None:
        raise ValueError("sample_noise does not go with a front: its points train on the same samples, uncounted")
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
    models = (config.points or 1) + config.refine
    refuse_too_large(f"{models} points of a front", 4096 * models * max(1, len(config.criteria_weights)), "give fewer")
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
