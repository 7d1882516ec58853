"""The settings of a run that are about a table, and how they reach the reader of tables."""

from __future__ import annotations

import contextlib
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, Field

TABLES = (".csv", ".csv.gz", ".tsv", ".tsv.gz", ".parquet", ".pq")


class TableSettings(BaseModel):
    """What can be said about a table, besides its clients and labels."""

    categorical: tuple[str, ...] = Field((), description="columns that are categories although they look otherwise")
    dates: tuple[str, ...] = Field((), description="how dates are written, a column each: visit=%d/%m/%Y")
    missing: Literal["impute", "drop", "refuse"] = Field(
        "impute", description="missing values: impute the training mean, drop the row, or refuse the table"
    )
    missing_values: tuple[str, ...] = Field((), description="further texts that mark a missing value")
    max_categories: int = Field(50, ge=2, description="categories of a column, at most: rarer ones are pooled")
    min_samples: int = Field(0, ge=0, description="clients with fewer rows are left out")
    split: tuple[float, float, float] = Field(
        (0.6, 0.2, 0.2), description="shares of train, validation and test rows of every client"
    )
    split_seed: int = Field(0, ge=0, description="seed of the random split")
    time_column: str | None = Field(None, description="split in the order of this column, the last rows for test")
    group_column: str | None = Field(None, description="split in whole groups: rows of a patient stay together")
    split_column: str | None = Field(None, description="the column that says train, validation or test")
    scale_target: bool = Field(
        True, description="train on targets of mean 0 and scale 1; predictions and RMSE are in original units"
    )


def table_options(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The options of `from_table` among plain settings of a run."""
    names = ("client_column", "label_column", "task", "drop", *TableSettings.model_fields)
    options = {name: settings[name] for name in names if settings.get(name) is not None and name != "split_seed"}
    options |= {"dates": date_formats(options.get("dates", ())), "unseen": settings.get("unseen") or 0.0}
    return options | {"seed": settings.get("split_seed") or 0}


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


def is_table(data: Any) -> bool:
    """Whether data is a file, or several, rather than a name."""
    return isinstance(data, str) and data.endswith(TABLES)


def check_roles(settings: Mapping[str, Any]) -> None:
    """A table needs columns of clients and labels; several files may be a client each."""
    several = any(character in settings["data"] for character in "*?[")
    for column in ("label_column",) if several else ("client_column", "label_column"):
        if settings.get(column) is None:
            raise ValueError(f"a table needs {column}: give --{column.replace('_', '-')} NAME")


def check_table(flags: Mapping[str, Any], config: Path | None) -> None:
    """Complains about a table that is not there or lacks a column, before JAX is loaded.

    ``flags`` go over the settings in the file ``config``, where there is one.
    """
    settings = {}
    if config is not None:
        with contextlib.suppress(OSError, ValueError):  # complaints about the file come with the others about settings
            settings = tomllib.loads(config.read_text(encoding="utf-8"))
    settings |= {name: value for name, value in flags.items() if value is not None}
    if is_table(settings.get("data")):
        from majorant.data.tabular import check_header

        check_roles(settings)
        check_header(settings["data"], **table_options(settings))
