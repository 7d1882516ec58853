"""FedAvg+: FedAvg, after which every client tunes the shared model on its own samples.

Training is FedAvg's. Before a client deploys the final θ, it passes once over its own training samples::

    θ_t = LocalSolver(θ, samples of client t)

The learning rate is the full one, whatever the schedule has come to by then, and moments start anew. (In the code that
the FedEM authors released, the schedule of the tuned copy advances with evaluations, not with rounds, so that it hardly
decays.) Clients that did not take part in training tune in the same way.

References: Jiang, Konečný, Rush, Kannan, *Improving federated learning personalization via model agnostic meta
learning*, 2019; Marfoq et al., NeurIPS 2021, Sec. 4 (a single pass over the local samples).
"""

from __future__ import annotations

import jax

from majorant.core import Algorithm, ClientData, Key, Server, Tree, View, as_hyper
from majorant.methods.fedavg import fedavg
from majorant.models.base import Model
from majorant.solvers import LocalSolver, Solver, Task, local_sgd
from majorant.solvers.schedules import constant


def fedavg_plus(model: Model, *, local: Solver | None = None, tuning: Solver | None = None) -> Algorithm:
    """Federated averaging with local tuning.

    ``tuning`` is by default ``local`` for one epoch at its full learning rate, whatever the schedule has made of it by
    then; it shares the hyperparameters. A solver of its own has hyperparameters of its own, named ``tuning_lr`` and so
    on.

    >>> import majorant as mj
    >>> data = mj.data.synthetic_mixture(clients=10, dimension=5, seed=0)
    >>> run = mj.simulate(mj.fedavg_plus(mj.models.linear(data)), data, rounds=5, seed=0)
    >>> run.summary()["algorithm"]
    'fedavg+'
    """
    local = local or local_sgd()
    trained = fedavg(model, local=local)
    if tuning is not None:
        return tuned(trained, model, tuning)
    if isinstance(local, LocalSolver):
        one_pass = local.plan._replace(epochs=1, steps=None)
        local = local._replace(plan=one_pass, schedule=constant())
    return tuned(trained, model, local, prefix="")


def tuned(algorithm: Algorithm, model: Model, tuning: Solver, *, prefix: str = "tuning_") -> Algorithm:
    """The algorithm, with models tuned on their own client's samples before they are deployed.

    For algorithms that deploy parameters of ``model``. Moments start anew. The tuning's hyperparameters are the
    server's, under their names with ``prefix``.
    """
    solver: Solver = tuning._replace(keep_moments=False) if isinstance(tuning, LocalSolver) else tuning

    own_init, own_deployment = algorithm.server.init, algorithm.deployment

    def init(key: Key) -> Server:
        server = own_init(key)
        own = as_hyper({prefix + name: value for name, value in solver.hyper.items()})
        return server._replace(hyper=own | server.hyper)

    def personalize(view: View, client: Tree, data: ClientData, key: Key) -> Tree:
        theta = own_deployment.personalize(view, client, data, jax.random.fold_in(key, 1))
        own = view._replace(hyper={name: view.hyper[prefix + name] for name in solver.hyper})
        return solver.solve(model, Task(own, data, jax.random.fold_in(key, 2)), theta, solver.moments(theta)).params

    return algorithm._replace(
        name=f"{algorithm.name}+",
        server=algorithm.server._replace(init=init),
        deployment=own_deployment._replace(personalize=personalize),
    )
