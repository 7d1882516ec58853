"""What a model costs: its parameters, and the arithmetic of one sample's forward pass."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp

from majorant.models.base import Model
from majorant.models.maps import ChannelsLast, laid_out


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


def forward_flops(model: Model) -> int:
    """Floating point operations of one sample's forward pass: a multiplication and an addition are two.

    They are the network's own: products with zeros that a layout of maps in memory adds on a GPU do not count.

    >>> from majorant.models import Spec, linear
    >>> forward_flops(linear(Spec((4,), classes=3)))
    27
    """
    params = jax.eval_shape(model.init, jax.random.key(0))
    sample = lambda dtype: jax.ShapeDtypeStruct((1, *model.spec.features), dtype)
    apply = lambda params, x: model.apply(
        params, x
    )  # JAX remembers what it has traced: a new function, for this layout
    with laid_out(ChannelsLast):
        try:
            traced = jax.make_jaxpr(apply)(params, sample(jnp.float32))
        except TypeError:  # codes
            traced = jax.make_jaxpr(apply)(params, sample(jnp.int32))
    return operations(traced.jaxpr)


ARITHMETIC = {
    *("add", "sub", "mul", "div", "max", "min", "neg", "exp", "log", "log1p", "tanh", "logistic", "sqrt", "rsqrt"),
    *("square", "integer_pow", "pow", "clamp", "erf"),
}


def operations(jaxpr: Any) -> int:
    """The arithmetic of a program: products and sums of matrix products, and each number that anything else makes."""
    total = 0
    for equation in jaxpr.eqns:
        name, made = equation.primitive.name, equation.outvars[0].aval
        if name == "dot_general":
            (contracted, _), _ = equation.params["dimension_numbers"]
            total += 2 * made.size * math.prod(equation.invars[0].aval.shape[axis] for axis in contracted)
        elif name in ARITHMETIC and jnp.issubdtype(made.dtype, jnp.floating):
            total += made.size
        elif name in ("reduce_sum", "reduce_max"):
            total += equation.invars[0].aval.size
        inner = [p for p in equation.params.values() if hasattr(p, "eqns") or hasattr(p, "jaxpr")]
        total += equation.params.get("length", 1) * sum(operations(getattr(p, "jaxpr", p)) for p in inner)
    return total
