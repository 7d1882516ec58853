"""FedMM: the centralized algorithm for every split, the invariant of its control variates, absence as compression."""

from __future__ import annotations

import functools
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from majorant_reproductions.fedmm.equivalence import cases, distance, federated, remark_1, rounds_of

import majorant as mj
from majorant.core import ClientData, client_key, round_key
from majorant.exchange._stage import STAGES_STREAM
from majorant.exchange.channel import chain, clip, error_feedback, quantized, random_k, sometimes, top_k
from majorant.exchange.federation import federation
from majorant.exchange.participation import Participation
from majorant.methods.fedmm import oracle
from records import over
from small_surrogates import SIZES, positive_numbers, sparse_regression


def test_all_clients_and_full_steps_are_the_centralized_algorithm():
    surrogate, data = sparse_regression()
    run = mj.simulate(
        mj.fedmm(surrogate, data), data, rounds=4, evaluation=mj.Evaluation(every=1, diagnostics=True), seed=3
    )
    start = surrogate.init(jax.random.fold_in(jax.random.fold_in(jax.random.key(3), 0), jnp.uint32(0xFFFF_FFFF)))
    central = mj.methods.mm(surrogate, data, iterations=5, start=start)
    federated = [line["objective"] for line in run.history]
    np.testing.assert_allclose(federated, central.values[2:], rtol=1e-5)  # set-up is the first iteration
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a[0], b, rtol=1e-4, atol=1e-5),
        run.snapshot.server.value.params,
        central.params,
    )


def test_steps_that_fall_begin_with_the_first():
    """Ŝ_{t+1} = Ŝ_t + γ_{t+1} (S̄(T(Ŝ_t)) − Ŝ_t), in rounds and, after a first oracle, on all samples in one place."""
    surrogate, data = sparse_regression()
    statistic = functools.partial(mj.methods.initial_statistic, surrogate, data)

    def moved(s, numbers):
        for gamma in 1 / np.sqrt(1 + np.array(numbers)):
            step = functools.partial(lambda gamma, old, new: old + gamma * (new - old), gamma)
            s = surrogate.project(jax.tree.map(step, s, statistic(params=surrogate.minimize(s))))
        return s

    start = surrogate.init(jax.random.fold_in(jax.random.fold_in(jax.random.key(3), 0), jnp.uint32(0xFFFF_FFFF)))
    options = {"step": mj.steps.square_root(1.0)}
    run = mj.simulate(mj.fedmm(surrogate, data, **options), data, rounds=3, seed=3)
    rows = int(data.train.sizes[~data.unseen].sum())
    central = mj.methods.sa_ssmm(surrogate, data, iterations=3, batch_size=rows, start=start, **options)
    close = lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
    jax.tree.map(close, run.server.value.statistic, moved(statistic(params=start), (1, 2, 3)))
    jax.tree.map(close, central.statistic, moved(statistic(params=start), (2, 3)))


@pytest.mark.parametrize("name", cases())
def test_every_surrogate_is_its_centralized_algorithm_step_by_step(name):
    far, rise = distance(cases()[name], rounds=3)
    assert far < 1e-6
    assert rise < 1e-9


def test_a_client_without_samples_changes_nothing():
    case = cases()["k-means"]
    last = lambda sizes: rounds_of(mj.fedmm(case.surrogate, data := federated(case, sizes)), data, 2).value.params[-1]
    np.testing.assert_allclose(last((12, 0, 14)), last((12, 14)), rtol=1e-5)


def test_surrogates_average_exactly_and_parameters_by_the_amount_of_remark_1():
    data, surrogate = positive_numbers(), remark_1()
    means = np.array([data.train.client(c)[0].mean() for c in range(data.clients)])
    shares = np.array(SIZES) / sum(SIZES)
    last = lambda algorithm: float(mj.simulate(algorithm, data, rounds=2).snapshot.server.value.params[0])
    assert last(mj.fedmm(surrogate, data)) == pytest.approx(1 / np.sqrt(shares @ means), rel=1e-5)
    assert last(mj.methods.parameter_averaging(surrogate, data)) == pytest.approx(
        shares @ (1 / np.sqrt(means)), rel=1e-5
    )
    assert shares @ (1 / np.sqrt(means)) > 1.05 / np.sqrt(shares @ means)


def partial(algorithm, **options):
    usual = {"rounds": 30, "evaluation": mj.Evaluation(every=10, diagnostics=True)}
    usual["participation"] = mj.participation.bernoulli(0.4)
    return mj.simulate(algorithm, sparse_regression().data, **over(usual, options))


@functools.cache
def noisy_algorithm():
    """Batches and control variates."""
    surrogate, data = sparse_regression()
    return mj.fedmm(surrogate, data, step=mj.steps.constant(0.2), batch_size=4)


def test_the_servers_variate_is_the_mean_of_the_clients_after_every_round():
    run = partial(noisy_algorithm(), channel=quantized(4), evaluation=mj.Evaluation(every=1))
    own = [np.abs(leaf).max() for leaf in jax.tree.leaves(run.snapshot.clients)]
    assert max(own) > 0.05
    assert max(line["variates_apart"] for line in run.history) < 1e-5


def test_the_log_measures_every_round_from_the_one_before():
    (surrogate, data), points = sparse_regression(), {}
    keep = lambda lines, snapshot: points.update({lines[0]["round"]: snapshot().server.value})
    watched = mj.Evaluation(every=1, report=keep)
    run = mj.simulate(mj.fedmm(surrogate, data, step=0.5), data, rounds=3, evaluation=watched)
    moved = lambda a, b: sum(((x - y) ** 2).sum() for x, y in zip(*map(jax.tree.leaves, (a, b)), strict=True)) / 0.5**2
    for line in run.history[-2:]:
        here, before = points[line["round"]], points[line["round"] - 1]
        assert line["surrogate_step"] == pytest.approx(moved(here.statistic, before.statistic), rel=1e-3)
        assert line["parameter_step"] == pytest.approx(moved(here.params, before.params), rel=1e-3)


def test_an_absent_client_is_a_compressor_that_sends_nothing():
    probability, seed = 0.4, 5
    surrogate, data = sparse_regression()
    algorithm = mj.fedmm(surrogate, data, step=mj.steps.constant(0.2), batch_size=4, alpha=0.3)

    def coin(id, number):
        own = jax.random.fold_in(client_key(round_key(jax.random.key(seed), number), id), STAGES_STREAM)
        return jax.random.bernoulli(jax.random.fold_in(own, 1), probability)

    same_coins = Participation(
        "coins of the compressor",
        lambda key, number, clients: jax.vmap(lambda id: coin(id, number))(jnp.arange(clients)),
        lambda clients: probability,
    )
    options = {"rounds": 25, "seed": seed}
    absent = mj.simulate(algorithm, data, channel=quantized(8), participation=same_coins, **options)
    silent = mj.simulate(algorithm, data, channel=sometimes(probability, quantized(8)), **options)
    pick = lambda run: (run.snapshot.server.value, run.snapshot.server.state.variate, run.snapshot.clients)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-5), pick(absent), pick(silent))
    assert absent.history[-1]["participants"] < 3  # and some rounds were empty:
    takes = np.array([[coin(c, t) for c in range(3)] for t in range(1, 26)])
    assert (~takes.any(axis=1)).any()


def test_alpha_is_the_theorems_unless_given():
    surrogate, data = sparse_regression()

    def rate(algorithm, inclusion, channel=None):
        """α/p: how far a client's V_i moves along what was delivered."""
        some = Participation("some", None, lambda clients: inclusion)
        together = federation(algorithm, training=np.arange(3), participation=some, channel=channel)
        server = algorithm.server.init(jax.random.key(0))._replace(terms=together.terms(3))
        view = algorithm.server.broadcast(server, jax.random.key(0))
        ones = jax.tree.map(jnp.ones_like, view.value.statistic)
        moved = algorithm.client.delivered(view, jax.tree.map(jnp.zeros_like, ones), mj.Upload(ones, jnp.ones(())))
        return float(jax.tree.leaves(moved)[0].ravel()[0])

    plain = mj.fedmm(surrogate, data)
    numbers = sum(leaf.size for leaf in jax.tree.leaves(plain.server.init(jax.random.key(0)).value.statistic))
    omega = quantized(2).omega(numbers)
    with_absences = omega + (1 + omega) * (1 - 0.4) / 0.4
    assert rate(plain, 1.0) == 1
    assert rate(plain, 0.5) == pytest.approx(1 / (1 + (1 - 0.5) / 0.5) / 0.5)
    assert rate(plain, 0.4, quantized(2)) == pytest.approx(1 / (1 + with_absences) / 0.4)
    assert rate(mj.fedmm(surrogate, data, alpha=0.01), 0.5, quantized(2)) == pytest.approx(0.02)
    assert rate(plain, 1.0, top_k(0.2)) == 0  # no control variates beside the memory


def test_initial_variates_may_be_the_local_fields():
    surrogate, data = sparse_regression()
    start = mj.methods.initial_statistic(surrogate, data)
    algorithm = mj.fedmm(surrogate, data, start=start, variates="local", step=mj.steps.constant(0.1))
    seen = []
    run = mj.simulate(
        algorithm,
        data,
        rounds=1,
        resume=lambda fresh: seen.append(fresh) or fresh,
        evaluation=mj.Evaluation(diagnostics=True),
    )
    own = jax.tree.map(np.asarray, seen[0].clients)
    shares = np.array(SIZES) / sum(SIZES)
    params = surrogate.minimize(start)
    pooled = mj.methods.initial_statistic(surrogate, data, params=params)
    field = jax.tree.map(lambda a, b: np.asarray(a - b), pooled, start)
    weighted = jax.tree.map(lambda v: np.tensordot(shares, v[0], 1), own)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5), weighted, field)
    assert run.history[-1]["variates_apart"] < 1e-6


def test_samples_of_a_stream_and_of_a_data_set():
    surrogate, data = sparse_regression()
    rows = np.arange(len(data.train.y))
    batches = [(data.train.x[rows[i::4]], data.train.y[rows[i::4]]) for i in range(4)]
    one = mj.methods.sa_ssmm(surrogate, iter([(data.train.x, data.train.y)]))
    central = mj.methods.mm(surrogate, data, iterations=1)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5), one.params, central.params)
    several = mj.methods.sa_ssmm(surrogate, iter(batches * 3), step=mj.steps.averaging())
    statistics, params = [], surrogate.init(jax.random.key(0))
    for x, y in batches * 3:
        statistics.append(
            mj.methods.initial_statistic(
                surrogate, mj.FederatedData.from_arrays(x, y, np.zeros(len(y)), split=(1, 0, 0)), params=params
            )
        )
        mean = jax.tree.map(lambda *a: sum(a) / len(a), *statistics)
        params = surrogate.minimize(mean)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6), several.params, params)


def test_every_batch_of_a_data_set_is_drawn_anew():
    """The statistic of Remark 1 has no parameters in it: the mean of many batches is near that of all samples."""
    data, batches = positive_numbers(), 400
    found = mj.methods.sa_ssmm(remark_1(), data, batch_size=1, iterations=batches)
    each = np.array([mj.methods.sa_ssmm(remark_1(), [row]).statistic for row in data.train.x[:, None]]).ravel()
    assert abs(float(np.ravel(found.statistic)[0]) - each.mean()) < 4 * each.std() / np.sqrt(batches)
    assert np.abs(each - float(np.ravel(found.statistic)[0])).min() > 1e-6


def test_wrong_input_is_refused():
    surrogate, data = sparse_regression()
    algorithm = mj.fedmm(surrogate, data)
    unknown = quantized(8)._replace(name="own", omega=lambda d: np.nan)
    for message, call in {
        "biased": lambda: mj.simulate(algorithm, data, rounds=1, channel=chain(clip(1.0), quantized(8))),
        "not known": lambda: mj.simulate(algorithm, data, rounds=1, channel=unknown),
        "at most 1": lambda: mj.steps.constant(1.5),
        "beta": lambda: mj.steps.square_root(0),
        "alpha": lambda: mj.fedmm(surrogate, data, alpha=2),
        "batch_size": lambda: mj.fedmm(surrogate, data, batch_size=0),
        "give start": lambda: mj.fedmm(surrogate, data, variates="local"),
        "no metric": lambda: mj.fedmm(remark_1(), positive_numbers(), projection="metric"),
        "must be a statistic": lambda: mj.fedmm(surrogate, data, start=np.zeros(3)),
        "does not fit samples": lambda: mj.fedmm(remark_1(), mj.models.Spec((), 0)),
        "ended before": lambda: mj.methods.sa_ssmm(surrogate, iter([])),
        "iterations": lambda: mj.methods.mm(surrogate, data, iterations=0),
        "gamma": lambda: mj.simulate(algorithm, data, rounds=1, hyper={"gamma": 3.0}),
        "alpha must": lambda: mj.simulate(mj.fedmm(surrogate, data, alpha=0.1), data, rounds=1, hyper={"alpha": 2}),
    }.items():
        with pytest.raises(ValueError, match=message):
            call()
    with pytest.raises(ValueError, match="more noise"):
        mj.simulate(algorithm, data, rounds=1, channel=error_feedback(random_k(0.1)))
    run = mj.simulate(mj.fedmm(surrogate, data, alpha=0.1, step=0.5), data, rounds=1, channel=unknown)
    assert run.summary()["algorithm"].endswith(", own")


def test_a_batch_of_more_than_a_client_has_is_all_it_has():
    """Rows that fill up repeat samples: they must not count twice."""
    mean = types.SimpleNamespace(statistic=lambda params, batch: (batch.weight * batch.y).sum() / batch.size)
    filled = ClientData(jnp.zeros((8, 1)), jnp.array([1.0, 2, 6, 6, 6, 6, 6, 6]), jnp.int32(3), jnp.int32(0))
    assert float(oracle(mean, None, filled, 5, jax.random.key(0))) == pytest.approx(3.0)
    two = float(oracle(mean, None, filled, 2, jax.random.key(0)))
    assert any(two == pytest.approx(of_two) for of_two in (1.5, 3.5, 4.0))
