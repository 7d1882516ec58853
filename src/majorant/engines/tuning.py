"""Hyperparameters chosen on validation samples: all values of a grid side by side in one program, or by halving.

A grid of hyperparameters is one `simulate` with a run for every combination and seed. *Successive halving* spends
fewer rounds: all runs train for a share of the planned rounds, the better third (1/``keep``) resumes, and so on until
one is left at the end. Schedules run on the planned rounds throughout, and a resumed run ends as if never interrupted:
what survives has the numbers of a run of its own.

Points are ranked by the mean over seeds of `engines.patience.merit`, on validation samples of the clients that train.
Where one class has more than four fifths of the training samples, a model that always answers with it has a high
accuracy: there they are ranked by the loss, and among equals by the accuracy.
A point at which some client's update was rejected as not finite comes after all others. Test samples are taken out
before training begins, so they cannot play a part.

Few validation samples say little: with `FEW` of them the standard error of an accuracy is up to 0.5/√200, 3.5 points,
more than most differences between learning rates. Below that, the choice is made by *cross-fitting*: `FOLDS` splits of
the training and validation samples, each of which validates on other samples (`FederatedData.folds`), every point
trained on each of them, all side by side; a point's numbers are means over splits and seeds.

Reference: Jamieson, Talwalkar, *Non-stochastic best arm identification and hyperparameter optimization*, AISTATS 2016.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from majorant.core import Algorithm
from majorant.data.federated import FederatedData, Ragged
from majorant.engines.divergence import Diverged
from majorant.engines.embedding import embedded
from majorant.engines.options import Evaluation, Resources
from majorant.engines.patience import check_validation, merit
from majorant.engines.run import Run
from majorant.engines.simulator import simulate
from majorant.engines.snapshots import Snapshot, some_runs
from majorant.math.checks import check_whole
from majorant.metrics.headline import choose_headline

FEW = 200  # validation samples of the clients that train, below which the choice is made by folds
FOLDS = 5


class Trial(NamedTuple):
    """One point of a grid: its values, the rounds that it was given, and what it came to on validation samples."""

    hyper: dict[str, float]
    rounds: int
    score: float  # the metric's mean over clients, seeds and folds
    loss: float
    rejected: int  # updates that were not finite

    @property
    def sound(self) -> bool:
        """Whether no client's training diverged."""
        return self.rejected == 0 and bool(np.isfinite([self.score, self.loss]).all())


class Tuning(NamedTuple):
    """What tuning found: the best values, and all trials, best first."""

    best: dict[str, float]
    metric: str
    trials: list[Trial]
    folds: int = 0  # by which the choice was made, or 0 for the validation parts
    by_loss: bool = False  # whether trials are ranked by their loss, as the labels are skewed


def tune(
    algorithm: Algorithm,
    data: FederatedData,
    *,
    rounds: int,
    grid: Mapping[str, Sequence[float]],
    seed: int = 0,
    seeds: int = 1,
    halving: bool = False,
    keep: int = 3,
    folds: int | None = None,
    participation: Any = None,
    channel: Any = None,
    exchange: Any = None,
    attack: Any = None,
    resources: Resources = Resources(),  # noqa: B008 - a plain record
    report: Callable[[int, int, int], None] | None = None,
) -> Tuning:
    """Finds the hyperparameter values that are best on the clients' validation samples.

    ``grid`` has the values of each hyperparameter; all combinations are tried, each from ``seeds`` seeds.
    ``halving`` keeps one in ``keep`` of them at each of its stages. ``folds`` chooses by this many splits of the
    training and validation samples: by default 5 where validation samples are few (see `engines.tuning`) and were
    drawn at random, 0 where they are later times, say: folds of these would be another problem. ``report(trials,
    done, planned)`` is called as rounds are trained. The other arguments are those of `simulate`; pass
    ``hyper=tuning.best`` to the run that follows.

    >>> import majorant as mj
    >>> data = mj.data.synthetic_mixture(clients=8, dimension=4, seed=0)
    >>> found = mj.tune(mj.fedavg(mj.models.linear(data)), data, rounds=5, grid={"lr": [1e-6, 0.3]})
    >>> found.best, len(found.trials)
    ({'lr': 0.3}, 2)
    """
    check_whole("rounds", rounds)
    check_whole("seeds", seeds)
    check_whole("keep", keep, least=2)
    if folds:
        check_whole("folds", folds, least=2)
    else:
        check_validation(data, "tuning")
    folds = folds_for(data) if folds is None else folds
    if not grid:
        raise ValueError("there is nothing to tune: give a grid, as in {'lr': [0.01, 0.1]}")
    points = [dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())]
    if not points:
        raise ValueError(f"the grid has no values for {next(name for name in grid if not len(grid[name]))!r}")
    options: dict[str, Any] = {
        "participation": participation,
        "channel": channel,
        "exchange": exchange,
        "attack": attack,
        "resources": resources,
    }
    data = embedded(data, algorithm.deployment.model)  # once for all folds
    hidden, by_loss = without_test(data), skewed(data)
    sets = hidden.folds(folds, seed=seed) if folds else [hidden]
    repeats = [(one, seed + s) for one in sets for s in range(seeds)]  # of every point
    stages = stages_of(len(points), rounds, keep) if halving else [(len(points), rounds)]
    finished: list[Trial] = []
    saved: Snapshot | None = None
    for stage, (count, until) in enumerate(stages):
        wanted = [(point, one, s) for point in points for one, s in repeats]
        every = until if report is None else max(1, until // 10)
        watched = Evaluation(every, until=f"round >= {until}", report=telling(report, count, rounds))
        run = simulate(
            algorithm,
            [one for _, one, _ in wanted] if folds else hidden,
            rounds=rounds,
            seeds=[s for *_, s in wanted],
            hyper={name: [point[name] for point, *_ in wanted] for name in grid},
            evaluation=watched,
            resume=saved,
            **options,
        )
        trials = trials_of(run, points, len(repeats))
        ranks = [rank(trial, run.metric, by_loss=by_loss) for trial in trials]
        order = sorted(range(len(points)), key=ranks.__getitem__)
        left = stages[stage + 1][0] if stage + 1 < len(stages) else 0
        finished = [trials[i] for i in order[left:]] + finished
        points = [points[i] for i in order[:left]]
        saved = some_runs(run.last, [i * len(repeats) + r for i in order[:left] for r in range(len(repeats))])
    best = next((trial for trial in finished if trial.sound), None)
    if best is None:
        raise Diverged(f"{algorithm.name} diverged at every point of the grid: give smaller values")
    return Tuning(best.hyper, run.metric, finished, folds, by_loss)


def folds_for(data: FederatedData) -> int:
    """By how many folds to choose: none where the validation parts are large enough, or not those of a random split."""
    return 0 if data.told or data.validation.sizes[~data.unseen].sum() >= FEW else FOLDS


def skewed(data: FederatedData) -> bool:
    """Whether accuracy says little, as nearly all training labels are of one class; not found out for lazy labels.

    >>> skewed(FederatedData.from_arrays(np.eye(20), np.arange(20) == 3, clients=np.arange(20) % 2))
    True
    """
    if not data.classes or not isinstance(data.train.y, np.ndarray):
        return False
    labels = data.train.y[np.repeat(~data.unseen, data.train.sizes)]
    return choose_headline(labels, len(data.classes)).name != "accuracy"


def telling(report: Callable[[int, int, int], None] | None, trials: int, planned: int) -> Any:
    """What `simulate` calls after an evaluation, to tell of the rounds that so many trials have made."""
    return None if report is None else lambda lines, snapshot: report(trials, lines[0]["round"], planned)


def stages_of(points: int, rounds: int, keep: int) -> list[tuple[int, int]]:
    """How many points train at each stage, and until which round; the last stage trains one to the end.

    >>> stages_of(9, 90, 3)
    [(9, 10), (3, 30), (1, 90)]
    """
    counts = [points]
    while counts[-1] > 1:
        counts.append(max(1, counts[-1] // keep))
    ends = [max(1, rounds // keep ** (len(counts) - 1 - stage)) for stage in range(len(counts))]
    return [(count, end) for count, end, before in zip(counts, ends, [0, *ends], strict=False) if end > before]


def without_test(data: FederatedData) -> FederatedData:
    """The data without its test samples."""
    test = data.test
    return replace(data, test=Ragged(test.x[:0], test.y[:0], np.zeros_like(test.offsets)))


def trials_of(run: Run, points: Sequence[dict[str, float]], repeats: int) -> list[Trial]:
    """What the last evaluation says of every point, means over its repetitions."""
    found = []
    for i, point in enumerate(points):
        histories = run.histories[i * repeats : (i + 1) * repeats]
        score = np.mean([lines[-1][f"validation_{run.metric}"]["mean"] for lines in histories])
        loss = np.mean([lines[-1]["validation_loss"] for lines in histories])
        rejected = sum(line["rejected"] for lines in histories for line in lines)
        found.append(Trial(point, run.rounds, float(score), float(loss), rejected))
    return found


def rank(trial: Trial, metric: str, *, by_loss: bool = False) -> tuple[bool, tuple[float, float]]:
    """The smaller the better."""
    line = {f"validation_{metric}": {"mean": trial.score}, "validation_loss": trial.loss}
    score, loss = merit(line, metric)
    return not trial.sound, (loss, score) if by_loss else (score, loss)
