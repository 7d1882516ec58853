"""How metrics are named, written and compared, wherever a report shows them."""

from __future__ import annotations

import math
from typing import NamedTuple

MINUS = "−"


class Metric(NamedTuple):
    """A metric for people: shares are in per cent with one decimal, errors in four digits, others with three decimals.

    Differences of errors have three digits. The terminal keeps to the same.

    >>> metric("accuracy").show(0.8333), metric("accuracy").show_gain(-0.0125), metric("rmse").show_gain(0.51234)
    ('83.3 %', '−1.2', '+0.512')
    >>> metric("auc").show(0.91), metric("accuracy").show(None)
    ('0.910', '–')
    """

    words: str
    higher_is_better: bool
    kind: str  # share, error or other

    @property
    def percent(self) -> bool:
        """Whether values are shown in per cent."""
        return self.kind == "share"

    def number(self, value: float | None) -> str:
        """A value without its unit; a dash where it is not known."""
        if value is None or not math.isfinite(value):
            return "–"
        text = {"share": f"{100 * value:.1f}", "error": f"{value:.4g}"}.get(self.kind, f"{value:.3f}")
        return text.replace("-", MINUS, 1)

    def show(self, value: float | None) -> str:
        """A value with its unit."""
        text = self.number(value)
        return f"{text} %" if self.percent and text != "–" else text

    def show_gain(self, value: float | None) -> str:
        """A difference, with its sign; of percentages, in points."""
        text = self.number(value)
        if self.kind == "error" and text != "–":
            text = f"{value:.3g}".replace("-", MINUS, 1)
        return text if text == "–" or text.startswith(MINUS) else f"+{text}"

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
    "accuracy": Metric("accuracy", True, "share"),
    "balanced_accuracy": Metric("balanced accuracy", True, "share"),
    "macro_f1": Metric("macro F1", True, "share"),
    "auc": Metric("AUC", True, "other"),
    "log_loss": Metric("log loss", False, "other"),
    "calibration_error": Metric("calibration error", False, "other"),
    "rmse": Metric("RMSE", False, "error"),
    "mae": Metric("MAE", False, "error"),
    "r2": Metric("R²", True, "other"),
    "objective": Metric("objective", False, "error"),
    "loss": Metric("loss", False, "error"),
}


def metric(name: str) -> Metric:
    """A metric by the name it has in files; of one that is not known here, more is taken to be better."""
    return METRICS.get(name, Metric(name.replace("_", " "), True, "other"))


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
