"""Every algorithm on one tiny problem: a new method adds a line here and inherits the protocol suite."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

import majorant as mj
from majorant import methods
from majorant.core import Algorithm, squared_norm
from majorant.data.federated import FederatedData, Ragged, offsets_of
from majorant.exchange.topology import Topology
from majorant.models.base import Model, Spec
from majorant.objectives import Constants, Objective, mixture, multi_task
from majorant.solvers import LocalSolver
from majorant.surrogates import BestResponse, Pair, regularizers

SIZES = (9, 11, 10, 12, 10, 11)  # one bucket; batches of 4 leave a smaller last one
CONSTANTS = Constants(mu=0.02, smooth_w=0.6, smooth_beta=0.6, sample_smooth_w=1.2, sample_smooth_beta=1.2)
UNSEEN = 2  # not the last, so that ids and places among the clients that train differ


class Entry(NamedTuple):
    """An algorithm of the zoo, and what is true of it."""

    make: Callable[[Model, LocalSolver], Algorithm]
    hyper: tuple[str, float, float] = ("lr", 0.1, 0.05)  # a hyperparameter with two values
    sends_points: bool = True  # an upload looks like the view's value: gossip could mix it
    rejects: bool = True  # absurd features make its update infinite or NaN; if not, it is not moved by them
    forgets: bool = True  # a rejected client counts as one without samples
    messages: int = len(SIZES) - 1  # uploads that travel in a round
    exchange: Callable[[], Any] | None = None  # who combines, where it is not a server

    @property
    def options(self) -> dict[str, Any]:
        """What `simulate` is told beside the algorithm."""
        key, value, _ = self.hyper
        return {"hyper": {key: value}} | ({} if self.exchange is None else {"exchange": self.exchange()})


ZOO: dict[str, Entry] = {
    "fedavg": Entry(lambda model, local: mj.fedavg(model, local=local)),
    "fedavg:adam": Entry(lambda model, local: mj.fedavg(model, local=local, server="adam"), ("server_lr", 0.1, 0.2)),
    "fedavg:hold": Entry(lambda model, local: mj.fedavg(model, local=local, absent="hold"), forgets=False),
    "fedavg_plus": Entry(lambda model, local: mj.fedavg_plus(model, local=local)),
    "fedprox": Entry(lambda model, local: mj.fedprox(model, mu=0.5, local=local), ("mu", 0.5, 2.0)),
    "fedem": Entry(lambda model, local: mj.fedem(model, components=2, local=local)),
    "fedem:shares": Entry(
        lambda model, local: mj.fedem(
            model, components=3, local=local, start="random", average="responsibilities", prune=0.1
        )
    ),
    "fedem:newton": Entry(
        lambda model, local: mj.fedem(model, components=2, local=mj.solvers.local_newton(3, l2=0.1)), ("l2", 0.1, 0.2)
    ),
    "gossip:ring": Entry(
        lambda model, local: mj.fedem(model, components=2, local=local),
        forgets=False,
        messages=2 * (len(SIZES) - 1),
        exchange=lambda: mj.gossip(mj.topology.ring()),
    ),
    "gossip:failing": Entry(
        lambda model, local: mj.fedavg(model, local=local, server="adam"),
        ("server_lr", 0.1, 0.2),
        forgets=False,
        messages=0,  # differs from seed to seed
        exchange=lambda: mj.gossip(mj.topology.sequence(failing(), mj.topology.star())),
    ),
    "gossip:statistics": Entry(
        lambda model, local: fedmm_of(model, alpha=0.5),
        ("gamma", 0.5, 0.25),
        sends_points=False,
        forgets=False,
        messages=0,
        exchange=lambda: mj.gossip(mj.topology.ring()),
    ),
    "local": Entry(lambda model, local: mj.local(model, local=local)),
    "ditto": Entry(lambda model, local: mj.ditto(model, mu=0.5, local=local), ("mu", 0.5, 2.0)),
    "fedper": Entry(lambda model, local: methods.fedper(model, personal=["0.bias"], local=local)),
    "fedrep": Entry(lambda model, local: methods.fedrep(model, personal=["0.bias"], local=local)),
    "scaffold": Entry(lambda model, local: methods.scaffold(model, local=local), sends_points=False, forgets=False),
    "clustered": Entry(
        lambda model, local: mj.clustered(
            model, clients=len(SIZES), local=local, tolerance_mean=0.15, tolerance_max=0.01
        )
    ),
    "pfedme": Entry(lambda model, local: mj.pfedme(model, mu=0.5, local=local), ("mu", 0.5, 2.0)),
    "pfedme:paper": Entry(
        lambda model, local: mj.pfedme(model, mu=0.5, local=local, variant="paper", inner_steps=2),
        ("outer_lr", 0.1, 0.2),
    ),
    "apfl:adaptive": Entry(lambda model, local: mj.apfl(model, local=local, adaptive=True), ("alpha", 0.5, 0.25)),
    "surrogate:bohning": Entry(
        lambda model, local: mj.surrogate_optimization(mj.surrogates.logistic_bound(problem(), kind="bohning")),
        ("l2", 0.1, 0.5),
    ),
    "lsgd": Entry(lambda model, local: methods.lsgd(objective(model), tau=3, lr=0.1), forgets=False),
    "acd": Entry(
        lambda model, local: methods.acd(objective(model), constants=CONSTANTS),
        ("smooth_w", 0.6, 0.9),
        sends_points=False,
        forgets=False,
    ),
    "asvrcd": Entry(
        lambda model, local: methods.asvrcd(objective(model), constants=CONSTANTS, rho=0.3),
        ("lr", 0.1, 0.05),
        sends_points=False,
        forgets=False,
        messages=0,  # depends on the coins
    ),
    "asvrcd:replay": Entry(
        lambda model, local: methods.asvrcd(
            objective(model), constants=CONSTANTS, rho=0.3, absent="replay", warm_up=True
        ),
        ("lr", 0.1, 0.05),
        sends_points=False,
        forgets=False,
        messages=0,
    ),
    "l2sgd_plus": Entry(
        lambda model, local: methods.l2sgd_plus(
            mixture(problem(), model=model, lambda_=0.5, l2=0.1)._replace(convex=True),
            constants=CONSTANTS,
            p_w=0.2,
            lr=0.5,
        ),
        ("lr", 0.5, 0.3),
        sends_points=False,
    ),
    "fedmm": Entry(
        lambda model, local: fedmm_of(model),
        ("gamma", 0.5, 0.25),
        sends_points=False,
    ),
    "best_response": Entry(
        lambda model, local: methods.best_response(
            learnt_prior(model), local=local, server=optax.sgd(0.5), inner=optax.sgd(0.1), inner_steps=2, alpha=0.3
        ),
        ("server_scale", 1.0, 0.5),
        sends_points=False,
        forgets=False,  # all samples are counted before round 1
    ),
    "mocha": Entry(
        lambda model, local: mj.mocha(model, clients=len(SIZES), lambda_=0.5, omega_every=2),
        ("lambda", 0.5, 0.1),
        sends_points=False,
        rejects=False,
    ),
    "weighted_sum": Entry(
        lambda model, local: mj.tradeoffs.weighted_sum(
            model,
            [mj.criteria.l1(0.2), mj.criteria.squared_norm()],
            local=mj.local_sgd(0.1, epochs=1, batch_size=4, schedule=mj.schedules.multi_step()),
            step="implicit",
            ramp=0.5,
        ),
        ("lambda", 0.3, 0.1),
    ),
    "chebyshev": Entry(
        lambda model, local: mj.tradeoffs.chebyshev(
            model,
            mj.criteria.squared_norm(),
            clients=len(SIZES),
            local=local,
            mirror_rate=0.5,
            criteria_lr=0.3,
            output="average",
        ),
        ("mirror_rate", 0.5, 2.0),
        sends_points=False,
    ),
    "q_ffl": Entry(
        lambda model, local: mj.methods.q_ffl(model, q=2.0, local=local), ("q", 2.0, 0.5), sends_points=False
    ),
    "fedmgda_plus": Entry(lambda model, local: mj.methods.fedmgda_plus(model, local=local), ("server_lr", 0.1, 0.5)),
}


# One for each way in which rounds need the engines: plain sums, a network, all uploads side by side (points, others),
# a set-up round, and messages of several parts.
MECHANISMS = ("fedem", "gossip:ring", "clustered", "mocha", "lsgd", "asvrcd")


def fedmm_of(model: Model, alpha: float | None = None) -> Algorithm:
    """FedMM on minibatches, with a penalty."""
    surrogate = mj.surrogates.proximal_gradient(model, rho=0.3, regularizer=regularizers.elastic_net(0.02, 0.1))
    return mj.fedmm(surrogate, problem(), step=mj.steps.constant(0.5), batch_size=4, alpha=alpha)


def learnt_prior(model: Model) -> BestResponse:
    """A model on the clients that is pulled to another on the server, which is pulled to 0."""

    def pull(omega: Any, theta: Any, batch: Any, hyper: Any) -> Any:
        return (squared_norm(jax.tree.map(jnp.subtract, omega, theta)) + 0.1 * squared_norm(theta)) * batch

    return BestResponse(
        name="prior",
        init=lambda key: Pair(model.init(key), model.init(key)),
        losses=lambda omega, theta, x, y: model.losses(omega, x, y),
        draw=lambda key: jax.random.uniform(key, (2,)),
        public=pull,
        predict=lambda pair, x: model.predict(pair.omega, x),
    )


def failing() -> Topology:
    """Random pairs, half of which fail to meet."""
    return mj.topology.matching(link_failure=0.5)


def solver() -> LocalSolver:
    """Minibatches, momentum that stays with the client, and a schedule."""
    return mj.local_sgd(0.1, epochs=1, batch_size=4, momentum=0.5, schedule=mj.schedules.multi_step())


@functools.cache
def algorithm(name: str) -> Algorithm:
    """One object for each name: what it has compiled is used again."""
    return ZOO[name].make(model(), solver())


def objective(model: Model) -> Objective:
    """A shared and a personal block for solvers that have both; convex, as the model is linear in its parameters."""
    return multi_task(problem(), model=model, lambda_=0.5, l2=0.1)._replace(convex=True)


def model() -> Model:
    """Logistic regression on the features and a product of two of them, which overflows where features are absurd."""
    linear = mj.models.linear(Spec((4,), classes=2))
    apply = lambda params, x: linear.apply(params, jnp.concatenate([x, x[:, :1] * x[:, 1:2]], axis=1))
    return mj.models.from_functions(linear.init, apply, problem())


@functools.cache
def problem() -> FederatedData:
    """Six clients, one of them unseen, with three features, two classes and opposite tendencies."""
    rng = np.random.default_rng(0)
    directions = np.array([[1.0, -1.0, 0.5], [-1.0, 1.0, 0.5]])
    return federated([sample(rng, n, directions[t % 2]) for t, n in enumerate(SIZES)], unseen=(UNSEEN,))


@functools.cache
def training() -> FederatedData:
    """The five clients of `problem` that train, without the unseen one: less to compile where nobody joins."""
    whole = problem()
    return federated([whole.train.client(t) for t in range(len(SIZES)) if t != UNSEEN])


def sample(rng: np.random.Generator, n: int, direction: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Samples of one client: the sign of a noisy linear score."""
    x = rng.normal(size=(n, len(direction)))
    return x.astype(np.float32), (x @ direction + 0.3 * rng.normal(size=n) > 0).astype(np.int32)


def federated(
    clients: list[tuple[np.ndarray, np.ndarray]], unseen: tuple[int, ...] = (), classes: int = 2
) -> FederatedData:
    """Data in which every client tests on its training samples."""
    x, y = (np.concatenate(parts) for parts in zip(*clients, strict=True))
    part = Ragged(x, y, offsets_of(np.array([len(y) for _, y in clients])))
    empty = Ragged(x[:0], y[:0], np.zeros(len(clients) + 1, np.int64))
    mask = np.isin(np.arange(len(clients)), unseen)
    names = tuple(f"client {t}" for t in range(len(clients)))
    return FederatedData(part, empty, part, mask, names, tuple(range(classes)), "tiny")
