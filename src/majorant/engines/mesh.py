"""A mesh: the same rounds on many devices, of one machine or of several, each with its share of clients or of runs.

The devices form a rectangle, runs × clients. Runs (seeds, points of a grid) have nothing to tell each other, so they
are dealt first, as far as they go evenly and every device can hold the clients of its runs. The devices that have the
same runs divide the clients; what clients sent is added up among these devices by collectives, and each of them then
makes the server's step, with the same numbers. A program is the one-device program with these sums in it
(`jax.shard_map`).

Programs on several machines take and give arrays of which every machine holds a part. `put` makes them, from functions
that make a part where that is all a machine should ever see, and `fetch` brings the whole to every machine.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from majorant.core import Algorithm, Server, Tree, View
from majorant.core.collectives import CLIENTS
from majorant.data.federated import FederatedData
from majorant.engines.memory import fills_the_machine
from majorant.engines.programs import RUNS, Layout, Program
from majorant.exchange.federation import Federation
from majorant.exchange.gossip import Peers

SAME = PartitionSpec()  # the same on every device
RUN = PartitionSpec(RUNS)  # (runs, ...)
HELD = PartitionSpec(RUNS, CLIENTS)  # (runs, clients, ...)
CLIENT = PartitionSpec(CLIENTS)  # (clients, ...), the same for all runs
SHARE_BYTES = 1 << 22  # of training samples, for each part of a divided processor
Spec = Any  # a tree of these, or the beginning of one


def devices_for(wanted: int | None) -> list[Any]:
    """The devices that a simulation uses: so many of those that there are, or without a number one; of several
    processes all."""
    found = jax.devices()
    if jax.process_count() > 1:
        if wanted not in (None, len(found)):
            raise ValueError(
                f"the {jax.process_count()} processes have {len(found)} devices together and all take part: leave "
                f"devices out, or give {len(found)}, not {wanted}"
            )
        return found
    if wanted is not None and wanted > len(found):
        kind = jax.default_backend()
        divided = f"; JAX_NUM_CPU_DEVICES={wanted} in the environment, before Python starts, divides the processor"
        more = divided * (kind == "cpu")
        raise ValueError(f"there {are(len(found), f'{kind} device')}, not {wanted}: give a smaller number{more}")
    return found[: wanted or 1]


def devices_worth_using(algorithm: Algorithm, data: FederatedData) -> int | None:
    """The devices of a divided processor that a run should use where no number is asked for; None: the usual one.

    Each needs samples enough to be worth the sum over devices in every round. One client of a large model keeps all
    cores busy by itself.
    """
    if jax.default_backend() != "cpu" or jax.process_count() > 1:
        return None
    worth = min(len(jax.devices()), data.train.x.nbytes // SHARE_BYTES, int((~data.unseen).sum()))
    return None if worth < 2 or fills_the_machine(algorithm) else worth


def are(count: int, what: str) -> str:
    """Words for a count.

    >>> are(1, "device"), are(2, "device")
    ('is 1 device', 'are 2 devices')
    """
    return f"is {count} {what}" if count == 1 else f"are {count} {what}s"


def shares_of_runs(devices: int, runs: int, seeds: int) -> list[int]:
    """Into how many equal parts the runs can be divided for so many devices, most first.

    A part has whole points of a grid, with all their seeds, or some seeds of one point.

    >>> shares_of_runs(8, 4, seeds=4), shares_of_runs(8, 6, seeds=3), shares_of_runs(8, 1, seeds=1)
    ([4, 2, 1], [2, 1], [1])
    """
    even = lambda part: part % seeds == 0 or seeds % part == 0
    return [n for n in range(devices, 0, -1) if devices % n == 0 and runs % n == 0 and even(runs // n)]


def rectangle(devices: list[Any], share: int) -> Mesh | None:
    """The devices as runs × clients; None for one device."""
    if len(devices) == 1 and jax.process_count() == 1:
        return None
    return Mesh(np.array(devices).reshape(share, -1), (RUNS, CLIENTS))


def dealt(federation: Federation) -> bool:
    """Whether peers are dealt over the devices, each with its client."""
    return isinstance(federation.exchange, Peers) and federation.exchange.places.axis is not None


def server_spec(federation: Federation) -> Spec:
    """Where a server lies: on every device, or of peers that are dealt each on the device of its client."""
    if not dealt(federation):
        return RUN
    return Server(HELD, RUN, HELD, RUN, RUN, RUN)  # type: ignore[arg-type]


def view_spec(federation: Federation) -> Spec:
    """Where a view lies."""
    if not dealt(federation):
        return RUN
    return View(HELD, RUN, RUN, RUN, HELD, RUN, RUN)  # type: ignore[arg-type]


class OnMesh(Program):
    """A program on all devices of a mesh: the function runs on each, on its parts of the arguments."""

    def __init__(self, function: Callable, mesh: Mesh, ins: tuple[Spec, ...], outs: Spec, **options: Any) -> None:
        self.mesh, self.ins = mesh, ins
        lies = lambda specs: jax.tree.map(lambda spec: NamedSharding(mesh, spec), specs, is_leaf=is_spec)
        spread = jax.shard_map(function, mesh=mesh, in_specs=ins, out_specs=outs, check_vma=False)
        super().__init__(spread, in_shardings=lies(ins), out_shardings=lies(outs), **options)

    def __call__(self, seconds: dict[str, float], *args: Any) -> Any:
        return super().__call__(seconds, *self.placed(args))

    def lowered(self, *args: Any) -> Callable[[], None]:
        """Traces for arguments of these shapes; gives a function that compiles."""
        return super().lowered(*self.placed(args))

    def placed(self, args: tuple[Any, ...]) -> list[Any]:
        """The arguments on their devices."""
        return [put(arg, self.mesh, spec) for arg, spec in zip(args, self.ins, strict=True)]


def program(function: Callable, layout: Layout, ins: tuple[Spec, ...], outs: Spec, **options: Any) -> Program:
    """A program on the devices of a layout."""
    if layout.mesh is None:
        return Program(function, **options)
    return OnMesh(function, layout.mesh, ins, outs, **options)


def is_spec(node: Any) -> bool:
    """Whether a node of a tree of specs is one."""
    return isinstance(node, PartitionSpec)


def put(tree: Tree, mesh: Mesh | None, spec: Spec) -> Tree:
    """Arrays, of which every process has the whole, on the devices of a mesh; those that are there already stay."""
    if mesh is None:
        return jax.tree.map(jnp.asarray, tree)
    here = lambda spec, part: jax.tree.map(lambda leaf: put_leaf(leaf, NamedSharding(mesh, spec)), part)
    return jax.tree.map(here, spec, tree, is_leaf=is_spec)


def put_leaf(leaf: Any, sharding: NamedSharding) -> Any:
    """One array on its devices."""
    if isinstance(leaf, jax.ShapeDtypeStruct) or getattr(leaf, "sharding", None) == sharding:
        return leaf
    if hasattr(leaf, "dtype") and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        return jax.random.wrap_key_data(put_leaf(jax.random.key_data(leaf), sharding))
    whole = np.asarray(leaf)
    return jax.make_array_from_callback(whole.shape, sharding, lambda index: whole[index])


def put_parts(make: Callable[[slice, slice], Tree], mesh: Mesh, spec: PartitionSpec, runs: int, rows: int) -> Tree:
    """Arrays of clients on the devices of a mesh, from a function that makes those of some runs and rows.

    A process makes the parts of its own devices only.
    """
    axes = {RUNS: runs, CLIENTS: rows}
    shape = tuple(axes[name] for name in spec)
    sharding = NamedSharding(mesh, spec)
    made: dict[Any, Tree] = {}
    parts = []
    for device, index in sharding.addressable_devices_indices_map(shape).items():
        which = {RUNS: slice(None)} | dict(zip(spec, index or (), strict=True))
        key = tuple((s.start, s.stop) for s in which.values())
        made[key] = made[key] if key in made else make(which[RUNS], which[CLIENTS])
        parts.append(jax.device_put(made[key], device))
    join = lambda *leaves: jax.make_array_from_single_device_arrays(
        (*shape, *leaves[0].shape[len(shape) :]), sharding, list(leaves)
    )
    return jax.tree.map(join, *parts)


def fetch(tree: Tree) -> Tree:
    """Arrays from all devices, and all machines, as NumPy arrays."""

    def whole(leaf: Any) -> np.ndarray:
        if not isinstance(leaf, jax.Array) or leaf.is_fully_addressable:
            return np.asarray(leaf)
        if leaf.is_fully_replicated:
            return np.asarray(leaf.addressable_data(0))
        return np.asarray(multihost_utils.process_allgather(leaf, tiled=True))

    return jax.tree.map(whole, tree)


def of_owners(tree: Tree, mesh: Mesh | None, device: int) -> Tree:
    """What processes have computed, ``(runs, ...)``, each run's by one that has the clients of its ``device``-th part.

    The others have not their samples, and computed nothing of worth.
    """
    if jax.process_count() == 1 or mesh is None:
        return tree
    owners = [each.process_index for each in mesh.devices[:, device]]

    def pick(leaf: np.ndarray) -> np.ndarray:
        each = np.asarray(multihost_utils.process_allgather(leaf))
        runs = np.arange(len(leaf))
        return each[np.repeat(owners, len(leaf) // len(owners)), runs]

    return jax.tree.map(pick, tree)
