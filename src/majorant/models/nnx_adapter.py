"""Models from flax's ``nnx`` modules, with an explicit policy for batch normalisation and derived dropout.

A module is taken apart (``nnx.split``) into its weights, its batch statistics and its random streams. The weights are
the parameters, by name; what happens to the statistics is said by the policies of `flax_adapter`; the keys of the
streams are derived from each minibatch's own, so that what a run draws depends on nothing else.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp

from majorant._extras import require
from majorant.models.base import Draw, HasSpec, Loss, Model, Spec, as_float, spec_of
from majorant.models.flax_adapter import POLICIES, Normalisation
from majorant.models.functions import check_shapes
from majorant.models.losses import loss_for
from majorant.models.named_leaves import named_leaves, with_leaves
from majorant.models.normalisation import uses_the_batch

if TYPE_CHECKING:
    from flax import nnx

WEIGHTS, STATISTICS = "weights", "statistics"
VALUE = ".value"


def from_nnx(
    make_module: Callable[[Any], nnx.Module],
    problem: HasSpec | Spec,
    *,
    loss: str | Loss | None = None,
    normalisation: Normalisation | None = None,
    name: str | None = None,
) -> Model:
    """A model from a function that makes an ``nnx.Module`` from ``nnx.Rngs``; it maps ``(n, *features)`` to ``(n, k)``.

    Training runs the module after ``module.train()``, evaluation after ``module.eval()``. A module with batch
    statistics needs a ``normalisation`` policy: "batch", "frozen" or "averaged" (see `from_flax`).

    >>> from flax import nnx
    >>> model = from_nnx(lambda rngs: nnx.Linear(4, 3, rngs=rngs), Spec((4,), classes=3))
    >>> {name: leaf.shape for name, leaf in jax.eval_shape(model.init, jax.random.key(0)).items()}
    {'bias': (3,), 'kernel': (4, 3)}
    """
    nnx = require("flax.nnx", "flax", "from_nnx")
    spec = spec_of(problem)
    kinds = (nnx.Param, nnx.BatchStat, nnx.RngKey, nnx.RngCount)
    made = _made(nnx, make_module)
    title = name or type(made).__name__

    def parts(module: Any) -> Any:
        graph, weights, statistics, keys, counts, rest = nnx.split(module, *kinds, ...)
        if jax.tree.leaves(rest):
            raise ValueError(f"{title} keeps {sorted(leaves_of(rest))}; only weights, batch statistics and random "
                             "streams are supported")  # fmt: skip
        return graph, weights, statistics, keys, counts

    training, evaluating = parts(_in_mode(made, "train")), parts(_in_mode(made, "eval"))
    first = jax.tree.map(jnp.asarray, leaves_of(training[2]))
    _check(title, bool(first), normalisation)
    draws = bool(jax.tree.leaves(training[3]))

    def start(key: jax.Array) -> Any:
        return leaves_of(parts(make_module(nnx.Rngs(key)))[1])

    def forward(weights: Any, statistics: Any, x: jax.Array, train: bool, key: jax.Array | None) -> tuple[Any, Any]:
        graph, *own = training if train else evaluating
        leaves, structure = jax.tree.flatten(own[2])
        if key is not None:
            leaves = [jax.random.fold_in(key, i) for i in range(len(leaves))]
        # New variables for each pass: a module changes those that it is merged from.
        streams, counts = jax.tree.unflatten(structure, leaves), jax.tree.map(jnp.zeros_like, own[3])
        kept = state_with(own[1], jax.lax.stop_gradient(statistics))
        module = nnx.merge(graph, state_with(own[0], weights), kept, streams, counts)
        return module(as_float(x)), jax.lax.stop_gradient(leaves_of(nnx.split(module, *kinds, ...)[2]))

    averaged, by_batch = normalisation == "averaged", normalisation == "batch"

    if draws and by_batch:
        raise ValueError(f'{title} has dropout and normalisation="batch", which would be drawn at evaluation, too: '
                         'use "averaged"')  # fmt: skip
    if draws and normalisation == "frozen":
        raise ValueError(f'{title} has dropout, which needs training mode, and normalisation="frozen", which needs '
                         'evaluation mode: use "averaged"')  # fmt: skip

    def both(params: Any) -> tuple[Any, Any]:
        return (params[WEIGHTS], params[STATISTICS]) if averaged else (params, first)

    def train_apply(params: Any, x: jax.Array, draw: Draw) -> tuple[jax.Array, Any]:
        outputs, refreshed = forward(*both(params), x, normalisation != "frozen", draw.key if draws else None)
        return outputs, {**params, STATISTICS: refreshed} if averaged else params

    model = Model(
        init=lambda key: {WEIGHTS: start(key), STATISTICS: first} if averaged else start(key),
        apply=lambda params, x: forward(*both(params), x, by_batch and not draws, None)[0],
        loss=loss_for(spec, loss),
        spec=spec,
        name=title,
        train_apply=train_apply if averaged or draws else None,
        statistics=STATISTICS if averaged else "",
        normalises_by_batch=uses_the_batch(normalisation or ""),
    )
    check_shapes(model)
    return model


def leaves_of(state: Any) -> dict[str, Any]:
    """The arrays of an ``nnx.State`` by name, which it holds as values of variables."""
    return {name.removesuffix(VALUE): leaf for name, leaf in named_leaves(state).items()}


def state_with(like: Any, leaves: dict[str, Any]) -> Any:
    """The inverse of `leaves_of`."""
    return with_leaves(like, {name + VALUE: leaf for name, leaf in leaves.items()})


def _made(nnx: Any, make_module: Any) -> Any:
    if isinstance(make_module, nnx.Module) or not callable(make_module):
        raise TypeError("from_nnx takes a function that makes a module, such as lambda rngs: MyModule(rngs=rngs)")
    module = make_module(nnx.Rngs(0))
    if not isinstance(module, nnx.Module):
        raise TypeError(f"from_nnx: make_module must make an nnx.Module, it gives {module!r}")
    return module


def _in_mode(module: Any, mode: str) -> Any:
    getattr(module, mode)()
    return module


def _check(name: str, keeps: bool, normalisation: str | None) -> None:
    if normalisation is not None and normalisation not in POLICIES:
        raise ValueError(f"normalisation is one of {', '.join(POLICIES)}, not {normalisation!r}")
    if keeps and normalisation is None:
        choices = "; ".join(f'"{policy}" ({meaning})' for policy, meaning in POLICIES.items())
        raise ValueError(f"{name} keeps batch statistics, so say what happens to them by normalisation=: {choices}")
    if not keeps and normalisation is not None:
        raise ValueError(f"{name} keeps no batch statistics: leave normalisation={normalisation!r} out")
