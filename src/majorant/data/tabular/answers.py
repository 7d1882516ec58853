"""What an owner says of its own table, where nobody may put the tables together.

`answer_of` gives the kind of every column, how many training rows there are, the mean and spread of numbers, how often
each category occurs. No row, and no value of a row, is in it but the names of categories and classes.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from pydantic import Field, field_validator, model_validator

from majorant.data.tabular.dates import CLOCK_PARTS, DATE_PARTS, date_numbers, parts_of
from majorant.data.tabular.encoding import Record, Scale
from majorant.data.tabular.fitting import mean_and_scale
from majorant.data.tabular.kinds import Column
from majorant.data.tabular.survey import Survey

Kind = Literal["number", "category", "boolean", "date", "empty"]
WORDS = {"number": "numbers", "category": "categories", "boolean": "true and false", "date": "dates"}


class Moments(Record):
    """Of some numbers: how many there are, their mean and their standard deviation."""

    count: int = Field(ge=0)
    mean: float
    scale: Scale


class ColumnAnswer(Record):
    """What an owner says of a column, from its training rows."""

    name: str
    kind: Kind
    gaps: bool  # whether values are missing
    moments: tuple[Moments, ...] = ()  # of numbers, or of each part of a date
    counts: dict[str, int] = Field({})  # of categories
    format: str = ""  # of a date
    clock: bool = False  # whether a date has a time of the day
    marks: tuple[str, ...] = ()

    @model_validator(mode="after")
    def of_its_kind(self) -> ColumnAnswer:
        """Refuses moments that a column of this kind does not have."""
        parts = {"number": 1, "date": len(DATE_PARTS + CLOCK_PARTS)}.get(self.kind, 0)
        if len(self.moments) != parts:
            raise ValueError(f"{len(self.moments)} moments of a column that is of the kind {self.kind!r}")
        return self


class LabelAnswer(Record):
    """What an owner says of its labels."""

    name: str
    kind: Literal["number", "boolean", "category"]
    classes: tuple[bool | int | float | str, ...] = ()  # empty for regression
    moments: Moments | None = None  # of the targets of regression

    @field_validator("classes")
    @classmethod
    def all_alike(cls, classes: tuple[Any, ...]) -> tuple[Any, ...]:
        """Refuses texts among numbers, which have no order."""
        if len({isinstance(value, str) for value in classes}) > 1:
            raise ValueError("some classes are texts and others are not")
        return classes


class TableAnswer(Record):
    """What an owner says of its table."""

    columns: tuple[ColumnAnswer, ...]
    left_out: dict[str, str]
    label: LabelAnswer | None


def answer_of(found: Survey) -> TableAnswer:
    """What may be said of a table that was looked at and has no problems."""
    rows = found.learning_rows
    label = None
    if found.label is not None:
        assert found.codes is not None
        moments = None if found.classes else moments_of(found.codes[rows])
        kind: Any = found.label.kind
        label = LabelAnswer(name=found.label.name, kind=kind, classes=found.classes, moments=moments)
    empty = [Column(name, "empty", np.full(1, np.nan)) for name, why in found.left_out.items() if why == NO_VALUES]
    left_out = {name: without_numbers(why) for name, why in found.left_out.items() if why != NO_VALUES}
    columns = [column_answer(column.take(rows)) for column in found.columns] + [column_answer(each) for each in empty]
    return TableAnswer(columns=tuple(columns), left_out=left_out, label=label)


NO_VALUES = "it has no values"  # as `choosing.left_out` says it


def without_numbers(why: str) -> str:
    """The reason why a column is left out, without how many rows and values its owner has.

    >>> without_numbers("an id: 31 different whole numbers in 31 rows, and named like one")
    'an id'
    """
    return why.partition(":")[0]


def column_answer(column: Column) -> ColumnAnswer:
    """What may be said of a column."""
    kind: Any = column.kind
    about: dict[str, Any] = {"name": column.name, "kind": kind, "gaps": bool(column.absent.any())}
    if column.kind == "number":
        about |= {"moments": (moments_of(column.values),), "marks": column.marks}
    elif column.kind == "date":
        numbers = date_numbers(column.values, DATE_PARTS + CLOCK_PARTS).values()
        clock = parts_of(column.values) != DATE_PARTS
        about |= {"moments": tuple(map(moments_of, numbers)), "clock": clock}
        about |= {"format": column.format, "marks": column.marks}
    elif column.kind != "empty":
        counts = np.bincount(column.values[~column.absent].astype(np.int64), minlength=len(column.levels))
        about["counts"] = {level: int(n) for level, n in zip(column.levels, counts, strict=True) if n}
    return ColumnAnswer(**about)


def moments_of(values: np.ndarray) -> Moments:
    """Count, mean and standard deviation of the numbers that are there."""
    values = np.asarray(values, np.float64)
    mean, scale = mean_and_scale(values, np.zeros(len(values), np.int64))
    return Moments(count=int((~np.isnan(values)).sum()), mean=mean, scale=scale)
