"""Every entry of the zoo gives the same numbers on one device, on a mesh of eight, streamed through it, and in two
processes with two devices each: `make test-network` runs these, as they take minutes."""

from __future__ import annotations

import pytest

import zoo
from mesh_driving import assert_same, results


@pytest.fixture(scope="module")
def one_process(tmp_path_factory):
    runs = [f"{name}/{way}" for name in zoo.ZOO for way in ("one", "mesh", "streamed")]
    return results(tmp_path_factory.mktemp("mesh") / "one.npz", 8, runs)


@pytest.fixture(scope="module")
def two_processes(tmp_path_factory):
    runs = [f"{name}/{way}" for name in zoo.ZOO for way in ("mesh", "streamed")]
    return results(tmp_path_factory.mktemp("mesh") / "two.npz", 2, runs, processes=2)


@pytest.mark.parametrize("name", zoo.ZOO)
@pytest.mark.parametrize("way", ["mesh", "streamed"])
def test_eight_devices_are_as_one(one_process, name, way):
    assert_same(one_process[f"{name}/{way}"], one_process[f"{name}/one"])


@pytest.mark.parametrize("name", zoo.ZOO)
@pytest.mark.parametrize("way", ["mesh", "streamed"])
def test_two_processes_with_two_devices_each_are_as_one(one_process, two_processes, name, way):
    assert_same(two_processes[f"{name}/{way}"], one_process[f"{name}/one"])
