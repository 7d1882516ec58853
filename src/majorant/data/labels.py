"""Labels as training sees them: the codes of classes, or targets brought to mean 0 and scale 1."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from majorant._words import some
from majorant.data.checks import is_numeric, plain_array


class TargetScale(NamedTuple):
    """What was done to regression targets: training sees (y − mean) / scale.

    >>> target = TargetScale(100.0, 20.0)
    >>> target.scaled(np.array([120.0])).tolist(), target.original(np.array([1.0])).tolist()
    ([1.0], [120.0])
    """

    mean: float
    scale: float

    def scaled(self, y: np.ndarray) -> np.ndarray:
        """Targets in original units as training sees them."""
        return ((np.asarray(y, np.float64) - self.mean) / self.scale).astype(np.float32)

    def original(self, y: np.ndarray) -> np.ndarray:
        """Targets or predictions as training sees them in original units."""
        return np.asarray(y, np.float64) * self.scale + self.mean


def encode_labels(y: np.ndarray, task: str = "auto") -> tuple[np.ndarray, tuple[Any, ...]]:
    """Class codes and the label values they stand for, or float targets and no classes for regression."""
    if task not in ("auto", "classification", "regression"):
        raise ValueError(f"task must be 'auto', 'classification' or 'regression', got {task!r}")
    y = plain_array(y, "the labels")
    if y.ndim != 1:
        raise ValueError(f"labels must be one number or name per sample, got an array of shape {y.shape}")
    numeric = np.issubdtype(y.dtype, np.number)
    if numeric and not np.isfinite(y).all():
        raise ValueError(f"{int((~np.isfinite(y)).sum())} labels are NaN or infinite")
    gaps = 0 if numeric else sum(v is None or v != v for v in y.tolist())
    if gaps:
        raise ValueError(f"{gaps} labels are missing (None or NaN): fill them in or drop these samples")
    if task == "auto":
        fractional = np.issubdtype(y.dtype, np.floating) and not np.equal(np.mod(y, 1), 0).all()
        task = "regression" if fractional else "classification"
    if task == "regression":
        if not numeric:
            raise ValueError(f"regression needs numbers as labels, got values such as {y.tolist()[0]!r}")
        return y.astype(np.float32), ()
    classes, codes = np.unique(y, return_inverse=True)
    return codes.astype(np.int32), tuple(classes.tolist())


def label_values(y: np.ndarray, classes: tuple[Any, ...], target: TargetScale | None = None) -> np.ndarray:
    """What the labels in federated data stand for: values of classes, or targets in original units.

    >>> label_values(np.array([1, 0]), ("no", "yes")).tolist()
    ['yes', 'no']
    """
    if classes:
        return np.asarray(classes)[y]
    return y if target is None else target.original(y)


def label_codes(y: np.ndarray, classes: tuple[Any, ...], target: TargetScale | None = None) -> np.ndarray:
    """Label values as training sees them, the inverse of `label_values`; classes that it did not know are refused.

    >>> label_codes(np.array(["yes", "no"]), ("no", "yes")).tolist()
    [1, 0]
    """
    y = plain_array(y, "the labels")
    if y.ndim != 1:
        raise ValueError(f"labels must be one number or name per sample, got an array of shape {y.shape}")
    if not classes and len(y) and not (is_numeric(y.dtype) and np.isfinite(y).all()):
        raise ValueError("labels must be finite numbers, as in training")
    if not classes:
        return np.asarray(y, np.float32) if target is None else target.scaled(y)
    codes = {label: code for code, label in enumerate(classes)}
    unknown = [label for label in np.unique(y).tolist() if label not in codes]
    if unknown:
        raise ValueError(f"labels [{some(unknown)}] were not in the training data, which has [{some(classes, 10)}]")
    return np.asarray([codes[label] for label in y.tolist()], np.int32)


def tidy(x: np.ndarray) -> np.ndarray:
    """Features in the types the simulator computes with: bytes stay bytes (pixels), all else is float32."""
    x = plain_array(x, "x")
    if not is_numeric(x.dtype):
        raise ValueError(f"features must be numbers, got values of type {x.dtype}")
    with np.errstate(over="ignore"):  # numbers beyond float32 become infinite, which the checks refuse
        return x if x.dtype == np.uint8 else x.astype(np.float32, copy=False)
