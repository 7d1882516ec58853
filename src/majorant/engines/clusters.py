"""Where a process is among the others, as the variables say that its starter sets: mpirun, srun, or a JobSet.

======================  ==============================================================================================
Open MPI                ``OMPI_COMM_WORLD_RANK``, ``_SIZE``, ``_LOCAL_RANK``, ``_LOCAL_SIZE``; where process 0 is, by
                        ``OMPI_MCA_orte_hnp_uri`` (Open MPI 4); Open MPI 5 tells it to nobody, but where all are on
                        one host, that is known
SLURM                   ``SLURM_PROCID``, ``SLURM_STEP_NUM_TASKS`` (or ``SLURM_NTASKS``), ``SLURM_LOCALID``,
                        ``SLURM_STEP_TASKS_PER_NODE``, ``SLURM_NODEID``; process 0 is on the first host of
                        ``SLURM_STEP_NODELIST``
Kubernetes              ``JOB_COMPLETION_INDEX``; the rest JAX asks the cluster for (``pip install "jax[k8s]"``)
======================  ==============================================================================================

mpirun inside a SLURM job sets both kinds, of which those of SLURM are the daemons': Open MPI's are read first. The port
follows from the number of the job, so that all processes find the same and jobs seldom the same one;
``JAX_COORDINATOR_PORT`` gives another.
"""

from __future__ import annotations

import importlib.util
import re
import zlib
from collections.abc import Mapping
from typing import NamedTuple

Variables = Mapping[str, str]
PORTS = range(61440, 65536)  # of which a job takes one
VISIBLE = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")


class Place(NamedTuple):
    """One of several processes."""

    starter: str
    address: str | None  # of process 0; None where the variables do not tell
    process: int
    processes: int
    local: int  # which of the processes of this host it is
    here: int  # how many processes this host has


def found(variables: Variables) -> Place | None:
    """The place that Open MPI or SLURM gave a process; None where neither started it."""
    place = open_mpi(variables) or slurm(variables)
    if place is None:
        return None
    if not 0 <= place.process < place.processes or not 0 <= place.local < place.here <= place.processes:
        raise ValueError(
            f"the variables of {place.starter} contradict each other: process {place.process} of {place.processes}, "
            f"on its host {place.local} of {place.here} (they count from 0). Start the processes anew, or say who is "
            "who by --coordinator HOST:PORT, --process-id and --processes"
        )
    return place


def open_mpi(variables: Variables) -> Place | None:
    """The place that mpirun gave."""
    if "OMPI_COMM_WORLD_RANK" not in variables and "OMPI_COMM_WORLD_SIZE" not in variables:
        return None
    names = ("RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE")
    rank, size, local, here = (number(variables, f"OMPI_COMM_WORLD_{name}", "Open MPI") for name in names)
    address = None
    if uri := variables.get("OMPI_MCA_orte_hnp_uri"):  # 1531576320.0;tcp://10.96.0.1,10.148.0.1:34911
        known = re.match(r"(\d+)\.\d+;tcp(?:://([^,:]+)|6://\[([^,\]]+))", uri)
        if known is None:
            raise ValueError(f"OMPI_MCA_orte_hnp_uri is {uri!r}, which names no host: give --coordinator HOST:PORT")
        address = at(known[2] or known[3], int(known[1]) >> 12, variables)
    elif here == size:
        address = at("127.0.0.1", zlib.crc32(variables.get("PMIX_NAMESPACE", "").encode()), variables)
    return Place("Open MPI", address, rank, size, local, here)


def slurm(variables: Variables) -> Place | None:
    """The place that srun gave."""
    if "SLURM_JOB_ID" not in variables:
        return None
    if "SLURM_STEP_NODELIST" not in variables or "SLURM_PROCID" not in variables:
        raise ValueError(
            f"this is in SLURM's job {variables['SLURM_JOB_ID']}, but srun did not start it: put srun before the "
            "command, which starts it once for every task"
        )
    count = "STEP_NUM_TASKS" if "SLURM_STEP_NUM_TASKS" in variables else "NTASKS"
    job, rank, size, local = (
        number(variables, f"SLURM_{name}", "SLURM") for name in ("JOB_ID", "PROCID", count, "LOCALID")
    )
    step = number(variables, "SLURM_STEP_ID", "SLURM") if "SLURM_STEP_ID" in variables else 0
    here = size
    if "SLURM_STEP_TASKS_PER_NODE" in variables:
        each = tasks_per_node(variables["SLURM_STEP_TASKS_PER_NODE"])
        node = number(variables, "SLURM_NODEID", "SLURM")
        if node >= len(each) or sum(each) != size:
            raise ValueError(
                f"the variables of SLURM contradict each other: {size} tasks, of which the hosts have {each}, and this "
                f"is host {node} (from 0). Start the processes anew, or say who is who by --coordinator HOST:PORT, "
                "--process-id and --processes"
            )
        here = each[node]
    address = at(first_host(variables["SLURM_STEP_NODELIST"]), job + step, variables)
    return Place("SLURM", address, rank, size, local, here)


def check_kubernetes(variables: Variables) -> bool:
    """Whether this is in Kubernetes, where JAX asks the cluster; what that needs must be there."""
    if "KUBERNETES_SERVICE_HOST" not in variables:
        return False
    if "JOB_COMPLETION_INDEX" not in variables:
        raise ValueError(
            "this pod of Kubernetes has no number (JOB_COMPLETION_INDEX): set completionMode: Indexed in the jobs of "
            "the JobSet, or say who is who by --coordinator HOST:PORT, --process-id and --processes"
        )
    if importlib.util.find_spec("kubernetes") is None:
        raise ValueError(
            'asking Kubernetes who is who needs its package: pip install "jax[k8s]"; or say it by --coordinator '
            'HOST:PORT, --process-id "$JOB_COMPLETION_INDEX" and --processes'
        )
    return True


def own_devices(place: Place, variables: Variables) -> list[int] | None:
    """The device of a process that shares its host with others, unless its starter lets it see one only; else all."""
    for name in VISIBLE:
        if name in variables and "," not in variables[name]:
            return None
    return [place.local] if place.here > 1 else None


def number(variables: Variables, name: str, starter: str) -> int:
    """A variable that is a number.

    >>> number({"SLURM_PROCID": "3"}, "SLURM_PROCID", "SLURM")
    3
    """
    text = variables.get(name)
    if text is None:
        raise ValueError(f"{starter} started this process, but {name} is not set: pass all its variables on")
    if not text.isdecimal():
        raise ValueError(f"{name} must be a number from 0 on, got {text!r}: {starter} sets it, leave it as it is")
    return int(text)


def at(host: str, job: int, variables: Variables) -> str:
    """The address of process 0 of a job."""
    port = variables.get("JAX_COORDINATOR_PORT") or str(PORTS[job % len(PORTS)])
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def first_host(hosts: str) -> str:
    """The first of a list of hosts as SLURM writes it.

    >>> [first_host(text) for text in ("tux3", "tux3,tux7", "tux[004-010,12],fox", "a[1-2]-b[7,9]")]
    ['tux3', 'tux3', 'tux004', 'a1-b7']
    """
    first = re.match(r"(?:[^,\[]|\[[^\]]*\])*", hosts)
    host = re.sub(r"\[([^\],-]*)[^\]]*\]", r"\1", first.group() if first else "")
    if not host:
        raise ValueError(f"SLURM_STEP_NODELIST names no host: {hosts!r}")
    return host


def tasks_per_node(text: str) -> list[int]:
    """How many tasks each host has, as SLURM writes it.

    >>> tasks_per_node("2(x3),1")
    [2, 2, 2, 1]
    """
    parts = [re.fullmatch(r"(\d+)(?:\(x(\d+)\))?", part.strip()) for part in text.split(",")]
    if not all(parts):
        raise ValueError(f"SLURM_STEP_TASKS_PER_NODE must be as in 2(x3),1; got {text!r}")
    return [int(part[1]) for part in parts if part for _ in range(int(part[2] or 1))]
