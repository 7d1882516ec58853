"""How a server makes one value of all uploads."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import NamedTuple

import jax

from majorant.core import Key, Tree

Rule = Callable[[Tree, jax.Array, Key], Tree]  # (displacements (slots, …), who is there, a key) -> a displacement


class Combine(NamedTuple):
    """How a server makes one value of all uploads.

    ``each(values, weights)`` is the combination of values (slots, ...), of which those with weight 0 are absent.
    ``rule(displacements, present, key)`` is one of displacements from the point that all departed from, in which
    every client counts once. None of both: the weighted mean, which needs no uploads side by side.
    """

    name: str
    each: Callable[[Tree, jax.Array], Tree] | None = None
    rule: Rule | None = None
    tolerates: Callable[[int], int] = lambda clients: 0  # how many hostile clients it bears
    check: Callable[[int], None] = lambda clients: None  # refuses too few clients
    peers: bool = False  # for nodes of a graph, which clip their neighbours around their own values …
    radius: float | None = None  # … at this distance; None: at the median one

    @property
    def stacks(self) -> bool:
        """Whether it needs uploads side by side."""
        return self.each is not None or self.rule is not None


@functools.cache
def weighted_mean() -> Combine:
    """Σ weight · value / Σ weight."""
    return Combine("weighted mean")
