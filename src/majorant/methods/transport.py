"""FedMM-OT: one optimal transport map from what all clients have to a public reference.

Hospitals whose data differ learn a map that carries their samples onto a distribution for which a model exists already;
no sample leaves a hospital. The problem is `surrogates.transport_potentials`, the method `best_response`: clients take
a gradient step on a convex potential, the server aggregates by Adam and fits the conjugate on the reference.

Beside it: FedAdam and FedAvg on the same objective are `gradient_play`; the centralized method is `transport` on one
client; the affine map from federated means and covariances is `fedmm` with `surrogates.gaussian_map`.

Reference: Dieuleveut, Fort, Hegazy, Wai, *Federated majorize-minimization: beyond parameter aggregation*, 2025,
Section 7 and Algorithm 3.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import optax

from majorant.core import Algorithm
from majorant.data.federated import FederatedData
from majorant.math.checks import check_range
from majorant.methods.best_response import best_response
from majorant.models.base import Spec
from majorant.models.convex import Potential, dense_icnn
from majorant.solvers import Solver, local_sgd
from majorant.solvers.schedules import Schedule, cosine
from majorant.surrogates.transport import Sampler, transport_potentials


def transport(
    data: FederatedData | Spec,
    reference: np.ndarray | Sampler,
    *,
    network: Potential | None = None,
    loss: str = "max-min",
    cycle: float = 1.0,
    lr: float = 2e-3,
    inner_steps: int = 10,
    alpha: float = 0.0,
    batch_size: int = 256,
    local: Solver | None = None,
    schedule: Schedule = cosine(),  # noqa: B008 - a record of a pure function
) -> Algorithm:
    """FedMM-OT: `best_response` on convex potentials, whose ``predict`` transports samples onto the reference.

    ``reference`` are public samples (m, d), or a function that draws them. ``network`` is a convex potential of
    `majorant.models` (default: `dense_icnn`), ``loss`` "max-min" or "cycle" with weight ``cycle``. ``lr`` is Adam's,
    for ω along the server's H and for ``inner_steps`` steps on the conjugate; it falls along ``schedule``. ``alpha`` is
    that of `best_response`. Samples should be centred and of size 1: `FederatedTransport` takes care of that.

    >>> import majorant as mj
    >>> rng = np.random.default_rng(0)
    >>> data = mj.FederatedData.unlabelled(rng.normal(size=(60, 2)), clients=np.arange(60) % 3)
    >>> mj.transport(data, rng.normal(2.0, 1.0, (50, 2)), batch_size=16).name  # to be simulated as any other
    'fedmm-ot:max-min'
    """
    spec = data if isinstance(data, Spec) else data.spec
    if len(spec.features) != 1:
        raise ValueError(f"transport maps move vectors, but samples have shape {spec.features}: flatten them first")
    check_range("lr", lr, above=0)
    network = network or dense_icnn(spec.features[0])
    if network.dimension != spec.features[0]:
        raise ValueError(f"the network is for {network.dimension} features, and samples have {spec.features[0]}")
    problem = transport_potentials(network, reference, loss=loss, cycle=cycle, batch=batch_size)
    options: dict[str, Any] = {"inner_steps": inner_steps, "alpha": alpha, "schedule": schedule}
    algorithm = best_response(
        problem,
        local=local or local_sgd(0.01, steps=1, batch_size=batch_size),
        server=optax.adam(lr),
        inner=optax.adam(lr),
        **options,
    )
    return algorithm._replace(name=f"fedmm-ot:{loss}")
