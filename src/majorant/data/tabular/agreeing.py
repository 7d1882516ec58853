"""One encoding for tables that nobody may put together: each owner answers in counts, categories and moments.

`answer_of` is what an owner says of its own table: the kind of every column, how many training rows there are, the mean
and spread of numbers, how often each category occurs. No row, and no value of a row, is in it but the names of
categories and classes. `agree` makes one `Encoding` of all answers, the same as the tables together would give, or
says why there is none; `encoded` turns the owner's rows into samples by it.

Where even counts and moments of one owner are nobody's business, an owner gives a `discreet` answer, names and kinds
alone. Then all are told which numbers are summed (`to_be_summed`), each gives its own (`own_part`) to a secure sum, and
the sums go where the numbers were (`with_sums`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from typing import Any, Literal, cast

import numpy as np
from pydantic import Field, field_validator, model_validator

from majorant.data.federated import FederatedData, Ragged
from majorant.data.labels import TargetScale, label_codes, label_values
from majorant.data.tabular.applying import features_of, read_as, unknown_levels
from majorant.data.tabular.dates import CLOCK_PARTS, DATE_PARTS, date_numbers, parts_of
from majorant.data.tabular.encoding import (
    CategoryColumn,
    ColumnRecord,
    DateColumn,
    Encoding,
    LabelRecord,
    NumberColumn,
    Record,
    Scale,
)
from majorant.data.tabular.fitting import mean_and_scale
from majorant.data.tabular.kinds import Column
from majorant.data.tabular.options import TableOptions
from majorant.data.tabular.problems import Problem, TableError, some
from majorant.data.tabular.survey import Survey

Kind = Literal["number", "category", "boolean", "date", "empty"]
WORDS = {"number": "numbers", "category": "categories", "boolean": "true and false", "date": "dates"}


class Disagreement(ValueError):
    """Tables that do not go together, with every reason."""


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


class SummedColumn(Record):
    """A column of which numbers are summed: counts and moments of its parts, or how often categories occur."""

    name: str
    parts: int = Field(0, ge=0, le=64)
    categories: tuple[str, ...] = ()


class Summed(Record):
    """The numbers that are summed, in this order."""

    columns: tuple[SummedColumn, ...]
    targets: bool  # whether also those of labels, which are numbers


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


NOTHING = Moments(count=0, mean=0.0, scale=0.0)


def discreet(answer: TableAnswer) -> TableAnswer:
    """An answer without numbers: names, kinds, categories and classes."""
    quiet = lambda column: column.model_copy(
        update={"moments": (NOTHING,) * len(column.moments), "counts": dict.fromkeys(column.counts, 0)}
    )
    label = answer.label
    if label is not None and label.moments is not None:
        label = label.model_copy(update={"moments": NOTHING})
    return answer.model_copy(update={"columns": tuple(map(quiet, answer.columns)), "label": label})


def to_be_summed(answers: Mapping[str, TableAnswer]) -> Summed:
    """What is summed for owners whose discreet answers go together."""
    columns: dict[str, SummedColumn] = {}
    for each in (column for answer in answers.values() for column in answer.columns):
        before = columns.get(each.name, SummedColumn(name=each.name))
        names = tuple(sorted({*before.categories, *each.counts}))
        columns[each.name] = SummedColumn(name=each.name, parts=max(before.parts, len(each.moments)), categories=names)
    targets = any(a.label is not None and a.label.moments is not None for a in answers.values())
    return Summed(columns=tuple(columns.values()), targets=targets)


def own_part(answer: TableAnswer, asked: Summed) -> list[Fraction]:
    """An owner's numbers: of moments the count, the sum and the sum of squares, as they are."""
    own, found = {column.name: column for column in answer.columns}, []
    for column in asked.columns:
        mine = own.get(column.name)
        moments = () if mine is None else mine.moments
        for place in range(column.parts):
            found += powers(moments[place] if place < len(moments) else NOTHING)
        found += [Fraction(0 if mine is None else mine.counts.get(name, 0)) for name in column.categories]
    if asked.targets:
        found += powers((answer.label and answer.label.moments) or NOTHING)
    return found


def powers(moments: Moments) -> list[Fraction]:
    """How many numbers there are, their sum, and the sum of their squares."""
    mean, scale = Fraction(moments.mean), Fraction(moments.scale)
    return [Fraction(moments.count), moments.count * mean, moments.count * (scale**2 + mean**2)]


def from_powers(count: Fraction, total: Fraction, squares: Fraction) -> Moments:
    """The inverse of `powers`: nothing is lost to rounding before the root.

    >>> from_powers(*powers(Moments(count=3, mean=1e9, scale=0.25)))
    Moments(count=3, mean=1000000000.0, scale=0.25)
    """
    if count <= 0:
        return NOTHING
    mean = total / count
    variance = max(float(squares / count - mean**2), 0.0)
    return Moments(count=int(count), mean=float(mean), scale=float(np.sqrt(variance)))


def with_sums(answers: Mapping[str, TableAnswer], asked: Summed, sums: Sequence[Fraction]) -> dict[str, TableAnswer]:
    """Discreet answers with the sums in them, in the place of the first owner's numbers."""
    left, found = iter(sums), dict(answers)

    def put(name: str, moments: tuple[Moments, ...], counts: dict[str, int]) -> None:
        for owner, answer in found.items():
            at = next((i for i, c in enumerate(answer.columns) if c.name == name and c.kind != "empty"), None)
            if at is not None:
                more = {"moments": moments, "counts": counts}
                columns = [*answer.columns[:at], answer.columns[at].model_copy(update=more), *answer.columns[at + 1 :]]
                found[owner] = answer.model_copy(update={"columns": tuple(columns)})
                return

    for column in asked.columns:
        moments = tuple(from_powers(next(left), next(left), next(left)) for _ in range(column.parts))
        put(column.name, moments, {name: int(next(left)) for name in column.categories})
    if asked.targets:
        targets = from_powers(next(left), next(left), next(left))
        owner = next(o for o, a in found.items() if a.label is not None)
        label = found[owner].label
        assert label is not None
        found[owner] = found[owner].model_copy(update={"label": label.model_copy(update={"moments": targets})})
    return found


def together(parts: Iterable[Moments]) -> tuple[float, float]:
    """Mean and standard deviation of all numbers, from those of each owner.

    >>> one, two = moments_of(np.array([1.0, 3.0])), moments_of(np.array([5.0, 7.0]))
    >>> together([one, two])
    (4.0, 2.23606797749979)
    """
    known = [part for part in parts if part.count]
    if not known:
        return 0.0, 0.0
    if all(part.scale == 0 and part.mean == known[0].mean for part in known):
        return known[0].mean, 0.0
    unit = max(max(abs(part.mean), part.scale) for part in known) or 1.0  # whose squares are finite
    counts = np.array([part.count for part in known], np.float64)
    means, scales = (np.array([getattr(part, name) / unit for part in known]) for name in ("mean", "scale"))
    mean = np.average(means, weights=counts)
    variance = np.average(scales**2 + (means - mean) ** 2, weights=counts)
    return float(mean * unit), float(np.sqrt(variance) * unit)


def agree(answers: Mapping[str, TableAnswer], options: TableOptions) -> Encoding:
    """The encoding that all owners' tables together give; a `Disagreement` names owners and columns."""
    problems = differing_columns(answers)
    if problems:
        raise Disagreement(in_words(problems))
    names = [each.name for each in next(iter(answers.values())).columns]
    left_out = {name: why for answer in answers.values() for name, why in answer.left_out.items()}
    order = [name for name in names if name not in left_out]
    columns: list[ColumnRecord] = []
    for name in order:
        said = {owner: column for owner, a in answers.items() for column in a.columns if column.name == name}
        record = agreed_column(said, options.max_categories)
        if isinstance(record, str):
            problems.append(record)
        elif record is None:
            left_out[name] = NO_VALUES
        else:
            columns.append(record)
    label = agreed_label({owner: answer.label for owner, answer in answers.items()}, options)
    if isinstance(label, str):
        problems.append(label)
    if not columns and not problems:
        problems.append("no column is left to predict from")
    if problems or isinstance(label, str):
        raise Disagreement(in_words(problems))
    marks, missing = options.missing_values, cast(Any, options.missing)
    return Encoding(
        columns=tuple(columns),
        label=label,
        client_column=options.client_column,
        missing=missing,
        missing_values=(marks,) if isinstance(marks, str) else tuple(marks),
        left_out=left_out,
    )


def differing_columns(answers: Mapping[str, TableAnswer]) -> list[str]:
    """Owners whose tables have other columns than the first owner's."""
    columns = {owner: {c.name for c in a.columns} | set(a.left_out) for owner, a in answers.items()}
    first, *others = columns
    problems = []
    for owner in others:
        lacking, more = columns[first] - columns[owner], columns[owner] - columns[first]
        words = [f"lacks the columns {some(sorted(lacking))}"] * bool(lacking)
        words += [f"also has {some(sorted(more))}"] * bool(more)
        if words:
            problems.append(
                f"{owner!r} {' and '.join(words)}, compared with {first!r}: name columns in drop, or add them"
            )
    return problems


def agreed_column(said: Mapping[str, ColumnAnswer], max_categories: int) -> ColumnRecord | str | None:
    """The record of a column, a problem in words, or None where nobody has values."""
    name, known = next(iter(said.values())).name, {o: c for o, c in said.items() if c.kind != "empty"}
    if not known:
        return None
    kinds = {column.kind for column in known.values()}
    if len(kinds) > 1:
        held = "; ".join(f"{WORDS[column.kind]} at {owner!r}" for owner, column in list(known.items())[:6])
        return f"column {name!r} holds {held}: name it in categorical, or correct the files"
    columns = list(known.values())
    kind, indicator = columns[0].kind, any(column.gaps for column in said.values())
    marks = tuple(sorted({mark for column in columns for mark in column.marks}))
    if kind == "number":
        mean, scale = together(column.moments[0] for column in columns)
        return NumberColumn(name=name, mean=mean, scale=scale, indicator=indicator, marks=marks)
    if kind == "date":
        formats = sorted({column.format for column in columns})
        if len(formats) > 1:
            return f"the dates of column {name!r} are written in several ways ({some(formats)}): say which in dates"
        parts = DATE_PARTS + CLOCK_PARTS if any(column.clock for column in columns) else DATE_PARTS
        found = [together(column.moments[place] for column in columns) for place in range(len(parts))]
        means, scales = zip(*found, strict=True)
        more: dict[str, Any] = {"indicator": indicator, "marks": marks}
        return DateColumn(name=name, format=formats[0], parts=parts, means=means, scales=scales, **more)
    counts: Counter[str] = Counter()
    for column in columns:
        counts.update(column.counts)
    levels = sorted(counts)
    kept = (
        levels if len(levels) <= max_categories else sorted(sorted(levels, key=lambda v: -counts[v])[:max_categories])
    )
    pooled = len(levels) > max_categories
    record_kind: Any = kind
    return CategoryColumn(kind=record_kind, name=name, categories=tuple(kept), other=pooled, indicator=indicator)


def agreed_label(said: Mapping[str, LabelAnswer | None], options: TableOptions) -> LabelRecord | str | None:
    """The record of the labels, or a problem in words."""
    known = {owner: label for owner, label in said.items() if label is not None}
    if not known:
        return None
    labels = list(known.values())
    tasks = {owner: "classes" if label.classes else "numbers" for owner, label in known.items()}
    if len({(task, known[owner].kind) for owner, task in tasks.items()}) > 1:
        held = "; ".join(f"{tasks[o]} ({WORDS[label.kind]}) at {o!r}" for o, label in list(known.items())[:6])
        return f"the labels {labels[0].name!r} are {held}: say task, or name the column in categorical"
    if not labels[0].classes:
        mean, scale = together(label.moments for label in labels if label.moments is not None)
        target = TargetScale(mean, scale or 1.0) if options.scale_target else None
        return LabelRecord(name=labels[0].name, kind="number", target=target)
    classes: list[Any] = sorted({value for label in labels for value in label.classes})
    if len(classes) < 2:
        return f"all labels {labels[0].name!r} are {classes[0]!r}: there is nothing to predict"
    return LabelRecord(name=labels[0].name, kind=labels[0].kind, classes=tuple(classes))


def encoded(found: Survey, encoding: Encoding, name: str) -> FederatedData:
    """An owner's rows as one client's samples, by the encoding that was agreed on."""
    source = found.source
    lacking = [column.name for column in encoding.columns if column.name not in source.names]
    problems = [Problem(f"it has no column {name!r}, which was agreed on", "add it") for name in lacking]
    columns: list[Column] = []
    for record in [] if problems else encoding.columns:
        column = read_as(source, record, encoding.missing_values)
        if isinstance(column, Problem):
            problems.append(column)
            continue
        unknown = unknown_levels(record, column.take(found.learning_rows))  # in other rows they are nothing, as ever
        if unknown:
            what = f"column {record.name!r} has categories that were not agreed on ({some(unknown)})"
            problems.append(Problem(what, "correct them, or agree again with this silo among the others"))
        columns.append(column)
    unknown_labels = [value for value in found.classes if value not in encoding.classes] if encoding.classes else []
    if unknown_labels or bool(found.classes) != bool(encoding.classes):
        classes = some(encoding.classes) if encoding.classes else "numbers"
        held = some(unknown_labels or found.classes) if found.classes else "numbers"
        problems.append(Problem(f"its labels are {held}, and {classes} were agreed on", "correct them"))
    if problems:
        raise TableError(source.where, problems)
    assert found.codes is not None
    target = encoding.target_scale
    y = label_codes(label_values(found.codes, found.classes), encoding.classes, target)
    if not encoding.classes and target is None:
        y = found.codes.astype(np.float32)

    def part(rows: np.ndarray, offsets: np.ndarray) -> Ragged:
        return Ragged(features_of(encoding, [column.take(rows) for column in columns], source, rows), y[rows], offsets)

    train, validation, test = (part(*each) for each in found.parts)
    nobody = np.zeros(1, bool)
    return FederatedData(train, validation, test, nobody, (name,), encoding.classes, source.title, target_scale=target)


def in_words(problems: Sequence[str]) -> str:
    """Problems as one text."""
    if len(problems) == 1:
        return f"the silos' tables do not go together: {problems[0]}"
    return "the silos' tables do not go together:" + "".join(f"\n- {problem}" for problem in problems)
