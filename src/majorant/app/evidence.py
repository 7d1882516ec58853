"""What a comparison is judged by: the predictions of each method's personal models for the same rows.

Beside the methods there is the trivial model, which knows no features. Clients on which a method's training diverged
are marked, and their predictions replaced by finite numbers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from majorant.engines.predictions import predictions
from majorant.engines.run import Run
from majorant.metrics.headline import Headline, choose_headline
from majorant.metrics.intervals import Design

TRIVIAL = "the trivial model"
GROSS = 100  # a training error (squared) so many times that of the mean of all targets is divergence


@dataclass
class Rows:
    """The test or validation rows of the clients that trained, in one split."""

    y: np.ndarray
    owner: np.ndarray
    rows: np.ndarray
    predicted: dict[str, np.ndarray] = field(default_factory=dict)  # of each method

    def kept(self, mask: np.ndarray) -> Rows:
        """Some of them."""
        predicted = {name: p[mask] for name, p in self.predicted.items()}
        return Rows(self.y[mask], self.owner[mask], self.rows[mask], predicted)


@dataclass
class Comparison:
    """What the runs of several methods on the same data say, ready to be judged."""

    names: tuple[str, ...]  # of the clients that trained
    classes: int
    sizes: dict[str, np.ndarray]  # (clients,) training and test rows
    headline: Headline
    design: Design
    test: list[Rows]  # of each split
    validation: list[Rows]
    diverged: dict[str, np.ndarray]  # method: (clients,)
    megabytes: dict[str, float]
    seconds: dict[str, float]

    @property
    def methods(self) -> list[str]:
        """Those that left models."""
        return [name for name in self.diverged if name in self.test[0].predicted]


def compared(runs: Mapping[str, Run | None]) -> Comparison:
    """Collects what runs predict; None is a method whose training diverged as a whole."""
    finished = {name: run for name, run in runs.items() if run is not None}
    if not finished:
        raise ValueError("there are no finished runs to compare")
    first = next(iter(finished.values()))
    sets, seen = first.data_sets, ~first.data.unseen
    parts = ("validation", "test") if len(first.data.validation.y) else ("test",)
    rows = {part: [rows_of(data, part) for data in sets] for part in parts}
    diverged = {name: np.ones(int(seen.sum()), bool) for name in runs}
    for name, run in finished.items():
        refuse_other_data(name, run, first)
        diverged[name] = np.zeros(int(seen.sum()), bool)
        for split, found in enumerate(predictions(run, parts)):
            diverged[name] |= diverged_clients(run, split)[seen]
            for part in parts:
                trained = np.repeat(seen, getattr(sets[split], part).sizes)
                predicted = found[part][trained]
                here = rows[part][split]
                wrong = ~np.isfinite(predicted.reshape(len(predicted), -1)).all(axis=1)
                diverged[name][here.owner[wrong]] = True
                here.predicted[name] = np.nan_to_num(predicted, nan=0.0, posinf=1e30, neginf=-1e30)
    for split, data in enumerate(sets):
        for part in parts:
            rows[part][split].predicted[TRIVIAL] = trivial_predictions(data, rows[part][split].owner)
    redrawn = len(sets) > 1 and any(each is not sets[0] for each in sets)
    train, test = (float(len(getattr(first.data, part).y)) for part in ("train", "test"))
    labels = first.data.train.y[np.repeat(seen, first.data.train.sizes)]
    sent = lambda run: sum(run.communication[0][key] for key in ("bytes_up", "bytes_down")) / 1e6
    return Comparison(
        names=tuple(name for name, in_training in zip(first.data.names, seen, strict=True) if in_training),
        classes=len(first.data.classes),
        sizes={part: getattr(first.data, part).sizes[seen] for part in ("train", "test")},
        headline=choose_headline(labels, len(first.data.classes)),
        design=Design(train / (train + test), test / (train + test), redrawn),
        test=rows["test"],
        validation=rows.get("validation", []),
        diverged=diverged,
        megabytes={name: sent(run) for name, run in finished.items()},
        seconds={name: float(sum(run.seconds.values())) for name, run in finished.items()},
    )


def refuse_other_data(name: str, run: Run, first: Run) -> None:
    """Runs that are compared saw the same rows."""
    same = len(run) == len(first) and all(
        one is two or (np.array_equal(one.test.y, two.test.y) and np.array_equal(one.test.x, two.test.x))
        for one, two in zip(run.data_sets, first.data_sets, strict=True)
    )
    if not same:
        raise ValueError(f"{name} ran on other data or other splits: compare runs on the same")


def rows_of(data: Any, part: str) -> Rows:
    """The rows of a part without predictions; clients are numbered among those that trained."""
    ragged, seen = getattr(data, part), ~data.unseen
    owner = np.repeat(np.arange(data.clients), ragged.sizes)
    mask = seen[owner]
    y = ragged.y[mask] if data.classes else np.asarray(data.label_values(ragged.y[mask]), np.float64)
    numbers = len(data.train.y) + np.arange(len(owner)) if ragged.rows is None else ragged.rows  # as `redrawn` counts
    return Rows(y, (np.cumsum(seen) - 1)[owner[mask]], numbers[mask])


def trivial_predictions(data: Any, owner: np.ndarray) -> np.ndarray:
    """What each client would predict without features: the shares of its training labels, or their mean."""
    found: list[Any] = []
    for client in np.flatnonzero(~data.unseen):
        y = data.train.client(int(client))[1]
        y = data.train.y if len(y) == 0 else y
        if data.classes:
            found.append(np.bincount(y, minlength=len(data.classes)) / len(y))
        else:
            found.append(np.mean(np.asarray(data.label_values(y), np.float64)))
    return np.array(found)[owner]


def diverged_clients(run: Run, split: int) -> np.ndarray:
    """Clients whose training loss is not finite or, in regression, beyond all that is reasonable."""
    loss = run.scores[split].values.get("train_loss")
    data = run.data_sets[split]
    if loss is None:
        return np.zeros(data.clients, bool)
    wrong = ~np.isfinite(loss)
    if not data.classes:  # half squared errors, in the units of training
        y = data.train.y.astype(np.float64)
        owner = np.repeat(np.arange(data.clients), data.train.sizes)
        count = np.maximum(data.train.sizes, 1)
        away = np.bincount(owner, (y - y.mean()) ** 2, minlength=data.clients) / count
        wrong |= 2 * np.nan_to_num(loss, nan=np.inf) > GROSS * (away + y.var())
    return wrong & (data.train.sizes > 0)
