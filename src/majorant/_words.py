"""Lists in messages: the first few, and how many there are."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any


def some(values: Iterable[Any], most: int = 5, show: Callable[[Any], str] = repr) -> str:
    """The first few of many values.

    >>> some("abcdefg", 3), some("ab", show=str)
    ("'a', 'b', 'c', … (7)", 'a, b')
    """
    listed = list(values)
    return ", ".join(map(show, listed[:most])) + (f", … ({len(listed)})" if len(listed) > most else "")
