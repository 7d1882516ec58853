"""FedMM with all clients, all samples, full steps and no compression is the centralized algorithm, for every surrogate.

Small problems for each of them, with samples that are spread unevenly over three clients, and in double precision. The
distance between FedMM's parameters and the centralized ones is relative, after every round; the objective may not rise.
A second table sets the Gaussian mixture beside scikit-learn's from the same start, the dictionary beside
`MiniBatchDictionaryLearning`, and the toy example of Remark 1 beside its closed form.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import majorant as mj
from majorant.app.reproduce import Context, Result
from majorant.core import Algorithm, ClientData, Server, Tree, round_key, squared_norm
from majorant.data.federated import FederatedData, Ragged, offsets_of
from majorant.engines import rounds as engine
from majorant.engines import set_up
from majorant.engines.messages import message_shapes
from majorant.engines.tally import empty_tally
from majorant.exchange import federation
from majorant.methods.mm import look, objective, pool
from majorant.surrogates import LinearSurrogate, regularizers

SIZES = (3, 9, 14)
ROUNDS = 6


class Case(NamedTuple):
    """A surrogate and samples for it."""

    surrogate: LinearSurrogate
    x: np.ndarray
    y: np.ndarray


def remark_1() -> LinearSurrogate:
    """ℓ(z, θ) = z θ + 1/θ for θ > 0, the toy example of Remark 1: T(s) = 1/√s."""
    return LinearSurrogate(
        name="remark 1",
        init=lambda key: jnp.ones(()),
        statistic=lambda params, batch: batch.shares @ batch.x[:, 0],
        minimize=lambda s: 1 / jnp.sqrt(s),
        losses=lambda params, x, y: x[:, 0] * params + 1 / params,
        project=lambda s: jnp.maximum(s, 1e-6),
        psi=lambda params: 1 / params,
        phi=lambda params: -params,
    )


def cases() -> dict[str, Case]:
    """A small problem for every surrogate."""
    rng, n = np.random.default_rng(0), sum(SIZES)
    owner = np.repeat(np.arange(3), SIZES)
    blobs = rng.normal(size=(n, 2)) + 2.5 * np.eye(3, 2)[owner]
    values = blobs @ [1.0, -2.0] + rng.normal(size=n)
    counts = rng.poisson(1.0 + 2.0 * owner).astype(float)
    words = np.stack([rng.multinomial(12, p) for p in rng.dirichlet(np.ones(4), n)]).astype(float)
    parts = np.abs(rng.normal(size=(n, 2))) @ np.abs(rng.normal(size=(2, 4)))
    gaps = np.where(rng.random(parts.shape) < 0.7, parts, np.nan)
    none, s = np.zeros(n), mj.surrogates
    labels = (values > 0).astype(np.int32)
    model = mj.models.linear(mj.models.Spec((2,), 2))
    return {
        "proximal gradient, L1": Case(
            s.proximal_gradient(model, rho=0.2, regularizer=regularizers.l1(0.05)), blobs, labels
        ),
        "Remark 1": Case(remark_1(), 1 + counts[:, None], none),
        "Poisson": Case(s.poisson(deviation=0.5), counts[:, None], none),
        "Poisson, known mean": Case(s.poisson(deviation=0.5, mean=float(counts.mean())), counts[:, None], none),
        "Gaussian means": Case(s.gaussian_means([0.4, 0.6], np.stack([np.eye(2)] * 2), penalty=0.1), blobs, none),
        "Gaussian mixture, full": Case(s.gaussian_mixture(2, 2, reg_covar=1e-2), blobs, none),
        "Gaussian mixture, diagonal": Case(
            s.gaussian_mixture(2, 2, covariance="diagonal", reg_covar=1e-2), blobs, none
        ),
        "Gaussian mixture, spherical": Case(
            s.gaussian_mixture(2, 2, covariance="spherical", reg_covar=1e-2), blobs, none
        ),
        "multinomial mixture": Case(s.multinomial_mixture(4, 2), words, none),
        "regression mixture": Case(s.regression_mixture(2, 2, ridge=0.1), blobs, values),
        "dictionary, ridge": Case(s.dictionary_learning(4, 3, sparsity=0.1, l2=0.2), parts, none),
        "dictionary, unit ball": Case(s.dictionary_learning(4, 2, sparsity=0.02, constraint="unit-ball"), parts, none),
        "non-negative factors": Case(s.nonnegative_factorization(4, 2), parts, none),
        "ratings, per item": Case(s.matrix_factorization(4, 2, code_l2=0.1, l2=0.1), mj.data.with_missing(gaps), none),
        "ratings, imputation": Case(
            s.matrix_factorization(4, 2, code_l2=0.1, l2=0.1, kind="imputation"), mj.data.with_missing(gaps), none
        ),
        "k-means": Case(s.k_means(2, 2, start=blobs[:2]), blobs, none),
        "Huber regression": Case(s.huber_regression(2, l2=0.01), blobs, values),
    }


def federated(case: Case, sizes: tuple[int, ...] = SIZES) -> FederatedData:
    """The samples on three clients, in double precision."""
    x = case.x.astype(np.float64)
    train = Ragged(x, case.y, offsets_of(np.array(sizes)))
    none = Ragged(x[:0], case.y[:0], np.zeros(len(sizes) + 1, np.int64))
    classes = (0, 1) if case.y.dtype == np.int32 else ()
    return FederatedData(train, none, none, np.zeros(len(sizes), bool), tuple(map(str, range(len(sizes)))), classes)


def rounds_of(algorithm: Algorithm, data: FederatedData, rounds: int, seed: int = 0) -> Server:
    """The server after every round, ``(rounds + 1, ...)``, by the engines' own functions in one small program."""
    sizes, longest = data.train.sizes, int(data.train.sizes.max())
    rows = data.train.offsets[:-1, None] + np.minimum(np.arange(longest), sizes[:, None] - 1)
    number = lambda a: jnp.asarray(a, jnp.result_type(float) if np.issubdtype(a.dtype, np.floating) else None)
    slots, count = jnp.arange(len(sizes)), len(sizes)
    stacked = ClientData(number(data.train.x[rows]), number(data.train.y[rows]), jnp.asarray(sizes), slots, slots)
    everyone = jnp.ones(count, bool)
    together = federation(algorithm, training=np.arange(count))
    nothing = empty_tally(message_shapes(together, jax.tree.map(lambda a: a[0], stacked)))

    def run(key: jax.Array) -> Server:
        server = set_up.start_server(together, count, key, {}, jnp.int32(rounds))
        clients, answers = set_up.start_clients(together, server, key, stacked, everyone, count)
        server = set_up.finish_start(together, server, [answers], [slots], count)

        def step(state: Any, _: None) -> Any:
            server, clients, tally = state
            view, key_of_round = engine.begin_round(together, server, key)
            sums, clients, sent = engine.chunk_pass(together, view, key_of_round, clients, stacked, everyone)
            server, tally = engine.end_round(together, server, view, key_of_round, sums, sent, tally)
            return (server, clients, tally), server

        servers = jax.lax.scan(step, (server, clients, nothing), length=rounds)[1]
        return jax.tree.map(lambda first, rest: jnp.concatenate([first[None], rest]), server, servers)

    return jax.jit(run)(jax.random.key(seed))


def central_path(
    surrogate: LinearSurrogate, data: FederatedData, start: Tree, iterations: int
) -> tuple[Tree, np.ndarray]:
    """Parameters after every iteration of MM on all samples, and the objective there."""
    pooled = pool(data)

    def step(params: Tree, _: None) -> Any:
        new = surrogate.minimize(look(surrogate, params, pooled)[0])
        return new, (new, objective(surrogate, new, pooled))

    path, values = jax.jit(lambda p: jax.lax.scan(step, p, length=iterations)[1])(start)
    return path, np.asarray(values)


def distance(case: Case, rounds: int = ROUNDS) -> tuple[float, float]:
    """The largest relative distance of FedMM's parameters from the centralized ones, and the largest rise of W."""
    with jax.enable_x64(True):
        data = federated(case)
        key = jax.random.fold_in(round_key(jax.random.key(0), 0), jnp.uint32(0xFFFF_FFFF))  # the server's first
        start = jax.tree.map(lambda a: jnp.asarray(a, jnp.float64), case.surrogate.init(key))
        servers = rounds_of(mj.fedmm(case.surrogate._replace(init=lambda key: start), data), data, rounds)
        path, values = central_path(case.surrogate, data, start, rounds + 1)
        apart = lambda t: squared_norm(jax.tree.map(lambda a, b: a[t] - b[t], servers.value.params, path))
        size = lambda t: squared_norm(jax.tree.map(lambda b: b[t], path))
        far = max(float(jnp.sqrt(apart(t) / size(t))) for t in range(rounds + 1))
    return far, float(np.diff(values).max())


def equivalence(context: Context) -> list[Result]:
    """Every surrogate, and a few outside references."""
    rows = []
    for name, case in cases().items():
        context.tell(name)
        far, rise = distance(case)
        rows.append([name, f"{far:.1e}", f"{rise:.1e}"])
    first = Result(
        f"FedMM, all clients and γ = 1, against the centralized algorithm: {ROUNDS} rounds, clients of {SIZES} samples",
        ["surrogate", "largest relative distance of θ", "largest rise of the objective"],
        rows,
        ["Double precision. A negative rise: the objective has fallen in every iteration."],
    )
    return [first, references(context)]


def references(context: Context) -> Result:
    """scikit-learn from the same start, and Remark 1."""
    from sklearn.decomposition import MiniBatchDictionaryLearning, sparse_encode
    from sklearn.mixture import GaussianMixture

    from majorant.estimators import FederatedDictionaryLearning, FederatedGaussianMixture

    context.tell("scikit-learn")
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.normal(m, 1.0, (200, 5)) for m in (-2, 0, 3)])
    groups, rows = rng.integers(0, 7, len(x)), []
    for kind in ("full", "diag", "spherical"):
        theirs = GaussianMixture(3, covariance_type=kind, random_state=0, tol=1e-9, max_iter=500).fit(x)
        ours = FederatedGaussianMixture(3, covariance_type=kind, random_state=0, tol=1e-9, max_iter=500).fit(x)
        spread = FederatedGaussianMixture(
            3, covariance_type=kind, tol=1e-9, max_iter=500, means_init=theirs.means_, random_state=0
        ).fit(x, groups=groups)
        rows.append([f"GaussianMixture, {kind}: mean log-likelihood", ours.score(x), theirs.score(x), spread.score(x)])
    codes = rng.normal(size=(600, 10)) * (rng.random((600, 10)) < 0.3)
    signals = codes @ rng.normal(size=(10, 16))
    alpha, members = 0.3, np.arange(600) % 6
    theirs = MiniBatchDictionaryLearning(10, alpha=alpha, random_state=0, max_iter=200, batch_size=60).fit(signals)

    def value(components: np.ndarray) -> float:
        h = sparse_encode(signals, components, algorithm="lasso_cd", alpha=alpha, max_iter=5000)
        error = ((signals - h @ components) ** 2).sum(axis=1)
        return float((0.5 * error + alpha * np.abs(h).sum(axis=1)).mean())

    fit = lambda groups: FederatedDictionaryLearning(10, alpha=alpha, max_iter=500, random_state=0).fit(
        signals, groups=groups
    )
    rows.append(
        [
            "dictionary: objective",
            value(fit(None).components_),
            value(theirs.components_),
            value(fit(members).components_),
        ]
    )
    z = cases()["Remark 1"]
    data = federated(z)
    shares = np.array(SIZES) / sum(SIZES)
    means = np.array([data.train.client(c)[0].mean() for c in range(len(SIZES))])
    with jax.enable_x64(True):
        last = lambda make: float(rounds_of(make(z.surrogate, data), data, 2).value.params[-1])
        rows.append(["Remark 1: θ, averages of surrogates", last(mj.fedmm), 1 / np.sqrt(shares @ means), ""])
        rows.append(
            [
                "Remark 1: θ, averages of parameters",
                last(mj.methods.parameter_averaging),
                shares @ (1 / np.sqrt(means)),
                "",
            ]
        )
    shown = [[name, *(v if isinstance(v, str) else f"{v:.6f}" for v in values)] for name, *values in rows]
    return Result(
        "Outside references",
        ["what", "ours, one client", "scikit-learn or closed form", "ours, several clients"],
        shown,
        ["Mixtures: higher is better, from k-means; several clients start from scikit-learn's means."],
    )
