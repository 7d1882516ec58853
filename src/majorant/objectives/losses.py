"""Convex losses of a linear output z, with bounds on their curvature: what step sizes are computed from.

========================  ========================================  ==============================  =================
name                      loss                                      labels                          curvature in z
========================  ========================================  ==============================  =================
``logistic``              log(1 + exp(−s z)), s = 2y − 1            two classes                     at most 1/4
``softmax``               log Σ_k exp z_k − z_y                     classes                         at most 1/2
``least_squares``         (z − y)² / 2                              numbers                         1
``squared_hinge``         max(0, 1 − s z)², s = 2y − 1              two classes                     at most 2
``huber``                 r² / 2 for r = |z − y| ≤ 1, r − 1/2 above  numbers                         at most 1
``poisson``               exp z − y z                               numbers, none negative          no bound
========================  ========================================  ==============================  =================

The curvature is the largest eigenvalue of the second derivative with respect to z. The Poisson loss has none for all
z; `poisson` takes the largest output that can occur, and without it an objective has no constants.

>>> logistic.curvature, softmax.curvature, poisson().curvature, poisson(largest=0.0).curvature
(0.25, 0.5, inf, 1.0)
>>> squared_hinge.loss.per_sample(jnp.array([[0.5], [2.0]]), jnp.array([1, 0]))
Array([0.25, 9.  ], dtype=float32)
"""

from __future__ import annotations

import difflib
import math
from typing import NamedTuple

import jax
import jax.numpy as jnp

from majorant.data.federated import FederatedData
from majorant.models import losses as of_models
from majorant.models.base import Loss


class BaseLoss(NamedTuple):
    """A convex loss of linear outputs: its second derivative in them lies between two numbers."""

    loss: Loss
    curvature: float  # c: the most
    least_curvature: float = 0.0
    task: str = "regression"  # or "two classes", "classes"

    @property
    def name(self) -> str:
        """The name it goes by."""
        return self.loss.name


def _squared_hinge(outputs: jax.Array, y: jax.Array) -> jax.Array:
    z = outputs[..., 0]
    return jnp.square(jax.nn.relu(1 - jnp.where(y > 0, z, -z)))


def _huber(outputs: jax.Array, y: jax.Array) -> jax.Array:
    error = outputs[..., 0] - y
    near = jnp.clip(error, -1, 1)
    return near * (error - near / 2)


def _poisson(outputs: jax.Array, y: jax.Array) -> jax.Array:
    return jnp.exp(outputs[..., 0]) - y * outputs[..., 0]


logistic = BaseLoss(of_models.logistic, 0.25, task="two classes")
softmax = BaseLoss(of_models.cross_entropy._replace(name="softmax"), 0.5, task="classes")
least_squares = BaseLoss(of_models.squared._replace(name="least_squares"), 1.0, least_curvature=1.0)
squared_hinge = BaseLoss(  # probabilities are the sigmoid of the margin, and not calibrated
    Loss("squared_hinge", _squared_hinge, of_models.logistic.predict, lambda classes: 1), 2.0, task="two classes"
)
huber = BaseLoss(Loss("huber", _huber, of_models.squared.predict, lambda classes: 1), 1.0)


def poisson(largest: float = math.inf) -> BaseLoss:
    """The Poisson loss with the log link; its curvature exp z is bounded where outputs are, by ``largest``."""
    loss = Loss("poisson", _poisson, lambda outputs: jnp.exp(outputs[..., 0]), lambda classes: 1)
    return BaseLoss(loss, math.exp(largest))


LOSSES: dict[str, BaseLoss] = {
    found.name: found for found in (logistic, softmax, least_squares, squared_hinge, huber, poisson())
}


def base_loss(data: FederatedData, loss: str | BaseLoss | None = None) -> BaseLoss:
    """The loss for the data: the natural one, or the one asked for if it fits.

    Regression takes ``least_squares``, two classes ``logistic``, more classes ``softmax``.
    """
    classes = len(data.classes)
    if loss is None:
        return least_squares if classes == 0 else logistic if classes == 2 else softmax
    if isinstance(loss, str) and loss.replace("-", "_") not in LOSSES:
        close = difflib.get_close_matches(loss, list(LOSSES), n=1)
        hint = f": did you mean {close[0]!r}?" if close else "."
        raise ValueError(f"unknown loss {loss!r}{hint} Known: {', '.join(LOSSES)}")
    found = LOSSES[loss.replace("-", "_")] if isinstance(loss, str) else loss
    fits = {"regression": classes == 0, "two classes": classes == 2, "classes": classes >= 2}
    if not fits[found.task]:
        kind = "labels are numbers (regression)" if classes == 0 else f"labels are {classes} classes"
        fitting = ", ".join(name for name, other in LOSSES.items() if fits[other.task])
        raise ValueError(f"the {found.name} loss is for {found.task}, but the data's {kind}: use one of {fitting}")
    if found.name == "poisson" and (data.train.y < 0).any():
        raise ValueError(f"the poisson loss needs labels of at least 0, but there is {data.train.y.min()}")
    return found
