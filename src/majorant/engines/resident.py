"""The resident engine: all clients' samples and states stay on the device, and a block of rounds is one program."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from majorant.core import Key, Server, tree_bytes
from majorant.data.federated import FederatedData
from majorant.engines import evaluation, rounds
from majorant.engines.memory import message_shapes
from majorant.engines.population import Bucket
from majorant.engines.programs import RUNS, SEEDS, Layout, Program, compile_together, over_runs
from majorant.engines.rounds import BucketData, Held, State
from majorant.exchange.federation import Federation


class Programs(NamedTuple):
    """Start, a block of rounds, evaluation."""

    start: Program
    block: Program
    evaluate: Program
    diagnose: Program


@functools.lru_cache(maxsize=32)
def programs(federation: Federation, layout: Layout) -> Programs:
    """Builds the programs of a federation and remembers them: simulating it again, with other hyperparameter values,
    other data of the same shape or more rounds, compiles nothing."""
    stacks = federation.stacks

    def start(key: Key, hyper: dict, planned: jax.Array, data: tuple[BucketData, ...]) -> State:
        server = rounds.start_server(federation, layout.training, key, hyper, planned)
        started = [
            rounds.start_clients(federation, server, key, b.train, b.real, chunk)
            for b, chunk in zip(data, layout.chunks, strict=True)
        ]
        clients, answers = zip(*started, strict=True)
        server = rounds.finish_start(federation, server, answers, [b.train.slot for b in data], layout.clients)
        return State(server, clients)

    def one_round(state: State, tally: rounds.Tally, key: Key, data: tuple[BucketData, ...]) -> Any:
        view, key_of_round = rounds.begin_round(federation, state.server, key)
        active = rounds.who_takes_part(federation, state.server, key, layout.training)
        passes = [
            rounds.bucket_pass(
                federation,
                view,
                key_of_round,
                clients,
                b.train,
                active[b.position] & b.real,
                chunk=chunk,
                everyone=layout.everyone,
            )
            for b, clients, chunk in zip(data, state.clients, layout.pass_chunks, strict=True)
        ]
        sums, clients, sent = zip(*passes, strict=True)
        stack = rounds.stack_by_slot(sent, [b.train.slot for b in data], layout.clients) if stacks else None
        server, tally = rounds.end_round(
            federation, state.server, view, key_of_round, rounds.add_sums(list(sums)), stack, tally
        )
        return State(server, clients), tally

    def block(state: State, key: Key, count: jax.Array, data: tuple[BucketData, ...]) -> Any:
        shapes = message_shapes(federation, jax.tree.map(lambda a: a[0], data[0].train))
        tally = rounds.empty_tally(shapes)
        return jax.lax.fori_loop(0, count, lambda _, s: one_round(s[0], s[1], key, data), (state, tally))

    def evaluate(state: State, key: Key, data: tuple[BucketData, ...], unseen: tuple[BucketData, ...]) -> Any:
        score = functools.partial(evaluation.evaluate_clients, federation, layout.classes, state.server, key)
        return (
            [
                score(clients.state, b, chunk=chunk, unseen=False)
                for clients, b, chunk in zip(state.clients, data, layout.chunks, strict=True)
            ],
            [score((), b, chunk=chunk, unseen=True) for b, chunk in zip(unseen, layout.unseen_chunks, strict=True)],
        )

    def diagnose(state: State, key: Key, data: tuple[BucketData, ...]) -> Any:
        if not layout.diagnostics or federation.algorithm.diagnostics.measure is None:
            return evaluation.conclude(federation, state.server, None)
        parts = [
            evaluation.measure_clients(federation, state.server, key, clients.state, b.train, b.real, chunk=chunk)
            for clients, b, chunk in zip(state.clients, data, layout.chunks, strict=True)
        ]
        return evaluation.conclude(federation, state.server, jax.tree.map(lambda *a: sum(a[1:], a[0]), *parts))

    samples = RUNS if layout.replicated else None
    return Programs(
        start=Program(over_runs(start, layout, SEEDS, RUNS, None, samples)),
        block=Program(over_runs(block, layout, RUNS, SEEDS, None, samples), donate_argnums=0),
        evaluate=Program(over_runs(evaluate, layout, RUNS, SEEDS, samples, samples)),
        diagnose=Program(over_runs(diagnose, layout, RUNS, SEEDS, samples)),
    )


class Resident:
    """Runs blocks of rounds on resident data."""

    def __init__(
        self,
        federation: Federation,
        layout: Layout,
        data: Sequence[FederatedData],
        buckets: list[Bucket],
        unseen: list[Bucket],
        keys: jax.Array,
        seconds: dict[str, float],
    ) -> None:
        self.programs = programs(federation, layout)
        self.layout, self.buckets, self.keys, self.seconds = layout, buckets, keys, seconds
        place = functools.partial(on_device, data, replicated=layout.replicated)
        self.data, self.unseen = place(buckets), place(unseen)
        self.state: State | None = None

    def prepare(self, hyper: dict[str, jax.Array], planned: int) -> int:
        """Compiles everything that will run, side by side; the bytes that the programs take while they run."""
        number = jnp.int32(planned)
        state = self.programs.start.shapes(self.keys, hyper, number, self.data)
        compile_together(
            self.seconds,
            lambda: self.programs.block.prepare(state, self.keys, number, self.data),
            lambda: self.programs.evaluate.prepare(state, self.keys, self.data, self.unseen),
            lambda: self.programs.start.prepare(self.keys, hyper, number, self.data),
        )
        self.seconds["compile"] += self.programs.block.settled()
        return max(program.temporary_bytes() for program in (self.programs.block, self.programs.evaluate))

    def start(self, hyper: dict[str, jax.Array], planned: int) -> None:
        """The state before round 1."""
        self.prepare(hyper, planned)
        self.state = self.programs.start(self.seconds, self.keys, hyper, jnp.int32(planned), self.data)

    def resident_bytes(self) -> int:
        """The bytes of all samples on the device."""
        return tree_bytes((self.data, self.unseen))

    def block(self, count: int) -> rounds.Tally:
        """``count`` more rounds."""
        self.state, tally = self.programs.block(self.seconds, self.state, self.keys, jnp.int32(count), self.data)
        return jax.block_until_ready(tally)

    def evaluate(self) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """Scores of the clients that train and of the unseen ones, a dictionary of ``(runs, clients)`` per bucket."""
        scores = self.programs.evaluate(self.seconds, self.state, self.keys, self.data, self.unseen)
        return jax.tree.map(np.asarray, scores)

    def diagnose(self) -> dict[str, Any]:
        """Scalars about the server and about convergence, ``(runs,)`` each."""
        return jax.tree.map(np.asarray, self.programs.diagnose(self.seconds, self.state, self.keys, self.data))

    @property
    def server(self) -> Server:
        """The server's state, ``(runs, ...)``."""
        assert self.state is not None
        return self.state.server

    @property
    def clients(self) -> tuple[Held, ...]:
        """What is on the clients of each bucket, ``(runs, clients, ...)``."""
        assert self.state is not None
        return self.state.clients

    def restore(self, server: Server, clients: tuple[Held, ...]) -> None:
        """Resumes from a saved state."""
        self.state = jax.tree.map(jnp.array, State(server, clients))


def on_device(data: Sequence[FederatedData], buckets: list[Bucket], *, replicated: bool) -> tuple[BucketData, ...]:
    """All buckets' samples as device arrays; ``replicated``: ``(runs, ...)``, with a data set for each run."""
    found = []
    for bucket, position in zip(buckets, positions(buckets), strict=True):
        places: Any = (position, bucket.ids >= 0)
        each = [BucketData(bucket.train(one), bucket.validation(one), bucket.test(one), *places) for one in data]
        stacked = jax.tree.map(lambda *parts: np.stack(parts), *each) if replicated else each[0]
        found.append(jax.device_put(stacked))  # `jnp.asarray` would compile a program for every shape
    return tuple(found)


def positions(buckets: list[Bucket]) -> list[np.ndarray]:
    """Each client's place among all clients of the buckets in the order of their ids (0 for fillers)."""
    ids = np.sort(np.concatenate([b.ids[: b.real] for b in buckets])) if buckets else np.zeros(0, int)
    return [np.where(b.ids >= 0, np.searchsorted(ids, b.ids), 0).astype(np.int32) for b in buckets]
