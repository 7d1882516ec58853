"""Before round 1: the server, what is on every client, and the set-up question."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from majorant.core import (
    SERVER_STREAM,
    Answer,
    ClientData,
    Key,
    Server,
    View,
    all_finite,
    beside,
    client_key,
    collectives,
    round_key,
    stream_key,
    weighted_sum,
)
from majorant.core.collectives import Axis
from majorant.core.trees import stack_rows
from majorant.engines.client_part import Held, as_sent
from majorant.engines.rounds import map_clients
from majorant.exchange._stage import numbers_of
from majorant.exchange.federation import Federation


def start_server(
    federation: Federation, training: int, run_key: Key, hyper: dict[str, jax.Array], planned: jax.Array
) -> Server:
    """The server before round 1, with the given hyperparameters in place of the algorithm's own."""
    server = federation.exchange.start(federation.algorithm, stream_key(round_key(run_key, 0), SERVER_STREAM))
    values = {name: hyper.get(name, value) for name, value in server.hyper.items()}
    return server._replace(
        hyper=values,
        round=jnp.zeros((), jnp.int32),
        rounds=planned,
        terms=federation.terms(training),
        channel=federation.far_end.news() if federation.adds_payloads else (),
    )


def start_client(federation: Federation, view: View, key: Key, data: ClientData) -> tuple[Held, Answer | None]:
    """What is on a client before its first round, and its answer to the set-up question."""
    seen = federation.exchange.seen(federation.algorithm, view, data.slot)
    return first_held(federation, seen, client_key(key, data.id), data)


def first_held(federation: Federation, seen: View, own: Key, data: ClientData) -> tuple[Held, Answer | None]:
    """`start_client`, from what the client is sent and its own key."""
    algorithm, channel = federation.algorithm, federation.channel
    state = algorithm.client.init(seen, data, own)
    memory = () if channel is None else channel.memory(numbers_of(algorithm.client.origin(seen)))
    if federation.hostile is not None and federation.hostile.attack.delay:
        again = lambda v: jnp.broadcast_to(v, (federation.hostile.attack.delay, *v.shape))
        memory = memory, jax.tree.map(again, algorithm.client.origin(seen))
    answer = federation.exchange.ask(algorithm, seen, state, data, own)
    if answer is not None and federation.hides:  # how many samples each has would be told otherwise
        answer = answer._replace(weight=jnp.ones_like(answer.weight))
    if channel is not None and channel.secure is not None:
        weight = as_sent(federation, algorithm.client.update(seen, state, data, own)[0]).weight
        plain = Answer((), jnp.zeros(())) if answer is None else answer
        answer = plain._replace(largest=(plain.largest, jnp.asarray(weight, jnp.result_type(float))))
    return Held(state, memory), answer


def start_clients(
    federation: Federation, server: Server, run_key: Key, data: ClientData, real: jax.Array, chunk: int
) -> tuple[Held, Any]:
    """What is on a bucket's clients before round 1, and their answers to the set-up question.

    Answers that are not finite are left out. They are summed, or kept by slot where the method reads each.
    """
    key = round_key(run_key, 0)
    view = federation.exchange.broadcast(federation.algorithm, server, stream_key(key, SERVER_STREAM))
    clients, answers = map_clients(functools.partial(start_client, federation, view, key), chunk, data)
    if answers is None:
        return clients, None
    usable = real & jax.vmap(all_finite)(answers)
    mask = lambda a, other=0: jnp.where(beside(usable, a), a, other)
    largest = jax.tree.map(lambda a: mask(a, -jnp.inf).max(axis=0), answers.largest)
    value, weight = jax.tree.map(mask, (answers.value, answers.weight))
    if federation.algorithm.traits.reads == "each":
        return clients, Answer(value, weight, largest)
    return clients, Answer(jax.tree.map(functools.partial(weighted_sum, weight), value), weight.sum(), largest)


def finish_start(
    federation: Federation,
    server: Server,
    answers: Sequence[Any],
    slots: Sequence[jax.Array],
    clients: int,
    axis: Axis = None,
) -> Server:
    """The server after the set-up question, where there is one, from the answers of all buckets and devices."""
    if not answers or answers[0] is None:
        return server
    largest = jax.tree.map(lambda *parts: functools.reduce(jnp.maximum, parts), *(a.largest for a in answers))
    parts = [(a.value, a.weight) for a in answers]
    if federation.algorithm.traits.reads == "each":
        value, weight = stack_rows(parts, slots, clients)
    else:
        value, weight = jax.tree.map(lambda *leaves: sum(leaves[1:], leaves[0]), *parts)
    (value, weight), largest = collectives.total((value, weight), axis), collectives.highest(largest, axis)
    if federation.channel is not None and federation.channel.secure is not None:
        largest, heaviest = largest
        server = server._replace(terms=server.terms._replace(largest_weight=heaviest))
    return federation.exchange.answered(federation.algorithm, server, Answer(value, weight, largest))
