"""How fronts are shown: figures that a person can pick a point from, and tables that fit the screen."""

from __future__ import annotations

import io
import re

import numpy as np
import pytest
from rich.console import Console

from majorant.app.front_record import FrontRecord, PointRecord, within
from majorant.app.report.figures import render
from majorant.app.report.pareto_figures import draw_front
from majorant.app.report.pareto_page import columns
from majorant.cli._front_table import facts, show_front, tables
from majorant.tradeoffs import knee, nondominated


def example(criteria: int, preferences: int = 1) -> FrontRecord:
    """A front that no training made: ten points, of which one is dominated and one has diverged."""
    shares = [[1 / criteria] * criteria, [0.125, 0.875, *[0.0] * (criteria - 2)]]
    weights = np.linspace(0, 0.9, 10)
    values = np.stack([0.3 + weights**2, *((1 - weights) ** (1 + j) for j in range(criteria))], axis=1)
    values[3] += 0.2
    values[8] = np.nan
    kept = nondominated(values)
    rest = dict.fromkeys(("accuracy", "macro_f1", "validation_accuracy", "validation_loss", "certificate"), 0.5)
    points = [
        PointRecord(
            point=i,
            weight=weights[i],
            loss=values[i, 0],
            worst_loss=2 * values[i, 0],
            judged_by="mean loss",
            criteria={f"c_{j}": values[i, j] for j in range(1, criteria + 1)},
            criteria_weights=shares[i % preferences],
            norm=1.0,
            dominated=not kept[i],
            **rest,
        )
        for i in range(10)
    ]
    names, about = list(points[0].criteria), {"dataset": "d", "model": "auto", "clients": 3, "rounds": 1, "seed": 0}
    measures = {"hypervolume": float("nan"), "hypervolume_reference": [1.0], "spread": 0.1, "seconds": 1.0}
    chosen = {"knee": knee(values), "best_validation": 2, "picked": 2, "picked_by": "best validation"}
    return FrontRecord(
        format=2, scalarization="weighted-sum", criteria=names, points=points, **about, **measures, **chosen
    )


@pytest.mark.parametrize("criteria", [1, 2, 3])
def test_figures_have_every_point(criteria):
    record = example(criteria)
    assert [record.roles(place) for place in (3, 8)] == [["dominated"], ["diverged"]]
    drawn = draw_front(record)
    assert list(drawn) == ["front", "path"]
    panels = {1: 1, 2: 3, 3: 1}[criteria]
    svg = render(drawn["front"], "svg", text=True).decode()
    for place in range(10):
        assert svg.count(f'<g id="point-{place}">') == panels
    for word in ("dominated", "knee", "best validation", "picked", "C 1"):
        assert word in svg
    if panels == 1 and criteria == 1:
        for weight in ("0.1", "0.2", "0.9"):
            assert f">{weight}</text>" in svg


def texts(figure) -> list[str]:
    """Everything that is written in a figure."""
    return re.findall(r">([^<>]+)</text>", render(figure, "svg", text=True).decode())


def test_parallel_lines_have_the_numbers_of_their_points():
    record = example(3)
    levels = {}
    for note in draw_front(record)["front"].axes[0].texts:
        if note.get_text().isdigit() and note.get_horizontalalignment() == "right":
            levels[int(note.get_text())] = note.xy[1]
    assert set(levels) == set(range(10)) - {8}  # which diverged
    heights = sorted(levels.values())
    assert min(np.diff(heights)) > 0.039
    assert heights[0] >= 0
    assert heights[-1] <= 1 + 1e-9
    losses = {place: record.points[place].loss for place in levels}
    assert sorted(levels, key=levels.get) == sorted(losses, key=losses.get)


def test_points_far_beyond_the_front_do_not_hide_it():
    """Training that all but diverged leaves finite numbers: the front must still fill its figure."""
    for criteria in (1, 3):
        record = example(criteria)
        lost = record.points[3].model_copy(update={"loss": 1e12, "criteria": dict.fromkeys(record.criteria, 1e20)})
        far = record.model_copy(update={"points": [*record.points[:3], lost, *record.points[4:]]})
        axes = draw_front(far)["front"].axes[0]
        assert axes.get_ylim()[1] < 3
        assert not any("e+" in text or "1e" in text for text in texts(draw_front(far)["front"]))


def test_scores_of_different_weights_of_the_criteria_can_be_told_apart():
    alone, both = example(2), example(2, preferences=2)
    assert "Score" in texts(draw_front(alone)["path"])
    figure = draw_front(both)["path"]
    assert {"criteria weights 0.5 0.5", "criteria weights 0.125 0.875", "Test macro F1"} <= set(texts(figure))
    assert len(figure.axes) == 3  # one for each score
    for axes in figure.axes:
        assert len({line.get_color() for line in axes.lines}) == len(axes.lines) == 2


@pytest.mark.parametrize("width", [40, 80, 200])
def test_tables_never_break_numbers(width):
    """A number that goes on in the next line reads as another one."""
    record = example(4, preferences=2)
    screen = Console(width=width, record=True, file=io.StringIO())
    for table in tables(record, width):
        screen.print(table)
    shown = screen.export_text()
    for place in range(10):
        for text in facts(record, place).values():
            assert re.search(rf"(?<!\S){re.escape(text)}(?!\S)", shown), text
    assert all(len(line) <= width for line in shown.splitlines())
    assert len(tables(record, 200)) == 1 < len(tables(record, 80))


def test_regression_shows_the_loss_on_test_samples():
    record, none = example(1), dict.fromkeys(("accuracy", "macro_f1", "validation_accuracy"), float("nan"))
    points = [point.model_copy(update=none | {"test_loss": 0.625}) for point in record.points]
    record = record.model_copy(update={"points": points})
    assert facts(record, 0)["test loss"] == "0.625"
    assert columns(record)["Test loss"][0] == "0.625"
    assert "test loss" in texts(draw_front(record)["path"])
    assert "test loss" not in facts(example(1), 0)


def test_training_that_all_but_diverged_is_named(capsys):
    record = example(1)
    lost = record.points[3].model_copy(update={"loss": 1e12})
    show_front(record.model_copy(update={"points": [*record.points[:3], lost, *record.points[4:]]}))
    said = " ".join(capsys.readouterr().err.split())
    assert "diverged for λ = 0.3 (point 3), 0.8 (point 8): lower --lr, or take --step implicit" in said


def test_a_bound_picks_among_points_that_nothing_dominates():
    """Point 3 has less loss than point 6, and both are small; but others have less of both loss and criterion."""
    record = example(1)
    norms = {3: 0.5, 6: 0.5}
    points = [point.model_copy(update={"norm": norms.get(point.point, 1.0)}) for point in record.points]
    record = record.model_copy(update={"points": points})
    assert within(record, 0.6, {}) == (6, "norm ≤ 0.6")
    with pytest.raises(ValueError, match=r"the least values on it are: norm 0\.5"):
        within(record, 0.4, {})
