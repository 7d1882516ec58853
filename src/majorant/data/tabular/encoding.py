"""The record of how a table became features: all that is needed to encode the rows of a client who joins later.

It is saved with a model as JSON, and checked when it is read back.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from majorant.data.labels import TargetScale

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

    columns: tuple[Annotated[ColumnRecord, Field(discriminator="kind")], ...]
    label: LabelRecord
    client_column: str | None  # None where each file is a client
    missing: Literal["impute", "drop", "refuse"] = "impute"
    missing_values: tuple[str, ...] = ()  # texts that mark a missing value in every column
    left_out: dict[str, str] = {}  # columns that are no features, and why

    @model_validator(mode="after")
    def distinct(self) -> Encoding:
        """Every column once."""
        names = [column.name for column in self.columns]
        if len({*names, self.label.name}) <= len(names):
            raise ValueError("a column stands twice")
        return self

    @property
    def features(self) -> tuple[str, ...]:
        """A name for every feature: ``column``, ``column=category``, ``column.part`` of a date."""
        return tuple(feature for column in self.columns for feature in column.features)

    @property
    def classes(self) -> tuple[Any, ...]:
        """Label values in the order of their codes; empty for regression."""
        return self.label.classes

    @property
    def target_scale(self) -> TargetScale | None:
        """What was done to regression targets."""
        return self.label.target

    @property
    def task(self) -> str:
        """ "classification" or "regression"."""
        return "classification" if self.classes else "regression"

    @property
    def label_column(self) -> str:
        """The column that is predicted."""
        return self.label.name

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
            return cls.model_validate(record)
        except ValidationError as error:
            wrong = error.errors()[0]
            where = ".".join(str(part) for part in wrong["loc"]) or "the record"
            raise ValueError(f"the encoding of the table is damaged: {where}: {wrong['msg']}") from None
