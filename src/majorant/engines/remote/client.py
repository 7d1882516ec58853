"""A client's side of the rounds: programs on its own samples and state, from what it is sent and its own key."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from majorant.core import ClientData, Key, Tree, View
from majorant.core.compilation import jit
from majorant.data.federated import FederatedData, Ragged
from majorant.engines.client_part import Held, Leaving, client_part
from majorant.engines.deployment import default_float
from majorant.engines.evaluation import score_model
from majorant.engines.set_up import first_held
from majorant.exchange.federation import Federation


class Own(NamedTuple):
    """A client's samples, by part."""

    train: ClientData
    validation: ClientData
    test: ClientData


def own_samples(data: FederatedData, slot: int) -> Own:
    """The samples of data with one client, which has a place among all clients."""
    parts = (data.train, data.validation, data.test)
    return Own(*(one_client(part, slot, least=int(part is data.train)) for part in parts))


def one_client(part: Ragged, slot: int, least: int = 0) -> ClientData:
    """A client's samples as they are, with a row of padding where a program would see an empty array."""
    x, y = part.x, part.y
    size, more = len(x), max(least - len(x), 0)
    x = np.concatenate([x, np.zeros((more, *x.shape[1:]), x.dtype)])
    y = np.concatenate([y, np.zeros(more, y.dtype)])
    place = jnp.int32(slot)
    return ClientData(default_float(x), default_float(y), jnp.int32(size), place, place)


class Programs(NamedTuple):
    """What a client computes."""

    start: Any  # view, key, samples -> what it holds, its answer to the set-up question
    update: Any  # view, key, what it holds, samples -> what leaves it
    model: Any  # view, key, state, samples -> its model
    join: Any  # view, key, samples -> the model of one that did not take part in training
    scores: Any  # model, samples -> mean losses and scores by part
    measure: Any  # view, key, state, samples -> what the method measures of its convergence, weighted; its weight


@functools.lru_cache(maxsize=8)
def programs(federation: Federation, classes: int) -> Programs:
    """The programs of a federation's clients."""
    algorithm = federation.algorithm
    diagnostics = federation.exchange.diagnostics(algorithm)

    def start(seen: View, own: Key, data: ClientData) -> Any:
        return first_held(federation, seen, own, data)

    def update(seen: View, own: Key, held: Held, data: ClientData) -> Leaving:
        return client_part(federation, seen, own, held, data)

    def model(seen: View, own: Key, state: Tree, data: ClientData) -> Tree:
        return algorithm.deploy(seen, state, data, own)

    def join(seen: View, own: Key, data: ClientData) -> Tree:
        view = federation.exchange.newcomer(algorithm, seen, jax.random.fold_in(own, 0))
        return algorithm.deploy(view, algorithm.join(view, data, own), data, own)

    def scores(model: Tree, data: Own) -> dict[str, jax.Array]:
        return score_model(federation, classes, model, *data)

    def measure(seen: View, own: Key, state: Tree, data: ClientData) -> Any:
        assert diagnostics.measure is not None
        weight = jnp.asarray(diagnostics.weight(data), jnp.result_type(float))
        measured = diagnostics.measure(seen, state, data, own)
        return jax.tree.map(lambda v: weight.astype(v.dtype) * v, measured), weight

    return Programs(jit(start), jit(update), jit(model), jit(join), jit(scores), jit(measure))
