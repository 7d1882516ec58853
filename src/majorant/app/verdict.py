"""The verdict of a comparison: is collaboration worth it, by which method, for whom, and how sure is that?

Everything follows from what the methods' personal models predict for the test rows of the clients that trained. Each
method is paired with training alone on the same rows (`metrics.intervals`). The best method is the one with the best
score on the validation rows, which are not those that it is judged by; where there are none, it is chosen on the test
rows, and its interval is widened for that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from majorant.app.evidence import TRIVIAL, Comparison, Rows, compared
from majorant.app.wording import sentences
from majorant.engines.run import Run
from majorant.metrics.headline import BOUNDED, Parts, all_scores, parts_of
from majorant.metrics.intervals import (
    LEAST_ROWS,
    Estimate,
    Paired,
    by_client,
    discoveries,
    overall,
    rows_tested,
)
from majorant.metrics.scores import bottom_decile

ALONE = "local"


@dataclass
class Judge:
    """Judges a comparison: scores, gains and intervals, each computed once."""

    about: Comparison
    parts: dict[str, list[Parts]] = field(init=False)  # of each method, on the test rows

    def __post_init__(self) -> None:
        self.parts = {name: self.parts_on(self.about.test, name) for name in [*self.about.methods, TRIVIAL]}

    def parts_on(self, rows: Sequence[Rows], name: str) -> list[Parts]:
        """What a method's score on some rows is made of, in each split."""
        metric, clients = self.about.headline.name, len(self.about.names)
        return [parts_of(metric, each.y, each.predicted[name], each.owner, clients) for each in rows]

    @property
    def sign(self) -> int:
        """1 where larger scores are better."""
        return 1 if self.about.headline.higher_is_better else -1

    @property
    def bounded(self) -> bool:
        """Whether scores lie between 0 and 1."""
        return self.about.headline.name in BOUNDED

    def possible(self, ends: tuple[np.ndarray, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        """An interval of gains; scores between 0 and 1 differ by at most 1."""
        return (np.clip(ends[0], -1, 1), np.clip(ends[1], -1, 1)) if self.bounded else ends

    def clean(self, name: str) -> bool:
        """Whether a method diverged on no client."""
        return not self.about.diverged.get(name, np.zeros(1, bool)).any()

    def score(self, name: str) -> float:
        """The mean over splits of the score of all clients."""
        return float(np.mean([part.value for part in self.parts[name]]))

    def client_scores(self, name: str) -> np.ndarray:
        """The mean over splits of each client's score, NaN where it is never defined."""
        each = np.stack([part.clients for part in self.parts[name]])
        defined = (~np.isnan(each)).sum(axis=0)
        return np.where(defined > 0, np.nansum(each, axis=0) / np.maximum(defined, 1), np.nan)

    def paired(self, name: str, over: str | None, without: np.ndarray | None = None) -> list[Paired]:
        """A method's gain over another, or its own score (``over`` None), in each split, ``without`` some clients."""
        if without is not None and without.any():
            kept = [r.kept(~without[r.owner]) for r in self.about.test]
            found = {n: self.parts_on(kept, n) for n in (name, over) if n is not None}
        else:
            kept, found = self.about.test, self.parts
        pairs = []
        for split, rows in enumerate(kept):
            mine = found[name][split]
            if over is not None:
                mine = mine.over(found[over][split], self.sign)
            rare = rarer_class(rows.y, rows.owner, len(self.about.names)) if self.about.headline.name == "auc" else None
            kind = rows.y if self.about.headline.name == "balanced_accuracy" else None
            pairs.append(Paired(mine.value, mine.clients, rows.rows, rows.owner, mine.whole, mine.own, rare, kind))
        return pairs

    def gain(self, name: str, over: str | None, without: np.ndarray | None = None) -> Estimate:
        """The gain of all clients together, with its error."""
        return overall(self.paired(name, over, without), self.about.design, bounded=self.bounded)

    def chosen(self, candidates: Sequence[str]) -> str | None:
        """The method with the best score on validation rows; on test rows where there are none."""
        rows = self.about.validation or self.about.test
        scores = {name: self.sign * np.mean([part.value for part in self.parts_on(rows, name)]) for name in candidates}
        known = {name: value for name, value in scores.items() if not np.isnan(value)}
        return max(known, key=known.__getitem__) if known else None

    def interval(self, estimate: Estimate, candidates: int) -> tuple[float, float]:
        """The interval of the gain of the best of some candidates."""
        low, high = self.possible(estimate.interval(self.level(candidates)))
        return float(low), float(high)

    def level(self, candidates: int) -> float:
        """The level of the best method's interval: 95 %, and more where it was chosen on the same rows."""
        return 0.95 if self.about.validation else 1 - 0.05 / max(1, candidates)


class Judgement(dict[str, Any]):
    """The record of a comparison, which prints the verdict in words."""

    def __str__(self) -> str:
        return "\n".join(self["verdict"]["sentences"])

    __repr__ = __str__


def judge(runs: Mapping[str, Run | None], groups: tuple[str, np.ndarray] | None = None) -> Judgement:
    """The verdict on runs of several methods on the same data, one of them ``local``: who gains, with which, how sure?

    Runs on several splits, ``simulate(algorithm, [data, data.redrawn(1), …])``, are judged on all of them. ``groups``
    is a column for fairness: its name, and the values of all rows of the table. The result is the record that the
    command line writes as ``summary.json``, and prints the conclusion.

    >>> import majorant as mj
    >>> data = mj.data.synthetic_mixture(clients=4, dimension=3, seed=0)
    >>> model = mj.models.linear(data)
    >>> found = judge({m.name: mj.simulate(m, data, rounds=2) for m in (mj.local(model), mj.fedavg(model))})
    >>> found["verdict"]["best"], found["verdict"]["over"], found["metric"]
    ('fedavg', 'local', 'accuracy')
    """
    with np.errstate(over="ignore", invalid="ignore"):  # of methods that diverged, which are named
        return judged(compared(runs), groups)


def judged(about: Comparison, groups: tuple[str, np.ndarray] | None = None) -> Judgement:
    """The record of a comparison."""
    found = Judge(about)
    alone = next((name for name in about.methods if name.partition(":")[0] == ALONE), None)
    candidates = [name for name in about.methods if name != alone and found.clean(name)]
    best = found.chosen(candidates)
    record = Judgement(
        metric=about.headline.name,
        why=about.headline.why,
        higher_is_better=about.headline.higher_is_better,
        splits=len(about.test),
        redrawn=about.design.redrawn,
    )
    clients = client_records(found, best, alone, len(candidates))
    small = [each["name"] for each in clients if each.pop("small")]
    record["methods"] = {name: method_record(found, name, small, groups) for name in about.methods}
    record["clients"] = clients
    record["verdict"] = verdict_of(found, best, alone, candidates, clients, small)
    record["verdict"]["sentences"] = sentences(record)
    return record


def method_record(
    found: Judge, name: str, small: Sequence[str], groups: tuple[str, np.ndarray] | None
) -> dict[str, Any]:
    """The numbers of one method."""
    about, each = found.about, found.client_scores(name)
    enough = ~np.isin(np.array(about.names, object), np.array([*small, None], object)) & ~np.isnan(each)
    clean = found.clean(name)
    low, high = found.gain(name, None).interval()
    if found.bounded:
        low, high = np.clip([low, high], 0, 1)
    scores = [all_scores(r.y, r.predicted[name], r.owner, about.classes) for r in about.test]
    value = found.score(name)
    record: dict[str, Any] = {
        "mean": value if clean else None,
        "interval": [float(low), float(high)] if clean and not np.isnan(low) else None,
        "std_over_splits": float(np.std([p.value for p in found.parts[name]], ddof=1)) if len(about.test) > 1 else None,
        "bottom_decile": bottom_decile(each[enough], larger_is_better=found.sign > 0) if clean else None,
        "std": float(np.nanstd(each)) if clean else None,
        "scores": {k: float(np.mean([s[k] for s in scores])) if clean else None for k in scores[0]},
        "diverged": names_where(about, about.diverged[name]),
        "megabytes": about.megabytes[name],
        "seconds": about.seconds[name],
    }
    if groups is not None:
        record["gaps"] = gaps(found, name, groups)
    return record


def gaps(found: Judge, name: str, groups: tuple[str, np.ndarray]) -> dict[str, Any]:
    """The score of a method on the rows of each group, and the gap between the best and the worst of them."""
    about, (column, values) = found.about, groups
    clients, metric = len(about.names), about.headline.name
    each: dict[str, Any] = {}
    for value in np.unique(values):
        kept = [r.kept(values[r.rows] == value) for r in about.test]
        count = len(np.unique(np.concatenate([r.rows for r in kept])))
        scores = [parts_of(metric, r.y, r.predicted[name], r.owner, clients).value for r in kept if len(r.y)]
        defined = [score for score in scores if not np.isnan(score)]
        each[str(value)] = {"rows": count, "score": float(np.mean(defined)) if defined and count else None}
    known = [g["score"] for g in each.values() if g["score"] is not None and g["rows"] >= LEAST_ROWS]
    return {"column": column, "groups": each, "gap": max(known) - min(known) if len(known) > 1 else None}


def client_records(found: Judge, best: str | None, alone: str | None, candidates: int) -> list[dict[str, Any]]:
    """What each client has of the comparison."""
    about, nothing = found.about, np.full(len(found.about.names), np.nan)
    scores = {name: found.client_scores(name) for name in [*about.methods, TRIVIAL]}
    small = rows_tested(found.paired(TRIVIAL, None)) < LEAST_ROWS
    gain, low, high = nothing, nothing, nothing
    certain = np.zeros(len(nothing), bool)
    broken = np.zeros(len(nothing), bool)
    if best is not None and alone is not None:
        broken = about.diverged[best] | about.diverged[alone]
        estimate = by_client(found.paired(best, alone), about.design, bounded=found.bounded)
        p = np.where(small | broken, np.nan, estimate.p_value())
        certain, level = discoveries(p, 1 - found.level(candidates))
        gain, (low, high) = np.where(broken, np.nan, estimate.gain), found.possible(estimate.interval(level))
    records = []
    for c, name in enumerate(about.names):
        known = not (np.isnan(gain[c]) or np.isnan(low[c]))
        word = "gains" if certain[c] and gain[c] > 0 else "loses" if certain[c] else "unclear"
        records.append(
            {
                "name": name,
                "train": int(about.sizes["train"][c]),
                "test": int(about.sizes["test"][c]),
                "scores": {m: finite(scores[m][c]) if not about.diverged[m][c] else None for m in about.methods},
                "trivial": finite(scores[TRIVIAL][c]),
                "gain": finite(gain[c]),
                "interval": [float(low[c]), float(high[c])] if known and not small[c] else None,
                "verdict": "diverged" if broken[c] else word,
                "small": bool(small[c]),
            }
        )
    return records


def verdict_of(
    found: Judge,
    best: str | None,
    alone: str | None,
    candidates: Sequence[str],
    clients: list[dict[str, Any]],
    small: list[str],
) -> dict[str, Any]:
    """The conclusion in numbers."""
    about = found.about
    named = lambda word: [each["name"] for each in clients if each["verdict"] == word]
    record: dict[str, Any] = {"best": best, "over": alone, "worth_it": "unclear", "gain": None, "interval": None}
    trivial = trivial_record(found, [*candidates, *([alone] if alone and found.clean(alone) else [])])
    if best is not None and alone is not None and not about.diverged[alone].all():
        estimate = found.gain(best, alone, without=about.diverged[alone])
        if not np.isnan(estimate.gain):
            low, high = found.interval(estimate, len(candidates))
            yes = low > 0 and trivial["beaten"]
            record |= {"gain": float(estimate.gain), "interval": [low, high]}
            record["worth_it"] = "yes" if yes else "no" if high < 0 else "unclear"
            behind = found.gain(TRIVIAL, alone, without=about.diverged[alone]).interval(found.level(1))
            trivial["beats_alone"] = bool(behind[0] > 0)
    return record | {
        "gain_clients": named("gains"),
        "lose_clients": named("loses"),
        "unclear_clients": len(named("unclear")),
        "trivial": trivial,
        "small_clients": small,
        "diverged": {name: names_where(about, mask) for name, mask in about.diverged.items() if mask.any()},
        "megabytes": about.megabytes.get(best) if best is not None else None,
        "chosen_on": "validation" if about.validation else "test",
        "level": 0.95,
    }


def trivial_record(found: Judge, candidates: Sequence[str]) -> dict[str, Any]:
    """How far the best of all methods, training alone included, is above the model that knows no features."""
    name = "majority class" if found.about.classes else "mean of the training targets"
    score = finite(found.score(TRIVIAL))
    record: dict[str, Any] = {"name": name, "score": score, "beaten": False, "beats_alone": False}
    best = found.chosen(candidates)
    if best is None:
        return record | {"by": None, "gain": None, "interval": None}
    estimate = found.gain(best, TRIVIAL)
    low, high = found.interval(estimate, len(candidates))
    return record | {"beaten": low > 0, "by": best, "gain": finite(estimate.gain), "interval": [low, high]}


def rarer_class(y: np.ndarray, owner: np.ndarray, clients: int) -> np.ndarray:
    """Which rows are of the class that is rarer at their client.

    >>> rarer_class(np.array([0, 0, 1, 1, 1, 0]), np.array([0, 0, 0, 1, 1, 1]), 2).tolist()
    [False, False, True, False, False, True]
    """
    ones, count = np.bincount(owner, y, minlength=clients), np.bincount(owner, minlength=clients)
    return (y == 1) == (2 * ones <= count)[owner]


def names_where(about: Comparison, mask: np.ndarray) -> list[str]:
    """The names of some clients."""
    return [name for name, chosen in zip(about.names, mask, strict=True) if chosen]


def finite(value: Any) -> float | None:
    """A number, None where it is none."""
    return float(value) if np.isfinite(value) else None
