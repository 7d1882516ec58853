"""Audits: bounds from below that hold as often as they say, for mechanisms whose ε is known."""

import math

import numpy as np
import pytest
from scipy import stats

from majorant.metrics.audit import one_run, two_worlds


def test_worlds_that_are_one_are_told_apart_no_more_often_than_the_confidence_allows():
    """ε = 0: a threshold that was chosen on the draws that it is counted on would be right by luck."""
    rng = np.random.default_rng(0)
    found = [two_worlds(*rng.normal(size=(2, 1000)), delta=0.0, confidence=0.6) > 0 for _ in range(100)]
    assert np.mean(found) <= 0.4


def test_a_bound_lies_below_the_truth_and_near_it():
    """Randomized response with three right answers of four: ε = log 3, exactly."""
    rng, truth = np.random.default_rng(1), math.log(3)
    answers = lambda there: rng.random(4000) < (0.75 if there else 0.25)
    found = [two_worlds(answers(True), answers(False), delta=0.0, confidence=0.9) for _ in range(60)]
    assert np.mean(np.array(found) > truth) < 0.1
    assert np.mean(found) > 0.85 * truth


def test_one_run_allows_every_victim_its_delta():
    """Code that gives each of 1,000 coins away with probability 0.01 is (0, 0.01)-private: 8 right show nothing."""
    assert one_run(8, 8, 1000, delta=0.01) == 0.0
    assert one_run(8, 8, 8, delta=0.0) > 0.0


def test_one_run_is_wrong_as_often_as_it_says_at_most():
    """Guesses of randomized response with ε = log 3 are right with probability 3/4: how often is the bound above?"""
    first = next(
        right for right in range(300, 401) if one_run(right, 400, 400, delta=0.0, confidence=0.9) > math.log(3)
    )
    assert 0.08 < stats.binom.sf(first - 1, 400, 0.75) <= 0.1


def test_more_right_guesses_than_guesses_are_refused():
    with pytest.raises(ValueError, match="right ≤ guesses ≤ victims"):
        one_run(5, 4, 10, delta=0.0)
