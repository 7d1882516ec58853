"""How often the verdict's intervals cover the truth, on simulated tables where it is known.

``python -m benchmarks.verdict_coverage [TABLES]``. A table has clients whose labels follow linear models that differ
between clients. Each client alone (least squares) is compared with all together, over one or several random splits: 60
per cent train and 20 test, and 20 stay for validation in all of them. The truth of several splits is the mean gain over
all tables, on 200 fresh rows of each client, of models trained on tables and splits like these. One split takes its
models as they are: the truth is their gain on 1000 fresh rows. Nominal is 95 %.
"""

from __future__ import annotations

import sys
from typing import NamedTuple

import numpy as np

from majorant.metrics.headline import BOUNDED, LOWER_IS_BETTER, parts_of
from majorant.metrics.intervals import LEAST_ROWS, Design, Paired, by_client, discoveries, overall, rows_tested

DIMENSION, RIDGE = 3, 0.1
CUTS = {"accuracy": [0.0], "auc": [2.3], "balanced_accuracy": [2.3, 3.4]}  # between the classes: one of them is rare


class Covered(NamedTuple):
    """Shares of intervals of the mean gain that cover, of those of single clients, and of clients that are named as
    gaining or losing although their models, the very ones that were judged, do not on fresh rows; the median length."""

    whole: float
    clients: float
    wrongly_named: float
    length: float


def coverage(
    metric: str,
    clients: int,
    rows: int,
    splits: int,
    tables: int,
    *,
    differ: float,
    unstable: float = 0.0,
    seed: int = 0,
) -> Covered:
    """Simulates tables and counts; ``unstable`` disturbs the model for all anew in every training."""
    rng = np.random.default_rng([seed, clients, rows, splits])
    theta = rng.normal(1, differ, (clients, DIMENSION))
    train, test, bounded = round(0.6 * rows), round(0.2 * rows), metric in BOUNDED
    many = 1000 if splits == 1 else 200  # fresh rows of each client
    found, truths, pairs_of = [], [], []
    for _ in range(tables):
        x, y = draw(rng, theta, rows, metric)
        fresh = draw(rng, theta, many, metric)
        pairs = []
        for _ in range(splits):
            order = np.argsort(rng.random((clients, train + test)), axis=1)  # all but the validation rows
            alone, together = fitted(take(x, order[:, :train]), take(y, order[:, :train]))
            models = alone, together + unstable * rng.normal(size=DIMENSION)
            tested = order[:, train:]
            numbers = (np.arange(clients)[:, None] * rows + tested).ravel()
            pairs.append(paired(metric, models, take(x, tested), take(y, tested), numbers))
            truths.append(paired(metric, models, *fresh, np.arange(clients * many)))
        design = Design(0.75, 0.25, redrawn=splits > 1)
        pairs_of.append(pairs)
        found.append((overall(pairs, design, bounded=bounded), by_client(pairs, design, bounded=bounded)))
    whole, single, wrong, length = [], [], [], []
    for table, (estimate, own) in enumerate(found):
        here = truths[table * splits : (table + 1) * splits]
        about = here if splits == 1 else truths  # one split takes its models as they are
        truth, each = np.mean([t.gain for t in about]), np.nanmean([t.clients for t in about], axis=0)
        low, high = estimate.interval()
        whole.append(low <= truth <= high)
        length.append(high - low)
        low, high = own.interval()
        known = ~np.isnan(own.gain)
        single.append(np.mean(((low <= each) & (each <= high))[known]) if known.any() else np.nan)
        enough = rows_tested(pairs_of[table]) >= LEAST_ROWS
        named, _ = discoveries(np.where(enough, own.p_value(), np.nan))
        judged = np.nanmean([t.clients for t in here], axis=0)
        wrong.append(np.sum(named & (np.sign(own.gain) != np.sign(judged))) / max(1, named.sum()))
    return Covered(float(np.mean(whole)), float(np.nanmean(single)), float(np.mean(wrong)), float(np.median(length)))


def draw(rng: np.random.Generator, theta: np.ndarray, rows: int, metric: str) -> tuple[np.ndarray, np.ndarray]:
    """Rows of every client: numbers, which may be made into three classes, or two classes, of which one may be rare."""
    x = rng.normal(size=(len(theta), rows, DIMENSION))
    y = np.einsum("csd,cd->cs", x, theta) + rng.normal(size=(len(theta), rows))
    return x, y if metric in ("rmse", "balanced_accuracy") else np.where(y > CUTS[metric][0], 1.0, -1.0)


def take(values: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Some rows of every client."""
    return np.take_along_axis(values, rows.reshape(*rows.shape, *[1] * (values.ndim - 2)), axis=1)


def fitted(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Least squares of each client, and of all together."""
    normal, right = np.einsum("csd,cse->cde", x, x) + RIDGE * np.eye(DIMENSION), np.einsum("csd,cs->cd", x, y)
    alone = np.linalg.solve(normal, right[..., None])[..., 0]
    return alone, np.broadcast_to(np.linalg.solve(normal.sum(axis=0), right.sum(axis=0)), alone.shape)


def paired(
    metric: str, models: tuple[np.ndarray, np.ndarray], x: np.ndarray, y: np.ndarray, rows: np.ndarray
) -> Paired:
    """The gain of one model for all over a client's own."""
    clients, count = y.shape
    owner, labels, found = np.repeat(np.arange(clients), count), y.ravel(), []
    for theta in models:
        f = np.einsum("csd,cd->cs", x, theta).ravel()
        if metric == "rmse":
            found.append(parts_of(metric, labels, f, owner, clients))
        elif metric == "balanced_accuracy":
            kinds = np.digitize(labels, CUTS[metric])
            found.append(parts_of(metric, kinds, np.eye(3)[np.digitize(f, CUTS[metric])], owner, clients))
        else:
            found.append(parts_of(metric, (labels > 0).astype(int), np.stack([-f, f], axis=1), owner, clients))
    alone, together = found
    gain = together.over(alone, -1 if metric in LOWER_IS_BETTER else 1)
    rare = labels > 0 if metric == "auc" else None
    kind = np.digitize(labels, CUTS[metric]) if metric == "balanced_accuracy" else None
    return Paired(gain.value, gain.clients, rows, owner, gain.whole, gain.own, rare, kind)


def main() -> None:
    """Prints a row per kind of table."""
    tables = int(sys.argv[1]) if sys.argv[1:] else 1000
    print("| score | clients × rows | splits | mean gain | a client | wrongly named | length |")
    print("|---" * 7 + "|")
    for metric in ("accuracy", "rmse", "auc", "balanced_accuracy"):
        for clients, rows in ((4, 150), (10, 40), (40, 15)):
            for splits in (1, 3, 5):
                show(
                    f"{metric} | {clients} × {rows} | {splits}",
                    coverage(metric, clients, rows, splits, tables, differ=0.4),
                )
    for splits in (3, 5):
        unstable = coverage("rmse", 10, 40, splits, tables, differ=0.4, unstable=0.3)
        show(f"rmse, unstable training | 10 × 40 | {splits}", unstable)


def show(what: str, found: Covered) -> None:
    """A row."""
    shares = " | ".join(f"{100 * share:.1f}" for share in found[:3])
    print(f"| {what} | {shares} | {found.length:.3f} |", flush=True)


if __name__ == "__main__":
    main()
