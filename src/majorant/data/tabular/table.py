"""Tables to federated data, and the rows of a later file to the same features."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from majorant._words import some
from majorant.data.federated import FederatedData, Ragged, warn_thin_clients
from majorant.data.labels import TargetScale, label_values
from majorant.data.lazy import Lazy
from majorant.data.tabular.applying import features_of, labels_of, read_as, unknown_levels
from majorant.data.tabular.choosing import decimal_notes
from majorant.data.tabular.doubts import far_away
from majorant.data.tabular.encoding import CategoryColumn, Encoding, LabelRecord, NumberColumn
from majorant.data.tabular.fitting import fit_column, mean_and_scale
from majorant.data.tabular.kinds import Column, column_of
from majorant.data.tabular.options import TableOptions
from majorant.data.tabular.problems import Problem, TableError, tell, unknown_column
from majorant.data.tabular.reading import Source, paths_of, read_file, read_source
from majorant.data.tabular.survey import Survey, look_at


def from_table(
    source: Any,
    *,
    client_column: str | None = None,
    label_column: str | None = None,
    task: str = "auto",
    drop: Sequence[str] | str = (),
    categorical: Sequence[str] | str = (),
    dates: Mapping[str, str] | None = None,
    missing: str = "impute",
    missing_values: Sequence[str] | str = (),
    max_categories: int = 50,
    min_samples: int = 0,
    split: Sequence[float] = (0.6, 0.2, 0.2),
    time_column: str | None = None,
    together_column: str | None = None,
    split_column: str | None = None,
    scale_target: bool = True,
    unseen: float = 0.0,
    seed: int = 0,
    in_memory: bool = True,
) -> tuple[FederatedData, Encoding]:
    """Reads a table with a row per sample; one column names the client, one is the label, the others are features.

    ``source`` is the path of a CSV or Parquet file, a pattern such as ``silos/*.csv`` or a list of paths (without a
    ``client_column``, each file is a client), or a data frame. Numbers are standardised, categories and booleans
    one-hot encoded, dates turned into numbers; ``categorical`` names columns that are categories although they look
    otherwise, ``dates`` says how dates are written, as in ``{"visit": "%d/%m/%Y"}``. ``missing`` is "impute", "drop"
    (leaves rows out) or "refuse"; ``missing_values`` are further texts that mark a missing value. Of more than
    ``max_categories`` categories the rare ones are pooled. Clients with fewer than ``min_samples`` rows are left out.

    ``split`` are the shares of train, validation and test: at random, in the order of ``time_column``, or so that rows
    with the same value in ``together_column`` stay together; ``split_column`` names the part of every row instead.
    Targets of regression are brought to mean 0 and scale 1 if ``scale_target``; models predict in original units.
    Without a ``label_column`` all labels are 0: for mixtures, clusters and factorizations. Without ``in_memory`` the
    features of files are read again when they are asked for, and not held: of several hosts each holds its own
    clients', whose files, where there is one for each, are the only ones that it reads again.

    Returns the data and the encoding, which ``encode_table`` needs for another file. Raises `TableError`, with all
    problems of the table, and warns with `TableNotice` of what its owner should know.

    >>> import pathlib, tempfile
    >>> rows = "".join(f"{s},{age},{'yn'[age % 2]},{age % 3}\\n" for s in ["a", "b"] for age in range(20, 50))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder) / "visits.csv"
    ...     _ = path.write_text("hospital,age,smoker,outcome\\n" + rows)
    ...     data, encoding = from_table(path, client_column="hospital", label_column="outcome")
    >>> data.names, data.classes, encoding.features
    (('a', 'b'), (0, 1, 2), ('age', 'smoker=n', 'smoker=y'))
    """
    given = {k: v for k, v in locals().items() if k not in ("source", "dates", "in_memory")}
    options = TableOptions(**given, dates=dates or {})
    found, encoding = prepare(read_source(source), options)
    if found.problems:
        raise TableError(found.source.where, found.problems)
    assert encoding is not None
    again = None if in_memory or hasattr(source, "__arrow_c_stream__") else RowsOfFiles(source, found.source, encoding)
    data = federated(found, encoding, again)
    tell(found.source.where, found.notes)
    warn_thin_clients(data)
    return data, encoding


def prepare(source: Source, options: TableOptions) -> tuple[Survey, Encoding | None]:
    """What a table is like, and how it would be encoded; None where it has problems."""
    found = look_at(source, options)
    if found.problems:
        return found, None
    assert found.owner is not None
    assert found.codes is not None
    rows = found.learning_rows
    owner = found.owner[rows]
    columns = tuple(fit_column(c.take(rows), owner, options.max_categories) for c in found.columns)
    if found.classes:
        learned = np.bincount(found.codes[rows], minlength=len(found.classes)) > 0
        lost = [value for value, known in zip(found.classes, learned.tolist(), strict=True) if not known]
        if lost:
            found.notes.append(f"no training row has the label {some(lost)}: no model can learn it")
    for record, column in zip(columns, found.columns, strict=True):
        if isinstance(record, CategoryColumn) and record.other:
            found.notes.append(
                f"{record.name!r} has {len(column.levels)} categories: the {len(record.categories)} most frequent"
                " are kept, the others pooled"
            )
    target = None
    if found.label is not None and not found.classes and options.scale_target:
        mean, scale = mean_and_scale(found.codes[rows], owner)
        target = TargetScale(mean, scale or 1.0)
    label = None
    if found.label is not None:
        kind: Any = found.label.kind
        label = LabelRecord(name=found.label.name, kind=kind, classes=found.classes, target=target)
    marks = options.missing_values
    encoding = Encoding(
        columns=columns,
        label=label,
        client_column=options.client_column,
        missing=options.missing,
        missing_values=(marks,) if isinstance(marks, str) else tuple(marks),
        left_out=found.left_out,
    )
    return found, encoding


class RowsOfFiles:
    """The features of a table's rows, read from its files again."""

    def __init__(self, source: Any, read: Source, encoding: Encoding) -> None:
        self.paths, self.starts, self.encoding = paths_of(source), np.array(read.starts), encoding
        self.schema, self.decimal_comma = read.table.schema, read.decimal_comma

    def read(self, rows: np.ndarray) -> tuple[np.ndarray, ...]:
        """The features of the rows of these numbers; files that have none of them stay closed."""
        blocks = []
        files = np.searchsorted(self.starts, rows, side="right") - 1
        for number in np.unique(files):
            mine = rows[files == number] - self.starts[number]
            source = read_file(self.paths[number], mine)
            table = source.table.select(self.schema.names).cast(self.schema)
            source = replace(source, table=table, decimal_comma=self.decimal_comma)
            columns = [read_as(source, record, self.encoding.missing_values) for record in self.encoding.columns]
            problems = [column for column in columns if isinstance(column, Problem)]
            if problems:
                raise TableError(source.where, problems)
            blocks.append(features_of(self.encoding, columns, source, mine))  # type: ignore[arg-type]
        return (np.concatenate(blocks),)


def federated(found: Survey, encoding: Encoding, again: RowsOfFiles | None = None) -> FederatedData:
    """The federated data of a table without problems; its features may be read ``again`` when they are asked for."""
    assert found.codes is not None
    assert found.unseen is not None
    target = encoding.target_scale
    y = found.codes if found.classes else target.scaled(found.codes) if target else found.codes.astype(np.float32)

    def part(rows: np.ndarray, offsets: np.ndarray) -> Ragged:
        if again is not None:
            x: Any = Lazy(again, rows, (len(encoding.features),), np.float32)
            return Ragged(x, y[rows], offsets, rows)
        columns = [column.take(rows) for column in found.columns]
        return Ragged(features_of(encoding, columns, found.source, rows), y[rows], offsets, rows)

    train, validation, test = (part(*each) for each in found.parts)
    title = found.source.title
    told = next(filter(None, (getattr(found.options, f"{how}_column") for how in ("split", "together", "time"))), "")
    return FederatedData(
        train, validation, test, found.unseen, found.names, found.classes, title, target_scale=target, told=told
    )


def encode_table(
    source: Any, encoding: Encoding, *, require_labels: bool = True
) -> tuple[np.ndarray, np.ndarray | None]:
    """The features and labels of another table, such as a new client's, by an encoding that ``from_table`` made.

    The table needs the same feature columns, in any order; each is read as what it was at training. A client column and
    further ones are ignored. Labels come as people know them, and as ``run.personalize`` takes them: values of classes,
    or targets in original units. With ``require_labels=False`` the label column is not read, and may be
    absent, empty or wrong: the labels are None.

    A category that training did not know counts as one of the rare ones where these were pooled, and is 0 in all
    features of its column otherwise. A missing value is treated as at training: "drop" leaves labelled rows out.
    """
    table = read_source(source)
    encoded = encode_rows(table, encoding, require_labels=require_labels)
    tell(table.where, encoded.notes)
    return encoded.x, encoded.y


class Encoded(NamedTuple):
    """Features as training sees them, labels as people know them, row numbers, and what the owner should know."""

    x: np.ndarray
    y: np.ndarray | None
    rows: np.ndarray
    notes: list[str]


def encode_rows(table: Source, encoding: Encoding, *, require_labels: bool) -> Encoded:
    """`encode_table`, of a table that is read."""
    labels = [encoding.label] if encoding.label and require_labels else []
    needed = [column.name for column in (*encoding.columns, *labels)]
    problems = [unknown_column(name, table.names) for name in needed if name not in table.names]
    if problems:
        raise TableError(table.where, problems)
    if table.table.num_rows == 0:  # a client may join before it has samples
        none = label_values(np.zeros(0, np.int32 if encoding.classes else np.float64), encoding.classes)
        x = np.zeros((0, len(encoding.features)), np.float32)
        return Encoded(x, none if require_labels else None, np.zeros(0, np.int64), [])
    columns: list[Column] = []
    for record in (*encoding.columns, *labels):
        column = read_as(table, record, encoding.missing_values)
        (problems if isinstance(column, Problem) else columns).append(column)  # type: ignore[arg-type]
    if problems:
        raise TableError(table.where, problems)
    label = columns.pop() if labels else None
    needed_cells = [*columns, label] if label is not None and encoding.missing == "drop" else columns
    rows = complete_rows(table, encoding, needed_cells, require_labels)
    notes = [*table.notes, *later_notes(encoding, columns)]
    if len(rows) < table.table.num_rows:
        left = table.table.num_rows - len(rows)
        notes.append(f"{left} of {table.table.num_rows} rows have missing values and are left out")
    x = features_of(encoding, [column.take(rows) for column in columns], table, rows)
    y = labels_of(labels[0], label.take(rows), table) if label is not None else None
    if encoding.label is None and require_labels:
        y = np.zeros(len(rows), np.float32)
    return Encoded(x, y, rows, notes)


def complete_rows(table: Source, encoding: Encoding, columns: Sequence[Column], labelled: bool) -> np.ndarray:
    """The rows that are used: all, or those without missing values where training left such rows out."""
    gaps = np.any([column.absent for column in columns], axis=0)
    if encoding.missing == "impute" or not gaps.any():
        return np.arange(len(gaps))
    if encoding.missing == "drop" and labelled:
        return np.flatnonzero(~gaps)
    named = some([column.name for column in columns if column.absent.any()])
    what = f"{int(gaps.sum())} rows have missing values, the first {table.row(int(np.flatnonzero(gaps)[0]))} ({named})"
    raise TableError(table.where, [Problem(what, "fill them in, or train with missing='impute'")])


def later_notes(encoding: Encoding, columns: Sequence[Column]) -> list[str]:
    """What a later table has that training had not: unknown categories, gaps where there were none, other units; and
    how numbers were read that may be meant otherwise."""
    notes = decimal_notes(columns)
    for record, column in zip(encoding.columns, columns, strict=True):
        if isinstance(record, NumberColumn):
            notes += far_away(column, record.mean, record.scale)
        unknown = unknown_levels(record, column)
        if unknown:
            notes.append(f"{record.name!r} has categories that training did not know ({some(unknown)}): all 0 there")
        if column.absent.any() and not record.indicator and encoding.missing == "impute":
            became = "none of its categories" if isinstance(record, CategoryColumn) else "the training mean"
            notes.append(
                f"{record.name!r} has {int(column.absent.sum())} missing values, and had none at training:"
                f" they become {became}"
            )
    return notes


def names_in(table: Source, name: str, role: str) -> np.ndarray:
    """The texts of a column that has no gaps."""
    found = Survey(table, TableOptions(label_column=name))
    column = found.text_column(name, role)
    if column is None:
        raise TableError(table.where, found.problems or [unknown_column(name, table.names)])
    return np.array(column.levels, object)[column.values]


def names_there(table: Source, name: str) -> tuple[str, ...]:
    """The different texts of a column that may have gaps, in their order."""
    column = column_of(table, name, categorical=True)
    if isinstance(column, Problem) or not column.levels:
        return ()
    return tuple(dict.fromkeys(column.levels[code] for code in column.values if code >= 0))
