"""The settings of a run that are about its data, most of them about tables, and how they reach the reader of tables."""

from __future__ import annotations

import contextlib
import json
import tomllib
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, field_validator, model_validator

from majorant._tables import TABLES as NAMED
from majorant.app._flags import STRICT, Flag, Texts
from majorant.app.catalogue import needs_no_labels
from majorant.app.named_tables import with_facts

TABLES = (".csv", ".csv.gz", ".tsv", ".tsv.gz", ".parquet", ".pq")
Shares = Annotated[tuple[float, ...], Field(strict=False)]  # files have lists


class TableSettings(BaseModel):
    """The data of a run: a name, or a table and what is said about it."""

    model_config = STRICT

    data: Annotated[str, Flag("Data", "-d")] = Field(
        "synthetic", description="named data, with options (synthetic:clients=100), or a CSV or Parquet file"
    )
    unseen: Annotated[float | None, Flag("Data", default="as the data says")] = Field(
        None, ge=0, lt=1, description="share of the clients held out of training"
    )
    client_column: Annotated[str | None, Flag("Data")] = Field(
        None, description="the column that names the client of each row"
    )
    label_column: Annotated[str | None, Flag("Data")] = Field(
        None, description="the column to predict; mixtures, clusters and factorizations need none"
    )
    task: Annotated[Literal["auto", "classification", "regression"], Flag("Data")] = Field(
        "auto", description="what the label is; auto looks at its values"
    )
    drop: Annotated[Texts, Flag("Data")] = Field((), description="columns of a table to leave out: a,b")
    categorical: Annotated[Texts, Flag("Data")] = Field(
        (), description="columns to treat as categories, whatever they look like: a,b"
    )
    dates: Annotated[Texts, Flag("Data")] = Field((), description="how a column's dates are written: visit=%d/%m/%Y")
    missing: Annotated[Literal["impute", "drop", "refuse"], Flag("Data")] = Field(
        "impute", description="missing values: impute the training mean, drop the row, or refuse the table"
    )
    missing_values: Annotated[Texts, Flag("Data")] = Field((), description="a further text that marks a missing value")
    max_categories: Annotated[int, Flag("Data")] = Field(
        50, ge=2, lt=1 << 31, description="the most categories of a column: rarer ones are pooled"
    )
    min_samples: Annotated[int, Flag("Data")] = Field(
        0, ge=0, lt=1 << 31, description="clients with fewer rows are left out"
    )
    split: Annotated[Shares, Flag("Data", default="0.6,0.2,0.2")] = Field(
        (0.6, 0.2, 0.2), description="shares of train, validation and test rows of every client"
    )
    split_seed: Annotated[int, Flag("Data")] = Field(0, ge=0, lt=1 << 32, description="seed of the random split")
    time_column: Annotated[str | None, Flag("Data")] = Field(
        None, description="split in the order of this column, the last rows for test"
    )
    together_column: Annotated[str | None, Flag("Data")] = Field(
        None, description="rows with the same value in this column, such as a patient's, stay in one part"
    )
    split_column: Annotated[str | None, Flag("Data")] = Field(
        None, description="the column that says train, validation or test"
    )
    group_column: Annotated[str | None, Flag("Data")] = Field(
        None, description="compare: scores by the groups in this column, and the gaps between them"
    )
    scale_target: Annotated[bool, Flag("Data")] = Field(
        True, description="train on targets of mean 0 and scale 1; predictions and RMSE are in original units"
    )

    @model_validator(mode="before")
    @classmethod
    def facts_of_a_named_table(cls, values: Any) -> Any:
        """A table that goes by a name brings its columns."""
        return with_facts(values)

    @field_validator("drop", "categorical", "dates", "missing_values", mode="before")
    @classmethod
    def text_or_texts(cls, value: Any) -> Any:
        """A single text stands for a list of one."""
        return (value,) if isinstance(value, str) else value

    @field_validator("split")
    @classmethod
    def three_shares(cls, value: tuple[float, ...]) -> tuple[float, ...]:
        """Shares that a split can have."""
        from majorant.data.checks import check_split

        check_split(value)
        return value

    @field_validator("dates")
    @classmethod
    def columns_and_formats(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        """A column and its format each."""
        date_formats(value)
        return value

    @property
    def is_table(self) -> bool:
        """Whether the data is a file, or several, or a table that goes by a name."""
        return self.data.lower().endswith(TABLES) or self.data in NAMED

    @property
    def source(self) -> str:
        """The file, or files, of a table; that of a named one is looked at first."""
        if self.data not in NAMED:
            return self.data
        from majorant.data.named_tables import table_file

        return str(table_file(self.data))

    def table_options(self) -> dict[str, Any]:
        """The options of `from_table`."""
        apart = ("data", "split_seed", "group_column")
        options = {name: getattr(self, name) for name in TableSettings.model_fields if name not in apart}
        return options | {"dates": date_formats(self.dates), "unseen": self.unseen or 0.0, "seed": self.split_seed}

    def check_roles(self, *, labelled: bool = True) -> None:
        """A table needs columns of clients and, for most methods, labels; several files may be a client each."""
        several = any(character in self.data for character in "*?[")
        for column in ["client_column"] * (not several) + ["label_column"] * labelled:
            if getattr(self, column) is None:
                raise ValueError(f"a table needs {column}: give --{column.replace('_', '-')} NAME")


OF_TABLES = tuple(name for name in TableSettings.model_fields if name not in ("data", "unseen"))


def date_formats(texts: Sequence[str]) -> dict[str, str]:
    """The formats of date columns.

    >>> date_formats(["visit=%d/%m/%Y"])
    {'visit': '%d/%m/%Y'}
    """
    found = {}
    for text in texts:
        column, equals, form = text.partition("=")
        if not equals:
            raise ValueError(f"dates says how a column is written, as in visit=%d/%m/%Y, got {text!r}")
        found[column.strip()] = form.strip()
    return found


def check_table(flags: Mapping[str, Any], config: Path | None, methods: Sequence[str | None] = ()) -> None:
    """Complains about a table that is not there or lacks a column, before JAX is loaded.

    ``flags`` go over the settings in the file ``config``, where there is one; ``methods`` may need no labels.
    """
    about, labelled = None, True
    with contextlib.suppress(OSError, ValueError, RecursionError):  # complaints about settings come later, all together
        values = tomllib.loads(config.read_text(encoding="utf-8-sig")) if config is not None else {}
        known = TableSettings.model_fields
        if any(name not in known and get_close_matches(name, known, 1, 0.8) for name in values):
            return  # a setting about tables is misspelt: that is the complaint to make
        given = {name: value for name, value in (values | dict(flags)).items() if value is not None}
        named = [method for method in methods if method] or [str(given.get("algorithm", ""))]
        labelled = not all(needs_no_labels(method) for method in named)
        about = TableSettings.model_validate({k: v for k, v in given.items() if k in known})
    if about is not None and about.is_table:
        from majorant.data.tabular import check_header

        about.check_roles(labelled=labelled)
        check_header(about.source, [about.group_column] if about.group_column else [], **about.table_options())


def check_later_table(folder: Path, data: Path, *, labelled: bool) -> None:
    """Complains about columns that a table for a saved model lacks, before JAX is loaded; other troubles wait.

    ``folder`` is a run or a personal model.
    """
    place = folder / "model" if (folder / "config.toml").exists() else folder
    names: list[str] = []
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError, RecursionError):
        encoding = json.loads((place / "manifest.json").read_text(encoding="utf-8"))["meta"]["encoding"]
        label = [encoding["label"]["name"]] if labelled and encoding["label"] else []
        names = [column["name"] for column in encoding["columns"]] + label
    if names and all(isinstance(name, str) for name in names) and data.is_file() and data.name.lower().endswith(TABLES):
        from majorant.data.tabular.problems import TableError, unknown_column
        from majorant.data.tabular.reading import header_of

        there = header_of(data)
        problems = [unknown_column(name, there) for name in names if name not in there]
        if problems:
            raise TableError(str(data), problems)
