"""FedRep: a shared representation with personal heads, trained in turn: first the head, then the representation.

The objective is FedPer's, Σ_t (n_t/n) f_t([w, β_t]). Round k, on client t, from the broadcast w^{k−1}::

    β_t = LocalSolver(β ↦ f_t([w^{k−1}, β]), from β_t)        the head, with the representation as it was sent
    w_t = LocalSolver(w ↦ f_t([w, β_t]), from w^{k−1})        the representation, with the new head

β_t stays, and the server averages: w^k = Σ_t (n_t/n) w_t. `head_passes` solves of the head, each of the local solver's
length, stand before one of the representation: heads are small, and may be trained for longer.

Reference: Collins, Hassani, Mokhtari, Shakkottai, *Exploiting shared representations for personalized federated
learning*, ICML 2021, Algorithm 1.
"""

from __future__ import annotations

from collections.abc import Sequence

import jax

from majorant.core import Algorithm, Tree
from majorant.math.checks import check_whole
from majorant.methods.fedper import Client, of_part, partly_personal, split_model
from majorant.models.base import Model
from majorant.solvers import Solver, Task, local_sgd


def fedrep(
    model: Model, *, personal: Sequence[str] = (), head_passes: int = 1, local: Solver | None = None
) -> Algorithm:
    """Alternating minimisation of personal heads and a shared representation.

    ``personal`` names the head's parameters, as in `fedper`: by default the last layer. ``head_passes`` is how often
    the local solver goes over the head before it turns to the representation.

    >>> import majorant as mj
    >>> data = mj.data.synthetic_mixture(clients=10, dimension=5, seed=0)
    >>> run = mj.simulate(mj.methods.fedrep(mj.models.mlp(data, hidden=(4,))), data, rounds=5, seed=0)
    >>> run.summary()["algorithm"]
    'fedrep'
    """
    check_whole("head_passes", head_passes)
    local = local or local_sgd()
    split = split_model(model, personal, "fedrep")

    def train(task: Task, w: Tree, client: Client) -> tuple[Tree, Client, jax.Array]:
        beta, (of_head, of_body) = client.beta, client.moments
        head = of_part(model, lambda beta: split.merge(w, beta), split.personal)
        for turn in range(head_passes):
            own = task._replace(key=jax.random.fold_in(task.key, turn))
            beta, of_head, _ = local.solve(head, own, beta, of_head)
        body = of_part(model, lambda w: split.merge(w, beta), split.shared)
        w, of_body, loss = local.solve(body, task, w, of_body)
        return w, Client(beta, (of_head, of_body)), loss

    return partly_personal(
        "fedrep", model, split, local, train, lambda w, beta: (local.moments(beta), local.moments(w))
    )
