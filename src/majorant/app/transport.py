"""``majorant transport``: a map between two tables, the first with a column of clients, and the folder it leaves.

The folder has ``summary.json`` (what was done, distances before and after), ``transported.csv`` (the clients' rows,
carried onto the reference), ``map/`` (the map itself, which a later call applies to other rows) and, for two columns,
``transport.png``, a picture.
"""

from __future__ import annotations

import csv
import io
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from majorant._words import some
from majorant.app.files import DamagedFile, atomic_write_bytes, atomic_write_text, strict_json
from majorant.app.trees import load_tree, save_tree
from majorant.data.tabular.kinds import Column, column_of
from majorant.data.tabular.problems import Problem, TableError, unknown_column
from majorant.data.tabular.reading import Source, read_source
from majorant.estimators.transport import FederatedTransport, sliced_distance
from majorant.surrogates.transport import Coordinates

BARYCENTRE = "barycentre"  # in the place of a file: the groups' own
OPTIONS = ("method", "loss", "cycle", "hidden")  # of the estimator, that applying the map needs


def transport_tables(
    data: str, client_column: str | None, reference: str, folder: Path, columns: list[str], **options: Any
) -> dict[str, Any]:
    """Learns the map, writes the folder, and gives what `summary.json` says."""
    theirs, ours = None if reference == BARYCENTRE else read_source(reference), read_source(data)
    names = columns or shared_numbers(ours, theirs or ours, client_column)
    x, rows = numbers(ours, names), BARYCENTRE if theirs is None else numbers(theirs, names)
    groups = None if client_column is None else clients_in(ours, client_column)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # the summary says it
        model = FederatedTransport(**options).fit(x, groups=groups, reference=rows)
    y = model.reference_ if isinstance(rows, str) else rows
    folder.mkdir(parents=True, exist_ok=True)
    save_map(folder / "map", model, names)
    moved = model.transform(x)
    atomic_write_text(folder / "transported.csv", table(names, moved, client_column, groups))
    if len(names) == 2:
        draw(folder / "transport.png", names, x, moved, y)
    found = {
        "columns": names,
        "clients": len(model.groups_),
        "rows": len(x),
        "reference_rows": len(y),
        "rounds": model.n_iter_,
        "bytes_up": model.bytes_up_,
        "distance_before": sliced_distance(x, y) / model.reference_variance_,
        "distance_after": -model.score(x),
        "held_out": None if model.held_out_ is None else model.held_out_._asdict() | {"words": model.held_out_.words},
    }
    atomic_write_text(folder / "summary.json", strict_json(found, indent=2) + "\n")
    return found


def apply_map(place: Path, data: str, out: Path) -> dict[str, Any]:
    """Carries the rows of a table by a saved map."""
    model, names = load_map(place / "map" if (place / "map").exists() else place)
    moved = model.transform(numbers(read_source(data), names))
    atomic_write_text(out, table(names, moved, None, None))
    return {"columns": names, "rows": len(moved), "transported": str(out)}


def save_map(folder: Path, model: FederatedTransport, names: list[str]) -> None:
    """A map as a folder of arrays and what they mean."""
    tree = {"coordinates": model.coordinates_._asdict()}
    if model.potentials_ is not None:
        tree["potentials"] = dict(zip(("forward", "inverse"), model.potentials_, strict=True))
    meta = {"kind": "transport", "columns": names, "options": {name: getattr(model, name) for name in OPTIONS}}
    save_tree(folder, tree, meta)


def load_map(folder: Path) -> tuple[FederatedTransport, list[str]]:
    """A saved map, and its columns; refuses networks that are not convex and coordinates that make no sense."""
    if not folder.exists():
        raise FileNotFoundError(f"there is no map in {folder}: give the folder that an earlier call has left")
    tree, meta = load_tree(folder)
    if meta.get("kind") != "transport":
        raise DamagedFile(f"{folder} does not hold a transport map")
    model = FederatedTransport(**meta["options"])
    model.n_features_in_, model.groups_ = len(meta["columns"]), np.zeros(0)
    model.coordinates_ = Coordinates(**tree["coordinates"])
    model.coordinates_.check(model.n_features_in_)
    pair = tree.get("potentials")
    model.potentials_ = None if pair is None else (pair["forward"], pair["inverse"])
    model._check_potentials()
    return model, list(meta["columns"])


def shared_numbers(ours: Source, theirs: Source, client_column: str | None) -> list[str]:
    """The columns of numbers that both tables have; a column of numbers that only one of them has is a mistake."""
    kinds = [
        {name for name in source.names if name != client_column and is_number(column_of(source, name))}
        for source in (ours, theirs)
    ]
    apart = sorted(kinds[0] ^ kinds[1])
    for source in (ours, theirs):  # a column that one table alone has as numbers may be refused in the other
        refused = [column_of(source, name) for name in apart if name in source.names]
        if problems := [problem for problem in refused if isinstance(problem, Problem)]:
            raise TableError(source.where, problems)
    if apart:
        what = (
            f"the clients' table has {len(kinds[0])} columns of numbers, the reference {len(kinds[1])}; only one has "
        )
        fix = "give both the same columns, or name those to use by --columns"
        raise TableError(f"{ours.where} and {theirs.where}", [Problem(what + some(apart), fix)])
    names = [name for name in ours.names if name in kinds[0]]
    if not names:
        raise TableError(ours.where, [Problem("there is no column of numbers", "a map needs at least one")])
    return names


def is_number(column: Column | Problem) -> bool:
    """Whether a column holds numbers."""
    return isinstance(column, Column) and column.kind == "number"


def numbers(source: Source, names: list[str]) -> np.ndarray:
    """Columns as an array (rows, columns); missing values are refused."""
    found, problems = [], []
    for name in names:
        if name not in source.names:
            problems.append(unknown_column(name, source.names))
            continue
        column = column_of(source, name)
        if isinstance(column, Problem):
            problems.append(column)
        elif column.kind != "number":
            problems.append(Problem(f"column {name} is no column of numbers", "leave it out by --columns"))
        elif column.absent.any():
            row = source.row(int(column.absent.argmax()))
            what = f"column {name} has {int(column.absent.sum())} missing values, first in {row}"
            problems.append(Problem(what, "fill or remove these rows: a map needs every number"))
        else:
            found.append(column.values)
    if problems:
        raise TableError(source.where, problems)
    return np.stack(found, axis=1)


def clients_in(source: Source, name: str) -> list[str]:
    """The client of each row, by its text."""
    if name not in source.names:
        raise TableError(source.where, [unknown_column(name, source.names)])
    values = source.column(name).to_pylist()
    missing = [i for i, value in enumerate(values) if value is None]
    if missing:
        what = f"column {name} has {len(missing)} missing values, first in {source.row(missing[0])}"
        raise TableError(source.where, [Problem(what, "every row needs its client")])
    return [str(value) for value in values]


def table(names: list[str], rows: np.ndarray, client_column: str | None, groups: list[str] | None) -> str:
    """Rows as CSV, the client first where there is one."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([*([client_column] if groups else []), *names])
    for i, row in enumerate(rows):
        writer.writerow([*([groups[i]] if groups else []), *(f"{value:.9g}" for value in row)])
    return out.getvalue()


def draw(path: Path, names: list[str], x: np.ndarray, moved: np.ndarray, y: np.ndarray) -> None:
    """The picture, where matplotlib is installed."""
    import importlib.util

    if importlib.util.find_spec("matplotlib") is not None:
        from majorant.app.report.figures import render
        from majorant.app.report.transport_picture import transport_picture

        atomic_write_bytes(path, render(transport_picture(x, moved, y, names), "png"))
