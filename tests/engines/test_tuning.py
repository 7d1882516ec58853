"""Tuning: what a loop of separate runs would choose, survivors of halving as whole runs, no look at test samples."""

from contextlib import suppress
from dataclasses import replace

import jax
import numpy as np
import pytest

import majorant as mj
import zoo
from majorant.engines.divergence import Diverged
from majorant.engines.snapshots import Snapshot, some_runs
from majorant.engines.tuning import Trial, folds_for, rank, skewed, stages_of

GRID = {"lr": [0.01, 0.3, 30.0], "mu": [0.1, 2.0]}
ROUNDS = 6


@pytest.fixture(scope="module")
def data():
    return mj.data.synthetic_mixture(clients=6, dimension=4, seed=3)


@pytest.fixture(scope="module")
def algorithm(data):
    local = mj.local_sgd(0.1, epochs=1, batch_size=8, schedule=mj.schedules.multi_step())
    return mj.pfedme(mj.models.linear(data), local=local)


@pytest.fixture(scope="module")
def found(data, algorithm):
    return mj.tune(algorithm, data, rounds=ROUNDS, grid=GRID, seeds=2)


@pytest.fixture(scope="module")
def loop(data, algorithm):
    """Every point in a run of its own, but for those that diverge."""

    def run(**hyper):
        last = mj.Evaluation(every=ROUNDS)
        with suppress(Diverged):
            return mj.simulate(algorithm, data, rounds=ROUNDS, seeds=2, hyper=hyper, evaluation=last)

    each = {(lr, mu): run(lr=lr, mu=mu) for lr in GRID["lr"] for mu in GRID["mu"]}
    return {point: run for point, run in each.items() if run is not None}


def mean_of(run):
    """The validation accuracy and loss of a run, means over seeds."""
    return mean_of_lines([history[-1] for history in run.histories])


def mean_of_lines(lines):
    return np.mean([[line["validation_accuracy"]["mean"], line["validation_loss"]] for line in lines], axis=0)


def test_the_choice_is_that_of_a_loop_over_separate_runs(found, loop):
    assert {tuple(trial.hyper.values()) for trial in found.trials if trial.sound} <= loop.keys()
    assert 0 < sum(trial.sound for trial in found.trials) < len(found.trials) == 6
    for trial in (trial for trial in found.trials if trial.sound):
        np.testing.assert_allclose([trial.score, trial.loss], mean_of(loop[tuple(trial.hyper.values())]), rtol=1e-5)
    sound = [point for point, run in loop.items() if run.summary()["rejected"] == 0]
    by_hand = min(sound, key=lambda point: (-mean_of(loop[point])[0], mean_of(loop[point])[1]))
    assert found.best == dict(zip(GRID, by_hand, strict=True))
    merits = [(-trial.score, trial.loss) for trial in found.trials if trial.sound]
    assert merits == sorted(merits)


def test_survivors_of_halving_have_the_numbers_of_whole_runs(data, algorithm, loop):
    told = []
    report = lambda *numbers: told.append(numbers)
    found = mj.tune(algorithm, data, rounds=ROUNDS, grid=GRID, seeds=2, halving=True, keep=3, report=report)
    assert [trial.rounds for trial in found.trials] == [6, 2, 1, 1, 1, 1]
    best = found.trials[0]
    np.testing.assert_allclose([best.score, best.loss], mean_of(loop[tuple(best.hyper.values())]), rtol=1e-5)
    assert told[-1] == (1, ROUNDS, ROUNDS)
    assert found.best == best.hyper


def test_some_runs_of_a_snapshot_have_all_that_these_runs_left():
    axis = lambda *shape: np.arange(4.0).reshape(4, *[1] * len(shape)) * np.ones(shape)
    counters = {"history": [[{"round": i}] for i in range(4)], "communication": [{"up": i} for i in range(4)]}
    whole = Snapshot(axis(3), {"a": axis(2, 5)}, counters, (axis(2),), {"server": axis(3)})
    for runs in ([3, 1], [2]):
        found = some_runs(whole, runs)
        for tree in (found.server, found.clients, found.memory, found.best):
            assert all(leaf.reshape(len(runs), -1)[:, 0].tolist() == runs for leaf in jax.tree.leaves(tree))
        assert [lines[0]["round"] for lines in found.counters["history"]] == runs
        assert [sent["up"] for sent in found.counters["communication"]] == runs


def test_test_samples_play_no_part(data, algorithm, found):
    turned = replace(data, test=data.test._replace(y=1 - data.test.y, x=-data.test.x))
    again = mj.tune(algorithm, turned, rounds=ROUNDS, grid=GRID, seeds=2)
    assert again == found


def small():
    """Clients of 4 to 12 samples for training and validation: too few for validation parts to choose by."""
    rng = np.random.default_rng(0)
    owner = np.repeat(np.arange(5), [5, 7, 9, 12, 15])
    x = rng.normal(size=(len(owner), 3))
    return mj.data.FederatedData.from_arrays(x, (x[:, 0] > 0).astype(int), clients=owner, seed=0)


def test_small_clients_choose_by_folds():
    """As a loop over folds would: a run for each on the same clients without test samples, means by hand."""
    data = small()
    algorithm = mj.fedavg(mj.models.linear(data), local=mj.local_sgd(0.1, epochs=1, batch_size=4))
    grid = {"lr": [1e-3, 0.1, 1.0]}
    found = mj.tune(algorithm, data, rounds=3, grid=grid, seed=2, seeds=2)
    assert found.folds == 5
    last = mj.Evaluation(every=3)
    folds = [replace(fold, test=data.train) for fold in data.folds(5, seed=2)]  # test samples play no part
    one_by_one = [mj.simulate(algorithm, fold, rounds=3, seed=2, seeds=2, grid=grid, evaluation=last) for fold in folds]
    each = [pair for run in one_by_one for pair in zip(run.settings, run.histories, strict=True)]
    lines = lambda lr: [history[-1] for setting, history in each if setting["hyper"]["lr"] == lr]
    by_hand = {lr: mean_of_lines(lines(lr)) for lr in grid["lr"]}
    for trial in found.trials:
        np.testing.assert_allclose([trial.score, trial.loss], by_hand[trial.hyper["lr"]], rtol=1e-5)
    assert found.best["lr"] == min(by_hand, key=lambda lr: (-by_hand[lr][0], by_hand[lr][1]))
    turned = replace(data, test=data.test._replace(y=1 - data.test.y, x=-data.test.x))
    assert mj.tune(algorithm, turned, rounds=3, grid=grid, seed=2, seeds=2) == found


def test_folds_only_where_validation_samples_are_few(data):
    assert folds_for(data) == 0  # 289 of them
    assert folds_for(replace(data, unseen=np.arange(6) == 0)) == 5  # 89 without the largest client
    assert folds_for(small()) == 5


def test_stages_and_ranks():
    assert stages_of(27, 81, 3) == [(27, 3), (9, 9), (3, 27), (1, 81)]
    assert stages_of(1, 10, 3) == [(1, 10)]
    assert stages_of(5, 2, 2) == [(5, 1), (1, 2)]
    good, rejected, lost = Trial({}, 1, 0.5, 1.0, 0), Trial({}, 1, 0.9, 0.1, 3), Trial({}, 1, float("nan"), 1.0, 0)
    assert sorted([rejected, good, lost], key=lambda t: rank(t, "accuracy"))[0] is good
    timid = Trial({}, 1, 0.6, 2.0, 0)  # more often right, but less likely
    assert rank(timid, "accuracy") < rank(good, "accuracy")
    assert rank(good, "accuracy", by_loss=True) < rank(timid, "accuracy", by_loss=True)


def test_where_one_class_is_rare_the_loss_decides():
    """A step of nothing answers with the frequent class, and has its accuracy; it must not win by that."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(600, 3)).astype(np.float32)
    y = (x[:, 0] + 0.5 * rng.normal(size=600) > 1.6).astype(int)
    assert 0.05 < y.mean() < 0.15
    rare = mj.data.partitioned(x, y, np.arange(600) % 3)
    assert skewed(rare)
    assert not skewed(mj.data.partitioned(x, (x[:, 0] > 0).astype(int), np.arange(600) % 3))
    apart = mj.data.partitioned(
        x, (x[:, 0] > np.where(np.arange(600) % 3 == 0, 0, 1.8)).astype(int), np.arange(600) % 3
    )
    assert skewed(apart)
    assert not skewed(replace(apart, unseen=np.arange(3) > 0))  # labels of clients that do not train say nothing
    method = mj.fedavg(mj.models.linear(rare, start="zeros"))
    found = mj.tune(method, rare, rounds=5, grid={"lr": [1e-9, 30.0]}, folds=0)
    assert found.by_loss
    assert found.best == {"lr": 30.0}
    learned, nothing = found.trials
    assert learned.loss < nothing.loss / 2
    assert learned.score < nothing.score  # by accuracy, the step of nothing would have won


def test_what_cannot_be_tuned(data, algorithm):
    with pytest.raises(ValueError, match="no hyperparameter 'rate'; it has lr, mu"):
        mj.tune(algorithm, data, rounds=2, grid={"rate": [0.1]})
    with pytest.raises(ValueError, match="nothing to tune"):
        mj.tune(algorithm, data, rounds=2, grid={})
    with pytest.raises(ValueError, match="tuning chooses by validation samples, and tiny has none"):
        mj.tune(zoo.algorithm("local"), zoo.problem(), rounds=2, grid={"lr": [0.1]})
