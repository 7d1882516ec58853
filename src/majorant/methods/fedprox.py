"""FedProx: FedAvg whose clients are held near the broadcast model while they train.

Round k: client t approximately minimises f_t(θ) + (μ/2) ‖θ − θ^{k−1}‖² from the broadcast θ^{k−1}, and the server takes
the mean θ^k = Σ_t (n_t/n) θ_t. With μ = 0 it is FedAvg.

Reference: Li, Sahu, Zaheer, Sanjabi, Talwalkar, Smith, *Federated optimization in heterogeneous networks*, MLSys 2020.
"""

from __future__ import annotations

import jax
import optax

from majorant.core import Algorithm, Tree, View
from majorant.math.checks import check_range
from majorant.methods.fedavg import hidden_samples, shared_model
from majorant.models.base import Model
from majorant.solvers import Solver, local_sgd


def fedprox(model: Model, *, mu: float = 0.1, local: Solver | None = None) -> Algorithm:
    """Federated averaging with a proximal term of weight ``mu``.

    >>> import majorant as mj
    >>> data = mj.data.synthetic_mixture(clients=10, dimension=5, seed=0)
    >>> run = mj.simulate(mj.fedprox(mj.models.linear(data), mu=0.1), data, rounds=5, seed=0)
    >>> run.summary()["algorithm"]
    'fedprox'
    """
    check_range("mu", mu, least=0)
    local = local or local_sgd()

    plain = shared_model("fedprox", model, local, pull_to_broadcast, {"mu": mu})
    return plain._replace(traits=hidden_samples(local))


def pull_to_broadcast(theta: Tree, view: View) -> jax.Array:
    """(μ/2) ‖θ − θ_broadcast‖²."""
    return view.hyper["mu"] / 2 * optax.tree.norm(optax.tree.sub(theta, view.value), squared=True)
