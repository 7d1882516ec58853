"""FedEM with linear components on grouped rows: small data in padded programs without evaluation, large by `simulate`.

Small data is what fits into `SMALL` numbers after padding. It runs in the engine's own start and block programs, for
shapes that other data shares, so a fit to a fold or to a resampled set compiles nothing new; features are padded with
zeros, whose weights are set to zero at the start and stay there. Both ways give the same numbers, up to rounding.
"""

from __future__ import annotations

import functools
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from majorant.core import Algorithm
from majorant.data.federated import FederatedData, Ragged
from majorant.engines.divergence import Diverged
from majorant.engines.population import Bucket
from majorant.engines.programs import Layout, enable_compilation_cache
from majorant.engines.resident import positions, programs
from majorant.engines.rounds import BucketData, State
from majorant.engines.simulator import simulate
from majorant.estimators.base import Grouped, padded, padded_size, precision_of
from majorant.exchange.federation import Federation
from majorant.exchange.participation import full, uniform
from majorant.methods.fedem import fedem
from majorant.models import Spec, linear
from majorant.solvers import local_sgd

SMALL = 1 << 22  # numbers: 16 MB of features


class Plan(NamedTuple):
    """How a mixture is trained."""

    components: int
    rounds: int
    lr: float
    epochs: int
    batch_size: int | None
    share: float  # of the clients, that take part in a round
    seed: int


class Trained(NamedTuple):
    """A trained mixture, as plain arrays."""

    weight: np.ndarray  # (M, d, k)
    bias: np.ndarray  # (M, k)
    pi: np.ndarray  # (clients, M)
    history: list[dict[str, float]]


def train(data: Grouped, classes: int, plan: Plan) -> Trained:
    """Trains on rows of float32 with labels as codes (0 classes: regression)."""
    enable_compilation_cache()
    with precision_of(data.samples.x):
        return (train_small if padded_size(data.samples) <= SMALL else train_large)(data.samples, classes, plan)


@functools.lru_cache(maxsize=32)
def algorithm_for(spec: Spec, components: int, epochs: int, batch_size: int | None) -> Algorithm:
    """One object for each set of options, as compiled programs are remembered by it; the learning rate is an input."""
    return fedem(linear(spec), components=components, local=local_sgd(epochs=epochs, batch_size=batch_size))


def train_large(samples: Ragged, classes: int, plan: Plan) -> Trained:
    """By the simulator, within its memory budget."""
    clients = len(samples.sizes)
    none = Ragged(samples.x[:0], samples.y[:0], np.zeros(clients + 1, np.int64))
    names, codes = tuple(map(str, range(clients))), tuple(range(classes))
    data = FederatedData(samples, none, none, np.zeros(clients, bool), names, codes)
    algorithm = algorithm_for(data.spec, plan.components, plan.epochs, plan.batch_size)
    taking_part = full() if plan.share == 1 else uniform(plan.share)
    run = simulate(
        algorithm, data, rounds=plan.rounds, seed=plan.seed, hyper={"lr": plan.lr}, participation=taking_part
    )
    history = [{"round": line["round"], "loss": line["loss"]} for line in run.history]
    return trained(run.server.value, run.snapshot.clients.pi[0], history)


def train_small(samples: Ragged, classes: int, plan: Plan) -> Trained:
    """By programs for padded shapes, without evaluations."""
    clients, features = len(samples.sizes), samples.x.shape[1]
    stacked = padded(samples)
    count, rows, width = stacked.x.shape
    algorithm = algorithm_for(Spec((width,), classes), plan.components, plan.epochs, plan.batch_size)
    everyone = plan.share == 1
    training = count if everyone else clients  # who takes part is drawn among the real clients
    layout = Layout((count,), (count,), (), training, count, classes, everyone)
    engine = programs(Federation(algorithm, full() if everyone else uniform(plan.share)), layout)
    nothing = stacked._replace(x=stacked.x[:, :0], y=stacked.y[:, :0])
    (places,) = positions([Bucket(np.asarray(stacked.id), rows, 0, 0, count)])
    bucket = BucketData(stacked, nothing, nothing, places, np.asarray(stacked.id) >= 0)  # type: ignore[arg-type]
    data = (jax.device_put(bucket),)
    keys, seconds = jax.random.key(np.uint32(plan.seed))[None], {"compile": 0.0}
    planned = jnp.int32(plan.rounds)
    hyper = {"lr": jnp.full(1, plan.lr)}
    state = without_padding(engine.start(seconds, keys, hyper, planned, data), features, width)
    history, every, done = [], max(1, plan.rounds // 20), 0
    while done < plan.rounds:
        block = min(every, plan.rounds - done)
        state, tally = engine.block(seconds, state, keys, jnp.int32(block), data)
        done += block
        if tally.fruitless[0] > 0:
            raise Diverged(
                f"the components diverged: at round {done} most clients' updates were infinite or NaN. Lower "
                f"learning_rate (now {plan.lr:g}), or standardise the features"
            )
        history.append({"round": done, "loss": float(tally.info["loss"][0] / tally.weight[0])})
    value = jax.tree.map(lambda a: np.asarray(a)[0], state.server.value)
    value = [layer | {"weight": layer["weight"][:, :features]} for layer in value]
    return trained(value, np.asarray(state.clients[0].state.pi)[0, :clients], history)


def without_padding(state: State, features: int, width: int) -> State:
    """The starting point that a model of the real features has: padded ones have weight 0, and bounds are 1/√d."""
    scale = np.float32(math.sqrt(width / features))
    real = np.arange(width)[:, None] < features
    change = lambda layer: {"weight": np.where(real, layer["weight"] * scale, 0), "bias": layer["bias"] * scale}
    value = [jax.tree.map(jnp.asarray, change(jax.tree.map(np.asarray, layer))) for layer in state.server.value]
    return state._replace(server=state.server._replace(value=value))


def trained(value: Any, pi: Any, history: list[dict[str, float]]) -> Trained:
    """What is kept of a run."""
    (layer,) = value
    double = lambda a: np.asarray(a, np.float64)
    weights = double(pi)
    return Trained(double(layer["weight"]), double(layer["bias"]), weights / weights.sum(1, keepdims=True), history)
