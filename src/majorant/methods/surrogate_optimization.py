"""Federated surrogate optimization: every client goes down a majorant of its objective, and the server averages.

The objective is f(u, v_1, …, v_T) = Σ_t (n_t/n) f_t(u, v_t), with u shared and v_t private. Round k, on client t, from
the broadcast u^{k−1} and its own v_t^{k−1}::

    g     = a partial first-order surrogate of f_t near (u^{k−1}, v_t^{k−1})
    v_t^k = argmin_v g(u^{k−1}, v)                                          exactly; it stays on the client
    u_t^k = LocalSolver(g(·, v_t^k)) from u^{k−1}, or argmin_u g(u, v_t^k)  where the surrogate knows it

and the server averages, u^k = Σ_t (n_t/n) u_t^k. FedEM, pFedMe and gradient descent are instances: they differ in the
surrogate alone. As printed, Algorithm 3's solver starts at u_t^{k−1}, is given v_t^{k−1} and returns Θ; the broadcast
u^{k−1} and u are meant. Where condition 3 holds as the proofs use it, ∇_u g is the same at v_t^{k−1} and v_t^k.

Reference: Marfoq, Neglia, Bellet, Kameni, Vidal, *Federated Multi-Task Learning under a Mixture of Distributions*,
NeurIPS 2021, Algorithm 3, Appendices F and H.
"""

from __future__ import annotations

from typing import NamedTuple

import jax

from majorant.core import (
    Algorithm,
    ClientData,
    ClientSide,
    Deployment,
    Diagnostics,
    Key,
    Server,
    ServerSide,
    Tree,
    Upload,
    View,
    as_hyper,
    select,
)
from majorant.methods._convergence import conclude
from majorant.solvers import Batch, Solver, Task, whole
from majorant.solvers.descent import inexactness
from majorant.surrogates.partial import Coefficients, PartialSurrogate


class Client(NamedTuple):
    """What stays with a client: its own part of the point, and its optimizer's moments."""

    v: Tree
    moments: Tree


class Personal(NamedTuple):
    """A personalized model: the shared part and one client's own."""

    u: Tree
    v: Tree


def surrogate_optimization(surrogate: PartialSurrogate, *, local: Solver | None = None) -> Algorithm:
    """Federated majorization-minimization with any `PartialSurrogate`.

    ``local`` minimises the surrogate in u, on minibatches; None takes the surrogate's exact minimiser. The numbers in
    ``surrogate.hyper`` are hyperparameters of the run beside the solver's own.

    >>> import majorant as mj
    >>> data = mj.data.synthetic_mixture(clients=10, dimension=5, seed=0)
    >>> surrogate = mj.surrogates.em_surrogate(mj.models.linear(data), components=2)
    >>> run = mj.simulate(mj.surrogate_optimization(surrogate, local=mj.local_sgd(0.1)), data, rounds=5, seed=0)
    >>> run.summary()["algorithm"]
    'surrogate:em'
    """
    if local is None and surrogate.minimize_u is None:
        raise ValueError(
            f"the {surrogate.name} surrogate has no exact minimiser in u: give a local solver, as in "
            "local=local_sgd(0.1)"
        )
    twice = surrogate.hyper.keys() & (local.hyper if local else {})
    if twice:
        raise ValueError(
            f"the {surrogate.name} surrogate and its local solver both have a hyperparameter {', '.join(twice)}: give "
            "the solver a value that switches it off"
        )

    def init(key: Key) -> Server:
        return Server(surrogate.init(key), as_hyper(surrogate.hyper | (local.hyper if local else {})))

    def first_moments(view: View) -> Tree:
        return local.moments(view.value) if local else ()

    def start(view: View, data: ClientData, key: Key) -> Client:
        return Client(surrogate.at(view.hyper).init_v(data, key), first_moments(view))

    def solve(
        view: View, coefficients: Coefficients, v: Tree, moments: Tree, data: ClientData, key: Key
    ) -> tuple[Tree, Tree]:
        """u_t and the moments to keep, from the broadcast u."""
        s = surrogate.at(view.hyper)
        if local is None:
            return s.minimize_u(coefficients, v, data), ()  # type: ignore[misc]

        def g(u: Tree, batch: Batch) -> jax.Array:
            x, rows = batch.x
            return s.value(coefficients._replace(sample=rows), u, v, batch._replace(x=x))

        with_rows = data._replace(x=(data.x, coefficients.sample))  # type: ignore[arg-type]
        return local.minimize(g, Task(view, with_rows, key), view.value, moments)[:2]

    def majorize(view: View, client: Client, data: ClientData) -> tuple[Coefficients, Tree]:
        """What describes g near (u, v_t), and its minimiser in v."""
        s = surrogate.at(view.hyper)
        coefficients = s.majorize(view.value, client.v, data)
        v = s.minimize_v(coefficients, view.value, data)
        return coefficients, select(data.size > 0, v, client.v)

    def update(view: View, client: Client, data: ClientData, key: Key) -> tuple[Upload, Client]:
        coefficients, v = majorize(view, client, data)
        u, moments = solve(view, coefficients, v, client.moments, data, key)
        u = select(data.size > 0, u, view.value)
        loss = surrogate.at(view.hyper).value(coefficients, view.value, client.v, whole(data))  # f_t, as g touches it
        return Upload(u, data.size.astype(loss.dtype), {"loss": loss}), Client(v, moments)

    def join(view: View, data: ClientData, key: Key) -> Client:
        s = surrogate.at(view.hyper)
        v = select(data.size > 0, s.fit_v(view.value, data, key), s.init_v(data, key))
        return Client(v, first_moments(view))

    def personalize(view: View, client: Client, data: ClientData, key: Key) -> Personal:
        adapt = surrogate.at(view.hyper).adapt
        return Personal(view.value, client.v if adapt is None else adapt(view.value, client.v, data))

    def measure(view: View, client: Client, data: ClientData, key: Key) -> dict[str, Tree]:
        s = surrogate.at(view.hyper)
        f, gradient = jax.value_and_grad(s.objective)(view.value, client.v, data)
        _, v = majorize(view, client, data)
        return {
            "gradient": gradient,
            "v_gain": f - s.objective(view.value, v, data),
            "v_distance": s.distance(client.v, v),
            "objective": f,
        }

    def probe(view: View, client: Client, data: ClientData, key: Key) -> dict[str, jax.Array]:
        """α of Assumption 9': (g(u_t) − g*) / (g(u^{k−1}) − g*); (363) prints another right side, see (360)."""
        coefficients, v = majorize(view, client, data)
        g = lambda u: surrogate.at(view.hyper).value(coefficients, u, v, whole(data))
        u, _ = solve(view, coefficients, v, client.moments, data, key)
        return {"alpha": inexactness(g, view.value, u)}

    return Algorithm(
        name=f"surrogate:{surrogate.name}",
        server=ServerSide(init),
        client=ClientSide(update, start),
        deployment=Deployment(
            personalize=personalize,
            predict=lambda model, x: surrogate.predict(model.u, model.v, x),
            join=join,
            mixture=(lambda model: surrogate.mixture(model.v)) if surrogate.mixture else None,  # type: ignore[misc]
        ),
        diagnostics=Diagnostics(None, measure, conclude, probe),
    )
