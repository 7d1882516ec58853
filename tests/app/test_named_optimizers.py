"""Options of optimizers and schedules have types and ranges: what would never train is refused before it is tried."""

from __future__ import annotations

import inspect

import optax
import pytest

from majorant.app import catalogue, named_optimizers
from majorant.solvers import schedules

NAMES = [name for name in catalogue.optimizers if name != "sgd"]


@pytest.mark.parametrize("name", NAMES)
def test_defaults_are_those_of_optax(name):
    theirs = inspect.signature(getattr(optax, name)).parameters
    ours = inspect.signature(getattr(named_optimizers, name)).parameters
    assert {n: p.default for n, p in ours.items()} == {n: theirs[n].default for n in ours}
    assert catalogue.optimizers.make(name, 0.1).init is not None


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("adam:b1=1000", "b1 must be a finite number at least 0 and less than 1"),
        ("adam:b2=1", "b2 must be"),
        ("adam:eps=0", "eps must be a finite number greater than 0"),
        ("adam:eps_root=-1", "eps_root must be"),
        ("adam:mu_dtype=x", "unknown option 'mu_dtype'"),
        ("adam:nesterov=7", "must be true or false"),
        ("adamw:weight_decay=-5", "weight_decay must be"),
        ("yogi:b1=-0.1", "b1 must be"),
        ("adagrad:initial_accumulator_value=-1", "initial_accumulator_value must be"),
        ("rmsprop:decay=7", "decay must be"),
        ("rmsprop:momentum=-3", "momentum must be"),
        ("lion:b2=2", "b2 must be"),
    ],
)
def test_options_out_of_range_are_refused(text, words):
    with pytest.raises(ValueError, match=words):
        catalogue.optimizers.make(text, 0.1)


def test_factors_of_schedules_are_shares():
    for make, words in (
        (lambda: schedules.multi_step(factor=-1.0), "factor must be"),
        (lambda: schedules.multi_step(milestones=(0.5, 2.0)), "every milestone must be"),
        (lambda: schedules.cosine(floor=1.5), "floor must be"),
    ):
        with pytest.raises(ValueError, match=words):
            make()
