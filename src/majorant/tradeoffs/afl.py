"""AFL, agnostic federated learning: the model whose worst client's loss is smallest.

It is Chebyshev scalarization without criteria, with reference 0 and equal preferences (see `chebyshev`)::

    min_Θ max_m C_m(Θ)

Its authors take projected steps on the mixture ρ of clients; here they are multiplicative.

Reference: Mohri, Sivek, Suresh, *Agnostic federated learning*, ICML 2019.
"""

from __future__ import annotations

from majorant.core import Algorithm
from majorant.models.base import Model
from majorant.solvers import Solver
from majorant.tradeoffs.chebyshev import chebyshev


def afl(
    model: Model,
    *,
    clients: int,
    local: Solver | None = None,
    mirror_rate: float = 0.1,
    output: str = "last",
) -> Algorithm:
    """Agnostic federated learning: the model whose worst agent's loss is smallest.

    >>> import majorant as mj
    >>> data = mj.data.synthetic_mixture(clients=5, dimension=4, seed=0)
    >>> mj.simulate(mj.tradeoffs.afl(mj.models.linear(data), clients=5), data, rounds=2).algorithm.name
    'afl'
    """
    worst = chebyshev(model, clients=clients, local=local, mirror_rate=mirror_rate, output=output)
    return worst._replace(name="afl")
