r"""How sure a gain of one method over another is, over all clients and for each of them.

The clients are those of the table. Random are the test rows, and with several splits of the rows also what was trained
on. Two methods predict the same rows, so that their gain has contributions of single rows (see `headline`), and

    variance = rows + splits

- *rows*: a row's contribution is the mean over the splits in which it was tested, less its client's mean; the squares
  add up. Clients with few rows have one mean in common.
- *splits* (where there are K > 1): the variance of the gain between splits, less what other test rows explain of it,
  times 1/K + f / (1 − f), where f is the share of training rows among training and test rows: training sets of random
  splits have that share of their rows in common, so their effects are correlated, and do not average out (Nadeau and
  Bengio, Inference for the generalization error, 2003, have the same correction for test errors). A variance of few
  numbers is uncertain: it is averaged with the guess that there is no more of it than test rows explain, as if six more
  splits had said so.

The interval is Student's, with Satterthwaite's degrees of freedom. A score between 0 and 1 gets two made-up rows, one
that each method wins, so that few rows never give an interval of length 0. A mean over classes, as the balanced
accuracy is, gets them in every class: one row of a rare class may move it by as much as all rows of a frequent one.

With one split, models are taken as they are: what other training rows would have given is not covered.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.special import stdtr, stdtrit  # Student's t; `scipy.stats` takes most of a second to load

FEW = 5  # clients with fewer rows share a mean
PRIOR = 6  # degrees of freedom of the guess that splits differ by their test rows alone
LEAST_ROWS = 6  # with fewer, not even rows that all agree say anything: 2 · 2⁻⁵ > 0.05


class Paired(NamedTuple):
    """A gain on the test rows of one split."""

    gain: float
    clients: np.ndarray  # (clients,) gains of each; NaN where it is not defined
    rows: np.ndarray  # (n,) numbers of the rows, the same in all splits
    owner: np.ndarray  # (n,) their clients
    whole: np.ndarray  # (n,) contributions to the gain
    own: np.ndarray  # (n,) contributions to the gain of the row's client
    rare: np.ndarray | None = None  # (n,) where these are what is scarce (positive rows, of an AUC): they count as rows
    kind: np.ndarray | None = None  # (n,) the rows' classes, of a gain that is a mean over classes


class Design(NamedTuple):
    """How splits were drawn: the shares of training and test rows among both; redrawn or the same every time."""

    train: float
    test: float
    redrawn: bool

    @property
    def own_noise(self) -> float:
        """The share of the test rows' noise that is a split's own, and not common to two splits."""
        return 1 - self.test if self.redrawn else 0.0

    def averaged(self, splits: np.ndarray) -> np.ndarray:
        """The variance of a mean over splits, in units of the variance between them."""
        return 1 / splits + (self.train / max(1 - self.train, 1e-9) if self.redrawn else 0.0)


class Estimate(NamedTuple):
    """Gains with their standard errors and degrees of freedom: numbers, or arrays over clients."""

    gain: np.ndarray
    error: np.ndarray
    freedom: np.ndarray

    def interval(self, level: float = 0.95) -> tuple[np.ndarray, np.ndarray]:
        """Student's interval."""
        half = stdtrit(np.maximum(self.freedom, 1), (1 + level) / 2) * self.error
        return self.gain - half, self.gain + half

    def p_value(self) -> np.ndarray:
        """Of the hypothesis that there is no gain, against both sides."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return 2 * stdtr(np.maximum(self.freedom, 1), -np.abs(self.gain / self.error))


def overall(splits: Sequence[Paired], design: Design, *, bounded: bool) -> Estimate:
    """The gain of all clients together, a mean over splits."""
    clients = len(splits[0].clients)
    centred = [centre(s.whole, strata(s.owner, clients), clients + 1) for s in splits]
    numbers, first, place = np.unique(np.concatenate([s.rows for s in splits]), return_index=True, return_inverse=True)
    together = np.bincount(place, np.concatenate(centred)) / len(splits)
    n = len(numbers)
    rows = np.sum(together**2) + bounded * 2 / (n * (n + 1))
    gains = np.array([s.gain for s in splits])
    single = np.mean([np.sum(each**2) for each in centred])
    kinds = len(np.unique(strata(splits[0].owner, clients)))
    freedom = max(1, min(n - kinds, int(rows_tested(splits).sum()) - 1))
    noise = np.array([rows]), np.array([freedom])
    if splits[0].kind is not None:
        noise = of_classes(together**2, np.zeros(n, int), classes_of(splits)[first], 1)
    return combine(gains[None], noise[0], np.array([single]), noise[1], design).only()


def by_client(splits: Sequence[Paired], design: Design, *, bounded: bool) -> Estimate:
    """The gain of each client, a mean over the splits in which it is defined."""
    clients = len(splits[0].clients)
    gains = np.stack([s.clients for s in splits], axis=1)  # (clients, splits)
    defined = np.maximum((~np.isnan(gains)).sum(axis=1), 1)
    kinds = 1 if splits[0].kind is None else int(classes_of(splits).max(initial=0)) + 1
    centred = [centre(s.own, s.owner if s.kind is None else s.owner * kinds + s.kind, clients * kinds) for s in splits]
    numbers, first, place = np.unique(np.concatenate([s.rows for s in splits]), return_index=True, return_inverse=True)
    owner = np.concatenate([s.owner for s in splits])[first]
    together = np.bincount(place, np.concatenate(centred), minlength=len(numbers)) / defined[owner]
    n = np.maximum(np.bincount(owner, minlength=clients), 1)
    rows = np.bincount(owner, together**2, minlength=clients) + bounded * 2 / (n * (n + 1))
    each = np.stack([np.bincount(s.owner, c**2, minlength=clients) for s, c in zip(splits, centred, strict=True)])
    freedom = np.maximum(rows_tested(splits) - 1, 1)
    if splits[0].kind is not None:
        rows, freedom = of_classes(together**2, owner, classes_of(splits)[first], clients)
    return combine(gains, rows, each.sum(axis=0) / defined, freedom, design)


def classes_of(splits: Sequence[Paired]) -> np.ndarray:
    """The classes of the rows of all splits."""
    return np.concatenate([s.kind for s in splits if s.kind is not None])


def of_classes(squares: np.ndarray, owner: np.ndarray, kind: np.ndarray, owners: int) -> tuple[np.ndarray, np.ndarray]:
    """The variances of means over classes, with two made-up rows in each, and their degrees of freedom."""
    shape = owners, int(kind.max(initial=0)) + 1
    cell = owner * shape[1] + kind
    n, each = (np.bincount(cell, weights, minlength=shape[0] * shape[1]).reshape(shape) for weights in (None, squares))
    classes = np.maximum((n > 0).sum(axis=1, keepdims=True), 1)
    each = each + np.where(n > 0, 2 / (np.maximum(n, 1) * (n + 1)), 0) / classes**2
    rows = each.sum(axis=1)
    return rows, np.where(rows > 0, rows**2 / np.maximum(np.sum(each**2 / (n + 1), axis=1), 1e-300), 1)


def rows_tested(splits: Sequence[Paired]) -> np.ndarray:
    """How many different rows of each client were tested; of what is scarce where that is said."""
    rows, owner = (np.concatenate([getattr(s, name) for s in splits]) for name in ("rows", "owner"))
    counts = np.concatenate([np.ones(len(s.rows), bool) if s.rare is None else s.rare for s in splits])
    _, first = np.unique(rows[counts], return_index=True)
    return np.bincount(owner[counts][first], minlength=len(splits[0].clients))


def strata(owner: np.ndarray, clients: int) -> np.ndarray:
    """The clients of rows, those with few of them as one."""
    return np.where(np.bincount(owner, minlength=clients)[owner] < FEW, clients, owner)


def centre(values: np.ndarray, group: np.ndarray, groups: int) -> np.ndarray:
    """Values less their group's mean, scaled so that their squares are not too small; a single one stays as it is."""
    count = np.bincount(group, minlength=groups)
    mean = np.bincount(group, values, minlength=groups) / np.maximum(count, 1)
    alone = count[group] == 1
    scale = np.sqrt(count / np.maximum(count - 1, 1))[group]
    return np.where(alone, values, (values - mean[group]) * scale)


class Combined(Estimate):
    """An estimate of several gains."""

    def only(self) -> Estimate:
        """The one gain that there is."""
        return Estimate(*(each[0] for each in self))


def combine(gains: np.ndarray, rows: np.ndarray, single: np.ndarray, freedom: np.ndarray, design: Design) -> Combined:
    """Means over splits, (m, K) to (m,), with the variance of rows and that between splits."""
    defined = (~np.isnan(gains)).sum(axis=1)
    count = np.maximum(defined, 1)
    mean = np.where(defined > 0, np.nansum(gains, axis=1) / count, np.nan)
    explained = design.own_noise * single  # of the variance between splits, by their test rows
    known = count - 1 + PRIOR
    spread = (np.nansum((gains - mean[:, None]) ** 2, axis=1) + PRIOR * explained) / known
    extra = np.maximum(0.0, spread - explained) * design.averaged(count)
    between = np.where(defined > 1, extra, 0.0)
    variance = rows + between
    with np.errstate(divide="ignore", invalid="ignore"):
        satterthwaite = variance**2 / (rows**2 / freedom + between**2 / known)
    freedom = np.where(variance > 0, satterthwaite, freedom)
    return Combined(mean, np.sqrt(variance), freedom)


def discoveries(p: np.ndarray, level: float = 0.05) -> tuple[np.ndarray, float]:
    """Which hypotheses fall when their false share is to stay below ``level`` (Benjamini and Hochberg, 1995).

    Also the level at which each has an interval that agrees: it excludes 0 just where the hypothesis falls (Benjamini
    and Yekutieli's intervals, 2005). NaN is no hypothesis.

    >>> discoveries(np.array([0.001, 0.02, 0.9, np.nan]))
    (array([ True,  True, False, False]), 0.9666666666666667)
    """
    known = ~np.isnan(p)
    total = int(known.sum())
    if not total:
        return np.zeros(len(p), bool), 1 - level
    ordered = np.sort(p[known])
    passing = np.flatnonzero(ordered <= level * np.arange(1, total + 1) / total)
    found = int(passing[-1]) + 1 if len(passing) else 0
    threshold = level * max(found, 1) / total
    return known & (np.nan_to_num(p, nan=1.0) <= threshold) & (found > 0), 1 - threshold
