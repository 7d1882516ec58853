"""What can be said about a table: who the clients are, what is predicted, what to do with gaps, and how to split."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields

from majorant.data.checks import check_seed, check_split
from majorant.data.tabular.dates import ISO
from majorant.data.tabular.problems import Problem, unknown_column

MISSING_CHOICES = {
    "impute": "a missing number becomes the training mean, a missing category a category of its own",
    "drop": "rows with a missing value or label are left out",
    "refuse": "a missing value is an error",
}
DAY_AND_MONTH = "%d/%m/%Y"


@dataclass(frozen=True, kw_only=True)
class TableOptions:
    """The options of `from_table`, checked."""

    client_column: str | None = None
    label_column: str | None = None  # None: a table without labels
    task: str = "auto"
    drop: Sequence[str] | str = ()
    categorical: Sequence[str] | str = ()
    dates: Mapping[str, str] = field(default_factory=dict)
    missing: str = "impute"
    missing_values: Sequence[str] | str = ()
    max_categories: int = 50
    min_samples: int = 0
    split: Sequence[float] = (0.6, 0.2, 0.2)
    time_column: str | None = None
    together_column: str | None = None
    split_column: str | None = None
    scale_target: bool = True
    unseen: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        if self.task not in ("auto", "classification", "regression"):
            raise ValueError(f"task must be 'auto', 'classification' or 'regression', got {self.task!r}")
        if self.missing not in MISSING_CHOICES:
            raise ValueError(f"missing must be one of {', '.join(MISSING_CHOICES)}, got {self.missing!r}")
        if self.max_categories < 2:
            raise ValueError(f"max_categories must be at least 2, got {self.max_categories}")
        if self.min_samples < 0:
            raise ValueError(f"min_samples must not be negative, got {self.min_samples}")
        for column, form in self.dates.items():
            if form != ISO and "%" not in form:
                raise ValueError(f"the date format of {column!r} must be like {DAY_AND_MONTH}, or {ISO}, got {form!r}")
        if len(self.splitting) > 1:
            raise ValueError(f"{' and '.join(self.splitting)} are different ways to split: give one of them")
        check_split(self.split)
        check_seed(self.seed)

    @property
    def splitting(self) -> list[str]:
        """The columns that the split goes by, by the names of their options."""
        return [name for name in ("time_column", "together_column", "split_column") if getattr(self, name) is not None]

    def named(self, columns: Sequence[str]) -> list[str]:
        """All columns that are spoken of."""
        roles = [getattr(self, each.name) for each in fields(self) if each.name.endswith("_column")]
        lists = [*listed(self.drop, columns), *listed(self.categorical, columns), *self.dates]
        return list(dict.fromkeys([*(name for name in roles if name is not None), *lists]))


def listed(names: Sequence[str] | str, columns: Sequence[str]) -> list[str]:
    """Columns that are listed, each by itself or several with commas between them.

    >>> listed(["age", "sex, dose"], ["age", "sex", "dose"]), listed("last, first", ["last, first"])
    (['age', 'sex', 'dose'], ['last, first'])
    """
    found = []
    for name in [names] if isinstance(names, str) else names:
        found += [name] if name in columns else [part.strip() for part in name.split(",") if part.strip()]
    return list(dict.fromkeys(found))


def unknown_columns(options: TableOptions, columns: Sequence[str]) -> list[Problem]:
    """A problem for each column that is spoken of and not there."""
    return [unknown_column(name, columns) for name in options.named(columns) if name not in columns]
