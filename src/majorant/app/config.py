"""The configuration of a run: everything that decides its numbers, in one record that TOML files hold.

``build`` turns it into data, model and algorithm, and raises every complaint about it before any compute is spent.
"""

from __future__ import annotations

import contextlib
import tomllib
import warnings
import zlib
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from majorant.app import catalogue
from majorant.app.names import format_name, parse, parse_raw
from majorant.app.table_settings import TableSettings, check_roles, is_table, table_options

if TYPE_CHECKING:
    from majorant.core import Algorithm
    from majorant.data.federated import FederatedData
    from majorant.data.tabular import Encoding
    from majorant.exchange.participation import Participation
    from majorant.models.base import Model
    from majorant.solvers import Solver

Kind = TypeVar("Kind", bound="RunConfig")


class LocalConfig(BaseModel):
    """What a client does between two communications; the defaults are the FedEM authors' released settings."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    lr: float = Field(0.1, description="learning rate of the clients")
    epochs: int | None = Field(None, description="passes over a client's samples in a round (default 1)")
    steps: int | None = Field(None, description="minibatches in a round, drawn with replacement, instead of epochs")
    batch_size: int | None = Field(128, description="samples in a minibatch; 0 for all at once")
    momentum: float = Field(0.9, description="momentum of SGD")
    weight_decay: float = Field(5e-4, description="weight decay of SGD")
    schedule: str = Field("multi-step", description="learning rate over the rounds: constant, multi-step, cosine")
    optimizer: str = Field("sgd", description="sgd, an optax optimizer by name, or lbfgs, newton, least-squares")
    keep_moments: bool = Field(True, description="whether momentum stays with the client between rounds")

    def build(self) -> Solver:
        """The local solver."""
        from majorant.math.checks import check_range
        from majorant.solvers import local_optax, local_sgd

        schedule = catalogue.schedules.make(self.schedule)
        plan: dict[str, Any] = {
            "epochs": self.epochs,
            "steps": self.steps,
            "batch_size": self.batch_size or None,
            "schedule": schedule,
            "keep_moments": self.keep_moments,
        }
        check_range("lr", self.lr, above=0)
        if parse(self.optimizer)[0] in catalogue.exact_solvers:
            return catalogue.exact_solvers.make(self.optimizer)
        if parse(self.optimizer)[0] == "sgd":
            return local_sgd(self.lr, momentum=self.momentum, weight_decay=self.weight_decay, **plan)
        return local_optax(catalogue.optimizers.make(self.optimizer, self.lr), **plan)


class RunConfig(TableSettings):
    """One run: an algorithm on data, for some rounds, from one or more seeds."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    algorithm: str = Field(description="algorithm, with options after a colon: fedem:components=3")
    data: str = Field("synthetic", description="named data, with options, or the path of a CSV or Parquet file")
    objective: str | None = Field(
        None, description="personalized objective of lsgd, acd, asvrcd, …: mixture:lambda=0.1"
    )
    model: str = Field("auto", description="model, with options: mlp:hidden=64+32")
    rounds: int = Field(200, ge=1, description="communication rounds, at most")
    until: tuple[str, ...] = Field((), description="bounds that stop a run early: gradient_norm < 1e-6")
    seed: int = Field(0, ge=0, lt=1 << 32, description="first seed of the training's randomness")
    seeds: int = Field(1, ge=1, description="number of seeds, run side by side in one program")
    participation: str = Field("full", description="who takes part: full, uniform:0.2, bernoulli:0.2, cyclic:0.2")
    compression: str | None = Field(None, description="uploads in fewer bits: quantized:8, natural, random-k, top-k")
    topology: str | None = Field(None, description="no server, but peers on a network: ring, erdos-renyi:0.5")
    scaling: str = Field("sizes", description="displacements of peers: by their sizes, or none (the released code)")
    diagnostics: bool | None = Field(
        None, description="measure convergence at every evaluation (None: where there is an objective)"
    )
    reference: bool | None = Field(
        None, description="find the minimum of a convex objective, to measure against (None: where that is quick)"
    )
    precision: Literal["single", "double"] = Field("single", description="single or double: float32 or float64")
    evaluate_every: int | None = Field(None, ge=1, description="rounds between evaluations (default: 20 in a run)")
    unseen: float | None = Field(None, ge=0, lt=1, description="share of the clients kept away from training")
    client_column: str | None = Field(None, description="the column of a table that says whose a row is")
    label_column: str | None = Field(None, description="the column of a table that is predicted")
    task: str = Field("auto", description="classification, regression, or auto")
    drop: tuple[str, ...] = Field((), description="columns of a table that are left out")
    clients: str = Field("auto", description="how clients are batched: vmap, map (one at a time), auto")
    memory_budget: int | None = Field(None, ge=1, description="bytes within which clients must fit, else streamed")
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
        moved = {k: v for k, v in options.items() if k in LocalConfig.model_fields and k not in own}
        if not moved:
            return values
        local = values.get("local", {})
        given = local.model_dump() if isinstance(local, LocalConfig) else dict(local)
        parsed = {k: v for k, v in parse(values["algorithm"])[1].items() if k not in moved}
        return values | {
            "algorithm": format_name(name, parsed),
            "local": given | {str(k): v for k, v in moved.items()},
        }

    @field_validator("until", mode="before")
    @classmethod
    def one_bound_or_several(cls, value: Any) -> Any:
        """A single text stands for a list of one."""
        return (value,) if isinstance(value, str) else value

    @property
    def measures(self) -> bool:
        """Whether convergence is measured at every evaluation."""
        return self.objective is not None if self.diagnostics is None else self.diagnostics

    def arithmetic(self) -> contextlib.AbstractContextManager[Any]:
        """Double precision for the time of a ``with`` block, where this configuration asks for it."""
        import jax

        return jax.enable_x64(True) if self.precision == "double" else contextlib.nullcontext()

    @property
    def is_table(self) -> bool:
        """Whether the data is a file rather than a name."""
        return is_table(self.data)

    def differences(self, other: RunConfig) -> list[str]:
        """The settings in which two configurations differ, in words."""
        mine, theirs = flat(self.model_dump()), flat(other.model_dump())
        return [f"{k}: {mine[k]!r} against {theirs[k]!r}" for k in mine if mine[k] != theirs[k]]


class Problem(NamedTuple):
    """A configuration, built."""

    data: FederatedData
    model: Model
    algorithm: Algorithm
    participation: Participation
    encoding: Encoding | None
    optimum: float | None = None  # the minimum of the objective, once it is found


def check_names(config: RunConfig) -> None:
    """Complains about unknown names and options before anything is loaded."""
    from majorant.engines.stopping import parse_bounds

    parse_bounds(config.until)
    catalogue.algorithms.check(config.algorithm)
    catalogue.models.check(config.model)
    solves = catalogue.algorithms.takes(config.algorithm, "constants")
    if solves and config.objective is None:
        raise ValueError(
            f"{config.algorithm} minimises a personalized objective: give --objective, as in mixture:lambda=0.1"
        )
    if config.objective is not None:
        if not solves:
            raise ValueError(
                f"objective goes with lsgd, acd, asvrcd, ascd, svrcd, scd and l2sgd+, not with {config.algorithm}"
            )
        catalogue.objectives.check(config.objective)
    catalogue.participations.make(config.participation)
    exact = parse(config.local.optimizer)[0] in catalogue.exact_solvers
    (catalogue.exact_solvers if exact else catalogue.optimizers).check(config.local.optimizer)
    if config.compression is not None:
        catalogue.compressors.make(config.compression)
    if config.topology is not None:
        catalogue.topologies.check(config.topology)
    elif config.scaling != "sizes":
        raise ValueError("scaling is about peers: give --topology as well")
    config.local.build()
    if config.is_table:
        check_roles(config.model_dump())
    else:
        catalogue.datasets.check(config.data)
        for column in ("client_column", "label_column"):
            if getattr(config, column) is not None:
                raise ValueError(f"{column} goes with a CSV or Parquet file, not with the data set {config.data!r}")


def load_data(config: RunConfig) -> tuple[FederatedData, Encoding | None]:
    """The data of a configuration, and for a table how its columns became features."""
    if config.is_table:
        from majorant.data import from_table

        data, encoding = from_table(config.data, **table_options(config.model_dump()))
        return in_precision(data, config.precision), encoding
    data = catalogue.datasets.make(config.data)
    data = data if config.unseen is None else data.with_unseen(config.unseen)
    return in_precision(data, config.precision), None


def in_precision(data: FederatedData, precision: str) -> FederatedData:
    """The data with its floating-point numbers in double precision, where that is asked for."""
    import numpy as np

    from majorant.data.federated import PARTS

    if precision == "single":
        return data
    double = lambda a: a.astype(np.float64, copy=False) if np.issubdtype(a.dtype, np.floating) else a
    parts = {part: getattr(data, part) for part in PARTS}
    return replace(data, **{name: part._replace(x=double(part.x), y=double(part.y)) for name, part in parts.items()})


def build_algorithm(config: RunConfig, problem: Any, clients: int, nodes: Any) -> tuple[Model, Algorithm]:
    """Model and algorithm for a problem (data, or the spec that a saved model remembers).

    ``nodes`` are the peers of a network, where there is one: the data, or the number of its clients that train.
    """
    model = catalogue.models.make(config.model, problem)
    if config.objective is not None:
        algorithm = build_solver(config, problem, nodes)
    else:
        algorithm = catalogue.algorithms.make(config.algorithm, model, local=config.local.build(), clients=clients)
    if config.compression is not None:
        from majorant.exchange.compression import compressed

        algorithm = compressed(algorithm, catalogue.compressors.make(config.compression))
    if config.topology is not None:
        from majorant.exchange.gossip import gossip

        # A saved model is used without its network: newcomers need to know how many nodes there are, no more.
        topology = catalogue.topologies.make("ring" if isinstance(nodes, int) else config.topology)
        algorithm = gossip(algorithm, topology, nodes, scaling=config.scaling)
    return model, algorithm


def build_solver(config: RunConfig, problem: Any, nodes: Any) -> Algorithm:
    """A solver of a personalized objective, with steps from the data's own constants.

    A saved model is built without data: its steps are in its server's state, and any constants will do.
    """
    from majorant.data.federated import FederatedData
    from majorant.objectives import Constants

    known = isinstance(nodes, FederatedData)
    data = nodes if known else blank_data(problem, nodes)
    objective = catalogue.objectives.make(config.objective or "", data)
    constants: Constants | None = Constants(1.0, 1.0, 1.0, 1.0, 1.0)
    if not objective.convex and parse(config.algorithm)[0] != "lsgd":
        raise ValueError(
            f"{config.algorithm} needs a convex objective, and {objective.name} is not: use lsgd with a step size, "
            "as in lsgd:lr=0.1"
        )
    if known:
        constants = objective.constants(data) if objective.convex else None
    sizes = data.train.sizes[~data.unseen]
    share = catalogue.participations.make(config.participation).probability(len(sizes))
    return catalogue.algorithms.make(config.algorithm, objective, constants=constants, sizes=sizes, inclusion=share)


def blank_data(spec: Any, clients: int) -> FederatedData:
    """Clients with a sample of zeros each: the shape of a problem whose data is elsewhere."""
    import numpy as np

    from majorant.data.federated import FederatedData, Ragged

    x, y = np.zeros((clients, *spec.features), np.float32), np.zeros(clients, np.int32 if spec.classes else np.float32)
    part, names = Ragged(x, y, np.arange(clients + 1)), tuple(map(str, range(clients)))
    return FederatedData(part, part, part, np.zeros(clients, bool), names, tuple(range(spec.classes)), "blank")


def build(config: RunConfig, data: FederatedData | None = None) -> Problem:
    """Everything that a run needs; ``data`` may be given where several runs share it."""
    with config.arithmetic():
        return build_problem(config, data)


def build_problem(config: RunConfig, data: FederatedData | None) -> Problem:
    """`build`, in the precision that is switched on."""
    from majorant.engines.memory import message_shapes, refuse_absences, tiny_client
    from majorant.engines.stopping import needs_diagnostics, parse_bounds

    check_names(config)
    participation = catalogue.participations.make(config.participation)
    encoding = None
    if data is None:
        data, encoding = load_data(config)
    data = in_precision(data, config.precision)
    model, algorithm = build_algorithm(config, data, data.clients, data)
    refuse_absences(algorithm, participation, data)
    if config.local != LocalConfig() and not catalogue.algorithms.takes(config.algorithm, "local"):
        warnings.warn(f"{config.algorithm} has its own local solver: lr, epochs and the like are ignored", stacklevel=2)
    if config.diagnostics and algorithm.diagnosis is None:
        warnings.warn(f"{config.algorithm} does not say how it measures its convergence: no diagnostics", stacklevel=2)
    components = components_of(algorithm)
    if components > int(data.train.sizes.sum()):
        raise ValueError(f"{components} components for {data.train.sizes.sum()} training samples: use fewer")
    message_shapes(algorithm, tiny_client(data))  # complaints about the model come before a run exists
    if config.until:
        against = config.objective is not None and config.reference is not False
        needs_diagnostics(parse_bounds(config.until), algorithm, data, optimum_known=against)
    return Problem(data, model, algorithm, participation, encoding)


def components_of(algorithm: Algorithm) -> int:
    """How many components a mixture algorithm has, 0 for the others."""
    import jax

    if algorithm.mixture is None:
        return 0
    value = jax.eval_shape(algorithm.init, jax.random.key(0)).value
    return jax.tree.leaves(value)[0].shape[0 if algorithm.network is None else 1]


def fingerprint(data: FederatedData) -> str:
    """A short checksum of the data, so that a run is not resumed on other data."""
    import numpy as np

    checksum = 0
    for ragged in (data.train, data.validation, data.test):
        for array in (ragged.offsets, ragged.y, ragged.x):
            checksum = zlib.crc32(np.ascontiguousarray(array).data, checksum)
    return f"{zlib.crc32(data.unseen.tobytes(), checksum):08x}"


def network_fingerprint(algorithm: Algorithm) -> str:
    """A short checksum of a network's links and first weights, where there is one: a file of links may change."""
    import jax
    import numpy as np

    if algorithm.network is None:
        return ""
    network = algorithm.network().network
    checksum = zlib.crc32(np.ascontiguousarray(network.edges).data)
    for leaf in jax.tree.leaves(network.draw(jax.random.key(0), 1)):
        checksum = zlib.crc32(np.ascontiguousarray(leaf).data, checksum)
    return f"-{checksum:08x}"


def load_config(path: str | Path, **overrides: Any) -> RunConfig:
    """Reads a TOML file; ``overrides`` (None: not given) take precedence over it."""
    return make_config(read_settings(path), **overrides)


def read_settings(path: str | Path) -> dict[str, Any]:
    """The plain values in a TOML file."""
    try:
        return tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ValueError(f"there is no configuration file {path}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is not a valid TOML file: {error}") from None


def make_config(values: dict[str, Any], **overrides: Any) -> RunConfig:
    """A configuration from plain values; complaints name the setting and what it should be."""
    if "criteria" in values:
        raise ValueError("these are the settings of a front, not of a run: give them to majorant pareto")
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


def explain(error: ValidationError, kind: type[RunConfig] = RunConfig) -> str:
    """pydantic's complaints in one readable sentence each."""
    import difflib

    known = [*kind.model_fields, *LocalConfig.model_fields]
    lines = []
    for item in error.errors():
        where = ".".join(str(part) for part in item["loc"])
        if item["type"] == "extra_forbidden":
            name = str(item["loc"][-1])
            near = (
                [f"[local] {name}"] if name in LocalConfig.model_fields else difflib.get_close_matches(name, known, 1)
            )
            lines.append(f"there is no setting {where!r}" + (f"; did you mean {near[0]!r}?" if near else ""))
        elif item["type"] == "missing":
            lines.append(f"the setting {where!r} is missing")
        else:
            lines.append(f"{where}: {item['msg'][0].lower()}{item['msg'][1:]}, got {item['input']!r}")
    return "; ".join(lines)


def to_toml(config: RunConfig) -> str:
    """The configuration as a TOML file that `load_config` reads back."""
    values = config.model_dump(exclude_none=True)
    local = values.pop("local")
    section = lambda table: "".join(f"{k} = {toml_value(v)}\n" for k, v in table.items())
    batch = {} if config.local.batch_size else {"batch_size": 0}
    return f"{section(values)}\n[local]\n{section(local | batch)}"


def toml_value(value: Any) -> str:
    """A value in TOML: booleans, numbers, texts and lists of them."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(toml_value, value)) + "]"
    escaped = str(value).replace("\\", "\\\\").replace('"', '\\"')
    return '"' + "".join(c if c >= " " and c != "\x7f" else f"\\u{ord(c):04x}" for c in escaped) + '"'


def flat(values: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested settings under dotted names."""
    found: dict[str, Any] = {}
    for key, value in values.items():
        found |= flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {f"{prefix}{key}": value}
    return found
