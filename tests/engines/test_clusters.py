"""Who a process is by the variables that srun, mpirun and Kubernetes set; `tests/network` starts such processes."""

from __future__ import annotations

import re
import sys
import types

import pytest

from majorant.engines import clusters, hosts
from majorant.engines.clusters import found, own_devices

SLURM = {
    "SLURM_JOB_ID": "5003",
    "SLURM_STEP_ID": "1",
    "SLURM_STEP_NODELIST": "tux[07-09]",
    "SLURM_STEP_NUM_TASKS": "5",
    "SLURM_NTASKS": "8",  # of the job, of which the step has a part
    "SLURM_STEP_TASKS_PER_NODE": "2(x2),1",
    "SLURM_PROCID": "3",
    "SLURM_LOCALID": "1",
    "SLURM_NODEID": "1",
}
MPI = {
    "OMPI_COMM_WORLD_RANK": "3",
    "OMPI_COMM_WORLD_SIZE": "4",
    "OMPI_COMM_WORLD_LOCAL_RANK": "1",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
    "OMPI_MCA_orte_hnp_uri": "1531576320.0;tcp://10.96.0.1,10.148.0.1:34911",
}
HERE = {"OMPI_COMM_WORLD_LOCAL_SIZE": "4", "OMPI_COMM_WORLD_LOCAL_RANK": "3", "OMPI_MCA_orte_hnp_uri": ""}


def told(variables, coordinator="auto", process=None, processes=None):
    """What JAX is told."""
    where = hosts.place_of(coordinator, process, processes, variables)
    assert where.pop("cluster_detection_method", "deactivate") == "deactivate"
    return tuple(where.get(k) for k in ("coordinator_address", "process_id", "num_processes", "local_device_ids"))


def test_what_the_variables_of_srun_and_mpirun_say():
    assert told(SLURM) == (f"tux07:{61440 + 5004 % 4096}", 3, 5, [1])
    assert told(MPI) == (f"10.96.0.1:{61440 + 1531576320 // 4096 % 4096}", 3, 4, [1])
    assert told(SLURM | MPI) == told(MPI)  # mpirun inside a job of SLURM
    six = MPI | {"OMPI_MCA_orte_hnp_uri": "4096.0;tcp6://[fe80::b9b:ac5d,2620:10d::2]:43370"}
    assert told(six)[0] == "[fe80::b9b:ac5d]:61441"
    assert told(MPI | {"JAX_COORDINATOR_PORT": "1234"})[0] == "10.96.0.1:1234"
    assert told(MPI | HERE)[0].startswith("127.0.0.1:")  # Open MPI 5, all on one host
    assert told(MPI | HERE, "tux:99") == ("tux:99", 3, 4, [3])
    assert told(SLURM, "tux08:99", 3) == ("tux08:99", 3, 5, [1])
    assert told(SLURM, "tux08:99", 0, 2) == ("tux08:99", 0, 2, None)  # whoever says everything is believed
    jobs = {found(SLURM | {"SLURM_STEP_ID": str(step)}).address for step in range(9)}
    assert len(jobs) == 9


def test_a_process_takes_one_device_where_it_shares_its_host_and_all_where_it_does_not():
    alone = SLURM | {"SLURM_PROCID": "4", "SLURM_LOCALID": "0", "SLURM_NODEID": "2"}
    assert told(alone)[3] is None
    assert told(SLURM)[3] == [1]
    place = found(SLURM)
    assert own_devices(place, {"CUDA_VISIBLE_DEVICES": "0,1"}) == [1]
    assert own_devices(place, {"CUDA_VISIBLE_DEVICES": "1"}) is None  # srun lets each task see its own only


@pytest.mark.parametrize(
    ("variables", "complaint"),
    [
        ({"SLURM_JOB_ID": "5"}, "job 5, but srun did not start it"),
        ({k: v for k, v in SLURM.items() if k != "SLURM_LOCALID"}, "SLURM_LOCALID is not set"),
        (SLURM | {"SLURM_PROCID": "5"}, "contradict each other: process 5 of 5"),
        (SLURM | {"SLURM_PROCID": "-1"}, "SLURM_PROCID must be a number from 0 on, got '-1'"),
        (SLURM | {"SLURM_LOCALID": "2"}, "on its host 2 of 2"),
        (SLURM | {"SLURM_STEP_TASKS_PER_NODE": "2,2"}, r"5 tasks, of which the hosts have \[2, 2\]"),
        (SLURM | {"SLURM_NODEID": "3"}, "this is host 3"),
        (SLURM | {"SLURM_STEP_TASKS_PER_NODE": "two"}, "must be as in"),
        (SLURM | {"SLURM_STEP_NODELIST": ""}, "names no host"),
        ({"OMPI_COMM_WORLD_RANK": "0"}, "OMPI_COMM_WORLD_SIZE is not set"),
        (MPI | {"OMPI_COMM_WORLD_RANK": "4"}, "process 4 of 4"),
        (MPI | {"OMPI_COMM_WORLD_LOCAL_SIZE": "5"}, "on its host 1 of 5"),
        (MPI | {"OMPI_MCA_orte_hnp_uri": "?"}, "names no host"),
        (MPI | {"OMPI_MCA_orte_hnp_uri": ""}, "does not tell where process 0 of 4 is: give --coordinator HOST:PORT"),
        ({"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, "set completionMode: Indexed"),
        ({"KUBERNETES_SERVICE_HOST": "10.0.0.1", "JOB_COMPLETION_INDEX": "0"}, re.escape('pip install "jax[k8s]"')),
    ],
)
def test_variables_that_are_missing_or_contradict_each_other(variables, complaint, monkeypatch):
    monkeypatch.setattr(clusters.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ValueError, match=complaint):
        hosts.place_of("auto", None, None, variables)


def test_flags_that_contradict_the_variables():
    with pytest.raises(ValueError, match="--processes 4 contradicts SLURM, which says 5"):
        hosts.place_of("tux07:99", None, 4, SLURM)
    with pytest.raises(ValueError, match="leave them out"):
        hosts.place_of("auto", 0, None, SLURM)
    with pytest.raises(ValueError, match="each is given"):
        hosts.place_of("tux07:99", None, 4, {})


class Reached(Exception):
    """What JAX's runtime was asked for."""


def runtime(monkeypatch):
    """JAX's own state, of a process that is not connected, whose connection tells what it was asked for."""
    from jax._src import distributed

    def connect(address, process, **_):
        raise Reached(address, process, distributed.global_state.num_processes)

    monkeypatch.setattr(distributed, "global_state", distributed.State())
    monkeypatch.setattr(distributed.xla_bridge, "backends_are_initialized", lambda: False)
    monkeypatch.setattr(distributed._jax, "get_distributed_runtime_service", lambda *a, **k: None)
    monkeypatch.setattr(distributed._jax, "get_distributed_runtime_client", connect)


def test_a_pod_of_a_jobset_is_told_by_kubernetes(monkeypatch):
    """The package that asks the cluster is a stand-in; what JAX makes of its answers is real."""
    from jax._src.clusters import k8s_cluster

    name = "jobset.sigs.k8s.io/jobset-name"
    space = types.SimpleNamespace
    owner = space(controller=True, kind="Job")
    pod = space(metadata=space(labels={"job-name": "study-workers-0"}, owner_references=[owner], name="pod"))
    job = space(metadata=space(name="study-workers-0", labels={name: "study"}), spec=space(parallelism=3))
    core = space(list_namespaced_pod=lambda **_: space(items=[pod]))
    client = space(
        CoreV1Api=lambda: core,
        BatchV1Api=lambda: space(read_namespaced_job=lambda **_: job),
        exceptions=space(ApiException=OSError),
    )
    package = types.ModuleType("kubernetes")
    package.__spec__ = types.SimpleNamespace()
    package.config, package.client = space(load_incluster_config=lambda: None), client
    monkeypatch.setitem(sys.modules, "kubernetes", package)
    monkeypatch.setattr(k8s_cluster.K8sCluster, "_namespace", classmethod(lambda _: "default"))
    monkeypatch.setattr(k8s_cluster.socket, "gethostbyname", lambda _: "10.1.1.1")
    variables = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "JOB_COMPLETION_INDEX": "0", "HOSTNAME": "study-workers-0-0"}
    for variable, value in variables.items():
        monkeypatch.setenv(variable, value)
    runtime(monkeypatch)
    with pytest.raises(Reached) as reached:
        hosts.join("auto", patience=30)
    assert reached.value.args == ("study-workers-0-0.study:55527", 0, 3)
    owner.kind = "ReplicaSet"
    with pytest.raises(ConnectionError, match=r"Kubernetes was asked who is who: .*only supports Job"):
        hosts.join("auto", patience=30)


def test_without_any_variables_there_is_an_answer_at_once(monkeypatch):
    for variable in [*SLURM, *MPI, "KUBERNETES_SERVICE_HOST", "JAX_COORDINATOR_ADDRESS"]:
        monkeypatch.delenv(variable, raising=False)
    runtime(monkeypatch)
    with pytest.raises(ValueError, match="nothing in the environment says how the processes find each other"):
        hosts.join("auto", patience=30)


def test_what_was_found_is_what_jax_is_asked_for(monkeypatch):
    first = {"SLURM_PROCID": "0", "SLURM_LOCALID": "0", "SLURM_NODEID": "0", "SLURM_STEP_TASKS_PER_NODE": "1,2(x2)"}
    for variable, value in (SLURM | first).items():
        monkeypatch.setenv(variable, value)
    runtime(monkeypatch)
    with pytest.raises(Reached) as reached:
        hosts.join("auto", patience=30)
    assert reached.value.args == (f"tux07:{61440 + 5004 % 4096}", 0, 5)
