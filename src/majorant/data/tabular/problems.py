"""What is wrong with a table and what would fix it, all of it at once; and notices of what was decided about it."""

from __future__ import annotations

import difflib
import warnings
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from majorant._words import some


class Problem(NamedTuple):
    """Something that makes a table unusable, and what would help."""

    what: str
    fix: str

    def __str__(self) -> str:
        return f"{self.what}: {self.fix}"


FILL = "fill them in, or delete these rows from the table"


class TableError(ValueError):
    """A table that cannot be used; ``problems`` holds every reason.

    >>> print(TableError("visits.csv", [Problem("it has no rows", "add some"), Problem("it is old", "renew it")]))
    visits.csv has 2 problems:
    - it has no rows: add some
    - it is old: renew it
    """

    def __init__(self, where: str, problems: Sequence[Problem]) -> None:
        self.where, self.problems = where, tuple(problems)
        if len(problems) == 1:
            super().__init__(f"{where}: {problems[0]}")
        else:
            lines = "".join(f"\n- {problem}" for problem in problems)
            super().__init__(f"{where} has {len(problems)} problems:{lines}")


class TableNotice(UserWarning):
    """Something that was decided about a table and that its owner should know."""


def tell(where: str, notes: Iterable[str]) -> None:
    """A warning for each note."""
    for note in notes:
        warnings.warn(f"{where}: {note}", TableNotice, stacklevel=3)


def unknown_column(name: str, known: Sequence[str]) -> Problem:
    """A column that is not there, with the nearest name that is.

    >>> print(unknown_column("hopsital", ["hospital", "age"]))
    it has no column 'hopsital': did you mean 'hospital'?
    """
    near = difflib.get_close_matches(name, known, 1, 0.5)
    hint = f"did you mean {near[0]!r}?" if near else f"it has {some(known, 20)}"
    return Problem(f"it has no column {name!r}", hint)


def counted(number: int, what: str) -> str:
    """A number of things.

    >>> counted(1, "row"), counted(3, "row")
    ('1 row', '3 rows')
    """
    return f"{number} {what}{'s' * (number != 1)}"
