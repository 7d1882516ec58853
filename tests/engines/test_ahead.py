"""Runs that are compiled side by side before the first begins."""

import functools

import majorant as mj
import zoo
from majorant.engines.ahead import compiled_ahead
from majorant.engines.simulator import planned

DATA = zoo.training()
MODEL = mj.models.linear(DATA)


def test_what_was_compiled_ahead_is_not_compiled_again_and_is_charged_to_its_run_once():
    """A plan that is refused is left to its run, and spoils no other."""
    algorithms = [mj.local(MODEL), mj.fedavg(MODEL)]
    plans = [functools.partial(planned, algorithm, DATA, 2) for algorithm in algorithms]
    with compiled_ahead([*plans, functools.partial(planned, mj.fedavg(MODEL), DATA, 0)], DATA) as wait:
        for number in range(3):
            wait(number)
    ahead = [plan().engine.programs for plan in plans]
    compiled = [list(program.compiled.values()) for programs in ahead for program in programs[:3]]
    assert all(len(forms) == 1 for forms in compiled)
    spent = [programs.block.ahead for programs in ahead]
    assert all(seconds > 0 for seconds in spent)
    runs = [mj.simulate(algorithm, DATA, rounds=2) for algorithm in algorithms]
    assert compiled == [list(program.compiled.values()) for programs in ahead for program in programs[:3]]
    assert all(run.seconds["compile"] >= seconds for run, seconds in zip(runs, spent, strict=True))
    assert all(programs.block.ahead == 0 for programs in ahead)
