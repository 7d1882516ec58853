"""Poisson numbers of large means: SciPy's distribution, in single precision."""

import jax
import numpy as np
import pytest
from scipy import stats

from compiling import quickly
from majorant.exchange._poisson import log_probability, poisson
from majorant.exchange.secure_sum import COUNTED

DRAWS = 200_000


@pytest.mark.parametrize("mean", [3.5, 100.25, 1e5 / 3, COUNTED])
def test_numbers_have_the_distribution_that_they_should(mean):
    """By a test of χ² in 100 bins of about the same probability, and by the variance, which is what hides."""
    drawn = np.asarray(quickly(lambda key: poisson(key, mean, (DRAWS,)))(jax.random.key(0)))
    right = stats.poisson(mean)
    ends = np.unique(right.ppf(np.linspace(0.01, 0.99, 99)))
    expected = np.diff(np.concatenate([[0.0], right.cdf(ends), [1.0]])) * DRAWS
    counted = np.bincount(np.searchsorted(ends, drawn), minlength=len(ends) + 1)
    assert stats.chisquare(counted, expected).pvalue > 1e-4
    assert drawn.astype(float).var() == pytest.approx(mean, rel=5 * np.sqrt(2 / DRAWS))
    far = np.abs(drawn - mean) > 4 * np.sqrt(mean)  # tails are there, too
    assert mean < 10 or 2 <= far.sum() <= 40  # 13 are expected of so many normal numbers


@pytest.mark.parametrize("mean", [100.25, 1e5 / 3, COUNTED])
def test_probabilities_keep_their_digits(mean):
    k = np.round(mean + np.sqrt(mean) * np.linspace(-6, 6, 201))
    found = log_probability(np.asarray(k - mean, np.float32), mean)
    np.testing.assert_allclose(found, stats.poisson(mean).logpmf(k), atol=2e-4)
