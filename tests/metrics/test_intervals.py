"""Intervals of gains: against formulas of one sample, and their coverage where the truth is known."""

import sys
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import binom, ttest_1samp

from majorant.metrics.headline import parts_of
from majorant.metrics.intervals import Design, Paired, by_client, centre, discoveries, overall, rows_tested

sys.path.insert(0, str(Path(__file__).parents[2]))

ONCE = Design(0.6, 0.2, redrawn=False)


def pair(values, owner, rows=None, clients=None):
    """A gain that is the mean of values."""
    clients = clients or owner.max() + 1
    count = np.bincount(owner, minlength=clients)
    each = np.bincount(owner, values, minlength=clients) / count
    rows = np.arange(len(values)) if rows is None else rows
    return Paired(values.mean(), each, rows, owner, values / len(values), values / count[owner])


def test_one_client_and_one_split_have_students_interval():
    values = np.random.default_rng(0).normal(0.3, 1, 12)
    one = pair(values, np.zeros(12, int))
    expected = ttest_1samp(values, 0)
    for found in (overall([one], ONCE, bounded=False), by_client([one], ONCE, bounded=False)):
        assert np.ravel(found.p_value())[0] == pytest.approx(expected.pvalue)
        assert np.ravel(found.interval()) == pytest.approx(list(expected.confidence_interval()))


def test_a_split_in_which_a_clients_score_is_not_defined_says_nothing_of_it():
    """Its interval is that of the other split alone, and no narrower."""
    values, owner = np.random.default_rng(0).normal(0.3, 1, 20), np.repeat([0, 1], 10)
    first = pair(values, owner)
    undefined = first._replace(
        rows=20 + first.rows, clients=np.where([True, False], first.clients, np.nan), own=first.own * (owner == 0)
    )
    both, alone = (by_client(splits, ONCE, bounded=False) for splits in ([first, undefined], [first]))
    assert both.error[1] == pytest.approx(alone.error[1])
    assert both.error[0] < alone.error[0]


def test_differences_between_clients_are_no_noise_and_clients_of_a_row_or_two_are():
    rng = np.random.default_rng(0)
    owner = np.repeat([0, 1], 50)
    noise = rng.normal(0, 0.1, 100)
    apart, alike = (overall([pair(noise + shift * owner, owner)], ONCE, bounded=False) for shift in (10, 0))
    assert apart.error == pytest.approx(alike.error)
    tiny = np.arange(100) // 2
    assert overall([pair(noise, tiny)], ONCE, bounded=False).error == pytest.approx(0.01, rel=0.2)


def test_a_row_that_is_tested_again_is_no_new_row():
    values, owner = np.random.default_rng(0).normal(size=30), np.arange(30) % 3
    once, again = pair(values, owner), pair(values, owner)
    two = overall([once, again], ONCE, bounded=False)
    assert two.error == pytest.approx(overall([once], ONCE, bounded=False).error)
    fresh = overall([once, pair(values, owner, rows=np.arange(30, 60))], ONCE, bounded=False)
    assert fresh.error == pytest.approx(two.error / np.sqrt(2))
    assert rows_tested([once, again]).tolist() == [10, 10, 10]


def test_splits_that_disagree_widen_the_interval_by_what_they_share():
    values, owner = np.random.default_rng(0).normal(0, 0.01, 60), np.zeros(60, int)
    splits = [pair(values + shift, owner) for shift in (-1, 0, 1)]
    seeds = overall(splits, Design(0.6, 0.2, redrawn=False), bounded=False)
    redrawn = overall(splits, Design(0.6, 0.2, redrawn=True), bounded=False)
    spread = 2 / 8  # squares of −1, 0 and 1, over two degrees of freedom and the guess's six
    assert seeds.error == pytest.approx(np.sqrt(spread / 3), rel=0.01)
    assert redrawn.error == pytest.approx(np.sqrt(spread * (1 / 3 + 1.5)), rel=0.01)
    assert redrawn.freedom == pytest.approx(8, rel=0.01)


def test_agreement_of_all_rows_is_not_certainty():
    same = pair(np.zeros(6), np.zeros(6, int))
    low, high = overall([same], ONCE, bounded=True).interval()
    assert low < -0.3
    assert high > 0.3
    won = by_client([pair(np.ones(6), np.zeros(6, int))], ONCE, bounded=True)
    assert won.p_value()[0] < 0.05


def test_discoveries_are_benjamini_and_hochbergs():
    p = np.array([0.01, 0.04, 0.03, 0.5, np.nan])
    found, level = discoveries(p)
    assert found.tolist() == [True, False, False, False, False]  # 0.03 > 2/4 · 0.05
    assert level == pytest.approx(1 - 0.05 / 4)
    assert discoveries(np.full(4, 0.04))[0].all()  # the largest is within 4/4 · 0.05
    assert not discoveries(np.full(3, np.nan))[0].any()


def test_clients_with_a_row_or_two_of_rare_classes_are_not_named_by_chance():
    """Two methods find every class equally often: intervals of the balanced accuracies' differences cover 0."""
    rng = np.random.default_rng(0)
    shares, recall, clients = np.array([0.86, 0.08, 0.04, 0.02]), np.array([0.95, 0.5, 0.5, 0.5]), 20
    owner, covered, named = np.repeat(np.arange(clients), 50), [], 0
    for _ in range(40):
        y = rng.choice(4, len(owner), p=shares)
        guesses = [np.eye(4)[np.where(rng.random(len(y)) < recall[y], y, (y + 1) % 4)] for _ in range(2)]
        one, other = (parts_of("balanced_accuracy", y, p, owner, clients) for p in guesses)
        gain = one.over(other, 1)
        split = Paired(gain.value, gain.clients, np.arange(len(y)), owner, gain.whole, gain.own, kind=y)
        found = by_client([split], ONCE, bounded=True)
        low, high = found.interval()
        covered.append(np.mean((low <= 0) & (high >= 0)))
        named += discoveries(found.p_value())[0].any()
    assert np.mean(covered) > 0.94
    assert named <= binom.ppf(0.999, 40, 0.05)


@pytest.mark.parametrize(("metric", "splits"), [("accuracy", 1), ("rmse", 3), ("balanced_accuracy", 1)])
def test_intervals_cover_what_is_known(metric, splits):
    """A small version of the benchmark: the counts of tables are those of a coverage of 95 %, or a little beside it."""
    from benchmarks.verdict_coverage import coverage

    tables = 100
    found = coverage(metric, 10, 40, splits, tables, differ=0.4)
    assert binom.ppf(0.001, tables, 0.93) <= tables * found.whole
    assert found.clients > 0.9
    assert found.wrongly_named < 0.05
    assert found.length < {"accuracy": 0.18, "rmse": 0.5, "balanced_accuracy": 0.8}[metric]


def test_squares_of_what_is_left_within_a_group_are_its_variance():
    """The unbiased one, times the group's size; a single value is left as it is."""
    rng, group = np.random.default_rng(0), np.repeat([0, 1, 2], [5, 2, 1])
    values = rng.normal(size=8)
    found = centre(values, group, 3)
    for each in (0, 1):
        here = group == each
        assert (found[here] ** 2).sum() == pytest.approx(here.sum() * values[here].var(ddof=1))
    assert found[-1] == values[-1]
