"""Public samples that criteria are about: checked, and the means over their groups."""

from __future__ import annotations

import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from majorant.models.base import Model


def samples(model: Model, x: Any, **others: Any) -> tuple[Any, ...]:
    """Public samples as arrays, one row of each for every sample, that fit the model."""
    arrays = {"x": np.asarray(x)} | {name: np.asarray(value) for name, value in others.items()}
    lengths = {name: len(a) if a.ndim else 0 for name, a in arrays.items()}
    if len(set(lengths.values())) > 1 or 0 in lengths.values():
        raise ValueError(f"public data needs as many rows in each array, and at least one, got {lengths}")
    features = tuple(model.spec.features)
    if arrays["x"].shape[1:] != features:
        raise ValueError(
            f"public samples must be as those of {model.name}, of shape {features}, got {arrays['x'].shape[1:]}"
        )
    for name, wanted in {"x": "numbers", "y": "labels", "group": "groups"}.items():
        if name in others and arrays[name].ndim > 1:
            raise ValueError(f"public data needs one value of {name} for every sample, got {arrays[name].shape}")
        if name in arrays and missing(arrays[name], numeric=name != "group"):
            raise ValueError(f"public data has {wanted} in {name} that are missing, infinite or no numbers")
    if "y" in arrays and model.spec.classes:
        arrays["y"] = labels(arrays["y"], model.spec.classes)
    return tuple(arrays.values())


def missing(values: np.ndarray, numeric: bool) -> bool:
    """Whether values are not finite; numbers, where they must be, or names."""
    if np.issubdtype(values.dtype, np.number) or values.dtype == bool:
        return not bool(np.isfinite(values).all())
    return numeric or any(value is None or value != value for value in values.tolist())


def labels(y: np.ndarray, classes: int) -> np.ndarray:
    """Codes of classes."""
    wrong = (y != np.round(y)) | (y < 0) | (y >= classes)
    if wrong.any():
        raise ValueError(
            f"public labels must be codes of the model's {classes} classes, counted from 0, got {y[wrong][0]}"
        )
    return y.astype(np.int32)


def members(group: np.ndarray, among: np.ndarray | None = None) -> jax.Array:
    """The matrix ``(groups, n)`` that takes the mean over each group's samples, or over some of them."""
    names = np.unique(group)
    if len(names) < 2:
        raise ValueError(f"a gap between groups needs at least two of them, but every public sample is in {names[0]}")
    belongs = (group == names[:, None]) & (True if among is None else among)
    return jnp.asarray(belongs / belongs.sum(axis=1, keepdims=True), jnp.result_type(float))


def check_label(model: Model, label: int) -> None:
    """The favourable class must be one of the model's."""
    if not model.spec.classes:
        raise ValueError(f"a gap between groups is one of predicted classes, and {model.name} is a regression")
    if not isinstance(label, int | np.integer) or not 0 <= label < model.spec.classes:
        raise ValueError(f"label must be one of the model's {model.spec.classes} classes, counted from 0, got {label}")


def squared_differences(rates: jax.Array) -> jax.Array:
    """The mean of (a − b)² over pairs."""
    first, second = np.array(list(itertools.combinations(range(rates.shape[0]), 2))).T
    return jnp.square(rates[first] - rates[second]).mean()
