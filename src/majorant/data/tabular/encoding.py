"""The record of how a table became features: all that is needed to encode the rows of a client who joins later.

It is saved with a model as JSON, and checked when it is read back.
"""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from majorant.data.labels import TargetScale
from majorant.data.tabular.dates import CLOCK_PARTS, DATE_PARTS

MISSING, OTHER = "(missing)", "(other)"
Scale = Annotated[float, Field(ge=0)]  # a standard deviation; 0 for what is constant in training, a feature always 0


class Record(BaseModel):
    """A part of the record: nothing unknown, nothing infinite, never changed."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class NumberColumn(Record):
    """Standardised numbers; a missing one becomes the mean, and 1 in a feature of its own if ``indicator``."""

    kind: Literal["number"] = "number"
    name: str
    mean: float
    scale: Scale
    indicator: bool = False  # whether values were missing in training
    marks: tuple[str, ...] = ()  # texts that were taken for missing values

    @property
    def features(self) -> tuple[str, ...]:
        return (self.name, *[f"{self.name} {MISSING}"] * self.indicator)


class CategoryColumn(Record):
    """A feature per category, 1 where the value is that one; ``other`` is for the rare ones and for unknown ones."""

    kind: Literal["category", "boolean"] = "category"
    name: str
    categories: tuple[str, ...]
    other: bool = False  # whether rare categories were pooled
    indicator: bool = False

    @model_validator(mode="after")
    def distinct(self) -> CategoryColumn:
        """Every category once."""
        if len(set(self.categories)) < len(self.categories):
            raise ValueError("a category stands twice")
        return self

    @property
    def features(self) -> tuple[str, ...]:
        more = [OTHER] * self.other + [MISSING] * self.indicator
        return tuple(f"{self.name}={value}" for value in [*self.categories, *more])


class DateColumn(Record):
    """Standardised numbers that stand for a date: ``days`` since 1970, and places on the circles of year, week, day."""

    kind: Literal["date"] = "date"
    name: str
    format: str  # "iso", or as strptime takes it
    parts: tuple[str, ...]
    means: tuple[float, ...]
    scales: tuple[Scale, ...]
    indicator: bool = False
    marks: tuple[str, ...] = ()

    @model_validator(mode="after")
    def a_mean_and_a_scale_each(self) -> DateColumn:
        """Parts that are known, each with its mean and scale."""
        if self.parts not in (DATE_PARTS, DATE_PARTS + CLOCK_PARTS):
            raise ValueError("the parts are not those of a date")
        if not len(self.parts) == len(self.means) == len(self.scales):
            raise ValueError("means and scales are not those of the parts")
        return self

    @property
    def features(self) -> tuple[str, ...]:
        return (*(f"{self.name}.{part}" for part in self.parts), *[f"{self.name} {MISSING}"] * self.indicator)


ColumnRecord = NumberColumn | CategoryColumn | DateColumn


class LabelRecord(Record):
    """The column that is predicted."""

    name: str
    kind: Literal["number", "boolean", "category"]
    classes: tuple[bool | int | float | str, ...] = ()  # in the order of their codes; empty for regression
    target: TargetScale | None = None  # what was done to the targets of regression

    @model_validator(mode="after")
    def consistent(self) -> LabelRecord:
        """Classes of the column's kind, each once; a scale is for regression, which needs numbers."""
        kinds: dict[str, set[type]] = {"number": {int, float}, "boolean": {bool}, "category": {str}}
        if not {type(value) for value in self.classes} <= kinds[self.kind]:
            raise ValueError(f"the classes are not those of a column of kind {self.kind}")
        if len(set(self.classes)) < len(self.classes):
            raise ValueError("a class stands twice")
        if not self.classes and self.kind != "number":
            raise ValueError("regression needs numbers")
        if self.target is not None and (self.classes or self.target.scale <= 0):
            raise ValueError("the scale of the targets is that of no regression")
        return self


class Encoding(Record):
    """How the columns of a table become features and labels.

    >>> age = NumberColumn(name="age", mean=40.0, scale=10.0, indicator=True)
    >>> ward = CategoryColumn(name="ward", categories=("a", "b"), other=True)
    >>> cost = LabelRecord(name="cost", kind="number", target=TargetScale(900.0, 300.0))
    >>> encoding = Encoding(columns=(age, ward), label=cost, client_column="hospital")
    >>> encoding.features
    ('age', 'age (missing)', 'ward=a', 'ward=b', 'ward=(other)')
    >>> Encoding.from_dict(encoding.to_dict()) == encoding
    True
    """

    columns: tuple[Annotated[ColumnRecord, Field(discriminator="kind")], ...] = Field(min_length=1)
    label: LabelRecord | None  # None for a table without labels
    client_column: str | None  # None where each file is a client
    missing: Literal["impute", "drop", "refuse"] = "impute"
    missing_values: tuple[str, ...] = ()  # texts that mark a missing value in every column
    left_out: dict[str, str] = {}  # columns that are no features, and why

    @model_validator(mode="after")
    def distinct(self) -> Encoding:
        """Every column once."""
        names = [column.name for column in self.columns]
        if len({*names, self.label_column}) <= len(names):
            raise ValueError("a column stands twice")
        return self

    @property
    def features(self) -> tuple[str, ...]:
        """A name for every feature: ``column``, ``column=category``, ``column.part`` of a date."""
        return tuple(feature for column in self.columns for feature in column.features)

    @property
    def classes(self) -> tuple[Any, ...]:
        """Label values in the order of their codes; empty for regression."""
        return self.label.classes if self.label else ()

    @property
    def target_scale(self) -> TargetScale | None:
        """What was done to regression targets."""
        return self.label.target if self.label else None

    @property
    def task(self) -> str:
        """ "classification", "regression", or "none" for a table without labels."""
        return "classification" if self.classes else "regression" if self.label else "none"

    @property
    def label_column(self) -> str | None:
        """The column that is predicted."""
        return self.label.name if self.label else None

    def __getitem__(self, name: str) -> Any:
        """The record of a feature column."""
        for column in self.columns:
            if column.name == name:
                return column
        raise KeyError(name)

    def to_dict(self) -> dict[str, Any]:
        """A form that JSON can hold."""
        return self.model_dump(mode="json")

    @classmethod
    def from_dict(cls, record: dict[str, Any]) -> Encoding:
        """The encoding that ``to_dict`` wrote, also after a journey through JSON."""
        if isinstance(record, dict) and "means" in record:
            raise ValueError("the encoding of the table was written by an earlier version of Majorant: train again")
        try:
            return cls.model_validate_json(
                json.dumps(record), strict=True
            )  # as JSON: what is a tuple here is a list there
        except ValidationError as error:
            wrong = error.errors()[0]
            where = ".".join(str(part) for part in wrong["loc"]) or "the record"
            raise ValueError(f"the encoding of the table is damaged: {where}: {wrong['msg']}") from None
