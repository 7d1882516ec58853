"""What the components of a mixture differ in, by the names of columns: how their outputs change with every feature.

Of linear models these are the coefficients. Of perceptrons they are the slopes at an average sample: zero for tables,
whose numbers are standardised, and grey for images.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from majorant.app.files import DamagedFile

MOST_COLUMNS = 10  # rows of the table
MOST_CLASSES = 10  # pictures side by side
Layer = tuple[np.ndarray, np.ndarray]  # weight and bias


@dataclass(frozen=True)
class Components:
    """Slopes ``(M, features, outputs)`` of the components, what the features are, and what the outputs are.

    Of two classes there is one output, the second class against the first; of regression there is one, in the units of
    the target.
    """

    coefficients: np.ndarray
    shape: tuple[int, ...]  # of a sample
    names: tuple[str, ...] = ()  # of the features, where they are columns
    classes: tuple[str, ...] = ()
    linear: bool = True  # slopes are the same everywhere

    @property
    def image(self) -> bool:
        """Whether a sample is an image."""
        return len(self.shape) in (2, 3) and min(self.shape[:2]) > 1

    def differences(self) -> list[tuple[str, np.ndarray]]:
        """Features, with the class where there are several outputs, and their coefficients by component ``(M,)``.

        Those come first in which the components differ most.

        >>> found = Components(np.array([[[1.0], [2.0]], [[1.5], [-2.0]]]), (2,), ("age", "dose")).differences()
        >>> [(name, values.tolist()) for name, values in found]
        [('dose', [2.0, -2.0]), ('age', [1.0, 1.5])]
        """
        _, features, outputs = self.coefficients.shape
        names = self.names or tuple(f"feature {i + 1}" for i in range(features))
        apart = np.ptp(self.coefficients, axis=0)  # (features, outputs)
        order = np.argsort(-apart, axis=None, kind="stable")[:MOST_COLUMNS]
        found = []
        for at in order:
            feature, output = divmod(int(at), outputs)
            label = names[feature] + (f" → {self.classes[output]}" if outputs > 1 else "")
            found.append((label, self.coefficients[:, feature, output]))
        return found

    def pictures(self) -> list[tuple[str, list[np.ndarray]]]:
        """For each class, the coefficients of every component as an image between 0 and 1, where 0.5 is zero."""
        values = self.coefficients.reshape(len(self.coefficients), *self.shape, -1)
        if len(self.shape) == 3:
            values = values.mean(axis=3)  # over colours
        most = np.abs(values).max() or 1.0
        apart = np.ptp(values, axis=0).mean(axis=(0, 1))
        kept = sorted(np.argsort(-apart, kind="stable")[:MOST_CLASSES].tolist())
        names = self.classes if values.shape[-1] > 1 else self.classes[-1:] or ("",)
        return [(names[k], [0.5 + each[..., k] / (2 * most) for each in values]) for k in kept]


def read_model(folder: Path, count: int) -> tuple[int, Components | None]:
    """The number of classes of a saved model, and its components; None where they have no slopes to show.

    A model that is not there or damaged is no reason not to report on its run.
    """
    from majorant.app.trees import load_meta, load_tree, tree_exists

    if not tree_exists(folder):
        return 0, None
    try:
        tree, meta = load_tree(folder) if count > 1 else ({}, load_meta(folder))
    except DamagedFile:
        return 0, None
    return len(meta.get("classes", ())), dense_components(tree, meta, count)


def dense_components(tree: Any, meta: dict[str, Any], count: int) -> Components | None:
    """The components of a mixture whose models are made of dense layers; None where they are not."""
    layers = tree.get("value") if isinstance(tree, dict) else None
    if not isinstance(layers, dict) or set(layers) != set(map(str, range(len(layers)))) or "spec" not in meta:
        return None
    found = [layers[str(place)] for place in range(len(layers))]
    if not found or not all(isinstance(layer, dict) and set(layer) == {"weight", "bias"} for layer in found):
        return None
    return components_of([(layer["weight"], layer["bias"]) for layer in found], meta, count)


def components_of(layers: Sequence[Layer], meta: dict[str, Any], count: int) -> Components | None:
    """Components from the weights and biases of their layers, and what is saved beside the model."""
    shape, outputs = tuple(meta["spec"][0]), meta["spec"][1]
    width = math.prod(shape)
    for weight, bias in layers:
        if weight.ndim != 3 or weight.shape[:2] != (count, width) or bias.shape != (count, weight.shape[2]):
            return None
        if not np.isfinite(weight).all() or not np.isfinite(bias).all():
            return None
        width = weight.shape[2]
    if width not in (1, outputs):
        return None
    classes, scale = tuple(str(label) for label in meta["classes"]), meta.get("target_scale")
    unit = float(scale[1]) if scale and not classes else 1.0
    average = 0.5 if len(shape) > 1 else 0.0
    slopes = np.stack(
        [slopes_at(np.full(math.prod(shape), average), [(w[m], b[m]) for w, b in layers]) for m in range(count)]
    )
    return Components(unit * slopes, shape, feature_names(meta, shape), classes, linear=len(layers) == 1)


def slopes_at(x: np.ndarray, layers: Sequence[Layer]) -> np.ndarray:
    """How the outputs of dense layers with relu between them change with each input at ``x``.

    >>> layers = [(np.array([[1.0, -1.0]]), np.array([0.5, 0.5])), (np.array([[3.0], [7.0]]), np.zeros(1))]
    >>> slopes_at(np.array([0.0]), layers), slopes_at(np.array([2.0]), layers)
    (array([[-4.]]), array([[3.]]))
    """
    slopes = np.eye(len(x))
    for place, (weight, bias) in enumerate(layers):
        x, slopes = x @ weight + bias, slopes @ weight.astype(float)
        if place < len(layers) - 1:
            x, slopes = np.maximum(x, 0), slopes * (x > 0)
    return slopes


def feature_names(meta: dict[str, Any], shape: tuple[int, ...]) -> tuple[str, ...]:
    """The names of a table's features; none where the data was no table."""
    if not meta.get("encoding"):
        return ()
    from majorant.data.tabular import Encoding

    try:
        names = Encoding.from_dict(meta["encoding"]).features
    except ValueError:
        return ()
    return names if len(names) == math.prod(shape) else ()
