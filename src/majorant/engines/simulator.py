"""The simulator: many clients, and whole experiments, on one machine.

``simulate`` lays the clients out (`population`), picks the resident or the streamed engine by memory, and alternates
blocks of rounds with evaluations of every client's personalized model.
"""

from __future__ import annotations

import functools
import itertools
import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from majorant.communication.participation import Participation, full
from majorant.core import BLOCK_VALUES, Algorithm, ClientData, Server, Tree, tree_bytes
from majorant.data.federated import FederatedData
from majorant.engines.population import Bucket, build_buckets, padded_bytes
from majorant.engines.programs import Layout, enable_compilation_cache
from majorant.engines.resident import Resident, positions
from majorant.engines.rounds import Tally
from majorant.engines.run import Run, Scores
from majorant.engines.streamed import Streamed
from majorant.evaluation.metrics import metric_name
from majorant.solvers import check_range

CACHE_BYTES = 4 << 20  # a chunk's samples on a CPU: about what its cache holds
LARGE_MODEL = 20_000  # parameters above which, on a CPU, one client at a time fills the machine


class Diverged(RuntimeError):
    """Every client's update has become infinite or NaN."""


class Snapshot(NamedTuple):
    """A run between two rounds, in the order of the clients' ids: all that resuming needs."""

    server: Server  # (runs, ...)
    clients: Tree  # (runs, training clients, ...)
    counters: dict[str, Any]


def simulate(
    algorithm: Algorithm,
    data: FederatedData,
    *,
    rounds: int,
    seed: int = 0,
    seeds: int | Sequence[int] | None = None,
    hyper: Mapping[str, float] | None = None,
    grid: Mapping[str, Sequence[float]] | None = None,
    participation: Participation | None = None,
    evaluate_every: int | None = None,
    clients: str = "auto",
    memory_budget: int | None = None,
    state_folder: Path | None = None,
    resume: Snapshot | Callable[[Snapshot], Snapshot] | None = None,
    on_evaluation: Callable[[list[dict[str, Any]], Callable[[], Snapshot]], None] | None = None,
    extra_padding: int = 0,
) -> Run:
    """Trains an algorithm on federated data for a number of rounds and evaluates every client's own model.

    ``seeds`` (a number, counted up from ``seed``, or a list) and ``grid`` (values for hyperparameters, all
    combinations) run side by side in one program. ``hyper`` changes single hyperparameter values without compiling
    anew. ``clients`` is how clients are batched: "vmap", "map" (one at a time) or "auto". Runs whose clients do not fit
    ``memory_budget`` bytes (by default half of the memory) are streamed; their states then live in host memory, or in
    files under ``state_folder``. ``on_evaluation(records, snapshot)`` is called after each evaluation with a record
    per run and a function that takes a snapshot; a run that is resumed from one ends as if never interrupted.

    >>> import majorant as mj
    >>> data = mj.data.synthetic_mixture(clients=10, dimension=5, seed=0)
    >>> run = mj.simulate(mj.local(mj.models.linear(data)), data, rounds=3, seeds=2)
    >>> len(run), run.history[-1]["round"]
    (2, 3)
    """
    if rounds != int(rounds) or rounds < 1:
        raise ValueError(f"rounds must be a positive whole number, got {rounds}")
    if evaluate_every is not None and (evaluate_every != int(evaluate_every) or evaluate_every < 1):
        raise ValueError(f"evaluate_every must be a positive whole number, got {evaluate_every}")
    participation = participation or full()
    if algorithm.needs_everyone and participation.probability(int((~data.unseen).sum())) < 1:
        raise ValueError(
            f"{algorithm.name} must see every client in every round and cannot run with participation"
            f" {participation.name!r}: use full participation"
        )
    evaluate_every = evaluate_every or max(1, rounds // 20)
    enable_compilation_cache()
    settings = run_settings(algorithm, seed, seeds, hyper, grid)
    simulation = Simulation(
        algorithm, data, participation, settings, rounds, clients, memory_budget, state_folder, extra_padding
    )
    if resume is None:
        simulation.start()
    else:
        simulation.restore(resume)
    simulation.train(evaluate_every, on_evaluation)
    return simulation.result()


def run_settings(
    algorithm: Algorithm,
    seed: int,
    seeds: int | Sequence[int] | None,
    hyper: Mapping[str, float] | None,
    grid: Mapping[str, Sequence[float]] | None,
) -> list[dict[str, Any]]:
    """One dictionary per run: its seed and the hyperparameters that differ from the algorithm's own."""
    if isinstance(seeds, int) and seeds < 1:
        raise ValueError(f"seeds must be at least 1, got {seeds}")
    listed = [seed] if seeds is None else list(range(seed, seed + seeds)) if isinstance(seeds, int) else list(seeds)
    if not listed:
        raise ValueError("seeds is empty: give at least one")
    for each in listed:
        if not 0 <= each < 1 << 32:
            raise ValueError(f"a seed must be a whole number from 0 to 2^32 − 1, got {each}")
    known = jax.eval_shape(algorithm.init, jax.random.key(0)).hyper
    for name in [*(hyper or {}), *(grid or {})]:
        if name not in known:
            raise ValueError(f"{algorithm.name} has no hyperparameter {name!r}; it has {', '.join(sorted(known))}")
        values = (grid or {}).get(name) if name in (grid or {}) else [dict(hyper or {})[name]]
        if not values:
            raise ValueError(f"the grid has no values for {name!r}")
        for value in values:
            check_range(name, value, least=0)
    combinations = itertools.product(*(grid or {}).values())
    points = [dict(hyper or {}) | dict(zip(grid or {}, values, strict=True)) for values in combinations]
    return [{"seed": s, "hyper": point} for point in points for s in listed]


class Simulation:
    """One call of `simulate`: layout, engine, counters and history."""

    def __init__(
        self,
        algorithm: Algorithm,
        data: FederatedData,
        participation: Participation,
        settings: list[dict[str, Any]],
        rounds: int,
        clients: str,
        memory_budget: int | None,
        state_folder: Path | None,
        extra_padding: int,
    ) -> None:
        self.algorithm, self.data, self.settings, self.rounds = algorithm, data, settings, rounds
        self.participation = participation
        self.metric = metric_name(len(data.classes))
        self.seconds = {"compile": 0.0, "train": 0.0, "evaluate": 0.0}
        self.history: list[list[dict[str, Any]]] = [[] for _ in settings]
        self.communication = [{"rounds": 0, "bytes_up": 0, "bytes_down": 0} for _ in settings]
        training = np.flatnonzero(~data.unseen)
        one_at_a_time = runs_one_at_a_time(algorithm, clients)
        budget = memory_budget or default_budget()
        layout: dict[str, Any] = {
            "chunk_bytes": chunk_size(budget),
            "most": most_side_by_side(algorithm, data, budget, len(settings)),
            "one_at_a_time": one_at_a_time,
            "extra_padding": extra_padding,
        }
        self.buckets = build_buckets(data, training, **layout)
        self.unseen = build_buckets(data, np.flatnonzero(data.unseen), **layout)
        share = participation.probability(len(training))
        everyone = share == 1
        self.layout = Layout(
            chunks=tuple(b.chunk for b in self.buckets),
            pass_chunks=tuple(b.chunk if everyone else fewer(b, share) for b in self.buckets),
            unseen_chunks=tuple(b.chunk for b in self.unseen),
            training=len(training),
            clients=data.clients,
            classes=len(data.classes),
            everyone=everyone,
            many=len(settings) > 1,
        )
        self.bytes_up, self.bytes_down, state_bytes = message_bytes(algorithm, data, self.buckets[0])
        refuse_too_large_stack(algorithm, data.clients, self.bytes_up, len(settings), budget)
        needed = padded_bytes(data, self.buckets + self.unseen) + 2 * len(settings) * len(training) * state_bytes
        keys = jax.vmap(jax.random.key)(jnp.asarray([s["seed"] for s in settings], jnp.uint32))
        arguments = (algorithm, participation, self.layout, data, self.buckets, self.unseen, keys, self.seconds)
        fits = needed <= budget and state_folder is None
        self.engine: Resident | Streamed = Resident(*arguments) if fits else Streamed(*arguments, state_folder)

    def start(self) -> None:
        """The state before round 1, evaluated."""
        own = jax.eval_shape(self.algorithm.init, jax.random.key(0)).hyper
        names = sorted({name for s in self.settings for name in s["hyper"]})
        values = {n: jnp.asarray([s["hyper"][n] for s in self.settings], own[n].dtype) for n in names}
        self.engine.start(values, self.rounds)

    def train(self, evaluate_every: int, on_evaluation: Callable | None) -> None:
        """Blocks of rounds, each followed by an evaluation, until the planned rounds are done."""
        done = int(np.asarray(self.engine.server.round)[0])
        while done < self.rounds:
            count = min(evaluate_every - done % evaluate_every, self.rounds - done)
            tally = self.timed("train", functools.partial(self.engine.block, count))
            done += count
            self.stop_if_diverged(done, tally)
            self.record(done, count, tally)
            if on_evaluation is not None:
                on_evaluation([lines[-1] for lines in self.history], self.snapshot)

    def timed(self, what: str, work: Callable[[], Any]) -> Any:
        """Runs something and books its time, less what was spent compiling."""
        begin, compiling = time.perf_counter(), self.seconds["compile"]
        result = work()
        self.seconds[what] += time.perf_counter() - begin - (self.seconds["compile"] - compiling)
        return result

    def record(self, done: int, count: int, tally: Tally | None) -> None:
        """Evaluates and appends a line of history for every run."""
        self.scores = self.timed("evaluate", self.evaluate)
        for run, (lines, bill) in enumerate(zip(self.history, self.communication, strict=True)):
            participants = int(tally.participants[run]) if tally else 0
            bill["rounds"] += count
            bill["bytes_up"] += participants * self.bytes_up
            bill["bytes_down"] += participants * self.bytes_down
            line = {
                "round": done,
                "seed": self.settings[run]["seed"],
                "seconds": self.seconds["train"],
                "bytes_up": bill["bytes_up"],
                "bytes_down": bill["bytes_down"],
                "participants": participants / count,
                "rejected": int(tally.rejected[run]) if tally else 0,
            }
            if tally is not None:
                weight = max(float(tally.weight[run]), 1e-30)
                line |= {name: float(total[run]) / weight for name, total in tally.info.items()}
            lines.append(line | self.scores[run].summary(self.metric))

    def evaluate(self) -> list[Scores]:
        """Every client's scores, for every run."""
        seen, new = self.engine.evaluate()
        values = in_order(self.buckets + self.unseen, seen + new)
        runs = range(len(self.settings))
        return [Scores.of({k: v[run] for k, v in values.items()}, self.data, self.data.unseen) for run in runs]

    def stop_if_diverged(self, done: int, tally: Tally | None) -> None:
        """A run in which every upload is rejected will not recover: say so, and what to do."""
        if tally is None or not (np.asarray(tally.fruitless) > 0).all():
            return
        rates = self.engine.server.hyper
        used = ", ".join(f"{k}={float(np.max(v)):g}" for k, v in rates.items() if "lr" in k)
        raise Diverged(
            f"{self.algorithm.name} diverged: at round {done} every client's update was infinite or NaN. "
            f"Lower the learning rate (now {used}), for example tenfold, or check the scale of the features."
        )

    def snapshot(self) -> Snapshot:
        """The run as it is, with clients in the order of their ids."""
        order = np.argsort(np.concatenate([b.ids[: b.real] for b in self.buckets]))

        def gather(*leaves: Any) -> np.ndarray:
            rows = [np.asarray(leaf)[:, : b.real] for leaf, b in zip(leaves, self.buckets, strict=True)]
            longest = np.max([r.shape[2:] for r in rows], axis=0)  # states of single samples are as long as the bucket
            short = lambda r: [(0, 0), (0, 0), *((0, int(m) - n) for m, n in zip(longest, r.shape[2:], strict=True))]
            return np.concatenate([np.pad(r, short(r)) for r in rows], axis=1)[:, order]

        counters = {
            "seconds": dict(self.seconds),
            "communication": [dict(c) for c in self.communication],
            "history": [list(lines) for lines in self.history],
        }
        clients = jax.tree.map(gather, *self.engine.clients)
        return Snapshot(jax.tree.map(np.asarray, self.engine.server), clients, counters)

    def restore(self, resume: Snapshot | Callable[[Snapshot], Snapshot]) -> None:
        """Goes on from a snapshot; a function is given a fresh one, to learn its structure."""
        self.start()
        saved = resume(self.snapshot()) if callable(resume) else resume

        def scatter(bucket: Bucket, position: np.ndarray, fresh: Tree) -> Tree:
            rows = np.where(bucket.ids >= 0, position, 0)
            cut = lambda a, like: np.asarray(a)[:, rows][tuple(slice(n) for n in like.shape)]
            return jax.tree.map(cut, saved.clients, fresh)

        parts = zip(self.buckets, positions(self.buckets), self.engine.clients, strict=True)
        self.engine.restore(saved.server, tuple(scatter(*part) for part in parts))
        self.seconds.update(saved.counters["seconds"])
        self.communication = [dict(c) for c in saved.counters["communication"]]
        self.history = [list(lines) for lines in saved.counters["history"]]

    def result(self) -> Run:
        """The finished run."""
        if not hasattr(self, "scores"):  # resumed when already finished
            self.scores = self.timed("evaluate", self.evaluate)
        return Run(
            self.algorithm,
            self.data,
            self.settings,
            self.history,
            self.scores,
            self.snapshot(),
            dict(self.seconds),
            self.communication,
            self.metric,
            self.rounds,
        )


def in_order(buckets: list[Bucket], scores: list[dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """The scores of all buckets, ``(runs, clients)``, in the order of the clients' ids."""
    order = np.argsort(np.concatenate([b.ids[: b.real] for b in buckets]))
    together = lambda name: np.concatenate([s[name][:, : b.real] for b, s in zip(buckets, scores, strict=True)], axis=1)
    return {name: together(name)[:, order] for name in scores[0]}


def evaluate_joining(algorithm: Algorithm, server: Server, seed: int, data: FederatedData) -> Scores:
    """The scores of clients that were not there at training and join with their own samples."""
    one_at_a_time = runs_one_at_a_time(algorithm, "auto")
    buckets = build_buckets(
        data, np.arange(data.clients), chunk_bytes=chunk_size(default_budget()), one_at_a_time=one_at_a_time
    )
    layout = Layout((), (), tuple(b.chunk for b in buckets), 0, data.clients, len(data.classes), True, False)
    keys = jax.random.key(seed)[None]
    engine = Streamed(algorithm, full(), layout, data, [], buckets, keys, {"compile": 0.0})
    engine.restore(jax.tree.map(lambda a: np.asarray(a)[None], server), ())
    values = in_order(buckets, engine.evaluate()[1])
    return Scores.of({k: v[0] for k, v in values.items()}, data, np.ones(data.clients, bool))


def chunk_size(budget: int) -> int:
    """Bytes of training samples that run side by side: what a CPU's cache holds, or much of a GPU's memory."""
    return min(CACHE_BYTES if jax.default_backend() == "cpu" else 1 << 30, max(1, budget // 8))


def most_side_by_side(algorithm: Algorithm, data: FederatedData, budget: int, runs: int) -> int:
    """How many clients fit the budget side by side, by the size of all intermediate results of a prediction."""
    rows = int(max(data.train.sizes.max(), data.test.sizes.max(), 1))
    rows = min(rows, max(64, BLOCK_VALUES // max(1, int(np.prod(data.spec.features)))))
    x, y = jnp.zeros((1, *data.spec.features), data.train.x.dtype), jnp.zeros(1, data.train.y.dtype)
    one = ClientData(x, y, jnp.int32(1), jnp.int32(0))

    def predict(key: jax.Array, one: ClientData) -> jax.Array:
        view = algorithm.broadcast(algorithm.init(key), key)
        return algorithm.predict(algorithm.deploy(view, algorithm.join(view, one, key), one, key), one.x)

    values = intermediate_values(jax.make_jaxpr(predict)(jax.random.key(0), one).jaxpr)
    return int(max(1, budget // 4 // max(1, 4 * values * rows * runs)))


def intermediate_values(jaxpr: Any) -> int:
    """The number of values that the operations of a program with a leading sample axis of 1 produce, loops once."""
    inner = [v for e in jaxpr.eqns for v in e.params.values()]
    programs = [
        getattr(v, "jaxpr", v) for v in inner if hasattr(v, "eqns") or hasattr(getattr(v, "jaxpr", None), "eqns")
    ]
    own = sum(int(np.prod(v.aval.shape)) for e in jaxpr.eqns for v in e.outvars if hasattr(v.aval, "shape"))
    return own + sum(intermediate_values(program) for program in programs)


def fewer(bucket: Bucket, share: float) -> int:
    """How many clients run side by side when about ``share`` of the bucket's take part."""
    expected = share * bucket.real + (share * (1 - share) * bucket.real) ** 0.5
    return int(np.clip(round(expected), 1, bucket.chunk))


def runs_one_at_a_time(algorithm: Algorithm, clients: str) -> bool:
    """Whether clients go through one by one: large models on a CPU, unless said otherwise."""
    if clients not in ("auto", "vmap", "map"):
        raise ValueError(f"clients must be 'auto', 'vmap' or 'map', got {clients!r}")
    if clients != "auto":
        return clients == "map"
    server = jax.eval_shape(algorithm.init, jax.random.key(0))
    seen = lambda server, key: algorithm.address(algorithm.broadcast(server, key), jnp.int32(0))
    view = jax.eval_shape(seen, server, jax.random.key(0))
    size = sum(leaf.size for leaf in jax.tree.leaves(algorithm.origin(view)))
    return jax.default_backend() == "cpu" and size > LARGE_MODEL


def message_bytes(algorithm: Algorithm, data: FederatedData, bucket: Bucket) -> tuple[int, int, int]:
    """Bytes that a client sends and is sent in a round, and bytes of its private state."""
    one = jax.tree.map(lambda a: a[0], bucket.train(data, np.array([0])))

    def message(data: ClientData, key: jax.Array) -> Any:
        view = algorithm.address(algorithm.broadcast(algorithm.init(key), key), data.id)
        client = algorithm.init_client(view, data, key)
        return algorithm.client_update(view, client, data, key)[0].value, view.value, client

    up, down, client = jax.eval_shape(message, one, jax.random.key(0))
    return algorithm.wire(up), tree_bytes(down), tree_bytes(client)


def refuse_too_large_stack(algorithm: Algorithm, clients: int, upload: int, runs: int, budget: int) -> None:
    """Methods that must see every upload side by side, and compare clients in pairs, cannot work in chunks."""
    if algorithm.aggregate is None:
        return
    server = tree_bytes(jax.eval_shape(algorithm.init, jax.random.key(0)))
    needed = runs * (2 * clients * upload + 4 * clients**2 + 2 * server)
    if needed > budget:
        raise ValueError(
            f"{algorithm.name} compares the uploads of all {clients} clients with each other, which takes about "
            f"{needed / 2**30:.1f} GiB at the server, more than the budget of {budget / 2**30:.1f} GiB: give fewer "
            "clients or seeds, a smaller model or a larger memory budget, or take a method with a linear average"
        )


def default_budget() -> int:
    """Half of the memory of the device, or of the machine."""
    stats = jax.devices()[0].memory_stats() if jax.default_backend() != "cpu" else None
    if stats and "bytes_limit" in stats:
        return int(stats["bytes_limit"]) // 2
    memory = 8 << 30
    if hasattr(os, "sysconf"):
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limit = Path("/sys/fs/cgroup/memory.max")  # of a container
    if limit.exists() and limit.read_text().strip().isdigit():
        memory = min(memory, int(limit.read_text()))
    return memory // 2
