"""Robust rules: independent references, what each bears, one hostile client more, and absent clients."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import optimize, stats

import majorant as mj
import zoo
from compiling import quickly
from majorant.exchange import displacements, robust
from majorant.exchange.clipped_links import clip_links
from majorant.exchange.federation import federation
from majorant.exchange.mixing import Dense, Table
from majorant.exchange.star import star

KEY = jax.random.key(3)
N, D = 11, 5
RULES = {
    "median": robust.median(),
    "trimmed-mean": robust.trimmed_mean(0.3),
    "geometric-median": robust.geometric_median(),
    "krum": robust.krum(0.3),
    "multi-krum": robust.multi_krum(0.3),
    "centered-clip": robust.centered_clip(),
    "norm-bound": robust.norm_bound(),
}


@functools.cache
def compiled(name, bucket=1):
    """One program for each rule: on a tree of two leaves, with a mask."""
    rule = RULES[name].rule if bucket == 1 else BUCKETED[name].rule
    two = lambda x, present: rule({"a": x[:, :2], "b": x[:, 2:].reshape(len(x), 3, 1)}, present, KEY)
    return quickly(two)


BUCKETED = {"median": robust.median(bucket=2), "krum": robust.krum(0.2, bucket=2)}


def applied(name, x, present=None, bucket=1):
    present = np.ones(len(x), bool) if present is None else present
    found = compiled(name, bucket)(np.asarray(x, np.float32), present)
    return np.concatenate([np.asarray(found["a"]), np.asarray(found["b"])[:, 0]])


def uploads(seed=0):
    return np.random.default_rng(seed).normal(size=(N, D)).astype(np.float32)


def brute_force_krum(x, f):
    """Scores by the definition, one client after the other."""
    scores = []
    for i, own in enumerate(x):
        away = sorted(float(((own - other) ** 2).sum()) for j, other in enumerate(x) if j != i)
        scores.append(sum(away[: len(x) - f - 2]))
    return np.argsort(scores)


def clipped_mean(x, v):
    away = np.linalg.norm(x - v, axis=1)
    bound = np.sort(away)[len(x) // 2]
    return v + ((x - v) * np.minimum(1, bound / away)[:, None]).mean(axis=0)


def scipy_geometric_median(x):
    cost = lambda v: np.linalg.norm(x - v, axis=1).sum()
    return optimize.minimize(cost, x.mean(axis=0), method="Nelder-Mead", options={"xatol": 1e-7, "fatol": 1e-12}).x


def reference(name, x):
    """What the rule gives, by NumPy and SciPy."""
    x, f = x.astype(np.float64), int(0.3 * len(x))
    if name == "centered-clip":
        return functools.reduce(lambda v, _: clipped_mean(x, v), range(3), np.zeros(D))
    return {
        "median": lambda: np.median(x, axis=0),
        "trimmed-mean": lambda: stats.trim_mean(x, 0.3, axis=0),
        "geometric-median": lambda: scipy_geometric_median(x),
        "krum": lambda: x[brute_force_krum(x, f)[0]],
        "multi-krum": lambda: x[brute_force_krum(x, f)[: len(x) - f]].mean(axis=0),
        "norm-bound": lambda: clipped_mean(x, np.zeros(D)),
    }[name]()


@pytest.mark.parametrize("name", RULES)
def test_a_rule_is_the_one_of_an_independent_reference(name):
    """Of all clients, and of those who are there: the values of absent ones count for nothing."""
    x = uploads()
    np.testing.assert_allclose(applied(name, x), reference(name, x), atol=2e-4)
    present = np.arange(N) % 4 != 1
    x[~present] = 1e18
    np.testing.assert_allclose(applied(name, x, present), reference(name, x[present]), atol=2e-4)


@pytest.mark.parametrize("name", RULES)
def test_a_rule_bears_as_many_as_it_claims_and_not_one_more(name):
    """Hostile clients send huge numbers, the same ones, to be nobody's outlier; honest ones are within 1 of a point."""
    honest = 2 + uploads(1) / np.abs(uploads(1)).max()
    f = RULES[name].tolerates(N)
    assert f == (3 if name in ("trimmed-mean", "krum", "multi-krum") else 5)
    size = 1e6
    bad = lambda count: np.concatenate([honest[: N - count], np.full((count, D), size, np.float32)])
    far = lambda count: np.abs(applied(name, bad(count)) - 2).max()
    assert far(f) < 30  # clipping to honest lengths moves by at most some of them
    if name != "krum":  # which takes one upload: see below
        assert far(f + 1) > 1e3


def test_the_mean_bears_nobody():
    assert star().combine.tolerates(N) == 0


def test_krum_bears_some_more_than_its_theorem_says_and_then_no_more():
    """Claimed is f = 2 of 11, and scores count the 7 nearest others.

    With f + 2 hostile clients, honest ones have 6 honest others and count one hostile; a hostile one has 3 others and
    counts four honest. f + 3 put one of them between the honest clients and the rest: like honest clients it counts one
    of the rest, and is nearer to it.
    """
    krum = robust.krum(0.2)
    f, rule = krum.tolerates(N), quickly(lambda x: krum.rule(x, jnp.ones(N, bool), KEY))
    honest = 2 + uploads(1) / np.abs(uploads(1)).max()

    def far(*places):
        hostile = np.array(places, np.float32)[:, None] * np.ones(D, np.float32)
        x = np.concatenate([honest[: N - len(places)], hostile])
        found = np.asarray(rule(x))
        np.testing.assert_array_equal(found, x[brute_force_krum(x.astype(np.float64), f)[0]])
        return np.abs(found - 2).max()

    assert f == 2
    for count in (f, f + 1, f + 2):
        assert far(*[1e4] * count) < 2
        assert far(1e3, *[1e4] * (count - 1)) < 2
    assert far(1e3, *[1e4] * (f + 2)) > 500


def test_krum_told_of_one_more_than_its_condition_allows_is_theirs():
    """m ≥ 2f + 3: with 9 clients and 4 identical hostile ones, each would count 3 others, all at distance 0."""
    x = np.concatenate([uploads()[:5], np.full((4, D), 9.0, np.float32)])
    assert brute_force_krum(x.astype(np.float64), 4)[0] >= 5
    assert brute_force_krum(x.astype(np.float64), 3)[0] < 5
    with pytest.raises(ValueError, match="2f \\+ 3 = 11 clients"):
        robust.krum(0.45).check(9)


def test_a_fixed_radius_bounds_what_any_number_of_hostile_clients_can_do():
    """And with a minority of them the step keeps the direction of the honest ones."""
    x = np.concatenate([np.full((6, D), 3.0), np.full((5, D), -1e9)]).astype(np.float32)
    for rule, most in ((robust.norm_bound(1.0), 1.0), (robust.centered_clip(1.0, iterations=2), 2.0)):
        moved = np.asarray(rule.rule(jnp.asarray(x), jnp.ones(N, bool), KEY))
        assert np.linalg.norm(moved) <= most + 1e-5
        assert moved.sum() > 0
        moved = np.asarray(rule.rule(jnp.asarray(-x[::-1]), jnp.ones(N, bool), KEY))
        assert moved.sum() < 0  # six of eleven are now the hostile ones


@pytest.mark.parametrize("name", BUCKETED)
def test_buckets_are_means_of_random_groups_and_bear_less(name):
    plain, rule = {"median": robust.median(), "krum": robust.krum(0.2)}[name], BUCKETED[name]
    assert rule.tolerates(N) == plain.tolerates(6)
    x = uploads(2)
    moved = applied(name, x, bucket=2)
    pairs = [(x[i] + x[j]) / 2 for i in range(N) for j in range(i)] + list(x)
    if name == "krum":  # one of the means of two
        assert min(np.abs(pair - moved).max() for pair in pairs) < 1e-5
    x[: rule.tolerates(N)] = 1e6
    assert np.abs(applied(name, x, bucket=2)).max() < 10
    if name == "median":  # one more is too many where no two of them share a group
        x[: rule.tolerates(N) + 1] = 1e6
        moved = [applied(name, np.roll(x, shift, axis=0), bucket=2) for shift in range(N)]
        assert max(np.abs(one).max() for one in moved) > 1e3


def test_buckets_are_made_of_those_who_are_there_and_anew_in_every_round():
    """Four clients are two buckets, however many are absent: the median of two means of two is the mean of all."""
    x, present = uploads(2), np.arange(N) % 3 == 1
    x[~present] = 1e9
    rule = quickly(lambda x, present, key: robust.median(bucket=2).rule(x, present, key))
    everyone = np.ones(N, bool)
    keys = [jax.random.key(seed) for seed in range(6)]
    for key in keys:
        np.testing.assert_allclose(rule(x, present, key), x[present].mean(axis=0), atol=1e-5)
    assert len({np.asarray(rule(uploads(2), everyone, key)).tobytes() for key in keys}) > 1


def test_columns_are_taken_some_at_a_time(monkeypatch):
    x = np.random.default_rng(0).normal(size=(7, 23)).astype(np.float32)
    monkeypatch.setattr(displacements, "SORTED_VALUES", 7 * 5)
    found = jax.jit(lambda x: robust.median().rule(x, jnp.ones(7, bool), KEY))(x)
    np.testing.assert_allclose(found, np.median(x, axis=0), atol=1e-6)


@pytest.mark.parametrize("form", ["dense", "table"])
def test_peers_clip_their_neighbours_around_their_own_values(form):
    """By the formula, node after node, on a ring of five with one hostile node."""
    x = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
    x[2] = 1e6
    index = np.array([[(i + 1) % 5, (i - 1) % 5] for i in range(5)])
    table = Table(jnp.asarray(index), jnp.full((5, 2), 1 / 3), jnp.full(5, 1 / 3))
    mixing: Dense | Table = table if form == "table" else table.dense()
    everyone = jnp.ones(5, bool)
    clipped = quickly(lambda x, radius: clip_links(mixing, x, everyone, radius).mix(x, everyone))
    for radius in (0.7, None):
        found = clipped(x, radius)
        for i in (0, 1, 3, 4):
            away = [np.linalg.norm(x[j] - x[i]) for j in index[i]]
            bound = radius or sorted([0.0, *away])[1]
            expected = x[i] + sum((x[j] - x[i]) * min(1, bound / a) / 3 for j, a in zip(index[i], away, strict=True))
            np.testing.assert_allclose(found[i], expected, rtol=2e-3, atol=2e-3)
    assert np.abs(np.asarray(mixing.mix(jnp.asarray(x), everyone))[1]).max() > 1e5  # plain averages are lost
    x[0] = 1e6  # node 1 hears hostile neighbours alone, more than half of them
    found = np.asarray(clipped(x, None))
    assert np.abs(found[1]).max() > 1e5
    assert np.abs(found[[3, 4]]).max() < 10  # one of two


def test_absent_neighbours_have_no_part_in_the_median_distance():
    """Of itself and two neighbours the middle distance is the nearer one's, whoever else is away."""
    x = jnp.array([[0.0], [1.0], [4.0], [2.0]])
    present = jnp.array([True, True, True, False])
    clip = quickly(lambda mixing: clip_links(mixing, x, present, None))
    dense = clip(Dense(jnp.full((4, 4), 0.25))).weights
    others = jnp.array([[j for j in range(4) if j != i] for i in range(4)])
    table = clip(Table(others, jnp.full((4, 3), 0.25), jnp.full(4, 0.25))).dense().weights
    for weights in (dense, table):
        np.testing.assert_allclose(weights[0, 1:3], [0.25, 0.25 / 4], rtol=1e-4)


def test_what_cannot_work_is_refused_before_anything_runs():
    fedavg, among = zoo.algorithm("fedavg"), {"training": np.arange(5)}
    with pytest.raises(ValueError, match=r"must be in \(0, 0.5\), got 0.5"):
        robust.trimmed_mean(0.5)
    with pytest.raises(ValueError, match="Krum needs at least 2f"):
        federation(fedavg, exchange=star(robust.krum(0.4)), **among)
    with pytest.raises(ValueError, match="a server's rule"):
        mj.gossip(mj.topology.ring(), combine=robust.median())
    with pytest.raises(ValueError, match="is for peers on a network"):
        federation(fedavg, exchange=star(robust.self_centered_clip()), **among)
    with pytest.raises(ValueError, match="star \\(median\\) reads each upload by itself"):
        federation(fedavg, exchange=star(robust.median()), channel=mj.channel.secure_sum(1.0), **among)
    few = mj.Resources(memory_budget=100)  # bytes: the uploads of five clients take more
    for rule in (robust.median(), robust.krum(0.2)):
        with pytest.raises(ValueError, match=f"fedavg, {rule.name} holds the uploads of all 5 clients side by side"):
            mj.simulate(fedavg, zoo.training(), rounds=1, exchange=star(rule), resources=few)
    for name in ("clustered", "mocha", "chebyshev", "fedmgda_plus"):
        with pytest.raises(ValueError, match="reads each upload by itself, and cannot be given their median"):
            federation(zoo.algorithm(name), exchange=star(robust.median()), **among)
