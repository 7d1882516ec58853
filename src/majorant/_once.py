"""What is found out about an object once, however often it is asked: the methods of a comparison share their data."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from typing import Any, TypeVar

Found = TypeVar("Found")


def once_for_each(function: Callable[..., Found]) -> Callable[..., Found]:
    """Remembers what a function finds for its first argument, by identity and as long as that lives.

    The other arguments are told apart by their values. For what cannot be watched, such as a tuple, it looks each time.

    >>> class Table: ...
    >>> asked, table = [], Table()
    >>> look = once_for_each(lambda thing, digits: asked.append(digits) or digits)
    >>> look(table, 2), look(table, 2), look(table, 3), look(Table(), 3), asked
    (2, 2, 3, 3, [2, 3, 3])
    """
    known: dict[Any, Found] = {}

    @functools.wraps(function)
    def call(thing: Any, *rest: Any) -> Found:
        if type(thing).__weakrefoffset__ == 0:
            return function(thing, *rest)
        key = (id(thing), *rest)
        if key not in known:
            found = function(thing, *rest)
            weakref.finalize(thing, known.pop, key, None)  # before another object has its id
            known[key] = found
        return known[key]

    return call
