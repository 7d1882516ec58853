"""FedEM: every client's data is a mixture of a few shared distributions, in proportions of its own.

The objective is the negative log-likelihood f(Θ, Π) = −(1/n) Σ_t Σ_i log Σ_m π_tm exp(−l(θ_m; s_ti)). Round k, on
client t, from the broadcast θ^{k−1} and its own π_t^{k−1}::

    q_im  ∝ π_tm · exp(−l(θ_m; s_ti))                    E-step, in log space                               (8)
    π_tm  = (1/n_t) Σ_i q_im                             M-step for the client's own weights: they stay     (9)
    θ_m,t = LocalSolver(θ_m, samples weighted by q_·m)   M-step for the components, approximately          (10)

and the server averages: θ_m = Σ_t (n_t/n) θ_m,t. A client predicts with Σ_m π_tm p(y | x, θ_m), a mixture of
probabilities. As printed, Algorithm 2's E-step reads values of round k that are only computed after it; the values of
round k − 1 are meant. Its gradient is a sum over the minibatch; dividing by the batch size is meant. Options that are
not the paper's, for averages by responsibilities and for components that are dropped, are in `_shares`.

Reference: Marfoq, Neglia, Bellet, Kameni, Vidal, *Federated Multi-Task Learning under a Mixture of Distributions*,
NeurIPS 2021, Algorithms 1 and 2.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from majorant.core import (
    Algorithm,
    ClientData,
    ClientSide,
    Deployment,
    Key,
    Server,
    ServerSide,
    Traits,
    Tree,
    Upload,
    Uploads,
    View,
    as_hyper,
    blockwise,
    masked_mean,
)
from majorant.math.checks import check_range, check_whole
from majorant.math.mixture_weights import fit_weights
from majorant.methods import _convergence as convergence
from majorant.methods._shares import Components, check_average, moved_by_own, own_weights, remaining
from majorant.methods.fedavg import counting_absent
from majorant.models.base import Model
from majorant.solvers import Solver, Task, local_sgd


class Client(NamedTuple):
    """What stays with a client: its mixture weights and its optimizer's moments."""

    pi: jax.Array  # (M,)
    moments: Tree


class Mixture(NamedTuple):
    """A personalized model: the shared components and one client's weights."""

    theta: Tree  # (M, ...)
    pi: jax.Array  # (M,)


def fedem(
    model: Model,
    *,
    components: int = 3,
    local: Solver | None = None,
    start: str = "uniform",
    average: str = "samples",
    prune: float | None = None,
    em_steps: int | None = None,
    absent: str = "excluded",
) -> Algorithm:
    """Federated expectation-maximization over ``components`` shared models.

    ``start`` says where the clients' weights start: "uniform", or "random", drawn uniformly from the simplex.
    ``average`` "samples" is the paper's, with which a component that explains few samples moves little;
    "responsibilities" divides its displacement by its share of all samples. ``prune`` permanently drops components
    whose share falls below it, so that ``components`` may be more than needed. Both send π_t beside the components.
    ``em_steps`` is the number of EM steps by which an unseen client fits its weights to the trained components; None
    runs them to convergence (the likelihood is concave in π; the paper proposes a single step). ``absent`` says what a
    round's average does with clients that did not take part: "excluded" averages those that did, "hold" counts the
    others with the old model, as the paper's released code does. All components of a client see the same minibatches.

    >>> import majorant as mj
    >>> data = mj.data.synthetic_mixture(clients=10, dimension=5, seed=0)
    >>> run = mj.simulate(mj.fedem(mj.models.linear(data), components=2), data, rounds=5, seed=0)
    >>> model = run.personalize((data.train.x[:20], data.train.y[:20]))
    >>> model.predict_proba(data.test.x[:4]).shape
    (4, 2)
    """
    check_whole("components", components)
    check_whole("em_steps", em_steps, least=0, optional=True)
    check_average(average, model)
    if start not in ("uniform", "random"):
        raise ValueError(f"start is 'uniform' or 'random', not {start!r}")
    if prune is not None:
        check_range("prune", prune, above=0, below=1 / components)
    local = local or local_sgd()
    uniform = jnp.full(components, 1 / components)
    shares_known = prune is not None or average == "responsibilities"
    if shares_known and absent != "excluded":
        raise ValueError(f"absent={absent!r} averages components alone: leave out prune and average")
    of = (lambda value: value.theta) if shares_known else (lambda value: value)
    # Components go side by side, but one after the other where a model's intermediate results should stay in the cache.
    each = jax.vmap if model.at_once is None else lambda f: lambda *a: jax.lax.map(lambda b: f(*b), a)

    def init(key: Key) -> Server:
        theta = jax.vmap(model.init)(jax.random.split(key, components))
        return Server(Components(theta, uniform) if shares_known else theta, as_hyper(local.hyper))

    def combine(server: Server, view: View, uploads: Uploads) -> Server:
        """The server's step where it knows shares."""
        (theta, before), mean = server.value, uploads.mean()
        share = remaining(mean.share, before, prune or 0.0)
        moved = moved_by_own(model, theta, mean.theta, mean.share) if average == "responsibilities" else mean.theta
        return server._replace(value=Components(moved, share))

    def first(view: View, data: ClientData, key: Key) -> Client:
        pi = uniform if start == "uniform" else jax.random.dirichlet(key, jnp.ones(components))
        return Client(pi, jax.vmap(local.moments)(of(view.value)))

    def weights(view: View, pi: jax.Array) -> jax.Array:
        return own_weights(pi, view.value.share) if shares_known else pi

    def e_step(
        theta: Tree, pi: jax.Array, data: ClientData, size: jax.Array | None = None
    ) -> tuple[jax.Array, jax.Array]:
        """Responsibilities q (M, n), and the negative log-likelihood of each sample (n,)."""
        joint = jnp.log(pi)[:, None] - component_losses(theta, data, size)  # (M, n)
        return jax.nn.softmax(joint, axis=0), -jax.nn.logsumexp(joint, axis=0)  # shares add up to 1 at any loss

    def component_losses(theta: Tree, data: ClientData, size: jax.Array | None = None) -> jax.Array:
        def one(theta_m: Tree) -> jax.Array:
            losses = lambda x, y: model.losses(theta_m, x, y)
            return blockwise(losses, data.x, data.y, at_once=model.at_once, size=size)

        return each(one)(theta)  # (M, n), as the components' solvers take their weights

    def update(view: View, client: Client, data: ClientData, key: Key) -> tuple[Upload, Client]:
        theta, pi = of(view.value), weights(view, client.pi)
        q, loss = e_step(theta, pi, data, data.size)
        pi = jnp.where(data.size > 0, masked_mean(q.T, data), pi)
        solve = lambda theta_m, moments, q_m: local.solve(model, Task(view, data, key, q_m), theta_m, moments)
        theta, moments, _ = each(solve)(theta, client.moments, q)
        value = Components(theta, pi) if shares_known else theta
        upload = Upload(value, data.size.astype(q.dtype), {"loss": masked_mean(loss, data)})
        return upload, Client(pi, moments)

    def join(view: View, data: ClientData, key: Key) -> Client:
        theta = of(view.value)
        pi = fit_weights(component_losses(theta, data, data.size).T, data, weights(view, uniform), steps=em_steps)
        return Client(pi, jax.vmap(local.moments)(theta))

    def predict(mixture: Mixture, x: jax.Array) -> jax.Array:
        predictions = jax.vmap(lambda theta_m: model.predict(theta_m, x))(mixture.theta)  # (M, n, ...)
        return jnp.tensordot(mixture.pi, predictions, axes=1)

    algorithm = Algorithm(
        name="fedem",
        server=ServerSide(init, combine) if shares_known else ServerSide(init),
        client=ClientSide(update, first),
        deployment=Deployment(
            personalize=lambda view, client, data, key: Mixture(of(view.value), weights(view, client.pi)),
            predict=predict,
            join=join,
            mixture=lambda mixture: mixture.pi,
            model=model,
        ),
        traits=Traits(points=not shares_known),
        diagnostics=convergence.of_mixture(model, e_step, update, of, weights),
    )
    if prune is not None:
        left = lambda server: {"components": (server.value.share > 0).sum().astype(jnp.result_type(float))}
        algorithm = algorithm._replace(diagnostics=algorithm.diagnostics._replace(log=left))
    return counting_absent(algorithm, absent)
