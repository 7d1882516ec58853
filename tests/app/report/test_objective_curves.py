"""The figure of how solvers come down to the minimum."""

from __future__ import annotations

import numpy as np
import pytest

from majorant.app.report import RunRecord, html
from majorant.app.report.diagnosis import averaged, measured
from majorant.app.report.figures import draw_all
from majorant.app.report.objective_curves import drawable, floor_of, objective_curves

ROUNDS = np.arange(10, 210, 10)


def record(label="acd", *, calls=10, precision="single", optimum=0.5, seeds=2, rate=0.1) -> RunRecord:
    """A run that converges linearly to its minimum, and in the end errs to the other side by rounding."""
    history = []
    for seed in range(seeds):
        for r in map(int, ROUNDS):
            above = float(np.exp(-rate * r) * (1 + seed))
            line = {"round": r, "seed": seed, "bytes_up": 1000 * r, "bytes_down": 1000 * r, "gradient_squared": above}
            line |= {"objective": 0.5 + above, "gradients_w": calls * r, "gradients_beta": calls * r * (1 + 2 * seed)}
            line |= {"suboptimality": above - 1e-18} if optimum is not None else {}
            history.append(line | {"test_accuracy": {"mean": 0.8}})
    summary = {"metric": "accuracy", "gradients": {"w": 1234.0, "beta": 5678.0}, "rounds": 200, "gradient_norm": 1e-5}
    summary |= {} if optimum is None else {"optimum": optimum, "suboptimality": 3e-7}
    return RunRecord(label, {"objective": "mixture", "precision": precision}, summary, history)


def lines(axes):
    """The curves of a panel; the dotted line of rounding is not one of them."""
    return [line for line in axes.get_lines() if len(line.get_xdata()) == len(ROUNDS)]


def test_panels_have_rounds_gradients_and_bytes_and_the_mean_of_the_seeds():
    figure = objective_curves([record(rate=0.02)])
    x = [lines(axes)[0].get_xdata() for axes in figure.axes]
    np.testing.assert_allclose(x[0], ROUNDS)
    np.testing.assert_allclose(x[1], 10 * ROUNDS * 3)  # w once, β once and three times
    np.testing.assert_allclose(x[2] * 1000, 2000 * ROUNDS)  # in kB
    for axes in figure.axes:
        assert axes.get_yscale() == "log"
        np.testing.assert_allclose(lines(axes)[0].get_ydata(), 1.5 * np.exp(-0.02 * ROUNDS), rtol=1e-5)
        assert len(axes.collections) == 1  # the band of the seeds


@pytest.mark.parametrize(("precision", "eps"), [("single", 2.0**-23), ("double", 2.0**-52)])
def test_what_is_below_rounding_is_drawn_at_rounding(precision, eps):
    run = record(precision=precision, rate=0.3)
    assert floor_of(run) == pytest.approx(0.5 * eps, abs=0)
    figure = objective_curves([run])
    for axes in figure.axes:
        assert min(lines(axes)[0].get_ydata()) == pytest.approx(0.5 * eps, abs=0)  # negative ones among them
        assert axes.get_ylim()[0] < 0.5 * eps
    assert [text.get_text() for text in figure.axes[0].texts] == ["rounding"]
    assert not objective_curves([record(precision="double", rate=0.02)]).axes[0].texts


def test_rates_are_those_of_the_mean_over_all_rounds_until_then():
    values = [4.0, 2.0, 0.0]
    history = [{"round": r, "gradient_squared": value} for r, value in zip((10, 20, 30), values, strict=True)]
    rounds, mean = averaged(RunRecord("fedem", {}, {}, history), "gradient_squared")
    assert rounds.tolist() == [10, 20, 30]
    assert mean.tolist() == [4.0, 3.0, 2.0]


def test_gradients_of_very_different_methods_are_on_a_logarithmic_axis():
    assert objective_curves([record(calls=10), record(calls=100)]).axes[1].get_xscale() == "linear"
    assert objective_curves([record(calls=10), record(calls=1000)]).axes[1].get_xscale() == "log"


def test_without_a_minimum_the_objective_itself_is_drawn():
    for runs in ([record(optimum=None)], [record(optimum=None), record()]):
        figure = objective_curves(runs)
        assert figure.axes[0].get_yscale() == "linear"
        assert lines(figure.axes[0])[0].get_ydata()[-1] == pytest.approx(0.5, abs=1e-6)


def test_the_report_shows_the_figure_and_the_numbers():
    other = RunRecord("fedavg", {}, {"metric": "accuracy"}, [{"round": 1, "objective": 1.0, "gradient_squared": 1.0}])
    assert drawable([other, record()]) == [1]
    assert "objective" in draw_all([other, record()])
    assert "objective" not in draw_all([other])
    assert measured([other]) == ["gradient_squared"]
    assert measured([record()]) == []  # the rates are other methods' theorems
    page = html.page([record("one"), record("two", optimum=None)])
    assert 'id="objective"' in page
    for words in ("F − F*", "3.00e-07", "1,234", "5,678", "1.00e-05"):
        assert words in page
    assert "F − F*" not in html.page([other]).split("</style>")[1]


def test_methods_that_count_no_gradients_have_two_panels():
    run = record()
    bare = [{name: v for name, v in line.items() if "gradients" not in name} for line in run.history]
    assert len(objective_curves([RunRecord("peers", run.config, run.summary, bare)]).axes) == 2


def test_damaged_histories_are_drawn_as_far_as_they_go():
    run = record()
    run.history[3]["objective"] = run.history[3]["suboptimality"] = None
    del run.history[5]["gradients_w"]
    assert len(objective_curves([run]).axes[0].get_lines()[0].get_xdata()) == len(ROUNDS) - 1
