"""Half precision for the arithmetic of a model, single precision for everything that is kept.

Parameters, gradients, moments, statistics, losses and what travels stay float32; products, activations and their
gradients are bfloat16, which takes half the memory traffic. A model's normalisations and sums are still made in
float32.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from majorant.models.base import Draw, Model, as_float


def mixed_precision(model: Model) -> Model:
    """The model with bfloat16 arithmetic on float32 parameters.

    >>> from majorant.models import Spec, mlp
    >>> model = mixed_precision(mlp(Spec((4,), classes=3)))
    >>> params = model.init(jax.random.key(0))
    >>> params[0]["weight"].dtype.name, model.apply(params, jnp.ones((2, 4))).dtype.name
    ('float32', 'float32')
    """
    if any(leaf.dtype == jnp.float64 for leaf in jax.tree.leaves(jax.eval_shape(model.init, jax.random.key(0)))):
        raise ValueError(f"{model.name} has parameters in double precision, which mixed precision would lose")

    def low(params: Any) -> Any:
        """Parameters as they enter the arithmetic; statistics enter as they are."""
        half = lambda a: a.astype(jnp.bfloat16) if a.dtype == jnp.float32 else a
        if not model.statistics:
            return jax.tree.map(half, params)
        return {k: v if k == model.statistics else jax.tree.map(half, v) for k, v in params.items()}

    def samples(x: jax.Array) -> jax.Array:
        whole = jnp.issubdtype(x.dtype, jnp.integer) and x.dtype != jnp.uint8
        return x if whole or model.codes else as_float(x).astype(jnp.bfloat16)

    def train_apply(params: Any, x: jax.Array, draw: Draw) -> tuple[jax.Array, Any]:
        outputs, refreshed = model.train_apply(low(params), samples(x), draw)  # type: ignore[misc]
        kept = {**params, model.statistics: refreshed[model.statistics]} if model.statistics else params
        return outputs.astype(jnp.float32), kept

    return model._replace(
        apply=lambda params, x: model.apply(low(params), samples(x)).astype(jnp.float32),
        features=None if model.features is None else lambda params, x: model.features(low(params), samples(x)),  # type: ignore[misc]
        embed=None if model.embed is None else lambda x: model.embed(samples(x)),  # type: ignore[misc]
        train_apply=None if model.train_apply is None else train_apply,
    )
