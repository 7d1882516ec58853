"""Tables with a client column: CSV and Parquet files to federated data, and the record that encodes a later file.

Numbers are standardised and categories one-hot encoded, with statistics that a federation can compute: each client
that is seen at training sends sums over its own training samples, and the sums are added. First counts and sums, which
give the means; then sums of squared deviations from these, which give the scales. The list of categories is the union
of the clients' lists. These statistics come from the training samples of seen clients alone; the label values, the task
and the columns' types are those of the whole file.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from majorant.data.federated import FederatedData, Ragged, warn_thin_clients
from majorant.data.labels import encode_labels
from majorant.data.splitting import draw_unseen, split_rows
from majorant.data.tables import check_columns, feature_columns, read_table, values_of


@dataclass(frozen=True)
class Encoding:
    """How the columns of a table become features: all that is needed to encode the file of a client who joins later.

    >>> encoding = Encoding(("age",), {"age": 40.0}, {"age": 10.0}, {}, (), "regression", "hospital", "cost")
    >>> Encoding.from_dict(encoding.to_dict()) == encoding
    True
    """

    columns: tuple[str, ...]  # the feature columns in order
    means: dict[str, float]  # of the numeric ones
    scales: dict[str, float]  # standard deviations; 0 for a column constant in training, whose feature is always 0
    categories: dict[str, tuple[str, ...]]  # of the others; a value that is not listed is encoded as all zeros
    classes: tuple[Any, ...]  # label values in the order of their codes; empty for regression
    task: str
    client_column: str
    label_column: str

    @property
    def features(self) -> tuple[str, ...]:
        """A name for every feature: the column's, or ``column=category``."""
        return tuple(
            name
            for column in self.columns
            for name in ([f"{column}={c}" for c in self.categories[column]] if column in self.categories else [column])
        )

    def to_dict(self) -> dict[str, Any]:
        """A form that JSON can hold."""
        return asdict(self)

    @classmethod
    def from_dict(cls, record: dict[str, Any]) -> Encoding:
        """The encoding that ``to_dict`` wrote, also after a journey through JSON."""
        lists = {k: tuple(record[k]) for k in ("columns", "classes")}
        categories = {k: tuple(v) for k, v in record["categories"].items()}
        return cls(**record | lists | {"categories": categories})


def from_table(
    path: str | Path,
    *,
    client_column: str,
    label_column: str,
    task: str = "auto",
    drop: Sequence[str] = (),
    split: Sequence[float] = (0.6, 0.2, 0.2),
    seed: int = 0,
    unseen: float = 0.0,
) -> tuple[FederatedData, Encoding]:
    """Reads a CSV or Parquet file with a row per sample; one column names the client, one is the label.

    All other columns but those in ``drop`` become features: numbers standardised, text and booleans one-hot. Returns
    the data and the encoding, which ``encode_table`` needs for another file.

    >>> import tempfile
    >>> rows = "".join(f"{s},{age},{'yn'[age % 2]},{age % 3}\\n" for s in ["a", "b"] for age in range(20, 50))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "visits.csv"
    ...     _ = path.write_text("hospital,age,smoker,outcome\\n" + rows)
    ...     data, encoding = from_table(path, client_column="hospital", label_column="outcome")
    >>> data.names, data.classes, encoding.features
    (('a', 'b'), (0, 1, 2), ('age', 'smoker=n', 'smoker=y'))
    """
    table, path = read_table(path), Path(path)
    if table.num_rows == 0:
        raise ValueError(f"{path} has no rows")
    check_columns(table, [client_column, label_column, *drop], path)
    if client_column == label_column or {client_column, label_column} & set(drop):
        raise ValueError("the client column, the label column and the dropped columns must be different columns")
    columns = [c for c in table.column_names if c not in {client_column, label_column, *drop}]
    if not columns:
        raise ValueError(f"{path} has no feature columns besides {client_column!r}, {label_column!r} and dropped ones")
    clients = values_of(table, client_column, "client")
    y = values_of(table, label_column, "label")
    if task == "regression" and not np.issubdtype(y.dtype, np.number):
        raise ValueError(
            f"label column {label_column!r} has values such as {y.tolist()[0]!r}: regression needs numbers"
        )
    labels, classes = encode_labels(y, task)
    if not classes and not 0.1 <= labels.std() <= 10:
        warnings.warn(
            f"label column {label_column!r} has a standard deviation of {labels.std():.3g}; targets are used as they"
            " are, and losses and learning rates suit targets of scale 1: rescale the column",
            stacklevel=2,
        )
    if len(classes) > 20 and np.issubdtype(y.dtype, np.number):
        warnings.warn(
            f"label column {label_column!r} has {len(classes)} whole numbers, taken as classes: if they are quantities,"
            " say task='regression'",
            stacklevel=2,
        )
    numeric, categorical = feature_columns(table, columns)

    names, owner = np.unique(clients, return_inverse=True)
    away = draw_unseen(len(names), unseen, seed)
    parts = split_rows(owner, names, split, seed)
    train = parts[0][0]
    learn = train[~away[owner[train]]]
    if len(learn) == 0:
        raise ValueError("no seen client has training samples: give train a positive share, or fewer unseen clients")
    means, scales = {}, {}
    for column, values in numeric.items():
        means[column], scales[column] = mean_and_scale(values[learn], owner[learn])
    categories = {column: tuple(sorted(set(values[learn].tolist()))) for column, values in categorical.items()}
    kind = "classification" if classes else "regression"
    encoding = Encoding(tuple(columns), means, scales, categories, classes, kind, client_column, label_column)

    x = features_of(encoding, numeric | categorical)
    fit, validate, test = (Ragged(x[rows], labels[rows], offsets) for rows, offsets in parts)
    title = path.name.partition(".")[0]
    data = FederatedData(fit, validate, test, away, tuple(str(n) for n in names), classes, title)
    warn_thin_clients(data)
    return data, encoding


def encode_table(
    path: str | Path, encoding: Encoding, *, require_labels: bool = True
) -> tuple[np.ndarray, np.ndarray | None]:
    """The features and labels of another file, such as a new client's, by an encoding that ``from_table`` made.

    The file needs the same feature columns, in any order; a client column and further ones are ignored. With
    ``require_labels=False`` it may lack the label column, and the labels are None then.
    """
    table, path = read_table(path), Path(path)
    labelled = require_labels or encoding.label_column in table.column_names
    check_columns(table, [*encoding.columns, *([encoding.label_column] if labelled else [])], path)
    if table.num_rows == 0:  # a client may join before it has samples
        return np.zeros((0, len(encoding.features)), np.float32), np.zeros(0, np.int32) if labelled else None
    numeric, categorical = feature_columns(table, encoding.columns, numeric=tuple(encoding.means))
    x = features_of(encoding, numeric | categorical)
    if not labelled:
        return x, None
    y = values_of(table, encoding.label_column, "label")
    if encoding.task == "regression":
        return x, encode_labels(y, "regression")[0]
    codes = {c: i for i, c in enumerate(encoding.classes)}
    by_text = {str(c): i for c, i in codes.items()}  # the 1 of one file is the "1" of another that also has text
    found = [codes.get(v, by_text.get(str(v), -1)) for v in y.tolist()]
    if -1 in found:
        raise ValueError(
            f"{path} has the label {y.tolist()[found.index(-1)]!r}, which training did not know: {encoding.classes}"
        )
    return x, np.array(found, np.int32)


def mean_and_scale(values: np.ndarray, owner: np.ndarray) -> tuple[float, float]:
    """Mean and standard deviation out of per-client sums; the scale is 0 where all clients hold one and the same value.

    >>> mean_and_scale(np.array([1.0, 3.0, 5.0, 7.0]), np.array([0, 0, 1, 1]))
    (4.0, 2.23606797749979)
    """
    if values.min() == values.max():
        return float(values[0]), 0.0
    total = len(values)  # the sum of the clients' counts
    mean = np.bincount(owner, values).sum() / total
    variance = np.bincount(owner, (values - mean) ** 2).sum() / total
    return float(mean), float(np.sqrt(variance))


def features_of(encoding: Encoding, values: dict[str, np.ndarray]) -> np.ndarray:
    """The feature matrix (N, features) in the order of the encoding's columns."""
    blocks = []
    for column in encoding.columns:
        if column in encoding.categories:
            blocks.append(one_hot(values[column], encoding.categories[column]))
        else:
            scale = encoding.scales[column]
            blocks.append(((values[column] - encoding.means[column]) / (scale or 1.0) * (scale > 0))[:, None])
    return np.concatenate([block.astype(np.float32) for block in blocks], axis=1)


def one_hot(values: np.ndarray, categories: Sequence[str]) -> np.ndarray:
    """A column per category, 1 where the value is that one; other values are zero in all of them.

    >>> one_hot(np.array(["b", "c"], object), ("a", "b")).tolist()
    [[0.0, 1.0], [0.0, 0.0]]
    """
    codes = {category: code for code, category in enumerate(categories)}
    code = np.array([codes.get(v, len(categories)) for v in values.tolist()])
    return np.eye(len(categories) + 1, len(categories), dtype=np.float32)[code]
