"""Runs that are planned and compiled before their turn comes."""

import dataclasses
import functools

import numpy as np

import majorant as mj
import zoo
from majorant.engines import ahead
from majorant.engines.ahead import compiled_ahead
from majorant.engines.options import Evaluation
from majorant.engines.simulator import carried_out, planned

DATA = zoo.training()
MODEL = mj.models.linear(DATA)
FORMS = ("start", "block", "evaluate")


def test_what_was_compiled_ahead_is_not_compiled_again_and_is_charged_to_its_run(monkeypatch):
    """A plan that is refused is left to its run, and spoils no other. Runs that wait hold their samples together."""
    monkeypatch.setattr(ahead, "seconds_of", lambda work: work() or 1000.0)
    algorithms = [mj.local(MODEL), mj.fedavg(MODEL)]
    plans = [functools.partial(planned, algorithm, DATA, 2) for algorithm in algorithms]
    with compiled_ahead([*plans, functools.partial(planned, mj.fedavg(MODEL), DATA, 0)], DATA) as wait:
        ready = [wait(number) for number in range(3)]
    assert ready.pop() is None
    assert ready[0].engine.data is ready[1].engine.data
    compiled = [getattr(each.engine.programs, form).compiled for each in ready for form in FORMS]
    before = [list(forms.values()) for forms in compiled]
    assert all(len(forms) == 1 for forms in before)
    spent = [each.seconds["compile"] for each in ready]
    assert all(1000 < seconds < 2000 for seconds in spent)
    runs = [carried_out(each, Evaluation()) for each in ready]
    assert [list(forms.values()) for forms in compiled] == before
    assert all(run.seconds["compile"] >= seconds for run, seconds in zip(runs, spent, strict=True))
    alone = [mj.simulate(algorithm, DATA, rounds=2) for algorithm in algorithms]
    for one, other in zip(runs, alone, strict=True):
        np.testing.assert_array_equal(one.clients["test_accuracy"], other.clients["test_accuracy"])


def test_other_data_are_other_samples_on_the_device():
    """Simulations share samples of the same data in the same layout only."""
    first = planned(mj.local(MODEL), DATA, 2)
    other = planned(mj.local(MODEL), dataclasses.replace(DATA), 2)
    assert planned(mj.local(MODEL), DATA, 2).engine.data is first.engine.data
    assert other.engine.data is not first.engine.data
