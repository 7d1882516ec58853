"""Where a device's memory does not suffice: what to lower."""

import jax
import pytest

import majorant as mj
from majorant.engines.memory import COPIES, explained_shortage, most_held
from majorant.engines.resident import Resident
from majorant.engines.simulation import Simulation


def test_a_shortage_says_what_to_lower():
    said = "does not suffice for 40 clients side by side: lower side_by_side"
    with pytest.raises(MemoryError, match=said), explained_shortage(40):
        raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory while trying to allocate 9 bytes.")


def test_other_troubles_are_left_as_they_are():
    with pytest.raises(jax.errors.JaxRuntimeError, match="INTERNAL"), explained_shortage(40):
        raise jax.errors.JaxRuntimeError("INTERNAL: a kernel failed")


@pytest.mark.parametrize("moment", ["prepare", "start", "block", "evaluate"])
def test_a_shortage_is_explained_whenever_it_comes(monkeypatch, moment):
    def fail(*_):
        raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory while trying to allocate 9 bytes.")

    data = mj.data.synthetic_mixture(clients=3, dimension=2, seed=0)
    if moment == "prepare":
        monkeypatch.setattr(Simulation, "prepare", fail)
    else:
        monkeypatch.setattr(Resident, moment, fail)
    with pytest.raises(MemoryError, match="clients side by side: lower side_by_side"):
        mj.simulate(mj.fedavg(mj.models.linear(data)), data, rounds=1)


def test_models_of_several_runs_take_as_many_times_the_memory():
    data = mj.data.synthetic_mixture(clients=3, dimension=2, seed=0)
    algorithm = mj.fedavg(mj.models.linear(data))
    model = 4 * sum(leaf.size for leaf in jax.tree.leaves(algorithm.server.init(jax.random.key(0)).value))
    assert [most_held(algorithm, COPIES * model * 10, runs) for runs in (1, 2, 50)] == [10, 5, 1]
