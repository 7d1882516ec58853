"""The resident engine: all clients' samples and states stay on the device, and a block of rounds is one program."""

from __future__ import annotations

import functools
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from majorant.core import Key, Server, Tree, collectives, in_double, tree_bytes
from majorant.core.collectives import CLIENTS
from majorant.data.federated import FederatedData
from majorant.engines import evaluation, rounds, set_up, turns
from majorant.engines.client_part import Held
from majorant.engines.mesh import CLIENT, HELD, RUN, SAME, dealt, fetch, program, put, put_parts, server_spec
from majorant.engines.messages import message_shapes
from majorant.engines.population import Bucket
from majorant.engines.programs import RUNS, SEEDS, Layout, Program, over_runs
from majorant.engines.rounds import BucketData, State
from majorant.engines.tally import Tally, empty_tally, merged, of_all_devices
from majorant.exchange.federation import Federation
from majorant.exchange.gossip import Peers


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
        server = set_up.start_server(federation, layout.training, key, hyper, planned)
        started = [
            set_up.start_clients(federation, server, key, b.train, b.real, chunk)
            for b, chunk in zip(data, layout.chunks, strict=True)
        ]
        clients, answers = zip(*started, strict=True)
        slots = [b.train.slot for b in data]
        server = set_up.finish_start(federation, server, answers, slots, layout.clients, layout.axis)
        return State(server, clients)

    def shapes(data: tuple[BucketData, ...]) -> Any:
        return message_shapes(federation, jax.tree.map(lambda a: a[0], data[0].train))

    def one_round(state: State, tally: Tally, key: Key, data: tuple[BucketData, ...]) -> Any:
        view, key_of_round = rounds.begin_round(federation, state.server, key)
        taking_part = turns.turns(federation, state.server, key, layout.training, data)
        upload, everyone = shapes(data)[0], layout.everyone
        through = functools.partial(rounds.bucket_pass, federation, view, key_of_round)
        passes = [
            through(clients, b.train, turn, chunk=chunk, everyone=everyone, upload=upload)
            for b, clients, turn, chunk in zip(data, state.clients, taking_part, layout.pass_chunks, strict=True)
        ]
        sums, clients, sent = zip(*passes, strict=True)
        slots = [b.train.slot for b in data]
        stack = federation.exchange.stacked(sent, slots, layout.clients, layout.axis) if stacks else None
        total = of_all_devices(functools.reduce(merged, sums), layout.axis)
        server, tally = rounds.end_round(federation, state.server, view, key_of_round, total, stack, tally)
        return State(server, clients), tally

    def block(state: State, key: Key, count: jax.Array, data: tuple[BucketData, ...]) -> Any:
        tally = empty_tally(shapes(data))
        return jax.lax.fori_loop(0, count, lambda _, s: one_round(s[0], s[1], key, data), (state, tally))

    def evaluate(state: State, key: Key, data: tuple[BucketData, ...], unseen: tuple[BucketData, ...]) -> Any:
        score = functools.partial(evaluation.evaluate_clients, federation, layout.classes, state.server, key)
        return (
            [
                score(clients, b, chunk=chunk)
                for clients, b, chunk in zip(state.clients, data, layout.chunks, strict=True)
            ],
            [score(None, b, chunk=chunk) for b, chunk in zip(unseen, layout.unseen_chunks, strict=True)],
        )

    def diagnose(state: State, key: Key, data: tuple[BucketData, ...]) -> Any:
        if not layout.diagnostics or federation.algorithm.diagnostics.measure is None:
            return evaluation.conclude(federation, state.server, None)
        parts = [
            evaluation.measure_clients(federation, state.server, key, clients.state, b.train, b.real, chunk=chunk)
            for clients, b, chunk in zip(state.clients, data, layout.chunks, strict=True)
        ]
        sums = collectives.total(jax.tree.map(lambda *a: sum(a[1:], a[0]), *parts), layout.axis)
        return evaluation.conclude(federation, state.server, sums)

    samples = RUNS if layout.replicated else None
    data, whole = HELD if layout.replicated else CLIENT, State(server_spec(federation), HELD)  # type: ignore[arg-type]
    over = lambda function, *axes: over_runs(function, layout, *axes)
    return Programs(
        start=program(over(start, SEEDS, RUNS, None, samples), layout, (RUN, RUN, SAME, data), whole),
        block=program(
            over(block, RUNS, SEEDS, None, samples), layout, (whole, RUN, SAME, data), (whole, RUN), donate_argnums=0
        ),
        evaluate=program(over(evaluate, RUNS, SEEDS, samples, samples), layout, (whole, RUN, data, data), HELD),
        diagnose=program(over(diagnose, RUNS, SEEDS, samples), layout, (whole, RUN, data), RUN),
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
        made_from: str | None = None,
    ) -> None:
        self.programs, self.federation = programs(federation, layout), federation
        if made_from is not None:
            for name, each in self.programs._asdict().items():
                each.made_from = f"{made_from} {name} {layout}"
        self.layout, self.buckets, self.seconds = layout, buckets, seconds
        self.keys = put(keys, layout.mesh, RUN)
        self.placed = on_devices(data, buckets, unseen, layout)
        self.data, self.unseen = self.placed.seen, self.placed.unseen
        if federation.participation.chosen is not None and not layout.everyone and layout.mesh is None:
            rows = rows_in(buckets, layout, len(data))
            self.data = tuple(b._replace(row=row) for b, row in zip(self.data, rows, strict=True))
        self.state: State | None = None

    def prepare(self, hyper: dict[str, jax.Array], planned: int) -> None:
        """Compiles everything that will run."""
        begin = time.perf_counter()
        with ThreadPoolExecutor() as pool:
            for done in [pool.submit(work) for work in self.lowered(hyper, planned)]:
                done.result()
        self.seconds["compile"] += time.perf_counter() - begin

    def lowered(self, hyper: dict[str, jax.Array], planned: int) -> Iterator[Callable[[], None]]:
        """Traces everything that will run, one after the other; gives functions that compile, the longest first.

        Tracing needs Python's lock and compiling does not: what has been traced compiles beside what is traced next.
        """
        number = jnp.int32(planned)
        state = self.programs.start.shapes(self.keys, hyper, number, self.data)
        yield self.programs.block.lowered(state, self.keys, number, self.data)
        yield self.programs.evaluate.lowered(state, self.keys, self.data, self.unseen)
        yield self.programs.start.lowered(self.keys, hyper, number, self.data)

    def start(self, hyper: dict[str, jax.Array], planned: int) -> None:
        """The state before round 1."""
        self.prepare(hyper, planned)
        self.state = self.programs.start(self.seconds, self.keys, hyper, jnp.int32(planned), self.data)

    def temporary_bytes(self) -> int:
        """The bytes that the programs take while they run."""
        return max(program.temporary_bytes() for program in (self.programs.block, self.programs.evaluate))

    def resident_bytes(self) -> int:
        """The bytes of all samples on a device."""
        share = 1 if self.layout.mesh is None else self.layout.mesh.shape[CLIENTS]
        return tree_bytes((self.data, self.unseen)) // share

    def block(self, count: int) -> Tally:
        """``count`` more rounds."""
        self.state, tally = self.programs.block(self.seconds, self.state, self.keys, jnp.int32(count), self.data)
        return fetch(tally)

    def evaluate(self) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """Scores of the clients that train and of the unseen ones, a dictionary of ``(runs, clients)`` per bucket."""
        scores = self.programs.evaluate(self.seconds, self.state, self.keys, self.data, self.unseen)
        return fetch(scores)

    def diagnose(self) -> dict[str, Any]:
        """Scalars about the server and about convergence, ``(runs,)`` each."""
        return fetch(self.programs.diagnose(self.seconds, self.state, self.keys, self.data))

    @property
    def server(self) -> Server:
        """The server's state, ``(runs, ...)``."""
        assert self.state is not None
        return server_of(self.state.server, self.federation, self.layout)

    @property
    def round(self) -> int:
        """The rounds that have been made."""
        assert self.state is not None
        return int(fetch(self.state.server.round)[0])

    @property
    def clients(self) -> tuple[Held, ...]:
        """What is on the clients of each bucket, ``(runs, clients, ...)``."""
        assert self.state is not None
        return self.state.clients if self.layout.mesh is None else fetch(self.state.clients)

    def client(self, bucket: int, row: int) -> Tree:
        """The state of one client, ``(runs, ...)``."""
        assert self.state is not None
        return fetch(jax.tree.map(lambda a: a[:, row], self.state.clients[bucket].state))

    def restore(self, server: Server, clients: tuple[Held, ...]) -> None:
        """Resumes from a saved state."""
        if self.layout.mesh is None:
            self.state = jax.tree.map(jnp.array, State(server, clients))
            return
        rows = rows_of(server, self.federation)
        self.state = put(State(rows, clients), self.layout.mesh, State(server_spec(self.federation), HELD))  # type: ignore[arg-type]


def server_of(server: Server, federation: Federation, layout: Layout) -> Server:
    """The server, or the peers in their order, as arrays that this process has."""
    if layout.mesh is None:
        return server
    whole = fetch(server)
    if not isinstance(federation.exchange, Peers) or not dealt(federation):
        return whole
    value, state = jax.tree.map(federation.exchange.places.into_nodes, (whole.value, whole.state))
    return whole._replace(value=value, state=state)


def rows_of(server: Server, federation: Federation) -> Server:
    """The other way round: a server as the devices hold it."""
    if not isinstance(federation.exchange, Peers) or not dealt(federation):
        return server
    value, state = jax.tree.map(federation.exchange.places.into_rows, (server.value, server.state))
    return server._replace(value=value, state=state)


class Placed:
    """The samples of all buckets on the devices, and what they were made from."""

    def __init__(self, data: Sequence[FederatedData], buckets: list[Bucket], unseen: list[Bucket], layout: Layout):
        self.source = data  # whose ids are in use as long as this is
        self.seen, self.unseen = (on_device(data, each, layout=layout) for each in (buckets, unseen))


PLACED: weakref.WeakValueDictionary[Any, Placed] = weakref.WeakValueDictionary()


def on_devices(data: Sequence[FederatedData], buckets: list[Bucket], unseen: list[Bucket], layout: Layout) -> Placed:
    """All samples on the devices: where another simulation holds the same, the same arrays."""
    lies = [(bucket.ids.tobytes(), *bucket[1:]) for bucket in buckets + unseen]
    key = (tuple(map(id, data)), len(buckets), tuple(lies), layout.mesh, layout.replicated, in_double())
    found = PLACED.get(key)
    if found is None:
        found = PLACED[key] = Placed(data, buckets, unseen, layout)
    return found


def on_device(data: Sequence[FederatedData], buckets: list[Bucket], *, layout: Layout) -> tuple[BucketData, ...]:
    """All buckets' samples as device arrays; replicated: ``(runs, ...)``, with a data set for each run."""
    found = []
    for bucket, position in zip(buckets, positions(buckets), strict=True):

        def make(runs: slice, rows: slice, bucket: Bucket = bucket, position: np.ndarray = position) -> BucketData:
            places: Any = (position[rows], bucket.ids[rows] >= 0)
            sets = data[runs] if layout.replicated else data
            parts = lambda one: (bucket.train(one, rows), bucket.validation(one, rows), bucket.test(one, rows))
            each = [BucketData(*parts(one), *places) for one in sets]
            return jax.tree.map(lambda *parts: np.stack(parts), *each) if layout.replicated else each[0]

        if layout.mesh is None:
            found.append(jax.device_put(make(slice(None), slice(None))))  # `jnp.asarray` would compile for every shape
        else:
            spec = HELD if layout.replicated else CLIENT
            found.append(put_parts(make, layout.mesh, spec, len(data), len(bucket.ids)))
    return tuple(found)


def rows_in(buckets: list[Bucket], layout: Layout, sets: int) -> list[jax.Array]:
    """The row in each bucket of every client that trains; its number of rows where a client is in another one.

    Replicated: the same for each of the data sets.
    """
    found = []
    for bucket, position in zip(buckets, positions(buckets), strict=True):
        rows = np.full(layout.training, len(bucket.ids), np.int32)
        rows[position[bucket.real]] = bucket.real
        found.append(jax.device_put(np.stack([rows] * sets) if layout.replicated else rows))
    return found


def positions(buckets: list[Bucket]) -> list[np.ndarray]:
    """Each client's place among all clients of the buckets in the order of their ids (0 for fillers)."""
    ids = np.sort(np.concatenate([b.ids[b.real] for b in buckets])) if buckets else np.zeros(0, int)
    return [np.where(b.ids >= 0, np.searchsorted(ids, b.ids), 0).astype(np.int32) for b in buckets]
