"""Models from equinox modules, which map one sample at a time.

The module's floating point arrays are the parameters, by name; everything else about it is fixed. Dropout is for
training: every sample's key is derived from its minibatch's. Layers with a state (``equinox.nn.BatchNorm``) are
refused: federated averaging must be told what their statistics are, and equinox keeps them outside the module.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from majorant._extras import require
from majorant.models.base import Draw, HasSpec, Loss, Model, Spec, as_float, spec_of
from majorant.models.functions import check_shapes
from majorant.models.losses import loss_for
from majorant.models.named_leaves import named_leaves, with_leaves


def from_equinox(
    make_module: Callable[[jax.Array], Any],
    problem: HasSpec | Spec,
    *,
    loss: str | Loss | None = None,
    name: str | None = None,
) -> Model:
    """A model from a function that makes an ``equinox.Module`` from a key; it maps a sample ``features`` to ``(k,)``.

    A module whose ``__call__`` takes ``key`` is handed one in training, and is in inference mode at evaluation.

    >>> import equinox as eqx
    >>> model = from_equinox(lambda key: eqx.nn.Linear(4, 3, key=key), Spec((4,), classes=3))
    >>> sorted((name, leaf.shape) for name, leaf in jax.eval_shape(model.init, jax.random.key(0)).items())
    [('bias', (3,)), ('weight', (3, 4))]
    """
    eqx = require("equinox", "equinox", "from_equinox")
    if isinstance(make_module, eqx.Module) or not callable(make_module):
        raise TypeError("from_equinox takes a function that makes a module, such as lambda key: MyModule(key=key)")
    module = make_module(jax.random.key(0))
    if isinstance(module, tuple) or not isinstance(module, eqx.Module):
        kind = "a module with a state, such as batch normalisation's" if isinstance(module, tuple) else repr(module)
        raise TypeError(
            f"from_equinox: make_module must make one equinox.Module, it gives {kind}; for statistics of the batch use "
            "from_nnx, or normalise without a state (equinox.nn.GroupNorm, LayerNorm)"
        )
    title, spec = name or type(module).__name__, spec_of(problem)
    states = [leaf for leaf in jax.tree.leaves(module, is_leaf=_is_state) if _is_state(leaf)]
    if states:
        raise ValueError(f"{title} has layers with a state: normalise without one (equinox.nn.GroupNorm, LayerNorm)")
    weights, fixed = eqx.partition(module, eqx.is_inexact_array)
    draws = "key" in inspect.signature(type(module).__call__).parameters and _has_dropout(eqx, module)

    def outputs(params: Any, x: jax.Array, key: jax.Array | None) -> jax.Array:
        whole = eqx.combine(with_leaves(weights, params), fixed)
        if key is None:
            return jax.vmap(eqx.nn.inference_mode(whole))(as_float(x))
        keys = jax.vmap(lambda row: jax.random.fold_in(key, row))(jnp.arange(x.shape[0]))
        return jax.vmap(lambda row, key: whole(row, key=key))(as_float(x), keys)

    def train_apply(params: Any, x: jax.Array, draw: Draw) -> tuple[jax.Array, Any]:
        return outputs(params, x, draw.key), params

    model = Model(
        init=lambda key: named_leaves(eqx.filter(make_module(key), eqx.is_inexact_array)),
        apply=lambda params, x: outputs(params, x, None),
        loss=loss_for(spec, loss),
        spec=spec,
        name=title,
        train_apply=train_apply if draws else None,
        statistics="",
    )
    check_shapes(model)
    return model


def _is_state(leaf: Any) -> bool:
    return type(leaf).__name__ in ("StateIndex", "State")


def _has_dropout(eqx: Any, module: Any) -> bool:
    is_dropout = lambda leaf: isinstance(leaf, eqx.nn.Dropout)
    return any(map(is_dropout, jax.tree.leaves(module, is_leaf=is_dropout)))
