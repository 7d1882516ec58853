"""Step sizes γ_t in (0, 1] of stochastic approximation, for iterations t = 1, 2, …

============  ==============  =========================================================================
name          γ_t             what it does
============  ==============  =========================================================================
constant      γ               forgets the past at a geometric rate; 1 keeps only the newest
averaging     1/t             the mean of all that was seen, of equal weights
square_root   β / √(β + t)    decays slowly enough to forget a bad start (β from 0.001 to 0.05 in the paper)
============  ==============  =========================================================================

Reference: Dieuleveut, Fort, Hegazy, Wai, *Federated majorize-minimization: beyond parameter aggregation*, 2025,
Sections 2.2 and 6.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from majorant.math.checks import check_range

GOLDEN = (1 + math.sqrt(5)) / 2  # β / √(β + 1) = 1


class StepSize(NamedTuple):
    """γ_t as a function of hyperparameters and of t."""

    name: str
    hyper: dict[str, float]
    rule: Callable[[dict[str, jax.Array], jax.Array], jax.Array]
    most: float = 1.0  # the largest value of its hyperparameter

    def __hash__(self) -> int:
        return hash((self.name, self.rule))

    def check(self, hyper: dict[str, float]) -> None:
        """Refuses values of the hyperparameters with which a step would leave (0, 1]."""
        for name in self.hyper.keys() & hyper.keys():
            check_range(name, hyper[name], above=0, most=self.most)

    def at(self, hyper: dict[str, jax.Array], t: jax.Array | int) -> jax.Array:
        """γ_t, with t from 1."""
        return self.rule(hyper, jnp.asarray(t, jnp.result_type(float)))


@functools.cache
def constant(gamma: float = 1.0) -> StepSize:
    """The same step always.

    >>> constant(1.5)
    Traceback (most recent call last):
    ValueError: gamma must be a finite number greater than 0 and at most 1, got 1.5
    """
    check_range("gamma", gamma, above=0, most=1)
    return StepSize(f"constant:{gamma:g}", {"gamma": gamma}, lambda hyper, t: hyper["gamma"])


@functools.cache
def averaging() -> StepSize:
    """1/t: the statistic is the mean of all oracles."""
    return StepSize("averaging", {}, lambda hyper, t: 1 / t)


@functools.cache
def square_root(beta: float = 0.05) -> StepSize:
    """β / √(β + t).

    >>> square_root(0.05).at({"beta": jnp.asarray(0.05)}, 1).round(4)
    Array(0.0488, dtype=float32)
    """
    check_range("beta", beta, above=0, most=GOLDEN)
    rule = lambda hyper, t: hyper["beta"] / jnp.sqrt(hyper["beta"] + t)
    return StepSize(f"square-root:{beta:g}", {"beta": beta}, rule, GOLDEN)
