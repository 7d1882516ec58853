"""What cannot fit is refused from an estimate, before anything is allocated."""

from __future__ import annotations

import tracemalloc

import pytest

from majorant.app.front_config import make_front_config
from majorant.data import heterogeneous_logistic, sparse_codes, synthetic_mixture
from majorant.engines.memory import default_budget, refuse_too_many_runs
from majorant.engines.settings import run_settings
from majorant.math.room import machine_memory, refuse_too_large
from majorant.methods import fedavg
from majorant.models import Spec, linear, mlp

MANY = 10**9


def test_what_fits_is_let_through():
    refuse_too_large("a clerk", machine_memory(), "never said")
    assert default_budget() == machine_memory() // 2
    refuse_too_many_runs(fedavg(linear(Spec((4,), 2))), 100)


@pytest.mark.parametrize(
    "work",
    [
        lambda: synthetic_mixture(clients=MANY),
        lambda: synthetic_mixture(clients=5, dimension=MANY),
        lambda: synthetic_mixture(clients=5, components=MANY, dimension=100),
        lambda: synthetic_mixture(clients=100, variant="released", test_samples=MANY),
        lambda: heterogeneous_logistic(clients=MANY),
        lambda: heterogeneous_logistic(samples=MANY, dimension=100),
        lambda: sparse_codes(clients=MANY),
        lambda: run_settings(fedavg(linear(Spec((4,), 2))), 0, MANY, None, None),
        lambda: run_settings(fedavg(linear(Spec((4,), 2))), 0, None, None, {"lr": range(MANY)}),
        lambda: run_settings(fedavg(mlp(Spec((4,), 2), hidden=(MANY, 100))), 0, None, None, None),
        lambda: make_front_config(None, criteria=["l1"], points=MANY),
        lambda: make_front_config(None, criteria=["l1"], refine=MANY),
    ],
)
def test_a_thousand_millions_are_refused_at_once(work):
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match=r"would take about .* GiB of memory, and this machine has"):
            work()
        assert tracemalloc.get_traced_memory()[1] < 1 << 29  # imports, and nothing of the size that was asked for
    finally:
        tracemalloc.stop()
