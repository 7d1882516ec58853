"""The configuration of a run: everything that decides its numbers, in one record that TOML files hold.

A setting is described once, in a line here (those about data in `table_settings`): its type and range, the panel of the
help that shows its flag, its default, and what it means. Flags (`majorant.cli.options`), files and complaints are made
from these lines. A setting without `Flag` is for files only.
"""

from __future__ import annotations

import contextlib
import difflib
import tomllib
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import tomli_w
from pydantic import BaseModel, Field, ValidationError, field_validator, model_validator

from majorant.app import catalogue
from majorant.app._flags import STRICT, Count, Flag, Texts
from majorant.app._kinds import fit, shortened
from majorant.app.names import format_name, parse, parse_raw
from majorant.app.table_settings import TableSettings

WHERE = {"devices"}  # settings that change no numbers: a run goes on with others
Kind = TypeVar("Kind", bound=TableSettings)


class LocalConfig(BaseModel):
    """What a client does between two communications; the defaults are the FedEM authors' released settings."""

    model_config = STRICT

    lr: Annotated[float | None, Flag("Training", default="0.1, less for linear models where the data is steep")] = (
        Field(None, description="learning rate of the clients")
    )
    epochs: Annotated[Count | None, Flag("Training", default="1")] = Field(
        None, description="passes over a client's samples in a round"
    )
    steps: Annotated[Count | None, Flag("Training")] = Field(
        None, description="minibatches in a round, drawn with replacement, instead of epochs"
    )
    batch_size: Annotated[int | None, Flag("Training")] = Field(
        128, ge=0, lt=1 << 31, description="samples in a minibatch; 0 for all at once"
    )
    momentum: Annotated[float, Flag("Training")] = Field(0.9, description="momentum of SGD")
    weight_decay: Annotated[float, Flag("Training")] = Field(5e-4, description="weight decay of SGD")
    schedule: Annotated[str, Flag("Training")] = Field(
        "multi-step", description="learning rate over the rounds: constant, multi-step or cosine"
    )
    optimizer: Annotated[str, Flag("Training")] = Field(
        "sgd", description="local solver: sgd, an optax optimizer (adam), lbfgs, newton or least-squares"
    )
    keep_moments: bool = Field(True, description="whether momentum stays with the client between rounds")
    clip: Annotated[float | None, Flag("Training")] = Field(
        None, description="largest norm of a minibatch's gradient; longer ones are shortened"
    )

    sample_noise: Annotated[float | None, Flag("Privacy")] = Field(
        None, description="noise multiplier of DP-SGD, which protects single samples: needs --clip and --steps"
    )

    @field_validator("batch_size", mode="before")
    @classmethod
    def all_at_once(cls, value: Any) -> Any:
        """None and 0 mean the same, and files can say 0 only."""
        return 0 if value is None else value


class RunConfig(TableSettings):
    """One run: an algorithm on data, for some rounds, from one or more seeds."""

    algorithm: str = Field(description="algorithm, with options after a colon: fedem:components=3")
    objective: Annotated[str | None, Flag("Method")] = Field(
        None, description="personalized objective of lsgd, acd, asvrcd, …: mixture:lambda=0.1"
    )
    model: Annotated[str, Flag("Method", "-m")] = Field(
        "auto", description="model, with options: linear, mlp:hidden=64+32, cnn; auto is cnn for images, else linear"
    )
    augment: Annotated[Texts, Flag("Method")] = Field(
        (), description="what happens to images in training, in order, drawn anew in every pass: crop:4, flip"
    )
    rounds: Annotated[Count, Flag("Training", "-r")] = Field(200, description="communication rounds, at most")
    until: Annotated[Texts, Flag("Training")] = Field(
        (), description="bound that stops a run early: 'gradient_norm < 1e-6'; one of several is enough"
    )
    patience: Annotated[Count | None, Flag("Training", default="all rounds")] = Field(
        None, description="stop after this many evaluations without an improvement on validation samples; keep the best"
    )
    tune: Annotated[bool, Flag("Training")] = Field(
        False, description="choose hyperparameters on validation samples first, then train with them"
    )
    grid: Annotated[Texts, Flag("Training", default="lr and the method's own")] = Field(
        (), description="values to choose from: lr=0.01,0.1,1"
    )
    halving: Annotated[bool, Flag("Training")] = Field(
        False, description="tune by successive halving: continue with the better third of the values, and so on"
    )
    folds: Annotated[int | None, Flag("Training", default="where validation parts are small")] = Field(
        None, ge=0, description="tune by this many folds of training and validation samples; 0: by validation parts"
    )
    seed: Annotated[int, Flag("Training")] = Field(0, ge=0, lt=1 << 32, description="first seed of the training")
    seeds: Annotated[Count, Flag("Training")] = Field(
        1, description="number of seeds, side by side in one program; of a table each has another split"
    )
    participation: Annotated[str, Flag("Exchange")] = Field(
        "full", description="who takes part in a round: full, uniform:0.2, bernoulli:0.2 or cyclic:0.2"
    )
    channel: Annotated[Texts, Flag("Exchange", "--channel", "--compression")] = Field(
        (),
        description="what happens to uploads, in order: quantized:8, natural, random-k:0.1, top-k:0.1, clip:1.0",
    )
    topology: Annotated[str | None, Flag("Exchange")] = Field(
        None, description="no server, but peers on a network: ring, torus, erdos-renyi:0.5"
    )
    scaling: Annotated[Literal["sizes", "none"], Flag("Exchange")] = Field(
        "sizes", description="scale peers' displacements by their sizes, or none (the released code)"
    )
    combine: Annotated[str | None, Flag("Exchange", default="the weighted mean")] = Field(
        None, description="how uploads are combined: median, trimmed-mean:0.25, geometric-median, krum:0.2, …"
    )
    attack: Annotated[str | None, Flag("Exchange")] = Field(
        None, description="simulate an attack by a share of hostile clients: sign-flip:0.2, alie:0.2"
    )
    epsilon: Annotated[float | None, Flag("Privacy")] = Field(
        None,
        description="privacy budget: adds the noise that keeps to it, and stops training before it is exceeded",
    )
    delta: Annotated[float | None, Flag("Privacy", default="1e-5")] = Field(
        None, description="probability that the promise of privacy fails: less than one over the number of clients"
    )
    amplification: Annotated[bool | None, Flag("Privacy", default="where a theorem holds")] = Field(
        None, description="claim that drawing clients at random hides them further, or claim none"
    )
    accountant: Annotated[Literal["pld", "rdp"] | None, Flag("Privacy", default="the tighter one")] = Field(
        None, description="how privacy loss is added up: privacy loss distributions or Rényi divergences"
    )
    diagnostics: Annotated[bool | None, Flag("Training", default="where there is an objective")] = Field(
        None, description="measure convergence at every evaluation"
    )
    reference: Annotated[bool | None, Flag("Training", default="where it is quick")] = Field(
        None, description="find the minimum of a convex objective, to measure against"
    )
    precision: Annotated[Literal["single", "double", "mixed"], Flag("Training")] = Field(
        "single", description="bits: 32 or 64; mixed: arithmetic of 16 on parameters of 32"
    )
    evaluate_every: Annotated[Count | None, Flag("Training", default="a twentieth of the rounds")] = Field(
        None, description="rounds between evaluations"
    )
    clients: Literal["auto", "vmap", "map"] = Field(
        "auto", description="how clients are batched: vmap, map (one at a time), auto"
    )
    memory_budget: int | None = Field(
        None, ge=1, lt=1 << 63, description="bytes within which clients must fit, else they are streamed"
    )
    devices: Annotated[Count | None, Flag("Training", default="1, or a CPU's cores")] = Field(
        None, description="how many GPUs, or other devices, share clients and runs"
    )
    local: LocalConfig = LocalConfig()

    @model_validator(mode="before")
    @classmethod
    def local_options_of_the_algorithm(cls, values: Any) -> Any:
        """``fedavg:lr=0.03`` sets a local option as well as those of the algorithm itself."""
        if not isinstance(values, dict) or not isinstance(values.get("algorithm"), str):
            return values
        name, options = parse_raw(values["algorithm"])
        if name not in catalogue.algorithms:
            return values
        own = {o.name for o in catalogue.algorithms.options(name)}
        moved = {str(k): v for k, v in options.items() if k in LocalConfig.model_fields and k not in own}
        if not moved:
            return values
        local = values.get("local", {})
        given = local.model_dump() if isinstance(local, LocalConfig) else dict(local)
        for key, text in moved.items():
            try:
                given[key] = fit(text, LocalConfig.model_fields[key].annotation)
            except ValueError as error:
                raise ValueError(f"option {key!r} of algorithm {name!r} {error}") from None
        kept = {k: v for k, v in parse(values["algorithm"])[1].items() if k not in moved}
        return values | {"algorithm": format_name(name, kept), "local": given}

    @model_validator(mode="before")
    @classmethod
    def compression_is_a_channel(cls, values: Any) -> Any:
        """``compression``, as version 0.1 had it, is a channel of one stage."""
        if not isinstance(values, dict) or "compression" not in values:
            return values
        rest = {key: value for key, value in values.items() if key != "compression"}
        if values["compression"] is None:
            return rest
        if rest.get("channel"):
            raise ValueError("compression is called channel now: give channel alone")
        return rest | {"channel": values["compression"]}

    @field_validator("until", "channel", "grid", "augment", mode="before")
    @classmethod
    def one_or_several(cls, value: Any) -> Any:
        """A single text stands for a list of one."""
        return (value,) if isinstance(value, str) else value

    @property
    def measures(self) -> bool:
        """Whether convergence is measured at every evaluation."""
        return self.objective is not None if self.diagnostics is None else self.diagnostics

    @property
    def hides(self) -> bool:
        """Whether clients are hidden by noise."""
        noisy = self.local.sample_noise is not None or any(
            parse_raw(stage)[0] in catalogue.NOISES for stage in self.channel
        )
        return noisy or any(value is not None for value in (self.epsilon, self.delta, self.amplification))

    def arithmetic(self) -> contextlib.AbstractContextManager[Any]:
        """Double precision for the time of a ``with`` block, where this configuration asks for it."""
        import jax

        return jax.enable_x64(True) if self.precision == "double" else contextlib.nullcontext()

    def differences(self, other: RunConfig) -> list[str]:
        """The settings in which two configurations differ, in words; where they run makes no difference."""
        mine, theirs = flat(self.model_dump(exclude=WHERE)), flat(other.model_dump(exclude=WHERE))
        return [f"{k}: {mine[k]!r} against {theirs[k]!r}" for k in mine if mine[k] != theirs[k]]


def load_config(path: str | Path, **overrides: Any) -> RunConfig:
    """Reads a TOML file; ``overrides`` (None: not given) take precedence over it."""
    return make_config(read_settings(path), **overrides)


def read_settings(path: str | Path) -> dict[str, Any]:
    """The plain values in a TOML file."""
    try:
        return tomllib.loads(Path(path).read_text(encoding="utf-8-sig"))  # Windows may put a mark in front
    except FileNotFoundError:
        raise ValueError(f"there is no configuration file {path}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"{path} is not a valid TOML file: {error}") from None


def make_config(values: dict[str, Any], **overrides: Any) -> RunConfig:
    """A configuration from plain values; complaints name the setting and what it should be."""
    if "criteria" in values:
        raise ValueError("these are the settings of a front, not of a run: give them to majorant pareto")
    values = {name: value for name, value in values.items() if name != "flower"}  # of a network, which is not here
    return validated(RunConfig, values, overrides)


def validated(kind: type[Kind], values: dict[str, Any], overrides: dict[str, Any]) -> Kind:
    """A configuration of some kind from plain values, over which go ``overrides`` that are not None."""
    given = {k: v for k, v in overrides.items() if v is not None}
    local = {k: given.pop(k) for k in list(given) if k in LocalConfig.model_fields}
    nested = values.get("local", {})
    if not isinstance(nested, dict):
        raise ValueError("[local] must be a table of settings")
    merged = values | given | ({"local": nested | local} if nested or local else {})
    try:
        return kind.model_validate(merged)
    except ValidationError as error:
        raise ValueError(explain(error, kind)) from None


def explain(error: ValidationError, kind: type[TableSettings]) -> str:
    """pydantic's complaints in one readable sentence each."""
    return explain_settings(error, [*kind.model_fields, *LocalConfig.model_fields])


def explain_settings(error: ValidationError, known: list[str]) -> str:
    """`explain`, where the settings of these names are known."""
    lines = []
    for item in error.errors():
        where = ".".join(str(part) for part in item["loc"])
        if item["type"] == "extra_forbidden":
            name = str(item["loc"][-1])
            near = (
                [f"[local] {name}"]
                if name in LocalConfig.model_fields and name in known
                else difflib.get_close_matches(name, known, 1)
            )
            lines.append(f"there is no setting {where!r}" + (f"; did you mean {near[0]!r}?" if near else ""))
        elif item["type"] == "missing":
            lines.append(f"the setting {where!r} is missing")
        elif item["type"] == "value_error":
            lines.append(str(item["ctx"]["error"]))
        else:
            lines.append(f"{where}: {item['msg'][0].lower()}{item['msg'][1:]}, got {shortened(repr(item['input']))}")
    return "; ".join(lines)


def to_toml(config: RunConfig) -> str:
    """The configuration as a TOML file that `load_config` reads back."""
    return tomli_w.dumps(config.model_dump(exclude_none=True))


def flat(values: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested settings under dotted names."""
    found: dict[str, Any] = {}
    for key, value in values.items():
        found |= flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {f"{prefix}{key}": value}
    return found
