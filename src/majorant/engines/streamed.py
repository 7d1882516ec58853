"""The streamed engine: samples and private states live in host memory (or in files) and pass the device in chunks.

It runs the same functions as the resident engine, one chunk of clients at a time, for populations that would not fit:
the memory that a round needs is that of one chunk, whether there are a thousand clients or a million.
"""

from __future__ import annotations

import contextlib
import functools
import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from majorant.core import Answer, ClientData, Key, Server, Tree, View
from majorant.data.federated import FederatedData
from majorant.engines import evaluation, rounds
from majorant.engines.memory import message_shapes
from majorant.engines.population import Bucket
from majorant.engines.programs import RUNS, SEEDS, Layout, Program, over_runs
from majorant.engines.resident import positions
from majorant.engines.rounds import BucketData, Held
from majorant.exchange.federation import Federation


class Programs(NamedTuple):
    """The pieces of a round, each for one chunk of clients."""

    start_server: Program
    start_clients: Program
    finish_start: Program
    begin: Program
    clients: Program
    end: Program
    evaluate: Program
    evaluate_unseen: Program
    measure: Program
    conclude: Program


@functools.lru_cache(maxsize=32)
def programs(federation: Federation, layout: Layout) -> Programs:
    """Builds the programs of a federation and remembers them."""

    def start_clients(server: Server, key: Key, b: BucketData) -> Any:
        return rounds.start_clients(federation, server, key, b.train, b.real, b.real.shape[0])

    def finish_start(server: Server, answers: Any, slots: Any) -> Server:
        return rounds.finish_start(federation, server, answers, slots, layout.clients)

    def begin(server: Server, key: Key) -> Any:
        view, key_of_round = rounds.begin_round(federation, server, key)
        return view, key_of_round, rounds.who_takes_part(federation, server, key, layout.training)

    def clients(view: View, key: Key, clients: Held, data: ClientData, active: jax.Array) -> Any:
        return rounds.chunk_pass(federation, view, key, clients, data, active)

    def end(server: Server, view: View, key: Key, sums: rounds.Sums, sent: Any, slots: Any, tally: rounds.Tally) -> Any:
        stack = rounds.stack_by_slot(sent, slots, layout.clients) if sent else None
        return rounds.end_round(federation, server, view, key, sums, stack, tally)

    def evaluate(server: Server, key: Key, clients: Held, b: BucketData) -> Any:
        chunk = b.real.shape[0]
        return evaluation.evaluate_clients(
            federation, layout.classes, server, key, clients.state, b, chunk=chunk, unseen=False
        )

    def evaluate_unseen(server: Server, key: Key, b: BucketData) -> Any:
        chunk = b.real.shape[0]
        return evaluation.evaluate_clients(federation, layout.classes, server, key, (), b, chunk=chunk, unseen=True)

    def measure(server: Server, key: Key, clients: Held, b: BucketData) -> Any:
        chunk = b.real.shape[0]
        return evaluation.measure_clients(federation, server, key, clients.state, b.train, b.real, chunk=chunk)

    start_server = functools.partial(rounds.start_server, federation, layout.training)
    return Programs(
        start_server=Program(over_runs(start_server, layout, SEEDS, RUNS, None)),
        start_clients=Program(over_runs(start_clients, layout, RUNS, SEEDS, None)),
        finish_start=Program(over_runs(finish_start, layout, RUNS, RUNS, None)),
        begin=Program(over_runs(begin, layout, RUNS, SEEDS)),
        clients=Program(over_runs(clients, layout, RUNS, SEEDS, RUNS, None, RUNS)),
        end=Program(over_runs(end, layout, RUNS, RUNS, SEEDS, RUNS, RUNS, None, RUNS)),
        evaluate=Program(over_runs(evaluate, layout, RUNS, SEEDS, RUNS, None)),
        evaluate_unseen=Program(over_runs(evaluate_unseen, layout, RUNS, SEEDS, None)),
        measure=Program(over_runs(measure, layout, RUNS, SEEDS, RUNS, None)),
        conclude=Program(over_runs(functools.partial(evaluation.conclude, federation), layout, RUNS, RUNS)),
    )


class Streamed:
    """Runs rounds chunk by chunk; private states are NumPy arrays, or memory-mapped files under ``state_folder``."""

    def __init__(
        self,
        federation: Federation,
        layout: Layout,
        data: FederatedData,
        buckets: list[Bucket],
        unseen: list[Bucket],
        keys: jax.Array,
        seconds: dict[str, float],
        state_folder: Path | None = None,
        first_id: int | None = None,
    ) -> None:
        self.federation, self.layout, self.data, self.keys, self.seconds = federation, layout, data, keys, seconds
        self.programs = programs(federation, layout)
        self.buckets, self.unseen, self.positions = buckets, unseen, positions(buckets)
        self.state_folder, self.first_id = state_folder, first_id
        self.server: Any = None
        self.clients: tuple[Tree, ...] = ()

    def start(self, hyper: dict[str, jax.Array], planned: int) -> None:
        """The state before round 1."""
        self.server = self.programs.start_server(self.seconds, self.keys, hyper, jnp.int32(planned))
        states, answers, slots = [], [], []
        for number, bucket in enumerate(self.buckets):
            whole = None
            for rows in chunks_of(bucket):
                chunk = self.chunk(bucket, rows)
                part, answer = self.programs.start_clients(self.seconds, self.server, self.keys, chunk)
                answers.append(answer)
                slots.append(chunk.train.slot)
                whole = self.allocate(number, len(bucket.ids), part) if whole is None else whole
                write(whole, rows, part)
            states.append(whole)
        self.clients = tuple(states)
        if answers[0] is not None:
            together = answers if self.federation.algorithm.traits.reads == "each" else [functools.reduce(add, answers)]
            self.server = self.programs.finish_start(self.seconds, self.server, together, slots[: len(together)])

    def block(self, count: int) -> rounds.Tally:
        """``count`` more rounds."""
        tally = None
        stacks = self.federation.stacks
        for _ in range(count):
            view, key, active = self.programs.begin(self.seconds, self.server, self.keys)
            total: Any = None
            uploads, slots = [], []
            for bucket, states, rows, inside in self.pieces(np.asarray(active)):
                train = bucket.train(self.data, rows)
                part = jax.tree.map(lambda a, rows=rows: a[:, rows], states)
                sums, part, sent = self.programs.clients(self.seconds, view, key, part, train, inside)
                real = int(inside.any(axis=0).sum())
                write(states, rows[:real], part)
                total = sums if total is None else rounds.add_sums([total, sums])
                if stacks:
                    uploads.append(sent)
                    slots.append(np.where(np.arange(len(rows)) < real, bucket.ids[rows], -1))
            tally = self.no_tally(total) if tally is None else tally
            self.server, tally = self.programs.end(self.seconds, self.server, view, key, total, uploads, slots, tally)
        return jax.block_until_ready(tally)

    def pieces(self, active: np.ndarray) -> Iterator[tuple[Bucket, Tree, np.ndarray, np.ndarray]]:
        """The chunks of a round from who is active, ``(runs, training clients)``: rows of a bucket, the active first.

        A round in which nobody takes part has one chunk of absent clients.
        """
        nobody = True
        for bucket, states, position in zip(self.buckets, self.clients, self.positions, strict=True):
            here = active[:, position] & (bucket.ids >= 0)
            taking_part = np.flatnonzero(here.any(axis=0))
            for begin in range(0, len(taking_part), bucket.chunk):
                nobody = False
                rows = taking_part[begin : begin + bucket.chunk]
                real = len(rows)
                rows = np.concatenate([rows, np.zeros(bucket.chunk - real, rows.dtype)])
                yield bucket, states, rows, here[:, rows] & (np.arange(bucket.chunk) < real)
        if nobody:
            bucket, rows = self.buckets[0], np.zeros(self.buckets[0].chunk, int)
            yield bucket, self.clients[0], rows, np.zeros((len(active), bucket.chunk), bool)

    def no_tally(self, sums: rounds.Sums) -> rounds.Tally:
        """A tally of nothing, with the fields of the given sums."""
        zero = jnp.zeros_like(sums.participants)
        info = jax.tree.map(jnp.zeros_like, sums.info)
        one = jax.tree.map(lambda a: a[0], self.buckets[0].train(self.data, np.array([0])))
        seen = message_shapes(self.federation, one)[1]
        down = jnp.zeros((len(zero), len(jax.tree.leaves(seen.value))), jnp.int32)
        up = jnp.zeros_like(sums.travelled)
        nobody, largest = jnp.full_like(sums.offender, -1), jax.tree.map(jnp.zeros_like, sums.largest)
        return rounds.Tally(info, jnp.zeros_like(sums.weight), zero, zero, nobody, zero, largest, zero, zero, up, down)

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
        if self.layout.diagnostics and self.federation.algorithm.diagnostics.measure is not None:
            for bucket, states in zip(self.buckets, self.clients, strict=True):
                for rows in chunks_of(bucket):
                    part = jax.tree.map(lambda a, rows=rows: a[:, rows], states)
                    sums = self.programs.measure(self.seconds, self.server, self.keys, part, self.chunk(bucket, rows))
                    total = sums if total is None else jax.tree.map(jnp.add, total, sums)
        return jax.tree.map(np.asarray, self.programs.conclude(self.seconds, self.server, total))

    def restore(self, server: Server, clients: tuple[Tree, ...]) -> None:
        """Resumes from a saved state."""
        self.server = jax.tree.map(jnp.array, server)
        self.clients = tuple(
            self.allocate(i, len(b.ids), c) for i, (b, c) in enumerate(zip(self.buckets, clients, strict=True))
        )
        for bucket, states, saved in zip(self.buckets, self.clients, clients, strict=True):
            write(states, np.arange(len(bucket.ids)), saved)

    def chunk(self, bucket: Bucket, rows: np.ndarray) -> BucketData:
        """The samples of a chunk of clients."""
        parts: Any = [part(self.data, rows) for part in (bucket.train, bucket.validation, bucket.test)]
        if self.first_id is not None:  # newcomers: ids after all others, and no slots
            parts = [part._replace(id=part.id + self.first_id, slot=np.full_like(part.slot, -1)) for part in parts]
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
                path = self.state_folder / f"bucket{number}-leaf{index}.bin"
                arrays.append(array_in_file(path, shape, leaf.dtype))
        return jax.tree.unflatten(structure, arrays)


def array_in_file(path: Path, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """An array whose memory is a file that its owner alone can read, and that ends with the process.

    The file loses its name at once, where the system allows it: a process that is killed leaves no private states
    behind. Its blocks are taken first: a full disk is an error here, and not a crash in the middle of a round.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.unlink(missing_ok=True)  # of a process that was killed on a system that does not
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), 0o600)
    try:
        with os.fdopen(descriptor, "r+b") as file:
            size = math.prod((*shape, np.dtype(dtype).itemsize))
            if hasattr(os, "posix_fallocate") and size:
                os.posix_fallocate(file.fileno(), 0, size)
            return np.memmap(file, dtype, "w+", shape=shape)
    finally:
        with contextlib.suppress(PermissionError):  # Windows keeps the names of files that are in use
            path.unlink()


def add(one: Answer, two: Answer) -> Answer:
    """The answers of two chunks of clients together."""
    value, weight = jax.tree.map(jnp.add, one[:2], two[:2])
    return Answer(value, weight, jax.tree.map(jnp.maximum, one.largest, two.largest))


def chunks_of(bucket: Bucket) -> list[np.ndarray]:
    """The rows of a bucket, chunk by chunk."""
    return list(np.arange(len(bucket.ids)).reshape(-1, bucket.chunk))


def write(states: Tree, rows: np.ndarray, part: Tree) -> None:
    """Puts a chunk's states in their places in host memory; ``part`` may be longer than ``rows``."""

    def put(whole: np.ndarray, piece: jax.Array) -> None:
        whole[:, rows] = np.asarray(piece)[:, : len(rows)]

    jax.tree.map(put, states, part)
