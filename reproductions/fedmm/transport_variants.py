"""What Figure 3 compares: FedMM-OT, FedAdam and FedAvg on the transport problem, with the grids for their tuning."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import optax
from majorant_reproductions.fedmm import w2

import majorant as mj
from majorant.core import Algorithm, Key
from majorant.data.federated import FederatedData
from majorant.methods import best_response, gradient_play
from majorant.models.convex import dense_icnn
from majorant.solvers.schedules import cosine
from majorant.surrogates import BestResponse, transport_potentials
from majorant.surrogates.transport import Coordinates

RATE = 1e-3  # Adam's, of the benchmark; multiplied by the grid below
RATES = (0.5, 1.0, 2.0, 4.0, 8.0)  # times 1e-3
CYCLES = ((1.0, 1.0), (2.0, 1.0), (4.0, 1.0), (1.0, 10.0), (2.0, 10.0))  # a rate and λ
LOCAL_STEPS, INNER_STEPS = 5, 10


class Study(NamedTuple):
    """Everything in one dimension that pieces share."""

    benchmark: w2.Benchmark
    data: FederatedData
    batch: int
    seeds: int
    rounds: int
    folder: Path
    deadline: float
    tell: Callable[[str], None]
    tuning: int = 4  # points of a grid are tried for the rounds over this

    def left(self) -> float:
        """Seconds until the time is spent."""
        return self.deadline - time.monotonic()


class Variant(NamedTuple):
    """An algorithm, and the hyperparameters that it is tuned over."""

    algorithm: Algorithm
    grid: list[dict[str, float]]


def grid_of(loss: str, *names: str) -> list[dict[str, float]]:
    """Rates for the named hyperparameters together; where the loss has λ, that too."""
    if loss == "max-min":
        return [dict.fromkeys(names, rate) for rate in RATES]
    return [dict.fromkeys(names, rate) | {"cycle": weight} for rate, weight in CYCLES]


def problem(study: Study, loss: str, change: Coordinates | None = None) -> BestResponse:
    """The transport problem, with fresh samples of Q as public data."""

    def draw(key: Key) -> jax.Array:
        y = study.benchmark.target(key, study.batch)
        return y if change is None else change.reference_into(y).astype(y.dtype)

    return transport_potentials(dense_icnn(study.benchmark.dimension), draw, loss=loss)


def one_step(study: Study) -> Any:
    """A gradient step on a batch; Adam at the server does not see its rate."""
    return mj.local_sgd(0.01, steps=1, batch_size=study.batch)


def fedmm_ot(study: Study, loss: str = "max-min", change: Coordinates | None = None) -> Variant:
    """FedMM-OT."""
    options: dict[str, Any] = {"server": optax.adam(RATE), "inner": optax.adam(RATE), "inner_steps": INNER_STEPS}
    algorithm = best_response(problem(study, loss, change), local=one_step(study), schedule=cosine(), **options)
    return Variant(algorithm, grid_of(loss, "server_scale", "inner_scale"))


def fedadam(study: Study, loss: str) -> Variant:
    """FedAdam on both networks."""
    algorithm = gradient_play(problem(study, loss), local=one_step(study), server=optax.adam(RATE), schedule=cosine())
    return Variant(algorithm, grid_of(loss, "server_scale"))


def fedavg(study: Study, loss: str) -> Variant:
    """FedAvg: local steps of Adam, whose moments start anew in every round, and plain averages."""
    options: dict[str, Any] = {"steps": LOCAL_STEPS, "batch_size": study.batch, "keep_moments": False}
    local = mj.local_optax(optax.adam(RATE), schedule=cosine(), **options)
    return Variant(gradient_play(problem(study, loss), local=local, server=optax.sgd(1.0)), grid_of(loss, "lr_scale"))
