"""Where a device's memory does not suffice: what to lower."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import majorant as mj
from majorant.data.federated import FederatedData
from majorant.engines.memory import COPIES, explained_shortage, most_held, most_side_by_side, refuse_too_large_stack
from majorant.engines.messages import tiny_client
from majorant.engines.resident import Resident
from majorant.engines.simulation import Simulation
from majorant.exchange import robust
from majorant.exchange.federation import federation
from majorant.exchange.star import star


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


def test_more_runs_test_samples_and_what_judges_them_take_memory():
    owner = np.repeat(np.arange(40), 20)
    tested = lambda share: FederatedData.from_arrays(
        np.zeros((800, 3)), np.arange(800) % 2, owner, split=(1 - share, 0, share)
    )
    data = tested(0.5)
    algorithm = mj.fedavg(mj.models.linear(data))
    side_by_side = lambda data, runs=1, algorithm=algorithm: most_side_by_side(algorithm, data, 1 << 16, runs)
    assert 1 < side_by_side(data) < 40
    assert side_by_side(data, runs=3) == pytest.approx(side_by_side(data) / 3, abs=1)
    assert side_by_side(tested(0.9)) == side_by_side(tested(0.1)) < side_by_side(data)
    wide = lambda model, x, y: (x[:, :1] * jnp.ones(500)).reshape(len(x), 250, 2).mean(axis=1)
    judged = algorithm._replace(deployment=algorithm.deployment._replace(scores=wide))
    assert side_by_side(data, algorithm=judged) < side_by_side(data)


def test_uploads_side_by_side_take_memory_for_every_run():
    data = mj.data.synthetic_mixture(clients=3, dimension=2, seed=0)
    algorithm = mj.fedavg(mj.models.linear(data))
    together = federation(algorithm, training=np.arange(3), exchange=star(robust.median()))

    def fits(runs: int, budget: int) -> bool:
        try:
            refuse_too_large_stack(together, 3, tiny_client(data), runs, budget)
        except ValueError:
            return False
        return True

    least = next(1 << power for power in range(6, 30) if fits(1, 1 << power))
    assert [fits(2, least), fits(2, 2 * least)] == [False, True]


def test_what_clients_keep_leaves_less_room_on_an_accelerator(monkeypatch):
    """Every state is there twice, before and after a round; the devices share them."""

    class Compiled(Resident):
        def __init__(self) -> None:
            pass

        prepare = lambda *given: None
        resident_bytes = temporary_bytes = lambda self: 0

    rooms = []
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    monkeypatch.setattr("majorant.engines.simulation.fitting_chunk", lambda chunk, temporary, room: rooms.append(room))
    for state in (0, 1000):
        asked = {"engine": Compiled(), "resources": mj.Resources(memory_budget=1 << 20), "settings": [{}] * 3}
        asked |= {"layout": SimpleNamespace(training=8, chunks=[4]), "bill": SimpleNamespace(state=state)}
        Simulation.prepare(SimpleNamespace(**asked, devices=[None] * 2, budget=0, rounds=1), {})
    assert rooms[0] - rooms[1] == 2 * 3 * 8 * 1000 // 2
