"""One encoding for tables that nobody may put together, from what their owners say of them (`answers`).

`agree` makes one `Encoding` of all answers, the same as the tables together would give, or says why there is none;
`encoded` turns an owner's rows into samples by it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

import numpy as np

from majorant._words import some
from majorant.data.federated import FederatedData, Ragged
from majorant.data.labels import TargetScale, label_codes, label_values
from majorant.data.tabular.answers import NO_VALUES, WORDS, ColumnAnswer, LabelAnswer, Moments, TableAnswer
from majorant.data.tabular.applying import features_of, read_as, unknown_levels
from majorant.data.tabular.dates import CLOCK_PARTS, DATE_PARTS
from majorant.data.tabular.encoding import CategoryColumn, ColumnRecord, DateColumn, Encoding, LabelRecord, NumberColumn
from majorant.data.tabular.kinds import Column
from majorant.data.tabular.options import TableOptions
from majorant.data.tabular.problems import Problem, TableError
from majorant.data.tabular.survey import Survey


class Disagreement(ValueError):
    """Tables that do not go together, with every reason."""


def together(parts: Iterable[Moments]) -> tuple[float, float]:
    """Mean and standard deviation of all numbers, from those of each owner.

    >>> from majorant.data.tabular.answers import moments_of
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
        held = by_owner({owner: WORDS[column.kind] for owner, column in known.items()})
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
        held = by_owner({owner: f"{tasks[owner]} ({WORDS[label.kind]})" for owner, label in known.items()})
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


def by_owner(kinds: Mapping[str, str]) -> str:
    """What is held by whom, each kind once.

    >>> by_owner({"north": "numbers", "south": "dates", "west": "numbers"})
    "numbers at 'north', 'west'; dates at 'south'"
    """
    owners = {kind: [owner for owner, own in kinds.items() if own == kind] for kind in kinds.values()}
    return "; ".join(f"{kind} at {some(who)}" for kind, who in owners.items())


def in_words(problems: Sequence[str]) -> str:
    """Problems as one text."""
    if len(problems) == 1:
        return f"the silos' tables do not go together: {problems[0]}"
    return "the silos' tables do not go together:" + "".join(f"\n- {problem}" for problem in problems)
