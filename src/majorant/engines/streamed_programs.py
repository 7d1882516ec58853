"""The programs of the streamed engine: the pieces of a round, each for one chunk of clients."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from majorant.core import Answer, ClientData, Key, Server, View, collectives
from majorant.engines import evaluation, rounds, set_up, turns
from majorant.engines.client_part import Held
from majorant.engines.mesh import CLIENT, HELD, RUN, SAME, program, server_spec, view_spec
from majorant.engines.programs import RUNS, SEEDS, Layout, Program, over_runs
from majorant.engines.rounds import BucketData
from majorant.engines.tally import Sums, Tally, merged, of_all_devices
from majorant.exchange.federation import Federation


class Programs(NamedTuple):
    """The pieces of a round, each for one chunk of clients."""

    start_server: Program
    start_clients: Program
    finish_start: Program
    begin: Program
    clients: Program
    add: Program
    end: Program
    evaluate: Program
    measure: Program
    conclude: Program


@functools.lru_cache(maxsize=32)
def programs(federation: Federation, layout: Layout) -> Programs:
    """Builds the programs of a federation and remembers them."""
    axis, each = layout.axis, federation.algorithm.traits.reads == "each"

    def start_clients(server: Server, key: Key, b: BucketData) -> Any:
        clients, answers = set_up.start_clients(federation, server, key, b.train, b.real, b.real.shape[0])
        if answers is None:
            return clients, None, None
        own = tuple(answers[:2])
        return clients, own if each else collectives.total(own, axis), collectives.highest(answers.largest, axis)

    def finish_start(server: Server, own: Any, largest: Any, slots: Any) -> Server:
        answers = [Answer(value, weight, most) for (value, weight), most in zip(own, largest, strict=True)]
        return set_up.finish_start(federation, server, answers, slots, layout.clients, axis if each else None)

    def begin(server: Server, key: Key) -> Any:
        view, key_of_round = rounds.begin_round(federation, server, key)
        return view, key_of_round, turns.who_takes_part(federation, server, key, layout.training)

    def clients(view: View, key: Key, clients: Held, data: ClientData, active: jax.Array) -> Any:
        sums, clients, sent = rounds.chunk_pass(federation, view, key, clients, data, active)
        return of_all_devices(sums, axis), clients, sent

    def end(server: Server, view: View, key: Key, sums: Sums, sent: Any, slots: Any, tally: Tally) -> Any:
        stack = federation.exchange.stacked(sent, slots, layout.clients, axis) if sent else None
        return rounds.end_round(federation, server, view, key, sums, stack, tally)

    def evaluate(server: Server, key: Key, clients: Held | None, b: BucketData) -> Any:
        chunk = b.real.shape[0]
        return evaluation.evaluate_clients(federation, layout.classes, server, key, clients, b, chunk=chunk)

    def measure(server: Server, key: Key, clients: Held, b: BucketData) -> Any:
        chunk = b.real.shape[0]
        sums = evaluation.measure_clients(federation, server, key, clients.state, b.train, b.real, chunk=chunk)
        return collectives.total(sums, axis)

    def made(function: Any, axes: tuple[str | None, ...], ins: tuple[Any, ...], outs: Any) -> Program:
        return program(over_runs(function, layout, *axes), layout, ins, outs)

    server, view = server_spec(federation), view_spec(federation)
    answer = HELD if each else RUN
    start_server = functools.partial(set_up.start_server, federation, layout.training)
    conclude = functools.partial(evaluation.conclude, federation)
    return Programs(
        start_server=made(start_server, (SEEDS, RUNS, None), (RUN, RUN, SAME), server),
        start_clients=made(start_clients, (RUNS, SEEDS, None), (server, RUN, CLIENT), (HELD, answer, RUN)),
        finish_start=made(finish_start, (RUNS, RUNS, RUNS, None), (server, answer, RUN, CLIENT), server),
        begin=made(begin, (RUNS, SEEDS), (server, RUN), (view, RUN, RUN)),
        clients=made(clients, (RUNS, SEEDS, RUNS, None, RUNS), (view, RUN, HELD, CLIENT, HELD), (RUN, HELD, HELD)),
        add=made(merged, (RUNS, RUNS), (RUN, RUN), RUN),
        end=made(
            end,
            (RUNS, RUNS, SEEDS, RUNS, RUNS, None, RUNS),
            (server, view, RUN, RUN, HELD, CLIENT, RUN),
            (server, RUN),
        ),
        evaluate=made(evaluate, (RUNS, SEEDS, RUNS, None), (server, RUN, HELD, CLIENT), HELD),
        measure=made(measure, (RUNS, SEEDS, RUNS, None), (server, RUN, HELD, CLIENT), RUN),
        conclude=made(conclude, (RUNS, RUNS), (server, RUN), RUN),
    )


def add(one: Any, two: Any) -> Any:
    """The answers of two chunks of clients together: sums and largest values."""
    return jax.tree.map(jnp.add, one[0], two[0]), jax.tree.map(jnp.maximum, one[1], two[1])
