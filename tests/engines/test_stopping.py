"""Runs that stop at a bound, in double precision, beside one that goes on to its end."""

from __future__ import annotations

import functools

import jax
import numpy as np
import pytest

import majorant as mj
from majorant.engines.stopping import Bound, Target, needs_diagnostics, number_of, parse_bounds
from majorant.exchange.federation import Federation
from majorant.methods import acd
from majorant.objectives import mixture, reference_solution
from records import over

ROUNDS = 60


@functools.cache
def problem():
    data = mj.data.heterogeneous_logistic(clients=5, samples=20, test_samples=5, dimension=3, unseen=0.2)
    objective = mixture(data, lambda_=0.1, l2=0.05)
    optimum = reference_solution(objective, data).value
    return data, acd(objective, constants=objective.constants(data)), optimum


def test_a_run_is_stopped_by_the_bound_that_it_meets_first():
    """The second run goes on, and with it the first: what that meets later did not stop it."""
    target = Target(parse_bounds(["loss < 0.5", "round >= 3"]))
    first, second = [{"round": 1, "loss": 0.4}], [{"round": 1, "loss": 0.9}]
    assert not target.reached([first, second])
    histories = [[*first, {"round": 3, "loss": 0.6}], [*second, {"round": 3, "loss": 0.8}]]
    assert target.reached(histories)
    assert target.reason(histories) == "loss < 0.5 or round >= 3"


def solve(optimum="known", **options):
    data, algorithm, least = problem()
    optimum = least if optimum == "known" else optimum
    with jax.enable_x64(True):
        usual = {"rounds": ROUNDS, "evaluation": mj.Evaluation(every=3, optimum=optimum), "seeds": 2}
        return mj.simulate(algorithm, data, **over(usual, options))


@pytest.fixture(scope="module")
def whole():
    return solve()


def first(run, name, below):
    """For each seed the first round at which a number is below a bound."""
    return [next(n["round"] for n in lines if number_of(n, name) < below) for lines in run.histories]


def test_texts_become_bounds():
    assert parse_bounds(["loss<=1e-3", " test_accuracy  >  0.9 "]) == (
        Bound("loss", "<=", 1e-3),
        Bound("test_accuracy", ">", 0.9),
    )
    assert parse_bounds(None) == ()
    for text in ("", "loss", "loss < ", "< 3", "loss == 1", "loss =< 1", "loss < nan", "loss < inf", "loss < 1 2", 3):
        with pytest.raises(ValueError, match="a name, one of < <= > >="):
            parse_bounds([text])


def test_every_run_must_meet_a_bound_but_not_at_the_same_time():
    target = Target(parse_bounds(["loss < 1", "test_accuracy >= 0.5"]))
    histories = [[{"loss": 0.5}], [{"loss": None, "test_accuracy": {"mean": float("nan")}}]]
    assert not target.reached(histories)
    assert target.reason(histories) is None
    histories[0].append({"loss": 2.0})  # has met it before
    histories[1].append({"test_accuracy": {"mean": 0.5}})
    assert target.reached(histories)
    assert target.reason(histories) == "loss < 1 or test_accuracy >= 0.5"
    assert not Target().reached(histories)


def test_double_precision_reaches_the_minimum(whole):
    """Threads that compile, and models that are used later, keep the precision of the run."""
    _, _, optimum = problem()
    kinds = {leaf.dtype for leaf in jax.tree.leaves(whole.snapshot.server.value)}
    assert kinds == {np.dtype(np.float64)}
    summary = whole.summary()
    assert summary["stopped"] is None
    assert abs(summary["suboptimality"]) < 1e-13
    assert summary["objective"] - optimum == pytest.approx(summary["suboptimality"], abs=1e-15)
    last = [lines[-1] for lines in whole.histories]
    assert summary["gradients"]["w"] == np.mean([n["gradients_w"] for n in last])
    assert summary["iterations"] == np.mean([n["iterations"] for n in last])
    assert summary["gradient_norm"] == pytest.approx(np.mean([n["gradient_squared"] ** 0.5 for n in last]))
    x = np.zeros((2, 3))
    assert whole.model(0).predict_proba(x).dtype == whole.personalize((x, [0, 1])).predict_proba(x).dtype == np.float64


def test_runs_stop_where_the_last_of_them_meets_the_bound(whole):
    met = first(whole, "gradient_norm", 1e-6)
    assert met[0] != met[1]
    run = solve(evaluation=mj.Evaluation(until="gradient_norm < 1e-6"))
    assert run.rounds == run.summary()["rounds"] == max(met) < ROUNDS
    assert run.stopped == run[0].stopped == "gradient_norm < 1e-06"
    assert "stopped by gradient_norm < 1e-06" in str(run.summary())
    assert run.communication[0]["rounds"] == run.rounds
    sooner = solve(evaluation=mj.Evaluation(until=["suboptimality < 1e-30", "suboptimality < 1e-4"]))
    assert sooner.rounds == max(first(whole, "suboptimality", 1e-4)) < run.rounds


def test_resumed_runs_stop_at_the_same_round(whole):
    until, taken = "gradient_norm < 1e-6", []
    run = solve(evaluation=mj.Evaluation(until=until, report=lambda lines, snapshot: taken.append(snapshot())))
    for snapshot in (taken[1], taken[-1]):  # interrupted, and finished
        again = solve(evaluation=mj.Evaluation(until=until), resume=snapshot)
        assert again.rounds == run.rounds
        assert again.stopped == run.stopped
        same = jax.tree.map(np.array_equal, again.snapshot[:2], run.snapshot[:2])
        assert all(jax.tree.leaves(same))
        assert [n["round"] for n in again.history] == [n["round"] for n in run.history]


def test_every_number_of_the_history_can_be_named(whole):
    data, algorithm, _ = problem()
    names = {*whole.history[-1], "gradient_norm", "gradients"}
    needed = lambda names, known: needs_diagnostics(
        tuple(Bound(name, "<", 0.0) for name in names), Federation(algorithm), data, optimum_known=known
    )
    assert needed(names, known=True)
    assert np.isfinite([number_of(whole.history[-1], name) for name in names]).all()
    without = names - {"objective", "gradient_squared", "suboptimality", "gradient_norm"}
    assert number_of(whole.history[-1], "gradients") == sum(whole.history[-1][f"gradients_{b}"] for b in ("w", "beta"))
    assert not needed(without, known=False)
    assert needed(["gradient_norm"], known=False)


def test_unknown_names_are_refused_before_training():
    for until, words in (
        ("gradnorm < 1", "did you mean 'gradient_norm'"),
        ("loss < 1", "acd does not log: .*known are bytes_down"),
        ("suboptimality < 1", "needs the minimum of the objective"),
    ):
        with pytest.raises(ValueError, match=words):
            solve(optimum=None, evaluation=mj.Evaluation(until=until, report=pytest.fail))
    data = problem()[0]
    silent = mj.local(mj.models.linear(data))._replace(diagnostics=mj.Diagnostics())
    with pytest.raises(ValueError, match="must be a finite number"):
        solve(optimum=float("nan"))
    with pytest.raises(ValueError, match="does not measure its objective"):
        mj.simulate(silent, data, rounds=1, evaluation=mj.Evaluation(optimum=0.0))
