"""Rounds on many devices: who gets which clients and runs, what is sent, and the same numbers as on one device.

Devices are forced CPU devices in processes of their own (`mesh_runs.py`). Here is a representative set; every entry of
the zoo is in `tests/network`.
"""

from __future__ import annotations

import itertools
import time
from types import SimpleNamespace

import jax
import numpy as np
import pytest

import majorant as mj
from commands import refused
from compiling import quickly
from majorant.core.collectives import CLIENTS
from majorant.engines import mesh
from majorant.engines.hosts import await_coordinator, explicit, place_to_write
from majorant.engines.mesh import shares_of_runs
from majorant.engines.population import build_buckets, deal, neighbourhoods
from majorant.exchange.places import Places, crossing, reach
from mesh_driving import assert_same, free_port, results


@pytest.fixture(scope="module")
def devices(request, tmp_path_factory):
    """What runs on eight devices in one process end with: those that the tests of this session look at."""
    asked = looked_at(request)
    runs = [
        *("gossip:ring/one", "gossip:ring/mesh", "gossip:ring/streamed", "gossip:ring/resumed_1"),
        *("gossip:ring/resumed_2", "mocha/one", "fedem/many_one", "fedem/many"),
    ]
    wanted = [run for run in runs if run.endswith("/one") or run in asked]
    return results(tmp_path_factory.mktemp("mesh") / "one.npz", 8, wanted)


@pytest.fixture(scope="module")
def processes(request, tmp_path_factory):
    """The same in two processes with two devices each, neither of which has the other's samples."""
    asked = looked_at(request, of="processes")
    wanted = [run for run in ("gossip:ring/mesh", "mocha/streamed") if run in asked]
    return results(tmp_path_factory.mktemp("mesh") / "two.npz", 2, wanted, processes=2)


def looked_at(request: pytest.FixtureRequest, of: str = "devices") -> set[str | None]:
    """The runs that tests of this session compare, out of a fixture."""
    here = [test for test in request.session.items if test.path == request.path and hasattr(test, "callspec")]
    those = [test.callspec.params for test in here if of in test.fixturenames]
    return {params.get(name) for params in those for name in ("way", "reference")}


@pytest.mark.parametrize(
    ("way", "reference"),
    [
        ("gossip:ring/mesh", "gossip:ring/one"),
        ("gossip:ring/streamed", "gossip:ring/one"),
        ("fedem/many", "fedem/many_one"),
    ],
)
def test_eight_devices_are_as_one(devices, way, reference):
    assert_same(devices[way], devices[reference])


@pytest.mark.parametrize("way", ["gossip:ring/resumed_1", "gossip:ring/resumed_2"])
def test_a_run_that_began_on_eight_devices_goes_on_with_fewer(devices, way):
    assert_same(devices[way], devices["gossip:ring/one"])


@pytest.mark.parametrize("way", ["gossip:ring/mesh", "mocha/streamed"])
def test_two_processes_each_with_its_own_samples_are_as_one(devices, processes, way):
    assert_same(processes[way], devices[f"{way.partition('/')[0]}/one"])


@pytest.mark.parametrize("count", [1, 2, 7, 8])
def test_clients_are_dealt_by_work(count):
    """Every device has as many clients but for one more, which those have that would have the least without it."""
    rng = np.random.default_rng(0)
    sizes = np.sort(np.ceil(np.exp(rng.normal(3, 1.5, 1001))).astype(int))
    loads = np.zeros(count)
    hands = deal(np.arange(1001), sizes, loads, None)
    assert sorted(np.concatenate(hands)) == list(range(1001))
    np.testing.assert_array_equal(loads, [sizes[hand].sum() for hand in hands])
    counts = np.array([len(hand) for hand in hands])
    assert counts.max() - counts.min() <= 1
    more = counts > counts.min()
    without = loads - more * [sizes[hand[0]] for hand in hands]
    assert not more.any() or without[more].max() <= without[~more].min()
    assert loads.max() - loads.min() <= sizes.max() - sizes.min()


def test_sizes_that_grow_evenly_are_dealt_exactly():
    loads = np.zeros(8)
    deal(np.arange(64), np.arange(64), loads, None)
    assert set(loads) == {np.arange(64).sum() / 8}
    deal(np.arange(3), np.array([9, 9, 9]), loads, None)
    deal(np.arange(5), np.array([9, 9, 9, 9, 9]), loads, None)  # of another bucket: to those that had none
    assert set(loads) == {np.arange(64).sum() / 8 + 9}


def test_the_buckets_of_a_mesh_hold_every_client_once_and_equally_many_rows_on_each_device():
    data = mj.data.synthetic_mixture(clients=37, dimension=3, seed=0)
    for homes in (None, np.arange(37) % 3):
        for bucket in build_buckets(data, np.arange(37), chunk_bytes=1 << 12, devices=4, homes=homes):
            assert bucket.rows * 4 == len(bucket.ids)
            assert bucket.rows % bucket.chunk == 0
            rows = bucket.pieces()
            np.testing.assert_array_equal(np.sort(rows.ravel()), np.arange(len(bucket.ids)))
            assert (rows.reshape(-1, 4, bucket.chunk) // bucket.rows == np.arange(4)[:, None]).all()
            if homes is not None:
                where = np.arange(len(bucket.ids)) // bucket.rows
                np.testing.assert_array_equal(where[bucket.real], homes[bucket.ids[bucket.real]])
    whole = build_buckets(data, np.arange(37), chunk_bytes=1 << 12, devices=4)
    assert sorted(np.concatenate([b.ids[b.real] for b in whole])) == list(range(37))


def test_neighbours_stay_together_where_that_is_fair():
    sizes = np.array([100] * 10 + [1] * 90)
    homes = neighbourhoods(sizes, 4)
    assert (np.diff(homes) >= 0).all()
    assert set(homes) == set(range(4))
    assert np.bincount(homes).max() < 50


def test_runs_are_dealt_as_whole_points_or_as_seeds_of_one():
    assert shares_of_runs(8, 8, seeds=1)[0] == 8
    assert shares_of_runs(8, 12, seeds=3) == [4, 2, 1]
    assert shares_of_runs(8, 6, seeds=6) == [2, 1]
    assert shares_of_runs(8, 12, seeds=4) == [1]  # no part would have whole points, or seeds of one


def received(places: Places, found, values: np.ndarray) -> np.ndarray:
    """What each device has after the exchange, ``(devices, rows)``, with a vectorised axis in place of devices."""
    rows = places.into_rows(values, axis=0).reshape(places.devices, places.rows)
    return np.asarray(quickly(jax.vmap(lambda x: reach(places, found).fetch(x), axis_name=CLIENTS))(rows))


@pytest.mark.parametrize("topology", [mj.topology.ring(), mj.topology.torus(), mj.topology.ring(link_failure=0.2)])
@pytest.mark.parametrize("homes", [np.arange(64) // 16, np.minimum(np.arange(64) // 20, 3)])
def test_devices_get_their_neighbours_rows_and_few_others(topology, homes):
    network = topology.build(64)
    places = Places(64, homes, 4)
    found = crossing(places, network)
    values = np.float32(100) + np.arange(64, dtype=np.float32)
    np.testing.assert_array_equal(places.into_nodes(places.into_rows(values, axis=0), axis=0), values)
    for device, there in enumerate(received(places, found, values)):
        mine = np.flatnonzero(homes == device)
        linked = np.isin(network.edges, mine).any(axis=1)
        wanted = np.union1d(network.edges[linked], mine)
        np.testing.assert_array_equal(there[found.where[device, wanted]], values[wanted])
    if topology is mj.topology.ring():
        assert found.rows == 2  # a row from each side, of however many nodes


@pytest.mark.parametrize(
    "topology",
    [mj.topology.matching(), mj.topology.complete(), mj.topology.sequence(mj.topology.matching(), mj.topology.ring())],
)
def test_all_rows_are_gathered_where_any_two_nodes_may_meet(topology):
    assert crossing(Places(64, np.arange(64) // 16, 4), topology.build(64)) is None


@pytest.mark.parametrize("devices", [0, -1, 2.5, True])
def test_devices_are_a_positive_number(devices):
    data = mj.data.synthetic_mixture(clients=3, dimension=2, seed=0)
    with pytest.raises(ValueError, match="devices must be None or a positive whole number"):
        mj.simulate(mj.local(mj.models.linear(data)), data, rounds=1, devices=devices)


def test_more_devices_than_there_are_is_an_error_before_anything_is_computed(monkeypatch):
    data = mj.data.synthetic_mixture(clients=3, dimension=2, seed=0)
    monkeypatch.setattr(jax.stages.Lowered, "compile", lambda *_: pytest.fail("compiled"))
    with pytest.raises(ValueError, match=r"there (is|are) \d+ cpu devices?, not 99.*JAX_NUM_CPU_DEVICES=99"):
        mj.simulate(mj.local(mj.models.linear(data)), data, rounds=1, resources=mj.Resources(devices=99))


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ((None, 0, 2), "each is given"),
        (("localhost:1234", None, 2), "each is given"),
        (("localhost", 0, 2), "an address such as"),
        (("localhost:0", 0, 2), "an address such as"),
        (("localhost:99999", 0, 2), "an address such as"),
        (("localhost:1234", 2, 2), "from 0 to 1, got 2"),
        (("localhost:1234", -1, 2), "from 0 to 1, got -1"),
        (("localhost:1234", 0, 0), "got 0"),
    ],
)
def test_numbers_of_processes_are_checked(given, complaint):
    with pytest.raises(ValueError, match=complaint):
        explicit(*given)


def test_a_coordinator_that_does_not_answer_is_told_of_in_time():
    address, begin = f"127.0.0.1:{free_port()}", time.monotonic()
    with pytest.raises(ConnectionError, match=f"did not find each other at {address} within 0.3 s.*refused"):
        await_coordinator(address, 0.3)
    assert time.monotonic() - begin < 10


def test_others_write_elsewhere(tmp_path, monkeypatch):
    with place_to_write(tmp_path) as place:
        assert place == tmp_path
    monkeypatch.setattr(jax, "process_index", lambda: 1)
    with place_to_write(tmp_path) as place:
        assert place != tmp_path
        place.mkdir()
    assert not place.parent.exists()


def test_the_command_line_refuses_what_there_is_not(tmp_path):
    given = ["--data", "synthetic:clients=3", "--out", tmp_path / "run"]
    assert "not 99: give a smaller number" in refused("run", "fedavg", *given, "--devices", "99")
    assert "devices" in refused("compare", "local", *given, "--devices", "0")
    assert "each is given --coordinator" in refused("run", "fedavg", *given, "--processes", "2")
    assert not (tmp_path / "run").exists()


def test_a_divided_processor_is_used_where_every_device_has_samples_enough(monkeypatch):
    data = mj.data.synthetic_mixture(clients=5, dimension=2, seed=0)
    small, enough = mj.local(mj.models.linear(data)), data.train.x.nbytes // 2
    assert mesh.devices_worth_using(small, data) is None
    monkeypatch.setattr(mesh.jax, "devices", lambda: list(range(4)))
    assert mesh.devices_worth_using(small, data) is None
    monkeypatch.setattr(mesh, "SHARE_BYTES", enough)
    assert mesh.devices_worth_using(small, data) == 2
    monkeypatch.setattr(mesh, "SHARE_BYTES", 1)
    assert mesh.devices_worth_using(small, data) == 4
    large = mj.fedavg(mj.models.mlp(data, hidden=(200, 200)))
    assert mesh.devices_worth_using(large, data) is None
    monkeypatch.setattr(mesh.jax, "default_backend", lambda: "gpu")
    assert mesh.devices_worth_using(small, data) is None


def test_every_device_gets_its_own_runs_and_clients(monkeypatch):
    """Five devices, which are made up, two of them with the same part; what several need is made once."""
    runs, clients = (slice(0, 1), slice(1, 2)), (slice(0, 3), slice(3, 6))
    places = dict(enumerate([*itertools.product(runs, clients), (runs[1], clients[1])]))
    sharding = SimpleNamespace(addressable_devices_indices_map=lambda shape: places)
    monkeypatch.setattr(mesh, "NamedSharding", lambda *given: sharding)
    monkeypatch.setattr(jax, "device_put", lambda array, device: array)
    monkeypatch.setattr(jax, "make_array_from_single_device_arrays", lambda shape, sharding, parts: parts)
    whole, made = np.arange(12).reshape(2, 6), []
    make = lambda *index: made.append(index) or whole[index]
    found = mesh.put_parts(make, None, mesh.HELD, 2, 6)
    assert [part.tolist() for part in found] == [whole[index].tolist() for index in places.values()]
    assert len(made) == 4
