"""A network whose last layer alone is trained: what most people do with pretrained weights.

The rest is fixed, statistics included: only the head is sent, stored and personalized. What the head reads of a sample
never changes, so an engine computes it once, before round 1, and rounds are those of a linear model.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import jax
import jax.numpy as jnp

from majorant.models.base import Model, as_they_are
from majorant.models.layers import Layer, dense


def frozen_backbone(model: Model, params: Any) -> Model:
    """The model with all of ``params`` fixed but its last dense layer, which starts anew and is the only parameter.

    ``params`` are those of `pretrained` (``params = model.init(key)``), or of a model that was trained. Every pass is
    one of evaluation: there is no dropout, and normalisation uses the statistics in ``params``. A model that normalises
    by whatever batch it is given has no fixed layers, and is refused.

    >>> import jax
    >>> from majorant.models import Spec, mobilenet_v2
    >>> whole = mobilenet_v2(Spec((32, 32, 3), classes=10))
    >>> head = frozen_backbone(whole, jax.eval_shape(whole.init, jax.random.key(0)))
    >>> {name: leaf.shape for name, leaf in jax.eval_shape(head.init, jax.random.key(0)).items()}
    {'bias': (10,), 'weight': (1280, 10)}
    """
    if not isinstance(params, dict) or not model.head:
        raise ValueError(
            f"{model.name} has no last dense layer by that name: give a network such as efficientnet_lite0"
        )
    if model.normalises_by_batch and not model.statistics:
        raise ValueError(
            f"{model.name} normalises by the batch that it is given, so that its layers cannot be fixed: use "
            'normalisation="frozen" or "averaged", which have statistics'
        )
    place = model.head.split(".")
    width = functools.reduce(entry, place, params)["weight"].shape[0]
    once = math.prod(model.spec.features) != width  # samples and their features are told apart by their width

    def features(x: jax.Array) -> jax.Array:
        """What the head reads: its outputs, if its weights were the identity."""
        return model.apply(replaced(params, place, {"weight": jnp.eye(width), "bias": jnp.zeros(width)}), x)

    def apply(head: Layer, x: jax.Array) -> jax.Array:
        return dense(head, x) if once and x.shape[1:] == (width,) else model.apply(replaced(params, place, head), x)

    return model._replace(
        init=lambda key: functools.reduce(entry, place, model.init(key)),
        apply=apply,
        train_apply=None,
        statistics=None,
        normalises_by_batch=False,
        head="",
        layers=as_they_are,
        pack=as_they_are,
        name=f"{model.name}-head",
        convex=True,  # a linear map of fixed features
        embed=features if once else None,
    )


def replaced(tree: Any, place: list[str], part: Any) -> Any:
    """A tree of dictionaries and lists with another part at a place.

    >>> replaced({"weights": {"dense": [1, 1], "stem": 2}}, ["weights", "dense", "1"], 3)
    {'weights': {'dense': [1, 3], 'stem': 2}}
    """
    first, *rest = place
    new = replaced(entry(tree, first), rest, part) if rest else part
    if isinstance(tree, list):
        return [new if str(i) == first else old for i, old in enumerate(tree)]
    return {**tree, first: new}


def entry(tree: Any, name: str) -> Any:
    """What is at a name in a dictionary, or at a number in a list."""
    return tree[int(name) if isinstance(tree, list) else name]
