"""WS2: one part of the model's parameters is shared by all clients, the rest is each client's own.

::

    f_m(w, β_m) = f'_m([s w, β_m]),     s = M^{−1/2}

Shared lower layers are a common representation with personal heads; shared upper layers the reverse. Constants, times
M: μ = μ', L^w = L^β = L', 𝓛^w = 𝓛^β = 𝓛'. (Table 2 has them without the 1/M, and Lemma 4 has it for L^w only.)

References: Hanzely, Zhao, Kolar, TMLR 2023, (16); Arivazhagan et al., 2019; Liang et al., 2020.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Unpack

import jax

from majorant.core import Tree
from majorant.data.federated import FederatedData
from majorant.objectives.base import Constants, Objective
from majorant.objectives.base_model import BaseOptions, Curvature, base_model, with_base_options
from majorant.objectives.blocks import block_constants, scale_of, scaled, smoothness
from majorant.objectives.splits import split_by_column, split_by_name


@with_base_options
def weight_sharing(
    data: FederatedData,
    *,
    shared: Sequence[int | str] | None = None,
    personal: Sequence[int | str] | None = None,
    rescale: bool = True,
    **options: Unpack[BaseOptions],
) -> Objective:
    """A model whose parameters are in part shared, in part personal: name the one part, the other is the rest.

    For the linear model, whole numbers are the columns of features and "bias" is the bias. For a given model, names
    are places in its tree of parameters: ``personal=["1"]`` is the second layer of a list, ``"1.bias"`` its bias.

    >>> import majorant as mj
    >>> data = mj.data.synthetic_mixture(clients=6, dimension=3, seed=0)
    >>> objective = weight_sharing(data, personal=["bias"])
    >>> jax.tree.map(jax.numpy.shape, objective.init_personal(jax.random.key(0)))
    {'bias': (1,)}
    >>> network = weight_sharing(data, model=mj.models.mlp(data, hidden=(8,)), personal=["1"])
    >>> sorted(network.init(jax.random.key(0)))
    ['0.bias', '0.weight']
    """
    base = base_model(data, **options)
    s = scale_of(base.clients, rescale)
    if base.features is not None:
        split = split_by_column(base.features, shared, personal, bias=base.bias)
    else:
        split = split_by_name(jax.eval_shape(base.init, jax.random.key(0)), shared, personal)

    def merge(w: Tree, beta: Tree, slot: jax.Array | None = None) -> Tree:
        return split.merge(scaled(w, s), beta)

    def constants(f: Curvature) -> Constants:
        form, both = [[f.mu, 0.0], [0.0, f.mu]], smoothness(f, 1)
        return block_constants(base.clients, rescale, [form], both, both)

    return Objective(
        name="weight-sharing",
        init=lambda key: scaled(split.shared(base.init(key)), 1 / s),
        init_personal=lambda key: split.personal(base.init(key)),
        value=lambda w, beta, batch, slot: base.value(merge(w, beta), batch),
        deploy=merge,
        **base.fields(constants),
    )
