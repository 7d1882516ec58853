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
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils

from majorant.core import ClientData, Server, Tree
from majorant.data.federated import FederatedData
from majorant.engines.mesh import CLIENT, HELD, RUN, fetch, put, put_parts, server_spec
from majorant.engines.messages import message_shapes
from majorant.engines.population import Bucket
from majorant.engines.programs import Layout
from majorant.engines.resident import positions, rows_of, server_of
from majorant.engines.rounds import BucketData
from majorant.engines.streamed_programs import add, programs
from majorant.engines.tally import Tally, empty_tally
from majorant.exchange.federation import Federation


class Streamed:
    """Runs rounds chunk by chunk; private states are NumPy arrays, or memory-mapped files under ``state_folder``.

    On a mesh a chunk has clients of every device. Of several processes each has samples and states of the clients of
    its own devices.
    """

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
        self.federation, self.layout, self.data, self.seconds = federation, layout, data, seconds
        self.programs, self.keys = programs(federation, layout), put(keys, layout.mesh, RUN)
        self.buckets, self.unseen, self.positions = buckets, unseen, positions(buckets)
        self.state_folder, self.first_id = state_folder, first_id
        self.now: Any = None  # the server, as the devices hold it
        self.states: tuple[Tree, ...] = ()  # of the clients of this process

    @property
    def server(self) -> Server:
        """The server's state, ``(runs, ...)``."""
        return server_of(self.now, self.federation, self.layout)

    @property
    def round(self) -> int:
        """The rounds that have been made."""
        return int(fetch(self.now.round)[0])

    @property
    def clients(self) -> tuple[Tree, ...]:
        """What is on the clients of each bucket, ``(runs, clients, ...)``."""
        return self.states if self.layout.mesh is None else jax.tree.map(of_all_processes, self.states)

    def client(self, bucket: int, row: int) -> Tree:
        """The state of one client, ``(runs, ...)``."""
        mine = own_rows(self.buckets[bucket], self.layout)
        here = row - mine.start if mine.start <= row < mine.stop else 0
        owner = row // (mine.stop - mine.start)  # of processes with as many rows each
        states = jax.tree.map(lambda a: a[:, here : here + 1], self.states[bucket].state)
        return jax.tree.map(lambda a: of_all_processes(a)[:, owner if jax.process_count() > 1 else 0], states)

    def start(self, hyper: dict[str, jax.Array], planned: int) -> None:
        """The state before round 1."""
        self.now = self.programs.start_server(self.seconds, self.keys, hyper, jnp.int32(planned))
        states, answers, slots = [], [], []
        for number, bucket in enumerate(self.buckets):
            whole = None
            for rows in bucket.pieces():
                chunk = self.chunk(bucket, rows)
                part, own, largest = self.programs.start_clients(self.seconds, self.now, self.keys, chunk)
                answers.append(own and (own, largest))
                slots.append(chunk.train.slot)
                whole = self.allocate(number, bucket, part) if whole is None else whole
                self.write(bucket, whole, rows, np.ones(len(rows), bool), part)
            states.append(whole)
        self.states = tuple(states)
        if answers[0] is not None:
            together = answers if self.federation.algorithm.traits.reads == "each" else [functools.reduce(add, answers)]
            own, largest = map(list, zip(*together, strict=True))
            self.now = self.programs.finish_start(self.seconds, self.now, own, largest, slots[: len(together)])

    def block(self, count: int) -> Tally:
        """``count`` more rounds."""
        tally, stacks = self.no_tally(), self.federation.stacks
        for _ in range(count):
            view, key, active = self.programs.begin(self.seconds, self.now, self.keys)
            total: Any = None
            uploads, slots = [], []
            for bucket, states, rows, inside in self.pieces(fetch(active)):
                train = self.samples(bucket.train, rows)
                part = self.read(bucket, states, rows)
                sums, part, sent = self.programs.clients(self.seconds, view, key, part, train, inside)
                taking_part = np.asarray(inside.any(axis=0))
                self.write(bucket, states, rows, taking_part, part)
                total = sums if total is None else self.programs.add(self.seconds, total, sums)
                if stacks:
                    uploads.append(sent)
                    slots.append(np.where(taking_part, bucket.ids[rows], -1).astype(np.int32))
            self.now, tally = self.programs.end(self.seconds, self.now, view, key, total, uploads, slots, tally)
        return fetch(tally)

    def pieces(self, active: np.ndarray) -> Iterator[tuple[Bucket, Tree, np.ndarray, np.ndarray]]:
        """The chunks of a round from who is active, ``(runs, training clients)``: rows of a bucket, a chunk of each
        device's active clients. All devices have as many chunks; those that have fewer clients fill up.

        A round in which nobody takes part has one chunk of absent clients.
        """
        nobody = True
        for bucket, states, position in zip(self.buckets, self.states, self.positions, strict=True):
            here = active[:, position] & (bucket.ids >= 0)
            each = [np.flatnonzero(part) for part in here.any(axis=0).reshape(bucket.devices, -1)]
            for begin in range(0, max(map(len, each)), bucket.chunk):
                nobody = False
                rows = np.repeat(np.arange(bucket.devices)[:, None], bucket.chunk, axis=1) * bucket.rows
                inside = np.zeros(rows.shape, bool)
                for device, taking_part in enumerate(each):
                    some = taking_part[begin : begin + bucket.chunk]
                    rows[device, : len(some)] += some
                    inside[device, : len(some)] = True
                yield bucket, states, rows.ravel(), here[:, rows.ravel()] & inside.ravel()
        if nobody:
            bucket = self.buckets[0]
            rows = bucket.pieces()[0]
            yield bucket, self.states[0], rows, np.zeros((len(active), len(rows)), bool)

    def no_tally(self) -> Tally:
        """A tally of nothing, ``(runs, ...)``."""
        one = empty_tally(message_shapes(self.federation, self.buckets[0].one(self.data)))
        return jax.tree.map(lambda a: jnp.broadcast_to(a, (len(self.keys), *a.shape)), one)

    def evaluate(self) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """Scores of the clients that train and of the unseen ones, a dictionary of ``(runs, clients)`` per bucket."""
        seen = [self.scores(*each) for each in zip(self.buckets, self.states, strict=True)]
        return seen, [self.scores(bucket, None) for bucket in self.unseen]

    def scores(self, bucket: Bucket, states: Tree | None) -> dict[str, Any]:
        """Scores of a bucket's clients, chunk by chunk; ``states`` None: of unseen ones."""
        parts, back = [], np.argsort(bucket.pieces().ravel())
        for rows in bucket.pieces():
            held, chunk = self.read(bucket, states, rows), self.chunk(bucket, rows)
            parts.append(fetch(self.programs.evaluate(self.seconds, self.now, self.keys, held, chunk)))
        return {name: np.concatenate([part[name] for part in parts], axis=1)[:, back] for name in parts[0]}

    def diagnose(self) -> dict[str, Any]:
        """Scalars about the server and about convergence, ``(runs,)`` each."""
        total = None
        if self.layout.diagnostics and self.federation.algorithm.diagnostics.measure is not None:
            for bucket, states in zip(self.buckets, self.states, strict=True):
                for rows in bucket.pieces():
                    part = self.read(bucket, states, rows)
                    sums = self.programs.measure(self.seconds, self.now, self.keys, part, self.chunk(bucket, rows))
                    total = sums if total is None else jax.tree.map(jnp.add, total, sums)
        return fetch(self.programs.conclude(self.seconds, self.now, total))

    def restore(self, server: Server, clients: tuple[Tree, ...]) -> None:
        """Resumes from a saved state."""
        mesh, spec = self.layout.mesh, server_spec(self.federation)
        rows = server if mesh is None else rows_of(server, self.federation)
        self.now = jax.tree.map(jnp.array, rows) if mesh is None else put(rows, mesh, spec)
        self.states = tuple(self.allocate(i, b, c) for i, (b, c) in enumerate(zip(self.buckets, clients, strict=True)))
        for bucket, states, saved in zip(self.buckets, self.states, clients, strict=True):
            mine = own_rows(bucket, self.layout)
            jax.tree.map(lambda whole, a, mine=mine: np.copyto(whole, np.asarray(a)[:, mine]), states, saved)

    def chunk(self, bucket: Bucket, rows: np.ndarray) -> BucketData:
        """The samples of a chunk of clients."""

        def some(rows: np.ndarray) -> BucketData:
            parts: Any = [part(self.data, rows) for part in (bucket.train, bucket.validation, bucket.test)]
            if self.first_id is not None:  # newcomers: ids after all others, and no slots
                parts = [part._replace(id=part.id + self.first_id, slot=np.full_like(part.slot, -1)) for part in parts]
            places: Any = (np.zeros(len(rows), np.int32), bucket.ids[rows] >= 0)
            return BucketData(*parts, *places)

        return self.of_rows(some, rows)

    def samples(self, part: Any, rows: np.ndarray) -> ClientData:
        """One part of the samples of a chunk of clients."""
        return self.of_rows(lambda rows: part(self.data, rows), rows)

    def read(self, bucket: Bucket, states: Tree, rows: np.ndarray) -> Tree:
        """The states of a chunk of clients."""
        first = own_rows(bucket, self.layout).start
        return self.of_rows(lambda rows: jax.tree.map(lambda a: a[:, rows - first], states), rows, HELD)

    def of_rows(self, make: Any, rows: np.ndarray, spec: Any = CLIENT) -> Tree:
        """What a function makes of rows, on the devices; a process makes that of its own rows."""
        if self.layout.mesh is None:
            return make(rows)
        return put_parts(lambda _, part: make(rows[part]), self.layout.mesh, spec, len(self.keys), len(rows))

    def write(self, bucket: Bucket, states: Tree, rows: np.ndarray, real: np.ndarray, part: Tree) -> None:
        """Puts a chunk's states, of rows that are real, in their places in the memory of this process."""
        first = own_rows(bucket, self.layout).start

        def put(whole: np.ndarray, piece: jax.Array) -> None:
            for shard in piece.addressable_shards:
                here = shard.index[1]
                kept = real[here]
                whole[:, rows[here][kept] - first] = np.asarray(shard.data)[:, kept]

        jax.tree.map(put, states, part)

    def allocate(self, number: int, bucket: Bucket, part: Tree) -> Tree:
        """Host arrays for the states of a bucket's clients that are on this process, shaped after one chunk's."""
        mine = own_rows(bucket, self.layout)
        leaves, structure = jax.tree.flatten(part)
        arrays = []
        for index, leaf in enumerate(leaves):
            shape = (leaf.shape[0], mine.stop - mine.start, *leaf.shape[2:])
            if self.state_folder is None:
                arrays.append(np.empty(shape, leaf.dtype))
            else:
                path = self.state_folder / f"process{jax.process_index()}-bucket{number}-leaf{index}.bin"
                arrays.append(array_in_file(path, shape, leaf.dtype))
        return jax.tree.unflatten(structure, arrays)


def own_rows(bucket: Bucket, layout: Layout) -> slice:
    """The rows of a bucket that are on devices of this process."""
    if layout.mesh is None:
        return slice(0, len(bucket.ids))
    devices = layout.mesh.devices[0]
    mine = [k for k, device in enumerate(devices) if device.process_index == jax.process_index()]
    return slice(mine[0] * bucket.rows, (mine[-1] + 1) * bucket.rows)


def of_all_processes(rows: np.ndarray) -> np.ndarray:
    """Rows ``(runs, rows, ...)`` of every process, one after the other."""
    if jax.process_count() == 1:
        return rows
    each = multihost_utils.process_allgather(np.asarray(rows))
    return np.concatenate(list(each), axis=1)


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
