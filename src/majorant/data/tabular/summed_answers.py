"""Answers of which only sums are told, where even counts and moments of one owner are nobody's business.

An owner gives a `discreet` answer, names and kinds alone. Then all are told which numbers are summed (`to_be_summed`),
each gives its own (`own_part`) to a secure sum, and the sums go where the numbers were (`with_sums`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction

import numpy as np
from pydantic import Field

from majorant.data.tabular.answers import Moments, TableAnswer
from majorant.data.tabular.encoding import Record


class SummedColumn(Record):
    """A column of which numbers are summed: counts and moments of its parts, or how often categories occur."""

    name: str
    parts: int = Field(0, ge=0, le=64)
    categories: tuple[str, ...] = ()


class Summed(Record):
    """The numbers that are summed, in this order."""

    columns: tuple[SummedColumn, ...]
    targets: bool  # whether also those of labels, which are numbers


NOTHING = Moments(count=0, mean=0.0, scale=0.0)


def discreet(answer: TableAnswer) -> TableAnswer:
    """An answer without numbers: names, kinds, categories and classes."""
    quiet = lambda column: column.model_copy(
        update={"moments": (NOTHING,) * len(column.moments), "counts": dict.fromkeys(column.counts, 0)}
    )
    label = answer.label
    if label is not None and label.moments is not None:
        label = label.model_copy(update={"moments": NOTHING})
    return answer.model_copy(update={"columns": tuple(map(quiet, answer.columns)), "label": label})


def to_be_summed(answers: Mapping[str, TableAnswer]) -> Summed:
    """What is summed for owners whose discreet answers go together."""
    columns: dict[str, SummedColumn] = {}
    for each in (column for answer in answers.values() for column in answer.columns):
        before = columns.get(each.name, SummedColumn(name=each.name))
        names = tuple(sorted({*before.categories, *each.counts}))
        columns[each.name] = SummedColumn(name=each.name, parts=max(before.parts, len(each.moments)), categories=names)
    targets = any(a.label is not None and a.label.moments is not None for a in answers.values())
    return Summed(columns=tuple(columns.values()), targets=targets)


def own_part(answer: TableAnswer, asked: Summed) -> list[Fraction]:
    """An owner's numbers: of moments the count, the sum and the sum of squares, as they are."""
    own, found = {column.name: column for column in answer.columns}, []
    for column in asked.columns:
        mine = own.get(column.name)
        moments = () if mine is None else mine.moments
        for place in range(column.parts):
            found += powers(moments[place] if place < len(moments) else NOTHING)
        found += [Fraction(0 if mine is None else mine.counts.get(name, 0)) for name in column.categories]
    if asked.targets:
        found += powers((answer.label and answer.label.moments) or NOTHING)
    return found


def powers(moments: Moments) -> list[Fraction]:
    """How many numbers there are, their sum, and the sum of their squares."""
    mean, scale = Fraction(moments.mean), Fraction(moments.scale)
    return [Fraction(moments.count), moments.count * mean, moments.count * (scale**2 + mean**2)]


def from_powers(count: Fraction, total: Fraction, squares: Fraction) -> Moments:
    """The inverse of `powers`: nothing is lost to rounding before the root.

    >>> from_powers(*powers(Moments(count=3, mean=1e9, scale=0.25)))
    Moments(count=3, mean=1000000000.0, scale=0.25)
    """
    if count <= 0:
        return NOTHING
    mean = total / count
    variance = max(float(squares / count - mean**2), 0.0)
    return Moments(count=int(count), mean=float(mean), scale=float(np.sqrt(variance)))


def with_sums(answers: Mapping[str, TableAnswer], asked: Summed, sums: Sequence[Fraction]) -> dict[str, TableAnswer]:
    """Discreet answers with the sums in them, in the place of the first owner's numbers."""
    left, found = iter(sums), dict(answers)

    def put(name: str, moments: tuple[Moments, ...], counts: dict[str, int]) -> None:
        for owner, answer in found.items():
            at = next((i for i, c in enumerate(answer.columns) if c.name == name and c.kind != "empty"), None)
            if at is not None:
                more = {"moments": moments, "counts": counts}
                columns = [*answer.columns[:at], answer.columns[at].model_copy(update=more), *answer.columns[at + 1 :]]
                found[owner] = answer.model_copy(update={"columns": tuple(columns)})
                return

    for column in asked.columns:
        moments = tuple(from_powers(next(left), next(left), next(left)) for _ in range(column.parts))
        put(column.name, moments, {name: int(next(left)) for name in column.categories})
    if asked.targets:
        targets = from_powers(next(left), next(left), next(left))
        owner = next(o for o, a in found.items() if a.label is not None)
        label = found[owner].label
        assert label is not None
        found[owner] = found[owner].model_copy(update={"label": label.model_copy(update={"moments": targets})})
    return found
