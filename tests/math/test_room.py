"""What cannot fit is refused from an estimate, before anything is allocated: shown on a machine of one mebibyte."""

from __future__ import annotations

import pytest

from majorant.app.front_config import make_front_config
from majorant.data import heterogeneous_logistic, sparse_codes, synthetic_mixture
from majorant.engines.memory import default_budget, refuse_too_many_runs
from majorant.engines.settings import run_settings
from majorant.math import room
from majorant.methods import fedavg
from majorant.models import Spec, linear, mlp

MANY = 5000
SPEC = Spec((4,), 2)


@pytest.fixture
def small_machine(monkeypatch):
    monkeypatch.setattr(room, "machine_memory", lambda: 1 << 20)


def test_the_machine_has_memory_of_which_half_is_for_runs():
    assert room.machine_memory() > 1 << 28
    assert default_budget() == room.machine_memory() // 2


def test_what_fits_is_let_through(small_machine):
    room.refuse_too_large("a clerk", 1 << 20, "never said")
    refuse_too_many_runs(fedavg(linear(SPEC)), 100)
    assert synthetic_mixture(clients=5, dimension=4).clients == 5
    assert len(run_settings(fedavg(linear(SPEC)), 0, 3, None, {"lr": [0.1, 0.2]})) == 6
    assert len(make_front_config(None, criteria=["l1"], points=9).lambdas) == 9


@pytest.mark.parametrize(
    "work",
    [
        lambda: synthetic_mixture(clients=MANY, dimension=1),
        lambda: synthetic_mixture(clients=1, dimension=MANY),
        lambda: synthetic_mixture(clients=1, components=MANY, dimension=100),
        lambda: synthetic_mixture(clients=100, dimension=1, variant="released", test_samples=MANY),
        lambda: heterogeneous_logistic(clients=MANY, samples=10, test_samples=10, dimension=2),
        lambda: heterogeneous_logistic(clients=10, samples=MANY, dimension=2),
        lambda: sparse_codes(clients=MANY, samples=10),
        lambda: run_settings(fedavg(linear(SPEC)), 0, MANY, None, None),
        lambda: run_settings(fedavg(linear(SPEC)), 0, None, None, {"lr": range(MANY)}),
        lambda: run_settings(fedavg(linear(SPEC)), 0, 70, None, {"lr": range(70)}),
        lambda: run_settings(fedavg(mlp(SPEC, hidden=(MANY, 100))), 0, None, None, None),
        lambda: make_front_config(None, criteria=["l1"], points=MANY),
        lambda: make_front_config(None, criteria=["l1"], refine=MANY),
    ],
)
def test_what_does_not_fit_is_refused(small_machine, work):
    with pytest.raises(ValueError, match=r"would take about .* GiB of memory, and this machine has"):
        work()
