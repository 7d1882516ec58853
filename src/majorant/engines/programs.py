"""Compiled functions over many runs at once.

Seeds and grids of hyperparameters are one more axis of every array (the *runs*); a single run has an axis of length 1
that the programs strip, because a batch of one compiles to worse code than none. The runs of a grid that have the same
seed draw the same random numbers, so what follows from keys and samples alone, such as minibatches, is made once for
all of them. On a CPU, runs whose rounds differ in length and runs of large models go one after the other
(`memory.runs_in_turn`).
"""

from __future__ import annotations

import contextlib
import gc
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import Mesh

from majorant.core import Server, Tree, View, in_double
from majorant.core.collectives import CLIENTS, Axis
from majorant.core.compilation import compiled, staged
from majorant.core.lanes import in_lanes
from majorant.engines import kept
from majorant.math.room import cores


class Layout(NamedTuple):
    """The fixed numbers that programs are compiled for."""

    chunks: tuple[int, ...]  # clients side by side, for each bucket of clients that train
    pass_chunks: tuple[int, ...]  # the same when only some take part
    unseen_chunks: tuple[int, ...]
    training: int  # clients that train
    clients: int  # all clients, unseen ones included
    classes: int
    everyone: bool
    seeds: int = 1  # runs i and i + seeds, in a grid, have the same seed
    diagnostics: bool = False  # whether convergence is measured at evaluations
    replicated: bool = False  # every run has a data set of its own
    in_turn: bool = False  # runs go one after the other
    lanes: int | None = None  # clients that make steps at once, where a chunk has more (`core.lanes`)
    mesh: Mesh | None = None  # of devices, where there are several; the other numbers are then those of one device

    @property
    def at_once(self) -> int:
        """How many clients make steps at once, at most."""
        return min(max(self.chunks), self.lanes or max(self.chunks))

    @property
    def axis(self) -> Axis:
        """The axis over which clients are dealt, where there is one."""
        return None if self.mesh is None else CLIENTS


class Program:
    """A jitted function that is compiled once for each shape of its arguments, and adds up how long that took."""

    def __init__(self, function: Callable, **options: Any) -> None:
        self.function, self.jitted, self.options = function, staged(function, **options), options
        self.made_from: str | None = None  # what tells the program from others in other processes, where that is known
        self.compiled: dict[Any, Any] = {}
        self.returned: dict[Any, Any] = {}  # shapes

    def __call__(self, seconds: dict[str, float], *args: Any) -> Any:
        known = signature(args)
        if known not in self.compiled:
            begin = time.perf_counter()
            self.lowered(*args)()
            seconds["compile"] += time.perf_counter() - begin
        return self.compiled[known](*args)

    def lowered(self, *args: Any) -> Callable[[], None]:
        """Traces for arguments of these shapes (arrays or `jax.ShapeDtypeStruct`); gives a function that compiles."""
        known = signature(args)
        if known in self.compiled:
            return lambda: None
        with nothing_collected():
            if self.made_from is None:
                lowered = self.jitted.lower(*args)
            else:
                lowered = kept.lowered(self.made_from, self.jitted, args, known, **self.options)

        def compile_it() -> None:
            self.compiled[known] = compiled(lowered, QUICK_COMPILATION)

        return compile_it

    def temporary_bytes(self) -> int:
        """The most that any of its compiled forms takes beside its arguments and results, where XLA says."""
        analyses = [program.memory_analysis() for program in self.compiled.values()]
        return max((int(a.temp_size_in_bytes) for a in analyses if a is not None), default=0)

    def shapes(self, *args: Any) -> Any:
        """The shapes of what the program returns."""
        known = signature(args)
        if known not in self.returned:
            found = None if self.made_from is None else kept.shapes(self.made_from, known)
            self.returned[known] = self.jitted.eval_shape(*args) if found is None else found
        return self.returned[known]  # traced once for this and for compiling


def in_parts(cores: int) -> dict[str, Any]:
    """In how many parts LLVM is given a program, where that is not left to XLA.

    XLA's own 32 keep many cores busy with one program. Whole, programs are a sixth less work, and those of a run keep
    two cores busy beside each other.

    >>> in_parts(2), in_parts(16)
    ({'xla_cpu_parallel_codegen_split_count': 1}, {})
    """
    return {"xla_cpu_parallel_codegen_split_count": 1} if cores <= FEW_CORES else {}


FEW_CORES = 2  # more have not been measured
# Half the compile time for programs that run as fast: the work is in matrix products, which these do not touch.
QUICK_COMPILATION = {"xla_backend_optimization_level": 2, "xla_cpu_use_fusion_emitters": False, **in_parts(cores())}


def signature(args: Any) -> Any:
    """What a program is compiled for: structure, shapes and types of its arguments, and the precision."""
    leaves, structure = jax.tree.flatten(args)
    kind = lambda a: (a.shape, a.dtype) if isinstance(a, jax.Array) else (jnp.shape(a), jnp.result_type(a))
    return in_double(), structure, tuple(map(kind, leaves))


@contextlib.contextmanager
def nothing_collected() -> Iterator[None]:
    """Python's search for garbage waits: tracing makes many objects that stay, and would be searched over and over."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


RUNS, SEEDS = "runs", "seeds"  # what an argument has along its first axis: a value for each run; equal for equal seeds


def over_runs(function: Callable, layout: Layout, *axes: str | None) -> Callable:
    """The function over the run axis of those arguments that have one, side by side or in turn.

    Side by side the runs are points of a grid × seeds. Keys have no axis of points, and neither has the number of the
    round, from which the keys of rounds are made: JAX computes once what depends on these and on shared arguments only.
    """

    def whole(*args: Any) -> Any:
        with in_lanes(layout.lanes):
            return over_all(*args)

    def over_all(*args: Any) -> Any:
        runs = next(jax.tree.leaves(a)[0].shape[0] for a, axis in zip(args, axes, strict=True) if axis is not None)

        def one(*own: Any) -> Any:
            several = zip(own, args, axes, strict=True)
            return function(*(on_one_clock(mine, all) if axis == RUNS else mine for mine, all, axis in several))

        if runs == 1:
            return alone(one, args, axes)
        over_both = tuple(None if axis is None else 0 for axis in axes)
        if layout.in_turn:
            return in_turn(one, args, over_both)
        points, seeds = runs // layout.seeds, layout.seeds
        cut = {RUNS: lambda v: v.reshape(points, seeds, *v.shape[1:]), SEEDS: lambda v: v[:seeds], None: lambda v: v}
        over_points = tuple(0 if axis == RUNS else None for axis in axes)
        batched = side_by_side(side_by_side(one, seeds, over_both), points, over_points)
        found = batched(*(jax.tree.map(cut[axis], a) for a, axis in zip(args, axes, strict=True)))
        return jax.tree.map(lambda v: v.reshape(runs, *v.shape[2:]), found)

    return whole


def alone(function: Callable, args: tuple, axes: tuple[str | None, ...]) -> Any:
    """The plain function on the only run: one reshape for every array, where a model may have hundreds of them."""
    only = lambda a, axis: a if axis is None else jax.tree.map(lambda v: v.reshape(v.shape[1:]), a)
    return jax.tree.map(lambda v: jnp.asarray(v)[None], function(*map(only, args, axes)))


def side_by_side(function: Callable, length: int, axes: tuple[int | None, ...]) -> Callable:
    """``vmap``, or for a batch of one the plain function, which compiles to better code."""
    if length > 1:
        return jax.vmap(function, in_axes=axes)
    first = lambda a, axis: a if axis is None else jax.tree.map(lambda v: v[0], a)
    return lambda *args: jax.tree.map(lambda v: jnp.asarray(v)[None], function(*map(first, args, axes)))


def in_turn(function: Callable, args: tuple, axes: tuple[int | None, ...]) -> Any:
    """The same results as side by side, made one after the other."""

    def one(own: list) -> Any:
        rest = iter(own)
        return function(*(a if axis is None else next(rest) for a, axis in zip(args, axes, strict=True)))

    return jax.lax.map(one, [a for a, axis in zip(args, axes, strict=True) if axis is not None])


def on_one_clock(own: Tree, runs: Tree) -> Tree:
    """A run's servers and views with the number of the round that all runs have in common."""
    has_clock = lambda node: isinstance(node, Server | View)
    common = lambda mine, all: mine._replace(round=all.round[0], rounds=all.rounds[0]) if has_clock(mine) else mine
    return jax.tree.map(common, own, runs, is_leaf=has_clock)


def enable_compilation_cache() -> None:
    """Keeps compiled programs on disk between processes, unless the user has chosen a place already.

    The folder is ``$MAJORANT_COMPILATION_CACHE`` (empty: none), by default ``~/.cache/majorant/xla``.
    """
    if getattr(jax.config, "jax_compilation_cache_dir", None) is not None:
        return
    folder = os.environ.get("MAJORANT_COMPILATION_CACHE", str(Path.home() / ".cache" / "majorant" / "xla"))
    if folder:
        jax.config.update("jax_compilation_cache_dir", folder)
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.01)
