"""FedBN: FedAvg in which every client keeps its own normalisation layers.

Normalisation layers hold what a client's features are like (their scale, their shift, running statistics), which may
differ from client to client where all else is the same: other scanners, other sensors. So these stay, and the rest is
averaged. It is FedPer whose personal part is the normalisation layers::

    w: all parameters but those of normalisation layers,   β_t: scales, shifts and statistics of these

Parameters belong to a normalisation layer where a part of their name has "norm" in it, where the layer has nothing but
a ``scale`` and a ``bias``, as flax's have, or where it has a ``running_mean``, as PyTorch's. (Other networks: `fedper`
with the names of what is personal.)

Reference: Li, Jiang, Zhang, Kamp, Dou, *FedBN: federated learning on non-IID features via local batch normalization*,
ICLR 2021, Algorithm 1.
"""

from __future__ import annotations

import jax

from majorant.core import Algorithm
from majorant.methods.fedper import fedper
from majorant.models.base import Model, by_place, normalisations
from majorant.solvers import Solver


def fedbn(model: Model, *, local: Solver | None = None) -> Algorithm:
    """Federated averaging with personal normalisation layers.

    >>> import majorant as mj
    >>> data = mj.data.synthetic_mixture(clients=10, dimension=5, seed=0)
    >>> algorithm = mj.methods.fedbn(mj.models.mlp(data, hidden=(4,), norm="layer"))
    >>> sorted(mj.simulate(algorithm, data, rounds=2, seed=0).server.value)
    ['0.bias', '0.weight', '1.bias', '1.weight']
    """
    names = norm_names(model)
    if not names:
        raise ValueError(
            f"fedbn keeps normalisation layers personal, and {model.name} has none: take mlp:norm=layer, a flax model "
            "with normalisation, or fedper with the names of what is personal"
        )
    return fedper(model, personal=names, local=local)._replace(name="fedbn")


def norm_names(model: Model) -> list[str]:
    """The parameters of normalisation layers, by their places in the tree."""
    return normalisations([name for name, _ in by_place(jax.eval_shape(model.init, jax.random.key(0)))])
