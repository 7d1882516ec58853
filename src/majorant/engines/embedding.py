"""Samples as the fixed features that a model reads of them, made once before round 1.

A frozen network (`majorant.models.frozen_backbone`) makes the same features of a sample in every pass. Rounds on those
are rounds of a linear model.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from majorant._once import once_for_each
from majorant.core.compilation import jit
from majorant.data.federated import PARTS, FederatedData
from majorant.data.lazy import Lazy
from majorant.models.base import Model

ROWS = 256  # that go through the network side by side; a GPU has room for more, and little to gain


def embedded(data: FederatedData, model: Any) -> FederatedData:
    """The data as a model reads it: features in place of samples, where it fixes them; else the data as they are.

    It is done once for the same data and model, however many runs ask. Samples that are read when they are asked for
    stay so, and go through the whole model in every pass.
    """
    return embedded_by(data, model.embed) if to_embed(data, model) else data


def to_embed(data: FederatedData, model: Any) -> bool:
    """Whether a model fixes features of the data's samples, and these are not made yet."""
    fixed = isinstance(model, Model) and model.embed is not None and not is_embedded(data, model)
    return fixed and not isinstance(data.train.x, Lazy)


def is_embedded(data: FederatedData, model: Model) -> bool:
    """Whether the data hold a model's features already."""
    if model.embed is None or math.prod(data.spec.features) == math.prod(model.spec.features):
        return False
    sample = jax.ShapeDtypeStruct((1, *model.spec.features), jnp.float32)
    return data.spec.features == jax.eval_shape(model.embed, sample).shape[1:]


@once_for_each
def embedded_by(data: FederatedData, embed: Callable[[jax.Array], jax.Array]) -> FederatedData:
    """The data with ``embed(x)`` in place of ``x``, in all parts."""
    program = jit(embed)
    parts = {name: getattr(data, name) for name in PARTS}
    return replace(data, **{name: part._replace(x=in_blocks(program, part.x)) for name, part in parts.items()})


def in_blocks(program: Callable[[Any], jax.Array], x: np.ndarray) -> np.ndarray:
    """A function of the rows of ``x``, some at a time; zeros fill the last block."""
    shape = jax.eval_shape(program, jax.ShapeDtypeStruct((ROWS, *x.shape[1:]), x.dtype))
    found = np.empty((len(x), *shape.shape[1:]), shape.dtype)
    for start in range(0, len(x), ROWS):
        rows = x[start : start + ROWS]
        filled = np.concatenate([rows, np.zeros((ROWS - len(rows), *x.shape[1:]), x.dtype)])
        found[start : start + ROWS] = program(filled)[: len(rows)]
    return found
