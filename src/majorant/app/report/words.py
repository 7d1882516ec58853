"""How metrics are named, written and compared, wherever a report shows them."""

from __future__ import annotations

from typing import NamedTuple

from majorant.app.wording import IN_PER_CENT, TITLES, brief, shown, title

MINUS = "−"
LOWER_IS_BETTER = ("log_loss", "calibration_error", "rmse", "mae", "objective", "loss")


class Metric(NamedTuple):
    """A metric for people, in the digits of the terminal (`app.wording`) and with a typographic minus.

    >>> metric("accuracy").show(0.8333), metric("accuracy").show_gain(-0.0125), metric("rmse").show_gain(0.51234)
    ('83.3 %', '−1.2', '+0.512')
    >>> metric("auc").show(0.91), metric("accuracy").show(None), metric("accuracy").show_gain(-0.0001)
    ('0.910', '–', '0.0')
    """

    name: str  # in files

    @property
    def words(self) -> str:
        """What it is called."""
        return title(self.name)

    @property
    def higher_is_better(self) -> bool:
        """Whether more is better; of a metric that is not known here, it is."""
        return self.name not in LOWER_IS_BETTER

    @property
    def percent(self) -> bool:
        """Whether values are shown in per cent."""
        return self.name in IN_PER_CENT

    def number(self, value: float | None) -> str:
        """A value without its unit; a dash where it is not known."""
        return shown(value, self.name, unit=False).replace("-", MINUS, 1)

    def show(self, value: float | None) -> str:
        """A value with its unit."""
        return shown(value, self.name).replace("-", MINUS, 1)

    def show_gain(self, value: float | None) -> str:
        """A difference, with its sign; of percentages, in points."""
        text = "–" if value is None else brief(value, self.name).replace("-", MINUS, 1)
        if not text.strip(f"{MINUS}0."):  # nothing is left of it in these digits
            return text.removeprefix(MINUS)
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


METRICS = {name: Metric(name) for name in TITLES}


def metric(name: str) -> Metric:
    """A metric by the name it has in files."""
    return METRICS.get(name, Metric(name))


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
