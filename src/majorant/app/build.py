"""A configuration, built: its data, model and algorithm, with every complaint before any compute is spent."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from majorant._once import once_for_each
from majorant.app import catalogue
from majorant.app._kinds import fit
from majorant.app.config import LocalConfig, RunConfig
from majorant.app.names import UnknownName, parse
from majorant.app.table_settings import OF_TABLES, TABLES

if TYPE_CHECKING:
    import numpy as np

    from majorant.core import Algorithm
    from majorant.data.federated import FederatedData
    from majorant.data.tabular import Encoding
    from majorant.exchange.federation import Federation
    from majorant.exchange.privacy import Privacy
    from majorant.models.base import Model
    from majorant.solvers import Solver


USUAL_RATE = 0.1  # the FedEM authors'


class Problem(NamedTuple):
    """A configuration, built."""

    data: FederatedData
    model: Model | None  # None for samples without labels
    algorithm: Algorithm
    exchange: dict[str, Any]  # who takes part, through which channel, who combines: as `simulate` takes them
    encoding: Encoding | None
    optimum: float | None = None  # the minimum of the objective, once it is found
    settings: RunConfig | None = None  # that all of it was built from; None: made by hand

    @property
    def federation(self) -> Federation:
        """The algorithm among the clients that train."""
        training = (~self.data.unseen).nonzero()[0]
        return federated(self.algorithm, self.exchange, training, self.data.train.sizes[training])


def check_names(config: RunConfig) -> None:
    """Complains about unknown names and options before anything is loaded."""
    catalogue.algorithms.check(config.algorithm)
    from majorant.engines.stopping import parse_bounds  # after a complaint about the name, which needs no JAX

    parse_bounds(config.until)
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
    elif config.reference:
        raise ValueError("reference is about the minimum of a personalized objective: give --objective as well")
    if config.model not in ("auto", "linear") and (solves or not catalogue.algorithms.takes(config.algorithm, "model")):
        owner = f"the objective {config.objective}" if solves else config.algorithm
        raise ValueError(f"{owner} has a linear model of its own, and would ignore {config.model}: leave model out")
    catalogue.participations.make(config.participation)
    exact = parse(config.local.optimizer)[0] in catalogue.exact_solvers
    for each in config.augment:
        catalogue.augmentations.check(each)
    if config.augment and (solves or exact or not catalogue.algorithms.takes(config.algorithm, "local")):
        owner = f"the solver {config.local.optimizer}" if exact else config.algorithm
        raise ValueError(f"{owner} reads samples as they are, and would ignore augment: leave it out")
    (catalogue.exact_solvers if exact else catalogue.optimizers).check(config.local.optimizer)
    for stage in config.channel:
        catalogue.stages.make(stage)
    check_privacy(config)
    if config.topology is not None:
        catalogue.topologies.check(config.topology)
    if config.combine is not None:
        check_combine(config.combine, config.topology)
    if config.attack is not None:
        catalogue.attacks.make(config.attack)
    if config.topology is None and config.scaling != "sizes":
        raise ValueError("scaling is about peers: give --topology as well")
    local_solver(config.local)
    parse_grid(config.grid)
    given = {"grid": config.grid, "halving": config.halving, "folds": config.folds is not None}
    alone = next((name for name, value in given.items() if value and not config.tune), None)
    if alone is not None:
        raise ValueError(f"{alone} goes with --tune: give both")
    if config.is_table:
        config.check_roles(labelled=not catalogue.needs_no_labels(config.algorithm))
    else:
        check_dataset(config.data)
        for name in OF_TABLES:
            if getattr(config, name) != RunConfig.model_fields[name].default:
                raise ValueError(f"{name} goes with a CSV or Parquet file, not with the data set {config.data!r}")


def check_dataset(data: str) -> None:
    """Complains about a name that no data set has; one of a folder or a file is probably meant to be a table."""
    try:
        catalogue.datasets.check(data)
    except UnknownName:
        if Path(data).is_dir():
            raise ValueError(f"{data} is a folder: give its files, as in '{Path(data) / '*.csv'}'") from None
        if Path(data).is_file():
            if data.lower().endswith(".npz"):
                raise ValueError(f"{data} holds arrays: give it as arrays:{data}") from None
            kinds = ", ".join(TABLES)
            raise ValueError(f"{data} is no table that can be read, whose names end in {kinds}: convert it") from None
        raise


def check_privacy(config: RunConfig) -> None:
    """Complains about budgets that mean nothing, and about what would spend privacy without being counted."""
    asked = privacy_of(config)
    if asked is not None:
        asked.check()
    if config.tune and config.hides:
        raise ValueError(
            "tune trains on the same clients many times, none of which is accounted for: choose the settings on public "
            "data, and give them"
        )


def privacy_of(config: RunConfig) -> Privacy | None:
    """The privacy that a configuration asks for."""
    from majorant.exchange.privacy import Privacy

    asked = {name: getattr(config, name) for name in ("epsilon", "delta", "amplification", "accountant")}
    given = {name: value for name, value in asked.items() if value is not None}
    return Privacy(rounds=config.rounds, **given) if given else None


def check_combine(combine: str, topology: str | None) -> None:
    """Refuses a rule of a server's for peers, and one of peers' for a server."""
    rule = catalogue.combinations.make(combine)
    if topology is None and rule.peers:
        raise ValueError(f"{combine} is for peers on a network: give --topology as well, or a server's rule")
    if topology is not None and not rule.peers:
        raise ValueError(f"{combine} is a server's rule, and peers have none: use self-centered-clip")


def parse_grid(texts: Sequence[str]) -> dict[str, list[float]]:
    """The values of hyperparameters to choose from.

    >>> parse_grid(["lr=0.01,0.1", "mu=1"])
    {'lr': [0.01, 0.1], 'mu': [1.0]}
    """
    found: dict[str, list[float]] = {}
    for text in texts:
        name, equals, values = text.partition("=")
        name = name.strip().replace("-", "_")
        try:
            if not name or not equals or name in found:
                raise ValueError
            found[name] = [fit(value.strip(), float) for value in values.split(",")]
        except ValueError:
            raise ValueError(f"--grid takes a name, once, and numbers: lr=0.01,0.1; got {text!r}") from None
    return found


def safe_rate(local: LocalConfig, model: Model, data: FederatedData | list[FederatedData] | int) -> float:
    """The learning rate as given; else 0.1, or as much less as a linear model's data, in any of its splits, is steep.

    With momentum μ, steps of (1 + μ)/L are half of what is stable, L being the smoothness of the steepest client's
    loss in minibatches of the size (`solvers.smoothness`).
    """
    from majorant.solvers.smoothness import curvature_of

    if local.lr is not None or isinstance(data, int) or local.optimizer != "sgd":
        return USUAL_RATE if local.lr is None else local.lr
    curvature, splits = curvature_of(model), data if isinstance(data, list) else [data]
    if curvature is None or not all(s.train.sizes[~s.unseen].sum() for s in splits):
        return USUAL_RATE
    steps = [step_on_training_samples(s, curvature, local.batch_size or None) for s in splits]
    rate = (1 + local.momentum) * min(steps)
    if rate >= USUAL_RATE:
        return USUAL_RATE
    warnings.warn(
        f"some clients' samples are so steep that the usual learning rate {USUAL_RATE:g} may diverge: {rate:.2g} is "
        "used; --lr gives another, --tune chooses one",
        stacklevel=2,
    )
    return rate


@once_for_each
def step_on_training_samples(data: FederatedData, curvature: float, batch_size: int | None) -> float:
    """A step size that is stable on every minibatch of the clients that train."""
    from majorant.solvers.smoothness import stable_step

    samples = data.train.take((~data.unseen).nonzero()[0])
    return stable_step(samples, curvature, batch_size, every_batch=True)


def local_solver(local: LocalConfig, lr: float | None = None) -> Solver:
    """What a client does between two communications; ``lr`` is for settings that leave the learning rate open."""
    from majorant.math.checks import check_range
    from majorant.solvers import local_optax, local_sgd

    schedule = catalogue.schedules.make(local.schedule)
    plan: dict[str, Any] = {
        "epochs": local.epochs,
        "steps": local.steps,
        "batch_size": local.batch_size or None,
        "schedule": schedule,
        "keep_moments": local.keep_moments,
        "clip": local.clip,
    }
    lr = (lr or USUAL_RATE) if local.lr is None else local.lr
    check_range("lr", lr, above=0)
    if local.sample_noise is not None:
        return private_solver(local, lr)
    if parse(local.optimizer)[0] in catalogue.exact_solvers:
        return catalogue.exact_solvers.make(local.optimizer)
    if parse(local.optimizer)[0] == "sgd":
        return local_sgd(lr, momentum=local.momentum, weight_decay=local.weight_decay, **plan)
    return local_optax(catalogue.optimizers.make(local.optimizer, lr), **plan)


def without_effect(given: Mapping[str, Any], config: RunConfig) -> list[str]:
    """Which of the settings ``given`` by flags change nothing: a local optimizer has them not, or nothing is sent."""
    optimizer = parse(config.local.optimizer)[0]
    unused = {"momentum", "weight_decay"} if optimizer != "sgd" else set()
    if optimizer in catalogue.exact_solvers:
        unused = set(LocalConfig.model_fields) - {"optimizer", "sample_noise"}
    found = [f"{name} has no effect: {optimizer} does not use it" for name in given if name in unused]
    sent = [name for name in ("channel", "combine", "epsilon") if given.get(name)]
    if parse(config.algorithm)[0] == "local":
        found += [f"{name} has no effect: local sends nothing" for name in sent]
    return found


def private_solver(local: LocalConfig, lr: float) -> Solver:
    """DP-SGD, with the settings that it takes; others are refused."""
    from majorant.solvers import local_private_sgd

    if local.clip is None:
        raise ValueError(
            "sample_noise without clip hides nothing: give --clip, the largest norm of a sample's gradient"
        )
    if local.optimizer != "sgd" or not local.batch_size or local.epochs is not None:
        raise ValueError("sample_noise goes with optimizer sgd, a batch size, and --steps in place of --epochs")
    return local_private_sgd(
        lr,
        noise=local.sample_noise or 0.0,
        clip=local.clip,
        batch_size=local.batch_size,
        steps=local.steps or 1,
        momentum=local.momentum,
        weight_decay=local.weight_decay,
        schedule=catalogue.schedules.make(local.schedule),
    )


def load_data(config: RunConfig) -> tuple[FederatedData, Encoding | None]:
    """The data of a configuration, and for a table how its columns became features."""
    if config.is_table:
        from majorant.app.named_tables import tell_facts
        from majorant.data import from_table
        from majorant.engines.hosts import several

        data, encoding = from_table(config.source, **config.table_options(), in_memory=not several())
        tell_facts(config.data)
        return in_precision(data, config.precision), encoding
    data = catalogue.datasets.make(config.data)
    data = data if config.unseen is None else data.with_unseen(config.unseen)
    return in_precision(data, config.precision), None


def splits_of(config: RunConfig, data: FederatedData) -> FederatedData | list[FederatedData]:
    """What the seeds of a run train on: of a table that is split at random, each on another split."""
    if config.seeds == 1 or not config.is_table or config.objective is not None or data.told:
        return data
    return [data, *(data.redrawn(config.split_seed + seed) for seed in range(1, config.seeds))]


def in_precision(data: FederatedData, precision: str) -> FederatedData:
    """The data with its floating-point numbers in double precision, where that is asked for."""
    import numpy as np

    from majorant.data.federated import PARTS

    if precision != "double":
        return data
    double = lambda a: a.astype(np.float64, copy=False) if np.issubdtype(a.dtype, np.floating) else a
    parts = {part: getattr(data, part) for part in PARTS}
    return replace(data, **{name: part._replace(x=double(part.x), y=double(part.y)) for name, part in parts.items()})


def build_algorithm(config: RunConfig, problem: Any, data: FederatedData | int) -> tuple[Model | None, Algorithm]:
    """Model and algorithm for a problem: data, or the spec that a saved model remembers, with the number of clients."""
    model, algorithm = made_algorithm(config, problem, data)
    if config.local.sample_noise is not None and algorithm.traits.sample_noise is None:
        raise ValueError(
            f"sample_noise promises nothing for {config.algorithm}: of fedavg, fedavg+ and fedprox alone it is known "
            "that messages depend on samples through noisy steps only. Use one of them, or protect clients by --epsilon"
        )
    return model, algorithm


def made_algorithm(config: RunConfig, problem: Any, data: FederatedData | int) -> tuple[Model | None, Algorithm]:
    """Model and algorithm, whatever noise is asked for."""
    if catalogue.needs_no_labels(config.algorithm):
        return None, catalogue.algorithms.make(config.algorithm, problem)
    if config.precision == "mixed" and config.objective is not None:
        raise ValueError("precision mixed is for models that are trained by steps, not for objectives: use double")
    model = named_model(problem, config.model, config.precision, config.augment)
    clients = data if isinstance(data, int) else data.clients
    given = parse(config.algorithm)[1].get("clients", clients)
    if str(given) != str(clients):
        raise ValueError(f"{config.algorithm}: the data has {clients} clients, not {given}. Leave clients out")
    if config.objective is None:
        whole = data if isinstance(data, int) or config.local.lr is not None else splits_of(config, data)
        local = local_solver(config.local, safe_rate(config.local, model, whole))
        return model, catalogue.algorithms.make(config.algorithm, model, local=local, clients=clients)
    objective = catalogue.objectives.make(
        config.objective, blank_data(problem, data) if isinstance(data, int) else data
    )
    if not objective.convex and parse(config.algorithm)[0] != "lsgd":
        raise ValueError(
            f"{config.algorithm} needs a convex objective, and {objective.name} is not: use lsgd with a step size, "
            "as in lsgd:lr=0.1"
        )
    return model, catalogue.algorithms.make(config.algorithm, objective)


@once_for_each
def named_model(problem: Any, name: str, precision: str, augment: tuple[str, ...]) -> Model:
    """A model by its name; methods that are compared on the same data share it, and what it makes of samples."""
    from majorant.models import mixed_precision

    model = catalogue.models.make(name, problem)
    model = mixed_precision(model) if precision == "mixed" else model
    for each in reversed(augment):  # the first one is the outermost: it meets the samples first
        model = catalogue.augmentations.make(each, model)
    return model


def build_exchange(config: RunConfig, topology: str | None = None) -> dict[str, Any]:
    """Who takes part, through which channel, and who combines; ``topology`` is in place of the configuration's."""
    from majorant.exchange import chain, gossip, star

    combine = None if config.combine is None else catalogue.combinations.make(config.combine)
    exchange: Any = None if combine is None else star(combine)
    if config.topology is not None:
        peers = catalogue.topologies.make(topology or config.topology)
        exchange = gossip(peers, scaling=config.scaling, combine=combine)
    stages = [catalogue.stages.make(stage) for stage in config.channel]
    return {
        "participation": catalogue.participations.make(config.participation),
        "channel": chain(*stages) if stages else None,
        "exchange": exchange,
        "attack": None if config.attack is None else catalogue.attacks.make(config.attack),
        "privacy": privacy_of(config),
    }


def federated(
    algorithm: Algorithm, exchange: dict[str, Any], training: np.ndarray, sizes: np.ndarray | None = None
) -> Federation:
    """An algorithm among the clients in the slots ``training``; combinations that cannot work are refused."""
    from majorant.exchange.federation import federation

    return federation(algorithm, training=training, sizes=sizes, **exchange)


def blank_data(spec: Any, clients: int) -> FederatedData:
    """Clients with a sample of zeros each: the shape of a problem whose data is elsewhere."""
    import numpy as np

    from majorant.data.federated import FederatedData, Ragged

    x, y = np.zeros((clients, *spec.features), np.float32), np.zeros(clients, np.int32 if spec.classes else np.float32)
    part, names = Ragged(x, y, np.arange(clients + 1)), tuple(map(str, range(clients)))
    return FederatedData(part, part, part, np.zeros(clients, bool), names, tuple(range(spec.classes)), "blank")


def check_devices(config: RunConfig) -> None:
    """Complains where there are fewer devices than are wanted."""
    from majorant.engines.mesh import devices_for

    devices_for(config.devices)


def build(config: RunConfig, data: FederatedData | None = None) -> Problem:
    """Everything that a run needs; ``data`` may be given where several runs share it."""
    from majorant.engines.programs import enable_compilation_cache

    enable_compilation_cache()  # single operations are compiled here, too
    with config.arithmetic():
        return build_problem(config, data)


def build_problem(config: RunConfig, data: FederatedData | None) -> Problem:
    """`build`, in the precision that is switched on."""
    from majorant.engines.memory import refuse_too_many_runs, refuse_unequal_sizes
    from majorant.engines.messages import message_shapes, tiny_client
    from majorant.engines.private_messages import refuse_unprotected
    from majorant.engines.stopping import needs_diagnostics, parse_bounds

    check_names(config)
    check_devices(config)
    encoding = None
    if data is None:
        data, encoding = load_data(config)
    data = in_precision(data, config.precision)
    model, algorithm = build_algorithm(config, data, data)
    refuse_unequal_sizes(algorithm, data)
    problem = Problem(data, model, algorithm, build_exchange(config), encoding, settings=config)
    federation = problem.federation
    if config.local != LocalConfig() and not catalogue.algorithms.takes(config.algorithm, "local"):
        warnings.warn(f"{config.algorithm} has its own local solver: lr, epochs and the like are ignored", stacklevel=2)
    if config.diagnostics and algorithm.diagnostics.measure is None:
        warnings.warn(f"{config.algorithm} does not say how it measures its convergence: no diagnostics", stacklevel=2)
    refuse_too_many_runs(algorithm, config.seeds)
    components = components_of(algorithm)
    if components > int(data.train.sizes.sum()):
        raise ValueError(f"{components} components for {data.train.sizes.sum()} training samples: use fewer")
    message_shapes(federation, tiny_client(data))  # complaints about the model come before a run exists
    refuse_unprotected(federation, data)
    if config.until:
        against = config.objective is not None and config.reference is not False
        needs_diagnostics(parse_bounds(config.until), federation, data, optimum_known=against)
    return problem


def components_of(algorithm: Algorithm) -> int:
    """How many components a mixture algorithm has, 0 for the others."""
    import jax

    if algorithm.deployment.mixture is None:
        return 0
    value = jax.eval_shape(algorithm.server.init, jax.random.key(0)).value
    return jax.tree.leaves(value)[0].shape[0]
