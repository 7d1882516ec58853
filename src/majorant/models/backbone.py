"""A network whose last layer alone is trained: what most people do with pretrained weights.

The rest is fixed, statistics included: only the head is sent, stored and personalized. What the head reads of a sample
never changes, so with networks of ours an engine computes it once, before round 1, and rounds are those of a linear
model.
"""

from __future__ import annotations

import math
from typing import Any

import jax

from majorant.models.base import Model, as_they_are, by_place, last_layer
from majorant.models.layers import Layer, dense


def frozen_backbone(model: Model, params: Any) -> Model:
    """The model with all of ``params`` fixed but its last layer, which starts anew and is the only parameter.

    ``params`` are those of `pretrained` (``params = model.init(key)``), or of a model that was trained. Every pass is
    one of evaluation: there is no dropout, and normalisation uses the statistics in ``params``. A model that normalises
    by whatever batch it is given has no fixed layers, and is refused. Of a flax or equinox module the last layer is
    found by its shape, or named: ``model._replace(head="out")``; all layers are gone through in every pass.

    >>> from majorant.models import Spec, mobilenet_v2
    >>> whole = mobilenet_v2(Spec((32, 32, 3), classes=10))
    >>> head = frozen_backbone(whole, jax.eval_shape(whole.init, jax.random.key(0)))
    >>> {name: leaf.shape for name, leaf in jax.eval_shape(head.init, jax.random.key(0)).items()}
    {'bias': (10,), 'weight': (1280, 10)}
    """
    place = last_layer(model)
    named = by_place(params)
    inside = [name.startswith(f"{place}.") for name, _ in named]
    if place is None or not any(inside) or all(inside):
        raise ValueError(
            f'which layer of {model.name} is the last, to be trained alone? Name it, model._replace(head="…"): there '
            f"are {', '.join(dict.fromkeys(name.rpartition('.')[0] or name for name, _ in named))}"
        )
    if model.normalises_by_batch and not model.statistics:
        raise ValueError(
            f"{model.name} normalises by the batch that it is given, so that its layers cannot be fixed: use "
            'normalisation="frozen" or "averaged", which have statistics'
        )

    def head_of(params: Any) -> Layer:
        leaves = zip(by_place(params), inside, strict=True)
        return {name.removeprefix(f"{place}."): leaf for (name, leaf), own in leaves if own}

    def whole(head: Layer) -> Any:
        leaves = zip(named, inside, strict=True)
        new = [head[name.removeprefix(f"{place}.")] if own else leaf for (name, leaf), own in leaves]
        return jax.tree.unflatten(jax.tree.structure(params), new)

    width = head_of(params)["weight"].shape[0] if model.features else 0
    once = width not in (0, math.prod(model.spec.features))  # their widths tell samples and features apart

    def embed(x: jax.Array) -> jax.Array:
        return model.features(params, x)  # type: ignore[misc]

    def apply(head: Layer, x: jax.Array) -> jax.Array:
        return dense(head, x) if once and x.shape[1:] == (width,) else model.apply(whole(head), x)

    return model._replace(
        init=lambda key: head_of(model.init(key)),
        apply=apply,
        train_apply=None,
        statistics=None,
        normalises_by_batch=False,
        head="",
        layers=as_they_are,
        pack=as_they_are,
        name=f"{model.name}-head",
        convex=model.features is not None,  # a linear map of fixed features
        features=None,
        embed=embed if once else None,
    )
