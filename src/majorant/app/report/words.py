"""How metrics are named, written and compared, wherever a report shows them."""

from __future__ import annotations

import math
from typing import NamedTuple

MINUS = "−"


class Metric(NamedTuple):
    """A metric for people.

    >>> metric("accuracy").show(0.8333), metric("accuracy").show_gain(-0.0125), metric("rmse").show_gain(0.5)
    ('83.3 %', '−1.2', '+0.5')
    """

    words: str
    higher_is_better: bool
    percent: bool
    most: float | None  # the best possible value, where there is one
    least: float | None  # the worst possible one

    def show(self, value: float | None) -> str:
        """A value; a dash where it is not known."""
        if value is None or not math.isfinite(value):
            return "–"
        return (f"{100 * value:.1f} %" if self.percent else f"{value:.4g}").replace("-", MINUS, 1)

    def show_gain(self, value: float | None) -> str:
        """A difference, with its sign; of percentages, in points."""
        if value is None or not math.isfinite(value):
            return "–"
        text = f"{100 * value:+.1f}" if self.percent else f"{value:+.3g}"
        return text.replace("-", MINUS, 1)

    def show_spread(self, value: float) -> str:
        """A standard deviation, with a digit more than the value it stands beside."""
        return f"{100 * value:.2f}" if self.percent else f"{value:.4g}"

    def show_interval(self, interval: tuple[float, float] | None) -> str:
        """The ends of an interval of differences."""
        return f"{self.show_gain(interval[0])} to {self.show_gain(interval[1])}" if interval else ""

    @property
    def gain_unit(self) -> str:
        """What differences are counted in: points, or the metric's own unit."""
        return "points" if self.percent else self.words

    @property
    def tail(self) -> str:
        """What the worst tenth is called: the bottom of what should be high, the worst of what should be low."""
        return "bottom decile" if self.higher_is_better else "worst decile"

    @property
    def direction(self) -> str:
        """Which values are good, in words."""
        return "higher is better" if self.higher_is_better else "lower is better"


METRICS = {
    "accuracy": Metric("accuracy", True, True, 1.0, 0.0),
    "balanced_accuracy": Metric("balanced accuracy", True, True, 1.0, 0.0),
    "macro_f1": Metric("macro F1", True, True, 1.0, 0.0),
    "auc": Metric("AUC", True, False, 1.0, 0.0),
    "log_loss": Metric("log loss", False, False, 0.0, None),
    "calibration_error": Metric("calibration error", False, False, 0.0, None),
    "rmse": Metric("RMSE", False, False, 0.0, None),
    "mae": Metric("MAE", False, False, 0.0, None),
    "r2": Metric("R²", True, False, 1.0, None),
    "objective": Metric("objective", False, False, None, None),
    "loss": Metric("loss", False, False, None, None),
}


def metric(name: str) -> Metric:
    """A metric by the name it has in files; of one that is not known here, more is taken to be better."""
    return METRICS.get(name, Metric(name.replace("_", " "), True, False, None, None))


def byte_unit(most: float) -> tuple[float, str]:
    """The unit in which an amount of bytes is easy to read.

    >>> byte_unit(3.2e6)
    (1000000.0, 'MB')
    """
    return next(((s, n) for s, n in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")) if most >= s), (1.0, "B"))


def bytes_format(value: float) -> str:
    """An amount of bytes to read.

    >>> bytes_format(28_800_000), bytes_format(0)
    ('28.8 MB', '0 B')
    """
    unit, name = byte_unit(value)
    return f"{value / unit:.3g} {name}" if unit > 1 else f"{value:.0f} B"
