"""Charts for pages: drawings that stretch with the window, and words beside them that do not.

A chart is a frame of fixed height. Lines and dots are SVG in thousandths of the frame, with strokes that keep their
width; ticks and names are HTML. What a point is stands in the page's data, where the page's script finds it.
"""

from __future__ import annotations

import base64
import math
import struct
import zlib
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from majorant.app._text import html_text as escape

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#8C8C8C")
DASHES = ("", "7 3", "8 3 2 3", "2 3")
WEIGHTS = (
    (0, (0, 34, 78)),
    (0.25, (66, 78, 108)),
    (0.5, (125, 124, 120)),
    (0.75, (188, 175, 111)),
    (1, (254, 232, 56)),
)
SIGNS = ((0, (178, 84, 0)), (0.5, (247, 247, 247)), (1, (0, 92, 150)))  # below zero, zero, above
Stops = Sequence[tuple[float, tuple[int, int, int]]]


class Axis(NamedTuple):
    """A range of numbers, laid out over the thousandths of a frame."""

    low: float
    high: float

    @classmethod
    def over(cls, values: Iterable[float], *, pad: float = 0.05, around: float | None = None) -> Axis:
        """The range of some values, with room at the ends; values that are all the same get room around them."""
        known = [float(v) for v in values if math.isfinite(v)] or [0.0, 1.0]
        if around is not None:
            known.append(around)
        low, high = min(known), max(known)
        room = pad * (high - low) or 0.05 * abs(high) or 0.5
        return cls(low - room, high + room)

    def at(self, value: float) -> float:
        """The place of a value, 0 to 1000; beyond the ends where it is beyond the range."""
        return 1000 * (value - self.low) / (self.high - self.low)

    def within(self, value: float) -> float:
        """The place of a value, at an end where it is beyond it."""
        return min(1000.0, max(0.0, self.at(value)))

    def ticks(self, about: int = 5) -> list[float]:
        """Round numbers in the range.

        >>> Axis(0.0, 1.0).ticks(), Axis(-3.0, 40.0).ticks(4)
        ([0.0, 0.2, 0.4, 0.6, 0.8, 1.0], [0.0, 20.0, 40.0])
        """
        rough = (self.high - self.low) / max(about, 1)
        if not math.isfinite(rough) or rough <= 0:
            return []
        power = 10.0 ** math.floor(math.log10(rough))
        step = power * next((m for m in (1, 2, 5) if m * power >= rough * 0.99), 10)
        first = math.ceil(self.low / step - 1e-9)
        count = math.floor(self.high / step + 1e-9) - first + 1
        return [float(f"{step * (first + i):.12g}") for i in range(max(0, min(count, 50)))]

    def named(self, about: int = 5, *, percent: bool = False, unit: str = " %") -> list[tuple[float, str]]:
        """Round numbers in the range with their texts; shares are written in per cent.

        >>> Axis(0.0, 0.1).named(2, percent=True)
        [(0.0, '0 %'), (0.05, '5 %'), (0.1, '10 %')]
        """
        values = self.ticks(about)
        texts = ticked([float(f"{100 * v:.12g}") if percent else v for v in values])
        return [(v, text + (unit if percent else "")) for v, text in zip(values, texts, strict=True)]


def ticked(values: Sequence[float]) -> list[str]:
    """Numbers beside an axis, with as few digits as tell them apart.

    >>> ticked([-0.5, 0.0, 12000.0]), ticked([0.890431, 0.890432])
    (['−0.5', '0', '12,000'], ['0.890431', '0.890432'])
    """
    texts: list[str] = []
    for digits in range(3, 16):
        texts = [f"{v:,.0f}" if 1000 <= abs(v) < 1e6 and v == round(v) else f"{v:.{digits}g}" for v in values]
        if len(set(texts)) == len(values):
            break
    return [text.replace("-", "−", 1) for text in texts]


def look(place: int) -> tuple[str, str]:
    """Colour and dashes of the method at a place."""
    turn, colour = divmod(place, len(COLOURS))
    return COLOURS[colour], DASHES[(colour + turn) % len(DASHES)]


def frame(
    name: str,
    drawing: str,
    *,
    label: str,
    height: int,
    x_ticks: Sequence[tuple[float, str]] = (),
    y_ticks: Sequence[tuple[float, str]] = (),
    x_name: str = "",
    y_name: str = "",
    marks: Sequence[tuple[float, str]] = (),
    left: str = "",
) -> str:
    """A drawing with its axes; places are in thousandths from the left, and from the top. Marks name level lines."""
    grid = "".join(f"M0 {n(y)}H1000" for y, _ in y_ticks) + "".join(f"M{n(x)} 0V1000" for x, _ in x_ticks)
    words = [
        f'<span class="y" style="top:{n(y / 10)}%;transform:translateY(-50%)">{escape(t)}</span>' for y, t in y_ticks
    ]
    for x, text in x_ticks:
        end = " first" if x < 15 else " last" if x > 985 else ""
        words.append(f'<span class="x{end}" style="left:{n(x / 10)}%">{escape(text)}</span>')
    words += [f'<span class="mark" style="top:{n(y / 10)}%">{escape(text)}</span>' for y, text in marks]
    words += [f'<span class="x-name">{escape(x_name)}</span>'] if x_name else []
    above = f'<p class="y-name">{escape(y_name)}</p>' if y_name else ""
    side = f' style="--left:{left}"' if left else ""
    return (
        f'{above}<div class="chart"{side}><div class="frame hot" data-chart="{escape(name)}" '
        f'style="height:{height}px">'
        f'<svg role="img" aria-label="{escape(label)}" viewBox="0 0 1000 1000" preserveAspectRatio="none">'
        f'<path class="grid" d="{grid}"/>{drawing}</svg>{"".join(words)}</div></div>'
    )


def figure(name: str, body: str, caption: str) -> str:
    """A figure with its caption."""
    return f'<figure id="{escape(name)}">{body}<figcaption>{escape(caption)}</figcaption></figure>'


def line(x: np.ndarray, y: np.ndarray, colour: str, dashes: str = "") -> str:
    """A curve through points in thousandths; it has a gap where a point is not finite."""
    path, down = [], False
    for a, b in zip(x, y, strict=True):
        known = math.isfinite(a) and math.isfinite(b)
        if known:
            path.append(f"{'L' if down else 'M'}{n(a)} {n(b)}")
        down = known
    style = f' stroke-dasharray="{dashes}"' if dashes else ""
    return f'<path d="{"".join(path)}" fill="none" stroke="{colour}" stroke-width="2"{style}/>' if path else ""


def dots(x: Iterable[float], y: Iterable[float], kind: str, size: float = 6, colour: str = "currentColor") -> str:
    """Round dots that stay round: lines of no length with round ends."""
    path = "".join(f"M{n(a)} {n(b)}h0" for a, b in zip(x, y, strict=True))
    if not path:
        return ""
    return (
        f'<path class="{kind}" d="{path}" fill="none" stroke="{colour}" stroke-width="{size}" stroke-linecap="round"/>'
    )


def level(y: float, turn: int = 0) -> str:
    """A dotted line across; dashed where it is the second."""
    return f'<path class="{level_class(turn)}" d="M0 {n(y)}H1000"/>'


def level_class(turn: int) -> str:
    """The look of the level at a place among the levels."""
    return "level second" if turn else "level"


def legend(items: Sequence[tuple[str, str, str]]) -> str:
    """Names with their colour and dashes."""
    drawn = "".join(
        f'<li><svg viewBox="0 0 30 12" aria-hidden="true"><path d="M0 6H30" stroke="{colour}" stroke-width="2.5"'
        f'{f""" stroke-dasharray="{dashes}" """ if dashes else ""}/></svg>{escape(text)}</li>'
        for text, colour, dashes in items
    )
    return f'<ul class="legend">{drawn}</ul>'


def n(value: float) -> str:
    """A place, short.

    >>> n(12.0), n(3.14159)
    ('12', '3.1')
    """
    return f"{value:.1f}".removesuffix(".0")


def colour_of(share: float, stops: Stops) -> tuple[int, int, int]:
    """A colour between stops; grey for what is not known.

    >>> colour_of(0.0, WEIGHTS), colour_of(0.5, SIGNS)
    ((0, 34, 78), (247, 247, 247))
    """
    if not math.isfinite(share):
        return 128, 128, 128
    where = [place for place, _ in stops]
    red, green, blue = (round(float(np.interp(share, where, [c[k] for _, c in stops]))) for k in range(3))
    return red, green, blue


def css(colour: tuple[int, int, int]) -> str:
    """A colour as CSS writes it."""
    return "#{:02x}{:02x}{:02x}".format(*colour)


def gradient(stops: Stops) -> str:
    """A scale of colours from left to right, as CSS."""
    return f"linear-gradient(to right, {', '.join(css(c) for _, c in stops)})"


def picture(values: np.ndarray, stops: Stops) -> str:
    """A map of values between 0 and 1 ``(rows, columns)`` as the address of a small PNG image inside the page."""
    rows, columns = values.shape
    palette = np.array([*(colour_of(k / 254, stops) for k in range(255)), colour_of(math.nan, stops)], np.uint8)
    levels = np.where(np.isfinite(values), np.clip(np.nan_to_num(values), 0, 1) * 254, 255).astype(np.uint8)
    pixels = palette[levels].reshape(rows, 3 * columns)
    lines = np.concatenate([np.zeros((rows, 1), np.uint8), pixels], axis=1).tobytes()  # each begins with "no filter"

    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    head = struct.pack(">IIBBBBB", columns, rows, 8, 2, 0, 0, 0)  # 8 bits, three colours
    parts = chunk(b"IHDR", head), chunk(b"IDAT", zlib.compress(lines, 9)), chunk(b"IEND", b"")
    return "data:image/png;base64," + base64.b64encode(b"\x89PNG\r\n\x1a\n" + b"".join(parts)).decode()


def thousandths(places: Iterable[float]) -> list[float]:
    """Places for the page's data, short."""
    return [round(float(place), 1) for place in places]


Points = dict[str, Any]  # x and y in thousandths (no x: evenly apart), and clients or tips
