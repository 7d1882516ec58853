"""The coefficients of a linear model, in the units of the table, by the names of its features.

With z = intercept + Σ coefficient · feature, a component predicts z for regression, 1 / (1 + exp(−z)) for the second of
two classes, and exp(z_k) / Σ exp(z_j) for more (the z of a sample sum to 0 then). A mixture predicts the mean of its
components' probabilities with the weights that stand beside them.

The coefficients are read off the model's own predictions, at zero and at one sample for each feature, in double
precision: so this works for every method whose models are linear, however it stores them, and is checked at random
samples. A model that is not linear is refused.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np

from majorant.data.tabular import CategoryColumn, DateColumn, Encoding
from majorant.data.tabular.encoding import MISSING, OTHER
from majorant.engines.deployment import PersonalModel

FORMAT = "majorant coefficients 1"
TOLERANCE = 1e-6


def coefficients(model: PersonalModel) -> dict[str, Any]:
    """The content of the file."""
    names = feature_names(model)
    means, scales = units(model.encoding, len(names))
    parts = []
    for weight, component in components(model):
        intercept, slopes = affine(component)  # (K,), (F, K)
        slopes = np.divide(slopes, scales[:, None], out=np.zeros_like(slopes), where=scales[:, None] > 0)
        by_name = {name: listed(row) for name, row in zip(names, slopes, strict=True)}
        parts.append({"weight": weight, "intercept": listed(intercept - means @ slopes), "coefficients": by_name})
    label = model.encoding.label_column if model.encoding else None
    return {
        "format": FORMAT,
        "method": model.algorithm.name,
        "client": model.origin.get("client"),
        "task": "classification" if model.classes else "regression",
        "label": label,
        "classes": list(model.classes),
        "columns": [about(column) for column in model.encoding.columns] if model.encoding else [],
        "components": parts,
    }


def listed(values: np.ndarray) -> Any:
    """A number, or a list of several."""
    return float(values[0]) if len(values) == 1 else values.tolist()


def feature_names(model: PersonalModel) -> list[str]:
    """A name for every feature, in order.

    >>> feature_names(PersonalModel(None, (), (), (2, 2)))
    ['x[0,0]', 'x[0,1]', 'x[1,0]', 'x[1,1]']
    """
    if model.encoding is not None:
        return list(model.encoding.features)
    return [f"x[{','.join(map(str, place))}]" for place in itertools.product(*map(range, model.features))]


def units(encoding: Encoding | None, count: int) -> tuple[np.ndarray, np.ndarray]:
    """What training took from each feature and what it divided by; scale 0 is a feature that is always 0."""
    if encoding is None:
        return np.zeros(count), np.ones(count)
    means, scales = [], []
    for column in encoding.columns:
        if isinstance(column, CategoryColumn):
            own_means, own_scales = [], []
        elif isinstance(column, DateColumn):
            own_means, own_scales = list(column.means), list(column.scales)
        else:
            own_means, own_scales = [column.mean], [column.scale]
        rest = len(column.features) - len(own_means)  # categories, and the features that say that a value is missing
        means += [*own_means, *[0.0] * rest]
        scales += [*own_scales, *[1.0] * rest]
    return np.array(means), np.array(scales)


def about(column: Any) -> dict[str, Any]:
    """How a column becomes features, and what stands for a missing or unknown value."""
    flag = f"{column.name} {MISSING}"
    if isinstance(column, CategoryColumn):
        return {
            "name": column.name,
            "kind": column.kind,
            "categories": list(column.categories),
            "unknown": f"{column.name}={OTHER}" if column.other else None,
            "missing": f"{column.name}={MISSING}" if column.indicator else None,
        }
    known = dict(zip(column.parts, column.means, strict=True)) if isinstance(column, DateColumn) else column.mean
    return {
        "name": column.name,
        "kind": column.kind,
        "value_if_missing": known,
        "missing": flag if column.indicator else None,
    }


def components(model: PersonalModel) -> Iterator[tuple[float, PersonalModel]]:
    """The components of a mixture of classifiers with their weights; anything else is one by itself."""
    weights = model.mixture_weights
    if weights is None or not model.classes:
        yield 1.0, model
        return
    if not hasattr(model.model, "pi"):
        raise ValueError(f"the mixtures of {model.algorithm.name} cannot be taken apart: export to .onnx")
    for m, weight in enumerate(weights):
        yield float(weight), model._replace(model=model.model._replace(pi=np.eye(len(weights))[m]))


def affine(model: PersonalModel) -> tuple[np.ndarray, np.ndarray]:
    """The intercepts and slopes of the outputs as functions of the features that training sees."""
    network = model.algorithm.deployment.model
    if network is not None and network.codes:
        raise ValueError(f"{network.name} reads codes, is not linear, and has no coefficients: use .onnx")
    double = lambda leaf: np.asarray(leaf, np.float64) if np.issubdtype(leaf.dtype, np.floating) else leaf
    model = model._replace(model=jax.tree.map(double, model.model), origin={})  # any numbers are tried, bytes or not
    count = int(np.prod(model.features))
    tried = np.random.default_rng(0).normal(size=(8, count)).astype(np.float32)
    points = np.concatenate([np.zeros((1, count), np.float32), np.eye(count, dtype=np.float32), tried])
    z = linear_outputs(model, points.reshape(-1, *model.features))
    intercept, slopes = z[0], z[1 : count + 1] - z[0]
    expected = intercept + tried.astype(np.float64) @ slopes
    found = z[count + 1 :]
    if not (np.abs(expected - found) <= TOLERANCE * (1 + np.abs(found))).all():
        raise ValueError(f"this model of {model.algorithm.name} is not linear, and has no coefficients: use .onnx")
    return intercept, slopes


def linear_outputs(model: PersonalModel, x: np.ndarray) -> np.ndarray:
    """What a linear model adds up to, ``(n, K)``: predictions, or log odds, or centred log probabilities."""
    if not model.classes:
        return model.predict(x)[:, None].astype(np.float64)
    with np.errstate(divide="ignore"):
        logs = np.log(model.predict_proba(x).astype(np.float64))
    return logs[:, 1:] - logs[:, :1] if logs.shape[1] == 2 else logs - logs.mean(axis=1, keepdims=True)
