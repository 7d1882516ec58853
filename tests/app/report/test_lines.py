"""Curves of experiments in panels, with bands around them."""

from majorant.app.report.figures import lines


def test_curves_in_panels_with_bands():
    x = [0.0, 1.0, 2.0]
    curves = {"left | ours": (x, [3.0, 2.0, 1.0]), "left | theirs": (x, x), "right | ours": (x, x)}
    figure = lines(curves, "rounds", "loss", {"left | ours": ([2.5, 1.5, 0.5], [3.5, 2.5, 1.5])})
    left, right = figure.axes
    assert [panel.get_title(loc="left") for panel in figure.axes] == ["left", "right"]
    assert (left.get_ylabel(), right.get_ylabel()) == ("loss", "")
    assert [len(panel.lines) for panel in figure.axes] == [2, 1]
    assert [len(panel.collections) for panel in figure.axes] == [1, 0]
    assert left.lines[0].get_color() == right.lines[0].get_color() != left.lines[1].get_color()
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["ours", "theirs"]


def test_plain_curves_have_one_panel():
    figure = lines({"a": ([0.0, 1.0], [1.0, 0.0])}, "x", "y")
    (axes,) = figure.axes
    assert axes.get_title(loc="left") == ""
    assert not axes.collections
