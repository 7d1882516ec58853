"""The encoding of a table as a run folder remembers it."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, model_validator

from majorant.app.records import Amount, Label, Record, checked
from majorant.data.tabular import Encoding


class EncodingRecord(Record):
    """How the columns of a table became features, as `Encoding` has it."""

    columns: list[str] = Field(min_length=1)
    means: dict[str, float]
    scales: dict[str, Amount]
    categories: dict[str, list[str]]
    classes: list[Label]
    task: Literal["classification", "regression"]
    client_column: str
    label_column: str

    @model_validator(mode="after")
    def consistent(self) -> EncodingRecord:
        """Of every column it is said once how it becomes features."""
        numbers, named = set(self.means), set(self.categories)
        if len(set(self.columns)) < len(self.columns):
            raise ValueError("a column is named twice")
        if numbers != set(self.scales) or numbers & named or numbers | named != set(self.columns):
            raise ValueError("means, scales and categories are not those of the columns")
        if bool(self.classes) != (self.task == "classification"):
            raise ValueError("the classes are not those of the task")
        return self


def read_encoding(record: dict[str, Any], where: str) -> Encoding:
    """The encoding that a folder remembers, checked."""
    return Encoding.from_dict(checked(EncodingRecord, record, where).model_dump())
