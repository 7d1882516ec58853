"""Models from plain functions, and the check that a model's shapes fit its problem."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from majorant.models.base import HasSpec, Loss, Model, Spec, as_float, spec_of
from majorant.models.losses import loss_for


def from_functions(
    init: Callable[[jax.Array], Any],
    apply: Callable[[Any, jax.Array], jax.Array],
    problem: HasSpec | Spec,
    loss: str | Loss | None = None,
    *,
    name: str = "model",
) -> Model:
    """A model from your own ``init(key) -> params`` and ``apply(params, x) -> outputs (n, k)``.

    ``x`` is a batch of samples ``(n, *features)``, with pixels stored as bytes scaled to [0, 1]. ``k`` is what the loss
    asks for: the number of classes for cross entropy, one for logistic and squared. Both functions are traced once,
    without computing anything, to check that the shapes fit.

    >>> model = from_functions(
    ...     lambda key: jnp.zeros((4, 1)), lambda weight, x: jnp.tanh(x) @ weight, Spec((4,), classes=2)
    ... )
    >>> model.losses(model.init(jax.random.key(0)), jnp.ones((1, 4)), jnp.array([1])).round(4)
    Array([0.6931], dtype=float32)
    """
    spec = spec_of(problem)
    model = Model(init, lambda params, x: apply(params, as_float(x)), loss_for(spec, loss), spec, name)
    check_shapes(model)
    return model


def check_shapes(model: Model) -> None:
    """Trace a model on a small batch, without computing anything, and refuse it if its outputs do not fit its loss.

    >>> check_shapes(Model(lambda key: 0.0, lambda w, x: x * w, loss_for(Spec((4,), 3)), Spec((4,), 3), "scaling"))
    Traceback (most recent call last):
    ValueError: apply of scaling gives (3, 4) for 3 samples; the cross_entropy loss with 3 classes needs (3, 3)
    """
    n, width = 3, model.loss.outputs(model.spec.classes)
    try:
        params = jax.eval_shape(model.init, jax.random.key(0))
    except Exception as error:
        raise ValueError(f"init of {model.name} fails on a random key: {error}") from error
    whole = {leaf.dtype.name for leaf in jax.tree.leaves(params) if not jnp.issubdtype(leaf.dtype, jnp.floating)}
    if whole:
        raise ValueError(
            f"init of {model.name} gives parameters of type {', '.join(sorted(whole))}: they must be floats"
        )
    outputs = trace_samples(f"apply of {model.name}", model.apply, params, shape=(n, *model.spec.features))
    if not hasattr(outputs, "shape"):
        raise ValueError(f"apply of {model.name} gives a {type(outputs).__name__}; it must give one array of outputs")
    if outputs.shape != (n, width):
        raise ValueError(
            f"apply of {model.name} gives {outputs.shape} for {n} samples; the {model.loss.name} loss with "
            f"{model.spec.classes} classes needs ({n}, {width})"
        )
    if not jnp.issubdtype(outputs.dtype, jnp.floating):
        raise ValueError(f"apply of {model.name} gives {outputs.dtype}; outputs must be floating point")


def trace_samples(what: str, function: Callable[..., Any], *args: Any, shape: tuple[int, ...]) -> Any:
    """The shapes that ``function(*args, x)`` gives for samples x of real numbers or, where it takes none, of codes."""
    try:
        return jax.eval_shape(function, *args, jax.ShapeDtypeStruct(shape, jnp.float32))
    except Exception as error:
        try:
            return jax.eval_shape(function, *args, jax.ShapeDtypeStruct(shape, jnp.int32))
        except Exception:
            raise ValueError(f"{what} fails on samples {shape}: {error}") from error
