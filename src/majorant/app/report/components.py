"""What the components of a mixture differ in: the coefficients of linear models, by the names of their columns."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

MOST_COLUMNS = 10  # rows of the table
MOST_CLASSES = 10  # pictures side by side


@dataclass(frozen=True)
class Components:
    """Coefficients ``(M, features, outputs)`` of linear components, what the features are, and what the outputs are.

    Of two classes there is one output, the second class against the first; of regression there is one, in the units of
    the target.
    """

    coefficients: np.ndarray
    shape: tuple[int, ...]  # of a sample
    names: tuple[str, ...] = ()  # of the features, where they are columns
    classes: tuple[str, ...] = ()

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
    """The number of classes of a saved model, and its linear components; None where they are of another kind."""
    from majorant.app.trees import load_meta, load_tree, tree_exists

    if not tree_exists(folder):
        return 0, None
    if count < 2:
        return len(load_meta(folder).get("classes", ())), None
    tree, meta = load_tree(folder)
    return len(meta.get("classes", ())), linear_components(tree, meta, count)


def linear_components(tree: Any, meta: dict[str, Any], count: int) -> Components | None:
    """The components of a mixture whose models have a single layer."""
    layers = tree.get("value") if isinstance(tree, dict) else None
    if not isinstance(layers, dict) or set(layers) != {"0"} or not isinstance(layers["0"], dict):
        return None
    return components_of(layers["0"].get("weight"), meta, count)


def components_of(weight: Any, meta: dict[str, Any], count: int) -> Components | None:
    """Components from the weights of a single layer and what is saved beside the model."""
    shape, outputs = tuple(meta["spec"][0]), meta["spec"][1]
    fits = isinstance(weight, np.ndarray) and weight.ndim == 3 and weight.shape[:2] == (count, math.prod(shape))
    if not fits or not np.isfinite(weight).all():
        return None
    classes = tuple(str(label) for label in meta["classes"])
    if weight.shape[2] not in (1, outputs):
        return None
    scale = meta.get("target_scale")
    unit = float(scale[1]) if scale and not classes else 1.0
    return Components(unit * weight.astype(float), shape, feature_names(meta, shape), classes)


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
