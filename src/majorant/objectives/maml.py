"""MAML: one model from which every client is one gradient step away from a good one.

::

    f_m(w) = f'_m(w − α ∇f'_m(w))

Both gradients are over the batch that ``value`` is given. The exact derivative of this goes through the inner gradient;
the first-order one takes the inner gradient for a constant, so that no second derivatives are needed: there, ``value``
is the same number and its gradient is ∇f'_m at the adapted point. f_m is not convex, even where f'_m is, and over a
batch it is not an unbiased estimate of f_m: solvers that need constants or single samples do not apply.

``deploy`` gives w; ``adapt`` takes the gradient step on a client's own samples, before it predicts.

References: Hanzely, Zhao, Kolar, TMLR 2023, (19); Fallah, Mokhtari, Ozdaglar, NeurIPS 2020; Finn et al., ICML 2017.
"""

from __future__ import annotations

from typing import Unpack

import jax

from majorant.core import Tree
from majorant.data.federated import FederatedData
from majorant.math.checks import check_range
from majorant.objectives.base import Constants, Objective
from majorant.objectives.base_model import BaseOptions, base_model, with_base_options
from majorant.objectives.blocks import nothing
from majorant.solvers import Batch


@with_base_options
def maml(
    data: FederatedData,
    *,
    alpha: float = 0.1,
    first_order: bool = False,
    **options: Unpack[BaseOptions],
) -> Objective:
    """A model to start one step of length ``alpha`` from; ``first_order`` leaves out second derivatives.

    >>> import majorant as mj
    >>> data = mj.data.synthetic_mixture(clients=6, dimension=3, seed=0)
    >>> maml(data, alpha=0.5, first_order=True).convex
    False
    """
    check_range("alpha", alpha, above=0)
    base = base_model(data, **options)

    def adapt(w: Tree, batch: Batch) -> Tree:
        gradient = jax.grad(base.value)(w, batch)
        if first_order:
            gradient = jax.lax.stop_gradient(gradient)
        return jax.tree.map(lambda a, g: a - alpha * g, w, gradient)

    def constants(data: FederatedData) -> Constants:
        raise ValueError("the MAML objective is not convex and has no constants: give step sizes")

    return Objective(
        name="maml",
        clients=base.clients,
        init=base.init,
        init_personal=nothing,
        value=lambda w, beta, batch, slot: base.value(adapt(w, batch), batch),
        deploy=lambda w, beta, slot: w,
        predict=base.predict,
        constants=constants,
        convex=False,
        adapt=adapt,
    )
