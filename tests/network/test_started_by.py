"""Processes that have the variables of srun and mpirun find each other with ``--coordinator auto``; of a folder of
tables each holds its own clients', and a run goes on in one process that holds all."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import numpy as np

from mesh_driving import free_port


def together(each, command):
    """What two processes say that have these variables, and what they end with."""
    environment = os.environ | {"JAX_PLATFORMS": "cpu", "JAX_COORDINATOR_PORT": str(free_port()), "XLA_FLAGS": ""}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    started = [subprocess.Popen(command, env=environment | each(i), **pipes) for i in range(2)]
    said = [process.communicate(timeout=600) for process in started]
    assert [process.returncode for process in started] == [0, 0], said
    return [out for out, _ in said]


def test_srun(tmp_path):
    def variables(i):
        names = ("SLURM_PROCID", "SLURM_LOCALID")
        step = {"SLURM_STEP_NODELIST": "localhost", "SLURM_STEP_NUM_TASKS": "2", "SLURM_STEP_TASKS_PER_NODE": "2"}
        return dict.fromkeys(names, str(i)) | step | {"SLURM_JOB_ID": "7", "SLURM_NODEID": "0"}

    rng = np.random.default_rng(0)
    for name in "abc":
        lines = [f"{a:.3f},{b:.3f},{'xyz'[int(a) % 3]},{int(b > 1)}" for a, b in rng.normal(1, 1, (20, 2))]
        (tmp_path / f"{name}.csv").write_text("\n".join(["dose,age,kind,label", *lines]) + "\n")
    majorant = [sys.executable, "-m", "majorant", "run"]
    settings = ["--data", tmp_path / "*.csv", "--label-column", "label", "--schedule", "constant", "--rounds", "2"]
    command = [*majorant, "fedavg", *map(str, settings), "--out", str(tmp_path / "run"), "--json"]
    first, second = together(variables, [*command, "--coordinator", "auto"])
    assert second == ""  # process 0 speaks and writes
    assert json.loads(first)["rounds"] == 2
    more = [*majorant, "--resume", str(tmp_path / "run"), "--rounds", "3", "--json"]
    alone = subprocess.run(more, capture_output=True, text=True, check=False)  # it finds the data the same, to the bit
    assert alone.returncode == 0, alone.stderr
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["rounds"] == 3


def test_mpirun():
    def variables(i):
        names = ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK")
        sizes = dict.fromkeys(("OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE"), "2")
        return dict.fromkeys(names, str(i)) | sizes | {"OMPI_MCA_orte_hnp_uri": "4096.0;tcp://127.0.0.1:34911"}

    program = (
        "from majorant.engines import hosts; hosts.join('auto'); import jax;"
        "print(jax.process_index(), jax.process_count(), len(jax.devices()), hosts.decided(hosts.follows()))"
    )
    said = together(variables, [sys.executable, "-c", program])
    assert [text.splitlines()[-1] for text in said] == ["0 2 2 False", "1 2 2 False"]
