"""What a model costs: its parameters, and the arithmetic of one sample's forward pass."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from majorant.models.base import Model


def parameter_count(model: Model) -> int:
    """The numbers that training moves; statistics are not among them.

    >>> from majorant.models import Spec, linear
    >>> parameter_count(linear(Spec((4,), classes=3)))
    15
    """
    params = jax.eval_shape(model.init, jax.random.key(0))
    if model.statistics:
        params = {name: part for name, part in params.items() if name != model.statistics}
    return sum(leaf.size for leaf in jax.tree.leaves(params))


def forward_flops(model: Model) -> float:
    """Floating point operations of one sample's forward pass: a multiplication and an addition are two.

    >>> from majorant.models import Spec, linear
    >>> forward_flops(linear(Spec((4,), classes=3)))
    27.0
    """
    params = jax.eval_shape(model.init, jax.random.key(0))
    kind = jnp.int32 if model.name == "lstm" else jnp.float32
    sample = jax.ShapeDtypeStruct((1, *model.spec.features), kind)
    analysis = jax.jit(model.apply).lower(params, sample).cost_analysis()
    return float((analysis or {}).get("flops", 0.0))
