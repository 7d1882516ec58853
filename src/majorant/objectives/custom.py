"""An objective of your own: f_m as a function, and what else its solvers need to know."""

from __future__ import annotations

from collections.abc import Callable

import jax

from majorant.core import Key, Tree
from majorant.data.federated import FederatedData
from majorant.objectives.base import Constants, Objective
from majorant.objectives.base_model import count_training
from majorant.objectives.blocks import nothing
from majorant.solvers import Batch


def custom(
    data: FederatedData,
    value: Callable[[Tree, Tree, Batch, jax.Array], jax.Array],
    *,
    init: Callable[[Key], Tree] = nothing,
    init_personal: Callable[[Key], Tree] = nothing,
    deploy: Callable[[Tree, Tree, jax.Array], Tree] = lambda w, beta, slot: (w, beta),
    predict: Callable[[Tree, jax.Array], jax.Array],
    constants: Constants | Callable[[FederatedData], Constants] | None = None,
    convex: bool = False,
    name: str = "custom",
) -> Objective:
    """F = (1/M) Σ_m f_m with your f_m, given as ``value(w, β, batch, slot)``: a mean over the samples of a batch.

    A block without a start does not exist. ``constants`` are numbers or a function of the data; without them, solvers
    need step sizes. ``convex`` is your word for it.

    >>> import jax.numpy as jnp
    >>> import majorant as mj
    >>> data = mj.data.synthetic_mixture(clients=6, dimension=3, seed=0)
    >>> def value(w, beta, batch, slot):
    ...     return batch.mean(jnp.square(batch.x @ w + beta - batch.y)) + 0.1 * beta**2
    >>> objective = custom(
    ...     data, value, init=lambda key: jnp.zeros(3), init_personal=lambda key: jnp.zeros(()), convex=True,
    ...     predict=lambda model, x: x @ model[0] + model[1],
    ... )
    >>> objective.clients
    6
    """
    for label, block in {"init": init, "init_personal": init_personal}.items():
        if not callable(block):
            raise ValueError(f"{label} must be a function of a key that gives a start, got {type(block).__name__}")
    if init is nothing and init_personal is nothing:
        raise ValueError("an objective needs a shared or a personal part: give init, init_personal, or both")

    def given(data: FederatedData) -> Constants:
        if constants is None:
            raise ValueError(f"the objective {name} has no constants: give step sizes, or constants=Constants(...)")
        return constants if isinstance(constants, Constants) else constants(data)

    return Objective(name, count_training(data), init, init_personal, value, deploy, predict, given, convex=convex)
