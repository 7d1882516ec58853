"""Runs on data sets of their own: the same as one after the other, and refused where they cannot be one program."""

import dataclasses
import functools

import jax
import numpy as np
import pytest

import majorant as mj
from majorant.engines.replicas import with_own_hyper
from majorant.engines.settings import run_settings
from majorant.methods import asvrcd
from majorant.objectives import mixture
from records import over

SEEDS = [3, 1]
OPTIONS = {"rounds": 4, "evaluation": mj.Evaluation(every=2, diagnostics=True)}


def drawn(**options):
    return mj.data.heterogeneous_logistic(**({"clients": 4, "samples": 30, "dimension": 3} | options))


@functools.cache
def data_sets():
    """Clients of different sizes, one of them unseen, drawn twice."""
    sizes = np.array([30, 8, 9, 30])

    def cut(data):
        rows = np.concatenate([np.arange(b, b + n) for b, n in zip(data.train.offsets[:-1], sizes, strict=True)])
        offsets = np.concatenate([[0], np.cumsum(sizes)])
        train = data.train._replace(x=data.train.x[rows], y=data.train.y[rows], offsets=offsets)
        return dataclasses.replace(data, train=train, unseen=np.arange(4) == 1)

    return [cut(drawn(seed=seed, sigma=1.0)) for seed in range(2)]


@functools.cache
def fedem():
    """A method that is measured on single clients, too."""
    local = mj.local_sgd(0.3, epochs=1, batch_size=8, momentum=0.5)
    algorithm = mj.fedem(mj.models.linear(data_sets()[0]), components=2, local=local)
    return data_sets(), algorithm, {"lr": [0.1, 0.3]}


def stochastic():
    """A method with step sizes from each data set, and rounds of random length."""
    data = [drawn(seed=seed, sigma=1.0) for seed in range(2)]
    objective = mixture(data[0], l2=0.1)
    made = [asvrcd(objective, constants=objective.constants(one), rho=0.2) for one in data]
    return data, *with_own_hyper(made, data)


def assert_same(one, two, tolerance):
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(two), strict=True):
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("make", [fedem, stochastic])
def test_replicas_are_the_separate_runs(make):
    """States, scores and history of each, and the models of a client that trained and of one that did not."""
    sets, algorithm, hyper = make()
    together = mj.simulate(algorithm, sets, seeds=SEEDS, hyper=hyper, **OPTIONS)
    for i, (data, seed) in enumerate(zip(sets, SEEDS, strict=True)):
        own = {name: values[i] for name, values in hyper.items()}
        alone = mj.simulate(algorithm, data, seed=seed, hyper=own, **OPTIONS)
        one = together[i]
        assert one.data is data
        assert one.settings == alone.settings
        assert_same(one.snapshot[:2], alone.snapshot[:2], 2e-5)
        assert_same(one.scores[0].values, alone.scores[0].values, 2e-5)
        for mine, theirs in zip(one.history, alone.history, strict=True):
            assert mine.keys() == theirs.keys()
            assert mine["bytes_up"] == theirs["bytes_up"]
            measured = "gradient_squared" if "gradient_squared" in mine else "alpha"
            assert mine[measured] == pytest.approx(theirs[measured], rel=1e-3)
    for client in (0, 1) if data.unseen.any() else ():
        x = data.test.client(client)[0]
        np.testing.assert_allclose(one.model(client).predict_proba(x), alone.model(client).predict_proba(x), atol=1e-4)
    losses = [together[i].scores[0].values["train_loss"].mean() for i in range(2)]
    assert losses[0] != losses[1]


def test_values_per_run():
    """Also on one data set: a sequence in ``hyper`` has a value for each seed."""
    settings = run_settings(fedem()[1], 5, 2, {"lr": [0.1, 0.3], "momentum": 0.5}, None)
    assert settings == [
        {"seed": 5, "hyper": {"lr": 0.1, "momentum": 0.5}},
        {"seed": 6, "hyper": {"lr": 0.3, "momentum": 0.5}},
    ]


def test_replicas_resume():
    (sets, algorithm, hyper), taken = fedem(), []
    keep = lambda lines, snapshot: taken.append(snapshot())
    whole = mj.simulate(algorithm, sets, hyper=hyper, **over(OPTIONS, {"evaluation": mj.Evaluation(report=keep)}))
    assert [s["seed"] for s in whole.settings] == [0, 1]
    resumed = mj.simulate(algorithm, sets, hyper=hyper, resume=taken[0], **OPTIONS)
    assert_same(resumed.snapshot[:2], whole.snapshot[:2], 0)


def changed(**fields):
    return dataclasses.replace(data_sets()[1], **fields)


REFUSED = [
    (lambda: {"data": [data_sets()[0], drawn()]}, "client 1 is unseen in one of them only"),
    (lambda: {"data": [drawn(), data_sets()[0]]}, "2 differs from the first: client 1 is unseen in one of them only"),
    (
        lambda: {"data": [drawn(), drawn(samples=31)]},
        "data set 2 differs from the first: client 0 has 30 train samples",
    ),
    (lambda: {"data": [drawn(), drawn(), drawn(clients=3)]}, "data set 3 differs from the first: 4 clients and 3"),
    (lambda: {"data": [drawn(), drawn(dimension=4)]}, r"features of shape \(3,\) and \(4,\)"),
    (lambda: {"data": [data_sets()[0], changed(classes=("no", "yes"))]}, r"classes \(0, 1\) and \('no', 'yes'\)"),
    (lambda: {"data": []}, "got nothing"),
    (lambda: {"data": ["synthetic"]}, "got str"),
    (lambda: {"seeds": 3}, "2 data sets but 3 seeds"),
    (lambda: {"seeds": [1, 2, 3, 4]}, "2 data sets but 4 seeds"),
    (lambda: {"grid": {"lr": [0.1, 0.2]}}, "a grid needs one data set"),
    (lambda: {"resources": mj.Resources(memory_budget=1 << 10)}, "fewer at a time, or a larger memory_budget"),
    (lambda: {"resources": mj.Resources(state_folder="somewhere")}, "leave state_folder out"),
    (lambda: {"hyper": {"lr": [0.1, 0.2, 0.3]}}, "3 values of 'lr', but there are 2 runs"),
    (lambda: {"hyper": {"lr": [0.1, -0.3]}}, "lr must be"),
    (lambda: {"data": drawn(), "grid": {"lr": [0.1]}, "hyper": {"momentum": [0.1]}}, "there is a grid"),
]


@pytest.mark.parametrize(("options", "message"), REFUSED, ids=[message for _, message in REFUSED])
def test_what_cannot_run_together_is_refused(options, message):
    given = {"data": data_sets(), "rounds": 1} | options()
    with pytest.raises(ValueError, match=message):
        mj.simulate(fedem()[1], given.pop("data"), **given)


def test_replicas_gossip_on_networks_of_their_own():
    """Data sets of one shape have the same network: each run is the run alone."""
    options = {"rounds": 2, "exchange": mj.gossip(mj.topology.ring())}
    both = mj.simulate(fedem()[1], data_sets(), seeds=[3, 4], **options)
    for index, one in enumerate(data_sets()):
        alone = mj.simulate(fedem()[1], one, seed=3 + index, **options)
        assert_same(both[index].snapshot.server.value, alone.snapshot.server.value, 1e-5)


def test_different_methods_are_refused():
    with pytest.raises(ValueError, match="are not one algorithm"):
        with_own_hyper([fedem()[1], stochastic()[1]], data_sets())
