"""The streamed engine: samples and private states live in host memory (or in files) and pass the device in chunks.

It runs the same functions as the resident engine, one chunk of clients at a time, for populations that would not fit:
the memory that a round needs is that of one chunk, whether there are a thousand clients or a million.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from majorant.core import Algorithm, ClientData, Key, Server, Tree, View
from majorant.data.federated import FederatedData
from majorant.engines import rounds
from majorant.engines.population import Bucket
from majorant.engines.programs import RUNS, SEEDS, Layout, Program, over_runs
from majorant.engines.resident import positions
from majorant.engines.rounds import BucketData
from majorant.exchange.participation import Participation


class Programs(NamedTuple):
    """The pieces of a round, each for one chunk of clients."""

    start_server: Program
    start_clients: Program
    finish_start: Program
    idle: Program
    begin: Program
    clients: Program
    end: Program
    evaluate: Program
    evaluate_unseen: Program
    measure: Program
    conclude: Program


@functools.lru_cache(maxsize=32)
def programs(algorithm: Algorithm, participation: Participation, layout: Layout) -> Programs:
    """Builds the programs of an algorithm and remembers them."""

    def start_clients(server: Server, key: Key, b: BucketData) -> Any:
        return rounds.start_clients(algorithm, server, key, b.train, b.real, b.real.shape[0])

    def begin(server: Server, key: Key) -> Any:
        view, key_of_round = rounds.begin_round(algorithm, server, key)
        return view, key_of_round, rounds.who_takes_part(participation, server, key, layout.training)

    def clients(view: View, key: Key, clients: Tree, data: ClientData, active: jax.Array) -> Any:
        return rounds.chunk_pass(algorithm, view, key, clients, data, active)

    def end(server: Server, sums: rounds.Sums, uploads: Any, ids: Any, tally: rounds.Tally) -> Any:
        stack = rounds.stack_uploads(uploads, ids, layout.clients) if algorithm.aggregate is not None else None
        return rounds.end_round(algorithm, server, sums, stack, tally, participation.probability(layout.training))

    def evaluate(server: Server, key: Key, clients: Tree, b: BucketData) -> Any:
        chunk = b.real.shape[0]
        return rounds.evaluate_clients(algorithm, layout.classes, server, key, clients, b, chunk=chunk, unseen=False)

    def evaluate_unseen(server: Server, key: Key, b: BucketData) -> Any:
        chunk = b.real.shape[0]
        return rounds.evaluate_clients(algorithm, layout.classes, server, key, (), b, chunk=chunk, unseen=True)

    def measure(server: Server, key: Key, clients: Tree, b: BucketData) -> Any:
        return rounds.measure_clients(algorithm, server, key, clients, b.train, b.real, chunk=b.real.shape[0])

    start_server = functools.partial(rounds.start_server, algorithm)
    finish_start = functools.partial(
        rounds.finish_start, algorithm, inclusion=participation.probability(layout.training)
    )
    return Programs(
        start_server=Program(over_runs(start_server, layout, SEEDS, RUNS, None)),
        start_clients=Program(over_runs(start_clients, layout, RUNS, SEEDS, None), makes_parameters=True),
        finish_start=Program(over_runs(finish_start, layout, RUNS, RUNS)),
        idle=Program(over_runs(algorithm.idle or (lambda server: server), layout, RUNS)),
        begin=Program(over_runs(begin, layout, RUNS, SEEDS)),
        clients=Program(over_runs(clients, layout, RUNS, SEEDS, RUNS, None, RUNS)),
        end=Program(over_runs(end, layout, RUNS, RUNS, RUNS, None, RUNS)),
        evaluate=Program(over_runs(evaluate, layout, RUNS, SEEDS, RUNS, None)),
        evaluate_unseen=Program(over_runs(evaluate_unseen, layout, RUNS, SEEDS, None)),
        measure=Program(over_runs(measure, layout, RUNS, SEEDS, RUNS, None)),
        conclude=Program(over_runs(functools.partial(rounds.conclude, algorithm), layout, RUNS, RUNS)),
    )


class Streamed:
    """Runs rounds chunk by chunk; private states are NumPy arrays, or memory-mapped files under ``state_folder``."""

    def __init__(
        self,
        algorithm: Algorithm,
        participation: Participation,
        layout: Layout,
        data: FederatedData,
        buckets: list[Bucket],
        unseen: list[Bucket],
        keys: jax.Array,
        seconds: dict[str, float],
        state_folder: Path | None = None,
    ) -> None:
        self.algorithm, self.layout, self.data, self.keys, self.seconds = algorithm, layout, data, keys, seconds
        self.programs = programs(algorithm, participation, layout)
        self.buckets, self.unseen, self.positions = buckets, unseen, positions(buckets)
        self.state_folder = state_folder
        self.server: Any = None
        self.clients: tuple[Tree, ...] = ()

    def start(self, hyper: dict[str, jax.Array], planned: int) -> None:
        """The state before round 1."""
        self.server = self.programs.start_server(self.seconds, self.keys, hyper, jnp.int32(planned))
        states, added = [], []
        for number, bucket in enumerate(self.buckets):
            whole = None
            for rows in chunks_of(bucket):
                part, sums = self.programs.start_clients(self.seconds, self.server, self.keys, self.chunk(bucket, rows))
                added.append(sums)
                whole = self.allocate(number, len(bucket.ids), part) if whole is None else whole
                write(whole, rows, part)
            states.append(whole)
        self.clients = tuple(states)
        if self.algorithm.setup_server is not None:
            total = jax.tree.map(lambda *leaves: sum(leaves[1:], leaves[0]), *added)
            self.server = self.programs.finish_start(self.seconds, self.server, [total])

    def block(self, count: int) -> rounds.Tally:
        """``count`` more rounds."""
        tally = None
        for _ in range(count):
            view, key, active = self.programs.begin(self.seconds, self.server, self.keys)
            active = np.asarray(active)  # (runs, training clients)
            total, uploads, ids = None, [], []
            for bucket, states, position in zip(self.buckets, self.clients, self.positions, strict=True):
                here = active[:, position] & (bucket.ids >= 0)
                taking_part = np.flatnonzero(here.any(axis=0))
                for begin in range(0, len(taking_part), bucket.chunk):
                    rows = taking_part[begin : begin + bucket.chunk]
                    real = len(rows)
                    rows = np.concatenate([rows, np.zeros(bucket.chunk - real, rows.dtype)])
                    inside = here[:, rows] & (np.arange(bucket.chunk) < real)
                    train = bucket.train(self.data, rows)
                    part = jax.tree.map(lambda a, rows=rows: a[:, rows], states)
                    sums, part, sent = self.programs.clients(self.seconds, view, key, part, train, inside)
                    write(states, rows[:real], part)
                    total = sums if total is None else jax.tree.map(jnp.add, total, sums)
                    uploads.append(sent)
                    ids.append(np.where(np.arange(bucket.chunk) < real, bucket.ids[rows], -1))
            if total is None:  # nobody took part
                server = self.programs.idle(self.seconds, self.server) if self.algorithm.idle else self.server
                self.server = server._replace(round=self.server.round + 1)
                continue
            tally = self.no_tally(total) if tally is None else tally
            sent = uploads if self.algorithm.aggregate is not None else ()
            self.server, tally = self.programs.end(self.seconds, self.server, total, sent, ids if sent else (), tally)
        return jax.block_until_ready(tally)

    def no_tally(self, sums: rounds.Sums) -> rounds.Tally:
        """A tally of nothing, with the fields of the given sums."""
        zero = jnp.zeros_like(sums.participants)
        info = jax.tree.map(jnp.zeros_like, sums.info)
        return rounds.Tally(info, jnp.zeros_like(sums.weight), zero, zero, zero, zero, zero)

    def evaluate(self) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """Scores of the clients that train and of the unseen ones, a dictionary of ``(runs, clients)`` per bucket."""
        seen, new = [], []
        join = lambda parts: {k: np.concatenate([p[k] for p in parts], axis=1) for k in parts[0]}
        for bucket, states in zip(self.buckets, self.clients, strict=True):
            parts = []
            for rows in chunks_of(bucket):
                part = jax.tree.map(lambda a, rows=rows: a[:, rows], states)
                scores = self.programs.evaluate(self.seconds, self.server, self.keys, part, self.chunk(bucket, rows))
                parts.append(jax.tree.map(np.asarray, scores))
            seen.append(join(parts))
        for bucket in self.unseen:
            parts = []
            for rows in chunks_of(bucket):
                scores = self.programs.evaluate_unseen(self.seconds, self.server, self.keys, self.chunk(bucket, rows))
                parts.append(jax.tree.map(np.asarray, scores))
            new.append(join(parts))
        return seen, new

    def diagnose(self) -> dict[str, Any]:
        """Scalars about the server and about convergence, ``(runs,)`` each."""
        total = None
        if self.layout.diagnostics and self.algorithm.diagnosis is not None:
            for bucket, states in zip(self.buckets, self.clients, strict=True):
                for rows in chunks_of(bucket):
                    part = jax.tree.map(lambda a, rows=rows: a[:, rows], states)
                    sums = self.programs.measure(self.seconds, self.server, self.keys, part, self.chunk(bucket, rows))
                    total = sums if total is None else jax.tree.map(jnp.add, total, sums)
        return jax.tree.map(np.asarray, self.programs.conclude(self.seconds, self.server, total))

    def restore(self, server: Server, clients: tuple[Tree, ...]) -> None:
        """Goes on from a saved state."""
        self.server = jax.tree.map(jnp.array, server)
        self.clients = tuple(
            self.allocate(i, len(b.ids), c) for i, (b, c) in enumerate(zip(self.buckets, clients, strict=True))
        )
        for bucket, states, saved in zip(self.buckets, self.clients, clients, strict=True):
            write(states, np.arange(len(bucket.ids)), saved)

    def chunk(self, bucket: Bucket, rows: np.ndarray) -> BucketData:
        """The samples of a chunk of clients."""
        parts: Any = [part(self.data, rows) for part in (bucket.train, bucket.validation, bucket.test)]
        places: Any = (np.zeros(len(rows), np.int32), bucket.ids[rows] >= 0)
        return BucketData(*parts, *places)

    def allocate(self, number: int, clients: int, part: Tree) -> Tree:
        """Host arrays for the states of a bucket's clients, shaped after one chunk's."""
        leaves, structure = jax.tree.flatten(part)
        arrays = []
        for index, leaf in enumerate(leaves):
            shape = (leaf.shape[0], clients, *leaf.shape[2:])
            if self.state_folder is None:
                arrays.append(np.empty(shape, leaf.dtype))
            else:
                self.state_folder.mkdir(parents=True, exist_ok=True)
                path = self.state_folder / f"bucket{number}-leaf{index}.bin"
                arrays.append(np.memmap(path, leaf.dtype, "w+", shape=shape))
        return jax.tree.unflatten(structure, arrays)


def chunks_of(bucket: Bucket) -> list[np.ndarray]:
    """The rows of a bucket, chunk by chunk."""
    return list(np.arange(len(bucket.ids)).reshape(-1, bucket.chunk))


def write(states: Tree, rows: np.ndarray, part: Tree) -> None:
    """Puts a chunk's states in their places in host memory; ``part`` may be longer than ``rows``."""

    def put(whole: np.ndarray, piece: jax.Array) -> None:
        whole[:, rows] = np.asarray(piece)[:, : len(rows)]

    jax.tree.map(put, states, part)
