"""What is measured between two rounds: the scores of every client's own model, and how far a method has converged.

Both start from `released_view`, what clients would be sent of the server's state now. A model is made from training
samples alone; an unseen client joins with its own first.
"""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp

from majorant.core import (
    EVALUATION_STREAM,
    SERVER_STREAM,
    ClientData,
    Key,
    Server,
    Tree,
    Uploads,
    View,
    blockwise,
    blockwise_parts,
    client_key,
    masked_mean,
    round_key,
    stream_key,
)
from majorant.engines.client_part import Held
from majorant.engines.rounds import BucketData, map_clients
from majorant.exchange.federation import Federation
from majorant.metrics.scores import client_scores, sample_scores


def deployed_model(federation: Federation, view: View, key: Key, state: Tree, train: ClientData, unseen: bool) -> Tree:
    """The model that a client would deploy between two rounds."""
    algorithm, exchange = federation.algorithm, federation.exchange
    key = client_key(key, train.id)
    if unseen:
        view = exchange.newcomer(algorithm, view, jax.random.fold_in(key, 0))
        state = algorithm.join(view, train, key)
    else:
        view = exchange.seen(algorithm, view, train.slot)
    return algorithm.deploy(view, state, train, key)


def score_model(
    federation: Federation, classes: int, model: Tree, train: ClientData, validation: ClientData, test: ClientData
) -> dict[str, jax.Array]:
    """Mean losses and scores of a client's model on its own samples, and its mixture weights where it has some."""
    deployment = federation.algorithm.deployment
    parts = {"train": train, "validation": validation, "test": test}
    parts = {name: data for name, data in parts.items() if data.y.shape[0] > 0}  # the data may have no such part
    scores = {}
    if deployment.losses is not None:
        each = functools.partial(deployment.losses, model)
        for part, data in parts.items():
            loss = masked_mean(blockwise(each, data.x, data.y, size=data.size), data)
            scores[f"{part}_loss"] = scores[f"{part}_score"] = loss
    else:
        of_prediction = lambda model, x, y: sample_scores(deployment.predict(model, x), y, classes)
        scored = functools.partial(deployment.scores or of_prediction, model)
        samples = [(data.x, data.y) for data in parts.values()]
        found = blockwise_parts(scored, samples, [data.size for data in parts.values()])
        for (part, data), values in zip(parts.items(), found, strict=True):
            scores[f"{part}_loss"], scores[f"{part}_score"] = client_scores(values, data, classes)
    if deployment.mixture is not None:
        scores["pi"] = deployment.mixture(model)
    return scores


def evaluate_clients(
    federation: Federation,
    classes: int,
    server: Server,
    run_key: Key,
    clients: Held | None,
    data: BucketData,
    *,
    chunk: int,
) -> dict[str, jax.Array]:
    """The scores of every client of a bucket, ``(clients,)`` each, with the model it would deploy.

    Unseen ones, on which nothing is held, first join with their own training samples.
    """
    view, key = released_view(federation, server, run_key)
    unseen = clients is None
    if unseen:
        view = federation.exchange.everybody(view)

    def one(state: Tree, train: ClientData, validation: ClientData, test: ClientData) -> dict[str, jax.Array]:
        model = deployed_model(federation, view, key, state, train, unseen)
        return score_model(federation, classes, model, train, validation, test)

    return map_clients(one, chunk, () if clients is None else clients.state, data.train, data.validation, data.test)


def released_view(federation: Federation, server: Server, run_key: Key) -> tuple[View, Key]:
    """What clients would be sent of a server's state between two rounds, and the key of what is done with it."""
    key = round_key(run_key, server.round)
    view = federation.exchange.release(federation.algorithm, server, stream_key(key, SERVER_STREAM))
    return view, stream_key(key, EVALUATION_STREAM)


def measure_clients(
    federation: Federation,
    server: Server,
    run_key: Key,
    states: Tree,
    data: ClientData,
    real: jax.Array,
    *,
    chunk: int,
) -> tuple[Tree, jax.Array]:
    """What a method measures of its convergence on a bucket's clients, summed with the weights it gives them."""
    view, key = released_view(federation, server, run_key)
    diagnostics = federation.exchange.diagnostics(federation.algorithm)
    assert diagnostics.measure is not None
    measure = diagnostics.measure

    def one(state: Tree, data: ClientData, real: jax.Array) -> tuple[Tree, jax.Array]:
        measured = measure(view, state, data, client_key(key, data.id))
        weight = jnp.where(real, diagnostics.weight(data), 0).astype(jnp.result_type(float))
        return jax.tree.map(lambda v: weight.astype(v.dtype) * v, measured), weight

    return jax.tree.map(lambda a: a.sum(axis=0), map_clients(one, chunk, states, data, real))


def conclude(federation: Federation, server: Server, sums: tuple[Tree, jax.Array] | None) -> dict[str, jax.Array]:
    """Named scalars about the server's state and, where clients were measured, about convergence."""
    diagnostics = federation.exchange.diagnostics(federation.algorithm)
    found = diagnostics.log(server) if diagnostics.log is not None else {}
    if sums is not None:
        found = found | diagnostics.conclude(server, Uploads(*sums).mean())
    return found


def probe_client(
    federation: Federation, server: Server, run_key: Key, state: Tree, data: ClientData
) -> dict[str, jax.Array]:
    """What is too costly to measure on every client, on one."""
    diagnostics = federation.exchange.diagnostics(federation.algorithm)
    assert diagnostics.probe is not None
    view, key = released_view(federation, server, run_key)
    seen = federation.exchange.seen(federation.algorithm, view, data.slot)
    return diagnostics.probe(seen, state, data, client_key(key, data.id))
