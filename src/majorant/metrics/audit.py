"""Audits of privacy: what an attack shows that ε must be at least, with confidence.

An accountant says what ε is if the code does what it says. An attacker who plays against the code gives a number from
below: if that is above the accountant's, the code is wrong.

*Two worlds*: many draws of what is released, with the victim's data and without. A test "score > t" that is right so
often refutes every ε below ``log((1 − δ − β)/α)``, α and β being its two errors, at the ends of their confidence
intervals (Clopper and Pearson). The threshold is chosen on one half of the draws, and the errors are counted on the
other.

*One run*: many victims at once, each there by a fair coin; the attacker guesses coins. For (ε, δ)-private code the
right guesses are hardly more than a binomial number with probability e^ε/(1 + e^ε).

References: Nasr et al., *Adversary instantiation*, S&P 2021; Steinke, Nasr, Jagielski, *Privacy auditing with one (1)
training run*, NeurIPS 2023, Theorem 5.2.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy import stats


def two_worlds(present: np.ndarray, absent: np.ndarray, *, delta: float, confidence: float = 0.99) -> float:
    """A lower bound of ε from the attacker's scores in both worlds; right with the given confidence.

    >>> rng = np.random.default_rng(0)
    >>> bound = two_worlds(rng.normal(1, 1, 20000), rng.normal(0, 1, 20000), delta=0.01)
    >>> 1.5 < bound < 2.3  # dp-accounting says 2.3 for noise of the size of what it hides
    True
    """
    halves = [(scores[::2], scores[1::2]) for scores in (np.asarray(present, float), np.asarray(absent, float))]
    (choose_in, count_in), (choose_out, count_out) = halves
    thresholds = np.quantile(np.concatenate([choose_in, choose_out]), np.linspace(0.001, 0.999, 999))
    best = thresholds[np.argmax(refuted(choose_in, choose_out, thresholds, delta, confidence))]
    return max(0.0, float(refuted(count_in, count_out, best, delta, confidence)))


def refuted(present: np.ndarray, absent: np.ndarray, threshold: Any, delta: float, confidence: float) -> Any:
    """The largest ε that thresholds refute, whichever of the two worlds it is about."""
    low = (1 - confidence) / 2  # two errors are bounded
    spared = lambda scores: np.searchsorted(np.sort(scores), threshold, side="right")  # how many are no larger
    accused = most_often(len(absent) - spared(absent), len(absent), low)
    missed = most_often(spared(present), len(present), low)
    there = np.log(np.maximum(1 - delta - missed, 1e-300) / accused)
    gone = np.log(np.maximum(1 - delta - accused, 1e-300) / missed)
    return np.maximum(there, gone)


def most_often(count: Any, draws: int, level: float) -> Any:
    """The upper end of the Clopper–Pearson interval of a probability."""
    found = stats.beta.ppf(1 - level, count + 1, np.maximum(draws - count, 1))
    return np.where(count == draws, 1.0, found)


def one_run(right: int, guesses: int, victims: int, *, delta: float, confidence: float = 0.99) -> float:
    """A lower bound of ε from one run with many victims, each there by a fair coin, of which some were guessed.

    >>> round(one_run(100, 100, 1000, delta=0.0), 2), one_run(50, 100, 1000, delta=0.0)
    (3.05, 0.0)
    """
    if not 0 <= right <= guesses <= victims:
        raise ValueError(f"expected right ≤ guesses ≤ victims, got {right}, {guesses} and {victims}")
    level, low, high = 1 - confidence, 0.0, 50.0
    if chance(right, guesses, victims, 0.0, delta) > level:
        return 0.0
    for _ in range(60):
        middle = (low + high) / 2
        if chance(right, guesses, victims, middle, delta) <= level:
            low = middle
        else:
            high = middle
    return low


def chance(right: int, guesses: int, victims: int, epsilon: float, delta: float) -> float:
    """How likely so many right guesses are, at most, for code that is (ε, δ)-private."""
    each = 1 / (1 + math.exp(-epsilon))
    tail = float(stats.binom.sf(right - 1, guesses, each))
    below = np.cumsum(stats.binom.pmf(right - np.arange(1, right + 1), guesses, each))
    slope = float((below / np.arange(1, right + 1)).max(initial=0))
    return min(1.0, tail + 2 * victims * delta * slope)
