"""The resident engine: all clients' samples and states stay on the device, and a block of rounds is one program."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from majorant.core import Algorithm, Key, Server, Tree
from majorant.data.federated import FederatedData
from majorant.engines import rounds
from majorant.engines.memory import message_shapes
from majorant.engines.population import Bucket
from majorant.engines.programs import RUNS, SEEDS, Layout, Program, compile_together, over_runs
from majorant.engines.rounds import BucketData, State
from majorant.exchange.participation import Participation


class Programs(NamedTuple):
    """Start, a block of rounds, evaluation."""

    start: Program
    block: Program
    evaluate: Program
    diagnose: Program


@functools.lru_cache(maxsize=32)
def programs(algorithm: Algorithm, participation: Participation, layout: Layout) -> Programs:
    """Builds the programs of an algorithm and remembers them: simulating it again, with other hyperparameter values,
    other data of the same shape or more rounds, compiles nothing."""

    def start(key: Key, hyper: dict, planned: jax.Array, data: tuple[BucketData, ...]) -> State:
        server = rounds.start_server(algorithm, key, hyper, planned)
        started = [
            rounds.start_clients(algorithm, server, key, b.train, b.real, chunk)
            for b, chunk in zip(data, layout.chunks, strict=True)
        ]
        inclusion = participation.probability(layout.training)
        server = rounds.finish_start(algorithm, server, [sums for _, sums in started], inclusion)
        return State(server, tuple(clients for clients, _ in started))

    def one_round(state: State, tally: rounds.Tally, key: Key, data: tuple[BucketData, ...]) -> Any:
        view, key_of_round = rounds.begin_round(algorithm, state.server, key)
        active = rounds.who_takes_part(participation, state.server, key, layout.training)
        passes = [
            rounds.bucket_pass(
                algorithm,
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
        sums, clients, uploads = zip(*passes, strict=True)
        stack = None
        if algorithm.aggregate is not None:
            stack = rounds.stack_uploads(uploads, [b.train.id for b in data], layout.clients)
        inclusion = participation.probability(layout.training)
        server, tally = rounds.end_round(algorithm, state.server, rounds.add_sums(list(sums)), stack, tally, inclusion)
        return State(server, clients), tally

    def block(state: State, key: Key, count: jax.Array, data: tuple[BucketData, ...]) -> Any:
        upload, *_ = message_shapes(algorithm, jax.tree.map(lambda a: a[0], data[0].train))
        tally = rounds.empty_tally(upload.info)
        return jax.lax.fori_loop(0, count, lambda _, s: one_round(s[0], s[1], key, data), (state, tally))

    def evaluate(state: State, key: Key, data: tuple[BucketData, ...], unseen: tuple[BucketData, ...]) -> Any:
        score = functools.partial(rounds.evaluate_clients, algorithm, layout.classes, state.server, key)
        return (
            [
                score(clients, b, chunk=chunk, unseen=False)
                for clients, b, chunk in zip(state.clients, data, layout.chunks, strict=True)
            ],
            [score((), b, chunk=chunk, unseen=True) for b, chunk in zip(unseen, layout.unseen_chunks, strict=True)],
        )

    def diagnose(state: State, key: Key, data: tuple[BucketData, ...]) -> Any:
        if not layout.diagnostics or algorithm.diagnosis is None:
            return rounds.conclude(algorithm, state.server, None)
        parts = [
            rounds.measure_clients(algorithm, state.server, key, clients, b.train, b.real, chunk=chunk)
            for clients, b, chunk in zip(state.clients, data, layout.chunks, strict=True)
        ]
        return rounds.conclude(algorithm, state.server, rounds.add_sums(parts))

    samples = RUNS if layout.replicated else None
    return Programs(
        start=Program(over_runs(start, layout, SEEDS, RUNS, None, samples), makes_parameters=True),
        block=Program(over_runs(block, layout, RUNS, SEEDS, None, samples), donate_argnums=0),
        evaluate=Program(over_runs(evaluate, layout, RUNS, SEEDS, samples, samples)),
        diagnose=Program(over_runs(diagnose, layout, RUNS, SEEDS, samples)),
    )


class Resident:
    """Runs blocks of rounds on resident data."""

    def __init__(
        self,
        algorithm: Algorithm,
        participation: Participation,
        layout: Layout,
        data: Sequence[FederatedData],
        buckets: list[Bucket],
        unseen: list[Bucket],
        keys: jax.Array,
        seconds: dict[str, float],
    ) -> None:
        self.programs = programs(algorithm, participation, layout)
        self.layout, self.buckets, self.keys, self.seconds = layout, buckets, keys, seconds
        place = functools.partial(on_device, data, replicated=layout.replicated)
        self.data, self.unseen = place(buckets), place(unseen)
        self.state: State | None = None

    def start(self, hyper: dict[str, jax.Array], planned: int) -> None:
        """The state before round 1. Everything that will run is compiled here, side by side."""
        number = jnp.int32(planned)
        state = self.programs.start.shapes(self.keys, hyper, number, self.data)
        compile_together(
            self.seconds,
            lambda: self.programs.block.prepare(state, self.keys, number, self.data),
            lambda: self.programs.evaluate.prepare(state, self.keys, self.data, self.unseen),
            lambda: self.programs.start.prepare(self.keys, hyper, number, self.data),
        )
        self.state = self.programs.start(self.seconds, self.keys, hyper, jnp.int32(planned), self.data)

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
    def clients(self) -> tuple[Tree, ...]:
        """The private states in each bucket, ``(runs, clients, ...)``."""
        assert self.state is not None
        return self.state.clients

    def restore(self, server: Server, clients: tuple[Tree, ...]) -> None:
        """Goes on from a saved state."""
        self.state = jax.tree.map(jnp.array, State(server, clients))


def on_device(data: Sequence[FederatedData], buckets: list[Bucket], *, replicated: bool) -> tuple[BucketData, ...]:
    """All buckets' samples as device arrays; ``replicated``: ``(runs, ...)``, with a data set for each run."""
    found = []
    for bucket, position in zip(buckets, positions(buckets), strict=True):
        places: Any = (position, bucket.ids >= 0)
        each = [BucketData(bucket.train(one), bucket.validation(one), bucket.test(one), *places) for one in data]
        stacked = jax.tree.map(lambda *parts: np.stack(parts), *each) if replicated else each[0]
        found.append(jax.tree.map(jnp.asarray, stacked))
    return tuple(found)


def positions(buckets: list[Bucket]) -> list[np.ndarray]:
    """Each client's place among all clients of the buckets in the order of their ids (0 for fillers)."""
    ids = np.sort(np.concatenate([b.ids[: b.real] for b in buckets])) if buckets else np.zeros(0, int)
    return [np.where(b.ids >= 0, np.searchsorted(ids, b.ids), 0).astype(np.int32) for b in buckets]
