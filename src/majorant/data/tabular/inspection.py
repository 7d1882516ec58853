"""A table as Majorant sees it, before training: columns, clients, labels, problems and what would fix them."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from majorant.data.tabular.encoding import CategoryColumn, DateColumn, Encoding, NumberColumn
from majorant.data.tabular.options import TableOptions, unknown_columns
from majorant.data.tabular.problems import Problem, TableError, unknown_column
from majorant.data.tabular.reading import header_of, paths_of, read_source
from majorant.data.tabular.survey import Survey
from majorant.data.tabular.table import prepare

SHOWN = 4  # categories that a decision names


class ColumnReport(NamedTuple):
    """A column, and what was decided about it."""

    name: str
    kind: str  # number, category, boolean, date, client, label, …
    missing: int
    decision: str
    features: int = 0


class ClientReport(NamedTuple):
    """A client: its rows in all parts, how many of each class it has, or where its targets lie."""

    name: str
    rows: int
    train: int
    unseen: bool
    classes: dict[str, int]
    targets: dict[str, float]  # mean and standard deviation, of regression


class TableReport(NamedTuple):
    """What `inspect_table` found."""

    where: str
    rows: int
    columns: list[ColumnReport]
    clients: list[ClientReport]
    task: str | None  # None where the label is not known
    classes: dict[str, int]  # the rows of each class
    features: list[str]
    problems: list[Problem]
    notes: list[str]

    def to_dict(self) -> dict[str, Any]:
        """A form that JSON can hold."""
        lists = {name: [each._asdict() for each in getattr(self, name)] for name in ("columns", "clients", "problems")}
        return self._asdict() | lists


def inspect_table(source: Any, **options: Any) -> TableReport:
    """What `from_table` would make of a table, with the same options; problems are listed, not raised.

    >>> import pyarrow
    >>> table = pyarrow.table({"site": ["a", "b"] * 20, "dose": range(0, 80, 2), "sick": [0, 0, 1, 1] * 10})
    >>> report = inspect_table(table, client_column="site", label_column="sick")
    >>> [(client.name, client.rows, client.classes) for client in report.clients]
    [('a', 20, {'0': 10, '1': 10}), ('b', 20, {'0': 10, '1': 10})]
    """
    settings = TableOptions(**options)
    try:
        table = read_source(source)
    except TableError as error:
        return TableReport(error.where, 0, [], [], None, {}, [], list(error.problems), [])
    found, encoding = prepare(table, settings)
    codes, classes = found.codes, [str(value) for value in found.classes]
    used = np.ones(table.table.num_rows, bool) if found.owner is None else found.owner >= 0
    task = None if codes is None else "classification" if classes else "regression"
    return TableReport(
        table.where,
        table.table.num_rows,
        column_reports(found, encoding),
        client_reports(found, classes),
        task,
        count_classes(codes[used], classes) if classes and codes is not None else {},
        list(encoding.features) if encoding else [],
        found.problems,
        found.notes,
    )


def check_header(source: Any, also: Sequence[str] = (), **options: Any) -> None:
    """Refuses files that lack a column which the options name, without reading more than their beginnings.

    ``also`` are further columns that must be there.
    """
    settings = TableOptions(**options)
    for path in paths_of(source):
        header = header_of(path)
        problems = unknown_columns(settings, header)
        problems += [unknown_column(name, header) for name in also if name not in header]
        if problems:
            raise TableError(str(path), problems)


def count_classes(codes: np.ndarray, classes: list[str]) -> dict[str, int]:
    """How many labels are of each class."""
    return dict(zip(classes, np.bincount(codes, minlength=len(classes)).tolist(), strict=True))


def client_reports(found: Survey, classes: list[str]) -> list[ClientReport]:
    """The clients that are used, in order."""
    if found.owner is None:
        return []
    sizes = np.bincount(found.owner[found.owner >= 0], minlength=len(found.names)).tolist()
    train = np.diff(found.parts[0][1]).tolist() if found.parts else [0] * len(found.names)
    away = [False] * len(found.names) if found.unseen is None else found.unseen.tolist()
    counts: list[dict[str, int]] = [{} for _ in found.names]
    targets: list[dict[str, float]] = [{} for _ in found.names]
    if found.codes is not None:
        order = np.argsort(found.owner, kind="stable")
        bounds = np.searchsorted(found.owner[order], np.arange(len(found.names) + 1))
        own = [found.codes[order[a:b]] for a, b in itertools.pairwise(bounds)]
        if classes:
            counts = [count_classes(codes, classes) for codes in own]
        else:
            targets = [{"mean": float(np.mean(y)), "std": float(np.std(y))} if len(y) else {} for y in own]
    return [ClientReport(*each) for each in zip(found.names, sizes, train, away, counts, targets, strict=True)]


def column_reports(found: Survey, encoding: Encoding | None) -> list[ColumnReport]:
    """All columns in the order of the table."""
    options, features = found.options, {column.name: column for column in found.columns}
    roles = {
        options.client_column: "client",
        options.label_column: "label",
        options.together_column: "unit",
        options.split_column: "split",
    }
    reports = []
    for name in found.source.names:
        gaps = found.source.table.column(name).null_count
        if name in features:
            column = features[name]
            record = encoding[name] if encoding else None
            words = decision(record, options) if record else "a feature"
            count = len(record.features) if record else 0
            reports.append(ColumnReport(name, column.kind, int(column.absent.sum()), words, count))
        elif name in roles:
            words = {"client": "names the client", "label": "to be predicted"}.get(roles[name], "for the split only")
            reports.append(ColumnReport(name, roles[name], gaps, words))
        else:
            reason = found.left_out.get(name)
            words = f"left out: {reason}" if reason else "cannot be used: see the problems"
            reports.append(ColumnReport(name, "–", gaps, words))
    return reports


def decision(record: Any, options: TableOptions) -> str:
    """How a feature column is used, in words."""
    gap = ""
    if isinstance(record, NumberColumn):
        words = f"standardised (mean {record.mean:.4g}, scale {record.scale:.4g})" if record.scale else "constant: 0"
        gap = "; missing ones become the mean, marked by a feature"
    elif isinstance(record, DateColumn):
        words = f"dates ({record.format}) as numbers: {', '.join(record.parts)}"
        gap = "; missing ones become the mean, marked by a feature"
    else:
        assert isinstance(record, CategoryColumn)
        shown = ", ".join(record.categories[:SHOWN]) + (", …" if len(record.categories) > SHOWN else "")
        words = f"one-hot: {shown}" + (f"; all but {len(record.categories)} pooled as other" if record.other else "")
        gap = "; missing is a category"
    return words + (gap if record.indicator else "")
