"""A table looked at as a whole: roles of columns, clients, labels, features and split, with every problem it has."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from majorant.data.labels import encode_labels
from majorant.data.splitting import Parts
from majorant.data.tabular.choosing import (
    EXACT,
    column_notes,
    date_notes,
    decimal_notes,
    left_out,
    missing_note,
    unit_notes,
)
from majorant.data.tabular.dividing import divide, leave_out_rows
from majorant.data.tabular.doubts import alike, copied, in_another_unit, names_rows, stands_for_missing, tells_label
from majorant.data.tabular.kinds import Column, Refused, as_text, category, column_of
from majorant.data.tabular.options import TableOptions, listed, unknown_columns
from majorant.data.tabular.problems import FILL, Problem, counted
from majorant.data.tabular.reading import Source

MANY_CLASSES = 20  # whole numbers as labels are probably quantities where there are more of them
LEAVE_OUT = "fill them in, or leave these rows out with missing='drop'"


@dataclass
class Survey:
    """What was found; where there are no problems, everything is there."""

    source: Source
    options: TableOptions
    columns: list[Column] = field(default_factory=list)  # the features, all rows
    left_out: dict[str, str] = field(default_factory=dict)  # columns that are no features, and why
    label: Column | None = None
    codes: np.ndarray | None = None  # (rows,) of the labels, or targets
    classes: tuple[Any, ...] = ()
    unlabelled: np.ndarray | None = None  # (rows,) where the label is missing, if such rows are to be left out
    names: tuple[str, ...] = ()  # of the clients
    owner: np.ndarray | None = None  # (rows,) the client of every row, −1 for rows that are left out
    parts: Parts = field(default_factory=list)  # numbers of rows
    unseen: np.ndarray | None = None
    problems: list[Problem] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def trouble(self, what: str, fix: str) -> None:
        """Remembers a problem."""
        self.problems.append(Problem(what, fix))

    def read_column(self, name: str, categorical: bool = False) -> Column | None:
        """A column of the kind it shows, or None and a problem."""
        options = self.options
        marks = [options.missing_values] if isinstance(options.missing_values, str) else options.missing_values
        dates = options.dates.get(name)
        column = column_of(self.source, name, categorical=categorical, date_format=dates, marks=marks)
        if isinstance(column, Problem):
            self.problems.append(column)
            return None
        return column

    def text_column(self, name: str, role: str) -> Column | None:
        """A column of names, none of which may be missing; None and a problem otherwise."""
        if name not in self.source.names:
            return None
        try:
            column = category(name, as_text(self.source.column(name)))
        except Refused as refusal:
            self.problems.append(refusal.problem)
            return None
        return None if self.has_gaps(column, role) else column

    def has_gaps(self, column: Column, role: str, fix: str = FILL) -> bool:
        """Whether values are missing where none may be; ``fix`` says what would help."""
        gaps = np.flatnonzero(column.absent)
        if len(gaps):
            what = f"{role} column {column.name!r} has {counted(len(gaps), 'empty value')} in {len(column.values)} rows"
            self.trouble(f"{what}, the first in {self.source.row(int(gaps[0]))}", fix)
        return bool(len(gaps))

    @property
    def learning_rows(self) -> np.ndarray:
        """The training rows of clients that train: all that the encoding may learn from."""
        assert self.owner is not None
        assert self.unseen is not None
        rows = self.parts[0][0]
        return rows[~self.unseen[self.owner[rows]]]


def look_at(source: Source, options: TableOptions, *, whole: bool = True) -> Survey:
    """The survey of a table; one that is not the ``whole`` data may have labels of a single class."""
    found = Survey(source, options, notes=list(source.notes))
    if source.table.num_rows == 0:
        found.trouble("it has no rows", "it needs a line of column names and a row per sample")
        return found
    check_roles(found)
    look_at_clients(found)
    look_at_features(found)
    look_at_label(found, whole=whole)
    add_doubts(found)
    if found.owner is not None:
        leave_out_rows(found)
        if (found.owner >= 0).any():
            divide(found)
    return found


def check_roles(found: Survey) -> None:
    """Columns that are named must be there, and have one role each."""
    options, known = found.options, found.source.names
    found.problems += unknown_columns(options, known)
    both = {options.client_column, options.label_column} & {*listed(options.drop, known)}
    if (options.label_column is not None and options.client_column == options.label_column) or both:
        fix = "name another one"
        found.trouble("the client column, the label column and the dropped columns must be different columns", fix)
    if options.client_column is None and not found.source.files:
        fix = "say which in client_column, or give a file per client, as in 'silos/*.csv'"
        found.trouble("no column says whose the rows are", fix)


def look_at_clients(found: Survey) -> None:
    """Whose the rows are: ids are texts, whatever they look like."""
    if found.options.client_column is None:
        if not found.source.files:
            return
        names, found.owner = np.unique(found.source.stems(), return_inverse=True)
        found.names = tuple(names.tolist())
        return
    column = found.text_column(found.options.client_column, "client")
    if column is None:
        return
    order = list(range(len(column.levels)))
    if all(re.fullmatch(r"0|-?[1-9]\d*", name) for name in column.levels):  # 2 before 10
        order.sort(key=lambda i: int(column.levels[i]))
    found.names = tuple(column.levels[i] for i in order)
    found.owner = np.argsort(order)[column.values]


def look_at_features(found: Survey) -> None:
    """The kinds of all columns without another role."""
    options, source = found.options, found.source
    drop, categorical = (listed(each, source.names) for each in (options.drop, options.categorical))
    taken = {options.client_column, options.label_column, options.together_column, options.split_column}
    found.left_out |= dict.fromkeys(drop, "dropped, as asked")
    for name in source.names:
        if name in taken or name in drop:
            continue
        column = found.read_column(name, name in categorical)
        if column is None:
            continue
        reason = left_out(column, found.owner, options, name in categorical)
        if reason is not None:
            found.left_out[name] = reason
            found.notes.append(f"{name!r} is left out ({reason}): name it in drop, or in categorical to keep it")
            found.notes += date_notes(column, source) + unit_notes(column, source)
        else:
            found.columns.append(column)
            found.notes += column_notes(column, source)
    if not found.columns and not found.problems:
        why = [f"; {name!r}: {reason}" for name, reason in found.left_out.items()]
        found.trouble(f"no column is left to predict from{''.join(why)}", "give more columns, or name fewer in drop")
    found.notes += missing_note(found.columns, options)
    found.notes += decimal_notes(found.columns)


def look_at_label(found: Survey, *, whole: bool = True) -> None:
    """The codes of classes, or the targets of regression."""
    name, task = found.options.label_column, found.options.task
    if name is None:
        found.codes = np.zeros(found.source.table.num_rows, np.float32)
        return
    if name not in found.source.names:
        return
    asked = name in listed(found.options.categorical, found.source.names)
    column = found.read_column(name, asked)
    if column is not None and column.kind == "date":
        column = found.read_column(name, True)  # days as classes, which the checks below refuse where they are many
    if column is not None and found.options.missing == "drop" and not column.absent.all():
        found.unlabelled = column.absent
    elif column is None or found.has_gaps(column, "label", FILL if column.absent.all() else LEAVE_OUT):
        return
    labelled = np.flatnonzero(~column.absent)
    column = column.take(labelled)
    if task == "regression" and column.kind != "number":
        found.trouble(f"label column {name!r} has values such as {column.levels[0]!r}", "regression needs numbers")
        return
    if column.whole and np.abs(column.values).max() >= EXACT:
        what = f"label column {name!r} has whole numbers of more than 15 digits"
        found.trouble(what, "they are classes if you name it in categorical")
        return
    found.label, found.notes = column, [*found.notes, *column.notes]
    codes, found.classes = encode_labels(values_of(column), task)
    if column.kind == "number" and not found.classes:
        codes = column.values  # in double precision: their scale is yet to be found
    found.codes = np.zeros(found.source.table.num_rows, codes.dtype)
    found.codes[labelled] = codes
    check_classes(found, column, whole=whole)


def add_doubts(found: Survey) -> None:
    """Notes of what looks like a mistake."""
    if found.options.client_column is not None:
        found.notes += alike(found.options.client_column, found.names, "clients")
    if found.label is not None and found.classes:
        found.notes += alike(found.label.name, found.label.levels, "classes")
    for column in found.columns:
        found.notes += [*alike(column.name, column.levels, "categories"), *stands_for_missing(column)]
        found.notes += [*names_rows(column), *in_another_unit(column, found.owner, found.names)]
        if found.label is not None and found.codes is not None and found.unlabelled is None:
            found.notes += tells_label(column, found.codes, len(found.classes))
    found.notes += copied(found.columns, found.owner, found.codes)


def values_of(column: Column) -> np.ndarray:
    """The values of a label column: whole numbers, numbers, truth values or texts."""
    if column.kind == "number":
        return column.values.astype(np.int64) if column.whole else column.values
    return column.values.astype(bool) if column.kind == "boolean" else np.array(column.levels, object)[column.values]


def check_classes(found: Survey, column: Column, *, whole: bool = True) -> None:
    """Classes must be several, and fewer than the rows."""
    name, count, rows = column.name, len(found.classes), len(column.values)
    if whole and (count == 1 or (not count and column.values.min() == column.values.max())):
        found.trouble(f"label column {name!r} has one value only", "there is nothing to predict: choose another column")
    elif column.kind == "category" and count > MANY_CLASSES and 2 * count > rows:
        found.trouble(f"label column {name!r} has {count} different texts in {rows} rows", "classes must recur")
    elif column.kind == "number" and count > MANY_CLASSES and (found.options.task == "auto" or 2 * count > rows):
        found.notes.append(
            f"label column {name!r} has {count} different numbers in {rows} rows, taken as classes: if they are"
            " quantities, say task='regression'"
        )
