"""The simulator: many clients, and whole experiments, on one machine.

``simulate`` says what a call asks for and refuses what cannot run; `simulation` runs it.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from majorant.core import Algorithm
from majorant.core.compilation import leave_out_tracebacks
from majorant.data.federated import FederatedData
from majorant.engines.divergence import OutlierWarning
from majorant.engines.hosts import explained_loss
from majorant.engines.memory import refuse_other_problem, refuse_unequal_sizes
from majorant.engines.mesh import devices_for
from majorant.engines.options import Evaluation, Resources
from majorant.engines.patience import check_validation
from majorant.engines.poisoning import poisoned
from majorant.engines.private_messages import refuse_unprotected
from majorant.engines.programs import enable_compilation_cache
from majorant.engines.replicas import data_sets
from majorant.engines.run import Run
from majorant.engines.settings import run_settings
from majorant.engines.simulation import Simulation
from majorant.engines.snapshots import Snapshot
from majorant.engines.stopping import Target, needs_diagnostics, parse_bounds
from majorant.exchange._stage import Stage
from majorant.exchange.attack import Attack
from majorant.exchange.federation import federation
from majorant.exchange.gossip import Gossip
from majorant.exchange.participation import Participation
from majorant.exchange.privacy import Privacy
from majorant.exchange.star import Star
from majorant.math.checks import check_whole


def simulate(
    algorithm: Algorithm,
    data: FederatedData | Sequence[FederatedData],
    *,
    rounds: int,
    seed: int = 0,
    seeds: int | Sequence[int] | None = None,
    hyper: Mapping[str, float | Sequence[float]] | None = None,
    grid: Mapping[str, Sequence[float]] | None = None,
    participation: Participation | None = None,
    channel: Stage | None = None,
    exchange: Star | Gossip | None = None,
    attack: Attack | None = None,
    privacy: Privacy | None = None,
    evaluation: Evaluation = Evaluation(),  # noqa: B008 - a plain record
    resources: Resources = Resources(),  # noqa: B008
    devices: int | None = None,
    resume: Snapshot | Callable[[Snapshot], Snapshot] | None = None,
) -> Run:
    """Trains an algorithm on federated data for a number of rounds and evaluates every client's own model.

    ``seeds`` (a number, counted up from ``seed``, or a list) and ``grid`` (values for hyperparameters, all
    combinations) run side by side in one program. ``hyper`` changes single hyperparameter values without recompiling; a
    sequence has a value for each run. ``data`` may be a sequence of data sets of the same shape: run i trains on the
    i-th, with a seed of its own (see `replicas`). ``participation`` says who takes part in a round, ``channel`` what
    happens to an upload on its way (`majorant.channel`), and ``exchange`` who combines uploads: a server, or peers
    (`majorant.gossip`). ``attack`` makes some clients hostile (`majorant.exchange.attack`); scores are then those of
    the honest clients. ``privacy`` is a budget that the channel's noise keeps to (`majorant.Privacy`). ``evaluation``
    says when models are evaluated, what is measured and when a run stops, ``resources`` how much memory it may take.
    ``devices`` is how many devices share clients or runs (the same as in ``resources``). A run that is resumed from a
    snapshot ends as if never interrupted.

    >>> import majorant as mj
    >>> data = mj.data.synthetic_mixture(clients=10, dimension=5, seed=0)
    >>> run = mj.simulate(mj.local(mj.models.linear(data)), data, rounds=3, seeds=2)
    >>> len(run), run.history[-1]["round"]
    (2, 3)
    >>> stop = mj.Evaluation(until="round >= 2")
    >>> mj.simulate(mj.local(mj.models.linear(data)), data, rounds=20, evaluation=stop).rounds
    2
    """
    exchanged: dict[str, Any] = {"participation": participation, "channel": channel, "exchange": exchange}
    several: dict[str, Any] = {"seed": seed, "seeds": seeds, "hyper": hyper, "grid": grid}
    resources = resources if devices is None else resources._replace(devices=devices)
    ran: dict[str, Any] = {"evaluation": evaluation, "resources": resources}
    simulation = planned(algorithm, data, rounds, attack=attack, privacy=privacy, **exchanged, **several, **ran)
    return carried_out(simulation, evaluation, resume)


def carried_out(
    simulation: Simulation,
    evaluation: Evaluation,
    resume: Snapshot | Callable[[Snapshot], Snapshot] | None = None,
) -> Run:
    """Runs what was planned."""
    with explained_loss():
        if resume is None:
            simulation.start()
        else:
            simulation.restore(resume)
        simulation.train(evaluation.rounds(simulation.rounds), evaluation.report)
        result = simulation.result()
    if simulation.outlier is not None:
        warnings.warn(simulation.remedy(), OutlierWarning, stacklevel=3)
    return result


def planned(
    algorithm: Algorithm,
    data: FederatedData | Sequence[FederatedData],
    rounds: int,
    *,
    seed: int = 0,
    seeds: int | Sequence[int] | None = None,
    hyper: Mapping[str, float | Sequence[float]] | None = None,
    grid: Mapping[str, Sequence[float]] | None = None,
    attack: Attack | None = None,
    privacy: Privacy | None = None,
    evaluation: Evaluation = Evaluation(),  # noqa: B008 - a plain record
    resources: Resources = Resources(),  # noqa: B008
    **exchanged: Any,
) -> Simulation:
    """What a call of `simulate` will run, before anything is compiled; what cannot run is refused."""
    check_whole("rounds", rounds)
    resources.check()
    devices_for(resources.devices)
    evaluation.rounds(rounds)
    found = data_sets(algorithm, data, seeds, grid, resources.state_folder)
    refuse_unequal_sizes(algorithm, found[0])
    refuse_other_problem(algorithm, found[0])
    training = np.flatnonzero(~found[0].unseen)
    privacy = privacy if privacy is None or privacy.rounds else privacy._replace(rounds=rounds)
    exchanged |= {"attack": attack, "privacy": privacy, "sizes": found[0].train.sizes[training]}
    together = federation(algorithm, training=training, **exchanged)
    refuse_unprotected(together, found[0])
    if together.hostile is not None:
        found = [poisoned(together.hostile, one) for one in found]
    seeds = len(found) if seeds is None and not isinstance(data, FederatedData) else seeds
    target = Target(parse_bounds(evaluation.until), evaluation.optimum)
    known = evaluation.optimum is not None
    diagnostics = evaluation.diagnostics | needs_diagnostics(target.bounds, together, found[0], optimum_known=known)
    enable_compilation_cache()
    leave_out_tracebacks()
    settings = run_settings(algorithm, seed, seeds, hyper, grid)
    if evaluation.patience is not None:
        check_validation(found[0], "patience")
    return Simulation(together, found, settings, rounds, resources, diagnostics, target, evaluation.patience)
