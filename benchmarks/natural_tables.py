"""Tables with natural clients that go by a name: their sizes, and what linear models of scikit-learn make of them.

``python -m benchmarks.natural_tables [NAME …]`` prints a line per table: clients, rows and features as read, and over
three splits the test scores of one model for all rows, of a model for each client alone, and of personal models: a
shared part and a part of each client's own, ``θ_c = w + v_c``, fitted together. The penalties of models alone, and of
v, are chosen on validation rows, one for all clients. Scores are of all test rows together: R² of numbers, accuracy of
classes, and the AUC of two classes. ``--random`` splits all tables at random, also those where this leaks.
"""

from __future__ import annotations

import functools
import sys
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import accuracy_score, r2_score, roc_auc_score

from majorant._tables import TABLES
from majorant.data import FederatedData, load_table

SPLITS, PENALTY = 3, 5e-4
ALONE = (5e-4, 5e-2, 0.5, 5.0)  # penalties of models alone
OWN = (0.03, 0.1, 0.3, 1.0)  # scales of the features of a client's own part: the smaller, the closer to shared ones
Arrays = dict[str, tuple[np.ndarray, np.ndarray, np.ndarray]]


def main() -> None:
    """Prints a line per table."""
    names = [name for name in sys.argv[1:] if name != "--random"] or list(TABLES)
    warnings.simplefilter("ignore")
    for name in names:
        print(line(name, at_random="--random" in sys.argv), flush=True)


def line(name: str, *, at_random: bool) -> str:
    """The sizes and scores of a table."""
    facts, options, width = TABLES[name], {}, 0
    if at_random and facts.split:
        options = {facts.split[0]: None}
    found: dict[str, list[np.ndarray]] = {"one": [], "alone": [], "personal": []}
    for seed in range(SPLITS):
        data, encoding = load_table(name, seed=seed, **options)
        width = len(encoding.features) if seed == 0 else width  # a rare category may have no training row
        for kind, scores in scored(data).items():
            found[kind].append(scores)
    rows = sum(len(part.y) for part in (data.train, data.validation, data.test))
    size = (data.clients, rows, width)
    agree = "as stated" if size == facts.size else f"NOT {facts.size}"
    means = {kind: "/".join(f"{value:.3f}" for value in np.mean(each, axis=0)) for kind, each in found.items()}
    return f"{name}: {size} {agree}; " + ", ".join(f"{kind} {text}" for kind, text in means.items())


def scored(data: FederatedData) -> dict[str, np.ndarray]:
    """Test scores of the three kinds of models."""
    parts: Arrays = {}
    for name in ("train", "validation", "test"):
        part = getattr(data, name)
        parts[name] = (part.x, part.y, np.repeat(np.arange(data.clients), part.sizes))
    pooled = fit(parts["train"][0], parts["train"][1], bool(data.classes))
    best = lambda outputs, values: max(values, key=lambda v: score(parts["validation"], outputs("validation", v))[-1])
    own = functools.partial(personal, parts, data)
    alone = functools.partial(each_alone, parts, data)
    every = {
        "one": pooled(parts["test"][0]),
        "alone": alone("test", best(alone, ALONE)),
        "personal": own("test", best(own, OWN)),
    }
    return {kind: score(parts["test"], output) for kind, output in every.items()}


def each_alone(parts: Arrays, data: FederatedData, where: str, penalty: float) -> np.ndarray:
    """Outputs of a model for each client."""
    x, y, owner = parts["train"]
    found = np.zeros((len(parts[where][1]), max(len(data.classes), 1)))
    for client in np.unique(parts[where][2]):
        mine, theirs = owner == client, parts[where][2] == client
        model = fit(x[mine], y[mine], bool(data.classes), len(data.classes), penalty)
        found[theirs] = model(parts[where][0][theirs])
    return found


def personal(parts: Arrays, data: FederatedData, where: str, scale: float) -> np.ndarray:
    """Outputs of shared and own parts that are fitted together."""
    design = lambda part: with_own(part[0], part[2], data.clients, scale)
    return fit(design(parts["train"]), parts["train"][1], bool(data.classes))(design(parts[where]))


def with_own(x: np.ndarray, owner: np.ndarray, clients: int, scale: float) -> Any:
    """Features, and again in the columns of the sample's client, with a constant."""
    own = np.hstack([np.ones((len(x), 1)), x]) * scale
    width = own.shape[1]
    columns = (owner[:, None] * width + np.arange(width)).ravel()
    indices = np.repeat(np.arange(len(x)), width)
    block = sparse.csr_matrix((own.ravel(), (indices, columns)), shape=(len(x), clients * width))
    return sparse.hstack([sparse.csr_matrix(x), block]).tocsr()


def fit(x: Any, y: np.ndarray, classes: bool, count: int = 0, penalty: float = PENALTY) -> Callable[[Any], np.ndarray]:
    """Outputs of a ridge or logistic regression; a client with one class predicts it."""
    if not classes:
        model: Any = Ridge(alpha=penalty * len(y)).fit(x, y)
        return lambda z: model.predict(z)[:, None]
    if len(np.unique(y)) == 1:
        return lambda z: np.tile(np.eye(count)[y[0]], (z.shape[0], 1))
    model = LogisticRegression(C=1 / (penalty * len(y)), max_iter=500).fit(x, y)

    def outputs(z: Any) -> np.ndarray:
        found = np.zeros((z.shape[0], count or len(model.classes_)))
        found[:, model.classes_] = model.predict_proba(z)
        return found

    return outputs


def score(part: Any, output: np.ndarray) -> np.ndarray:
    """R², or accuracy and, of two classes, the AUC, by which settings are chosen then."""
    y = part[1]
    if output.shape[1] == 1:
        return np.array([r2_score(y, output[:, 0])])
    accuracy = accuracy_score(y, output.argmax(axis=1))
    return np.array([accuracy, roc_auc_score(y, output[:, 1])] if output.shape[1] == 2 else [accuracy])


if __name__ == "__main__":
    main()
