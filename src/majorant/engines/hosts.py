"""Several processes, of one machine or of many, that run one simulation together by JAX's distributed runtime.

Every process runs the same program on the same settings and meets the others in the sums of a round. Process 0 writes
what is to be kept. Anything that is decided by a clock or by files is decided by process 0 and told to the others,
because processes that decide differently would wait for each other forever. If one of them stops, all do: the run goes
on from its checkpoint, with as many processes as there are then.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np

from majorant.engines import clusters
from majorant.engines.divergence import Diverged

PATIENCE = 120  # seconds to wait for the others at the start


class HostLost(RuntimeError):
    """Another process of the same run has stopped."""


def join(
    coordinator: str | None, process: int | None = None, processes: int | None = None, *, patience: float = PATIENCE
) -> None:
    """Makes this process one of several; call it before anything else uses JAX.

    ``coordinator`` is the address of process 0, HOST:PORT, the same on all; "auto" takes it, this process's number and
    how many there are from the variables of SLURM, Open MPI or Kubernetes (`clusters`). With an address, numbers that
    are left out are taken from there, too.
    """
    where = place_of(coordinator, process, processes, os.environ)
    address = str(where.get("coordinator_address", coordinator))
    if where.get("process_id", 0) > 0:
        await_coordinator(address, patience)
    late = threading.Timer(patience, give_up, [address, patience])  # JAX would end the process with a stack trace
    late.daemon = True
    late.start()
    jax.config.update("jax_enable_preemption_service", False)  # which would swallow SIGTERM
    try:
        jax.distributed.initialize(**where, initialization_timeout=int(patience) + 60)
    except (ValueError, RuntimeError) as error:
        if not where:
            raise unknown_cluster(first_line(error)) from None
        raise ConnectionError(not_found(address, patience, first_line(error))) from None
    finally:
        late.cancel()


def place_of(
    coordinator: str | None, process: int | None, processes: int | None, variables: Mapping[str, str]
) -> dict[str, Any]:
    """What JAX is told of this process: nothing where it finds out by itself, as in Kubernetes and on TPUs."""
    if coordinator == "auto" and (process is not None or processes is not None):
        raise ValueError("with --coordinator auto the numbers of processes are found, too: leave them out")
    if coordinator not in (None, "auto") and process is not None and processes is not None:
        return explicit(coordinator, process, processes)
    place = None if coordinator is None else clusters.found(variables)
    if place is None:
        if coordinator == "auto":
            clusters.check_kubernetes(variables)
            return {}
        return explicit(coordinator, process, processes)
    address = place.address if coordinator == "auto" else coordinator
    if address is None:
        raise ValueError(
            f"{place.starter} does not tell where process 0 of {place.processes} is: give --coordinator HOST:PORT in "
            "place of auto, with the name of its host (the numbers of processes are known)"
        )
    for name, given, known in (("process-id", process, place.process), ("processes", processes, place.processes)):
        if given is not None and given != known:
            raise ValueError(f"--{name} {given} contradicts {place.starter}, which says {known}: leave it out")
    own = clusters.own_devices(place, variables)
    return explicit(address, place.process, place.processes) | {"local_device_ids": own}


def unknown_cluster(why: str) -> Exception:
    """What to say where nothing tells how processes find each other."""
    say = "give --coordinator HOST:PORT, --process-id and --processes"
    if clusters.check_kubernetes(os.environ):
        return ConnectionError(f"Kubernetes was asked who is who: {why}. Mend that, or {say}")
    return ValueError(
        f"nothing in the environment says how the processes find each other ({why}): start them with srun, mpirun or "
        f"as a Kubernetes JobSet, or {say}"
    )


def await_coordinator(address: str, patience: float) -> None:
    """Waits until something answers at the address of process 0."""
    host, _, port = address.rpartition(":")
    end = time.monotonic() + patience
    while True:
        try:
            with socket.create_connection((host.strip("[]"), int(port)), timeout=5):
                return
        except OSError as error:
            if time.monotonic() > end:
                raise ConnectionError(not_found(address, patience, str(error))) from None
        time.sleep(0.2)


def give_up(address: str | None, patience: float) -> None:
    """Ends the process with a line: it waits inside the runtime, where no exception reaches it."""
    sys.stderr.write(f"error: {not_found(address, patience, 'not all have come')}\n")
    sys.stderr.flush()
    os._exit(2)


def not_found(address: str | None, patience: float, why: str) -> str:
    """What to say of processes that did not find each other."""
    at = "" if address in (None, "auto") else f" at {address}"
    return (
        f"the processes of this run did not find each other{at} within {patience:g} s ({why}): see that all of them "
        "have started, with the same address of process 0 and a number of their own, and that they can reach it"
    )


def explicit(coordinator: str | None, process: int | None, processes: int | None) -> dict[str, Any]:
    """Where this process is among the others, checked.

    >>> explicit("localhost:1234", 0, 2)["num_processes"]
    2
    """
    if coordinator is None or process is None or processes is None:
        raise ValueError(
            "of several processes each is given --coordinator HOST:PORT, --process-id and --processes, unless srun or "
            "mpirun started them"
        )
    host, _, port = coordinator.rpartition(":")
    if not host or not port.isdigit() or not 0 < int(port) < 1 << 16:
        raise ValueError(f"the coordinator is an address such as 10.0.0.1:1234, or auto, got {coordinator!r}")
    if processes < 1 or not 0 <= process < processes:
        raise ValueError(f"{processes} processes have the numbers from 0 to {processes - 1}, got {process}")
    numbers = {"process_id": process, "num_processes": processes}
    return {"coordinator_address": coordinator, **numbers, "cluster_detection_method": "deactivate"}


def first_line(error: BaseException) -> str:
    """The beginning of a message."""
    return str(error).partition("\n")[0][:200]


def several() -> bool:
    """Whether there are other processes."""
    return jax.process_count() > 1


def follows() -> bool:
    """Whether this process leaves the writing to another."""
    return jax.process_index() > 0


def decided(flag: bool) -> bool:
    """What process 0 says, for all."""
    if not several():
        return flag
    from jax.experimental import multihost_utils

    return bool(multihost_utils.broadcast_one_to_all(np.asarray(flag)))


def least(size: int) -> int:
    """The least of the processes' sizes, in whole MiB: what a layout depends on must be the same for all."""
    if not several():
        return size
    from jax.experimental import multihost_utils

    return int(multihost_utils.process_allgather(np.asarray(size >> 20, np.int32)).min()) << 20


def share(count: int) -> np.ndarray:
    """The numbers below ``count`` that are this process's, where all divide them evenly."""
    return np.array_split(np.arange(count), jax.process_count())[jax.process_index()]


def of_all(rows: np.ndarray, count: int) -> np.ndarray:
    """What every process has found for its `share` of ``count`` things, ``(count, ...)``, for all."""
    if not several():
        return rows
    from jax.experimental import multihost_utils

    longest = -(-count // jax.process_count())
    filled = np.zeros((longest, *rows.shape[1:]), rows.dtype)
    filled[: len(rows)] = rows
    each = np.asarray(multihost_utils.process_allgather(filled))
    sizes = [len(part) for part in np.array_split(np.arange(count), jax.process_count())]
    return np.concatenate([part[:size] for part, size in zip(each, sizes, strict=True)])


@contextlib.contextmanager
def place_to_write(folder: Path) -> Iterator[Path]:
    """The folder, for the process that writes; for others one of their own, which ends with the ``with`` block."""
    if not follows():
        yield folder
        return
    with tempfile.TemporaryDirectory(prefix="majorant-") as scratch:
        yield Path(scratch) / "run"


@contextlib.contextmanager
def explained_loss() -> Iterator[None]:
    """Says that another process has stopped, where that is why something failed; and does not wait for it at the end.

    What is wrong with the input is found by all processes, which end together.
    """
    try:
        yield
    except (ValueError, Diverged):
        raise
    except BaseException as error:
        if not several():
            raise
        atexit.register(leave)
        if not isinstance(error, jax.errors.JaxRuntimeError) or "RESOURCE_EXHAUSTED" in str(error):
            raise
        raise HostLost(
            f"another process of this run has stopped, and so does this one ({first_line(error)}). Start all of them "
            "again with --resume: the run goes on from its last checkpoint, on as many processes as there are"
        ) from error


def leave() -> None:
    """Ends this process at once: JAX would wait for the others, which wait for this one."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(2)
